"""Steps that add elementwise ops."""

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
)
POSITIVE_ONLY = (logical.LogOp, logical.SqrtOp, logical.RsqrtOp)
BINARY = (logical.AddOp, logical.SubOp, logical.MulOp, logical.DivOp, logical.MaxOp, logical.MinOp)


def _unary(g: Generator) -> None:
    op_class = g.choice(UNARY)
    x = g.float_value()
    if op_class in POSITIVE_ONLY:
        x = g.require(g.choice((logical.ExpOp, logical.SigmoidOp))(x))
    g.add(op_class(x))


def _gelu(g: Generator) -> None:
    g.add(logical.GeluOp(g.float_value(), g.choice(logical.APPROXIMATIONS)))


def _binary(g: Generator) -> None:
    lhs = g.float_value()
    rhs = g.like(lhs)
    pair = (lhs, rhs) if g.chance(0.5) else (rhs, lhs)
    g.add(g.choice(BINARY)(*pair))


def _select(g: Generator) -> None:
    lhs = g.float_value()
    rhs = g.like(lhs)
    condition = g.require(logical.CompareOp(g.choice(logical.PREDICATES), lhs, rhs))
    g.add(logical.SelectOp(condition, g.like(lhs), lhs))


def _casts(g: Generator) -> None:
    whole = g.require(logical.CastOp(g.float_value(), g.choice(("i32", "i64", "i1"))))
    info = tensor_info(whole.type)
    if info.element.kind == "int":
        whole = g.require(g.choice(BINARY)(whole, g.like(whole)))
    g.add(logical.CastOp(whole, g.float_type))


STEPS = (_unary, _unary, _unary, _gelu, _binary, _binary, _binary, _select, _casts)
