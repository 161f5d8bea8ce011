"""The code that finds the indices of the largest elements."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.record import read_integer
from aicf.backends.cpu.codegen.call import Call, strided, threads_given
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.records import get_bool
from aicf.backends.cpu.families.topk.template import Topk


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The indices of the largest elements of each row."""
    axis, smallest = read_integer(launch.record, "axis"), get_bool(launch.record, "smallest")
    topk = Topk(strided(launch.ins[0]), strided(launch.outs[0]), axis, smallest)
    tid, nthreads = threads_given(em, launch, call)
    topk.emit(em, call.ins[0], call.outs[0], tid, nthreads)
