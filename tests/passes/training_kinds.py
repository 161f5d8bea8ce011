"""Cases of the kinds of training steps: operands at random, and what NumPy says in float64. No compiler in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import erf
from typing import Any

import numpy as np
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, StringAttr, f64, i64
from xdsl.ir import Attribute

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Case:
    """One instruction of a kind.

    Args:
        kind, attrs: As it states them.
        operands: Float64, or the integers that it reads.
        expected: Its results in float64, or integers.
        one_kernel: Whether a kernel of scalar programs can run it as it is.
    """

    kind: str
    attrs: Mapping[str, Attribute]
    operands: Sequence[Array]
    expected: Sequence[Array]
    one_kernel: bool = field(default=True, kw_only=True)


def attributes(**values: float | bool | str) -> dict[str, Attribute]:
    """Attributes of the types that schemas have."""
    found: dict[str, Attribute] = {}
    for name, value in values.items():
        match value:
            case bool():
                found[name] = BoolAttr.from_bool(value)
            case int():
                found[name] = IntegerAttr(value, i64)
            case float():
                found[name] = FloatAttr(value, f64)
            case _:
                found[name] = StringAttr(value)
    return found


def normal(rng: np.random.Generator, *shape: int) -> Array:
    """Numbers that f32 holds exactly."""
    return rng.standard_normal(shape).astype(np.float32).astype(np.float64)


def shape_of(rng: np.random.Generator, low: int = 1, high: int = 3) -> tuple[int, ...]:
    return tuple(int(size) for size in rng.integers(2, 7, rng.integers(low, high + 1)))


def mul(rng: np.random.Generator) -> Case:
    a, b = (normal(rng, 5, 9) for _ in range(2))
    return Case("mul", {}, [a, b], [a * b])


def relu_bwd(rng: np.random.Generator) -> Case:
    y, gradient = np.maximum(normal(rng, 6, 11), 0), normal(rng, 6, 11)
    return Case("relu_bwd", {}, [y, gradient], [np.where(y > 0, gradient, 0)])


def grad_zero(rng: np.random.Generator) -> Case:
    return Case("grad_zero", {}, [], [np.zeros(shape_of(rng))])


def step_inc(rng: np.random.Generator) -> Case:
    step = rng.integers(0, 1 << 40, ())
    return Case("step_inc", {}, [step], [step + 1])


def bias_corr(rng: np.random.Generator) -> Case:
    beta, step = float(rng.choice([0.9, 0.95, 0.99, 0.999])), rng.integers(1, 2000, ())
    return Case("bias_corr", attributes(beta=beta), [step], [np.asarray(1 - beta ** float(step))])


REDUCED: dict[str, Callable[[Array], Array]] = {
    "none": np.asarray,
    "sum": lambda losses: np.asarray(losses.sum()),
    "mean": lambda losses: np.asarray(losses.mean()),
}


def mse_loss(rng: np.random.Generator) -> Case:
    reduction, shape = str(rng.choice(list(REDUCED))), shape_of(rng)
    x, target = normal(rng, *shape), normal(rng, *shape)
    return Case(
        "mse_loss", attributes(reduction=reduction), [x, target], [REDUCED[reduction]((x - target) ** 2)]
    )


def mse_grad(rng: np.random.Generator) -> Case:
    reduction, shape = str(rng.choice(list(REDUCED))), shape_of(rng)
    is_given = reduction == "none" or bool(rng.integers(2))
    x, target = normal(rng, *shape), normal(rng, *shape)
    gradient = normal(rng, *(shape if reduction == "none" else ())) if is_given else np.ones(())
    share = 1 / x.size if reduction == "mean" else 1.0
    operands = [x, target, *([gradient] if is_given else [])]
    attrs = attributes(reduction=reduction, grad=is_given)
    return Case("mse_grad", attrs, operands, [2 * (x - target) * gradient * share])


def softmax(x: Array, axis: int) -> Array:
    exponentials = np.exp(x - x.max(axis, keepdims=True))
    return exponentials / exponentials.sum(axis, keepdims=True)


def softmax_bwd(rng: np.random.Generator) -> Case:
    shape = shape_of(rng)
    axis = int(rng.integers(len(shape)))
    y, gradient = (
        softmax(normal(rng, *shape), axis).astype(np.float32).astype(np.float64),
        normal(rng, *shape),
    )
    expected = y * (gradient - (gradient * y).sum(axis, keepdims=True))
    return Case("softmax_bwd", attributes(axis=axis), [gradient, y], [expected])


def standardized(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array]:
    """The values, and the factor that they were multiplied by."""
    centered = x - x.mean(axes, keepdims=True)
    factor = 1 / np.sqrt((centered**2).mean(axes, keepdims=True) + epsilon)
    return centered * factor, factor


def layernorm_bwd(rng: np.random.Generator) -> Case:
    shape = shape_of(rng, 2)
    axis = int(rng.integers(1, len(shape)))
    epsilon = float(rng.choice([1e-5, 1e-6, 0.1]))
    gradient, x, scale = normal(rng, *shape), normal(rng, *shape), normal(rng, *shape[axis:])
    axes, rows = tuple(range(axis, len(shape))), tuple(range(axis))
    value, factor = standardized(x, axes, epsilon)
    h = gradient * scale
    dx = factor * (h - h.mean(axes, keepdims=True) - value * (h * value).mean(axes, keepdims=True))
    results = {"dx": dx, "dscale": (gradient * value).sum(rows), "dbias": gradient.sum(rows)}
    wants = [("dx", "dscale", "dbias"), ("dx",), ("dscale", "dbias"), ("dscale",)][int(rng.integers(4))]
    attrs = attributes(axis=axis, epsilon=epsilon, **{name: name in wants for name in results})
    operands = [gradient, x, *([scale] if "dx" in wants else [])]
    return Case(
        "layernorm_bwd", attrs, operands, [results[name] for name in wants], one_kernel=wants == ("dx",)
    )


def along_channels(row: Array, rank: int) -> Array:
    return row.reshape(1, -1, *(1,) * (rank - 2))


def batchnorm_fwd(rng: np.random.Generator) -> Case:
    shape = shape_of(rng, 2, 4)
    x, training, epsilon = normal(rng, *shape), bool(rng.integers(2)), float(rng.choice([1e-5, 1e-3]))
    scale, bias, mean = (normal(rng, shape[1]) for _ in range(3))
    variance, axes = np.abs(normal(rng, shape[1])), tuple(axis for axis in range(len(shape)) if axis != 1)
    momentum = float(rng.choice([0.1, 0.25])) if training else 0.0
    attrs = attributes(epsilon=epsilon, training=training, momentum=momentum)
    rows = [along_channels(row, len(shape)) for row in (scale, bias, mean, variance)]
    if not training:
        expected = [(x - rows[2]) / np.sqrt(rows[3] + epsilon) * rows[0] + rows[1]]
    else:
        running = [
            (1 - momentum) * mean + momentum * x.mean(axes),
            (1 - momentum) * variance + momentum * x.var(axes, ddof=1),
        ]
        expected = [standardized(x, axes, epsilon)[0] * rows[0] + rows[1], *running]
    return Case("batchnorm_fwd", attrs, [x, scale, bias, mean, variance], expected)


def batchnorm_bwd(rng: np.random.Generator) -> Case:
    shape, epsilon = shape_of(rng, 2, 4), float(rng.choice([1e-5, 1e-3]))
    gradient, x, scale = normal(rng, *shape), normal(rng, *shape), normal(rng, shape[1])
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)
    value, factor = standardized(x, axes, epsilon)
    inner = (
        gradient - gradient.mean(axes, keepdims=True) - value * (gradient * value).mean(axes, keepdims=True)
    )
    dx = along_channels(scale, len(shape)) * factor * inner
    expected = [dx, (gradient * value).sum(axes), gradient.sum(axes)]
    return Case("batchnorm_bwd", attributes(epsilon=epsilon), [gradient, x, scale], expected)


IGNORED = -100


@dataclass(frozen=True)
class _Labelled:
    """A batch of logits along an axis, with labels, some of which do not count."""

    attrs: Mapping[str, Attribute]
    logits: Array
    labels: Array
    weights: Array
    """What each class weighs in the loss of its sample."""
    counted: Array
    axis: int
    reduction: str


def labelled(rng: np.random.Generator) -> _Labelled:
    shape = shape_of(rng, 2)
    axis, reduction = int(rng.integers(len(shape))), str(rng.choice(list(REDUCED)))
    smoothing = float(rng.choice([0.0, 0.1, 0.25]))
    logits, classes = normal(rng, *shape), shape[axis]
    labels = rng.integers(0, classes, (*shape[:axis], *shape[axis + 1 :]))
    labels[rng.random(labels.shape) < 0.2] = IGNORED
    labels.flat[0] = 0
    one_hot = np.moveaxis(np.eye(classes)[np.where(labels == IGNORED, 0, labels)], -1, axis)
    weights = one_hot * (1 - smoothing) + smoothing / classes
    attrs = attributes(axis=axis, ignore_index=IGNORED, label_smoothing=smoothing, reduction=reduction)
    return _Labelled(attrs, logits, labels, weights, labels != IGNORED, axis, reduction)


def cross_entropy_fwd(rng: np.random.Generator) -> Case:
    given = labelled(rng)
    losses = -(np.log(softmax(given.logits, given.axis)) * given.weights).sum(given.axis) * given.counted
    total = {"none": losses, "sum": np.asarray(losses.sum())}
    expected = total.get(given.reduction, np.asarray(losses.sum() / given.counted.sum()))
    is_one = given.reduction == "none"
    return Case("cross_entropy_fwd", given.attrs, [given.logits, given.labels], [expected], one_kernel=is_one)


def cross_entropy_bwd(rng: np.random.Generator) -> Case:
    given = labelled(rng)
    gradient = normal(rng, *(given.labels.shape if given.reduction == "none" else ()))
    samples = np.broadcast_to(gradient, given.labels.shape) * given.counted
    if given.reduction == "mean":
        samples = samples / given.counted.sum()
    difference = softmax(given.logits, given.axis) - given.weights
    expected = difference * np.expand_dims(samples, given.axis)
    operands = [given.logits, given.labels, gradient]
    is_one = given.reduction != "mean"
    return Case("cross_entropy_bwd", given.attrs, operands, [expected], one_kernel=is_one)


def adam_step(rng: np.random.Generator) -> Case:
    shape, step = shape_of(rng), int(rng.integers(1, 100))
    p, g, m = (normal(rng, *shape) for _ in range(3))
    v, rate = np.abs(normal(rng, *shape)), np.asarray(float(np.float32(1e-2)))
    beta1, beta2, epsilon, decay = 0.9, 0.99, 1e-8, float(rng.choice([0.0, 0.01]))
    is_decoupled = bool(decay) and bool(rng.integers(2))
    corrections = [np.asarray(float(np.float32(1 - beta**step))) for beta in (beta1, beta2)]
    attrs = attributes(beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=decay, decoupled=is_decoupled)
    slope = g if is_decoupled else g + decay * p
    kept = p * (1 - float(rate) * decay) if is_decoupled else p
    first, second = beta1 * m + (1 - beta1) * slope, beta2 * v + (1 - beta2) * slope**2
    moved = kept - rate * (first / corrections[0]) / (np.sqrt(second / corrections[1]) + epsilon)
    return Case("adam_step", attrs, [p, g, m, v, rate, *corrections], [moved, first, second])


def _phi(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2))))


def _gelu_slope(x: Array) -> Array:
    return _phi(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def _gelu_tanh_slope(x: Array) -> Array:
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    curve, steep = np.tanh(inner), np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
    return 0.5 * (1 + curve) + 0.5 * x * (1 - curve**2) * steep


def _silu_slope(x: Array) -> Array:
    s = 1 / (1 + np.exp(-x))
    return s * (1 + x * (1 - s))


SLOPES: dict[str, Callable[[Array], Array]] = {
    "relu": lambda y: np.where(y > 0, 1.0, 0.0),
    "sigmoid": lambda y: y * (1 - y),
    "tanh": lambda y: 1 - y * y,
    "silu": _silu_slope,
    "gelu": _gelu_slope,
    "gelu_tanh": _gelu_tanh_slope,
}


def gemm_epilogue_bwd(rng: np.random.Generator) -> Case:
    activation, (m, n, k) = str(rng.choice(list(SLOPES))), (int(size) for size in rng.integers(2, 17, 3))
    transposed = [bool(each) for each in rng.integers(0, 2, 2)]
    a, b, saved = normal(rng, m, k), normal(rng, k, n), normal(rng, m, n)
    given = [value.T.copy() if turned else value for value, turned in zip((a, b), transposed, strict=True)]
    attrs = attributes(transpose_a=transposed[0], transpose_b=transposed[1], activation=activation)
    return Case("gemm_epilogue_bwd", attrs, [*given, saved], [a @ b * SLOPES[activation](saved)])


FAMILIES = (
    mul,
    relu_bwd,
    grad_zero,
    step_inc,
    bias_corr,
    mse_loss,
    mse_grad,
    softmax_bwd,
    layernorm_bwd,
    batchnorm_fwd,
    batchnorm_bwd,
    cross_entropy_fwd,
    cross_entropy_bwd,
    adam_step,
    gemm_epilogue_bwd,
)
