"""`aicf tune` loses nothing: a table is whole whenever the command ends, and the next run goes on with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aicf.errors import CaptureError
from aicf.policies.tuning_table import Row, TuningTable
from aicf.tools.aicf_cli import main
from aicf.tuning import case_compiler, tune
from aicf.tuning.candidates import Candidate

from .programs import TARGET, TWO_PRODUCTS, FakeDevice, fresh_kernels

__all__ = ["fresh_kernels"]

COMMAND = """
import signal
from sys import argv
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in the background without it
from aicf.tools.aicf_cli import main
from aicf.tuning import growing_table
growing_table.WRITE_AFTER_S = 0.0
raise SystemExit(main(argv[1:]))
"""
PATIENCE_S = 120


def rows_of(path: Path) -> list[Row]:
    return [row for work in TuningTable.load(path).works for row in work.rows]


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def children_of(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in text.split()]


def runs(process: int) -> bool:
    """Whether a process is there and is no zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_what_was_measured_survives_and_is_not_measured_again(
    number: signal.Signals, status: int, tmp_path: Path
):
    model, table = tmp_path / "two.mlir", tmp_path / "tuning.json"
    model.write_text(TWO_PRODUCTS)
    arguments = ["tune", str(model), "-o", str(table), "--variants", "4"]
    process = subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], stderr=subprocess.PIPE)
    wait_for(table.exists)
    workers = children_of(process.pid)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status and workers and b"Traceback" not in said
    wait_for(lambda: not any(map(runs, workers)))
    before = rows_of(table)
    assert before
    assert subprocess.run([sys.executable, "-c", COMMAND, *arguments], check=False).returncode == 0
    after = rows_of(table)
    assert len(after) > len(before) and all(row in after for row in before)
    left = [path.name for path in tmp_path.iterdir()]
    assert sorted(left) == ["tuning.json", "two.mlir"]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("two.mlir").write_text(TWO_PRODUCTS)
    return "two.mlir"


def run(model: str, device: FakeDevice, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(tune, "open_device", lambda setting: device)
    return main(["tune", model, "-o", "t.json", "--target", TARGET, *options])


def test_a_second_run_measures_nothing_and_replace_measures_all(model: str, monkeypatch: pytest.MonkeyPatch):
    assert run(model, FakeDevice(lambda kernel, spec: 4.0), monkeypatch) == 0
    assert run(model, FakeDevice(lambda kernel, spec: 3.0), monkeypatch) == 0
    assert {row.cold.median_us for row in rows_of(Path("t.json"))} == {4.0}
    assert run(model, FakeDevice(lambda kernel, spec: 3.0), monkeypatch, "--replace") == 0
    assert {row.cold.median_us for row in rows_of(Path("t.json"))} == {3.0}


@pytest.mark.parametrize("options", [(), ("--replace",)])
def test_a_table_that_was_cut_is_refused_and_stays(
    options: Sequence[str], model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(model, FakeDevice(lambda kernel, spec: 4.0), monkeypatch) == 0
    path = Path("t.json")
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    status = run(model, FakeDevice(lambda kernel, spec: 3.0), monkeypatch, *options)
    assert status == (0 if options else 1)
    if options:
        assert {row.cold.median_us for row in rows_of(path)} == {3.0}
        return
    (line,) = capsys.readouterr().err.splitlines()
    assert "t.json: no JSON" in line and "nothing was changed" in line and "--replace to begin anew" in line
    assert path.read_text() == text[: len(text) // 2]


def test_a_table_of_another_device_is_refused_and_stays(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(model, FakeDevice(lambda kernel, spec: 4.0, name="an old one"), monkeypatch) == 0
    before = Path("t.json").read_bytes()
    assert run(model, FakeDevice(lambda kernel, spec: 3.0), monkeypatch) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "the table has device an old one, now it is a fake device" in line and "--replace" in line
    assert Path("t.json").read_bytes() == before


def test_what_does_not_compile_is_in_the_table_and_not_tried_again(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    compiled = case_compiler.compiled
    marks = Path("tried")

    def fails(candidate: Candidate, *others: object) -> object:
        if candidate.kernel.id == "cpu.gemm_portable":
            with marks.open("a") as stream:  # it runs in another process
                stream.write("x")
            raise CaptureError("it has too many registers")
        return compiled(candidate, *others)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(case_compiler, "compiled", fails)
    for _ in range(2):
        assert run(model, FakeDevice(lambda kernel, spec: 4.0), monkeypatch) == 0
    assert marks.read_text() == "xx"
    table = TuningTable.load(Path("t.json"))
    assert [failure.label for work in table.works for failure in work.failed] == ["cpu.gemm_portable"] * 2
    assert "cpu.gemm_portable failed: it has too many registers" in capsys.readouterr().err


def test_a_compiling_process_that_is_killed_costs_one_variant(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    compiled = case_compiler.compiled

    def dies(candidate: Candidate, *others: object) -> object:
        if candidate.kernel.id == "cpu.gemm_portable" and candidate.group.id.data == "first":
            os.kill(os.getpid(), signal.SIGKILL)
        return compiled(candidate, *others)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(case_compiler, "compiled", dies)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    assert run(model, FakeDevice(lambda kernel, spec: 4.0), monkeypatch) == 0
    assert len(rows_of(Path("t.json"))) == 3
    assert "the process that compiled it ended with status -9" in capsys.readouterr().err


def test_an_error_of_the_compiler_itself_is_raised_here(model: str, monkeypatch: pytest.MonkeyPatch):
    def breaks(candidate: Candidate, *others: object) -> object:
        raise ZeroDivisionError("in a pass")

    monkeypatch.setattr(case_compiler, "compiled", breaks)
    with pytest.raises(Exception, match=r"(?s)first: cpu.gemm_.*ZeroDivisionError: in a pass"):
        run(model, FakeDevice(lambda kernel, spec: 4.0), monkeypatch)
