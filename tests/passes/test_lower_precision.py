"""What `lower-precision` computes, against NumPy: rounding to integers in float64 and to bf16 in ml_dtypes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aicf
from aicf.errors import PolicyError
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import code_units

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(6, 16)).astype(np.float32)
WEIGHTS = {
    "fc1.weight": RANDOM.normal(size=(8, 16)).astype(np.float32),
    "fc2.weight": RANDOM.normal(size=(8, 16)).astype(np.float32),
    "bias": RANDOM.normal(size=8).astype(np.float32),
}
FC1, FC2, BIAS = WEIGHTS["fc1.weight"], WEIGHTS["fc2.weight"], WEIGHTS["bias"]


def two(rows: int | str = 6) -> Graph:
    """Two products that read one input."""
    g = Graph("two")
    x = g.input("x", (rows, 16))
    first = g.relu(g.linear(x, g.param("fc1.weight", (8, 16)), g.param("bias", (8,)), name="fc1"))
    second = g.linear(x, g.param("fc2.weight", (8, 16)), name="fc2")
    g.output(first + second, "y")
    return g


def compiled(precision: Mapping[str, Any], rows: int | str = 6, **options: Any) -> aicf.CompiledModel:
    policy = {"precision": precision, "kernel": {"rounding": "strict"}}
    return aicf.compile(two(rows), WEIGHTS, "reference", policy=policy, **options)


def on_grid(value: np.ndarray, low: float, high: float, *, symmetric: bool = False) -> np.ndarray:
    """A value rounded to integers of 8 bits, in float64. Source: Jacob et al., 2018."""
    if symmetric:
        scale = max(-low, high) / 127
        return np.clip(np.rint(value / scale), -128, 127) * scale
    scale = (max(high, 0.0) - min(low, 0.0)) / 255
    zero = np.rint(-min(low, 0.0) / scale)
    return (np.clip(np.rint(value / scale) + zero, 0, 255) - zero) * scale


def weight_on_grid(weight: np.ndarray, axis: int = 1) -> np.ndarray:
    """Each output channel with a scale of its own, 127 steps to its largest magnitude."""
    scale = np.abs(weight.astype(np.float64)).max(axis=axis, keepdims=True) / 127
    return np.rint(weight / scale) * scale


@pytest.mark.parametrize("symmetric", [False, True])
def test_products_of_integers_are_those_of_rounded_factors(symmetric: bool):
    x1, x2 = on_grid(X, -2, 3, symmetric=symmetric), on_grid(X, -1, 1.2, symmetric=symmetric)
    expected = np.maximum(x1 @ weight_on_grid(FC1).T + BIAS, 0) + x2 @ weight_on_grid(FC2).T
    activations = "symmetric" if symmetric else "asymmetric"
    ranges = {"fc1": [[-2, 3]], "fc2": [[-1, 1.2]]}
    y = compiled({"to": "int8", "ranges": ranges, "activations": activations})(X)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def in_float8(value: np.ndarray, low: float, high: float) -> np.ndarray:
    """A value rounded to f8E4M3FN, whose largest number is the end of the range, in float64."""
    scale = np.float32(max(-low, high) / 448)
    steps = np.clip(value * (np.float32(1) / scale), -448, 448).astype(np.float32)
    return steps.astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * scale


def weight_in_float8(weight: np.ndarray, axis: int = 1) -> np.ndarray:
    scale = np.abs(weight).max(axis=axis, keepdims=True) / np.float32(448)
    return (weight / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * scale


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_products_of_floats_of_8_bits_are_those_of_rounded_factors(target: str):
    """What is outside of a range becomes its end; one product is left in f32."""
    x1 = in_float8(X, -0.7, 1.9)
    expected = np.maximum(x1 @ weight_in_float8(FC1).T + BIAS, 0) + X @ FC2.T
    precision = {"to": "fp8", "ops": {"fc2": "f32"}, "ranges": {"fc1": [[-0.7, 1.9]]}}
    y = aicf.compile(two(), WEIGHTS, target, policy={"precision": precision})(X)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(x1).max() == pytest.approx(1.9, rel=1e-6)


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_89"])
def test_tensor_cores_multiply_what_is_stored(target: str):
    """Of layers that are large enough."""
    g = Graph("layers")
    h = g.relu(
        g.linear(g.input("x", (512, 1024)), g.param("w", (2048, 1024)), g.param("b", (2048,)), name="up")
    )
    g.output(g.linear(h, g.param("v", (1024, 2048)), name="down"), "y")
    module = g.module()
    ranges = {"up": [[-4.0, 4.0]], "down": [[0.0, 9.0]]}
    policy = json.dumps({"precision": {"to": "fp8", "rest": "f16", "ranges": ranges}})
    AicfInferencePass(target, policy=policy).apply(make_context(), module)
    kernels = [launch.kernel for unit in code_units(module) for launch in unit.launches]
    assert sum(kernel.endswith("_fp8") for kernel in kernels) == 2


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(("rest", "dtype"), [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_the_rest_is_narrow_behind_products_of_8_bits(rest: str, dtype: Any, target: str):
    """Sums are f32; what is stored between ops is not."""

    def narrow(value: np.ndarray) -> np.ndarray:
        return value.astype(np.float32).astype(dtype).astype(np.float64)

    ranges = {"fc1": [[-2, 3]], "fc2": [[-1, 1.2]]}
    first = np.maximum(narrow(on_grid(X, -2, 3) @ weight_on_grid(FC1).T + BIAS), 0)
    expected = narrow(first + narrow(on_grid(X, -1, 1.2) @ weight_on_grid(FC2).T))
    policy = {"precision": {"to": "int8", "rest": rest, "ranges": ranges}, "kernel": {"rounding": "strict"}}
    exe = aicf.compile(two(), WEIGHTS, target, policy=policy)
    steps = {"bf16": 2**-8, "f16": 2**-11}[rest]
    np.testing.assert_allclose(exe(X), expected, rtol=4 * steps, atol=8 * steps)
    np.testing.assert_array_equal(exe(X), narrow(np.asarray(exe(X))))
    lowered = {
        name: each.choice
        for each in exe.decisions
        if each.made_by == "lower-precision"
        for name in each.subjects
    }
    assert lowered["fc1"] == "int8: u8 by i8" and lowered["relu0"] == rest


def test_convolutions_are_not_of_floats_of_8_bits():
    """They are the rest; a policy that lists one is refused."""
    g = Graph("convolution")
    x = g.input("x", (1, 4, 5, 5))
    g.output(g.conv(x, g.param("w", (4, 4, 3, 3)), name="c"), "y")
    weights = {"w": RANDOM.normal(size=(4, 4, 3, 3)).astype(np.float32)}
    for rest, choice in (("f32", "stays f32"), ("f16", "f16")):
        exe = aicf.compile(g, weights, "reference", policy={"precision": {"to": "fp8", "rest": rest}})
        (decision,) = (each for each in exe.decisions if each.made_by == "lower-precision")
        assert (decision.subjects, decision.choice) == (("c",), choice)
    with pytest.raises(
        PolicyError, match=r"ops.c: no product of f32, other than a convolution, that depends"
    ):
        aicf.compile(g, weights, "reference", policy={"ops": {"c": "fp8"}})


def test_smoothing_and_corrections():
    smoothing, corrections = RANDOM.uniform(0.5, 2, 16), RANDOM.normal(size=8)
    x1 = on_grid(X / smoothing, -3, 3.1)
    first = x1 @ weight_on_grid(FC1 * smoothing).T + BIAS + corrections
    expected = np.maximum(first, 0) + X @ FC2.T
    y = compiled(
        {
            "to": "int8",
            "ops": {"fc2": "f32"},
            "ranges": {"fc1": [[-3, 3.1]]},
            "smoothing": {"fc1": smoothing.tolist()},
            "corrections": {"fc1": corrections.tolist()},
        }
    )(X)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_what_is_outside_a_range_becomes_its_end():
    y = compiled({"to": "int8", "ops": {"fc2": "f32"}, "ranges": {"fc1": [[-0.5, 0.6]]}})(X)
    expected = np.maximum(on_grid(X, -0.5, 0.6) @ weight_on_grid(FC1).T + BIAS, 0) + X @ FC2.T
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(on_grid(X, -0.5, 0.6)).max() < 0.61


@pytest.mark.parametrize(("to", "dtype"), [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_narrow_floats_are_rounded_after_each_op(to: str, dtype: Any):
    def narrow(value: np.ndarray) -> np.ndarray:
        return value.astype(np.float32).astype(dtype).astype(np.float64)

    first = np.maximum(narrow(narrow(X) @ narrow(FC1).T + narrow(BIAS)), 0)
    expected = narrow(first + narrow(narrow(X) @ narrow(FC2).T))
    y = compiled({"to": to})(X)
    steps = {"bf16": 2**-8, "f16": 2**-11}[to]
    np.testing.assert_allclose(y, expected, rtol=4 * steps, atol=8 * steps)
    assert np.abs(y - narrow(y)).max() == 0


def test_an_operand_of_two_products_is_rounded_once():
    same = {"fc1": [[-2, 2]], "fc2": [[-2, 2]]}
    assert "fc2.lhs.quantized" not in compiled({"to": "int8", "ranges": same}).ir("lower-precision")
    factors = {"fc1": [2.0] * 16, "fc2": [2.0] * 16}
    alike = compiled({"to": "int8", "ranges": same, "smoothing": factors})
    assert "fc2.lhs.quantized" not in alike.ir("lower-precision")
    apart = compiled({"to": "int8", "ranges": {**same, "fc2": [[-3, 3]]}})
    assert "fc2.lhs.quantized" in apart.ir("lower-precision")


@pytest.mark.parametrize(
    "precision", [{"to": "bf16"}, {"to": "int8", "ranges": {"fc1": [[-2, 2]], "fc2": [[-2, 2]]}}]
)
def test_one_policy_is_for_all_buckets(precision: dict[str, Any]):
    exe = compiled(precision, "N", dims="N=2,6")
    np.testing.assert_allclose(exe(X)[:2], exe(X[:2]), rtol=1e-6)
    np.testing.assert_array_equal(exe(X), compiled(precision)(X))


def test_a_weight_on_the_left_has_its_channels_in_rows():
    g = Graph("left")
    x = g.input("x", (16, 5))
    g.output(g.matmul(g.param("w", (8, 16)), x, name="m"), "y")
    policy = {
        "to": "int8",
        "ranges": {"m": [[-3, 3.1]]},
        "corrections": {"m": list(range(8))},
        "rounding": "strict",
    }
    x16 = RANDOM.normal(size=(16, 5)).astype(np.float32)
    y = aicf.compile(g, {"w": FC1}, "reference", policy=policy)(x16)
    expected = weight_on_grid(FC1) @ on_grid(x16, -3, 3.1) + np.arange(8)[:, None]
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_reshapes_of_narrow_values_are_narrow():
    g = Graph("views")
    x = g.input("x", (6, 16))
    y = g.linear(x, g.param("fc1.weight", (8, 16)), name="fc1")
    g.output(g.relu(g.reshape(y, (6, 2, 4))), "y")
    exe = aicf.compile(g, {"fc1.weight": FC1}, "reference", policy={"to": "f16"})
    lowered = [each for each in exe.decisions if each.made_by == "lower-precision"]
    assert [(each.subjects, each.choice) for each in lowered] == [(("fc1", "relu0", "reshape0"), "f16")]


RANGES = {"fc1": [[-1, 1]], "fc2": [[-1, 1]]}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"to": "int8"}, "ranges.fc1: a product of 8 bits needs the range of its operand; run aicf calibrate"),
    ({"to": "int8", "ranges": {**RANGES, "fc1": [[0, 1], [0, 1]]}}, "ranges.fc1: 2 ranges for 1 operands"),
    (
        {"to": "int8", "ranges": {**RANGES, "fc3": [[0, 1]]}},
        "ranges.fc3: no product has this id; did you mean",
    ),
    ({"to": "int8", "ranges": RANGES, "ops": {"fc9": "f32"}}, "ops.fc9: no op has this id; did you mean"),
    (
        {"ops": {"relu0": "int8"}},
        "ops.relu0: no product of f32 that depends on an input; only those become int8",
    ),
    (
        {"to": "int8", "ranges": RANGES, "smoothing": {"fc1": [1.0]}},
        "smoothing.fc1: 1 numbers for 16 channels",
    ),
    (
        {"to": "int8", "ranges": RANGES, "corrections": {"fc1": [1.0]}},
        "corrections.fc1: 1 numbers for 8 channels",
    ),
    (
        {"to": "int8", "ranges": RANGES, "method": "entropy"},
        "method: a request to calibration, which needs sample",
    ),
    (
        {"to": "bf16", "keep": {"metric": "top1", "loss": "0.5 %"}},
        "keep: a request to calibration, which needs sample inputs; run aicf calibrate MODEL SAMPLES",
    ),
]


@pytest.mark.parametrize(("precision", "message"), WRONG)
def test_errors_name_the_op(precision: dict[str, Any], message: str):
    with pytest.raises(PolicyError) as error:
        compiled(precision)
    assert error.value.message.startswith(message)


def test_smoothing_needs_a_weight_that_adds_up_all_channels():
    g = Graph("groups")
    x = g.input("x", (1, 4, 5, 5))
    g.output(g.conv(x, g.param("w", (4, 1, 3, 3)), groups=4, name="c"), "y")
    policy = {"to": "int8", "ranges": {"c": [[0, 1]]}, "smoothing": {"c": [1.0] * 4}}
    with pytest.raises(PolicyError, match="smoothing.c: the op is no product of a weight"):
        aicf.compile(g, {"w": np.ones((4, 1, 3, 3), np.float32)}, "reference", policy=policy)


def test_what_a_program_is_lowered_by_is_named():
    exe = compiled({"packed_activations": "int8"})
    with pytest.raises(PolicyError, match="precision: the program is lowered by packed_activations already"):
        aicf.compile(exe.ir("lowered"), WEIGHTS, policy={"to": "f16"})


def test_nothing_is_lowered_where_nothing_would_follow():
    with pytest.raises(PolicyError, match="precision: a training step computes as it is written"):
        aicf.train_step(two(), "mse", aicf.optimizers.SGD(0.1), target="reference", policy={"to": "bf16"})
    exe = compiled({"to": "bf16"})
    with pytest.raises(PolicyError, match="policy= has no effect on an emit program"):
        aicf.compile(exe.ir("emit"), WEIGHTS, policy={"to": "bf16"})
    groups = exe.ir("fuse-elementwise")
    with pytest.raises(PolicyError, match="precision: the program is lowered to bf16 already"):
        aicf.compile(groups, WEIGHTS, policy={"to": "f16"})
    plain = compiled({}).ir("fuse-elementwise")
    with pytest.raises(PolicyError, match="precision: the program has groups or instructions"):
        aicf.compile(plain, WEIGHTS, policy={"to": "f16"})


def test_a_lowered_program_is_not_lowered_again():
    exe = compiled({"to": "bf16"})
    again = aicf.compile(exe.ir("lowered"), WEIGHTS, policy={"to": "bf16"})
    np.testing.assert_array_equal(again(X), exe(X))
    with pytest.raises(PolicyError, match="precision: the program is lowered to bf16 already"):
        aicf.compile(exe.ir("lowered"), WEIGHTS, policy={"to": "f16"})
