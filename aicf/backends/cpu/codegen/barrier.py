"""A barrier between the threads of a program, as code.

The counter lives in the program's pointer table, next to the function pointers, so that every table (every running
instance) has its own. It only ever grows: a thread waits until as many have arrived as complete its round.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from aicf.backends.cpu.codegen.ir_builder import I32, I64, PTR, VOID, Emitter, Value
from aicf.backends.cpu.target import CpuLevel

_SPINS_BEFORE_YIELD = 128


def emit_barrier_function(module: Any, level: CpuLevel, yield_at: int) -> Any:
    """``void barrier(void** counter, i64 nthreads)``; `yield_at` pointers past the counter lies a function that gives
    up the processor for a moment."""
    function = ir.Function(module, ir.FunctionType(VOID, [PTR, I64]), "barrier")
    function.linkage = "internal"
    em = Emitter(module, level, function)
    counter, nthreads = function.args
    b = em.b
    ticket = b.atomic_rmw("add", counter, em.index(1), "acq_rel")
    complete = b.mul(b.add(b.sdiv(ticket, nthreads), em.index(1)), nthreads)
    before = b.block
    check, wait, give_way, done = (
        function.append_basic_block(name) for name in ("check", "wait", "yield", "done")
    )
    b.branch(check)
    b.position_at_end(check)
    spins = b.phi(I64)
    spins.add_incoming(em.index(0), before)
    arrived = b.load_atomic(counter, "acquire", 8, typ=I64)
    b.cbranch(b.icmp_signed(">=", arrived, complete), done, wait)
    b.position_at_end(wait)
    if level.architecture == "x86_64":
        b.call(em.declare("llvm.x86.sse2.pause", ir.FunctionType(VOID, [])), [])
    following = b.add(spins, em.index(1))
    spins.add_incoming(following, wait)
    b.cbranch(b.icmp_signed("<", following, em.index(_SPINS_BEFORE_YIELD)), check, give_way)
    b.position_at_end(give_way)
    _call_yield(em, counter, yield_at)
    spins.add_incoming(em.index(0), give_way)
    b.branch(check)
    b.position_at_end(done)
    b.ret_void()
    return function


def _call_yield(em: Emitter, counter: Value, yield_at: int) -> None:
    pointer = em.b.load(em.b.gep(counter, [em.index(yield_at)], source_etype=PTR), typ=PTR)
    em.b.call(em.typed_function(pointer, ir.FunctionType(I32, [])), [])
