"""What the kinds of training steps mean: losses, what is passed back, statistics of batches, optimizers.

Operands, results and attributes are those of PyTorch's functions of the same purpose; each writer names them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_named, element_of, tensor_info
from aicf.passes.bodies.kind_patterns import ACTIVATION_SLOPES, STEP_INC
from aicf.passes.kernels.body_writer import BodyWriter, KindRow, NoBody, fixed


def _shape(value: SSAValue) -> tuple[int, ...]:
    return tensor_info(value.type).shape


# Counters


def _grad_zero(writer: BodyWriter) -> SSAValue:
    """() -> zeros of the result's type."""
    return writer.add(logical.ConstantOp(0, writer.request.results[0]))


def _bias_corr(writer: BodyWriter) -> SSAValue:
    """(step: i64) -> 1 - beta ** step in f32 or f64: -expm1(step * log(beta)), which cancels nothing."""
    beta = writer.number("beta")
    if not 0 < beta < 1:
        raise NoBody(f"beta is {beta}, it lies between 0 and 1")
    step = writer.cast(writer.args[0], element_named("f64"), "step")
    power = writer.apply(logical.MulOp, step, math.log(beta), name="power")
    value = writer.apply(logical.NegOp, writer.apply(logical.Expm1Op, power))
    return writer.cast(value, element_of(writer.request.results[0]), "narrow")


# What is passed back


def _gemm_epilogue_bwd(writer: BodyWriter) -> SSAValue:
    """(a, b, saved) -> (a b) * slope(saved): what relu, sigmoid or tanh gave, else what the activation read."""
    transposed = {f"transpose_{side}": bool(writer.integer(f"transpose_{side}")) for side in "ab"}
    product = writer.add(logical.MatmulOp(*writer.args[:2], **transposed), "product")
    return writer.write(ACTIVATION_SLOPES[writer.text("activation")], product=product)


def _softmax_bwd(writer: BodyWriter) -> SSAValue:
    """(gradient, y) -> y * (gradient - sum(gradient * y)), y what softmax gave along `axis`."""
    gradient, y = writer.args
    axis = writer.axis(of=1)
    weighed = writer.apply(logical.MulOp, gradient, y, name="weighed")
    total = writer.total(weighed, [axis], "sum", keepdims=True)
    every = range(len(_shape(y)))
    centered = writer.add(logical.SubOp(gradient, writer.spread(total, every, y, "sum")), "centered")
    return writer.add(logical.MulOp(centered, y))


# Norms


class _Statistics:
    """The values of rows or channels: centered, divided by their deviation, and by what."""

    def __init__(self, writer: BodyWriter, x: SSAValue, axes: Sequence[int], epsilon: float):
        self.writer, self.x, self.axes = writer, x, tuple(axes)
        rank = len(_shape(x))
        self.keepdims = self.axes == tuple(range(rank - len(self.axes), rank))
        self.dims = range(rank) if self.keepdims else [dim for dim in range(rank) if dim not in self.axes]
        """Of `x`, those of a mean: all of them, some of size 1, for rows."""
        self.count = math.prod(_shape(x)[axis] for axis in self.axes)
        self.mean = self.mean_of(x, "mean")
        centered = writer.add(logical.SubOp(x, self.spread(self.mean, "mean")), "centered")
        square = writer.apply(logical.MulOp, centered, centered, name="square")
        self.variance = self.mean_of(square, "variance")
        raised = writer.apply(logical.AddOp, self.variance, epsilon, name="raised")
        self.factor = writer.add(logical.RsqrtOp(raised), "factor")
        spread = self.spread(self.factor, "factor")
        self.normal = writer.add(logical.MulOp(centered, spread), "normal")

    def total(self, value: SSAValue, part: str) -> SSAValue:
        """The sum of a value over the axes."""
        return self.writer.total(value, self.axes, part, keepdims=self.keepdims)

    def mean_of(self, value: SSAValue, part: str) -> SSAValue:
        """The mean of a value over the axes."""
        return self.writer.mean(self.total(value, f"{part}.sum"), self.count, part)

    def spread(self, value: SSAValue, part: str) -> SSAValue:
        """A sum or mean, repeated to the shape of `x`."""
        return self.writer.spread(value, self.dims, self.x, part)


def _layer_norm_bwd(writer: BodyWriter) -> Sequence[SSAValue]:
    """(gradient, x[, scale]) -> those of dx, dscale and dbias that the attributes name; dx alone reads the scale.

    Mean and variance over the dimensions `axis` to the last are computed again.
    """
    gradient, x = writer.args[:2]
    axis = writer.axis(of=1)
    wants = [name for name in ("dx", "dscale", "dbias") if writer.integer(name)]
    if not {"dx", "dscale"} & set(wants):
        raise NoBody("it gives dx or dscale; dbias alone is a reduce_sum")
    if not axis and wants != ["dx"]:
        raise NoBody("axis 0 leaves no rows that dscale and dbias are sums of")
    stats = _Statistics(writer, x, range(axis, len(_shape(x))), writer.number("epsilon"))
    results = {"dx": _rows_dx, "dscale": _rows_dscale, "dbias": _rows_dbias}
    return [results[name](writer, stats, gradient) for name in wants]


def _rows_dx(writer: BodyWriter, stats: _Statistics, gradient: SSAValue) -> SSAValue:
    scale = writer.spread(writer.args[2], stats.axes, stats.x, "scale")
    h = writer.apply(logical.MulOp, gradient, scale, name="h")
    slanting = writer.apply(logical.MulOp, h, stats.normal, name="slanting")
    slope = stats.spread(stats.mean_of(slanting, "slope"), "slope")
    slanted = writer.apply(logical.MulOp, stats.normal, slope, name="slanted")
    level = writer.apply(logical.SubOp, h, stats.spread(stats.mean_of(h, "offset"), "offset"), name="level")
    rest = writer.apply(logical.SubOp, level, slanted, name="rest")
    return writer.apply(logical.MulOp, rest, stats.spread(stats.factor, "factor"), name="dx")


def _rows_dscale(writer: BodyWriter, stats: _Statistics, gradient: SSAValue) -> SSAValue:
    weighed = writer.apply(logical.MulOp, gradient, stats.normal, name="weighed")
    return writer.total(weighed, range(stats.axes[0]), "dscale")


def _rows_dbias(writer: BodyWriter, stats: _Statistics, gradient: SSAValue) -> SSAValue:
    return writer.total(gradient, range(stats.axes[0]), "dbias")


def _layer_norm_bwd_names(writer: BodyWriter) -> tuple[str, ...]:
    return ("gradient", "x", "scale") if writer.integer("dx") else ("gradient", "x")


def _channel_axes(x: SSAValue) -> list[int]:
    rank = len(_shape(x))
    if rank < 2:
        raise NoBody(f"x has rank {rank}; it is [N, C, ...], channels along dimension 1")
    return [axis for axis in range(rank) if axis != 1]


def _batch_norm_fwd(writer: BodyWriter) -> Sequence[SSAValue]:
    """(x, scale, bias, mean, variance) -> y by the statistics given, or, with `training`, y by those of the batch, and
    the running ones moved by `momentum` towards them; of the variance, the unbiased one, as in PyTorch."""
    x, scale, bias, mean, variance = writer.args
    epsilon, momentum = writer.number("epsilon"), writer.number("momentum")
    if not writer.integer("training"):
        if momentum:
            raise NoBody("without training nothing moves: momentum is 0")
        return [writer.add(logical.BatchNormOp(x, scale, bias, mean, variance, epsilon))]
    stats = _Statistics(writer, x, _channel_axes(x), epsilon)
    if stats.count < 2:
        raise NoBody("one value for each channel has no variance; give a larger batch")
    scaled = writer.add(logical.MulOp(stats.normal, writer.spread(scale, [1], x, "scale")), "scaled")
    shifted = writer.add(logical.AddOp(scaled, writer.spread(bias, [1], x, "bias")), "shifted")
    unbiased = writer.apply(logical.MulOp, stats.variance, stats.count / (stats.count - 1), name="unbiased")
    running = [
        _moved(writer, old, new, momentum, name)
        for old, new, name in ((mean, stats.mean, "running.mean"), (variance, unbiased, "running.variance"))
    ]
    return [shifted, *running]


def _moved(writer: BodyWriter, old: SSAValue, new: SSAValue, share: float, name: str) -> SSAValue:
    """(1 - share) * old + share * new."""
    kept = writer.apply(logical.MulOp, old, 1 - share, name=f"{name}.kept")
    return writer.apply(
        logical.AddOp, kept, writer.apply(logical.MulOp, new, share, name=f"{name}.new"), name=name
    )


def _batch_norm_bwd(writer: BodyWriter) -> Sequence[SSAValue]:
    """(gradient, x, scale) -> dx, dscale, dbias, by the statistics of the batch, which are computed again."""
    gradient, x, scale = writer.args
    stats = _Statistics(writer, x, _channel_axes(x), writer.number("epsilon"))
    weighed = writer.apply(logical.MulOp, gradient, stats.normal, name="weighed")
    dscale, dbias = stats.total(weighed, "dscale"), stats.total(gradient, "dbias")
    slope = stats.spread(writer.mean(dscale, stats.count, "slope"), "slope")
    slanted = writer.apply(logical.MulOp, stats.normal, slope, name="slanted")
    offset = stats.spread(writer.mean(dbias, stats.count, "offset"), "offset")
    level = writer.apply(logical.SubOp, gradient, offset, name="level")
    rest = writer.apply(logical.SubOp, level, slanted, name="rest")
    both = writer.apply(logical.MulOp, stats.factor, scale, name="both")
    dx = writer.apply(logical.MulOp, rest, stats.spread(both, "both"), name="dx")
    return [dx, dscale, dbias]


# Losses


def _mse_loss(writer: BodyWriter) -> SSAValue:
    """(prediction, target) -> the squares of the differences, their mean, or their sum."""
    return writer.add(logical.MseLossOp(*writer.args, reduction=_reduction(writer)))


def _reduction(writer: BodyWriter) -> logical.LossReduction:
    return logical.REDUCTIONS[logical.REDUCTIONS.index(writer.text("reduction"))]


def _mse_grad(writer: BodyWriter) -> SSAValue:
    """(prediction, target[, gradient]) -> 2 * (prediction - target), times the derivative by the loss of each element.

    With `grad` the derivative by the loss is an operand, of the loss's shape; else it is 1.
    """
    prediction, target = writer.args[:2]
    reduction, is_given = writer.text("reduction"), bool(writer.integer("grad"))
    if reduction == "none" and not is_given:
        raise NoBody("the losses of all elements have a gradient each: grad is true")
    difference = writer.apply(logical.SubOp, prediction, target, name="difference")
    twice = writer.apply(logical.MulOp, difference, 2.0, name="twice")
    if not is_given and reduction == "sum":
        return twice
    each = writer.args[2] if is_given else _one(writer, prediction)
    if reduction == "mean":
        each = writer.apply(logical.DivOp, each, float(math.prod(_shape(prediction))), name="each")
    if reduction != "none":
        each = writer.spread(each, [], prediction, "each")
    return writer.add(logical.MulOp(twice, each))


def _one(writer: BodyWriter, like: SSAValue) -> SSAValue:
    return writer.add(logical.ConstantOp(1.0, tensor_info(like.type).with_sizes([])), "one")


def _cross_entropy_fwd(writer: BodyWriter) -> SSAValue:
    """(logits, labels) -> -log_softmax(logits) at the labels, `logical.cross_entropy` with its attributes."""
    logits, labels = writer.args
    return writer.add(
        logical.CrossEntropyOp(
            logits,
            labels,
            writer.axis(),
            _reduction(writer),
            writer.integer("ignore_index"),
            writer.number("label_smoothing"),
        )
    )


def _cross_entropy_bwd(writer: BodyWriter) -> SSAValue:
    """(logits, labels, gradient) -> (softmax(logits) - the weight of each class) times the gradient of each sample.

    The gradient is by the loss: of each sample for `none`, else one number. Samples of `ignore_index` pass nothing
    back, those of no class NaN.
    """
    logits, labels, _ = writer.args
    axis, smoothing = writer.axis(), writer.number("label_smoothing")
    classes = _shape(logits)[axis]
    others = [dim for dim in range(len(_shape(logits))) if dim != axis]
    place = writer.add(logical.IotaOp(axis, _shape(logits), element_of(labels.type)), "place")
    spread = writer.spread(labels, others, logits, "labels")
    labelled = writer.add(logical.CompareOp("eq", spread, place), "labelled")
    each = smoothing / classes
    weights = [writer.splat(number, logits, "weights") for number in (1 - smoothing + each, each)]
    weight = writer.add(logical.SelectOp(labelled, *weights), "weight")
    softmax = writer.add(logical.SoftmaxOp(logits, axis), "softmax")
    difference = writer.apply(logical.SubOp, softmax, weight, name="difference")
    samples = _gradient_of_samples(writer, labels, classes)
    return writer.add(logical.MulOp(difference, writer.spread(samples, others, logits, "samples")))


def _gradient_of_samples(writer: BodyWriter, labels: SSAValue, classes: int) -> SSAValue:
    """The derivative by the loss of each sample; NaN where its label is no class, 0 where it does not count."""
    gradient, reduction = writer.args[2], writer.text("reduction")
    counted = _against(writer, "ne", labels, writer.integer("ignore_index"), "counted")
    if reduction == "mean":
        ones = writer.add(logical.CastOp(counted, element_of(gradient.type)), "ones")
        count = writer.total(ones, range(len(_shape(ones))), "count") if _shape(ones) else ones
        gradient = writer.apply(logical.DivOp, gradient, count, name="each")
    if reduction != "none":
        gradient = writer.spread(gradient, [], labels, "gradient")
    above, below = (
        _against(writer, "ge", labels, 0, "above"),
        _against(writer, "lt", labels, classes, "below"),
    )
    known = writer.add(logical.AndOp(above, below), "known")
    nothing = writer.splat(math.nan, gradient, "nothing")
    checked = writer.add(logical.SelectOp(known, gradient, nothing), "checked")
    return writer.add(logical.SelectOp(counted, checked, writer.splat(0.0, gradient, "none")), "samples")


def _against(
    writer: BodyWriter, predicate: logical.Predicate, labels: SSAValue, number: int, name: str
) -> SSAValue:
    return writer.add(
        logical.CompareOp(predicate, labels, writer.splat(number, labels, f"{name}.bound")), name
    )


# Optimizers


def _adam_step(writer: BodyWriter) -> Sequence[SSAValue]:
    """(parameter, gradient, m, v, learning rate, correction1, correction2) -> parameter, m, v.

    The corrections are 1 - beta ** step, one number each (`bias_corr`). Weight decay is a penalty on the squared
    parameter (Adam), or `decoupled` from the gradient (AdamW).
    """
    parameter, gradient, m, v, rate, *corrections = writer.args
    for name, value in (
        ("learning rate", rate),
        *((f"correction{k}", c) for k, c in enumerate(corrections, 1)),
    ):
        if _shape(value):
            raise NoBody(f"the {name} has shape {tensor_info(value.type).shape_text}, it has rank 0")
    decay = writer.number("weight_decay")
    is_decoupled = bool(writer.integer("decoupled"))
    if is_decoupled != bool(decay) and not decay:
        raise NoBody("decoupled says how weights decay, and weight_decay is 0")
    if decay and is_decoupled:
        share = writer.spread(writer.apply(logical.MulOp, rate, decay, name="decay"), [], parameter, "decay")
        shrunk = writer.apply(logical.MulOp, share, parameter, name="shrunk")
        parameter = writer.apply(logical.SubOp, parameter, shrunk, name="decayed")
    elif decay:
        penalty = writer.apply(logical.MulOp, parameter, decay, name="decay")
        gradient = writer.apply(logical.AddOp, gradient, penalty, name="decayed")
    means = [
        _running_mean(writer, m, gradient, writer.number("beta1"), "m"),
        _running_mean(
            writer,
            v,
            writer.apply(logical.MulOp, gradient, gradient, name="square"),
            writer.number("beta2"),
            "v",
        ),
    ]
    first, second = (
        writer.apply(logical.DivOp, mean, writer.spread(correction, [], mean, "correction"), name="corrected")
        for mean, correction in zip(means, corrections, strict=True)
    )
    root = writer.apply(logical.SqrtOp, second, name="root")
    spread = writer.apply(logical.AddOp, root, writer.number("epsilon"), name="spread")
    way = writer.apply(logical.DivOp, first, spread, name="way")
    change = writer.apply(logical.MulOp, writer.spread(rate, [], way, "rate"), way, name="change")
    return [writer.apply(logical.SubOp, parameter, change, name="p"), *means]


def _running_mean(writer: BodyWriter, old: SSAValue, new: SSAValue, beta: float, name: str) -> SSAValue:
    """beta * old + (1 - beta) * new."""
    kept = writer.apply(logical.MulOp, old, beta, name=f"{name}.kept")
    return writer.apply(
        logical.AddOp, kept, writer.apply(logical.MulOp, new, 1 - beta, name=f"{name}.new"), name=name
    )


TRAINING_KINDS: dict[str, KindRow] = {
    "mse_grad": KindRow(
        _mse_grad,
        lambda writer: ("prediction", "target", *(["gradient"] if writer.integer("grad") else [])),
    ),
    "grad_zero": KindRow(_grad_zero, fixed()),
    "adam_step": KindRow(
        _adam_step,
        fixed("parameter", "gradient", "m", "v", "learning rate", "correction1", "correction2"),
    ),
    "step_inc": KindRow(lambda writer: writer.write(STEP_INC), fixed("step")),
    "bias_corr": KindRow(_bias_corr, fixed("step")),
    "layernorm_bwd": KindRow(_layer_norm_bwd, _layer_norm_bwd_names),
    "batchnorm_fwd": KindRow(_batch_norm_fwd, fixed("x", "scale", "bias", "mean", "variance")),
    "batchnorm_bwd": KindRow(_batch_norm_bwd, fixed("gradient", "x", "scale")),
    "softmax_bwd": KindRow(_softmax_bwd, fixed("gradient", "y")),
    "mse_loss": KindRow(_mse_loss, fixed("prediction", "target")),
    "cross_entropy_fwd": KindRow(_cross_entropy_fwd, fixed("logits", "labels")),
    "cross_entropy_bwd": KindRow(_cross_entropy_bwd, fixed("logits", "labels", "gradient")),
    "gemm_epilogue_bwd": KindRow(_gemm_epilogue_bwd, fixed("a", "b", "saved")),
}
"""Writer and operands by kind."""
