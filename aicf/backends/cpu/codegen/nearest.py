"""Floats that are rounded and become short integers at once, by an instruction of x86 that does both."""

from __future__ import annotations

from aicf.backends.cpu.codegen.ir_builder import F32, I16, I32, Emitter, Value, ir

_NEAREST = {
    4: "llvm.x86.sse2.cvtps2dq",
    8: "llvm.x86.avx.cvt.ps2dq.256",
    16: "llvm.x86.avx512.mask.cvtps2dq.512",
}
"""Lanes to the instruction that converts f32 to the nearest i32, to even between two."""


def nearest_short(em: Emitter, x: Value, target: Value, limits: tuple[int, int]) -> Value | None:
    """What `Emitter.saturating_int` gives for floats that a function rounded; None if `x` is no vector of those.

    Args:
        target: LLVM type of a vector of integers of 8 or 16 bits.
        limits: The least and the largest of them.
    """
    rounded = _rounded(em, x)
    if rounded is None or target.element.width >= 32:
        return None
    lanes = target.count
    least, most = (em.const("f32", lanes, limit) for limit in limits)
    inside = em.b.select(em.b.fcmp_ordered(">", rounded, least), rounded, least)
    inside = em.b.select(em.b.fcmp_ordered("<", inside, most), inside, most)
    whole = _nearest(em, inside)
    if limits[0] < 0:
        # A NaN has become the least integer.
        is_none = em.b.fcmp_unordered("uno", rounded, rounded)
        whole = em.b.select(is_none, em.const("i32", lanes, 0), whole)
    return em.b.trunc(whole, target)


def _rounded(em: Emitter, x: Value) -> Value | None:
    """The vector of f32 whose nearest whole numbers `x` holds, if one instruction converts it."""
    callee = getattr(x, "callee", None)
    if em.level.architecture != "x86_64" or not isinstance(x.type, ir.VectorType):
        return None
    is_rounded = callee is not None and callee.name.startswith("llvm.roundeven")
    return x.args[0] if is_rounded and x.type.element == F32 and x.type.count in _NEAREST else None


def _nearest(em: Emitter, x: Value) -> Value:
    lanes = x.type.count
    whole = ir.VectorType(I32, lanes)
    if lanes < 16:
        return em.b.call(em.declare(_NEAREST[lanes], ir.FunctionType(whole, [x.type])), [x])
    signature = ir.FunctionType(whole, [x.type, whole, I16, I32])
    callee = em.declare(_NEAREST[lanes], signature, immediates=(3,))
    # Of all lanes, rounded as the processor is told to: to nearest.
    given = [ir.Constant(whole, None), ir.Constant(I16, -1), ir.Constant(I32, 4)]
    return em.b.call(callee, [x, *given])
