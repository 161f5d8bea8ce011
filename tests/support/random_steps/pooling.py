"""Steps that add poolings."""

from typing import Any

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps.generator import Generator


def _windows(g: Generator, whole: int) -> tuple[int, int, int, int, int]:
    """Size, stride, dilation and padding along a dimension; each window finds something."""
    size = int(g.random.integers(1, min(whole, 3) + 1))
    dilation = int(g.choice((1, 1, 2))) if 2 * (size - 1) < whole else 1
    reach = (size - 1) * dilation // 2
    low, high = (int(g.random.integers(0, reach + 1)) for _ in range(2))
    return size, int(g.choice((1, 1, 2))), dilation, low, high


def _lists(g: Generator, shape: tuple[int, ...]) -> dict[str, Any]:
    names = ("sizes", "strides", "dilations", "low", "high")
    along = zip(*(_windows(g, whole) for whole in shape[2:]), strict=True)
    return {**dict(zip(names, along, strict=True)), "ceil_mode": g.chance(0.3)}


def _pool(g: Generator) -> None:
    """The largest, the mean or the norm of windows of a recent value, or of a new one of two spatial dimensions."""
    x = g.float_value(min_rank=1)
    if tensor_info(x.type).rank < 3:
        x = g.argument(g.shape(4), "input")
    windows = _lists(g, tensor_info(x.type).shape)
    match g.choice(("max", "avg", "lp")):
        case "max":
            g.add(logical.MaxPoolOp(x, **windows))
        case "avg":
            g.add(logical.AvgPoolOp(x, **windows, count_include_pad=g.chance(0.5)))
        case _:
            g.add(logical.LpPoolOp(x, p=g.choice((1, 2)), **windows))


def _max_pool_indices(g: Generator) -> None:
    """Where the largest integers are, as numbers so that later steps go on with them."""
    x = g.argument(g.shape(3), "input", g.choice(g.integers))
    windows = _lists(g, tensor_info(x.type).shape)
    g.add(logical.CastOp(g.require(logical.MaxPoolIndicesOp(x, **windows)), g.float_type))


def _max_pool_grad(g: Generator) -> None:
    """What a pooling of integers passes back; their maxima are the same whatever is rounded."""
    x = g.argument(g.shape(4), "input", g.choice(g.integers))
    whole = tensor_info(x.type).shape
    windows = _lists(g, whole)
    taps = g.require(logical.MaxPoolTapsOp(g.require(logical.CastOp(x, g.float_type)), **windows))
    grad = g.argument(tensor_info(taps.type).shape, "input")
    of_grad = {name: windows[name] for name in ("sizes", "strides", "dilations", "low")}
    g.add(logical.MaxPoolGradOp(taps, grad, whole[2:], **of_grad))


STEPS = (_pool, _max_pool_indices, _max_pool_grad)
