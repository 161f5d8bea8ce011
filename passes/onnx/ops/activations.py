"""ONNX activations: elementwise functions with a bend, f16 and bf16 computed in f32.

Their attributes have other defaults than those of the ops of the logical dialect, and are always given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import element_named
from aicf.passes.onnx.ops.base import Lower, Node, Result, row
from aicf.passes.onnx.ops.elementwise import compare, select
from aicf.passes.onnx.ops.pointwise import narrow, pointwise, widen

_PARAMETRIC: Mapping[str, tuple[Callable[..., LogicalOp], Mapping[str, tuple[str, float]]]] = {
    "Elu": (logical.EluOp, {"alpha": ("alpha", 1.0)}),
    "HardSigmoid": (logical.HardSigmoidOp, {"alpha": ("alpha", 0.2), "beta": ("beta", 0.5)}),
    "HardSwish": (logical.HardSwishOp, {}),
    "LeakyRelu": (logical.LeakyReluOp, {"negative_slope": ("alpha", 0.01)}),
    "Softplus": (logical.SoftplusOp, {}),
}
"""Op class, and for each of its properties the name and the default of ONNX."""


def _parametric(op_class: Callable[..., LogicalOp], properties: Mapping[str, tuple[str, float]]) -> Lower:
    @pointwise()
    def lower(node: Node) -> Result:
        given = {name: node.attributes.float(*source) for name, source in properties.items()}
        return node.add(op_class(node.operand(0), **given))

    return lower


for _op_type, _entry in _PARAMETRIC.items():
    row(_op_type)(_parametric(*_entry))


@row("Gelu", since=20)
@pointwise()
def _gelu(node: Node) -> Result:
    """x * Phi(x), or its approximation by a tanh."""
    return node.apply(
        logical.GeluOp, node.operand(0), approximate=node.attributes.string("approximate", "none")
    )


Formula = Callable[[Node, SSAValue], SSAValue]


def _by_formula(formula: Formula) -> Lower:
    """A formula of one float, computed in f32 or f64."""
    return pointwise()(lambda node: narrow(node, formula(node, widen(node, node.operand(0)))))


def _celu(node: Node, x: SSAValue) -> SSAValue:
    """max(x, 0) + min(alpha * expm1(x / alpha), 0)."""
    alpha = node.attributes.float("alpha", 1.0)
    curve = node.apply(logical.Expm1Op, node.apply(logical.DivOp, x, alpha))
    below = node.apply(logical.MinOp, node.apply(logical.MulOp, curve, alpha), 0.0)
    return node.apply(logical.AddOp, node.apply(logical.ReluOp, x), below)


def _selu(node: Node, x: SSAValue) -> SSAValue:
    """gamma * (x > 0 ? x : alpha * expm1(x)), the numbers of Klambauer and others, 2017."""
    alpha = node.attributes.float("alpha", 1.67326319217681884765625)
    gamma = node.attributes.float("gamma", 1.05070102214813232421875)
    return node.apply(logical.MulOp, node.apply(logical.EluOp, x, alpha=alpha), gamma)


def _mish(node: Node, x: SSAValue) -> SSAValue:
    """x * tanh(softplus(x))."""
    return node.apply(logical.MulOp, x, node.apply(logical.TanhOp, node.apply(logical.SoftplusOp, x)))


def _swish(node: Node, x: SSAValue) -> SSAValue:
    """x * sigmoid(alpha * x)."""
    alpha = node.attributes.float("alpha", 1.0)
    if alpha == 1:
        return node.apply(logical.SiluOp, x)
    gate = node.apply(logical.SigmoidOp, node.apply(logical.MulOp, x, alpha))
    return node.apply(logical.MulOp, x, gate)


def softsign(node: Node, x: SSAValue) -> SSAValue:
    """x / (1 + |x|)."""
    return node.apply(logical.DivOp, x, node.apply(logical.AddOp, node.apply(logical.AbsOp, x), 1.0))


def _thresholded_relu(node: Node, x: SSAValue) -> SSAValue:
    """x > alpha ? x : 0."""
    above = compare(node, "gt", x, node.attributes.float("alpha", 1.0))
    return select(node, above, x, 0.0)


row("Celu", since=12)(_by_formula(_celu))
row("Mish", since=18)(_by_formula(_mish))
row("Selu", since=6)(_by_formula(_selu))
row("Softsign")(_by_formula(softsign))
row("Swish", since=24)(_by_formula(_swish))
row("ThresholdedRelu", since=10)(_by_formula(_thresholded_relu))


@row("PRelu", since=7)
@pointwise()
def _prelu(node: Node) -> Result:
    """x < 0 ? slope * x : x; of integers too."""
    x, slope = widen(node, node.operand(0)), widen(node, node.operand(1))
    below = node.elementwise(logical.MulOp, x, slope)
    x = node.broadcast_to(x, node.joint_shape(node.shape(0), node.shape(1)))
    return narrow(node, select(node, compare(node, "lt", x, 0), below, x))


@row("Shrink", since=9)
@pointwise()
def _shrink(node: Node) -> Result:
    """x + bias below -lambd, x - bias above lambd, 0 between; of integers too, with numbers cut off."""
    x = widen(node, node.operand(0))
    limit, bias = (node.attributes.float(*entry) for entry in (("lambd", 0.5), ("bias", 0.0)))
    if not node.element(0).is_float:
        x = node.cast(x, element_named("f64"), "wide")
    below, above = compare(node, "lt", x, -limit), compare(node, "gt", x, limit)
    rest = select(node, above, node.apply(logical.SubOp, x, bias), 0.0)
    return narrow(node, select(node, below, node.apply(logical.AddOp, x, bias), rest))
