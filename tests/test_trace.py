"""Traces: spans of every thread, and the file that viewers open."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.compilation.compiled import CompiledModel
from aicf.errors import ArtifactError, InputMismatch
from aicf.tools.aicf_cli import main

RNG = np.random.default_rng(79)
REPEATS = 4


def model(target: str, threads: int = 1) -> CompiledModel:
    graph = aicf.Graph("mlp")
    x, w = graph.input("x", ("N", 48)), graph.param("w", (48, 96))
    graph.output(graph.softmax(graph.matmul(x, w, name="matmul"), 1, name="softmax"), "y")
    weights = {"w": RNG.standard_normal((48, 96), dtype=np.float32)}
    return aicf.compile(graph, weights, target, dims={"N": [32, 64]}, threads=threads)


@pytest.mark.parametrize(("target", "threads"), [("cpu", 1), ("cpu", 2), ("reference", 1)])
def test_every_thread_has_a_span_for_every_instruction(target: str, threads: int) -> None:
    """In launch order on each thread, one after the other; the instructions are those of the program of these sizes."""
    found = model(target, threads).trace(np.zeros((64, 48), np.float32), repeats=REPEATS)
    assert found.program == "mlp@N=64" and found.target.startswith(target)
    assert [op for row in found.instructions for op in row.src] == ["matmul", "softmax"]
    count = len(found.instructions)
    for thread in range(threads):
        own = [span for span in found.spans if span.track == f"thread {thread}"]
        assert [span.launch for span in own] == [*range(count)] * REPEATS
        assert all(one.start_us + one.duration_us <= other.start_us for one, other in pairwise(own))
        assert all(span.start_us >= 0 and span.duration_us > 0 for span in own)
    assert len(found.spans) == count * REPEATS * threads
    assert len(found.replays) == REPEATS and all(duration > 0 for _, duration in found.replays)
    assert found.replays[0][0] >= max(span.start_us + span.duration_us for span in found.spans)


def test_a_trace_is_a_file_of_the_trace_event_format(tmp_path: Path) -> None:
    """Complete events with what the instruction is, on threads and processes that have names."""
    found = model("cpu", 2).trace(np.zeros((32, 48), np.float32), repeats=1)
    found.save(path := tmp_path / "trace.json")
    read = json.loads(path.read_text("utf-8"))
    assert read == found.to_chrome()
    events = read["traceEvents"]
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names["thread_name", 1, 0] == "thread 0" and names["thread_name", 1, 1] == "thread 1"
    assert names["process_name", 2, 0] == "@mlp@N=32: whole replays"
    spans = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
    assert len(spans) == len(found.spans)
    for event, span in zip(spans, found.spans, strict=True):
        row = found.instructions[span.launch]
        assert (event["name"], event["cat"]) == (row.name, row.kind)
        assert event["ts"] == pytest.approx(span.start_us, abs=1e-3)
        assert event["dur"] == pytest.approx(span.duration_us, abs=1e-3)
        assert event["args"]["kernel"] == row.kernel and event["args"]["ops"] == list(row.src)
    products = [event for event in spans if event["name"] == "matmul@N=32"]
    assert all(Path(__file__).name in line for event in products for line in event["args"]["lines"])
    assert products[0]["args"]["lines"] and products[0]["args"]["bytes"] == 4 * (32 * 48 + 48 * 96 + 32 * 96)


def test_state_is_left_alone() -> None:
    graph = aicf.Graph("counter")
    total = graph.state("total", (3,))
    graph.update(total, graph.add(total, graph.input("x", (3,))))
    exe = aicf.compile(graph, {"total": np.zeros(3, np.float32)}, "cpu")
    exe.trace(np.ones(3, np.float32))
    np.testing.assert_array_equal(exe.state()["total"], np.zeros(3))


def test_what_cannot_be_traced_is_said(tmp_path: Path) -> None:
    exe = model("cpu")
    with pytest.raises(InputMismatch, match="no program for N=5"):
        exe.trace(np.zeros((5, 48), np.float32))
    found = exe.trace(np.zeros((32, 48), np.float32))
    with pytest.raises(ArtifactError, match=r"the trace cannot be written: No such file"):
        found.save(tmp_path / "missing" / "trace.json")


def test_profile_prints_ops_and_writes_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model("cpu").save(tmp_path / "mlp.aicf")
    artifact, trace = str(tmp_path / "mlp.aicf"), tmp_path / "trace.json"
    assert main(["profile", artifact, "--repeats", "2", "-o", str(trace)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("@mlp@N=32: replay ") and "matmul" in out and "softmax" in out and str(trace) in out
    assert json.loads(trace.read_text("utf-8"))["otherData"]["program"] == "mlp@N=32"
    assert main(["profile", artifact, "--repeats", "2", "--program", "mlp@N=64", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["program"] == "mlp@N=64" and set(plain["ops_us"]) == {"matmul", "softmax"}
    assert sum(plain["ops_us"].values()) == pytest.approx(plain["instructions_us"])
    assert main(["profile", artifact, "--program", "mlp@N=65"]) == 1
    assert "there is no program 'mlp@N=65'; did you mean" in capsys.readouterr().err
