"""ATen's special functions: of errors, factorials and probabilities."""

from __future__ import annotations

import math

from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch.ops.base import OtherGradient, Writer, row
from aicf.frontends.torch.ops.elementwise import complement, formula, polynomial, square

# Of errors

_MIDDLE = (
    (
        *(2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0),
        *(4.86371970985681366614e1, 1.96520832956077098242e2, 5.26445194995477358631e2),
        *(9.34528527171957607540e2, 1.02755188689515710272e3, 5.57535335369399327526e2),
    ),
    (
        *(1.0, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2),
        *(9.75708501743205489753e2, 1.82390916687909736289e3, 2.24633760818710981792e3),
        *(1.65666309194161350182e3, 5.57535340817727675546e2),
    ),
)
_FAR = (
    (
        *(5.64189583547755073984e-1, 1.27536670759978104416e0, 5.01905042251180477414e0),
        *(6.16021097993053585195e0, 7.40974269950448939160e0, 2.97886665372100240670e0),
    ),
    (
        *(1.0, 2.26052863220117276590e0, 9.39603524938001434673e0, 1.20489539808096656605e1),
        *(1.70814450747565897222e1, 9.60896809063285878198e0, 3.36907645100081516050e0),
    ),
)
"""Numerators and denominators of exp(x * x) * erfc(x) from 1 to 8 and beyond, of Moshier's Cephes."""


def _scaled_erfc(graph: Graph, x: Value) -> Value:
    """exp(x * x) * erfc(x) for x of at least 1."""
    near, far = (
        graph.div(*(polynomial(graph, value, part) for part in parts))
        for parts, value in ((_MIDDLE, graph.min(x, 8.0)), (_FAR, graph.min(graph.max(x, 8.0), 1e4)))
    )
    beyond = graph.div(1 / math.sqrt(math.pi), x)
    return graph.select(graph.lt(x, 8.0), near, graph.select(graph.lt(x, 1e4), far, beyond))


def _erfc_of(graph: Graph, x: Value) -> Value:
    size = graph.max(graph.abs(x), 1.0)
    tail = graph.mul(graph.exp(graph.neg(square(graph, size))), _scaled_erfc(graph, size))
    tail = graph.select(graph.lt(x, 0.0), graph.sub(2.0, tail), tail)
    return graph.select(graph.lt(graph.abs(x), 1.0), complement(graph, graph.erf(x)), tail)


@formula("erfc.default", "special_erfc.default")
def _erfc(graph: Graph, x: Value) -> Value:
    """1 - erf(x), without cancellation."""
    return _erfc_of(graph, x)


@formula("special_erfcx.default")
def _erfcx(graph: Graph, x: Value) -> Value:
    """exp(x * x) * erfc(x)."""
    near = graph.mul(graph.exp(square(graph, x)), _erfc_of(graph, x))
    return graph.select(graph.ge(x, 1.0), _scaled_erfc(graph, graph.max(x, 1.0)), near)


@formula("special_ndtr.default")
def _ndtr(graph: Graph, x: Value) -> Value:
    """The normal distribution: how much of it lies below x."""
    return graph.mul(_erfc_of(graph, graph.mul(x, -math.sqrt(0.5))), 0.5)


@formula("special_log_ndtr.default", other_gradient=OtherGradient("the gradient far from 0 is finite"))
def _log_ndtr(graph: Graph, x: Value) -> Value:
    """The logarithm of the normal distribution, far below 0 too."""
    scaled = graph.mul(x, math.sqrt(0.5))
    below = graph.max(graph.neg(scaled), 1.0)
    tail = graph.sub(graph.log(graph.mul(_scaled_erfc(graph, below), 0.5)), square(graph, scaled))
    near = graph.log1p(graph.mul(_erfc_of(graph, scaled), -0.5))
    return graph.select(graph.lt(x, -math.sqrt(2)), tail, near)


_CENTRAL = (
    (-0.140543331, 0.914624893, -1.645349621, 0.886226899),
    (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0),
)
_OUTER = ((1.641345311, 3.429567803, -1.624906493, -1.970840454), (1.637067800, 3.543889200, 1.0))
"""Numerators and denominators, up to 0.7 and beyond, of the guess that PyTorch improves by two of Newton's steps."""


@formula("erfinv.default")
def _erfinv(graph: Graph, y: Value) -> Value:
    """The number whose erf is y; infinite at -1 and 1, NaN outside."""
    size = graph.abs(y)
    inner = graph.mul(size, graph.div(*(polynomial(graph, square(graph, size), part) for part in _CENTRAL)))
    root = graph.sqrt(graph.neg(graph.log(graph.mul(complement(graph, size), 0.5))))
    outer = graph.div(*(polynomial(graph, root, part) for part in _OUTER))
    guess = graph.select(graph.le(size, 0.7), inner, outer)
    for _ in range(2):
        slope = graph.mul(graph.exp(graph.neg(square(graph, guess))), 2 / math.sqrt(math.pi))
        guess = graph.sub(guess, graph.div(graph.sub(graph.erf(guess), size), slope))
    guess = graph.select(graph.eq(size, 1.0), math.inf, guess)
    found = graph.select(graph.lt(y, 0.0), graph.neg(guess), guess)
    return graph.select(graph.gt(size, 1.0), math.nan, found)


@formula("special_entr.default")
def _entr(graph: Graph, x: Value) -> Value:
    """-x * log(x), 0 at 0, and -inf below."""
    inside = graph.neg(graph.mul(x, graph.log(x)))
    outside = graph.select(graph.eq(x, 0.0), 0.0, graph.constant(-math.inf, (), x.dtype))
    return graph.select(graph.gt(x, 0.0), inside, graph.select(graph.is_nan(x), x, outside))


_NEAR_HALF = (
    (
        *(-59.96335010141079, 98.00107541859997, -56.67628574690703, 13.931260938727968),
        *(-1.2391658386738125,),
    ),
    (
        *(1.0, 1.9544885833814176, 4.676279128988815, 86.36024213908905, -225.46268785411937),
        *(200.26021238006066, -82.03722561683334, 15.90562251262117, -1.1833162112133),
    ),
)
_NEAR_END = (
    (
        *(4.0554489230596245, 31.525109459989388, 57.16281922464213, 44.08050738932008),
        *(14.684956192885803, 2.1866330685079025, -0.1402560791713545, -0.03504246268278482),
        *(-0.0008574567851546854,),
    ),
    (
        *(1.0, 15.779988325646675, 45.39076351288792, 41.3172038254672, 15.04253856929075),
        *(2.504649462083094, -0.14218292285478779, -0.03808064076915783, -0.0009332594808954574),
    ),
)
_AT_END = (
    (
        *(3.2377489177694603, 6.915228890689842, 3.9388102529247444, 1.3330346081580755),
        *(0.20148538954917908, 0.012371663481782003, 0.00030158155350823543, 2.6580697468673755e-06),
        *(6.239745391849833e-09,),
    ),
    (
        *(1.0, 6.02427039364742, 3.6798356385616087, 1.3770209948908132, 0.21623699359449663),
        *(0.013420400608854318, 0.00032801446468212774, 2.8924786474538068e-06),
        *(6.790194080099813e-09,),
    ),
)
"""Numerators and denominators of the quantiles of the normal distribution, of Moshier's Cephes."""
_END = math.exp(-2)
"""From here to the end, and as far from 1, the series of the root of the logarithm are taken."""


@formula("special_ndtri.default")
def _ndtri(graph: Graph, y: Value) -> Value:
    """The number that the share y of a normal distribution lies below; infinite at 0 and 1, NaN outside."""
    middle = graph.sub(y, 0.5)
    squared = square(graph, middle)
    inner = graph.add(middle, graph.mul(middle, graph.mul(squared, _ratio(graph, squared, _NEAR_HALF))))
    inner = graph.mul(inner, math.sqrt(2 * math.pi))
    upper = graph.gt(y, 1 - _END)
    share = graph.select(upper, complement(graph, y), y)
    root = graph.sqrt(graph.mul(graph.log(share), -2.0))
    inverse = graph.reciprocal(root)
    last = graph.select(
        graph.lt(root, 8.0), _ratio(graph, inverse, _NEAR_END), _ratio(graph, inverse, _AT_END)
    )
    outer = graph.sub(graph.sub(root, graph.mul(graph.log(root), inverse)), graph.mul(inverse, last))
    outer = graph.select(upper, outer, graph.neg(outer))
    found = graph.select(graph.gt(share, _END), inner, outer)
    found = graph.select(graph.eq(y, 0.0), -math.inf, graph.select(graph.eq(y, 1.0), math.inf, found))
    return graph.select(graph.or_(graph.lt(y, 0.0), graph.gt(y, 1.0)), math.nan, found)


def _ratio(graph: Graph, x: Value, parts: tuple[tuple[float, ...], tuple[float, ...]]) -> Value:
    return graph.div(*(polynomial(graph, x, part) for part in parts))


# Of factorials

_LANCZOS = (
    *(676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059),
    *(12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7),
)
"""Lanczos' numbers for g = 7; the first, 0.99999999999980993, stands alone."""


@formula("lgamma.default", dtype="f64")
def _lgamma(graph: Graph, x: Value) -> Value:
    """log(|gamma(x)|), by Lanczos' approximation; below 1/2 by Euler's reflection."""
    low = graph.lt(x, 0.5)
    z = graph.sub(graph.select(low, complement(graph, x), x), 1.0)
    series = graph.constant(0.99999999999980993, (), "f64")
    for number, factor in enumerate(_LANCZOS, 1):
        series = graph.add(series, graph.div(factor, graph.add(z, float(number))))
    base = graph.add(z, 7.5)
    power = graph.sub(graph.mul(graph.add(z, 0.5), graph.log(base)), base)
    high = graph.add(graph.add(power, graph.log(series)), math.log(2 * math.pi) / 2)
    # The sine of what is left of x, so that it is exact where it is 0.
    rest = graph.sub(x, graph.floor(x))
    sine = graph.abs(graph.sin(graph.mul(rest, math.pi)))
    reflected = graph.sub(math.log(math.pi), graph.add(graph.log(sine), high))
    found = graph.select(low, reflected, high)
    endless = graph.or_(graph.eq(graph.abs(x), math.inf), graph.eq(rest, 0.0))
    at_pole = graph.and_(endless, graph.or_(graph.le(x, 0.0), graph.eq(x, math.inf)))
    return graph.select(at_pole, math.inf, found)


_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""Coefficients of the asymptotic series of digamma, in powers of 1 / (x * x)."""
_SHIFT = 8
"""The series is taken so far above 0."""


@formula("digamma.default", dtype="f64")
def _digamma(graph: Graph, x: Value) -> Value:
    """The derivative of the logarithm of gamma; below 1/2 by reflection, NaN at negative whole numbers."""
    low = graph.lt(x, 0.5)
    z = graph.select(low, complement(graph, x), x)
    below = graph.reciprocal(z)
    for step in range(1, _SHIFT):
        below = graph.add(below, graph.reciprocal(graph.add(z, float(step))))
    far = graph.add(z, float(_SHIFT))
    inverse = graph.reciprocal(square(graph, far))
    series = graph.mul(polynomial(graph, inverse, _BERNOULLI[::-1]), inverse)
    high = graph.sub(graph.sub(graph.log(far), graph.div(0.5, far)), series)
    high = graph.sub(high, below)
    rest = graph.sub(x, graph.floor(x))
    reflected = graph.sub(high, graph.div(math.pi, graph.tan(graph.mul(rest, math.pi))))
    found = graph.select(low, reflected, high)
    whole = graph.and_(graph.eq(rest, 0.0), graph.lt(x, 0.0))
    found = graph.select(whole, math.nan, found)
    return graph.select(graph.eq(x, 0.0), graph.neg(graph.div(1.0, x)), found)


_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""Bernoulli's numbers, the coefficients of the asymptotic series of trigamma."""


@row("polygamma.default")
def _polygamma(writer: Writer, order: int, x: Value) -> Value:
    """A derivative of digamma: itself, or the first."""
    x = writer.cast(x, "f64")
    if order == 0:
        return writer.result(_digamma(writer.graph, x))
    if order > 1:
        writer.unsupported(f"the derivative of order {order}", "take one of order 0 or 1")
    return writer.result(_trigamma(writer.graph, x))


def _trigamma(graph: Graph, x: Value) -> Value:
    """The derivative of digamma; below 1/2 by reflection."""
    low = graph.lt(x, 0.5)
    z = graph.select(low, complement(graph, x), x)
    below = graph.reciprocal(square(graph, z))
    for step in range(1, _SHIFT):
        below = graph.add(below, graph.reciprocal(square(graph, graph.add(z, float(step)))))
    inverse = graph.reciprocal(graph.add(z, float(_SHIFT)))
    squared = square(graph, inverse)
    series = graph.mul(polynomial(graph, squared, _TRIGAMMA[::-1]), graph.mul(squared, inverse))
    high = graph.add(graph.add(inverse, graph.mul(squared, 0.5)), graph.add(series, below))
    rest = graph.sub(x, graph.floor(x))
    sine = graph.sin(graph.mul(rest, math.pi))
    reflected = graph.sub(graph.div(math.pi**2, square(graph, sine)), high)
    return graph.select(low, reflected, high)


@row("mvlgamma.default")
def _mvlgamma(writer: Writer, x: Value, dimensions: int) -> Value:
    """The logarithm of gamma of several dimensions: a sum of those half a step apart."""
    graph, x = writer.graph, writer.cast(x, "f64")
    total = _lgamma(graph, x)
    for number in range(1, dimensions):
        total = graph.add(total, _lgamma(graph, graph.sub(x, number / 2)))
    constant = dimensions * (dimensions - 1) / 4 * math.log(math.pi)
    return writer.result(graph.add(total, constant))
