"""Steps of optimizers beside `torch.optim`, states included, f64 over 200 steps, f32 over 20; rates; clipping."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.ir import Block

from aicf.dialects import logical
from aicf.dialects.types import tensor
from aicf.frontends.builder import Graph
from aicf.passes.legalize.lower_logical import LowerLogicalPass
from aicf.passes.training.lower_optimizers import LowerOptimizersPass
from aicf.semantics import evaluate
from tests.support.optimizer_programs import CASES, SHAPE, Case, program, trajectory
from tests.support.random_graphs import run_program

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers

STATES = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")


def _optimizer(case: Case, name: str, parameter: Any, rate: float) -> Any:
    options: dict[str, Any] = dict(case.options)
    if name.startswith("adam") or name == "amsgrad":
        options["betas"] = (options.pop("beta1", 0.9), options.pop("beta2", 0.999))
        options["eps"] = options.pop("epsilon", 1e-8)
        options.setdefault("weight_decay", 0.0)
        kind: Mapping[bool, Callable[..., Any]] = {True: torch.optim.AdamW, False: torch.optim.Adam}
        return kind[name.startswith("adamw")]([parameter], lr=rate, **options)
    return torch.optim.SGD([parameter], lr=rate, **options)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "steps", "tolerance"), [("f64", 200, 1e-9), ("f32", 20, 1e-4)])
def test_same_trajectory(name: str, dtype: str, steps: int, tolerance: float) -> None:
    case, random = CASES[name], np.random.default_rng(2)
    numpy_dtype = np.float64 if dtype == "f64" else np.float32
    gradients = [random.normal(size=SHAPE).astype(numpy_dtype) for _ in range(steps)]
    start = random.normal(size=SHAPE).astype(numpy_dtype)
    module = program(case, dtype)
    LowerOptimizersPass().apply(Context(), module)
    found = trajectory(module, case, gradients, start, 0.01, "typed")

    parameter = torch.tensor(start.copy(), requires_grad=True)
    optimizer = _optimizer(case, name, parameter, 0.01)
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    states = optimizer.state[parameter]
    wanted = [
        parameter.detach().numpy(),
        *(states[key].numpy() for key in STATES if states.get(key) is not None),
    ]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * 1e-3)


def test_rates_are_those_of_their_schedulers() -> None:
    """A warm-up, then half a wave, by two schedulers one after the other."""
    base, final, warmup, total = 0.5, 0.125, 4, 12
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base)
    schedulers = torch.optim.lr_scheduler
    scheduler = schedulers.SequentialLR(
        optimizer,
        [
            schedulers.LinearLR(optimizer, 1 / warmup, total_iters=warmup - 1),
            schedulers.CosineAnnealingLR(optimizer, total - warmup, final),
        ],
        [warmup],
    )
    op = logical.LearningRateOp(
        Block(arg_types=[tensor([], "i64")]).args[0], "cosine", base, warmup, total, final, "f64"
    )
    for step in range(1, total + 1):
        (rate,) = evaluate(op, [np.array(step)], "exact")
        assert float(rate) == pytest.approx(scheduler.get_last_lr()[0], rel=1e-12), step
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize(("dtype", "tolerance"), [("f64", 1e-12), ("f32", 1e-6)])
@pytest.mark.parametrize("bound", [0.5, 100.0])
def test_same_clipped_gradients(dtype: str, tolerance: float, bound: float) -> None:
    g, random = Graph("clip"), np.random.default_rng(3)
    shapes = {"a": (5, 7), "b": (), "c": (3,)}
    values = {name: g.input(name, shape, dtype) for name, shape in shapes.items()}
    norm = g.global_norm(list(values.values()))
    factor = g.clip_factor(norm, bound)
    g.output(norm, "norm")
    for name, value in values.items():
        g.output(value * factor, f"{name}'")
    arrays = {
        name: np.asarray(random.normal(size=shape)).astype(norm.info.element.dtype)
        for name, shape in shapes.items()
    }
    module = g.module()
    LowerLogicalPass().apply(Context(), module)
    found = run_program(module, arrays, "typed")

    parameters = [
        torch.zeros(shape, dtype=torch.tensor(arrays[name]).dtype) for name, shape in shapes.items()
    ]
    for parameter, name in zip(parameters, shapes, strict=True):
        parameter.grad = torch.tensor(arrays[name])
    total = torch.nn.utils.clip_grad_norm_(parameters, bound)
    np.testing.assert_allclose(found["norm"], total.numpy(), rtol=tolerance)
    for parameter, name in zip(parameters, shapes, strict=True):
        np.testing.assert_allclose(found[f"{name}'"], parameter.grad.numpy(), rtol=tolerance)
