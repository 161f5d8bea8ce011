# pyright: basic
"""The result of the benchmark over batches of varied size: that memory does not grow, and that the page has it."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULT = json.loads((ROOT / "benchmarks" / "results" / "pytorch_varied_batches.json").read_text("utf-8"))
PAGE = (ROOT / "docs" / "pytorch.md").read_text("utf-8")
MODES = ("default", "dynamic")


def mode(name: str) -> dict[str, Any]:
    return RESULT["modes"][name]


@pytest.mark.parametrize("name", MODES)
def test_all_batches_ran_and_were_right(name: str) -> None:
    found = mode(name)
    assert sum(graph["calls"] for graph in found["graphs"]) == RESULT["batches"] == 10_000
    assert (found["checks"], found["graph_breaks"]) == (100, 0)
    assert found["largest_error"] <= 3e-7
    assert found["recompiles"] == len(found["graphs"]) - 1


@pytest.mark.parametrize("name", MODES)
def test_a_graph_keeps_no_more_programs_than_it_may(name: str) -> None:
    graphs = mode(name)["graphs"]
    assert max(graph["programs"] for graph in graphs) == RESULT["max_programs"]
    assert sum(graph["programs"] + graph["dropped"] for graph in graphs) == mode(name)["made"] > 900


@pytest.mark.parametrize("name", MODES)
def test_memory_does_not_grow(name: str) -> None:
    """After the limit is reached for the main graph, that is in the second half, by its quarters."""
    memory = [sample["resident_mib"] for sample in mode(name)["samples"]]
    assert len(memory) == 20
    assert mean(memory[15:]) < 1.02 * mean(memory[10:15])


@pytest.mark.parametrize(("name", "called"), [("default", "default"), ("dynamic", "`True`")])
def test_the_page_has_the_result(name: str, called: str) -> None:
    found = mode(name)
    samples = {sample["batches"]: sample for sample in found["samples"]}
    figures = [len(found["graphs"]), found["made"], samples[10_000]["programs"]]
    figures += [round(samples[batches]["resident_mib"]) for batches in (1000, 5000, 10_000)]
    assert f"| {called} | {' | '.join(map(str, figures))} |" in PAGE
