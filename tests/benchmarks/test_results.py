# pyright: basic, reportMissingImports=false
# The modules of benchmarks/gpu are found by a path that the fixture sets.
"""Results of the GPU benchmark: what the criteria make of figures, how runs add up, and what the page says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "gpu"
RESULT = ROOT / "benchmarks" / "results" / "cuda.json"
PAGE = ROOT / "docs" / "cuda.md"


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/gpu is no package: a folder named `benchmarks` on the path would hide `cuda`."""
    monkeypatch.syspath_prepend(FOLDER)


def row(name: str, us: dict[str, float], **entries: Any) -> dict[str, Any]:
    return {"name": name, "us": us, "machine": "m", **entries}


def result(*rows: dict[str, Any], machine: str = "m", **cold: Any) -> dict[str, Any]:
    rows = tuple({**each, "machine": machine} for each in rows)
    return {"machines": {machine: {"commit": machine}}, "rows": list(rows), "cold": cold}


def found(rows: list[dict[str, Any]], cold: dict[str, Any], name: str, what: str) -> tuple[Any, Any]:
    from criteria import evaluated

    (one,) = (each for each in evaluated(rows, cold) if each["row"] == name and each["what"].startswith(what))
    return one["measured"], one["reached"]


@pytest.mark.parametrize(
    ("entry", "what", "measured", "reached"),
    [
        (row("mlp_chain", {"aicf": 60.0}), "replay, us", 60.0, True),
        (row("mlp_chain", {"aicf": 60.1}), "replay, us", 60.1, False),
        (row("gemm_4096", {"wgmma": 100.0, "cublaslt": 150.0, "torch_graph": 95.0}), "own wgmma", 0.95, True),
        (
            row("gemm_4096", {"wgmma": 100.0, "cublaslt": 94.0, "torch_graph": 150.0}),
            "own wgmma",
            0.94,
            False,
        ),
        (row("gemm_4096", {"aicf": 100.0}), "own wgmma", None, None),
        (
            row("swiglu_2048", {"aicf": 10.0, "torch_eager": 15.0, "jax": 12.0, "wgmma": 1.0}),
            "speed relative to the best",
            1.2,
            True,
        ),
        (
            row("swiglu_2048", {"aicf": 10.0, "torch_eager": 15.0, "jax": 11.0}),
            "speed relative to the best",
            1.1,
            False,
        ),
        (row("swiglu_2048", {"aicf": 10.0}), "speed relative to the best", None, None),
        (row("softmax_256MB", {"aicf": 10.0, "copy": 8.9}), "speed relative to a device", 0.89, False),
        (row("mlp_chain", {}, host_us={"aicf": 5.0}, nodes=100), "host", 5.0, True),
        (row("mlp_chain", {}, host_us={"aicf": 5.0}, nodes=101), "host", None, None),
    ],
)
def test_a_criterion_is_held_against_the_figure(
    entry: dict[str, Any], what: str, measured: float | None, reached: bool | None
) -> None:
    """At the bound it is reached; what was not measured, or is not promised, is neither reached nor missed."""
    assert found([entry], {}, entry["name"], what) == (measured, reached)


def test_the_cold_compile_is_the_median_of_its_runs() -> None:
    cold = {"bert_1x128": {"seconds": [12.0, 9.0, 9.5]}}
    assert found([], cold, "bert_1x128", "cold") == (9.5, True)


def test_results_add_up() -> None:
    """A newer row replaces the older one, rows are in the order of the programs, and unused machines go."""
    from results import merged

    older = result(row("softmax_256MB", {"aicf": 2.0}), row("mlp_chain", {"aicf": 50.0}), machine="a")
    newer = result(row("softmax_256MB", {"aicf": 1.0}), machine="b")
    both = merged(older, newer)
    assert [(each["name"], each["machine"]) for each in both["rows"]] == [
        ("mlp_chain", "a"),
        ("softmax_256MB", "b"),
    ]
    assert set(both["machines"]) == {"a", "b"}
    assert set(merged(newer, result(*both["rows"], machine="b"))["machines"]) == {"b"}


def test_the_page_has_the_figures_of_the_result() -> None:
    """`benchmarks/cuda.py table` wrote the page after the last result, and the result was judged by these criteria."""
    from criteria import evaluated
    from report import with_tables

    shipped = json.loads(RESULT.read_text("utf-8"))
    page = PAGE.read_text("utf-8")
    assert shipped["criteria"] == evaluated(shipped["rows"], shipped["cold"])
    assert with_tables(page, shipped) == page


def test_every_figure_says_where_it_was_taken() -> None:
    shipped = json.loads(RESULT.read_text("utf-8"))
    for entry in (*shipped["rows"], *shipped["cold"].values()):
        assert shipped["machines"][entry["machine"]]["commit"]


def test_every_program_has_a_row_and_every_peer_a_time_or_a_reason() -> None:
    from criteria import PEERS
    from programs import PROGRAMS

    shipped = json.loads(RESULT.read_text("utf-8"))
    assert [each["name"] for each in shipped["rows"]] == list(PROGRAMS)
    for each in shipped["rows"]:
        assert {*each["us"], *each["not_run"]} >= set(PEERS)


def test_the_commands_need_no_gpu_to_explain_themselves() -> None:
    """Nor PyTorch: only `run` imports the peers."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "cuda.py", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(command in done.stdout for command in ("compile", "run", "cold", "merge", "table"))


def test_the_commit_of_a_result_is_that_of_its_artifacts() -> None:
    """Not of the copy of the tree that runs them, which may have another history."""
    from results import taken_here

    taken = taken_here({"mlp_chain": {"us": {}}}, {}, "abc123-dirty")
    ((key, machine),) = taken["machines"].items()
    assert machine["commit"] == "abc123-dirty"
    assert [each["machine"] for each in taken["rows"]] == [key]
