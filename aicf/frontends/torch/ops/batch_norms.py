"""Batch norms: ATen ops that normalize channels over a batch, in training and in inference, and their gradients.

PyTorch has several names for the same, by what a library saves for the backward op.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, empty_row, row
from aicf.frontends.torch.ops.norms import by_channel, joint_type, scale_and_bias, weighted


@dataclass(frozen=True)
class _Statistics:
    """Mean and biased variance of each channel, in the wide type."""

    mean: Value
    variance: Value
    count: int


def _of_batch(writer: Writer, x: Value) -> _Statistics:
    """Those of a batch."""
    graph, axes = writer.graph, _all_but_channels(x)
    wide = writer.widened(x)
    mean = graph.reduce_mean(wide, axes, keepdims=True)
    # Nothing passes back from the variance to the mean: what is centered adds up to zero.
    centered = wide - graph.detach(mean)
    variance = graph.reduce_mean(centered * centered, axes)
    sizes = writer.sizes(x)
    return _Statistics(writer.reshape(mean, [sizes[1]]), variance, math.prod(sizes[axis] for axis in axes))


def _all_but_channels(x: Value) -> list[int]:
    return [axis for axis in range(x.rank) if axis != 1]


def _normalized(
    writer: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    eps: float,
) -> Value:
    """One op, in the type of the operand if all others have it."""
    dtype = joint_type(writer, x, weight, bias, mean, variance)
    if not eps > 0:
        wide, factor = writer.widened(x), writer.graph.rsqrt(writer.widened(variance) + eps)
        center, factor, scale, shift = (by_channel(writer, v, x.rank) for v in (mean, factor, weight, bias))
        assert center is not None and factor is not None
        return writer.result(weighted(writer, (wide - center) * factor, scale, shift))
    scale, shift = scale_and_bias(writer, weight, bias, writer.sizes(x)[1:2], dtype)
    y = writer.graph.batch_norm(
        writer.cast(x, dtype), scale, shift, writer.cast(mean, dtype), writer.cast(variance, dtype), eps
    )
    return writer.result(y)


def _trained(
    writer: Writer, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[list[Value | None], _Statistics]:
    """The result of training, its mean and 1 / deviation."""
    now = _of_batch(writer, x)
    y = _normalized(writer, x, weight, bias, now.mean, now.variance, eps)
    more: list[Value | None] = [None, None]
    if 1 in writer.used:
        more[0] = writer.result(now.mean, 1)
    if 2 in writer.used:
        more[1] = writer.result(writer.graph.rsqrt(now.variance + eps), 2)
    return [y, *more], now


def _running(writer: Writer, before: Value, now: Value, momentum: float, index: int) -> Value:
    """(1 - momentum) * before + momentum * now."""
    mixed = writer.widened(before) * (1.0 - momentum) + now * momentum
    return writer.result(mixed, index)


def _running_both(
    writer: Writer, mean: Value, variance: Value, now: _Statistics, momentum: float, first: int
) -> list[Value | None]:
    """The updated running statistics; their variance is unbiased."""
    unbiased = now.variance * (now.count / (now.count - 1) if now.count > 1 else math.nan)
    return [
        _running(writer, mean, now.mean, momentum, first) if first in writer.used else None,
        _running(writer, variance, unbiased, momentum, first + 1) if first + 1 in writer.used else None,
    ]


# Forward


@row("batch_norm.default")
def _batch_norm(
    writer: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    *hints: bool,
) -> Value:
    """Each channel less its mean, over its deviation: the running statistics, or in training those of the batch."""
    if not training and mean is not None and variance is not None:
        return _normalized(writer, x, weight, bias, mean, variance, eps)
    if mean is not None:
        _refuse_mutation(writer)
    now = _of_batch(writer, x)
    return _normalized(writer, x, weight, bias, now.mean, now.variance, eps)


def _refuse_mutation(writer: Writer) -> NoReturn:
    writer.unsupported(
        "running statistics that change without being a result",
        "call .eval() on the model, or export it with run_decompositions()",
    )


@row("native_batch_norm.default")
@row("miopen_batch_norm.default", "_native_batch_norm_legit.default")
def _native_batch_norm(
    writer: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value | None]:
    """The same, with mean and 1 / deviation of a batch, which are empty after training."""
    if not training and mean is not None and variance is not None:
        return [
            _normalized(writer, x, weight, bias, mean, variance, eps),
            *_kept(writer, mean, variance, eps),
        ]
    if mean is not None:
        _refuse_mutation(writer)
    return _trained(writer, x, weight, bias, eps)[0]


def _kept(writer: Writer, mean: Value, variance: Value, eps: float) -> list[Value | None]:
    """The running statistics, for results that have a size."""
    found: list[Value | None] = [None, None]
    if 1 in writer.used and writer.results[1].count:
        found[0] = writer.result(mean, 1)
    if 2 in writer.used and writer.results[2].count:
        found[1] = writer.result(writer.graph.rsqrt(writer.widened(variance) + eps), 2)
    return found


@row("_native_batch_norm_legit.no_stats")
def _without_statistics(
    writer: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value | None]:
    """By the statistics of the batch: there are no others."""
    return _trained(writer, x, weight, bias, eps)[0]


@row("_native_batch_norm_legit_functional.default")
def _functional(
    writer: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value | None]:
    """With the new running statistics as results."""
    if not training:
        y = _normalized(writer, x, weight, bias, mean, variance, eps)
        return [y, *_kept(writer, mean, variance, eps), writer.result(mean, 3), writer.result(variance, 4)]
    found, now = _trained(writer, x, weight, bias, eps)
    return [*found, *_running_both(writer, mean, variance, now, momentum, 3)]


@row("_batch_norm_with_update_functional.default")
def _with_update(
    writer: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    eps: float,
) -> list[Value | None]:
    """Training, with room that a library reserves, which stays empty, and the new running statistics."""
    found, now = _trained(writer, x, weight, bias, eps)
    return [*found, None, *_running_both(writer, mean, variance, now, momentum, 4)]


@row("_batch_norm_with_update.default")
def _with_mutation(writer: Writer, *arguments: object) -> list[Value | None]:
    """Training that changes its arguments."""
    del arguments
    _refuse_mutation(writer)


@row("_native_batch_norm_legit_no_training.default")
def _no_training(
    writer: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    eps: float,
) -> list[Value | None]:
    """By the running statistics."""
    return [
        _normalized(writer, x, weight, bias, mean, variance, eps),
        *_kept(writer, mean, variance, eps),
    ]


@row("_batch_norm_no_update.default")
def _no_update(
    writer: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    momentum: float,
    eps: float,
) -> list[Value | None]:
    """By the running statistics, with a buffer that a library reserves, which stays empty."""
    if mean is None or variance is None:
        return [*_trained(writer, x, weight, bias, eps)[0], None]
    y = _normalized(writer, x, weight, bias, mean, variance, eps)
    return [y, *_kept(writer, mean, variance, eps), None]


@row("cudnn_batch_norm.default")
def _cudnn_batch_norm(
    writer: Writer,
    x: Value,
    weight: Value,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value | None]:
    """The same under the name of a library; what it reserves stays empty."""
    if not training and mean is not None and variance is not None:
        y = _normalized(writer, x, weight, bias, mean, variance, eps)
        return [y, *_kept(writer, mean, variance, eps), None]
    if mean is not None:
        _refuse_mutation(writer)
    return [*_trained(writer, x, weight, bias, eps)[0], None]


@row("instance_norm.default")
def _instance_norm(
    writer: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    by_instance: bool,
    momentum: float,
    eps: float,
    *hints: bool,
) -> Value:
    """Each channel of each sample by its own statistics, or by the running statistics."""
    if not by_instance and mean is not None and variance is not None:
        return _normalized(writer, x, weight, bias, mean, variance, eps)
    if mean is not None:
        _refuse_mutation(writer)
    dtype = joint_type(writer, x, weight, bias)
    channels = writer.sizes(x)[1]
    scale, shift = scale_and_bias(writer, weight, bias, [channels], dtype)
    return writer.result(writer.graph.group_norm(writer.cast(x, dtype), scale, shift, channels, eps))


# Backward


def _passed_back(
    writer: Writer,
    grad: Value,
    x: Value,
    weight: Value | None,
    mean: Value,
    factor: Value,
    training: bool,
    mask: Sequence[bool],
) -> list[Value | None]:
    """To operand, weight and bias; `factor` is 1 / deviation."""
    graph, axes = writer.graph, _all_but_channels(x)

    def along(value: Value) -> Value:
        wide = writer.widened(value)
        return writer.reshape(wide, [1, writer.sizes(value)[0], *[1] * (x.rank - 2)])

    grad = writer.widened(grad)
    normal = (writer.widened(x) - along(mean)) * along(factor)
    found: list[Value | None] = [None, None, None]
    if mask[0]:
        slope = grad
        if training:
            tilt = graph.reduce_mean(grad * normal, axes, keepdims=True)
            slope = grad - graph.reduce_mean(grad, axes, keepdims=True) - normal * tilt
        scale = along(factor) if weight is None else along(factor) * along(weight)
        found[0] = writer.result(slope * scale, 0)
    if mask[1]:
        found[1] = writer.result(graph.reduce_sum(grad * normal, axes), 1)
    if mask[2]:
        found[2] = writer.result(graph.reduce_sum(grad, axes), 2)
    return found


def _kept_or_given(
    writer: Writer,
    saved: Sequence[Value | None],
    running: Sequence[Value | None],
    training: bool,
    eps: float,
) -> tuple[Value, Value]:
    """The mean and 1 / deviation that the forward op used."""
    mean, factor = saved if training else running
    assert isinstance(mean, Value) and isinstance(factor, Value), "they are there"
    if training:
        return mean, factor
    return mean, writer.graph.rsqrt(writer.widened(factor) + eps)


@row("native_batch_norm_backward.default")
@empty_row("native_batch_norm_backward.default")
def _native_backward(
    writer: Writer,
    grad: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_variance: Value | None,
    mean: Value | None,
    factor: Value | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> list[Value | None]:
    """The gradients of a batch norm."""
    used = _kept_or_given(writer, [mean, factor], [running_mean, running_variance], training, eps)
    return _passed_back(writer, grad, x, weight, *used, training, mask)


@row("batch_norm_backward.default")
@empty_row("batch_norm_backward.default")
def _backward(
    writer: Writer,
    grad: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_variance: Value | None,
    mean: Value | None,
    factor: Value | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
    reserved: object,
) -> list[Value | None]:
    """The same; nothing is in what a library would have reserved."""
    del reserved
    used = _kept_or_given(writer, [mean, factor], [running_mean, running_variance], training, eps)
    return _passed_back(writer, grad, x, weight, *used, training, mask)


@row("cudnn_batch_norm_backward.default", "miopen_batch_norm_backward.default")
@empty_row("cudnn_batch_norm_backward.default", "miopen_batch_norm_backward.default")
def _library_backward(
    writer: Writer,
    x: Value,
    grad: Value,
    weight: Value,
    running_mean: Value | None,
    running_variance: Value | None,
    mean: Value | None,
    factor: Value | None,
    eps: float,
    *reserved: object,
) -> list[Value | None]:
    """The same after training, under the name of a library."""
    assert mean is not None and factor is not None, "training saves them"
    mask = [index in writer.used for index in range(3)]
    return _passed_back(writer, grad, x, weight, mean, factor, True, mask)
