"""Kinds whose bodies have a pattern: the table of patterns, and what is read of a body that matches one.

`bodies/kinds.py` looks bodies up here, after those with products and updates of many tensors. `kernels/
kind_definitions.py` writes the bodies of pointwise kinds from the same patterns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr, f64, i64
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.kinds import FLAGS
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.bodies.matching import splat_number, spread_over
from aicf.passes.bodies.patterns import Match, Pattern, counted_ops, match, words_of
from aicf.semantics.elementwise import GELU_CUBIC, SQRT_2_OVER_PI, SQRT_HALF

Attrs: TypeAlias = Mapping[str, Attribute]
ReadAttrs: TypeAlias = Callable[[Match], Attrs | None]
"""What a body that matches a pattern says of its kind's attributes; None if it means something else after all."""


@dataclass(frozen=True)
class Row:
    """A kind, a pattern of bodies that have it, and how its attributes are read."""

    kind: str
    pattern: Pattern
    attrs: ReadAttrs


def kind_by_pattern(block: Block) -> tuple[str, Attrs] | None:
    """Kind and attributes of a body that matches a pattern; None if it matches none."""
    for row in _BY_WORDS.get(words_of(counted_ops(block)), ()):
        found = match(row.pattern, block)
        if found is not None and (attrs := row.attrs(found)) is not None:
            return row.kind, attrs
    return None


# What is read of several kinds


def _none(found: Match) -> Attrs:
    return {}


def integer(value: int) -> Attribute:
    """An i64 attribute."""
    return IntegerAttr(value, i64)


def number(value: float) -> Attribute:
    """An f64 attribute."""
    return FloatAttr(value, f64)


def _axes(op: Operation) -> tuple[int, ...]:
    assert isinstance(op, logical.ReduceOp)
    return tuple(op.axes.get_values())


def _shape(value: SSAValue) -> tuple[int, ...]:
    return tensor_info(value.type).shape


def _count(op: Operation) -> int:
    """How many elements a reduction adds up for each result."""
    shape = _shape(op.operands[0])
    return math.prod(shape[axis] for axis in _axes(op))


def _splat(op: Operation, operand: int = 1) -> float:
    """The number that a line has as an operand, through a broadcast."""
    value = op.operands[operand]
    value = value.owner.operand if isinstance(value.owner, logical.BroadcastOp) else value
    found = splat_number(value)
    assert found is not None, "a pattern has a constant there"
    return found


def _are_means(found: Match, *quotients: str) -> bool:
    """Whether lines that divide a sum by a constant divide it by the number of its terms."""
    for name in quotients:
        total = found[name].operands[0].owner
        if not isinstance(total, logical.ReduceSumOp) or _splat(found[name]) != _count(total):
            return False
    return True


def _are_over(axes: Sequence[int], found: Match, *reductions: str) -> bool:
    return all(_axes(found[name]) == tuple(axes) for name in reductions)


def _are_spread(axes: Sequence[int], found: Match, *uses: str, operand: int = 1) -> bool:
    """Whether the operands of lines are reductions over `axes`, repeated along these."""
    return all(spread_over(found[name].operands[operand], axes) for name in uses)


def _are_along(dims: Sequence[int], found: Match, *uses: str) -> bool:
    """Whether the last operands of lines are of the dims `dims`, repeated over the others."""
    for name in uses:
        value = found[name].operands[1]
        if isinstance(value.owner, logical.BroadcastOp) and tuple(
            value.owner.dimensions.get_values()
        ) != tuple(dims):
            return False
    return True


# Pointwise kinds and sums


def _bias_add(found: Match) -> Attrs | None:
    """A block argument broadcast along its last dim only."""
    value = found.ops[0].operands[1]
    if not isinstance(value.owner, logical.BroadcastOp):
        return None
    last = tensor_info(value.type).rank - 1
    return {} if tuple(value.owner.dimensions.get_values()) == (last,) else None


def _step_inc(found: Match) -> Attrs | None:
    """A counter is one i64."""
    value = found.ops[0].results[0]
    return {} if element_of(value.type).name == "i64" and not _shape(value) else None


def _bias_corr(found: Match) -> Attrs | None:
    """Beta is the number with the fewest digits that has the body's logarithm."""
    logarithm = _splat(found["power"])
    result = found.ops[-1].results[0]
    if _shape(result) or element_of(result.type).name not in ("f32", "f64"):
        return None
    power = math.exp(logarithm) if logarithm < 0 else 1.0
    for digits in range(1, 18):
        beta = float(f"{power:.{digits}g}")
        if 0 < beta < 1 and math.log(beta) == logarithm:
            return {"beta": number(beta)}
    return None


def _reduce_sum(found: Match) -> Attrs | None:
    op = found.ops[0]
    assert isinstance(op, logical.ReduceSumOp)
    axes = _axes(op)
    if axes != tuple(range(axes[0], axes[0] + len(axes))):
        return None
    return {
        "first_axis": integer(axes[0]),
        "axis_count": integer(len(axes)),
        "keepdims": FLAGS[op.keepdims is not None],
    }


# Softmax


def _softmax(found: Match) -> Attrs | None:
    axes = _axes(found["max"])
    is_softmax = (
        len(axes) == 1 and _are_over(axes, found, "sum") and _are_spread(axes, found, "shifted", "result")
    )
    return {"axis": integer(axes[0])} if is_softmax else None


def _softmax_bwd(found: Match) -> Attrs | None:
    axes = _axes(found["sum"])
    is_one = len(axes) == 1 and _are_spread(axes, found, "centered")
    return {"axis": integer(axes[0])} if is_one else None


# Norms


def _standardizes_rows(found: Match) -> int | None:
    """The first of the trailing axes over which a body takes mean and variance; None if it does not."""
    axes = _axes(found["total"])
    rank = len(_shape(found["total"].operands[0]))
    is_right = (
        axes == tuple(range(axes[0], rank))
        and _are_over(axes, found, "squares")
        and _are_spread(axes, found, "centered", "normal")
        and _are_means(found, "mean", "variance")
    )
    return axes[0] if is_right else None


def _layer_norm(found: Match) -> Attrs | None:
    if (axis := _standardizes_rows(found)) is None:
        return None
    trailing = range(axis, len(_shape(found["total"].operands[0])))
    if not _are_along(trailing, found, "scaled", "shifted"):
        return None
    return {"axis": integer(axis), "epsilon": number(_splat(found["raised"]))}


def _layer_norm_bwd(dx: bool, dscale: bool, dbias: bool) -> ReadAttrs:
    def read(found: Match) -> Attrs | None:
        if (axis := _standardizes_rows(found)) is None:
            return None
        trailing = tuple(range(axis, len(_shape(found["total"].operands[0]))))
        is_operand = not dx or (
            _are_along(trailing, found, "h")
            and _are_over(trailing, found, "slopes", "sums")
            and _are_means(found, "slope", "offset")
            and _are_spread(trailing, found, "slanted", "level", "dx")
        )
        rows = [name for name, given in (("dscale", dscale), ("dbias", dbias)) if given]
        if not is_operand or not _are_over(range(axis), found, *rows):
            return None
        flags = {"dx": FLAGS[dx], "dscale": FLAGS[dscale], "dbias": FLAGS[dbias]}
        return {"axis": integer(axis), "epsilon": number(_splat(found["raised"])), **flags}

    return read


def _channel_axes(found: Match) -> tuple[int, ...] | None:
    """All axes but 1, if a body takes mean and variance of channels over them."""
    axes = _axes(found["total"])
    rank = len(_shape(found["total"].operands[0]))
    is_right = (
        axes == tuple(axis for axis in range(rank) if axis != 1)
        and rank > 1
        and _are_over(axes, found, "squares")
        and _are_along([1], found, "centered", "normal")
        and _are_means(found, "mean", "variance")
    )
    return axes if is_right else None


def _batch_norm(found: Match) -> Attrs | None:
    """With statistics that are given."""
    if not _are_along([1], found, "centered", "scaled", "shifted"):
        return None
    flags = {"training": FLAGS[False], "momentum": number(0.0)}
    return {"epsilon": number(_splat(found["raised"])), **flags}


def _batch_norm_training(found: Match) -> Attrs | None:
    """With the statistics of the batch, which also move the running ones."""
    axes = _channel_axes(found)
    if axes is None or not _are_along([1], found, "scaled", "shifted"):
        return None
    count, momentum = _count(found["total"]), _splat(found["mean.new"])
    element = found["mean"].results[0]
    dtype = element_of(element.type).dtype.type
    is_running = (
        count > 1
        and _splat(found["variance.new"]) == momentum
        and dtype(_splat(found["mean.kept"])) == dtype(_splat(found["variance.kept"])) == dtype(1 - momentum)
        and dtype(_splat(found["unbiased"])) == dtype(count / (count - 1))
    )
    if not is_running:
        return None
    flags = {"training": FLAGS[True], "momentum": number(momentum)}
    return {"epsilon": number(_splat(found["raised"])), **flags}


def _batch_norm_bwd(found: Match) -> Attrs | None:
    axes = _channel_axes(found)
    if axes is None:
        return None
    is_right = (
        _are_over(axes, found, "dscale", "dbias")
        and _are_along([1], found, "slanted", "level", "dx")
        and _are_means(found, "slope", "offset")
    )
    return {"epsilon": number(_splat(found["raised"]))} if is_right else None


# Losses


def _reduced(reduction: str, total: str = "total", mean: str = "mean") -> ReadAttrs:
    """Of a loss whose terms are all kept, added up, or averaged."""

    def read(found: Match) -> Attrs | None:
        if reduction != "none" and _axes(found[total]) != tuple(range(len(_shape(found[total].operands[0])))):
            return None
        if reduction == "mean" and not _are_means(found, mean):
            return None
        return {"reduction": StringAttr(reduction)}

    return read


def _mse_grad(reduction: str, upstream: bool) -> ReadAttrs:
    def read(found: Match) -> Attrs | None:
        shape = _shape(found["difference"].results[0])
        if reduction == "mean" and _splat(found["each"]) != math.prod(shape):
            return None
        if upstream:
            grad = next(v for op in found.ops for v in map(_unspread, op.operands) if _is_argument(v, 2))
            if _shape(grad) != (shape if reduction == "none" else ()):
                return None
        return {"reduction": StringAttr(reduction), "grad": FLAGS[upstream]}

    return read


def _unspread(value: SSAValue) -> SSAValue:
    return value.owner.operand if isinstance(value.owner, logical.BroadcastOp) else value


def _is_argument(value: SSAValue, index: int) -> bool:
    return isinstance(value, BlockArgument) and value.index == index


def _cross_entropy(reduction: str, smoothing: _ReadSmoothing, *reductions: str) -> ReadAttrs:
    def read(found: Match) -> Attrs | None:
        place = found["place"]
        assert isinstance(place, logical.IotaOp)
        axis, shape = place.axis.value.data, _shape(place.result)
        others = tuple(dim for dim in range(len(shape)) if dim != axis)
        every = tuple(range(len(others)))
        labels, known, classes = found["labelled"].operands[0], _splat(found["above"]), _splat(found["below"])
        is_right = (
            _are_over([axis], found, *reductions)
            and _spread_dims(labels) in (None, others)
            and (known, classes) == (0, shape[axis])
            and all(_axes(found[name]) == every for name in ("total", "count") if name in found.found)
        )
        if not is_right:
            return None
        share = smoothing(found, shape[axis])
        return (
            None
            if share is None
            else {
                "axis": integer(axis),
                "ignore_index": integer(int(_splat(found["counted"]))),
                "label_smoothing": number(share),
                "reduction": StringAttr(reduction),
            }
        )

    return read


def _spread_dims(value: SSAValue) -> tuple[int, ...] | None:
    owner = value.owner
    return tuple(owner.dimensions.get_values()) if isinstance(owner, logical.BroadcastOp) else None


_ReadSmoothing: TypeAlias = Callable[[Match, int], float | None]
"""The share of a label that a loss over so many classes spreads over all of them; None if its numbers are no such."""


def _no_smoothing(found: Match, classes: int) -> float:
    return 0.0


def _smoothing(found: Match, classes: int) -> float | None:
    """Of the loss: what each class weighs, and the label's own weight."""
    dtype = element_of(found["spread"].results[0].type).dtype.type
    return _share(dtype, classes, _splat(found["spread"]), lambda share: 1 - share, _splat(found["weighted"]))


def _smoothing_of_slope(found: Match, classes: int) -> float | None:
    """Of the gradient: what is taken from the softmax of each class, and from that of the label."""
    weight, dtype = found["weight"], element_of(found["weight"].results[0].type).dtype.type
    each, label = _splat(weight, 2), _splat(weight, 1)
    if not each:
        return 0.0 if label == 1 else None
    return _share(dtype, classes, each, lambda share: 1 - share + share / classes, label)


def _share(
    dtype: Callable[[float], float],
    classes: int,
    each: float,
    label_of: Callable[[float], float],
    label: float,
) -> float | None:
    share = float(f"{each * classes:.6g}")
    is_right = dtype(share / classes) == dtype(each) and dtype(label_of(share)) == dtype(label)
    return share if is_right and 0 < share <= 1 else None


# Optimizers


def _sgd_step(found: Match) -> Attrs | None:
    """Which operand is the learning rate, -1 for a constant."""
    product = found.ops[0]
    rates = [broadcast_argument(operand) for operand in product.operands]
    if splat_number(product.operands[0]) is not None or splat_number(product.operands[1]) is not None:
        index = -1 if rates == [None, None] else None
    else:
        index = next((rate for rate in rates if rate is not None), None) if None in rates else None
    return None if index is None else {"learning_rate_operand": integer(index)}


def broadcast_argument(value: SSAValue) -> int | None:
    """Number of the block argument of one element that `value` broadcasts."""
    if not isinstance(value.owner, logical.BroadcastOp):
        return None
    source = value.owner.operand
    return (
        source.index if isinstance(source, BlockArgument) and tensor_info(source.type).elements == 1 else None
    )


def _adam_step(decay: str) -> ReadAttrs:
    """`decay`: `none`, `penalty` on the squared parameter (Adam), or `decoupled` from the gradient (AdamW)."""

    def read(found: Match) -> Attrs | None:
        dtype = element_of(found["m"].results[0].type).dtype.type
        beta1, beta2 = _splat(found["m.kept"]), _splat(found["v.kept"])
        rests = (_splat(found["m.new"]), _splat(found["v.new"]))
        numbers = [found[name].operands for name in ("m.corrected", "v.corrected")]
        is_right = (
            [dtype(rest) for rest in rests] == [dtype(1 - beta1), dtype(1 - beta2)]
            and [_shape(_unspread(operands[1])) for operands in numbers] == [(), ()]
            and _shape(_unspread(found["change"].operands[0])) == ()
        )
        if not is_right:
            return None
        return {
            "beta1": number(beta1),
            "beta2": number(beta2),
            "epsilon": number(_splat(found["spread"])),
            "weight_decay": number(0.0 if decay == "none" else _splat(found["decay"])),
            "decoupled": FLAGS[decay == "decoupled"],
        }

    return read


# The patterns

_SOFTMAX = (
    "max = reduce_max $0",
    "shifted = sub $0 max^",
    "exp = exp shifted",
    "sum = reduce_sum exp",
    "result = div exp sum^",
)

_MEAN_AND_VARIANCE = (
    "total = reduce_sum {x}",
    "mean = div total c",
    "centered = sub {x} mean^",
    "square = mul centered centered",
    "squares = reduce_sum square",
    "variance = div squares c",
    "raised = add variance c",
    "factor = rsqrt raised",
    "normal = mul centered factor^",
)


def _statistics(x: str) -> tuple[str, ...]:
    return tuple(line.format(x=x) for line in _MEAN_AND_VARIANCE)


_SCALED = ("scaled = mul normal $1^", "shifted = add scaled $2^")

_NORM_DX = (
    "h = mul $0 {scale}^",
    "slanting = mul h normal",
    "slopes = reduce_sum slanting",
    "slope = div slopes c",
    "slanted = mul normal slope^",
    "sums = reduce_sum h",
    "offset = div sums c",
    "level = sub h offset^",
    "rest = sub level slanted",
    "dx = mul rest factor^",
)
_NORM_DSCALE = ("weighed = mul $0 normal", "dscale = reduce_sum weighed")
_NORM_DBIAS = ("dbias = reduce_sum $0",)


def _layer_norm_bwd_rows() -> list[Row]:
    """One for each set of results, dx or dscale among them. The operands are gradient, x, and scale if dx is given."""
    rows: list[Row] = []
    for dx, dscale, dbias in (
        (True, True, True),
        (True, False, False),
        (False, True, True),
        (False, True, False),
    ):
        lines = [*_statistics("$1")]
        lines += [line.format(scale="$2") for line in _NORM_DX] if dx else []
        lines += [*_NORM_DSCALE] if dscale else []
        lines += _NORM_DBIAS if dbias else ()
        given = [name for name, is_given in (("dx", dx), ("dscale", dscale), ("dbias", dbias)) if is_given]
        pattern = Pattern.of(*lines, results=" ".join(given))
        rows.append(Row("layernorm_bwd", pattern, _layer_norm_bwd(dx, dscale, dbias)))
    return rows


_BATCH_NORM = (
    "centered = sub $0 $3^",
    "raised = add $4 c",
    "factor = rsqrt raised",
    "both = mul factor $1",
    "scaled = mul centered both^",
    "shifted = add scaled $2^",
)
_RUNNING = (
    "mean.kept = mul $3 c",
    "mean.new = mul mean c",
    "running.mean = add mean.kept mean.new",
    "unbiased = mul variance c",
    "variance.kept = mul $4 c",
    "variance.new = mul unbiased c",
    "running.variance = add variance.kept variance.new",
)
_BATCH_NORM_BWD = (
    *_NORM_DSCALE,
    *_NORM_DBIAS,
    "slope = div dscale c",
    "slanted = mul normal slope^",
    "offset = div dbias c",
    "level = sub $0 offset^",
    "rest = sub level slanted",
    "both = mul factor $2",
    "dx = mul rest both^",
)

_SQUARE = ("distance = sub $0 $1", "square = mul distance distance")
_MSE_GRAD = ("difference = sub $0 $1", "twice = mul difference 2")

_LABELS = (
    "place = iota",
    "labelled = compare_eq $1^ place",
    "above = compare_ge $1 c",
    "below = compare_lt $1 c",
    "known = and above below",
    "counted = compare_ne $1 c",
)
_LOG_SOFTMAX = (
    *_SOFTMAX[:4],
    "log = log sum",
    "logarithms = sub shifted log^",
)
_PLAIN = ("chosen = select labelled logarithms 0",)
_SMOOTH = (
    "weighted = mul logarithms c",
    "label = select labelled weighted 0",
    "spread = mul logarithms c",
    "chosen = add label spread",
)
_LOSSES = (
    "picked = reduce_sum chosen",
    "negative = neg picked",
    "checked = select known negative nan",
    "losses = select counted checked 0",
)
_COUNT = ("ones = cast counted", "count = reduce_sum ones")


def _cross_entropy_rows() -> list[Row]:
    rows: list[Row] = []
    ends = {
        "none": (),
        "sum": ("total = reduce_sum losses",),
        "mean": ("total = reduce_sum losses", *_COUNT, "result = div total count"),
    }
    for smoothing, terms in ((_no_smoothing, _PLAIN), (_smoothing, _SMOOTH)):
        for reduction, end in ends.items():
            pattern = Pattern.of(*_LABELS, *_LOG_SOFTMAX, *terms, *_LOSSES, *end)
            read = _cross_entropy(reduction, smoothing, "max", "sum", "picked")
            rows.append(Row("cross_entropy_fwd", pattern, read))
    return rows


_SAMPLES = {
    "none": ("checked = select known $2 nan",),
    "sum": ("checked = select known $2^ nan",),
    "mean": (*_COUNT, "each = div $2 count", "checked = select known each^ nan"),
}
"""What the gradient of each sample is multiplied by, by reduction."""


def _cross_entropy_bwd_rows() -> list[Row]:
    """Operands are logits, labels and the gradient of the loss."""
    slope = ("weight = select labelled c c", "difference = sub result weight")
    rows: list[Row] = []
    for reduction, samples in _SAMPLES.items():
        lines = (*_LABELS, *_SOFTMAX, *slope, *samples, "samples = select counted checked 0")
        pattern = Pattern.of(*lines, "mul difference samples^")
        read = _cross_entropy(reduction, _smoothing_of_slope, "max", "sum")
        rows.append(Row("cross_entropy_bwd", pattern, read))
    return rows


_M_AND_V = (
    "m.kept = mul $2 c",
    "m.new = mul {g} c",
    "m = add m.kept m.new",
    "square = mul {g} {g}",
    "v.kept = mul $3 c",
    "v.new = mul square c",
    "v = add v.kept v.new",
    "v.corrected = div v $6^",
    "root = sqrt v.corrected",
    "spread = add root c",
    "m.corrected = div m $5^",
    "way = div m.corrected spread",
    "change = mul $4^ way",
    "p = sub {p} change",
)


def _adam(decay: str, *lines: str, p: str = "$0", g: str = "$1") -> Row:
    moments = (line.format(p=p, g=g) for line in _M_AND_V)
    return Row("adam_step", Pattern.of(*lines, *moments, results="p m v"), _adam_step(decay))


POINTWISE: dict[str, Pattern] = {
    "add": Pattern.of("add $0 $1"),
    "mul": Pattern.of("mul $0 $1"),
    "relu": Pattern.of("relu $0"),
    "relu_bwd": Pattern.of("compare_le $0 0", "select %0 0 $1"),
}
"""Kinds without attributes whose pattern says all: bodies are written from it."""

STEP_INC = Pattern.of("add $0 1")
BIAS_CORR = Pattern.of("cast $0", "power = mul %0 c", "expm1 power", "result = neg %2")
_NARROW_CORR = Pattern.of("cast $0", "power = mul %0 c", "expm1 power", "neg %2", "cast %3")

ACTIVATION_SLOPES: dict[str, Pattern] = {
    "relu": Pattern.of("product = matmul $0 $1", "compare_le $2 0", "select %1 0 product"),
    "sigmoid": Pattern.of("product = matmul $0 $1", "mul product $2", "neg $2", "add %2 1", "mul %1 %3"),
    "tanh": Pattern.of("product = matmul $0 $1", "mul $2 $2", "neg %1", "add %2 1", "mul product %3"),
    "silu": Pattern.of(
        "product = matmul $0 $1",
        "s = sigmoid $2",
        "neg s",
        "add %2 1",
        "mul $2 %3",
        "add %4 1",
        "mul product s",
        "mul %6 %5",
    ),
    "gelu": Pattern.of(
        "product = matmul $0 $1",
        f"mul $2 {SQRT_HALF}",
        "erf %1",
        "mul $2 $2",
        "mul %3 -0.5",
        "exp %4",
        f"slope = mul %5 {math.sqrt(2 / math.pi)}",
        "add %2 1",
        "phi = mul %7 0.5",
        "mul $2 slope",
        "mul %9 0.5",
        "add phi %10",
        "mul product %11",
    ),
    "gelu_tanh": Pattern.of(
        "product = matmul $0 $1",
        "square = mul $2 $2",
        f"mul square {GELU_CUBIC}",
        "add %2 1",
        "mul $2 %3",
        f"mul %4 {SQRT_2_OVER_PI}",
        "curve = tanh %5",
        "mul curve curve",
        "neg %7",
        "add %8 1",
        f"mul square {3 * GELU_CUBIC}",
        "add %10 1",
        "mul %9 %11",
        f"slope = mul %12 {SQRT_2_OVER_PI}",
        "add curve 1",
        "phi = mul %14 0.5",
        "mul $2 slope",
        "mul %16 0.5",
        "add phi %17",
        "mul product %18",
    ),
}
"""A product, times the slope of an activation: of its result for relu, sigmoid and tanh, else of its operand, which is
the third operand."""


def slope_of(block: Block) -> str | None:
    """The activation by whose slope a body multiplies a product; None if it does something else."""
    words = words_of(counted_ops(block))
    for activation, pattern in ACTIVATION_SLOPES.items():
        if pattern.words == words and match(pattern, block) is not None:
            return activation
    return None


def _rows(kind: str, attrs: ReadAttrs, *patterns: Sequence[str]) -> list[Row]:
    return [Row(kind, Pattern.of(*lines), attrs) for lines in patterns]


_ROWS: tuple[Row, ...] = (
    *(Row(kind, pattern, _none) for kind, pattern in POINTWISE.items()),
    *_rows("bias_add", _bias_add, ("add $0 $1^",), ("add $1 $0^",)),
    Row("step_inc", STEP_INC, _step_inc),
    Row("bias_corr", BIAS_CORR, _bias_corr),
    Row("bias_corr", _NARROW_CORR, _bias_corr),
    *_rows("reduce_sum", _reduce_sum, ("reduce_sum $0",)),
    *_rows("softmax", _softmax, _SOFTMAX),
    *_rows(
        "softmax_bwd",
        _softmax_bwd,
        ("mul $0 $1", "sum = reduce_sum %0", "centered = sub $0 sum^", "mul centered $1"),
    ),
    *_rows("layernorm_fwd", _layer_norm, (*_statistics("$0"), *_SCALED)),
    *_layer_norm_bwd_rows(),
    *_rows("batchnorm_fwd", _batch_norm, _BATCH_NORM),
    Row(
        "batchnorm_fwd",
        Pattern.of(*_statistics("$0"), *_SCALED, *_RUNNING, results="shifted running.mean running.variance"),
        _batch_norm_training,
    ),
    Row(
        "batchnorm_bwd",
        Pattern.of(*_statistics("$1"), *_BATCH_NORM_BWD, results="dx dscale dbias"),
        _batch_norm_bwd,
    ),
    *_rows("mse_loss", _reduced("none"), _SQUARE),
    *_rows("mse_loss", _reduced("sum"), (*_SQUARE, "total = reduce_sum square")),
    *_rows("mse_loss", _reduced("mean"), (*_SQUARE, "total = reduce_sum square", "mean = div total c")),
    *_rows("mse_grad", _mse_grad("sum", False), _MSE_GRAD),
    *_rows("mse_grad", _mse_grad("mean", False), (*_MSE_GRAD, "each = div 1 c", "mul twice each^")),
    *_rows("mse_grad", _mse_grad("none", True), (*_MSE_GRAD, "mul twice $2")),
    *_rows("mse_grad", _mse_grad("sum", True), (*_MSE_GRAD, "mul twice $2^")),
    *_rows("mse_grad", _mse_grad("mean", True), (*_MSE_GRAD, "each = div $2 c", "mul twice each^")),
    *_cross_entropy_rows(),
    *_cross_entropy_bwd_rows(),
    *_rows(
        "sgd_step",
        _sgd_step,
        ("mul $0^ $1", "sub $2 %0"),
        ("mul $1 $0^", "sub $2 %0"),
        ("mul $0 $1^", "sub $2 %0"),
        ("mul $1^ $0", "sub $2 %0"),
        ("mul $2^ $1", "sub $0 %0"),
        ("mul $1 $2^", "sub $0 %0"),
        ("mul $0 c", "sub $1 %0"),
        ("mul c $0", "sub $1 %0"),
    ),
    _adam("none"),
    _adam("penalty", "decay = mul $0 c", "decayed = add $1 decay", g="decayed"),
    _adam("decoupled", "decay = mul $4 c", "shrunk = mul decay^ $0", "decayed = sub $0 shrunk", p="decayed"),
)


def _by_words() -> dict[tuple[str, ...], list[Row]]:
    table: dict[tuple[str, ...], list[Row]] = {}
    for row in _ROWS:
        table.setdefault(row.pattern.words, []).append(row)
    return table


_BY_WORDS = _by_words()
