"""Code that takes numbers below the smallest normal one (1.2e-38 in f32, 2.2e-308 in f64) for 0, read and written.

A running mean of gradients that have become 0, such as those of a dead ReLU, ends among these numbers and never leaves
them: four times the smallest one, times 0.9, rounds to itself. Processors take far longer for each.
Conversions from and to f16 keep all of its numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from aicf.backends.cpu.codegen.ir_builder import I32, PTR, VOID, Emitter

_FLUSH = 0x8040
"""Bits of MXCSR: results are flushed to zero, and operands are zeros. Intel SDM, volume 1, 10.2.3."""


def emit_flushed(em: Emitter, emit: Callable[[Emitter], None]) -> None:
    """Calls what `emit` writes into a function of its own; other code of the thread stays as it is.

    LLVM takes arithmetic to be free of the mode that it runs in, so nothing but a call keeps it between the switches.

    Args:
        em: Of a function for x86-64 without a result.
        emit: Writes a body; the arguments of its function are those of the caller.
    """
    outer = em.function
    inner: Any = ir.Function(em.module, outer.function_type, f"{outer.name}.flushed")
    inner.linkage = "internal"
    inner.attributes.add("noinline")
    body = Emitter(em.module, em.level, inner)
    emit(body)
    body.b.ret_void()
    signature = ir.FunctionType(VOID, [PTR])
    read, write = (em.declare(f"llvm.x86.sse.{name}mxcsr", signature) for name in ("st", "ld"))
    before, inside = em.stack(I32, 1), em.stack(I32, 1)
    em.b.call(read, [before])
    em.b.store(em.b.or_(em.b.load(before, typ=I32), ir.Constant(I32, _FLUSH)), inside)
    em.b.call(write, [inside])
    em.b.call(inner, list(outer.args))
    em.b.call(write, [before])
