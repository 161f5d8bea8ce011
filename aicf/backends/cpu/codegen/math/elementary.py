"""Code for roots, rounding, exp, log and what follows from them, of f32 and f64 vectors, without calls into a library.

Sine and cosine are in `trig.py`, the arc tangent in `atan.py`, powers in `pow.py`, and the table
of all functions in `functions.py`; this file holds the ground they stand on.

Every function is within 4 ulp on its whole domain, subnormal arguments and results included, and handles signed zero,
infinities and NaN as C99 Annex F does. With one lane the same code works on a scalar, with the same bits. Levels
without FMA round products separately and stay within the same bound.

The coefficients were fitted for this file: weighted least squares on Chebyshev nodes in 60-digit arithmetic, reweighted
by Lawson's algorithm until the error is level. The reductions are the usual ones: Cody and Waite's split of ln 2
("Software Manual for the Elementary Functions", 1980) for exp, ``log(1 + f) = 2 atanh(f / (2 + f))`` as in Sun's
fdlibm for log, ``expm1 x = 2^n (expm1(r) + (1 - 2^-n))``, ``log1p x = log u + (x - (u - 1)) / u`` with ``u = 1 + x``
rounded, ``tanh x = E / (E + 2)`` with ``E = expm1(2 |x|)``, and ``erf x = 1 - exp(log erfc x)`` or
``1 - exp(-x^2) erfcx(x)`` for large x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value


@dataclass(frozen=True)
class _Format:
    """Constants of one floating-point format."""

    bits: str
    mantissa_bits: int
    bias: int
    round_magic: float
    """1.5 * 2^mantissa_bits: adding it leaves the nearest integer in the low bits."""
    ln2_high: float
    """Leading bits of ln 2, so few that n * ln2_high is exact for every exponent n."""
    ln2_low: float
    exp_range: tuple[float, float]
    """Outside, exp underflows to zero or overflows to infinity."""
    exp_terms: tuple[float, ...]
    """P of e^r = 1 + r + r^2 P(r) on |r| <= ln(2) / 2, constant term first."""
    log_terms: tuple[float, ...]
    """Q of 2 atanh(s) = 2 s + s z Q(z), z = s^2 <= 0.0295."""
    expm1_limit: float
    """Below, expm1 rounds to -1."""
    tanh_limit: float
    """2 |x| from which tanh x rounds to 1."""
    subnormal_scale: int


_FORMATS = {
    "f32": _Format(
        bits="i32",
        mantissa_bits=23,
        bias=127,
        round_magic=1.5 * 2**23,
        ln2_high=0.693359375,
        ln2_low=-2.12194440054690583e-4,
        exp_range=(-105.0, 89.0),
        exp_terms=(
            0.50000000466023329472,
            0.16666666790313918395,
            0.041666354230205922885,
            0.0083332792195805430593,
            0.0013941041606561380181,
            0.0001991084649138294039,
        ),
        log_terms=(
            0.66666665646673502245,
            0.40000334767282602332,
            0.28537336051484950287,
            0.23581686323085700781,
        ),
        expm1_limit=-20.0,
        tanh_limit=20.0,
        subnormal_scale=25,
    ),
    "f64": _Format(
        bits="i64",
        mantissa_bits=52,
        bias=1023,
        round_magic=1.5 * 2**52,
        ln2_high=0.693145751953125,
        ln2_low=1.42860682030941723212e-6,
        exp_range=(-746.0, 710.0),
        exp_terms=(
            0.49999999999999999988,
            0.16666666666666676711,
            0.041666666666666699663,
            0.0083333333333215252904,
            0.0013888888888867278051,
            0.00019841269886401040368,
            0.000024801587360069279586,
            2.7557243918980829241e-6,
            2.7557242997586085074e-7,
            2.5109143562410517767e-8,
            2.0924403488502470035e-9,
        ),
        log_terms=(
            0.66666666666666660962,
            0.40000000000006263001,
            0.28571428569079291377,
            0.22222222647953493571,
            0.18181775563246581364,
            0.15387095555716916975,
            0.13250004033499160432,
            0.13252410973113590733,
        ),
        expm1_limit=-40.0,
        tanh_limit=44.0,
        subnormal_scale=54,
    ),
}

_ERF_F32_LIMIT = 3.93
"""Argument from which erf rounds to 1 in f32."""
_ERF_F32 = (
    1.1283791657276841233,
    -0.37612625844282778925,
    0.11283585473658900987,
    -0.026853828465994907309,
    0.0051883633390077014468,
    -0.00080105363495134192221,
    0.000078550721938050829835,
)
"""P of erf x = x P(x^2) on |x| <= 1."""
_LOG_ERFC_F32 = (
    -0.00035584941628761904109,
    -1.1270311010506544029,
    -0.63824104135822258578,
    -0.1030235375129765962,
    0.021798457678041207343,
    -0.0029378328055619663282,
    0.00018538746829541364542,
)
"""P of log erfc x = P(x) on 1 <= x <= 3.93."""
_ERF_F64 = (
    (
        1.1283791670955125749,
        0.14371317881377903273,
        0.045510720812868971517,
        0.0018850118457516746185,
        0.0001971711149778082922,
        8.9529958828049569376e-8,
    ),
    (
        1.0,
        0.4606958219405113837,
        0.093898100161289184383,
        0.010709856588550323383,
        0.00069419904166883546226,
        0.000020887153036044210102,
    ),
)
"""P, Q of erf x = x P(x^2) / Q(x^2) on |x| <= 1."""
_ERFCX_F64 = (
    (
        1.0000000158459302574,
        1.6048405595643266044,
        1.270219685425919896,
        0.60605566206868734181,
        0.18212627457130504666,
        0.032807359893092957406,
        0.0028340211539172722747,
    ),
    (
        1.0,
        2.7332199015795986824,
        3.35432715596210495,
        2.4100445569874642437,
        1.1033077762591470892,
        0.32531991830559594259,
        0.058149632353207342648,
        0.0050231693737031431923,
    ),
)
"""P, Q of erfcx x = exp(x^2) erfc(x) = P(x) / Q(x) on 1 <= x <= 6."""


class VectorMath:
    """Emits functions of values with `lanes` elements of `dtype` ("f32" or "f64")."""

    def __init__(self, em: Emitter, dtype: str, lanes: int) -> None:
        self.em = em
        self.b = em.b
        self.dtype = dtype
        self.lanes = lanes
        self.format = _FORMATS[dtype]
        self.float_type = em.type(dtype, lanes)
        self.int_type = em.type(self.format.bits, lanes)

    # Building blocks.

    def const(self, value: float) -> Value:
        """A float constant."""
        return self.em.const(self.dtype, self.lanes, value)

    def bits(self, value: int) -> Value:
        """An integer constant as wide as the float."""
        width = 32 if self.dtype == "f32" else 64
        signed = value - (1 << width) if value >= 1 << (width - 1) else value
        return self.em.const(self.format.bits, self.lanes, signed)

    def as_bits(self, x: Value) -> Value:
        """The bit pattern of a float."""
        return self.b.bitcast(x, self.int_type)

    def as_float(self, x: Value) -> Value:
        """The float of a bit pattern."""
        return self.b.bitcast(x, self.float_type)

    @property
    def sign_bit(self) -> int:
        """The bit pattern of -0.0."""
        return 1 << (31 if self.dtype == "f32" else 63)

    def abs(self, x: Value) -> Value:
        """|x|."""
        return self.as_float(self.b.and_(self.as_bits(x), self.bits(self.sign_bit - 1)))

    def with_sign_of(self, magnitude: Value, x: Value) -> Value:
        """`magnitude` (not negative) with the sign of `x`."""
        sign = self.b.and_(self.as_bits(x), self.bits(self.sign_bit))
        return self.as_float(self.b.or_(self.as_bits(magnitude), sign))

    def signed_like(self, value: Value, x: Value) -> Value:
        """`value`, whose sign is that of `x` wherever it is not 0, with that sign also where it is 0."""
        sign = self.b.and_(self.as_bits(x), self.bits(self.sign_bit))
        return self.as_float(self.b.or_(self.as_bits(value), sign))

    def product(self, x: Value, y: Value) -> tuple[Value, Value]:
        """x y as the rounded product and its rounding error (Dekker's algorithm on levels without FMA)."""
        b = self.b
        high = b.fmul(x, y)
        if self.em.level.has_fma:
            return high, self.em.fma(x, y, b.fneg(high))
        (x1, x0), (y1, y0) = self._halves(x), self._halves(y)
        error = b.fsub(b.fmul(x1, y1), high)
        error = b.fadd(b.fadd(error, b.fmul(x1, y0)), b.fmul(x0, y1))
        return high, b.fadd(error, b.fmul(x0, y0))

    def _halves(self, x: Value) -> tuple[Value, Value]:
        """Veltkamp's split: two numbers of half the bits whose sum is x."""
        bits = (self.format.mantissa_bits + 2) // 2
        spread = self.b.fmul(x, self.const(2.0**bits + 1.0))
        high = self.b.fsub(spread, self.b.fsub(spread, x))
        return high, self.b.fsub(x, high)

    def sum(self, x: Value, y: Value) -> tuple[Value, Value]:
        """x + y as the rounded sum and its rounding error, for |x| >= |y| or x = 0."""
        high = self.b.fadd(x, y)
        return high, self.b.fsub(y, self.b.fsub(high, x))

    def polynomial(self, terms: Sequence[float], x: Value) -> Value:
        """Horner's rule, constant term first."""
        value = self.const(terms[-1])
        for term in reversed(terms[:-1]):
            value = self.em.fma(value, x, self.const(term))
        return value

    def at_most(self, x: Value, limit: float) -> Value:
        """min(x, limit), NaN kept."""
        bound = self.const(limit)
        return self.b.select(self.b.fcmp_ordered("<", bound, x), bound, x)

    def at_least(self, x: Value, limit: float) -> Value:
        """max(x, limit), NaN kept."""
        bound = self.const(limit)
        return self.b.select(self.b.fcmp_ordered(">", bound, x), bound, x)

    def _reduce(self, x: Value) -> tuple[Value, Value]:
        """n = round(x / ln 2) as an integer, and r = x - n ln 2."""
        magic = self.const(self.format.round_magic)
        shifted = self.em.fma(x, self.const(1.4426950408889634074), magic)
        n = self.b.fsub(shifted, magic)
        r = self.em.fma(n, self.const(-self.format.ln2_high), x)
        r = self.em.fma(n, self.const(-self.format.ln2_low), r)
        return self.b.sub(self.as_bits(shifted), self.as_bits(magic)), r

    def _power_of_two(self, n: Value) -> Value:
        """2^n for n in the normal range."""
        biased = self.b.add(n, self.bits(self.format.bias))
        return self.as_float(self.b.shl(biased, self.bits(self.format.mantissa_bits)))

    def _expm1_reduced(self, r: Value) -> Value:
        """e^r - 1 for |r| <= ln(2) / 2."""
        return self.em.fma(self.b.fmul(r, r), self.polynomial(self.format.exp_terms, r), r)

    def _scaled(self, value: Value, n: Value) -> Value:
        """2^n value: the power is applied in two exact steps so that subnormal results round once."""
        half = self.b.ashr(n, self.bits(1))
        value = self.b.fmul(value, self._power_of_two(half))
        return self.b.fmul(value, self._power_of_two(self.b.sub(n, half)))

    def split(self, x: Value) -> tuple[Value, Value]:
        """k and m of x = 2^k m with m in [sqrt(1/2), sqrt(2)), both as floats, for x > 0."""
        b, f = self.b, self.format
        smallest_normal = 2.0 ** (1 - f.bias)
        tiny = b.fcmp_ordered("<", x, self.const(smallest_normal))
        scaled = b.select(tiny, b.fmul(x, self.const(2.0**f.subnormal_scale)), x)
        shift = b.select(tiny, self.const(float(f.subnormal_scale)), self.const(0.0))
        # Split x = 2^k m with m in [sqrt(1/2), sqrt(2)): subtract the pattern of sqrt(1/2), keep the exponent.
        pattern = self.as_bits(scaled)
        root_half = 0x3F3504F3 if self.dtype == "f32" else 0x3FE6A09E667F3BCD
        offset = b.sub(pattern, self.bits(root_half))
        exponent_mask = (1 << (f.mantissa_bits + (8 if self.dtype == "f32" else 11) + 1)) - (
            1 << f.mantissa_bits
        )
        m = self.as_float(b.sub(pattern, b.and_(offset, self.bits(exponent_mask))))
        # k + bias is not negative, so a logical shift will do, and or-ing it into 2^mantissa_bits makes it a float.
        biased = b.lshr(b.add(offset, self.bits(f.bias << f.mantissa_bits)), self.bits(f.mantissa_bits))
        two = 2.0**f.mantissa_bits
        k = b.fsub(self.as_float(b.or_(biased, self.as_bits(self.const(two)))), self.const(two + f.bias))
        return b.fsub(k, shift), m

    # Functions.

    def exp(self, x: Value, correction: Value | None = None) -> Value:
        """e^(x + correction), where the correction is small beside 1."""
        low, high = self.format.exp_range
        n, r = self._reduce(self.at_most(self.at_least(x, low), high))
        if correction is not None:
            r = self.b.fadd(r, correction)
        return self._scaled(self.b.fadd(self._expm1_reduced(r), self.const(1.0)), n)

    def expm1(self, x: Value) -> Value:
        """e^x - 1; the 1 is taken off before the power of two is applied, as far as it has digits in common."""
        b = self.b
        n, r = self._reduce(self.at_most(self.at_least(x, self.format.expm1_limit), self.format.exp_range[1]))
        most = self.bits(60)
        inverse = self._power_of_two(b.neg(b.select(b.icmp_signed("<", n, most), n, most)))
        value = b.fadd(self._expm1_reduced(r), b.fsub(self.const(1.0), inverse))
        return self.signed_like(self._scaled(value, n), x)

    def log(self, x: Value) -> Value:
        """Natural logarithm; -inf at 0, NaN below."""
        b, f = self.b, self.format
        k, m = self.split(x)
        fraction = b.fsub(m, self.const(1.0))
        s = b.fdiv(fraction, b.fadd(fraction, self.const(2.0)))
        z = b.fmul(s, s)
        remainder = b.fmul(z, self.polynomial(f.log_terms, z))
        half_square = b.fmul(self.const(0.5), b.fmul(fraction, fraction))
        inner = self.em.fma(k, self.const(f.ln2_low), b.fmul(s, b.fadd(half_square, remainder)))
        result = b.fsub(fraction, b.fsub(half_square, inner))
        result = self.em.fma(k, self.const(f.ln2_high), result)
        result = b.select(b.fcmp_ordered("==", x, self.const(0.0)), self.const(float("-inf")), result)
        result = b.select(b.fcmp_ordered("<", x, self.const(0.0)), self.const(float("nan")), result)
        keep = b.fcmp_unordered("==", x, self.const(float("inf")))
        return b.select(keep, x, result)

    def log1p(self, x: Value) -> Value:
        """log(1 + x), corrected for what 1 + x is rounded by; -inf at -1, NaN below."""
        b, one = self.b, self.const(1.0)
        shifted = b.fadd(one, x)
        correction = b.fdiv(b.fsub(x, b.fsub(shifted, one)), shifted)
        above = b.fcmp_ordered(">", x, self.const(-1.0))
        finite = b.fcmp_ordered("<", x, self.const(float("inf")))
        correction = b.select(b.and_(above, finite), correction, self.const(0.0))
        return self.signed_like(b.fadd(self.log(shifted), correction), x)

    def tanh(self, x: Value) -> Value:
        """Hyperbolic tangent; exactly odd, never above 1."""
        magnitude = self.abs(x)
        n, r = self._reduce(self.at_most(self.b.fadd(magnitude, magnitude), self.format.tanh_limit))
        scale = self._power_of_two(n)
        e = self.em.fma(scale, self._expm1_reduced(r), self.b.fsub(scale, self.const(1.0)))
        return self.with_sign_of(self.b.fdiv(e, self.b.fadd(e, self.const(2.0))), x)

    def sigmoid(self, x: Value) -> Value:
        """1 / (1 + e^-x), from e^-|x| so that nothing overflows and small results keep their bits."""
        e = self.exp(self.as_float(self.b.or_(self.as_bits(x), self.bits(self.sign_bit))))
        one = self.const(1.0)
        negative = self.b.fcmp_ordered("<", x, self.const(0.0))
        return self.b.fdiv(self.b.select(negative, e, one), self.b.fadd(e, one))

    def erf(self, x: Value) -> Value:
        """Error function; exactly odd, never above 1."""
        return self._erf_f32(x) if self.dtype == "f32" else self._erf_f64(x)

    def _ratio(self, terms: tuple[tuple[float, ...], tuple[float, ...]], x: Value) -> Value:
        return self.b.fdiv(self.polynomial(terms[0], x), self.polynomial(terms[1], x))

    def _erf_f32(self, x: Value) -> Value:
        magnitude = self.at_most(self.abs(x), _ERF_F32_LIMIT)
        square = self.b.fmul(magnitude, magnitude)
        small = self.b.fmul(magnitude, self.polynomial(_ERF_F32, square))
        n, r = self._reduce(self.polynomial(_LOG_ERFC_F32, magnitude))
        scale = self._power_of_two(n)
        tail = self.em.fma(scale, self._expm1_reduced(r), scale)
        large = self.b.fsub(self.const(1.0), tail)
        is_small = self.b.fcmp_ordered("<", magnitude, self.const(1.0))
        return self.with_sign_of(self.b.select(is_small, small, large), x)

    def _erf_f64(self, x: Value) -> Value:
        magnitude = self.at_most(self.abs(x), 6.0)
        square = self.b.fmul(magnitude, magnitude)
        small = self.b.fmul(magnitude, self._ratio(_ERF_F64, square))
        tail = self.b.fmul(self.exp(self.b.fneg(square)), self._ratio(_ERFCX_F64, magnitude))
        large = self.b.fsub(self.const(1.0), tail)
        is_small = self.b.fcmp_ordered("<", magnitude, self.const(1.0))
        return self.with_sign_of(self.b.select(is_small, small, large), x)

    def sqrt(self, x: Value) -> Value:
        """Square root, correctly rounded."""
        return self.em.intrinsic("sqrt", x)

    def rsqrt(self, x: Value) -> Value:
        """1 / sqrt(x) by a square root and a division: the hardware estimate differs from machine to machine."""
        return self.b.fdiv(self.const(1.0), self.sqrt(x))

    def round(self, x: Value) -> Value:
        """The nearest whole number, half to even: one instruction of x86, and elsewhere adding 2^mantissa_bits, which
        leaves no bits for a fraction."""
        if self.em.level.architecture == "x86_64":
            return self.em.intrinsic("roundeven", x)
        magnitude, magic = self.abs(x), self.const(2.0**self.format.mantissa_bits)
        whole = self.b.fsub(self.b.fadd(magnitude, magic), magic)
        has_fraction = self.b.fcmp_ordered("<", magnitude, magic)
        return self.b.select(has_fraction, self.with_sign_of(whole, x), x)

    def floor(self, x: Value) -> Value:
        """The largest whole number that is not above x."""
        near = self.round(x)
        above = self.b.fcmp_ordered(">", near, x)
        return self.b.select(above, self.b.fsub(near, self.const(1.0)), near)

    def ceil(self, x: Value) -> Value:
        """The smallest whole number that is not below x."""
        near = self.round(x)
        below = self.b.fcmp_ordered("<", near, x)
        return self.b.select(below, self.signed_like(self.b.fadd(near, self.const(1.0)), x), near)
