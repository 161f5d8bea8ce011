# pyright: basic, reportMissingImports=false
# The modules of benchmarks/conformance are found by a path that the fixture sets.
"""The conformance benchmark: which cases count, what passes, and that a case that hangs or dies costs only itself."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "conformance"
RESULT = ROOT / "benchmarks" / "results" / "onnx_conformance.json"
BF16_ONE = np.ones(1, ml_dtypes.bfloat16)
SAMPLE = 47
"""One node case in so many is run again."""
PAGE = ROOT / "docs" / "onnx-support.md"


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/conformance is no package: a folder named `benchmarks` on the path would hide `cuda`."""
    monkeypatch.syspath_prepend(FOLDER)


def one_node(op: str, name: str, **changes: Any) -> Any:
    """A case of one node from x to y, whose data say that it doubles."""
    from onnx_cases import OnnxCase

    domain, opset = changes.pop("domain", ""), changes.pop("opset", 20)
    element = changes.pop("element", TensorProto.FLOAT)
    values = [helper.make_tensor_value_info(value, element, [3]) for value in ("x", "y")]
    node = helper.make_node(op, ["x"], ["y"], domain=domain)
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)])
    x = np.arange(3, dtype=np.float32)
    entries = {"kind": "node", "op": op, "expanded": False, "rtol": 1e-3, "atol": 1e-7, **changes}
    return OnnxCase(name, model=model, inputs=(x,), outputs=(2 * x,), **entries)


def test_the_core_of_the_node_cases() -> None:
    """The cases that all rivals are compared on, by their definition."""
    assert one_node("Relu", "a").is_core
    assert not one_node("Relu", "a", kind="simple").is_core
    assert not one_node("Relu", "a", opset=28).is_core
    assert not one_node("Relu", "a", element=TensorProto.FLOAT16).is_core
    assert not one_node("Scaler", "a", domain="ai.onnx.ml", opset=1).is_core
    assert not one_node("Loop", "a").is_core


def test_stored_cases_have_their_data() -> None:
    from onnx_cases import load_cases

    cases = load_cases(("simple", "light"))
    found = {case.name: case for case in cases}
    relu = found["test_single_relu_model"]
    np.testing.assert_array_equal(relu.outputs[0], np.maximum(relu.inputs[0], 0))
    light = [case for case in cases if case.kind == "light"]
    assert len(light) == 9 and all(len(case.inputs) == len(case.outputs) == 1 for case in light)


@pytest.mark.parametrize(
    ("found", "expected", "wrong"),
    [
        (np.float32([1, 2]), np.float32([1, 2.001]), None),
        (np.float32([1, 2]), np.float32([1, 2.01]), "2.0 instead of 2.0"),
        (np.float32([1, np.nan]), np.float32([1, np.nan]), None),
        (np.float32([1, np.nan]), np.float32([1, 2]), "nan instead of 2.0 at [1]"),
        (np.float32([np.inf]), np.float32([-np.inf]), "inf instead of -inf"),
        (np.float64([1]), np.float32([1]), "float64 instead of float32"),
        (np.float32([[1]]), np.float32([1]), "shape [1, 1] instead of [1]"),
        (np.array([True, False]), np.array([True, True]), "False instead of True"),
        (np.array(["a"]), np.array(["b"], object), "other strings"),
        (np.array(["a"]), np.array(["a"], object), None),
        ([np.float32([1])], [np.float32([1]), np.float32([1])], "1 outputs instead of 2"),
        (np.float32([1]), [np.float32([1])], "ndarray instead of list"),
        (None, None, None),
        (BF16_ONE, np.array([1.0078125], ml_dtypes.bfloat16), None),
        (BF16_ONE, np.array([1.03125], ml_dtypes.bfloat16), "1.0 instead of 1.03125"),
    ],
)
def test_what_passes(found: Any, expected: Any, wrong: str | None) -> None:
    from onnx_judge import difference

    told = difference([found], [expected], 1e-3, 1e-7)
    assert told is None if wrong is None else wrong in (told or "")


@pytest.mark.parametrize(("off", "noise"), [(-1.5e-3, True), (3e-3, False), (0.0, True)])
def test_noise_is_as_near_to_f64_as_the_reference(off: float, noise: bool) -> None:
    from onnx_exact import is_noise

    true = np.sqrt(np.arange(3, dtype=np.float32))
    case = dataclasses.replace(one_node("Sqrt", "a"), outputs=(true + np.float32(1e-3),))
    assert is_noise(case, [true + np.float32(off)]) == noise
    assert not is_noise(case, [true.astype(np.float64)])
    assert not is_noise(dataclasses.replace(case, model=one_node("NoSuchOp", "a").model), [true])


def doubles(case: Any) -> Any:
    from onnx_runners import Ran

    return Ran([2 * case.inputs[0]], ("x",))


def triples(case: Any) -> Any:
    from onnx_runners import Ran

    return Ran([3 * case.inputs[0]])


def refuses(case: Any) -> Any:
    from onnx_runners import Unsupported

    raise Unsupported("no such op")


def fails(case: Any) -> Any:
    raise KeyError("lost")


def dies(case: Any) -> Any:
    os._exit(3)


def hangs(case: Any) -> Any:
    time.sleep(600)


def test_every_end_of_a_case_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker runs them all: what kills or holds it up costs no other case."""
    from case_workers import run_cases
    from onnx_runners import RUNNERS
    from support_table import key, rows, totals

    ends = [dies, doubles, hangs, triples, refuses, fails, doubles]
    monkeypatch.setitem(RUNNERS, "fake", lambda case: ends[int(case.name)](case))
    cases = [one_node("Mul" if number < 3 else "Add", str(number)) for number in range(len(ends))]
    outcomes = {key(case): outcome for case, outcome in run_cases(cases, "fake", jobs=1, limit=2.0)}
    assert [(outcomes[key(case)].status, outcomes[key(case)].reason) for case in cases] == [
        ("crash", "the process ended with status 3"),
        ("pass", ""),
        ("crash", "more than 2 s"),
        ("wrong", "output 0: 6.0 instead of 4.0 at [2]"),
        ("unsupported", "no such op"),
        ("crash", outcomes["node/5"].reason),
        ("pass", ""),
    ]
    assert outcomes["node/5"].reason.startswith("KeyError at test_onnx_conformance.py:")
    add, mul = rows(cases, outcomes)
    assert (mul["op"], mul["pass"], mul["crash"], mul["core_pass"]) == ("Mul", 1, 2, 1)
    assert mul["bound"] == {"1": ["x"]} and set(add["failed"]) == {"3", "4", "5"}
    assert totals(cases, outcomes)["core"] == {
        "cases": 7,
        "pass": 2,
        "crash": 3,
        "wrong": 1,
        "unsupported": 1,
        "percent": 28.57,
    }


def test_the_page_is_that_of_the_result() -> None:
    """`benchmarks/onnx_conformance.py --page` wrote it after the last result."""
    from support_page import page

    assert PAGE.read_text("utf-8") == page(json.loads(RESULT.read_text("utf-8")))


def test_the_result_has_no_wrong_answer_and_no_crash() -> None:
    result = json.loads(RESULT.read_text("utf-8"))
    totals = result["rivals"]["aicf"]["totals"]
    for kind, total in totals.items():
        assert not total.get("wrong") and not total.get("crash"), kind
    assert totals["core"]["percent"] >= 97 and totals["light"]["pass"] == 9


def test_the_result_is_that_of_this_compiler() -> None:
    """Some of all node cases, run again."""
    from case_workers import PASS, outcome_of
    from onnx_cases import load_cases

    rows = json.loads(RESULT.read_text("utf-8"))["rivals"]["aicf"]["rows"]
    failed = {name: each["status"] for row in rows for name, each in row["failed"].items()}
    cases = load_cases(("node",))[::SAMPLE]
    found = {case.name: outcome_of(case, "aicf").status for case in cases}
    assert found == {case.name: failed.get(case.name, PASS) for case in cases}
    assert list(found.values()).count(PASS) > len(cases) / 2
