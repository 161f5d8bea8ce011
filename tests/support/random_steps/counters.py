"""Steps that add counters and what follows from them: one number each, which scales a value so that others go on."""

from collections.abc import Callable

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps.generator import Generator


def _of_step(g: Generator) -> None:
    given = g.require(logical.ClampOp(g.argument((), "input", "i64"), 0, None))
    step, element = g.require(logical.StepIncOp(given)), g.choice(("f32", "f64"))
    schedule, warmup = g.choice(logical.SCHEDULES), int(g.choice((0, 2)))
    makers: tuple[Callable[[], logical.LogicalOp], ...] = (
        lambda: logical.BiasCorrOp(step, g.choice((0.0, 0.9, 0.99)), element),
        lambda: logical.LearningRateOp(step, schedule, 0.5, warmup, 4, 0.125, element),
        lambda: logical.StepRateOp(step, 0.5, 0.25, warmup, 3, (), element),
        lambda: logical.StepRateOp(step, 0.5, 0.25, warmup, 0, (2, 4), element),
        lambda: logical.OneCycleRateOp(step, g.choice(logical.ANNEALS), 0.125, 0.5, 0.0625, 2.5, 6, element),
    )
    _scaled(g, g.require(g.choice(makers)()))


def _scaled(g: Generator, number: SSAValue) -> None:
    x = g.float_value()
    if tensor_info(number.type).element.name != g.float_type:
        number = g.require(logical.CastOp(number, g.float_type))
    shape = tensor_info(x.type).shape
    spread = g.require(logical.BroadcastOp(number, (), shape)) if shape else number
    g.add(logical.MulOp(x, spread))


STEPS = (_of_step,)
