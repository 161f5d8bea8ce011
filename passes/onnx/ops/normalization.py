"""ONNX's normalisations: softmax and its kin, norms over trailing dimensions, and norms of channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.semantics import composite_element

_EPSILON = 1e-5

_FLOAT = 1
"""TensorProto.FLOAT: the only ``stash_type`` in use."""


# Softmax, log-softmax, hardmax


def _hard(node: Node, x: SSAValue, axis: int) -> SSAValue:
    """1 at the first of the largest elements along the axis, 0 elsewhere."""
    info = tensor_info(x.type)
    largest = node.apply(logical.ArgmaxOp, x, axis=axis)
    on, off = node.full(1.0, (), info.element), node.full(0.0, (), info.element)
    return node.apply(logical.OneHotOp, largest, on, off, axis=axis, depth=info.shape[axis])


def _soft(op_class: Callable[..., LogicalOp]) -> Callable[[Node, SSAValue, int], SSAValue]:
    return lambda node, x, axis: node.apply(op_class, x, axis=axis)


_ALONG_AXIS: dict[str, Callable[[Node, SSAValue, int], SSAValue]] = {
    "Softmax": _soft(logical.SoftmaxOp),
    "LogSoftmax": _soft(logical.LogSoftmaxOp),
    "Hardmax": _hard,
}


@row("Softmax", since=13)
@row("LogSoftmax", since=13)
@row("Hardmax", since=13)
def _along_axis(node: Node) -> Result:
    """Over the elements along the axis."""
    x = node.operand(0)
    axis = node.axis(node.attributes.int("axis", -1), node.type(0).rank)
    return _ALONG_AXIS[node.op_type](node, x, axis)


@row("Softmax", since=1)
@row("LogSoftmax", since=1)
@row("Hardmax", since=1)
def _over_trailing(node: Node) -> Result:
    """Over the elements of all dimensions from the axis on, as before opset 13."""
    x, sizes = node.operand(0), node.shape(0)
    axis = node.axis(node.attributes.int("axis", 1), len(sizes))
    matrix = node.reshape(x, (math.prod(sizes[:axis]), math.prod(sizes[axis:])), "matrix")
    return node.reshape(_ALONG_AXIS[node.op_type](node, matrix, 1), sizes)


# Norms over trailing dimensions


@row("LayerNormalization", since=17)
def _layer_norm(node: Node) -> Result:
    """(x - mean) / sqrt(variance + epsilon) * Scale + B from the axis on, with mean and 1 / deviation."""
    x, sizes = node.operand(0), node.shape(0)
    axis = _first_normalized(node)
    epsilon = node.attributes.float("epsilon", _EPSILON)
    element = node.element(0)
    scale, bias = _trailing(node, 1, axis), _trailing(node, 2, axis)
    unit = node.full(1.0, sizes[axis:], element) if scale is None else scale
    zero = node.full(0.0, sizes[axis:], element) if bias is None or scale is None else bias
    y = node.apply(logical.LayerNormOp, x, unit, zero, axis=axis, epsilon=epsilon)
    if scale is None:
        y = node.elementwise(logical.MulOp, y, node.operand(1), name="scale")
    if node.has(2) and (bias is None or scale is None):
        y = node.elementwise(logical.AddOp, y, node.operand(2), name="bias")
    return [y, *_statistics(node, x, range(axis, len(sizes)), epsilon)][: node.outputs]


def _statistics(node: Node, x: SSAValue, axes: Sequence[int], epsilon: float) -> list[SSAValue | None]:
    """Mean and 1 / sqrt(variance + epsilon) with size 1 along the axes, in the wide type; None where none is wanted."""
    if not (node.wants(1) or node.wants(2)):
        return [None, None]
    wide = node.cast(x, composite_element(tensor_info(x.type).element), "wide")
    mean = node.apply(logical.ReduceMeanOp, wide, axes=axes, keepdims=True, name="mean")
    variance = _variance(node, wide, mean, axes)
    shifted = node.apply(logical.AddOp, variance, epsilon, name="shifted")
    return [mean, node.apply(logical.RsqrtOp, shifted)]


def _variance(node: Node, x: SSAValue, mean: SSAValue, axes: Sequence[int]) -> SSAValue:
    """The mean of the squared distance from a mean that has size 1 along the axes."""
    centered = node.elementwise(logical.SubOp, x, mean, name="centered")
    square = node.apply(logical.MulOp, centered, centered, name="square")
    return node.apply(logical.ReduceMeanOp, square, axes=axes, keepdims=True, name="variance")


@row("RMSNormalization", since=23)
def _rms_norm(node: Node) -> Result:
    """x / sqrt(mean(x * x) + epsilon) * scale from the axis on, in the type of the scale."""
    x, sizes = node.operand(0), node.shape(0)
    axis = _first_normalized(node)
    epsilon = node.attributes.float("epsilon", _EPSILON)
    scale = _trailing(node, 1, axis) if node.element(0) == node.element(1) else None
    unit = node.full(1.0, sizes[axis:], node.element(0)) if scale is None else scale
    y = node.apply(logical.RmsNormOp, x, unit, axis=axis, epsilon=epsilon)
    if scale is not None:
        return y
    return node.elementwise(
        logical.MulOp, node.cast(y, node.element(1), "cast"), node.operand(1), name="scale"
    )


def _first_normalized(node: Node) -> int:
    if (stash := node.attributes.int("stash_type", _FLOAT)) != _FLOAT:
        raise node.unsupported(f"stash_type is {stash}; only 1 (f32) is")
    return node.axis(node.attributes.int("axis", -1), node.type(0).rank)


def _trailing(node: Node, index: int, axis: int) -> SSAValue | None:
    """A scale or bias in the shape of the normalised dimensions; None if it is absent, or varies before them."""
    if not node.has(index):
        return None
    given, sizes = node.shape(index), node.shape(0)[axis:]
    leading = len(given) - len(sizes)
    if any(size != 1 for size in given[: max(leading, 0)]):
        return None
    own = node.reshape(node.operand(index), given[max(leading, 0) :], "trailing")
    return node.broadcast_to(own, sizes)


# Norms of channels


@row("BatchNormalization", since=14)
def _batch_norm(node: Node) -> Result:
    """Each channel less its mean over its deviation: those given, or in training those of the batch."""
    return _batch_norm_of(node, node.trains(node.attributes.flag("training_mode")))


@row("BatchNormalization", since=7)
def _batch_norm_7(node: Node) -> Result:
    """As later; training is meant where more than Y is asked for."""
    if node.attributes.int("spatial", 1) != 1:
        raise node.unsupported(
            "spatial is 0, statistics of each element; only those of channels are supported"
        )
    return _batch_norm_of(node, node.trains(any(node.wants(output) for output in range(1, node.outputs))))


def _batch_norm_of(node: Node, training: bool) -> Result:
    info = node.type(0)
    if not info.element.is_float or info.rank < 1:
        raise node.invalid(f"X is {info}; it is a float tensor of rank 1 or more")
    epsilon = node.attributes.float("epsilon", _EPSILON)
    sizes = info.shape if info.rank > 1 else (*info.shape, 1)
    x = node.reshape(node.operand(0), sizes, "channels")
    scale, bias, mean, variance = (
        node.cast(node.operand(index), info.element, name)
        for index, name in enumerate(("scale", "bias", "mean", "variance"), 1)
    )
    more: list[SSAValue | None] = []
    if training:
        batch_mean, batch_variance = _batch_statistics(node, x)
        more = [
            *(_running(node, 3 + number, now) for number, now in enumerate((batch_mean, batch_variance))),
            *(
                node.cast(now, node.element(3 + number), "saved")
                for number, now in enumerate((batch_mean, batch_variance))
            ),
        ]
        mean, variance = (node.cast(now, info.element, "batch") for now in (batch_mean, batch_variance))
    else:  # running and saved statistics stay those that are given
        more = [node.operand(index) if node.wants(index - 2) else None for index in (3, 4, 3, 4)]
    y = node.apply(logical.BatchNormOp, x, scale, bias, mean, variance, epsilon=epsilon)
    found = [node.reshape(y, info.shape), *more]
    return [*found, *[None] * 4][: node.outputs]


def _batch_statistics(node: Node, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Mean and variance of each channel over the batch, in the wide type."""
    info = tensor_info(x.type)
    axes = [axis for axis in range(info.rank) if axis != 1]
    wide = node.cast(x, composite_element(info.element), "wide")
    mean = node.apply(logical.ReduceMeanOp, wide, axes=axes, keepdims=True, name="mean")
    variance = _variance(node, wide, mean, axes)
    channels = info.shape[1:2]
    return node.reshape(mean, channels, "batch_mean"), node.reshape(variance, channels, "batch_variance")


def _running(node: Node, index: int, now: SSAValue) -> SSAValue:
    """momentum * before + (1 - momentum) * now."""
    momentum = node.attributes.float("momentum", 0.9)
    wide = tensor_info(now.type).element
    before = node.apply(logical.MulOp, node.cast(node.operand(index), wide, "before"), momentum, name="kept")
    share = node.apply(logical.MulOp, now, 1.0 - momentum, name="new")
    return node.cast(node.apply(logical.AddOp, before, share, name="running"), node.element(index), "narrow")


@row("InstanceNormalization", since=6)
def _instance_norm(node: Node) -> Result:
    """Each channel of each sample by its own mean and variance."""
    return _groups(node, node.operand(1), node.operand(2), node.shape(0)[1])


@row("GroupNormalization", since=21)
def _group_norm(node: Node) -> Result:
    """Groups of channels of each sample by their mean and variance; a scale and bias for each channel."""
    return _groups(node, node.operand(1), node.operand(2), _group_count(node))


def _group_count(node: Node) -> int:
    if not node.attributes.has("num_groups"):
        raise node.invalid("attribute num_groups is missing")
    groups = node.attributes.int("num_groups", 0)
    if groups < 1 or node.shape(0)[1] % groups:
        raise node.invalid(
            f"num_groups is {groups}; it divides the {node.shape(0)[1]} channels of {node.type(0)}"
        )
    return groups


def _groups(node: Node, scale: SSAValue, bias: SSAValue, groups: int) -> SSAValue:
    epsilon = node.attributes.float("epsilon", _EPSILON)
    return node.apply(logical.GroupNormOp, node.operand(0), scale, bias, groups=groups, epsilon=epsilon)


# Others


@row("LpNormalization", since=1)
def _lp_norm(node: Node) -> Result:
    """x over the sum of magnitudes (p = 1) or the Euclidean norm (p = 2) along the axis; 0 where that is 0."""
    x, p = node.operand(0), node.attributes.int("p", 2)
    axes = [node.axis(node.attributes.int("axis", -1), node.type(0).rank)]
    if p not in (1, 2):
        raise node.invalid(f"p is {p}; it is 1 or 2")
    if p == 2:
        norm = node.apply(logical.ReduceL2Op, x, axes=axes, keepdims=True)
    else:
        norm = node.apply(logical.ReduceSumOp, node.apply(logical.AbsOp, x), axes=axes, keepdims=True)
    spread = node.broadcast_to(norm, node.shape(0))
    zero = node.splat(0.0, spread)
    empty = node.add(logical.CompareOp("eq", spread, zero), "empty")
    return node.apply(logical.SelectOp, empty, zero, node.apply(logical.DivOp, x, spread))


@row("MeanVarianceNormalization", since=9)
def _mean_variance_norm(node: Node) -> Result:
    """(x - mean) / (sqrt(variance) + 1e-9) over the axes."""
    axes = node.axes(node.attributes.ints("axes", [0, 2, 3]), node.type(0).rank)
    wide = composite_element(node.element(0))
    x = node.cast(node.operand(0), wide, "wide")
    mean = node.apply(logical.ReduceMeanOp, x, axes=axes, keepdims=True, name="mean")
    deviation = node.apply(logical.SqrtOp, _variance(node, x, mean, axes))
    divisor = node.apply(logical.AddOp, deviation, 1e-9)
    centered = node.elementwise(logical.SubOp, x, mean)
    return node.cast(node.elementwise(logical.DivOp, centered, divisor), node.element(0), "narrow")


@row("LRN", since=1)
def _lrn(node: Node) -> Result:
    """x / (bias + alpha / size * sum of the squares of ``size`` neighbouring channels) ** beta.

    The sum is that of a pooling along the channels. A window reaches no further than they do, whatever its size.
    """
    attributes, sizes = node.attributes, node.shape(0)
    if not attributes.has("size"):
        raise node.invalid("attribute size is missing")
    if (size := attributes.int("size", 1)) < 1:
        raise node.invalid(f"size is {size}; it is at least 1")
    if len(sizes) < 2:
        raise node.invalid(f"operand 0 has rank {len(sizes)}; it is [N, C, ...]")
    x, channels = node.operand(0), sizes[1]
    before, after = (min(count, channels - 1) for count in ((size - 1) // 2, size // 2))
    window = before + 1 + after
    square = node.apply(logical.MulOp, x, x, name="square")
    planes = node.reshape(square, [sizes[0], 1, channels, math.prod(sizes[2:])], "planes")
    mean = node.apply(
        partial(logical.AvgPoolOp, count_include_pad=True),
        planes,
        sizes=[window, 1],
        strides=[1, 1],
        dilations=[1, 1],
        low=[before, 0],
        high=[after, 0],
        ceil_mode=False,
        name="neighbours",
    )
    scale = attributes.float("alpha", 1e-4) * window / size
    scaled = node.apply(logical.MulOp, node.reshape(mean, sizes, "mean"), scale)
    based = node.apply(logical.AddOp, scaled, attributes.float("bias", 1.0))
    return node.apply(logical.DivOp, x, node.apply(logical.PowOp, based, attributes.float("beta", 0.75)))
