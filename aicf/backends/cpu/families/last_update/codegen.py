"""The code that finds the last update of each row."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cpu.codegen.call import Call, strided
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.last_update.template import emit_last_update


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The last update of each row."""
    emit_last_update(em, strided(launch.ins[0]), strided(launch.outs[0]), call.ins[0], call.outs[0])
