"""Steps of optimizers as arithmetic give what their definition does; counters and schedules too."""

from __future__ import annotations

import math

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from aicf.dialects import logical
from aicf.dialects.types import tensor
from aicf.frontends.text import verify_module
from aicf.passes.legalize.lower_logical import LowerLogicalPass
from aicf.passes.training.lower_optimizers import LowerOptimizersPass
from tests.support.optimizer_programs import CASES, SHAPE, program, run, trajectory


@pytest.mark.parametrize("name", CASES)
def test_same_trajectory(name: str) -> None:
    case, random = CASES[name], np.random.default_rng(1)
    baseline = program(case, "f64")
    lowered = baseline.clone()
    LowerOptimizersPass().apply(Context(), lowered)
    LowerLogicalPass().apply(Context(), lowered)
    verify_module(lowered)
    assert not any(isinstance(op, logical.OptimizerOp) for op in lowered.walk())
    gradients = [random.normal(size=SHAPE) for _ in range(5)]
    start = random.normal(size=SHAPE)
    wanted = trajectory(baseline, case, gradients, start, 0.05, "exact")
    found = trajectory(lowered, case, gradients, start, 0.05, "exact")
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def _of_step(op: logical.LogicalOp, block: Block) -> ModuleOp:
    block.add_op(op)
    block.add_op(ReturnOp(op))
    types = [argument.type for argument in block.args], [op.result.type]
    return ModuleOp([FuncOp("of_step", types, Region(block))])


RATES = {
    "constant": ({"warmup": 4}, lambda n: 0.5 * min(n / 4, 1)),
    "linear": ({"total": 10, "final": 0.1}, lambda n: 0.5 - 0.4 * min((n - 1) / 10, 1)),
    "cosine": (
        {"warmup": 3, "total": 11},
        lambda n: 0.5 * n / 3 if n <= 3 else 0.25 * (1 + math.cos(math.pi * min((n - 4) / 8, 1))),
    ),
}


@pytest.mark.parametrize("schedule", RATES)
def test_schedules(schedule: logical.Schedule) -> None:
    options, wanted = RATES[schedule]
    block = Block(arg_types=[tensor([], "i64")])
    module = _of_step(logical.LearningRateOp(block.args[0], schedule, 0.5, element="f64", **options), block)
    lowered = module.clone()
    LowerLogicalPass().apply(Context(), lowered)
    for number in range(1, 15):
        for program_ in (module, lowered):
            (found,) = run(program_, [np.array(number)])
            assert float(found) == pytest.approx(wanted(number), rel=1e-14, abs=1e-16), (schedule, number)


@pytest.mark.parametrize("beta", [0.0, 0.9, 0.999])
def test_bias_correction_of_f32_cancels_nothing(beta: float) -> None:
    block = Block(arg_types=[tensor([], "i64")])
    module = _of_step(logical.BiasCorrOp(block.args[0], beta), block)
    LowerLogicalPass().apply(Context(), module)
    for number in (1, 2, 1000, 10**6):
        (found,) = run(module, [np.array(number)], "typed")
        assert float(found) == pytest.approx(-math.expm1(number * math.log(beta)) if beta else 1.0, rel=1e-6)
