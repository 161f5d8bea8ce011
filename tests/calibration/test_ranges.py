"""Ranges against NumPy, and against the calibraters of ONNX Runtime."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader
from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

import aicf
from aicf.calibration.histograms import BINS, Histogram
from tests.calibration.models import TARGET, chain, chain_samples, chain_weights

WEIGHTS, SAMPLES = chain_weights(), chain_samples(512)


def operands() -> dict[str, np.ndarray]:
    """What each product reads, in float64."""
    value = SAMPLES.astype(np.float64)
    found: dict[str, np.ndarray] = {}
    for number in (1, 2, 3):
        found[f"fc{number}"] = value
        value = np.maximum(value @ WEIGHTS[f"fc{number}.weight"].T + WEIGHTS[f"fc{number}.bias"], 0)
    return found


@cache
def ranges(method: str, **options) -> dict[str, tuple[float, float]]:
    found = aicf.calibrate(chain(), SAMPLES, method=method, weights=WEIGHTS, target=TARGET, **options)
    return {product: pair for product, (pair,) in found.policy.precision.ranges.items()}


def test_minmax_is_the_smallest_and_the_largest():
    for product, (low, high) in ranges("minmax").items():
        value = operands()[product]
        np.testing.assert_allclose((low, high), (value.min(), value.max()), rtol=1e-5, atol=1e-7)


def test_percentiles_are_those_of_numpy_to_a_few_bins():
    for product, (low, high) in ranges("percentile", percentile=98.0).items():
        value = operands()[product]
        bin_ = (value.max() - value.min()) / BINS
        np.testing.assert_allclose((low, high), np.percentile(value, [1, 99]), atol=4 * bin_)


def test_percentiles_of_symmetric_integers_are_of_magnitudes():
    for product, (low, high) in ranges("percentile", percentile=98.0, activations="symmetric").items():
        value = operands()[product]
        bin_ = np.abs(value).max() / BINS
        assert high == pytest.approx(np.percentile(np.abs(value), 98), abs=5 * bin_)
        assert low == pytest.approx(max(value.min(), -high), abs=5 * bin_)


# ONNX Runtime


class Reader(CalibrationDataReader):
    def __init__(self) -> None:
        self._samples = iter({"x": SAMPLES[start : start + 64]} for start in range(0, len(SAMPLES), 64))

    def get_next(self):
        return next(self._samples, None)


def onnx_model(path: Path) -> None:
    nodes, value = [], "x"
    for number in (1, 2, 3):
        last = number == 3
        inputs = [value, f"fc{number}.weight", f"fc{number}.bias"]
        nodes.append(
            helper.make_node("Gemm", inputs, ["y" if last else f"g{number}"], f"fc{number}", transB=1)
        )
        if not last:
            nodes.append(helper.make_node("Relu", [f"g{number}"], [f"r{number}"]))
            value = f"r{number}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])
    constants = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "chain", [x], [y], constants), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 9
    onnx.save(model, path)


def of_onnxruntime(
    tmp_path: Path, method: CalibrationMethod, **options: float
) -> dict[str, tuple[float, float]]:
    onnx_model(tmp_path / "chain.onnx")
    calibrater = create_calibrator(
        tmp_path / "chain.onnx",
        ["Gemm"],
        augmented_model_path=str(tmp_path / "augmented.onnx"),
        calibrate_method=method,
        extra_options=options,
    )
    calibrater.collect_data(Reader())
    found = calibrater.compute_data()
    names = {"fc1": "x", "fc2": "r1", "fc3": "r2"}
    return {
        product: tuple(float(np.asarray(each).reshape(())) for each in found[name].range_value)
        for product, name in names.items()
    }


def test_minmax_is_that_of_onnxruntime(tmp_path: Path):
    ours = ranges("minmax")
    for product, pair in of_onnxruntime(tmp_path, CalibrationMethod.MinMax).items():
        np.testing.assert_allclose(ours[product], pair, rtol=1e-5, atol=1e-6)


def test_percentiles_are_those_of_onnxruntime(tmp_path: Path):
    """Its histogram is of other edges, as it grows with the samples: a few bins apart."""
    theirs = of_onnxruntime(
        tmp_path, CalibrationMethod.Percentile, num_bins=BINS, percentile=99.0, symmetric=False
    )
    ours = ranges("percentile", percentile=99.0)
    for product, pair in theirs.items():
        np.testing.assert_allclose(ours[product], pair, atol=0.02 * operands()[product].max())


def test_entropy_cuts_off_about_as_much_as_onnxruntime(tmp_path: Path):
    """Its thresholds are symmetric, of 128 levels on both sides of 0, also for what is never negative, where ours has
    255 levels; it tries each threshold, ours every eighth.
    """
    theirs = of_onnxruntime(tmp_path, CalibrationMethod.Entropy, num_bins=BINS, num_quantized_bins=128)
    ours = ranges("entropy", activations="symmetric")
    for product, (_, high) in theirs.items():
        assert 0.5 * high < ours[product][1] < 2 * high
        assert ours[product][1] <= 1.0001 * operands()[product].max()


def test_entropy_cuts_off_outliers_of_a_distribution():
    values = np.random.default_rng(0).normal(size=400_000)
    values[:10] = 40.0
    histogram = Histogram(float(values.min()), 40.0)
    histogram.add(values)
    low, high = histogram.least_divergence("symmetric")
    assert 2.5 < high < 6 and low == pytest.approx(-high, abs=1.5)
    uniform = Histogram(-1.0, 1.0)
    uniform.add(np.random.default_rng(0).uniform(-1, 1, 400_000))
    assert uniform.least_divergence("symmetric")[1] > 0.95


def test_values_that_are_all_equal_have_their_own_range():
    histogram = Histogram(2.0, 2.0)
    histogram.add(np.full(10, 2.0))
    assert histogram.percentiles(99.0, "asymmetric") == (2.0, 2.0) == histogram.least_divergence("symmetric")
