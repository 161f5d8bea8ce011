"""Steps that add contraction ops."""

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps.generator import SIZES, Generator


def _batch(g: Generator, own: tuple[int, ...]) -> tuple[int, ...]:
    """A batch that broadcasts with another: the same, some sizes 1, fewer dimensions, or one more."""
    if g.chance(0.5):
        return own
    batch = tuple(1 if g.chance(0.3) else size for size in own)[int(g.random.integers(len(own) + 1)) :]
    more = len(batch) == len(own) and len(own) < 2 and g.chance(0.3)
    return (2, *batch) if more else batch


def _matmul(g: Generator) -> None:
    lhs = g.float_value(min_rank=2)
    sizes = tensor_info(lhs.type).shape
    transpose_a, transpose_b = g.chance(0.3), g.chance(0.5)
    inner = sizes[-2] if transpose_a else sizes[-1]
    columns = int(g.choice(SIZES))
    matrix = (columns, inner) if transpose_b else (inner, columns)
    batch = _batch(g, sizes[:-2])
    rhs = g.argument((*batch, *matrix), "param")
    if g.chance(0.3):
        order = [*range(len(batch)), len(batch) + 1, len(batch)]
        rhs = g.require(logical.TransposeOp(rhs, order))
        transpose_b = not transpose_b
    g.add(logical.MatmulOp(lhs, rhs, transpose_a=transpose_a, transpose_b=transpose_b))


def _linear(g: Generator) -> None:
    x = g.float_value(min_rank=1)
    outputs = int(g.choice(SIZES))
    weight = g.argument((outputs, tensor_info(x.type).shape[-1]), "param")
    bias = g.argument((outputs,), "param") if g.chance(0.7) else None
    g.add(logical.LinearOp(x, weight, bias))


STEPS = (_matmul, _matmul, _linear, _linear)
