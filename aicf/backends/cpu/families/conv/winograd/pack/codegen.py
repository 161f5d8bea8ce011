"""The code that transforms the weight of Winograd's products."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.record import read_integer
from aicf.backends.cpu.codegen.call import Call
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.conv.winograd.pack.template import emit_winograd_pack


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The weight of Winograd's products."""
    source = launch.ins[0]
    lanes, tile, nr = (read_integer(launch.record, name) for name in ("lanes", "output_tile", "nr"))
    outputs, channels = source.shape[:2]
    sizes = (outputs, channels)
    emit_winograd_pack(em, source.dtype, lanes, sizes, tile, nr, call.ins[0], call.outs[0])
