"""The code that lays weights out in panels of blocks: from a launch to the template's arguments."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cpu.codegen.call import Call
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.blocks.pack.kernel import read_panels
from aicf.backends.cpu.families.blocks.pack.template import BlockPacker
from aicf.errors import PlanError


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The weight of a launch in panels."""
    weight, layout = launch.ins[0], launch.outs[0].layout
    if layout is None:
        raise PlanError(f"instruction '{launch.name}': its result has no layout: run lower-to-emit again")
    *_, rows, row_bytes = weight.shape
    panels = read_panels(layout)
    packer = BlockPacker(em, panels, rows, row_bytes, weight.strides[-2])
    if len(weight.shape) == 2:
        packer.emit(call.ins[0], call.outs[0])
        return

    @em.each(0, weight.shape[0])
    def matrix(number: Value) -> None:
        source = em.moved(call.ins[0], number, weight.strides[0], "u8")
        packer.emit(source, em.moved(call.outs[0], number, panels.nbytes(weight.shape[1:]), "u8"))
