"""Steps that add reduction ops."""

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps.generator import Generator

REDUCTIONS = (logical.ReduceSumOp, logical.ReduceMeanOp, logical.ReduceMaxOp)


def _axes(g: Generator, rank: int) -> list[int]:
    return sorted(g.random.permutation(rank)[: int(g.random.integers(1, rank + 1))].tolist())


def _reduce(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    axes = _axes(g, tensor_info(x.type).rank)
    g.add(g.choice(REDUCTIONS)(x, axes, keepdims=g.chance(0.5)))


def _softmax(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    g.add(logical.SoftmaxOp(x, int(g.random.integers(tensor_info(x.type).rank))))


def _layer_norm(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    info = tensor_info(x.type)
    axis = int(g.random.integers(info.rank))
    scale, bias = (g.argument(info.shape[axis:], "param") for _ in range(2))
    g.add(logical.LayerNormOp(x, scale, bias, axis, g.choice((1e-5, 1e-3))))


STEPS = (_reduce, _reduce, _softmax, _layer_norm)
