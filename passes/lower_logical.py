"""``lower-logical``: composite ops become primitive ones.

What is left is elementwise ops (no gelu or silu), matmul, reduce_sum, reduce_max, views and constants. The formulas
are those of the semantics: a composite of f16 or bf16 is computed in f32, between casts, and its coefficients
are rounded to that type. Coefficients are splat constants of the full shape, so that every elementwise op has
operands of one shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from aicf.dialects import logical
from aicf.dialects.dims import Size
from aicf.dialects.logical import LogicalOp, int_values
from aicf.dialects.types import ElementType, element_named, element_of, tensor_info
from aicf.passes.support.greedy import PatternTable, apply_patterns
from aicf.passes.support.identity import Expansion, IdTable, invalid
from aicf.semantics import coefficient, composite_element
from aicf.semantics.meanings import GELU_CUBIC, SQRT_2_OVER_PI, SQRT_HALF


class Lowering:
    """Writes primitive ops in place of one composite; a method adds one op (or none) and gives its value."""

    def __init__(self, rewriter: PatternRewriter, op: LogicalOp, ids: IdTable) -> None:
        self.op = op
        self._expansion = Expansion(rewriter, op, ids)

    def add(self, op: LogicalOp, suffix: str) -> SSAValue:
        """Insert an op as ``<id of the composite>.<suffix>``."""
        return self._expansion.add(op, suffix)

    def finish(self, value: SSAValue) -> None:
        """The composite's result is ``value``."""
        self._expansion.finish([value])

    def cast(self, value: SSAValue, element: ElementType, suffix: str) -> SSAValue:
        """The value in another element type; itself if it has that."""
        if element_of(value.type) == element:
            return value
        return self.add(logical.CastOp(value, element), suffix)

    def splat(self, number: float, like: SSAValue, suffix: str) -> SSAValue:
        """A constant of the shape and type of ``like``."""
        return self.add(logical.ConstantOp(number, like.type), suffix)

    def broadcast(
        self, value: SSAValue, dimensions: Sequence[int], sizes: Sequence[Size], suffix: str
    ) -> SSAValue:
        """The value repeated to ``sizes``; itself if it has them."""
        if tensor_info(value.type).sizes == tuple(sizes):
            return value
        return self.add(logical.BroadcastOp(value, dimensions, sizes), suffix)

    def mean(self, value: SSAValue, axes: Sequence[int], keepdims: bool, suffix: str) -> SSAValue:
        """Sum over the count; ``suffix`` names the quotient."""
        total = self.add(logical.ReduceSumOp(value, axes, keepdims=keepdims), _join(suffix, "sum"))
        count = math.prod(static_size(self.op, tensor_info(value.type).sizes[axis]) for axis in axes)
        divisor = self.splat(count, total, _join(suffix, "count"))
        return self.add(logical.DivOp(total, divisor), suffix)


def _join(stem: str, suffix: str) -> str:
    return f"{stem}.{suffix}" if stem else suffix


def static_size(op: LogicalOp, size: Size) -> int:
    """The size as a number.

    Raises:
        InvalidIR: it is symbolic.
    """
    if not isinstance(size, int):
        raise invalid(op, f"a mean over symbolic size {size} has no count; run specialize-shapes first")
    return size


@dataclass(frozen=True)
class LoweringPattern(RewritePattern):
    """A pattern that names what it inserts."""

    ids: IdTable


class LowerLinear(LoweringPattern):
    """matmul with the weight transposed, then the broadcast bias added."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: logical.LinearOp, rewriter: PatternRewriter, /) -> None:
        lower = Lowering(rewriter, op, self.ids)
        product = lower.add(_product(lower, op), "matmul")
        if op.info.rank == 1:
            product = lower.add(logical.ReshapeOp(product, op.info.sizes), "reshape")
        if op.bias is None:
            lower.finish(product)
            return
        sizes = op.info.sizes
        bias = lower.broadcast(op.bias, [len(sizes) - 1], sizes, "bias.broadcast")
        lower.finish(lower.add(logical.AddOp(product, bias), "bias"))


def _product(lower: Lowering, op: logical.LinearOp) -> logical.MatmulOp:
    operand = op.operand
    info = tensor_info(operand.type)
    if info.rank == 1:
        operand = lower.add(logical.ReshapeOp(operand, [1, *info.sizes]), "row")
    return logical.MatmulOp(operand, op.weight, transpose_b=True)


class LowerGelu(LoweringPattern):
    """0.5 * x * (1 + erf(x / sqrt 2)), or the tanh approximation."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: logical.GeluOp, rewriter: PatternRewriter, /) -> None:
        lower = Lowering(rewriter, op, self.ids)
        element = op.info.element
        x = lower.cast(op.operand, composite_element(element), "widen")
        curve = _gelu_tanh(lower, x) if op.approximate.data == "tanh" else _gelu_erf(lower, x)
        shifted = lower.add(logical.AddOp(curve, lower.splat(1.0, x, "one")), "shifted")
        half = lower.add(logical.MulOp(x, lower.splat(0.5, x, "half")), "halved")
        result = lower.add(logical.MulOp(half, shifted), "mul")
        lower.finish(lower.cast(result, element, "narrow"))


def _gelu_erf(lower: Lowering, x: SSAValue) -> SSAValue:
    scaled = lower.add(logical.MulOp(x, lower.splat(SQRT_HALF, x, "sqrt_half")), "scaled")
    return lower.add(logical.ErfOp(scaled), "erf")


def _gelu_tanh(lower: Lowering, x: SSAValue) -> SSAValue:
    square = lower.add(logical.MulOp(x, x), "square")
    cube = lower.add(logical.MulOp(square, x), "cube")
    cubic = lower.add(logical.MulOp(cube, lower.splat(GELU_CUBIC, x, "cubic_coefficient")), "cubic")
    inner = lower.add(logical.AddOp(x, cubic), "inner")
    scaled = lower.add(logical.MulOp(inner, lower.splat(SQRT_2_OVER_PI, x, "sqrt_2_over_pi")), "scaled")
    return lower.add(logical.TanhOp(scaled), "tanh")


class LowerSilu(LoweringPattern):
    """x * sigmoid(x)."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: logical.SiluOp, rewriter: PatternRewriter, /) -> None:
        lower = Lowering(rewriter, op, self.ids)
        x = lower.cast(op.operand, composite_element(op.info.element), "widen")
        gate = lower.add(logical.SigmoidOp(x), "sigmoid")
        lower.finish(lower.cast(lower.add(logical.MulOp(x, gate), "mul"), op.info.element, "narrow"))


class LowerReduceMean(LoweringPattern):
    """reduce_sum over the count, in a type that holds the count exactly."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: logical.ReduceMeanOp, rewriter: PatternRewriter, /) -> None:
        lower = Lowering(rewriter, op, self.ids)
        axes = int_values(op.axes)
        sizes = tensor_info(op.operand.type).sizes
        count = math.prod(static_size(op, sizes[axis]) for axis in axes)
        wide = lower.cast(op.operand, counting_element(op.info.element, count), "widen")
        mean = lower.mean(wide, axes, op.keepdims is not None, "")
        lower.finish(lower.cast(mean, op.info.element, "narrow"))


def counting_element(element: ElementType, count: int) -> ElementType:
    """The type a mean of ``count`` elements is computed in: f32 or wider, and exact for the count."""
    wide = composite_element(element)
    return wide if int(wide.dtype.type(count)) == count else element_named("f64")


class LowerSoftmax(LoweringPattern):
    """max, sub, exp, sum, div along the axis."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: logical.SoftmaxOp, rewriter: PatternRewriter, /) -> None:
        lower = Lowering(rewriter, op, self.ids)
        axes, sizes = [op.axis.value.data], op.info.sizes
        every = range(len(sizes))
        x = lower.cast(op.operand, composite_element(op.info.element), "widen")
        largest = lower.add(logical.ReduceMaxOp(x, axes, keepdims=True), "max")
        shifted = lower.add(logical.SubOp(x, lower.broadcast(largest, every, sizes, "max.broadcast")), "sub")
        exponentials = lower.add(logical.ExpOp(shifted), "exp")
        total = lower.add(logical.ReduceSumOp(exponentials, axes, keepdims=True), "sum")
        quotient = lower.add(
            logical.DivOp(exponentials, lower.broadcast(total, every, sizes, "sum.broadcast")), "div"
        )
        lower.finish(lower.cast(quotient, op.info.element, "narrow"))


class LowerLayerNorm(LoweringPattern):
    """mean, sub, square, mean, + epsilon, rsqrt, mul, mul, add."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: logical.LayerNormOp, rewriter: PatternRewriter, /) -> None:
        lower = Lowering(rewriter, op, self.ids)
        axes, sizes = logical.normalized_axes(op), op.info.sizes
        every = range(len(sizes))
        count = math.prod(static_size(op, sizes[axis]) for axis in axes)
        wide = counting_element(op.info.element, count)
        x, scale, bias = (
            lower.cast(value, wide, f"{name}.widen" if name else "widen")
            for value, name in ((op.operand, ""), (op.scale, "scale"), (op.bias, "bias"))
        )
        mean = lower.broadcast(lower.mean(x, axes, True, "mean"), every, sizes, "mean.broadcast")
        centered = lower.add(logical.SubOp(x, mean), "centered")
        square = lower.add(logical.MulOp(centered, centered), "square")
        variance = lower.mean(square, axes, True, "variance")
        epsilon = lower.splat(coefficient(op.epsilon.value.data, op.info.element), variance, "epsilon")
        shifted = lower.add(logical.AddOp(variance, epsilon), "shifted")
        deviation = lower.add(logical.RsqrtOp(shifted), "rsqrt")
        factor = lower.broadcast(deviation, every, sizes, "rsqrt.broadcast")
        normalized = lower.add(logical.MulOp(centered, factor), "normalized")
        wide_scale = lower.broadcast(scale, axes, sizes, "scale.broadcast")
        scaled = lower.add(logical.MulOp(normalized, wide_scale), "scale")
        wide_bias = lower.broadcast(bias, axes, sizes, "bias.broadcast")
        result = lower.add(logical.AddOp(scaled, wide_bias), "bias")
        lower.finish(lower.cast(result, op.info.element, "narrow"))


def lowerings(ids: IdTable) -> PatternTable:
    """Composite op class to its lowering."""
    return {
        logical.LinearOp: (LowerLinear(ids),),
        logical.GeluOp: (LowerGelu(ids),),
        logical.SiluOp: (LowerSilu(ids),),
        logical.ReduceMeanOp: (LowerReduceMean(ids),),
        logical.SoftmaxOp: (LowerSoftmax(ids),),
        logical.LayerNormOp: (LowerLayerNorm(ids),),
    }


@dataclass(frozen=True)
class LowerLogicalPass(ModulePass):
    """Expands linear, gelu, silu, reduce_mean, softmax and layer_norm; the new ops are called ``<id>.<part>``."""

    name = "lower-logical"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns(op, lowerings(IdTable(op)))
