"""Steps that add losses: of a value and another of its type, and of classes."""

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps.generator import Generator


def _of_pairs(g: Generator) -> None:
    x = g.float_value()
    target, reduction = g.like(x), g.choice(logical.REDUCTIONS)
    makers = (
        lambda: logical.MseLossOp(x, target, reduction),
        lambda: logical.HuberLossOp(x, target, reduction, g.choice((1.0, 0.25))),
        lambda: logical.BceWithLogitsOp(x, g.require(logical.SigmoidOp(target)), reduction),
    )
    g.add(g.choice(makers)())


def _cross_entropy(g: Generator) -> None:
    """Of labels that are classes; one of them is ignored in some programs, perhaps all of them."""
    x = g.float_value(min_rank=1)
    shape = tensor_info(x.type).shape
    axis = int(g.random.integers(len(shape)))
    labels = _labels(g, [size for dim, size in enumerate(shape) if dim != axis], shape[axis])
    reduction, ignored = g.choice(logical.REDUCTIONS), g.choice((logical.IGNORE_INDEX, 0))
    g.add(logical.CrossEntropyOp(x, labels, axis, reduction, ignored, g.choice((0.0, 0.1))))


def _labels(g: Generator, shape: list[int], classes: int) -> SSAValue:
    whole = g.argument(shape, "input", g.choice(("i32", "i64")))
    count = g.require(logical.ConstantOp(classes, whole.type))
    return g.require(logical.ModOp(whole, count))


STEPS = (_of_pairs, _cross_entropy)
