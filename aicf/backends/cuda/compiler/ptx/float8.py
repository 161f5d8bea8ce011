# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Floats of 8 bits: conversions, and products of warps. Which instructions do it depends on the GPU.

Conversions round to nearest even; what is too large becomes infinity, or NaN in f8E4M3FN. They are instructions from
sm_89 on, which only saturate: what they saturate is replaced. Older GPUs do them by arithmetic. A u16 holds two
elements, the first in the low byte.

A warp multiplies floats of 8 bits themselves on sm_89. On other GPUs it multiplies the halves that they are, which hold
all of them: the compiler would have Hopper do so too, but convert each operand again for every product.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.extending import intrinsic

from aicf.backends.cuda.compiler.ptx.intrinsics import PTX_BYTES, Intrinsic, value_asm
from aicf.backends.cuda.compiler.ptx.tiles import mma_tile_of

CONVERTS_FROM = 89
"""The least compute capability, times ten, that has instructions for conversions."""
MULTIPLIES = (89,)
"""Those whose warps multiply floats of 8 bits."""


@dataclass(frozen=True)
class _Format:
    """A float of 8 bits.

    Args:
        pair: What instructions call two of them.
        mantissa: Bits of its mantissa.
        bias: Of its exponent.
        overflow: The bits of what is too large.
        too_large: PTX that sets the predicate `p` of an absolute value `a` that rounds to more than the largest number.
    """

    pair: str
    mantissa: int
    bias: int
    overflow: int
    too_large: str


_FORMATS = {
    # 464 is half-way to what would come next, and even is 448; 61440 is half-way to infinity, which is even.
    "f8E4M3FN": _Format("e4m3x2", 3, 7, 0x7F, "setp.gt.f32 p, a, 0f43E80000;"),
    "f8E5M2": _Format("e5m2x2", 2, 15, 0x7C, "setp.ge.f32 p, a, 0f47700000;"),
}


_HALVES = "halves_of_"
"""Start of the names of conversions of four elements to halves."""

Bodies = Mapping[str, tuple[str, list[str], list[str]]]
"""By the name of an intrinsic its PTX, the types of its results and of its arguments."""


def _intrinsics(bodies: Bodies) -> Mapping[str, Intrinsic]:
    """All but `halves_of_D`, which is a part of products."""
    return {
        name: value_asm(f"{{ {body} }}", results, arguments, effect=False)
        for name, (body, results, arguments) in bodies.items()
        if not name.startswith(_HALVES)
    }


# From sm_89 on


def by_instruction(name: str) -> Bodies:
    """The conversions of one type by instructions."""
    own = _FORMATS[name]

    def narrowed(low: str, high: str) -> str:
        """Sets `w`: what is too large is replaced, with its sign."""
        text = ".reg .b16 h; .reg .b32 w,t; .reg .f32 a; .reg .pred p; "
        text += f"cvt.rn.satfinite.{own.pair}.f32 h, {high}, {low}; cvt.u32.u16 w, h; "
        for source, shift in ((low, 0), (high, 8)):
            if source != "0f00000000":
                kept = 0xFFFF ^ (0x7F << shift)
                text += f"abs.f32 a, {source}; {own.too_large} and.b32 t, w, {kept:#x}; "
                text += f"or.b32 t, t, {own.overflow << shift:#x}; selp.b32 w, t, w, p; "
        return text + "cvt.u16.u32 $0, w;"

    halves = f".reg .b32 h; .reg .b16 l,u; cvt.rn.f16x2.{own.pair} h, {{}}; mov.b32 {{{{l,u}}}}, h; "
    one, two = halves.format("$1"), halves.format("$2")
    return {
        f"f32_to_{name}": (narrowed("$1", "0f00000000"), ["u16"], ["f32"]),
        f"pack_{name}": (narrowed("$1", "$2"), ["u16"], ["f32", "f32"]),
        f"{name}_to_f32": (one + "cvt.f32.f16 $0, l;", ["f32"], ["u16"]),
        f"unpack_{name}": (two + "cvt.f32.f16 $0, l; cvt.f32.f16 $1, u;", ["f32", "f32"], ["u16"]),
        f"{_HALVES}{name}": (
            f".reg .b16 l,u; mov.b32 {{l,u}}, $2; cvt.rn.f16x2.{own.pair} $0, l; cvt.rn.f16x2.{own.pair} $1, u;",
            ["u32", "u32"],
            ["u32"],
        ),
    }


# Older GPUs


def by_arithmetic(name: str) -> Bodies:
    """The conversions of one type by instructions that every GPU has."""
    own = _FORMATS[name]
    registers = ".reg .b32 b,m,n,u,f,w; .reg .b16 h; .reg .f32 a; .reg .pred p; "

    def narrowed(source: str) -> str:
        """Sets `n`. A number below the least normal one rounds where an addition cuts it off, a normal one by half a
        unit less one, or half a unit if its last bit is set."""
        dropped, exponent = 23 - own.mantissa, 24 - own.bias - own.mantissa
        return (
            f"mov.b32 b, {source}; and.b32 m, b, 0x7FFFFFFF; mov.b32 a, m; "
            f"add.f32 a, a, 0f{127 + exponent << 23:08X}; mov.b32 u, a; sub.u32 u, u, {127 + exponent << 23:#x}; "
            f"sub.u32 n, m, {127 - own.bias << 23:#x}; bfe.u32 f, n, {dropped}, 1; add.u32 n, n, f; "
            f"add.u32 n, n, {(1 << dropped - 1) - 1:#x}; shr.u32 n, n, {dropped}; "
            f"setp.lt.u32 p, m, {128 - own.bias << 23:#x}; selp.b32 n, u, n, p; min.u32 n, n, {own.overflow:#x}; "
            "setp.gt.u32 p, m, 0x7F800000; selp.b32 n, 0x7F, n, p; "
            "shr.u32 b, b, 24; and.b32 b, b, 0x80; or.b32 n, n, b; "
        )

    def widened(result: str, shift: int) -> str:
        """Of the byte of `w` at a shift, by way of an f16 with the bits of its mantissa."""
        if own.bias == 15:
            return f"shl.b32 n, w, {8 - shift}; and.b32 n, n, 0xFF00; cvt.u16.u32 h, n; cvt.f32.f16 {result}, h; "
        return (
            f"bfe.u32 m, w, {shift}, 7; shl.b32 n, m, 7; setp.eq.u32 p, m, 0x7F; selp.b32 n, 0x7E00, n, p; "
            f"bfe.u32 b, w, {shift + 7}, 1; shl.b32 b, b, 15; or.b32 n, n, b; cvt.u16.u32 h, n; cvt.f32.f16 a, h; "
            f"mul.f32 {result}, a, 0f43800000; "
        )

    def halves(result: str, bytes_: int) -> str:
        """Of two bytes of $2, each the high byte of a word; their exponent is moved by a multiplication."""
        if own.bias == 15:
            return f"prmt.b32 {result}, $2, 0, {bytes_:#x}; "
        return (
            f"prmt.b32 w, $2, 0, {bytes_:#x}; and.b32 m, w, 0x7F007F00; shr.u32 n, m, 1; and.b32 b, w, 0x80008000; "
            "or.b32 n, n, b; mul.rn.f16x2 n, n, u; "
            "and.b32 f, m, 0xFFFF; setp.eq.u32 p, f, 0x7F00; selp.b32 f, 0x7E00, 0, p; or.b32 n, n, f; "
            "shr.u32 f, m, 16; setp.eq.u32 p, f, 0x7F00; selp.b32 f, 0x7E000000, 0, p; "
            f"or.b32 {result}, n, f; "
        )

    scale = "" if own.bias == 15 else "mov.b32 u, 0x5C005C00; "
    four = scale + halves("$0", 0x1404) + halves("$1", 0x3424)
    first, second = narrowed("$1"), narrowed("$2")
    one, two = widened("$0", 0), widened("$0", 0) + widened("$1", 8)
    pair = f"{first}mov.b32 w, n; {second}shl.b32 n, n, 8; or.b32 n, n, w; "
    return {
        f"f32_to_{name}": (f"{registers}{first}cvt.u16.u32 $0, n;", ["u16"], ["f32"]),
        f"pack_{name}": (f"{registers}{pair}cvt.u16.u32 $0, n;", ["u16"], ["f32", "f32"]),
        f"{name}_to_f32": (f"{registers}cvt.u32.u16 w, $1; {one}", ["f32"], ["u16"]),
        f"unpack_{name}": (f"{registers}cvt.u32.u16 w, $2; {two}", ["f32", "f32"], ["u16"]),
        f"{_HALVES}{name}": (f"{registers}{four}", ["u32", "u32"], ["u32"]),
    }


# Products of warps


def _mma_tile_of_halves(a_type: str, b_type: str, bodies: Bodies) -> Intrinsic:
    """As `mma_tile_of`: four neighbours along k in a register are two pairs of halves, and a product of 32 along k is
    one of all first pairs and one of all second pairs: both operands have the same order, so no term is lost."""
    text = (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{$0,$1,$2,$3}, {$8,$9,$10,$11}, {$12,$13}, {$0,$1,$2,$3};"
    )
    word, real = ir.IntType(32), ir.FloatType()
    pair = ir.LiteralStructType([word] * 2)

    def halves(builder: Any, words: Sequence[Any], name: str) -> list[list[Any]]:
        body = bodies[f"{_HALVES}{name}"][0]
        convert = ir.InlineAsm(ir.FunctionType(pair, [word]), f"{{ {body} }}", "=r,=r,r", side_effect=False)
        made = [builder.call(convert, [each]) for each in words]
        return [[builder.extract_value(each, number) for each in made] for number in range(2)]

    @intrinsic
    def mma_tile(typingctx: Any, accumulator: Any, a: Any, b: Any) -> Any:
        if not all(isinstance(given, types.UniTuple) for given in (accumulator, a, b)):
            return None
        rows, columns = a.count // 4, b.count // 2

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            function = ir.FunctionType(ir.LiteralStructType([real] * 4), [real] * 4 + [word] * 6)
            mma = ir.InlineAsm(function, text, "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r", side_effect=False)
            sums, left, right = (
                [builder.extract_value(value, i) for i in range(given.count)]
                for value, given in zip(values, signature.args, strict=True)
            )
            for x, y in zip(halves(builder, left, a_type), halves(builder, right, b_type), strict=True):
                for row, column in itertools.product(range(rows), range(columns)):
                    at = 4 * (row * columns + column)
                    parts = sums[at : at + 4] + x[4 * row : 4 * row + 4] + y[2 * column : 2 * column + 2]
                    made = builder.call(mma, parts)
                    sums[at : at + 4] = [builder.extract_value(made, i) for i in range(4)]
            return cgutils.pack_array(builder, sums)

        return accumulator(accumulator, a, b), codegen

    return mma_tile


def float8_intrinsics(capability: int) -> Mapping[str, Intrinsic]:
    """f32_to_D and D_to_f32 of one element, pack_D and unpack_D of two, and mma_tile_A_B, on GPUs of a compute
    capability (times ten)."""
    make = by_instruction if capability >= CONVERTS_FROM else by_arithmetic
    bodies = {name: body for dtype in _FORMATS for name, body in make(dtype).items()}
    products: dict[str, Intrinsic] = {}
    for a, b in itertools.product(_FORMATS, repeat=2):
        kinds = PTX_BYTES["f32"]
        is_native = capability in MULTIPLIES
        products[f"mma_tile_{a}_{b}"] = (
            mma_tile_of(kinds[a], kinds[b], 32) if is_native else _mma_tile_of_halves(a, b, bodies)
        )
    return {**_intrinsics(bodies), **products}
