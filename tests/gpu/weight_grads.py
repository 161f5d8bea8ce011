"""Random gradients of the weights of convolutions: any sizes, strides, padding, dilations and groups, operands and
results in any order in memory.

A `Convolution` says which: its operand, what is passed back to its result, and its weight lie channels-last where
`operand_last`, `result_last` and `weight_last` say so.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from aicf.frontends.builder import Graph
from tests.gpu.convolutions import (
    Convolution,
    depthwise_layer,
    drawn,
    drawn_channels_last,
    drawn_depthwise,
    given,
    image_layer,
)


def add(g: Graph, made: Convolution, name: str, dtype: str) -> None:
    """Adds the gradient of a weight to a program, with operands of its own."""
    x = given(g, f"x_{name}", (made.batch, made.channels, *made.sizes), dtype, made.operand_last)
    grad = given(g, f"dy_{name}", (made.batch, made.outputs, *made.counts), dtype, made.result_last)
    y = g.conv_weight_grad(
        x,
        grad,
        sizes=made.taps,
        strides=made.strides,
        low=made.low,
        dilations=made.dilations,
        groups=made.groups,
        name=f"grad_{name}",
    )
    rank = len(made.sizes)
    g.output(g.transpose(y, (0, *range(2, 2 + rank), 1)) if made.weight_last else y, f"dw_{name}")


def weight_grads(dtype: str, made: Sequence[Convolution]) -> Graph:
    """A program of gradients."""
    g = Graph("weight_grads")
    for number, each in enumerate(made):
        add(g, each, f"c{number}", dtype)
    return g


def channels_last(made: Convolution) -> Convolution:
    """The same with all operands channels-last."""
    return replace(made, operand_last=True, weight_last=True, result_last=True)


def layer(
    batch: int, channels: int, outputs: int, size: int, taps: int = 3, stride: int = 1, *, last: bool = True
) -> Convolution:
    """Of a residual network over square images, all row-major or all channels-last."""
    made = image_layer(batch, channels, outputs, size, taps, stride, last=last)
    return channels_last(made) if last else made


def depthwise(
    batch: int, channels: int, size: int, taps: int = 3, stride: int = 1, *, last: bool = True
) -> Convolution:
    """Of a network of depthwise convolutions, as `layer`."""
    made = depthwise_layer(batch, channels, size, taps, stride, last=last)
    return channels_last(made) if last else made


def several_channels(made: Convolution) -> Convolution:
    """The same with two input channels a group in place of one of several groups, which no product sums."""
    return replace(made, channels=2 * made.channels) if made.channels == made.groups > 1 else made


def several_groups(made: Convolution) -> Convolution:
    """The same with two groups in place of one, of a depthwise convolution."""
    return replace(made, channels=2, groups=2, outputs=2 * made.outputs) if made.groups == 1 else made


def whole_pieces(made: Convolution) -> Convolution:
    """The same with operands channels-last, whose channels are whole 16 bytes of halves."""
    channels, outputs = (-(-count // 8) * 8 for count in (made.channels, made.outputs))
    return channels_last(replace(made, channels=channels, outputs=outputs))


def random_weight_grads(dtype: str, seed: int, count: int, most_products: int = 1 << 24) -> Graph:
    """A program of random gradients of several channels a group."""
    source = random.Random(seed)
    return weight_grads(dtype, [several_channels(drawn(source, most_products)) for _ in range(count)])


def bulk_weight_grads(dtype: str, seed: int, count: int) -> Graph:
    """A program of random gradients that bulk tensor copies read, each result channels-last or row-major."""
    source = random.Random(seed)
    made = [whole_pieces(drawn_channels_last(source)) for _ in range(count)]
    return weight_grads(dtype, [replace(each, weight_last=source.random() < 0.7) for each in made])


def random_depthwise_grads(dtype: str, seed: int, count: int, most_products: int = 1 << 22) -> Graph:
    """A program of random gradients of depthwise convolutions."""
    source = random.Random(seed)
    made = (drawn_depthwise(source, most_products) for _ in range(count))
    return weight_grads(dtype, list(map(several_groups, made)))
