"""Random training steps compiled for this machine against the reference: losses, parameters, states and the counter."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from tests.gpu.programs import arguments
from tests.support.random_training import random_training_program

TOLERANCE = {"f64": 1e-10, "f32": 2e-4}


@pytest.mark.parametrize(
    ("seed", "dtype"), [(1, "f32"), (9, "f32"), (10, "f64"), (14, "f32"), (17, "f32"), (24, "f32")]
)
def test_two_steps(seed: int, dtype: str) -> None:
    made = random_training_program(seed, float_type=dtype, steps=5)
    given = {name for name, role, _ in arguments(made.module) if role == "input"}
    inputs = {name: made.inputs[name] for name in given}
    weights = {name: array for name, array in made.inputs.items() if name not in given}
    wanted, found = (aicf.compile(made.module.clone(), weights, target) for target in ("reference", "cpu"))
    for _ in range(2):
        losses = found.run(inputs)["loss"], wanted.run(inputs)["loss"]
        np.testing.assert_allclose(*losses, rtol=TOLERANCE[dtype])
    state = wanted.state()
    assert state["step"] == weights["step"] + 2
    for name, value in found.state().items():
        np.testing.assert_allclose(
            value, state[name], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], err_msg=name
        )
