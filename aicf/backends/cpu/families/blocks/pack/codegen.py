"""The code that lays weights out in panels of blocks: from a launch to the template's arguments."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cpu.codegen.call import Call
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.blocks.pack.kernel import read_panels
from aicf.backends.cpu.families.blocks.pack.template import BlockPacker
from aicf.errors import PlanError


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The weight of a launch in panels."""
    weight, layout = launch.ins[0], launch.outs[0].layout
    if layout is None:
        raise PlanError(f"instruction '{launch.name}': its result has no layout: run lower-to-emit again")
    rows, row_bytes = weight.shape
    packer = BlockPacker(em, read_panels(layout), rows, row_bytes, weight.strides[0])
    packer.emit(call.ins[0], call.outs[0])
