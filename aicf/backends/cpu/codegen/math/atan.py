"""Code for the arc tangent of f32 and f64 vectors, within 4 ulp on its whole domain, without calls into a library.

|x| is turned by a quarter or half a right angle, so that what is left lies within tan(pi/8): from tan(3 pi/8) on
``atan x = pi/2 + atan(-1/x)``, from tan(pi/8) on ``atan x = pi/4 + atan((x - 1) / (x + 1))``. One division serves both.
The polynomials were fitted as those of `elementary.py`.
"""

from __future__ import annotations

import math

from aicf.backends.cpu.codegen.ir_builder import Value
from aicf.backends.cpu.codegen.math.elementary import VectorMath

_TERMS = {
    "f32": (
        -0.33333315179670989625,
        0.19998470933098916024,
        -0.14243521727734077974,
        0.1059372358068070883,
        -0.060779828559572422709,
    ),
    "f64": (
        -0.33333333333333333083,
        0.19999999999999883854,
        -0.14285714285695419932,
        0.11111111109565540927,
        -0.090909090160896145255,
        0.076923053593210286695,
        -0.066666173626282543975,
        0.058816255119928161868,
        -0.052555562381728344896,
        0.047055541209017485544,
        -0.040549156992276555306,
        0.029607362238997272867,
        -0.012976161025965075119,
    ),
}
"""P of atan r = r + r z P(z), z = r^2, |r| <= tan(pi/8)."""

_ANGLE_TAILS = {"f32": -4.371139006309477e-08, "f64": 6.123233995736766e-17}
"""pi/2 less what the format holds of it; half of it belongs to pi/4."""


def atan(m: VectorMath, x: Value) -> Value:
    """The angle in radians, within pi/2; exactly odd."""
    b = m.b
    t = m.abs(x)
    is_steep = b.fcmp_ordered(">", t, m.const(math.tan(3 * math.pi / 8)))
    is_turned = b.fcmp_ordered(">", t, m.const(math.tan(math.pi / 8)))
    one = m.const(1.0)
    above = b.select(is_steep, m.const(-1.0), b.select(is_turned, b.fsub(t, one), t))
    below = b.select(is_steep, t, b.select(is_turned, b.fadd(t, one), one))
    r = b.fdiv(above, below)
    z = b.fmul(r, r)
    tail = m.const(_ANGLE_TAILS[m.dtype])
    # What the format lacks of the angle goes into the small part.
    small = m.em.fma(b.fmul(r, z), m.polynomial(_TERMS[m.dtype], z), _by_turns(m, is_steep, is_turned, tail))
    angle = _by_turns(m, is_steep, is_turned, m.const(math.pi / 2))
    return m.with_sign_of(b.fadd(angle, b.fadd(r, small)), x)


def _by_turns(m: VectorMath, is_steep: Value, is_turned: Value, right_angle: Value) -> Value:
    """All of a right angle, half of it, or nothing."""
    half = m.b.fmul(right_angle, m.const(0.5))
    return m.b.select(is_steep, right_angle, m.b.select(is_turned, half, m.const(0.0)))
