"""ONNX's convolutions: Conv, ConvTranspose, and those of quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_named, tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.quantization import factor, rounded
from aicf.passes.onnx.ops.sliding import Sliding, sliding

_F32 = element_named("f32")


def _windows(node: Node, index: int, weight: int) -> tuple[list[int], Sliding]:
    """Sizes of the operand after its channels, and how windows of the weight slide along them."""
    sizes, taps = node.shape(index)[2:], node.shape(weight)[2:]
    if not sizes or len(sizes) != len(taps):
        raise node.invalid(
            f"operand {index} is {node.type(index)} and the weight {node.type(weight)}; both have two dimensions "
            "for channels and one or more after them"
        )
    windows = sliding(node, sizes, taps)
    if windows.sizes != list(taps):
        raise node.invalid(f"kernel_shape is {windows.sizes}, the weight has {list(taps)}")
    return list(sizes), windows


@row("Conv", since=1)
def _conv(node: Node) -> Result:
    """A convolution with padding by zeros, groups and an optional bias."""
    lists = _windows(node, 0, 1)[1].steps
    operands = (node.operand(0), node.operand(1), node.optional(2))
    return node.add(logical.ConvOp(*operands, **lists, groups=node.attributes.int("group", 1)), "conv")


@row("ConvTranspose", since=1)
def _conv_transpose(node: Node) -> Result:
    """The way back of a convolution; the padding follows from `output_shape` if that is given."""
    sizes, windows = _windows(node, 0, 1)
    extra = node.attributes.ints("output_padding", [0] * len(sizes))
    if len(extra) != len(sizes):
        raise node.invalid(f"output_padding {extra} is no list of {len(sizes)} numbers")
    whole = [
        (size - 1) * stride + (tap - 1) * dilation + 1 + more
        for size, tap, stride, dilation, more in zip(
            sizes, windows.sizes, windows.strides, windows.dilations, extra, strict=True
        )
    ]
    low, high, missing = _cut(node, sizes, windows, whole)
    return node.add(
        logical.ConvTransposeOp(
            *(node.operand(0), node.operand(1), node.optional(2)),
            strides=windows.strides,
            low=low,
            high=high,
            extra=[more + missed for more, missed in zip(extra, missing, strict=True)],
            dilations=windows.dilations,
            groups=node.attributes.int("group", 1),
        ),
        "conv_transpose",
    )


def _cut(
    node: Node, sizes: Sequence[int], windows: Sliding, whole: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """How much is cut off before and after, and how many zeros an `output_shape` asks for after all windows."""
    mode = node.attributes.string("auto_pad", "NOTSET")
    stated = node.attributes.ints("output_shape", None)
    if stated is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        stated = [size * stride for size, stride in zip(sizes, windows.strides, strict=True)]
    if stated is None:
        return windows.low, windows.high, [0] * len(sizes)
    if len(stated) < len(sizes):
        raise node.invalid(f"output_shape {stated} is no list of {len(sizes)} numbers")
    amounts = [size - wanted for size, wanted in zip(whole, stated[-len(sizes) :], strict=True)]
    smaller = [max(amount, 0) // 2 for amount in amounts]
    larger = [max(amount, 0) - half for amount, half in zip(amounts, smaller, strict=True)]
    low, high = (smaller, larger) if mode == "SAME_UPPER" else (larger, smaller)
    return low, high, [max(-amount, 0) for amount in amounts]


@row("ConvInteger", since=10)
def _conv_integer(node: Node) -> Result:
    """The i32 convolution of integers less their zero points."""
    return _centered_conv(node, (0, 2), (1, 3))


@row("QLinearConv", since=10)
def _quantized_conv(node: Node) -> Result:
    """The convolution of quantised tensors, quantised itself; the bias is i32, in units of both scales."""
    sums = _centered_conv(node, (0, 2), (3, 5), bias=8)
    x_scale, w_scale, y_scale = (node.cast(node.operand(index), _F32, "scale") for index in (1, 4, 6))
    joint = node.elementwise(
        logical.DivOp, node.elementwise(logical.MulOp, _scalar(node, x_scale), w_scale), y_scale
    )
    sizes = tensor_info(sums.type).shape
    scaled = node.apply(logical.MulOp, node.cast(sums, _F32, "wide"), _per_channel(node, joint, 1, sizes))
    return rounded(node, scaled, _scalar(node, node.operand(7)), node.element(7))


def _centered_conv(
    node: Node, operand: tuple[int, int], weight: tuple[int, int], bias: int | None = None
) -> SSAValue:
    """The i32 convolution of two operands less their zero points, each given as the operands' numbers."""
    x = factor(node, *operand, _zero_point(node, operand, 1))
    w = factor(node, *weight, _zero_point(node, weight, 0))
    lists = _windows(node, operand[0], weight[0])[1].steps
    own = None if bias is None else node.optional(bias)
    groups = node.attributes.int("group", 1)
    return node.add(logical.ConvOp(x, w, own, **lists, groups=groups, widening=True), "conv")


def _zero_point(node: Node, inputs: tuple[int, int], axis: int) -> SSAValue | None:
    """The zero point of an operand such that it broadcasts: one, or one a channel along ``axis``."""
    operand, index = inputs
    if not node.has(index):
        return None
    return _per_channel(node, node.operand(index), axis, node.shape(operand))


def _per_channel(node: Node, value: SSAValue, axis: int, sizes: Sequence[int]) -> SSAValue:
    """A number, or a vector along ``axis``, repeated to ``sizes``."""
    if tensor_info(value.type).shape in ((), (1,)):
        return node.broadcast_to(_scalar(node, value), sizes)
    return node.broadcast_axis(value, axis, sizes)


def _scalar(node: Node, value: SSAValue) -> SSAValue:
    """A tensor of one element as a scalar; others as they are."""
    return node.reshape(value, ()) if tensor_info(value.type).shape == (1,) else value
