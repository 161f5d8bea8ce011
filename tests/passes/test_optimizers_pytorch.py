"""Steps of optimizers beside `torch.optim`, states included: f64 over 200 steps, f32 over 20."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context

from aicf.passes.lower_optimizers import LowerOptimizersPass
from tests.support.optimizer_programs import CASES, SHAPE, Case, program, trajectory

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
