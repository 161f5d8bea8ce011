"""ONNX's convolutions: Conv, ConvTranspose, and those of quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_named, tensor_info
from aicf.passes.support.onnx_ops.base import Node, Result, row
from aicf.passes.support.onnx_ops.quantization import centered, rounded

_F32 = element_named("f32")


@dataclass(frozen=True)
class Sliding:
    """How windows slide along the dimensions behind the channels.

    Args:
        low, high: Elements in front and behind along each.
    """

    strides: list[int]
    dilations: list[int]
    low: list[int]
    high: list[int]

    def lists(self) -> dict[str, list[int]]:
        """As the attributes of a convolution."""
        return {"strides": self.strides, "low": self.low, "high": self.high, "dilations": self.dilations}


def steps(node: Node, rank: int) -> tuple[list[int], list[int]]:
    """The attributes `strides` and `dilations`, for as many dimensions."""
    return _list(node, "strides", rank), _list(node, "dilations", rank)


def _list(node: Node, name: str, rank: int) -> list[int]:
    values = node.attributes.ints(name, [1] * rank)
    if len(values) != rank:
        raise node.invalid(f"{name} {values} has {len(values)} values for {rank} dimensions")
    return values


def check_kernel_shape(node: Node, taps: Sequence[int]) -> None:
    """Refuses an attribute that says otherwise than the weight."""
    stated = node.attributes.ints("kernel_shape", list(taps))
    if stated != list(taps):
        raise node.invalid(f"kernel_shape is {stated}, the weight has {list(taps)}")


def sliding(node: Node, sizes: Sequence[int], taps: Sequence[int]) -> Sliding:
    """What the attributes say of windows of ``taps`` elements over ``sizes``; auto_pad is worked out."""
    strides, dilations = steps(node, len(sizes))
    mode = node.attributes.string("auto_pad", "NOTSET")
    if mode in ("NOTSET", "VALID"):
        pads = (
            node.attributes.ints("pads", [0] * 2 * len(sizes)) if mode == "NOTSET" else [0] * 2 * len(sizes)
        )
        if len(pads) != 2 * len(sizes):
            raise node.invalid(
                f"pads {pads} has {len(pads)} values for {len(sizes)} dimensions; each has two"
            )
        return Sliding(strides, dilations, pads[: len(sizes)], pads[len(sizes) :])
    wanted = [
        max((-(-size // stride) - 1) * stride + (tap - 1) * dilation + 1 - size, 0)
        for size, tap, stride, dilation in zip(sizes, taps, strides, dilations, strict=True)
    ]
    return Sliding(strides, dilations, *halves(node, mode, wanted))


def halves(node: Node, mode: str, amounts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Amounts of padding shared between both sides as `auto_pad` says."""
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.invalid(f"auto_pad is {mode}; it is NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    smaller = [amount // 2 for amount in amounts]
    larger = [amount - half for amount, half in zip(amounts, smaller, strict=True)]
    return (smaller, larger) if mode == "SAME_UPPER" else (larger, smaller)


def _dimensions(node: Node, index: int, weight: int) -> tuple[list[int], list[int]]:
    """Sizes of the operand and of the weight behind their channels."""
    sizes, taps = node.shape(index)[2:], node.shape(weight)[2:]
    if not sizes or len(sizes) != len(taps):
        raise node.invalid(
            f"operand {index} is {node.type(index)} and the weight {node.type(weight)}; both have two dimensions "
            "for channels and one or more behind"
        )
    check_kernel_shape(node, taps)
    return list(sizes), list(taps)


@row("Conv", since=1)
def _conv(node: Node) -> Result:
    """A convolution with padding by zeros, groups and an optional bias."""
    lists = sliding(node, *_dimensions(node, 0, 1)).lists()
    operands = (node.operand(0), node.operand(1), node.optional(2))
    return node.add(logical.ConvOp(*operands, **lists, groups=node.attributes.int("group", 1)), "conv")


@row("ConvTranspose", since=1)
def _conv_transpose(node: Node) -> Result:
    """The way back of a convolution; the padding follows from `output_shape` if that is given."""
    sizes, taps = _dimensions(node, 0, 1)
    strides, dilations = steps(node, len(sizes))
    extra = node.attributes.ints("output_padding", [0] * len(sizes))
    whole = [
        (size - 1) * stride + (tap - 1) * dilation + 1 + more
        for size, tap, stride, dilation, more in zip(sizes, taps, strides, dilations, extra, strict=True)
    ]
    low, high, missing = _cut(node, sizes, strides, whole)
    return node.add(
        logical.ConvTransposeOp(
            *(node.operand(0), node.operand(1), node.optional(2)),
            strides=strides,
            low=low,
            high=high,
            extra=[more + behind for more, behind in zip(extra, missing, strict=True)],
            dilations=dilations,
            groups=node.attributes.int("group", 1),
        ),
        "conv_transpose",
    )


def _cut(
    node: Node, sizes: Sequence[int], strides: Sequence[int], whole: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """How much is cut off in front and behind, and how many zeros an `output_shape` asks for behind all windows."""
    mode = node.attributes.string("auto_pad", "NOTSET")
    stated = node.attributes.ints("output_shape", None)
    if stated is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        stated = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    if stated is None:
        pads = (
            node.attributes.ints("pads", [0] * 2 * len(sizes)) if mode == "NOTSET" else [0] * 2 * len(sizes)
        )
        if len(pads) != 2 * len(sizes):
            raise node.invalid(
                f"pads {pads} has {len(pads)} values for {len(sizes)} dimensions; each has two"
            )
        return pads[: len(sizes)], pads[len(sizes) :], [0] * len(sizes)
    amounts = [size - wanted for size, wanted in zip(whole, stated[-len(sizes) :], strict=True)]
    cut = halves(node, "SAME_LOWER" if mode == "NOTSET" else mode, [max(amount, 0) for amount in amounts])
    return *cut, [max(-amount, 0) for amount in amounts]


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
    x = centered(node, node.operand(operand[0]), _zero_point(node, operand, 1))
    w = centered(node, node.operand(weight[0]), _zero_point(node, weight, 0))
    lists = sliding(node, *_dimensions(node, operand[0], weight[0])).lists()
    own = None if bias is None else node.optional(bias)
    return node.add(logical.ConvOp(x, w, own, **lists, groups=node.attributes.int("group", 1)), "conv")


def _zero_point(node: Node, places: tuple[int, int], axis: int) -> SSAValue | None:
    """The zero point of an operand such that it broadcasts: one, or one a channel along ``axis``."""
    operand, index = places
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
