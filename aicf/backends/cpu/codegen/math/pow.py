"""Code for powers of f32 and f64 vectors, within 4 ulp for all arguments, without calls into a library.

x^y = exp(y log |x|), whose error is that of the product, up to 745, and not of its last place: the logarithm has to be
better than the result by ten bits. Powers of f32 are computed in f64, which has them. For f64 the logarithm is the
sum of two numbers (Dekker's arithmetic, "A Floating-Point Technique for Extending the Available Precision", 1971).
The special cases are those of C99 Annex F.
"""

from __future__ import annotations

from aicf.backends.cpu.codegen.ir_builder import Value
from aicf.backends.cpu.codegen.math.elementary import VectorMath

_LN2 = (0.6931471805598903, 5.497923018708371e-14)
"""ln 2 in two parts; the first has 42 bits, so that its product with an exponent is exact."""
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_LOG_TAIL = (
    0.40000000000002280693,
    0.28571428570084201508,
    0.22222222523111512882,
    0.18181784059998559736,
    0.15386772438206407135,
    0.13256449060458528129,
    0.13199871911702196094,
)
"""R of 2 atanh s = 2 s + 2/3 s^3 + s^5 R(s^2)."""
_LARGEST_EXPONENT = 2.0**70
"""From this |y| on, x^y is 0, 1 or infinite for every x."""


def power(m: VectorMath, x: Value, y: Value) -> Value:
    """x^y; of a negative x only for a whole y."""
    value = _power_f64(m, m.abs(x), y) if m.dtype == "f64" else _power_f32(m, m.abs(x), y)
    return _with_special_cases(m, x, y, value)


def _power_f32(m: VectorMath, x: Value, y: Value) -> Value:
    """|x|^y in f64."""
    wide = VectorMath(m.em, "f64", m.lanes)
    x, y = (m.b.fpext(value, wide.float_type) for value in (x, y))
    return m.b.fptrunc(wide.exp(m.b.fmul(_bounded(wide, y), wide.log(x))), m.float_type)


def _power_f64(m: VectorMath, x: Value, y: Value) -> Value:
    """|x|^y by a logarithm in two parts."""
    b = m.b
    y = _bounded(m, y)
    high, low = _logarithm(m, x)
    exponent, error = m.product(y, high)
    error = b.fadd(error, b.fmul(y, low))
    # Beyond the range of exp the result is decided, and the error may be large or NaN.
    counts = b.fcmp_ordered("<", m.abs(exponent), m.const(1000.0))
    return m.exp(exponent, b.select(counts, error, m.const(0.0)))


def _bounded(m: VectorMath, y: Value) -> Value:
    """`y` without infinities, whose product with 0 would be NaN."""
    return m.at_most(m.at_least(y, -_LARGEST_EXPONENT), _LARGEST_EXPONENT)


def _logarithm(m: VectorMath, x: Value) -> tuple[Value, Value]:
    """log x of x >= 0 as a sum, to some 65 bits."""
    b = m.b
    k, mantissa = m.split(x)
    one, two = m.const(1.0), m.const(2.0)
    fraction = b.fsub(mantissa, one)
    # s = (mantissa - 1) / (mantissa + 1)
    divisor, divisor_low = b.fadd(mantissa, one), b.fsub(mantissa, b.fsub(b.fadd(mantissa, one), one))
    s = b.fdiv(fraction, divisor)
    product, product_low = m.product(s, divisor)
    rest = b.fsub(b.fsub(b.fsub(fraction, product), product_low), b.fmul(s, divisor_low))
    s_low = b.fdiv(rest, divisor)
    # 2/3 s^3
    square, square_low = m.product(s, s)
    square_low = b.fadd(square_low, b.fmul(two, b.fmul(s, s_low)))
    cube, cube_low = m.product(square, s)
    cube_low = b.fadd(cube_low, b.fadd(b.fmul(square, s_low), b.fmul(square_low, s)))
    third, third_low = m.product(cube, m.const(_TWO_THIRDS[0]))
    third_low = b.fadd(
        third_low,
        b.fadd(b.fmul(cube, m.const(_TWO_THIRDS[1])), b.fmul(cube_low, m.const(_TWO_THIRDS[0]))),
    )
    tail = b.fmul(b.fmul(cube, square), m.polynomial(_LOG_TAIL, square))
    high, low = m.sum(b.fmul(two, s), third)
    low = b.fadd(low, b.fadd(b.fmul(two, s_low), b.fadd(third_low, tail)))
    high, lost = m.sum(b.fmul(k, m.const(_LN2[0])), high)
    low = b.fadd(lost, b.fadd(low, b.fmul(k, m.const(_LN2[1]))))
    high, low = m.sum(high, low)
    high = b.select(b.fcmp_ordered("==", x, m.const(0.0)), m.const(float("-inf")), high)
    return b.select(b.fcmp_unordered("==", x, m.const(float("inf"))), x, high), low


def _with_special_cases(m: VectorMath, x: Value, y: Value, value: Value) -> Value:
    """`value`, which is |x|^y, as x^y."""
    b = m.b
    zero, one = m.const(0.0), m.const(1.0)
    half = b.fmul(y, m.const(0.5))
    is_whole = b.fcmp_ordered("==", m.round(y), y)
    is_odd = b.and_(is_whole, b.fcmp_ordered("!=", m.round(half), half))
    sign = b.and_(m.as_bits(x), m.bits(m.sign_bit))
    value = m.as_float(b.or_(m.as_bits(value), b.select(is_odd, sign, m.bits(0))))
    is_below = b.and_(b.fcmp_ordered("<", x, zero), b.fcmp_ordered(">", x, m.const(float("-inf"))))
    value = b.select(b.and_(is_below, b.not_(is_whole)), m.const(float("nan")), value)
    is_one = b.or_(b.fcmp_ordered("==", y, zero), b.fcmp_ordered("==", x, one))
    return b.select(is_one, one, value)
