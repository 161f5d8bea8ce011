"""The code of one instruction: what its generator is given besides the launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.loop_nest import Strided
from aicf.backends.common.record import read_integer
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.errors import PlanError


@dataclass(frozen=True)
class Call:
    """Run-time arguments of the function of an instruction.

    Args:
        ins, outs, ws: Addresses of operands, results and workspace.
        tid, nthreads: Number of this thread, and of all.
        table: Address of the first function pointer.
        functions: Names of the functions that the table holds, in order.
    """

    ins: tuple[Value, ...]
    outs: tuple[Value, ...]
    ws: tuple[Value, ...]
    tid: Value
    nthreads: Value
    table: Value
    functions: Sequence[str]

    @staticmethod
    def of(launch: Launch, args: Sequence[Value], functions: Sequence[str]) -> Call:
        """The arguments of the function of an instruction, or of one that it passes them on to."""
        ins, outs, operands = len(launch.ins), len(launch.outs), operand_count(launch)
        pointers, (tid, nthreads, table) = tuple(args[:operands]), args[operands : operands + 3]
        return Call(
            pointers[:ins],
            pointers[ins : ins + outs],
            pointers[ins + outs :],
            tid,
            nthreads,
            table,
            functions,
        )


def operand_count(launch: Launch) -> int:
    """Buffers that the function of an instruction is given."""
    return len(launch.ins) + len(launch.outs) + len(launch.ws)


def strided(ref: BufferRef) -> Strided:
    """A buffer as code addresses it."""
    return Strided(ref.shape, ref.strides, ref.dtype)


def thread_count(launch: Launch) -> int:
    """Threads that share an instruction."""
    return read_integer(launch.record, "threads")


def threads_given(em: Emitter, launch: Launch, call: Call) -> tuple[Value, Value]:
    """Number of this thread and of all, as i64; one thread does all of it where the record says so."""
    return (em.index(0), em.index(1)) if thread_count(launch) == 1 else (call.tid, call.nthreads)


def require_workspace(launch: Launch, call: Call, nbytes: int | None = None) -> None:
    """Raises PlanError if an instruction has no workspace, of which it needs `nbytes` if that is given."""
    if not call.ws:
        how_much = "" if nbytes is None else f"{nbytes} bytes of "
        raise PlanError(f"instruction '{launch.name}' needs {how_much}workspace: run lower-to-emit again")
