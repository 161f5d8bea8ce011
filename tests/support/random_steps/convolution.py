"""Steps that add convolutions."""

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps.generator import Generator


def _conv(g: Generator) -> None:
    """A convolution of a value of rank 3 or 4, and now and then its transpose or the gradient of a weight."""
    x = g.float_value(min_rank=3)
    shape = tensor_info(x.type).shape
    rank = len(shape) - 2
    if rank > 2:
        return
    groups = int(g.choice([count for count in (1, 1, 2, shape[1]) if shape[1] % count == 0]))
    outputs = groups * int(g.random.integers(1, 4))
    taps = [int(g.random.integers(1, 4)) for _ in range(rank)]
    low, high = ([int(g.random.integers(0, 2)) for _ in range(rank)] for _ in range(2))
    strides = [int(g.choice((1, 1, 2))) for _ in range(rank)]
    lists = {"strides": strides, "low": low, "high": high, "dilations": [int(g.choice((1, 1, 2)))] * rank}
    if g.chance(0.2):
        del lists["high"]
        counts = [int(g.random.integers(1, 4)) for _ in range(rank)]
        grad = g.argument((shape[0], outputs, *counts), "param")
        g.add(logical.ConvWeightGradOp(x, grad, taps, **lists, groups=groups))
        return
    bias = g.argument((outputs,), "param") if g.chance(0.5) else None
    if g.chance(0.3):
        weight = g.argument((shape[1], outputs // groups, *taps), "param")
        g.add(logical.ConvTransposeOp(x, weight, bias, **lists, extra=[0] * rank, groups=groups))
    else:
        weight = g.argument((outputs, shape[1] // groups, *taps), "param")
        g.add(logical.ConvOp(x, weight, bias, **lists, groups=groups))


STEPS = (_conv,)
