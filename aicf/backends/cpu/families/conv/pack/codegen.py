"""The code that packs the weight of a convolution in panels of quads."""

from __future__ import annotations

from math import prod

from aicf.backends.base import Launch
from aicf.backends.common.record import read_integer
from aicf.backends.cpu.codegen.call import Call
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.conv.pack.template import ChannelQuadPacker


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """A weight in panels of quads."""
    outputs, channels, *taps = launch.ins[0].shape
    lanes, nr, shift = (read_integer(launch.record, name) for name in ("lanes", "nr", "shift"))
    ChannelQuadPacker(em, lanes, channels, prod(taps), nr, shift).matrix(outputs, call.ins[0], call.outs[0])
