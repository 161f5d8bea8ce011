"""Two programs timed in turns: what is clear, what is not, and what is told, on times that are made up."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.bisection import compared_times
from aicf.bisection.compared_times import compare_times
from aicf.compilation.compiled import CompiledModel
from aicf.errors import InputMismatch
from aicf.tools.aicf_cli import main

RNG = np.random.default_rng(107)


def model(width: int = 8, sizes: tuple[int, ...] = (2, 3)) -> CompiledModel:
    graph = aicf.Graph("rows")
    graph.output(graph.softmax(graph.input("x", ("N", width)), name="probs"), "y")
    return aicf.compile(graph, target="reference", dims={"N": list(sizes)})


class Timed:
    """A runner whose times are drawn around those of its executable."""

    means: dict[int, float] = {}
    noise = 0.0
    order: list[int] = []

    def __init__(self, compiled: CompiledModel, sizes: object, inputs: object) -> None:
        self._number = id(compiled)

    def seconds(self) -> float:
        self.order.append(self._number)
        return self.means[self._number] * float(np.exp(self.noise * RNG.standard_normal()))


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> tuple[CompiledModel, CompiledModel]:
    monkeypatch.setattr(compared_times, "Runner", Timed)
    Timed.order = []
    return model(), model()


@pytest.mark.parametrize(
    ("factor", "noise", "verdict"),
    [
        (1.3, 0.02, "slower"),
        (0.8, 0.02, "faster"),
        (1.0, 0.02, "same"),
        (1.005, 0.001, "same"),
        (1.1, 1.0, "same"),
    ],
)
def test_a_difference_is_told_if_it_is_clear(
    pair: tuple[CompiledModel, CompiledModel], factor: float, noise: float, verdict: str
) -> None:
    """More than 1 %, and more than the noise; the interval holds the ratio that was drawn from."""
    first, second = pair
    Timed.means, Timed.noise = {id(first): 2e-5, id(second): 2e-5 * factor}, noise
    found = compare_times(first, second)
    assert [each.program for each in found] == ["rows@N=2", "rows@N=3"]
    for each in found:
        assert each.verdict == verdict and each.low <= each.ratio <= each.high
        assert (each.rounds < 60) == (verdict != "same")
        if noise < 0.5:
            assert each.ratio == pytest.approx(factor, rel=0.06)
            assert each.first_us == pytest.approx(20, rel=0.05)


def test_each_begins_every_other_round(pair: tuple[CompiledModel, CompiledModel]) -> None:
    first, second = pair
    Timed.means, Timed.noise = {id(first): 1e-5, id(second): 1e-5}, 0.0
    compare_times(first, second)
    expected = cycle([id(first), id(second), id(second), id(first)])
    assert all(number == next(expected) for number in Timed.order[:120])


def test_programs_of_other_sizes_and_inputs_are_refused() -> None:
    with pytest.raises(InputMismatch, match="compiled for other sizes"):
        compare_times(model(), model(sizes=(2, 4)))
    with pytest.raises(InputMismatch, match="take other inputs"):
        compare_times(model(), model(width=9))


def test_bench_compares_two_artifacts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A program against itself: whatever the machine does, the times are times and the interval holds the ratio."""
    first, second = tmp_path / "a.aicf", tmp_path / "b.aicf"
    for path in (first, second):
        model(sizes=(2,)).save(path)
    assert main(["bench", str(first), "--compare", str(second), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["program"] == "rows@N=2" and told["low"] <= told["ratio"] <= told["high"]
    assert told["verdict"] in ("same", "faster", "slower") and told["first_us"] > 0
    assert main(["bench", str(first), "--compare", str(tmp_path / "c.aicf")]) == 1
    assert "c.aicf" in capsys.readouterr().err
