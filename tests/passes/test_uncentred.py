"""Products of integers less zero points read the integers as they are stored, and give the same sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.passes.test_narrow_products import LEVELS, Array, Model, choices_of, run


def product(
    zero: int, dtype: str, shape: tuple[int, ...] = (2, 5, 257), columns: int = 33
) -> tuple[Model, Array]:
    """MatMulInteger of an input with a zero point and a weight, and its exact result."""
    model = Model(3)
    x = model.input("x_q", shape, dtype)
    z = model.weight("x_z", np.asarray(zero, dtype))
    w = model.quantised("w_q", (shape[-1], columns))
    model.add("MatMulInteger", ["x_q", "w_q", "x_z"], "y")
    return model, (x.astype(np.int64) - int(z)) @ w


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 255), ("uint8", 3), ("int8", -128), ("int8", 127)])
def test_sums_are_exact(dtype: str, zero: int, level: str) -> None:
    model, exact = product(zero, dtype)
    exe, (got,) = run(model, {"y": exact}, level)
    np.testing.assert_array_equal(got, exact)
    choice, because = choices_of(exe)["y"]
    assert choice == f"of integers: {dtype.replace('uint', 'u').replace('int', 'i')} and i8"
    assert because.startswith("predicted ")
    assert "xi16>" not in exe.ir("logical-dce")


@pytest.mark.parametrize("level", LEVELS)
def test_models_that_quantise_at_run_time(level: str) -> None:
    model = Model(9)
    x = model.rng.uniform(-1, 3, (21, 96)).astype(np.float32)
    model.inputs["f"] = x
    model.nodes.append(
        helper.make_node("DynamicQuantizeLinear", ["f"], ["x_q", "x_s", "x_z"], name="quantise")
    )
    w = model.quantised("w_q", (96, 40))
    model.add("MatMulInteger", ["x_q", "w_q", "x_z"], "y")
    scale = (x.max() - min(x.min(), np.float32(0))) / np.float32(255)
    zero = np.rint(-min(x.min(), np.float32(0)) / scale)
    stored = np.clip(np.rint(x / scale) + zero, 0, 255)
    exact = (stored - zero).astype(np.int64) @ w
    exe, (got,) = run(model, {"y": exact}, level)
    np.testing.assert_array_equal(got, exact)
    assert choices_of(exe)["y"][0] == "of integers: u8 and i8"


@pytest.mark.parametrize(("policy", "choice"), [("y", "i16 and i8"), ("y.integers", "u8 and i8")])
def test_a_policy_may_list_either(policy: str, choice: str) -> None:
    model, exact = product(7, "uint8")
    exe, (got,) = run(model, {"y": exact}, LEVELS[-1], policy={"groups": [[policy]]})
    np.testing.assert_array_equal(got, exact)
    assert choices_of(exe)["y"] == (f"of integers: {choice}", "the policy lists it so")


@pytest.mark.parametrize("determinism", ["bitwise", "batch_invariant"])
def test_exact_sums_depend_on_no_batch(determinism: str) -> None:
    model, exact = product(7, "uint8")
    policy: dict[str, Any] = {"determinism": determinism, "rounding": "strict"}
    exe, (got,) = run(model, {"y": exact}, LEVELS[-1], policy=policy)
    np.testing.assert_array_equal(got, exact)
    assert choices_of(exe)["y"][0] == "of integers: u8 and i8"


def test_what_follows_from_no_parameter_stays() -> None:
    """Of two inputs, the sums that a zero point needs would be computed at every call."""
    model = Model(4)
    x, w = model.input("x_q", (5, 64), "uint8"), model.input("w_q", (64, 20), "int8")
    model.weight("x_z", np.asarray(9, np.uint8))
    model.add("MatMulInteger", ["x_q", "w_q", "x_z"], "y")
    exact = (x.astype(np.int64) - 9) @ w
    exe, (got,) = run(model, {"y": exact}, LEVELS[-1])
    np.testing.assert_array_equal(got, exact)
    assert choices_of(exe) == {}
