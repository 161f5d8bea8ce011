"""Steps that add elementwise ops."""

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps.generator import Generator

UNARY = (
    logical.NegOp,
    logical.ExpOp,
    logical.LogOp,
    logical.SqrtOp,
    logical.RsqrtOp,
    logical.TanhOp,
    logical.ErfOp,
    logical.ReluOp,
    logical.SigmoidOp,
    logical.SiluOp,
    logical.AbsOp,
    logical.SignOp,
    logical.ReciprocalOp,
    logical.Expm1Op,
    logical.Log1pOp,
    logical.SinOp,
    logical.CosOp,
    logical.AtanOp,
    logical.AsinhOp,
    logical.FloorOp,
    logical.CeilOp,
    logical.RoundOp,
    logical.HardSwishOp,
)
POSITIVE_ONLY = (logical.LogOp, logical.SqrtOp, logical.RsqrtOp, logical.ReciprocalOp, logical.Log1pOp)
OF_FRACTIONS = (
    logical.TanOp,
    logical.AsinOp,
    logical.AcosOp,
    logical.AtanhOp,
    logical.SinhOp,
    logical.CoshOp,
)
BINARY = (logical.AddOp, logical.SubOp, logical.MulOp, logical.DivOp, logical.MaxOp, logical.MinOp)

OF_INTEGERS = (
    logical.FloorDivOp,
    logical.ModOp,
    logical.AndOp,
    logical.OrOp,
    logical.XorOp,
    logical.ShiftLeftOp,
    logical.ShiftRightOp,
)
OF_AN_INTEGER = (logical.AbsOp, logical.SignOp, logical.NotOp, logical.NegOp, logical.ReluOp)
LOGIC = (logical.AndOp, logical.OrOp, logical.XorOp)


def _unary(g: Generator) -> None:
    op_class = g.choice(UNARY)
    x = g.float_value()
    if op_class in POSITIVE_ONLY:
        x = g.require(g.choice((logical.ExpOp, logical.SigmoidOp))(x))
    g.add(op_class(x))


def _of_fractions(g: Generator) -> None:
    """Functions that rise steeply, far from where they do: of what lies between -0.8 and 0.8."""
    fraction = g.require(logical.TanhOp(g.float_value()))
    fraction = g.require(logical.ClampOp(fraction, -0.8, 0.8))
    g.add(g.choice(OF_FRACTIONS)(fraction))


def _acosh(g: Generator) -> None:
    """Of what is larger than 1.5."""
    sigmoid = g.require(logical.SigmoidOp(g.float_value()))
    g.add(logical.AcoshOp(g.require(logical.ClampOp(g.require(logical.ExpOp(sigmoid)), 1.5))))


def _gelu(g: Generator) -> None:
    g.add(logical.GeluOp(g.float_value(), g.choice(logical.APPROXIMATIONS)))


def _parametric(g: Generator) -> None:
    x = g.float_value()
    makers = (
        lambda: logical.LeakyReluOp(x, g.choice((0.01, 0.3))),
        lambda: logical.EluOp(x, g.choice((1.0, 0.5))),
        lambda: logical.SoftplusOp(x, g.choice((1.0, 2.0))),
        lambda: logical.HardSigmoidOp(x, g.choice((1 / 6, 0.2)), 0.5),
        lambda: logical.ClampOp(x, *g.choice(((-0.5, 0.5), (None, 0.25), (0.0, None)))),
    )
    g.add(g.choice(makers)())


def _pow(g: Generator) -> None:
    base = g.require(g.choice((logical.ExpOp, logical.SigmoidOp))(g.float_value()))
    g.add(logical.PowOp(base, g.like(base)))


def _binary(g: Generator) -> None:
    lhs = g.float_value()
    rhs = g.like(lhs)
    pair = (lhs, rhs) if g.chance(0.5) else (rhs, lhs)
    g.add(g.choice(BINARY)(*pair))


def _select(g: Generator) -> None:
    lhs = g.float_value()
    rhs = g.like(lhs)
    condition = g.require(logical.CompareOp(g.choice(logical.PREDICATES), lhs, rhs))
    if g.chance(0.5):
        condition = _with_logic(g, condition, lhs)
    g.add(logical.SelectOp(condition, g.like(lhs), lhs))


def _with_logic(g: Generator, condition: SSAValue, value: SSAValue) -> SSAValue:
    is_number = g.require(logical.NotOp(g.require(logical.IsNanOp(value))))
    return g.require(g.choice(LOGIC)(condition, is_number))


def _casts(g: Generator) -> None:
    whole = g.require(logical.CastOp(g.float_value(), g.choice((*g.integers, "i1"))))
    info = tensor_info(whole.type)
    if info.element.kind == "int":
        whole = g.require(g.choice(BINARY)(whole, g.like(whole)))
    g.add(logical.CastOp(whole, g.float_type))


def _integers(g: Generator) -> None:
    shape, element = tensor_info(g.float_value().type).shape, g.choice(g.integers)
    whole = g.require(g.choice(OF_INTEGERS)(*(g.argument(shape, "input", element) for _ in range(2))))
    if g.chance(0.5):
        whole = g.require(g.choice(OF_AN_INTEGER)(whole))
    if g.chance(0.3):
        low = 0 if element == "u8" else -2
        whole = g.require(logical.ClampOp(whole, low, 3))
    g.add(logical.CastOp(whole, g.float_type))


def _bits(g: Generator) -> None:
    """The lowest bits of the exponent of a whole number, which rounding does not move."""
    whole = g.require(logical.CastOp(g.require(logical.CastOp(g.float_value(), "i32")), "f32"))
    bits = g.require(logical.BitcastOp(whole, "i32"))
    amount, mask = (g.require(logical.ConstantOp(number, bits.type)) for number in (23, 15))
    exponent = g.require(logical.AndOp(g.require(logical.ShiftRightOp(bits, amount)), mask))
    g.add(logical.CastOp(exponent, g.float_type))


STEPS = (
    *(_unary, _unary, _unary, _unary, _gelu, _parametric, _pow, _of_fractions, _acosh),
    *(_binary, _binary, _binary, _select, _casts, _integers, _bits),
)
