"""Code for sine and cosine of f32 and f64 vectors, within 4 ulp for every argument, without calls into a library.

The argument is reduced to a quarter turn, x = n pi/2 + r, always in f64. Up to `_NEAR` by Cody and Waite's subtraction,
with pi/2 in parts so short that n times a part is exact. Beyond it, in a branch that ordinary data never takes,
by Payne and Hanek's method ("Radian Reduction for Trigonometric Functions", 1983): the bits of 2/pi that matter for the
exponent of x, times the mantissa of x, in integers modulo 4. The polynomials were fitted as those of `elementary.py`.
"""

from __future__ import annotations

import math
from itertools import pairwise

from aicf.backends.cpu.codegen.ir_builder import I64, PTR, Emitter, Value, ir
from aicf.backends.cpu.codegen.math.elementary import VectorMath

_SIN = {
    "f32": (
        -0.16666666641701554887,
        0.0083333293997137884246,
        -0.00019839339842084330976,
        2.7183604219610009909e-6,
    ),
    "f64": (
        -0.16666666666666632302,
        0.0083333333333224420283,
        -0.00019841269829821313616,
        2.7557313695904382948e-6,
        -2.5050758769196198367e-8,
        1.5896838154084772042e-10,
    ),
}
"""P of sin r = r + r z P(z), z = r^2, |r| <= pi/4."""
_COS = {
    "f32": (
        0.041666666623101227505,
        -0.0013888883772822540725,
        0.000024799524654538503453,
        -2.7210602246891319875e-7,
    ),
    "f64": (
        0.04166666666666659953,
        -0.0013888888888874149103,
        0.000024801587289502553023,
        -2.7557314358764968148e-7,
        2.0875724168938110629e-9,
        -1.1359694023699165956e-11,
    ),
}
"""Q of cos r = 1 - z/2 + z^2 Q(z)."""

_NEAR = 2.0**20
_HALF_PI_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
"""Their sum is pi/2; all but the last have 33 bits, so that their products with n up to 2^20 are exact."""

_TWO_OVER_PI = (
    0x00000000, 0x00000000, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041,
    0xFE5163AB, 0xDEBBC561, 0xB7246E3A, 0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C, 0xB129A73E,
    0xE88235F5, 0x2EBB4484, 0xE99C7026, 0xB45F7E41, 0x3991D639, 0x835339F4, 0x9C845F8B, 0xBDF9283B,
    0x1FF897FF, 0xDE05980F, 0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF, 0x27CB09B7, 0x4F463F66, 0x9E5FEA2D,
    0x7527BAC7, 0xEBE5F17B, 0x3D0739F7, 0x8A5292EA, 0x6BFB5FB1, 0x1F8D5D08, 0x56033046, 0xFC7B6BAB,
)  # fmt: skip
"""64 zeros, then the bits of 2/pi after the binary point, in words of 32."""
_TABLE = "two_over_pi"
_WORDS = 6
"""Words of 2/pi that a product is made of: 53 bits of x, 62 that may cancel, and 53 of the result fit well."""


def sin(m: VectorMath, x: Value) -> Value:
    """Sine, of radians; exactly odd."""
    n, r = _quarter_turns(m, m.abs(x))
    value = _on_circle(m, n, r)
    sign = m.b.and_(m.as_bits(x), m.bits(m.sign_bit))
    return m.as_float(m.b.xor(m.as_bits(value), sign))


def cos(m: VectorMath, x: Value) -> Value:
    """Cosine, of radians; exactly even."""
    n, r = _quarter_turns(m, m.abs(x))
    return _on_circle(m, m.b.add(n, m.bits(1)), r)


def _on_circle(m: VectorMath, n: Value, r: Value) -> Value:
    """sin(n pi/2 + r) for |r| <= pi/4: of odd n the cosine of r, from the second half turn on negative."""
    b = m.b
    z = b.fmul(r, r)
    sine = m.em.fma(b.fmul(r, z), m.polynomial(_SIN[m.dtype], z), r)
    inner = m.em.fma(z, m.polynomial(_COS[m.dtype], z), m.const(-0.5))
    cosine = m.em.fma(z, inner, m.const(1.0))
    is_odd = b.icmp_signed("!=", b.and_(n, m.bits(1)), m.bits(0))
    top = m.sign_bit.bit_length() - 2
    sign = b.shl(b.and_(n, m.bits(2)), m.bits(top))
    return m.as_float(b.xor(m.as_bits(b.select(is_odd, cosine, sine)), sign))


def _quarter_turns(m: VectorMath, x: Value) -> tuple[Value, Value]:
    """n, whose two low bits count, and r of x = n pi/2 + r with |r| <= pi/4, for x >= 0; r is NaN of infinity."""
    wide = VectorMath(m.em, "f64", m.lanes)
    if m.dtype == "f64":
        return _reduce(wide, x, _HALF_PI_PARTS)
    first, *rest = _HALF_PI_PARTS
    # Two parts hold more of pi/2 than an f32 argument can cancel.
    n, r = _reduce(wide, m.b.fpext(x, wide.float_type), (first, math.fsum(rest)))
    return m.b.trunc(n, m.int_type), m.b.fptrunc(r, m.float_type)


def _reduce(m: VectorMath, x: Value, parts: tuple[float, ...]) -> tuple[Value, Value]:
    b = m.b
    magic = m.const(m.format.round_magic)
    shifted = m.em.fma(x, m.const(2 / math.pi), magic)
    n = b.fsub(shifted, magic)
    r = x
    for part in parts:
        r = m.em.fma(n, m.const(-part), r)
    quarters = b.sub(m.as_bits(shifted), m.as_bits(magic))
    is_far = b.fcmp_unordered(">", x, m.const(_NEAR))

    def far() -> list[Value]:
        far_quarters, far_r = _reduce_far(m, b.select(is_far, x, m.const(_NEAR)))
        return [b.select(is_far, far_quarters, quarters), b.select(is_far, far_r, r)]

    quarters, r = m.em.unless(m.em.no_lane(is_far), far, [quarters, r])
    return quarters, r


def _reduce_far(m: VectorMath, x: Value) -> tuple[Value, Value]:
    """The same for x >= `_NEAR`."""
    b = m.b
    pattern = m.as_bits(x)
    exponent = b.lshr(pattern, m.bits(52))
    mantissa = b.or_(b.and_(pattern, m.bits((1 << 52) - 1)), m.bits(1 << 52))
    # x = mantissa 2^(exponent - 1075): the bit of 2/pi that the product turns into 2^1 is number exponent - 1013.
    limbs = _product(m, mantissa, _window(m, b.sub(exponent, m.bits(1013))))
    high, low = (b.or_(b.shl(limbs[i], m.bits(32)), limbs[i + 1]) for i in (0, 2))
    # Two bits of `high` are whole quarters, 62 a fraction; the nearest whole leaves a signed fraction.
    n = b.lshr(b.add(high, m.bits(1 << 61)), m.bits(62))
    fraction = b.sub(high, b.shl(n, m.bits(62)))
    value = b.fmul(b.sitofp(fraction, m.float_type), m.const(2.0**-62))
    value = m.em.fma(b.uitofp(low, m.float_type), m.const(2.0**-126), value)
    is_finite = b.fcmp_ordered("<", x, m.const(float("inf")))
    return n, b.select(is_finite, b.fmul(value, m.const(math.pi / 2)), m.const(float("nan")))


def _window(m: VectorMath, first_bit: Value) -> list[Value]:
    """`_WORDS` words of 32 bits of `_TWO_OVER_PI` from a bit on, the high one first."""
    b = m.b
    table = _table(m.em)
    word, shift = b.lshr(first_bit, m.bits(5)), b.and_(first_bit, m.bits(31))
    words: list[Value] = []
    for number in range(_WORDS):
        pair = m.em.gather(table, b.add(word, m.bits(number)), "i64", m.lanes)
        words.append(b.lshr(b.shl(pair, shift), m.bits(32)))
    return words


def _product(m: VectorMath, factor: Value, words: list[Value]) -> list[Value]:
    """The words of `factor`, a number of 53 bits, times a number given as words, without what overflows."""
    b = m.b
    half, mask = m.bits(32), m.bits((1 << 32) - 1)
    limbs = [m.bits(0)] * len(words)
    for row, part in enumerate((b.and_(factor, mask), b.lshr(factor, half))):
        carry = m.bits(0)
        for word in reversed(range(len(words) - row)):
            total = b.add(b.add(b.mul(part, words[word + row]), limbs[word]), carry)
            limbs[word], carry = b.and_(total, mask), b.lshr(total, half)
    return limbs


def _table(em: Emitter) -> Value:
    """The table in the module: entry i holds words i and i + 1."""
    found = em.module.globals.get(_TABLE)
    if found is None:
        pairs = [(high << 32) | low for high, low in pairwise(_TWO_OVER_PI)]
        type_ = ir.ArrayType(I64, len(pairs))
        found = ir.GlobalVariable(em.module, type_, _TABLE)
        found.initializer = ir.Constant(type_, pairs)
        found.global_constant = True
        found.linkage = "internal"
        found.type = PTR  # llvmlite still gives a global a typed pointer
    return found
