# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Arithmetic and conversions of single numbers, random words, and the address of shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from aicf.backends.cuda.compiler.ptx.intrinsics import u32, value_asm

# Half precision: a u32 holds two elements, the first in the low half

unpack_f16 = value_asm(
    "{ .reg .b16 l,h; mov.b32 {l,h}, $2; cvt.f32.f16 $0,l; cvt.f32.f16 $1,h; }",
    ["f32"] * 2,
    ["u32"],
    effect=False,
)
unpack_bf16 = value_asm(
    "{ shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000; }", ["f32"] * 2, ["u32"], effect=False
)
pack_f16 = value_asm("cvt.rn.f16x2.f32 $0, $2, $1;", ["u32"], ["f32", "f32"], effect=False)
pack_bf16 = value_asm("cvt.rn.bf16x2.f32 $0, $2, $1;", ["u32"], ["f32", "f32"], effect=False)
f16_to_f32 = value_asm("cvt.f32.f16 $0, $1;", ["f32"], ["u16"], effect=False)
bf16_to_f32 = value_asm(
    "{ .reg .b32 t; cvt.u32.u16 t, $1; shl.b32 t, t, 16; mov.b32 $0, t; }", ["f32"], ["u16"], effect=False
)
f32_to_f16 = value_asm("cvt.rn.f16.f32 $0, $1;", ["u16"], ["f32"], effect=False)
f32_to_bf16 = value_asm("cvt.rn.bf16.f32 $0, $1;", ["u16"], ["f32"], effect=False)

# Integers of 8 bits: a u32 holds four elements, the first in the lowest byte; each is an i32 by itself

unpack_i8x4, unpack_u8x4 = (
    value_asm(
        " ".join(f"bfe.{kind} ${i}, $4, {8 * i}, 8;" for i in range(4)), ["i32"] * 4, ["u32"], effect=False
    )
    for kind in ("s32", "u32")
)
pack_bytes = value_asm(
    "{ .reg .b32 l,h; prmt.b32 l, $1, $2, 0x0040; prmt.b32 h, $3, $4, 0x0040; prmt.b32 $0, l, h, 0x5410; }",
    ["u32"],
    ["i32"] * 4,
    effect=False,
)
"""The low bytes of four integers."""

# Arithmetic

exp2_approx = value_asm("ex2.approx.ftz.f32 $0, $1;", ["f32"], ["f32"], effect=False)
rcp_approx = value_asm("rcp.approx.ftz.f32 $0, $1;", ["f32"], ["f32"], effect=False)
max_nan = value_asm("max.NaN.f32 $0, $1, $2;", ["f32"], ["f32", "f32"], effect=False)
min_nan = value_asm("min.NaN.f32 $0, $1, $2;", ["f32"], ["f32", "f32"], effect=False)
max_nan_f16x2 = value_asm("max.NaN.f16x2 $0, $1, $2;", ["u32"], ["u32", "u32"], effect=False)
max_nan_bf16x2 = value_asm("max.NaN.bf16x2 $0, $1, $2;", ["u32"], ["u32", "u32"], effect=False)
ERFC_LOG2 = (
    "0fBFD05F4F",
    "0fBF6B1D56",
    "0fBE180B90",
    "0f3CE77435",
    "0fBA4B0D9B",
    "0fBAC33A85",
    "0f39E994CF",
    "0fB83E418F",
)
"""Coefficients of x, x^2, ... of log2(1 - erf(x)), fitted so that the largest error of erf from 0 to 3.9 is least."""
ERF_LIMIT = 4.0
"""Beyond it erf is taken as 1, which it is in f32 from 3.92 on, in the polynomial as well."""


def _erf_steps() -> str:
    *others, last = ERFC_LOG2
    limit = np.float32(ERF_LIMIT).view(np.uint32)
    steps = f"abs.f32 a, $1; min.NaN.f32 a, a, 0f{limit:08X}; mov.f32 q, {last}; "
    steps += "".join(f"fma.rn.f32 q, q, a, {each}; " for each in reversed(others))
    return steps + "mul.f32 q, q, a; ex2.approx.ftz.f32 q, q; sub.f32 q, 0f3F800000, q; "


erf_absolute = value_asm(
    "{ .reg .f32 a,q; " + _erf_steps() + "copysign.f32 $0, $1, q; }", ["f32"], ["f32"], effect=False
)
"""erf(x). The absolute error is that of the polynomial, below 6.1e-8, and that of the hardware's power of two: it may
be off by 2^-22 of it: it is 1 where x is 0 and falls from there. The relative one is larger where x is small. NaN
stays."""
bits_to_f32 = value_asm("mov.b32 $0, $1;", ["f32"], ["u32"], effect=False)
larger = value_asm("max.f32 $0, $1, $2;", ["f32"], ["f32", "f32"], effect=False)
"""The larger of two numbers; of a number and a NaN, the number."""
INFINITY, NEGATIVE_INFINITY = np.float32("inf"), np.float32("-inf")


def _philox_rounds() -> str:
    """Philox4x32-10 of the counter $4, whose upper two words are 0, with the key $5."""
    step = (
        "mul.wide.u32 p, c0, 0xD2511F53; mul.wide.u32 q, c2, 0xCD9E8D57; "
        "mov.b64 {l0,h0}, p; mov.b64 {l1,h1}, q; "
        "xor.b32 c0, h1, c1; xor.b32 c0, c0, k0; mov.b32 c1, l1; "
        "xor.b32 c2, h0, c3; xor.b32 c2, c2, k1; mov.b32 c3, l0; "
    )
    next_key = "add.u32 k0, k0, 0x9E3779B9; add.u32 k1, k1, 0xBB67AE85; "
    return (
        "{ .reg .b64 p,q; .reg .b32 c0,c1,c2,c3,k0,k1,l0,l1,h0,h1; "
        "mov.b64 {c0,c1}, $4; mov.b64 {k0,k1}, $5; mov.b32 c2, 0; mov.b32 c3, 0; "
        + next_key.join([step] * 10)
        + "mov.b32 $0, c0; mov.b32 $1, c1; mov.b32 $2, c2; mov.b32 $3, c3; }"
    )


philox = value_asm(_philox_rounds(), ["u32"] * 4, ["u64", "u64"], effect=False)
"""`philox(counter, key)`: four random words."""
philox_word = value_asm(
    "{ .reg .pred p; mov.b32 $0, $2; setp.eq.u32 p, $1, 1; @p mov.b32 $0, $3; "
    "setp.eq.u32 p, $1, 2; @p mov.b32 $0, $4; setp.eq.u32 p, $1, 3; @p mov.b32 $0, $5; }",
    ["u32"],
    ["u32", ("u32", 4)],
    effect=False,
)
"""`philox_word(number, words)`: one of four."""


def _divided(instruction: str) -> Any:
    @intrinsic
    def divided(typingctx: Any, dividend: Any, divisor: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return getattr(builder, instruction)(*values)

        return u32(u32, u32), codegen

    return divided


quotient, remainder = _divided("udiv"), _divided("urem")
"""Of unsigned 32-bit numbers, without the checks of Python's `//`."""


@intrinsic
def shared_base(typingctx: Any, array: Any) -> Any:
    """The u32 address of a shared array: `shared_base(cuda.shared.array(0, u8))` is where dynamic memory starts."""
    if not isinstance(array, types.Array):
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        from numba.cuda.np.arrayobj import make_array

        generic = make_array(signature.args[0])(context, builder, values[0]).data
        shared = builder.addrspacecast(generic, generic.type.pointee.as_pointer(3))
        return builder.ptrtoint(shared, ir.IntType(32))

    return u32(array), codegen


ALL_LANES = 0xFFFFFFFF
