"""`aicf.calibrate` as a whole: real data, networks that break in a known place, and the policy it gives."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

import aicf
from aicf.calibration import Calibration
from aicf.calibration.programs import Programs
from aicf.compilation.compiled import CompiledModel
from aicf.compilation.extensions import Extension
from aicf.compilation.saved_program import read_saved_program
from aicf.policies.policy import Policy
from tests.calibration.models import (
    TARGET,
    attention,
    attention_weights,
    chain,
    chain_samples,
    chain_weights,
    conv_net,
    conv_weights,
    outlier_weights,
)

WEIGHTS, SAMPLES = chain_weights(), chain_samples()

_PROGRAMS: dict[str, CompiledModel] = {}


@pytest.fixture(autouse=True, scope="module")
def calibrations_compile_a_program_once() -> Iterator[None]:
    """Of one model, policy and passes: most calibrations here start with the same two programs."""
    compile_program = Programs.compile

    def compile_once(self: Programs, policy: Policy, *added: Extension) -> CompiledModel:
        told = replace(self.options, policy=policy.to_line())
        passes = [each.text for each in (*self.passes, *added)]
        weights = {name: hashlib.sha256(array).hexdigest() for name, array in self.weights.items()}
        key = repr((str(self.source.module), told, passes, weights))
        if key not in _PROGRAMS:
            _PROGRAMS[key] = compile_program(self, policy, *added)
        return _PROGRAMS[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Programs, "compile", compile_once)
        yield
    _PROGRAMS.clear()


def calibrated(**options) -> Calibration:
    options = {"weights": WEIGHTS, "target": TARGET, **options}
    return aicf.calibrate(options.pop("model", chain()), options.pop("samples", SAMPLES), **options)


@cache
def plain() -> Calibration:
    return calibrated()


def f32_of(samples: np.ndarray, weights: dict[str, np.ndarray] = WEIGHTS) -> np.ndarray:
    value = samples.astype(np.float64)
    for number in (1, 2, 3):
        value = value @ weights[f"fc{number}.weight"].T.astype(np.float64) + weights[f"fc{number}.bias"]
        value = np.maximum(value, 0) if number < 3 else value
    return value


# Real data


@pytest.fixture(scope="module")
def digits():
    images = load_digits()
    order = np.random.default_rng(0).permutation(len(images.target))
    x, y = (images.data[order] / 16).astype(np.float32), images.target[order]
    classifier = MLPClassifier((32, 16), random_state=0, max_iter=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(x[:1200], y[:1200])
    weights = {}
    for number, (matrix, bias) in enumerate(zip(classifier.coefs_, classifier.intercepts_, strict=True), 1):
        weights[f"fc{number}.weight"] = np.ascontiguousarray(matrix.T).astype(np.float32)
        weights[f"fc{number}.bias"] = bias.astype(np.float32)
    model = chain((64, 32, 16, 10))
    return model, weights, x, y, aicf.compile(model, weights, "cpu", dims="N=597")


@pytest.mark.parametrize(
    ("to", "rest", "most"),
    [
        ("int8", None, 0.02),
        ("bf16", None, 0.02),
        ("fp8", None, 0.08),
        ("int8", "f16", 0.02),
        ("fp8", "bf16", 0.08),
    ],
)
def test_digits_lose_little(digits, to: str, rest: str | None, most: float):
    model, weights, x, y, f32 = digits
    found = aicf.calibrate(model, x[:200], to=to, rest=rest, labels=y[:200], weights=weights, target="cpu")
    exe = aicf.compile(model, weights, "cpu", dims="N=597", policy=found.policy)
    right = {
        name: (each(x[1200:]).argmax(1) == y[1200:]).mean() for name, each in [("f32", f32), ("low", exe)]
    }
    assert right["f32"] > 0.9 and abs(right["low"] - right["f32"]) <= most / 2
    assert found.report.top1 is not None
    assert found.report.top1.f32 == (f32_digits(weights, x[:200]).argmax(1) == y[:200]).mean()
    error = np.sqrt(np.mean((exe(x[1200:]) - f32(x[1200:])) ** 2) / np.mean(f32(x[1200:]) ** 2))
    assert 0 < error < most and found.report.outputs[0].relative_error == pytest.approx(error, rel=0.5)


def test_the_rest_is_said_and_kept():
    """In the policy, in the report, and in the program that is saved."""
    found = calibrated(to="fp8", rest="f16")
    precision = found.policy.precision
    assert (precision.to, precision.rest) == ("fp8", "f16")
    assert {each.op: each.precision for each in found.report.ops} == {
        **dict.fromkeys(("fc1", "fc2", "fc3"), "fp8"),
        **{each.op: "f16" for each in found.report.ops if not each.op.startswith("fc")},
    }
    assert "ops in fp8 and f16 by minmax" in str(found.report)
    assert len(found.report.ops) > 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "bf16", "rest": "f16"}, "rest: bf16 leaves no rest; it goes with to: int8 or fp8"),
        ({"to": "fp8", "rest": "int8"}, "rest: 'int8' is not legal; legal: f32, bf16, f16"),
        ({"to": "fp8", "method": "entropy"}, "method: entropy is about integers, and the model becomes fp8"),
    ],
)
def test_what_does_not_go_with_8_bits(options: dict[str, str], message: str):
    with pytest.raises(aicf.PolicyError) as error:
        calibrated(**options)
    assert message in error.value.message


def f32_digits(weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    return f32_of(x, weights)


# What is reported


def test_the_report_is_of_the_compiled_program():
    found = plain()
    exe = aicf.compile(chain(), WEIGHTS, TARGET, dims="N=32", policy=found.policy)
    y = np.concatenate([exe(SAMPLES[:32]), exe(SAMPLES[32:])])
    expected = f32_of(SAMPLES)
    (output,) = found.report.outputs
    assert output.relative_error == pytest.approx(
        np.sqrt(np.mean((y - expected) ** 2) / np.mean(expected**2)), rel=1e-3
    )
    assert output.largest == pytest.approx(np.abs(y - expected).max(), rel=1e-3)
    assert output.agreement == (y.argmax(1) == expected.argmax(1)).mean()
    assert found.report.probe_error == pytest.approx(output.relative_error, rel=0.02)
    assert [each.op for each in found.report.ops] == ["fc1", "fc2", "fc3"] and not found.report.kept


@pytest.mark.parametrize("to", ["int8", "f16"])
def test_an_op_alone_costs_what_it_costs_in_a_program_of_its_own(to: str):
    found = calibrated(to=to)
    error = {each.op: each.relative_error for each in found.report.ops}["fc2"]
    section = found.policy.precision
    others = {each.op: "f32" for each in found.report.ops if each.op != "fc2"}
    alone = aicf.Policy(precision=aicf.PrecisionPolicy(to=to, ranges=section.ranges, ops=others))
    exe = aicf.compile(chain(rows=64), WEIGHTS, TARGET, policy=alone)
    expected = f32_of(SAMPLES)
    own = np.sqrt(np.mean((exe(SAMPLES) - expected) ** 2) / np.mean(expected**2))
    assert own == pytest.approx(error, rel=0.05)


def test_same_samples_same_bytes(tmp_path: Path):
    for name in ("a.yaml", "b.yaml"):
        _PROGRAMS.clear()
        calibrated(method="percentile", smooth=0.5, correct_bias=True, keep="error=0.4%").save(
            tmp_path / name
        )
    assert (tmp_path / "a.yaml").read_bytes() == (tmp_path / "b.yaml").read_bytes()


def test_the_file_is_the_policy(tmp_path: Path):
    found = calibrated(
        smooth=0.5, correct_bias=True, policy={"streams": 1, "to": "int8", "ops": {"fc1": "f32"}}
    )
    for name in ("p.yaml", "p.json"):
        found.save(tmp_path / name)
        assert aicf.Policy.load(tmp_path / name) == found.policy
    assert found.policy.execution.streams == 1 and found.policy.precision.ops == {"fc1": "f32"}


def test_the_program_has_the_policy_and_extract_gives_it_back(tmp_path: Path):
    found = calibrated(smooth=0.5, correct_bias=True)
    exe = aicf.compile(chain(), WEIGHTS, "cpu:x86-64-v3", dims="N=1,32", policy=found.policy)
    exe.save(tmp_path / "m.aicf")
    policy = read_saved_program(tmp_path / "m.aicf").policy
    again = aicf.compile(chain(), WEIGHTS, "cpu:x86-64-v3", dims="N=1,32", policy=policy)
    assert without_ledger(again.ir("emit")) == without_ledger(exe.ir("emit"))
    shown = str(aicf.load(tmp_path / "m.aicf").explain())
    assert "precision: model in int8, calibration compared it with f32 on 64 samples" in shown
    assert re.search(r"int8: u8 by i8: fc1 \(\d\.\d+%\), fc2 \(", shown)


def without_ledger(text: str) -> str:
    return re.sub(r"emit\.ledger \{.*?\n  \}\n", "", text, flags=re.DOTALL)


# What is kept

OUTLIERS = outlier_weights()


def test_only_the_layer_that_breaks_stays():
    whole = calibrated(weights=OUTLIERS)
    assert whole.report.outputs[0].relative_error > 0.1
    kept = calibrated(weights=OUTLIERS, keep={"metric": "error", "loss": "3 %"})
    assert [each.op for each in kept.report.kept] == ["fc2"]
    assert kept.policy.precision.ops == {"fc2": "f32"}
    assert kept.report.outputs[0].relative_error < 0.03
    assert (
        kept.report.kept[0].stays
        == f"int8 alone changes the outputs by {kept.report.kept[0].relative_error:.2%}"
    )
    exe = aicf.compile(chain(rows=32), OUTLIERS, TARGET, policy=kept.policy)
    assert any(each.choice == "stays f32" and each.subjects == ("fc2",) for each in exe.decisions)


def test_top1_is_kept():
    labels = f32_of(SAMPLES, OUTLIERS).argmax(1)
    kept = calibrated(weights=OUTLIERS, keep="top1=2%", labels=labels)
    assert kept.report.top1 is not None and kept.report.top1.f32 == 1.0
    assert kept.report.top1.lowered >= 0.98 and "fc2" in kept.policy.precision.ops
    unlabelled = calibrated(weights=OUTLIERS, keep="top1=2%")
    assert unlabelled.policy.precision.ops == kept.policy.precision.ops and unlabelled.report.top1 is None


def test_no_loss_at_all_leaves_the_model_f32():
    kept = calibrated(keep="error=0")
    assert {each.op for each in kept.report.kept} == {"fc1", "fc2", "fc3"}
    assert kept.report.outputs[0].relative_error == 0.0


def test_f16_that_overflows_is_kept_too():
    """A value beyond 65504 is infinite in f16: in what writes it, and in what reads it."""
    large = outlier_weights(200_000)
    whole = calibrated(weights=large, to="f16")
    assert whole.report.outputs[0].relative_error == np.inf
    assert whole.policy.precision.accuracy.get("errors") is None
    kept = calibrated(weights=large, to="f16", keep="error=1%")
    assert {each.op for each in kept.report.kept} == {"fc1", "relu0", "fc2"}
    assert 0 < kept.report.outputs[0].relative_error <= 0.01


def test_labels_of_others_are_noted():
    found = calibrated(to="f16", labels=(f32_of(SAMPLES).argmax(1) + 1) % 8)
    assert found.report.top1 is not None and found.report.top1.f32 == 0.0
    assert "f32 itself has 0.0% of the labels right, which is no better than chance" in str(found.report)


# Smoothing and corrections


def test_smoothing_rescues_outliers():
    plain, smooth = calibrated(weights=OUTLIERS), calibrated(weights=OUTLIERS, smooth=0.5)
    errors = [each.report.outputs[0].relative_error for each in (plain, smooth)]
    assert errors[1] < 0.04 < 0.1 < errors[0]
    factors = np.array(smooth.policy.precision.smoothing["fc2"])
    value = np.maximum(SAMPLES @ OUTLIERS["fc1.weight"].T + OUTLIERS["fc1.bias"], 0).max(0)
    expected = np.sqrt(value / np.abs(OUTLIERS["fc2.weight"]).max(0))
    np.testing.assert_allclose(factors, np.where(value > 0, expected, 1), rtol=1e-3)


def test_corrections_make_the_mean_error_smaller():
    expected = f32_of(SAMPLES)
    means: list[float] = []
    for correct_bias in (False, True):
        found = calibrated(method="percentile", percentile=97.0, correct_bias=correct_bias)
        y = aicf.compile(chain(rows=64), WEIGHTS, TARGET, policy=found.policy)(SAMPLES)
        means.append(float(np.abs((y - expected).mean(0)).max()))
    assert means[1] < 0.5 * means[0]


# Other models


@pytest.mark.parametrize(
    ("to", "lowered"), [("int8", {"conv1", "conv2", "conv3", "fc"}), ("bf16", {"conv1", "relu2"})]
)
def test_convolutions(to: str, lowered: set[str]):
    samples = np.random.default_rng(0).normal(size=(8, 4, 8, 8)).astype(np.float32)
    options = {"target": "cpu:x86-64-v3", "correct_bias": True} if to == "int8" else {}
    found = calibrated(model=conv_net(), weights=conv_weights(), samples=samples, to=to, **options)
    assert lowered <= {each.op for each in found.report.ops}
    assert found.report.outputs[0].relative_error < 0.03
    if to == "bf16":
        assert found.report.others == {
            "its results need the range or the precision of f32": ("reduce_mean0",)
        }
        return
    counts = {name: len(each) for name, each in found.policy.precision.corrections.items()}
    assert counts == {"conv1": 8, "conv2": 8, "conv3": 8, "fc": 5}
    saved = {each.op: each.saved_us for each in found.report.ops}
    idle = [op for op, us in saved.items() if not us]
    assert 0 < len(idle) < len(saved) and all(f"{op}: f32" in found.report.notes[0] for op in idle)


def test_that_no_product_is_faster_is_noted():
    assert plain().report.notes == (
        "no product is predicted to be faster in 8 bits on this target, which multiplies rounded factors in f32",
    )


def test_attention_whose_scores_are_products_of_activations():
    samples = np.random.default_rng(0).normal(size=(6, 6, 16)).astype(np.float32)
    found = calibrated(model=attention(), weights=attention_weights(), samples=samples, smooth=0.5)
    section = found.policy.precision
    assert len(section.ranges["scores"]) == len(section.ranges["context"]) == 2
    assert section.ranges["context"][0] == (pytest.approx(0, abs=0.2), pytest.approx(1, abs=0.7))
    assert section.smoothing["q"] == section.smoothing["k"] == section.smoothing["v"]
    assert set(section.smoothing) == {"q", "k", "v", "o"}
    assert found.report.outputs[0].relative_error < 0.03
    exe = aicf.compile(attention(), attention_weights(), TARGET, dims="N=6", policy=found.policy)
    assert ".lhs.quantized" in exe.ir("lower-precision") and "k.lhs.quantized" not in exe.ir(
        "lower-precision"
    )


# In one step


def test_compile_calibrates():
    request = {"precision": {"to": "int8", "keep": {"metric": "error", "loss": "3 %"}}}
    exe = aicf.compile(chain(), OUTLIERS, TARGET, dims="N=1,32", policy=request, calibration=SAMPLES)
    kept = calibrated(weights=OUTLIERS, keep="error=3%", dims="N=1,32")
    same = aicf.compile(chain(), OUTLIERS, TARGET, dims="N=1,32", policy=kept.policy)
    np.testing.assert_array_equal(exe(SAMPLES[:32]), same(SAMPLES[:32]))
    assert exe.ir("emit") == same.ir("emit")


def test_compile_takes_no_samples_for_nothing():
    with pytest.raises(aicf.PolicyError, match="calibration: the policy lowers nothing"):
        aicf.compile(chain(), WEIGHTS, TARGET, dims="N=32", calibration=SAMPLES)
