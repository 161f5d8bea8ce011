# pyright: basic, reportMissingImports=false
# The modules of benchmarks/models are found by a path that the fixture sets.
"""The result of the benchmark of ONNX models: every model is in every section, and each row says what it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "onnx_cpu.json"


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/models is no package: a folder named `benchmarks` on the path would hide `cuda`."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "models")


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return json.loads(RESULT.read_text("utf-8"))


def test_every_model_is_in_every_section(result: dict[str, Any]) -> None:
    from timed_models import TIMED_MODELS

    names = [row["model"] for row in result["speed"]]
    assert len(set(names)) == len(TIMED_MODELS) and result["machine"]["commit"]
    for section in ("cold", "memory"):
        assert [row["model"] for row in result[section]] == names


def test_ratios_are_those_of_the_times(result: dict[str, Any]) -> None:
    for row in result["speed"]:
        assert row["ratio"] == pytest.approx(row["aicf_us"] / row["onnxruntime_us"], abs=1e-3)
        assert row["reached"] == (row["ratio"] <= row["reach"])
    assert result["faster"]["faster"] == sum(row["ratio"] < 1 for row in result["speed"])


def test_open_dimensions_have_the_names_that_aicf_gives_them() -> None:
    """A symbol of the file in letters that a name may have, else the input and the axis; fixed ones are left out."""
    from onnx import TensorProto, helper
    from timed_models import TimedModel

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["p2o.D.0", 3, "?", -1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y]))
    timed = TimedModel("relu", model.SerializeToString(), {"x": np.zeros((2, 3, 4, 5), np.float32)}, ("x",))
    assert timed.dims() == {"p2o_D_0": 2, "x_2": 4, "x_3": 5}
    assert timed.options()["values"]["x"] is timed.feeds["x"]
