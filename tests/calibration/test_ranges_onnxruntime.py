"""Ranges against the calibraters of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicf.calibration.histograms import BINS
from tests.calibration.test_ranges import SAMPLES, WEIGHTS, operands, ranges

onnx = pytest.importorskip("onnx")
quantization = pytest.importorskip("onnxruntime.quantization")
calibrate = pytest.importorskip("onnxruntime.quantization.calibrate")
pytestmark = pytest.mark.peers

TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper


class Reader(quantization.CalibrationDataReader):
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


def of_onnxruntime(tmp_path: Path, method: Any, **options: float) -> dict[str, tuple[float, float]]:
    onnx_model(tmp_path / "chain.onnx")
    calibrater = calibrate.create_calibrator(
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
    for product, pair in of_onnxruntime(tmp_path, calibrate.CalibrationMethod.MinMax).items():
        np.testing.assert_allclose(ours[product], pair, rtol=1e-5, atol=1e-6)


def test_percentiles_are_those_of_onnxruntime(tmp_path: Path):
    """Its histogram is of other edges, as it grows with the samples: a few bins apart."""
    theirs = of_onnxruntime(
        tmp_path, calibrate.CalibrationMethod.Percentile, num_bins=BINS, percentile=99.0, symmetric=False
    )
    ours = ranges("percentile", percentile=99.0)
    for product, pair in theirs.items():
        np.testing.assert_allclose(ours[product], pair, atol=0.02 * operands()[product].max())


def test_entropy_cuts_off_about_as_much_as_onnxruntime(tmp_path: Path):
    """Its thresholds are symmetric, of 128 levels on both sides of 0, also for what is never negative, where ours has
    255 levels; it tries each threshold, ours every eighth. That takes it the square of the bins: it has half of ours.
    """
    theirs = of_onnxruntime(
        tmp_path, calibrate.CalibrationMethod.Entropy, num_bins=BINS // 2, num_quantized_bins=128
    )
    ours = ranges("entropy", activations="symmetric")
    for product, (_, high) in theirs.items():
        assert 0.5 * high < ours[product][1] < 2 * high
        assert ours[product][1] <= 1.0001 * operands()[product].max()
