"""Steps that add reduction ops."""

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps.generator import Generator

REDUCTIONS = (
    logical.ReduceSumOp,
    logical.ReduceMeanOp,
    logical.ReduceMaxOp,
    logical.ReduceMinOp,
    logical.ReduceProdOp,
    logical.ReduceL2Op,
    logical.ReduceLogSumExpOp,
)


def _axes(g: Generator, rank: int) -> list[int]:
    return sorted(g.random.permutation(rank)[: int(g.random.integers(1, rank + 1))].tolist())


def _reduce(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    axes = _axes(g, tensor_info(x.type).rank)
    g.add(g.choice(REDUCTIONS)(x, axes, keepdims=g.chance(0.5)))


def _truth(g: Generator) -> None:
    """any or all, as a number so that later steps go on with it."""
    x = g.float_value(min_rank=1)
    op = g.choice((logical.ReduceAnyOp, logical.ReduceAllOp))
    condition = g.require(logical.CompareOp("gt", x, g.like(x)))
    answer = g.require(op(condition, _axes(g, tensor_info(x.type).rank), keepdims=g.chance(0.5)))
    g.add(logical.CastOp(answer, g.float_type))


def _argmax(g: Generator) -> None:
    """argmax or argmin, as a number so that later steps go on with it."""
    x = g.float_value(min_rank=1)
    axis = int(g.random.integers(tensor_info(x.type).rank))
    op = g.choice((logical.ArgmaxOp, logical.ArgminOp))
    g.add(logical.CastOp(g.require(op(x, axis, keepdims=g.chance(0.5))), g.float_type))


def _cumsum(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    axis = int(g.random.integers(tensor_info(x.type).rank))
    g.add(logical.CumsumOp(x, axis, exclusive=g.chance(0.5), reverse=g.chance(0.5)))


def _softmax(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    op = g.choice((logical.SoftmaxOp, logical.LogSoftmaxOp))
    g.add(op(x, int(g.random.integers(tensor_info(x.type).rank))))


def _layer_norm(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    info = tensor_info(x.type)
    axis = int(g.random.integers(info.rank))
    scale, bias = (g.argument(info.shape[axis:], "param") for _ in range(2))
    g.add(logical.LayerNormOp(x, scale, bias, axis, g.choice((1e-5, 1e-3))))


def _rms_norm(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    info = tensor_info(x.type)
    axis = int(g.random.integers(info.rank))
    scale = g.argument(info.shape[axis:], "param")
    g.add(logical.RmsNormOp(x, scale, axis, g.choice((1e-5, 1e-3))))


def _batch_norm(g: Generator) -> None:
    x = g.float_value(min_rank=2)
    channels = tensor_info(x.type).shape[1]
    scale, bias, mean = (g.argument((channels,), "param") for _ in range(3))
    one = g.require(logical.ConstantOp(1.0, mean.type))
    variance = g.require(logical.AddOp(g.require(logical.MulOp(scale, scale)), one))
    g.add(logical.BatchNormOp(x, scale, bias, mean, variance))


def _group_norm(g: Generator) -> None:
    x = g.float_value(min_rank=2)
    channels = tensor_info(x.type).shape[1]
    groups = g.choice([n for n in range(1, channels + 1) if channels % n == 0])
    scale, bias = (g.argument((channels,), "param") for _ in range(2))
    g.add(logical.GroupNormOp(x, scale, bias, groups, 1e-3))


STEPS = (
    _reduce,
    _reduce,
    _truth,
    _argmax,
    _cumsum,
    _softmax,
    _layer_norm,
    _rms_norm,
    _batch_norm,
    _group_norm,
)
