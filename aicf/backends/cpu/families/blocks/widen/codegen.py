"""The code that widens rows of blocks: from a launch to the template's arguments."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.record import read_text
from aicf.backends.cpu.codegen.call import Call, strided, threads_given
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.blocks.widen.template import BlockWidener


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The rows of a launch."""
    scheme = read_text(launch.record, "scheme")
    widener = BlockWidener(em, scheme, strided(launch.ins[0]), strided(launch.outs[0]))
    widener.emit(call.ins[0], call.outs[0], *threads_given(em, launch, call))
