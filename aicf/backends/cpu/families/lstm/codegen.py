"""The code of all steps of an LSTM."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cpu.codegen.call import Call, require_workspace, strided
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.lstm.kernel import read_sizes
from aicf.backends.cpu.families.lstm.template import Lstm, LstmPointers
from aicf.backends.cpu.families.records import get_bool


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """All steps of the LSTM."""
    sizes = read_sizes(launch.record, launch.outs[0].shape)
    if not sizes.ahead:
        require_workspace(launch, call)
    x, weight, first, states = (strided(ref) for ref in (*launch.ins, *launch.outs))
    lstm = Lstm(x, weight, first, states, sizes, get_bool(launch.record, "reverse"))
    workspace = None if sizes.ahead else call.ws[0]
    lstm.emit(em, LstmPointers(call.ins[0], call.ins[1], call.ins[2], call.outs[0], workspace))
