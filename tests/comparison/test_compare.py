"""`aicf compare`: each engine in a process of its own, errors against float64, and rows for engines that fail."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest

from aicf.comparison.deviation import deviation_from
from aicf.comparison.exact import exact_outputs
from aicf.tools.aicf_cli import main
from tests.engines.stand_ins import stand_ins
from tests.inference.models import rows
from tests.inference.test_onnx_session import WEIGHT, mlp, reshaped

__all__ = ["stand_ins"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "classifier.onnx"
    onnx.save(mlp(), path)
    return path


def exact(x: np.ndarray) -> np.ndarray:
    """What the model gives, in float64."""
    scores = np.maximum(x.astype(np.float64) @ WEIGHT.astype(np.float64), 0)
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.usefixtures("stand_ins")
def test_engines_that_run_and_that_fail_have_rows(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # where the processes find `tests`
    asked = ["--engines", "steady,dying,flaky,absent", "--dims", "batch=3", "--repeats", "13"]
    assert main(["compare", str(model), *asked, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["sizes"], found["threads"]) == ("classifier", {"batch": 3}, 1)
    steady, dying, flaky, absent = found["results"]
    assert steady["failure"] == "" and steady["runs"] == 13
    assert 0 < steady["best_us"] <= steady["median_us"] and steady["start_s"] > 0
    assert steady["deviation"]["output"] == "y" and 0 < steady["deviation"]["relative"] < 1e-5
    assert steady["record"]["fingerprint"]["engine"] == "steady" and steady["record"]["is_opaque"]
    assert dying["failure"] == "its process ended with status 7"
    assert "engine 'flaky' failed while it ran the model: the device was lost" in flaky["failure"]
    assert "package no_such_engine is not installed" in absent["failure"]


def test_the_table_has_a_row_for_each_engine(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", rows(2, 24))
    given = [
        "--dims",
        "batch=2",
        "--input",
        f"x={tmp_path / 'x.npy'}",
        "--repeats",
        "2",
        "--reference",
        "aicf",
    ]
    assert main(["compare", str(model), "--engines", "aicf", *given]) == 0
    said = capsys.readouterr().out
    assert "classifier (batch=2), 1 thread, on " in said and "error against: engine aicf" in said
    (row,) = [line for line in said.splitlines() if line.strip().startswith("aicf ")]
    assert "cpu:" in row and " 1.00 " in row and " 0.0e+00 " in row


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engines", "onyx"], "engine: there is no 'onyx'; registered: aicf, "),
        (["--engines", "aicf,aicf"], "--engines aicf,aicf: an engine is named twice"),
        (["--engines", "aicf"], "--dims: dimension batch needs one size, as in --dims batch=8"),
        (["--engines", "aicf", "--dims", "batch=1,2"], "--dims: dimension batch needs one size"),
        (["--engines", "aicf", "--dims", "rows=2"], "--dims: there is no dimension rows; it has batch"),
        (
            ["--engines", "aicf", "--dims", "batch=2", "--values", "z"],
            "--values: there is no input 'z'; it has x",
        ),
        (
            ["--engines", "aicf", "--dims", "batch=2", "--reference", "openvino"],
            "reference: 'openvino' is not compared",
        ),
    ],
)
def test_wrong_options_start_no_process(
    model: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(model), *arguments]) == 1
    assert f"error: {message}" in capsys.readouterr().err


def test_other_models_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "model.mlir", "--engines", "aicf"]) == 1
    assert "`aicf compare` takes ONNX models" in capsys.readouterr().err


def test_the_exact_answer_is_in_float64(model: Path, tmp_path: Path) -> None:
    x = rows(3, 24)
    found = exact_outputs(model, {"batch": 3}, {}, {"x": x})["y"]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, exact(x), rtol=1e-12, atol=1e-15)
    path = tmp_path / "reshaped.onnx"
    onnx.save(reshaped(), path)
    feeds = {"x": rows(6), "shape": np.array([3, 2])}
    found = exact_outputs(path, {"n": 6, "rank": 2}, {"shape": feeds["shape"]}, feeds)["y"]
    np.testing.assert_array_equal(found, 2 * feeds["x"].astype(np.float64).reshape(3, 2))


def test_deviations_are_of_the_worst_output() -> None:
    a = rows(4, 5).astype(np.float64)
    worst = deviation_from({"a": a, "b": a * 100}, {"a": a + 0.5, "other": a * 100 + 1})
    scale = np.abs(a).max()
    assert worst.output == "a"
    np.testing.assert_allclose([worst.largest, worst.relative], [0.5, 0.5 / scale], rtol=1e-12)


@pytest.mark.parametrize(
    ("wanted", "found", "largest"),
    [
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), 0.0),
        (np.array([1.0, np.inf]), np.array([1.5, np.inf]), 0.5),
        (np.array([1.0, np.inf]), np.array([1.0, -np.inf]), math.inf),
        (np.array([1.0, 2.0]), np.array([1.0, np.nan]), math.inf),
        (np.array([1.0, 2.0]), np.array([[1.0, 2.0]]), math.inf),
        (np.zeros((0, 3)), np.zeros((0, 3)), 0.0),
        (np.array([3, 4]), np.array([3, 6]), 2.0),
        (np.array([True]), np.array([False]), 1.0),
    ],
    ids=["nan", "infinite", "other infinity", "nan is wrong", "shape", "empty", "integers", "truth"],
)
def test_what_is_not_finite_must_be_the_same(wanted: np.ndarray, found: np.ndarray, largest: float) -> None:
    assert deviation_from({"y": wanted}, {"y": found}).largest == largest
