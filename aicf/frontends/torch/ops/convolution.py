"""ATen convolutions, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, row


@dataclass(frozen=True)
class _Steps:
    """How windows slide, one value for each spatial dimension."""

    strides: Sequence[int]
    low: Sequence[int]
    high: Sequence[int]
    dilations: Sequence[int]
    extra: Sequence[int]
    groups: int


def _steps(
    weight: Value,
    strides: Sequence[int],
    padding: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    extra: Sequence[int] = (0,),
) -> _Steps:
    """A list of one value is for all dimensions."""
    rank = weight.rank - 2
    strides, padding, dilations, extra = (
        list(each) * (rank if len(each) == 1 else 1) for each in (strides, padding, dilations, extra)
    )
    return _Steps(strides, padding, padding, dilations, extra, groups)


def _conv(writer: Writer, x: Value, weight: Value, bias: Value | None, steps: _Steps) -> Value:
    """A convolution; an operand without a batch is one sample."""
    y = writer.graph.conv(
        _batch(writer, x, weight),
        weight,
        bias,
        strides=steps.strides,
        low=steps.low,
        high=steps.high,
        dilations=steps.dilations,
        groups=steps.groups,
    )
    return writer.reshape(y, writer.shape)


def _conv_transpose(writer: Writer, x: Value, weight: Value, bias: Value | None, steps: _Steps) -> Value:
    y = writer.graph.conv_transpose(
        _batch(writer, x, weight),
        weight,
        bias,
        strides=steps.strides,
        low=steps.low,
        high=steps.high,
        extra=steps.extra,
        dilations=steps.dilations,
        groups=steps.groups,
    )
    return writer.reshape(y, writer.shape)


def _batch(writer: Writer, x: Value, weight: Value) -> Value:
    return writer.insert(x, 0) if x.rank < weight.rank else x


# Forward


@row("conv1d.default", "conv2d.default", "conv3d.default")
def _conv_nd(
    writer: Writer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Value:
    """A convolution of one, two or three dimensions."""
    return _conv(writer, x, weight, bias, _steps(weight, stride, padding, dilation, groups))


@row("conv1d.padding", "conv2d.padding", "conv3d.padding")
def _conv_padded(
    writer: Writer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: str = "valid",
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Value:
    """A convolution whose padding is none, or what keeps the sizes; of an odd amount more is after the operand."""
    steps = _steps(weight, stride, (0,), dilation, groups)
    if padding == "same":
        taps = writer.sizes(weight)[2:]
        whole = [(count - 1) * apart for count, apart in zip(taps, steps.dilations, strict=True)]
        low = [amount // 2 for amount in whole]
        high = [amount - before for amount, before in zip(whole, low, strict=True)]
        steps = _Steps(steps.strides, low, high, steps.dilations, steps.extra, groups)
    return _conv(writer, x, weight, bias, steps)


@row("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")
def _conv_transpose_nd(
    writer: Writer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Value:
    """A transposed convolution of one, two or three dimensions."""
    steps = _steps(weight, stride, padding, dilation, groups, output_padding)
    return _conv_transpose(writer, x, weight, bias, steps)


@row(
    "convolution.default",
    "_convolution.default",
    "_convolution.deprecated",
    "convolution_overrideable.default",
)
def _convolution(
    writer: Writer,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *hints: bool,
) -> Value:
    """A convolution or a transposed one; which library computes it does not matter."""
    steps = _steps(weight, stride, padding, dilation, groups, output_padding)
    return (_conv_transpose if transposed else _conv)(writer, x, weight, bias, steps)


@row("mkldnn_convolution.default")
def _mkldnn_convolution(
    writer: Writer,
    x: Value,
    weight: Value,
    bias: Value | None,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """A convolution, under the name of a library."""
    return _conv(writer, x, weight, bias, _steps(weight, stride, padding, dilation, groups))


@row("cudnn_convolution.default")
def _cudnn_convolution(
    writer: Writer,
    x: Value,
    weight: Value,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *hints: bool,
) -> Value:
    """A convolution, under the name of a library."""
    return _conv(writer, x, weight, None, _steps(weight, stride, padding, dilation, groups))


@row("_slow_conv2d_forward.default", "thnn_conv2d.default")
def _slow_conv2d(
    writer: Writer,
    x: Value,
    weight: Value,
    kernel: Sequence[int],
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
) -> Value:
    """A convolution of two dimensions."""
    return _conv(writer, x, weight, bias, _steps(weight, stride, padding, (1,), 1))


@row("_conv_depthwise2d.default", "conv_depthwise3d.default")
def _conv_depthwise(
    writer: Writer,
    x: Value,
    weight: Value,
    kernel: Sequence[int],
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Value:
    """A convolution of each channel by itself."""
    channels = writer.sizes(x)[1]
    return _conv(writer, x, weight, bias, _steps(weight, stride, padding, dilation, channels))


@row("conv_tbc.default")
def _conv_tbc(writer: Writer, x: Value, weight: Value, bias: Value, pad: int = 0) -> Value:
    """A convolution along the first dimension of [time, batch, channels], of a weight [taps, inputs, outputs]."""
    y = writer.graph.conv(
        writer.permute(x, [1, 2, 0]), writer.permute(weight, [2, 1, 0]), bias, strides=[1], low=[pad]
    )
    return writer.permute(y, [2, 0, 1])


# Backward


@row("convolution_backward.default", "convolution_backward_overrideable.default")
def _convolution_backward(
    writer: Writer,
    grad: Value,
    x: Value,
    weight: Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> list[Value | None]:
    """The gradients of a convolution at operand, weight and bias, those that are read."""
    del bias_sizes
    steps = _steps(weight, stride, padding, dilation, groups, output_padding)
    wanted = [asked and index in writer.used for index, asked in enumerate(mask)]
    grad, x = _batch(writer, grad, weight), _batch(writer, x, weight)
    by_operand = _transposed_operand_gradient if transposed else _operand_gradient
    few, many = (x, grad) if transposed else (grad, x)
    found = [
        by_operand(writer, grad, x, weight, steps) if wanted[0] else None,
        _weight_gradient(writer, few, many, weight, steps) if wanted[1] else None,
        writer.graph.reduce_sum(grad, [0, *range(2, grad.rank)]) if wanted[2] else None,
    ]
    if found[0] is not None:
        found[0] = writer.reshape(found[0], writer.results[0].shape)
    return found


def _operand_gradient(writer: Writer, grad: Value, x: Value, weight: Value, steps: _Steps) -> Value:
    """The transposed convolution; zeros for elements after the last window."""
    covered = _covered(writer, grad, weight, steps)
    wanted = writer.sizes(x)[2:]
    extra = [
        size - (whole - low - high)
        for size, whole, low, high in zip(wanted, covered, steps.low, steps.high, strict=True)
    ]
    return writer.graph.conv_transpose(
        grad,
        weight,
        strides=steps.strides,
        low=steps.low,
        high=steps.high,
        extra=extra,
        dilations=steps.dilations,
        groups=steps.groups,
    )


def _transposed_operand_gradient(
    writer: Writer, grad: Value, x: Value, weight: Value, steps: _Steps
) -> Value:
    """The convolution, without windows beyond those of the operand."""
    counts = writer.sizes(x)[2:]
    inside, low, high = _reached(writer, grad, counts, weight, steps)
    return writer.graph.conv(
        inside,
        weight,
        strides=steps.strides,
        low=low,
        high=high,
        dilations=steps.dilations,
        groups=steps.groups,
    )


def _covered(writer: Writer, windows: Value, weight: Value, steps: _Steps) -> list[int]:
    """How many elements all windows cover together, along each spatial dimension."""
    taps = writer.sizes(weight)[2:]
    return [
        (count - 1) * stride + (size - 1) * dilation + 1
        for count, stride, size, dilation in zip(
            writer.sizes(windows)[2:], steps.strides, taps, steps.dilations, strict=True
        )
    ]


def _reached(
    writer: Writer, many: Value, counts: Sequence[int], weight: Value, steps: _Steps
) -> tuple[Value, list[int], list[int]]:
    """What windows of certain counts read, and the zeros before and after it."""
    sizes = writer.sizes(many)
    taps = writer.sizes(weight)[2:]
    high: list[int] = []
    for axis, (count, stride, size, dilation, low) in enumerate(
        zip(counts, steps.strides, taps, steps.dilations, steps.low, strict=True), 2
    ):
        missing = (count - 1) * stride + (size - 1) * dilation + 1 - low - sizes[axis]
        high.append(max(missing, 0))
        many = writer.part(many, axis, 0, sizes[axis] + min(missing, 0))
    return many, list(steps.low), high


def _weight_gradient(writer: Writer, few: Value, many: Value, weight: Value, steps: _Steps) -> Value:
    """The sums of few[.., o] times the window of `many` at o.

    A convolution has few results and many operands; a transposed one has them the other way round.
    """
    return writer.graph.conv_weight_grad(
        many,
        few,
        writer.sizes(weight)[2:],
        strides=steps.strides,
        low=steps.low,
        dilations=steps.dilations,
        groups=steps.groups,
    )
