"""Planted faults are found: a slow kernel, a wrong one, and what a script says; and what cannot be bisected is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.bisection import Script, Slower, Verdict, Wrong, slower
from aicf.bisection.bisecting import Standing
from aicf.bisection.candidates import Candidates
from aicf.bisection.verdicts import Verdicts
from aicf.bisection.wrong import error_of
from aicf.compilation.compiled import CompiledModel
from aicf.errors import ArtifactError, InputMismatch, PolicyError
from aicf.tools.aicf_cli import main
from tests.support.faulty_programs import model, planted, program, save, weights

pytestmark = pytest.mark.usefixtures("faulty")


def found(result: aicf.Bisection) -> list[tuple[str, str, str]]:
    return [(change.subject, change.before, change.after) for change in result.found]


def test_a_planted_wrong_decision_is_found() -> None:
    bad = planted({"fc2": "faulty.wrong"}, "N=1,3")
    standings: list[Standing] = []
    result = aicf.bisect(program("N=1,3"), bad, Wrong(), report=standings.append)
    # Both programs, of 1 row and of 3, have it; either is enough.
    ((subject, before, after),) = found(result)
    assert subject.startswith("fc2@N=") and (before, after) == ("faulty.right", "faulty.wrong")
    assert result.total > 10 and result.detail.startswith("'y' is off by ")
    assert [standing.left for standing in standings] == sorted((s.left for s in standings), reverse=True)
    assert standings[-1].tested == result.tested
    lines = str(result).splitlines()
    assert f"with 1 of {result.total} decisions results are wrong: 'y' is off by" in lines[0]
    assert lines[1] == f"  kernel.kernels of {subject}: faulty.right -> faulty.wrong"


def test_a_planted_slow_decision_is_found() -> None:
    result = aicf.bisect(program(), planted({"fc3": "faulty.slow", "fc2": "faulty.wrong"}), Slower())
    assert found(result) == [("fc3@N=3", "faulty.right", "faulty.slow")]
    assert "x the time of the good program in @layers@N=3" in result.detail


def test_faults_that_hide_each_other_are_both_needed(tmp_path: Path) -> None:
    """A check that fails only with two decisions together."""
    script = tmp_path / "check.sh"
    script.write_text(
        '#!/bin/sh\ngrep -aq \'kernel("faulty.wrong\' "$1" && grep -aq \'kernel("faulty.slow\' "$1" && exit 3\nexit 0\n'
    )
    script.chmod(0o755)
    bad = program(kernels={"fc1": "faulty.slow", "fc3": "faulty.wrong"})
    result = aicf.bisect(program(), bad, Script(str(script)))
    assert [after for _, _, after in found(result)] == ["faulty.slow", "faulty.wrong"]
    assert result.detail == "exit status 3" and result.effect == "the check fails"


def test_the_same_bisection_goes_on_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    good, bad = program(), planted({"fc2": "faulty.wrong"})

    def interrupted(standing: Standing) -> None:
        if standing.tested == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        aicf.bisect(good, bad, Wrong(), verdicts=path, report=interrupted)
    kept = json.loads(path.read_text())
    assert len(kept["verdicts"]) == 3 and kept["result"] is None
    asked: list[CompiledModel] = []

    class Counting(Wrong):
        def verdict(self, candidate: CompiledModel) -> Verdict:
            asked.append(candidate)
            return super().verdict(candidate)

    result = aicf.bisect(good, bad, Counting(), verdicts=path)
    # Both ends are shown to the check again.
    assert len(asked) == 2 + result.tested - 3 - result.unresolved
    assert [after for _, _, after in found(result)] == ["faulty.wrong"]
    assert json.loads(path.read_text())["result"]["found"][0]["after"] == "faulty.wrong"


def test_what_does_not_compile_is_neither() -> None:
    """The kernels of groups that a candidate has not are known to no model."""
    candidates = Candidates(program(), planted({"fc2.bias": "faulty.wrong"}))
    number = next(n for n, change in enumerate(candidates.changes) if change.subject == "fc2.bias@N=3")
    with pytest.raises(PolicyError, match="kernels.fc2.bias@N=3: no group or kind has that name"):
        candidates.compile([number])
    result = aicf.bisect(program(), planted({"fc2.bias": "faulty.wrong"}), Wrong())
    assert [change.title for change in result.found] == [
        "kernel.groups of fc2.matmul@N=3",
        "kernel.kernels of fc2.bias@N=3",
    ]
    assert result.unresolved > 0


# What cannot be bisected


def other_model() -> CompiledModel:
    graph = aicf.Graph("other")
    graph.output(graph.relu(graph.input("x", (2, 2))), "y")
    return aicf.compile(graph, None, "faulty")


def other_weights() -> CompiledModel:
    return aicf.compile(model(), weights(1), "faulty", dims="N=3")


PAIRS: list[tuple[Callable[[], CompiledModel], str]] = [
    (program, "the two programs make the same decisions; aicf diff says what else differs"),
    (other_model, "the two programs are of different models; compile both from the same file"),
    (lambda: program("N=2"), "the two programs differ in dims, 'N=3' and 'N=2'; compile both with the same"),
    (
        lambda: aicf.compile(model(), weights(), "reference", dims="N=3"),
        "the two programs differ in target, 'faulty:typed' and 'reference:typed'; compile both with the same",
    ),
    (other_weights, "the two programs have different weights: 'fc1."),
    (
        lambda: aicf.compile(program().ir("emit"), weights()),
        "layers@N=3 was compiled from an emit program, whose decisions are fixed; compile the model that ",
    ),
]


@pytest.mark.parametrize(("bad", "message"), PAIRS)
def test_programs_that_differ_in_more_than_decisions(bad: Callable[[], CompiledModel], message: str) -> None:
    with pytest.raises(InputMismatch) as error:
        aicf.bisect(program(), bad(), Wrong())
    assert error.value.message.startswith(message)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            Wrong(),
            "the check says that the bad program is good (all results are as of the good program); give a ",
        ),
        (Script("true"), "the check says that the bad program is good (exit status 0); "),
        (Script("false"), "the check says that the good program is bad (exit status 1); "),
        (
            Script("sh -c 'exit 125'"),
            "the check says that the good program is unresolved (exit status 125); ",
        ),
        (
            Script("sh -c 'exit 200'"),
            "check 'sh -c 'exit 200'': exit status 200 is no verdict; exit with 0 for ",
        ),
        (Script("sh -c 'kill -9 $$'"), "check 'sh -c 'kill -9 $$'': ended by signal 9 is no verdict; "),
        (
            Script("/no/such/check"),
            "check '/no/such/check' cannot be run: [Errno 2] No such file or directory",
        ),
        (Script("'"), "check ''' cannot be run: No closing quotation; give a program"),
    ],
)
def test_checks_that_do_not_tell_the_programs_apart(check: Any, message: str) -> None:
    with pytest.raises(InputMismatch) as error:
        aicf.bisect(program(), planted({}), check)
    assert error.value.message.startswith(message)


def test_programs_that_take_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slower, "MOST_ROUNDS", 11)
    with pytest.raises(InputMismatch) as error:
        aicf.bisect(
            planted({"fc2": "faulty.slow"}), planted({"fc2": "faulty.slow", "fc3": "faulty.wrong"}), Slower()
        )
    assert error.value.message.startswith(
        "the bad program is not slower than the good one by more than the noise and 3% (@layers@N=3: "
    )


def test_files_of_other_bisections_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    good, bad = program(), planted({"fc2": "faulty.wrong"})
    aicf.bisect(good, bad, Wrong(), verdicts=path)
    with pytest.raises(ArtifactError, match="it is of another bisection: other check; give another file"):
        aicf.bisect(good, bad, Wrong(tolerance=0.001), verdicts=path)
    with pytest.raises(ArtifactError, match="it is of another bisection: other bad; give another file"):
        aicf.bisect(good, planted({"fc1": "faulty.wrong"}), Wrong(), verdicts=path)
    changes = Candidates(good, bad).changes
    for text in ("", "[]", '{"format": 3}', path.read_text().replace('"bad"', '"worse"')):
        path.write_text(text)
        with pytest.raises(ArtifactError, match="give another file, or remove it to begin anew"):
            Verdicts(path, good, bad, Wrong().text, changes)


# Errors of results


def test_how_far_a_result_is_off() -> None:
    expected = np.array([1.0, -4.0, np.inf, np.nan], np.float32)
    assert error_of(expected.copy(), expected) == 0
    found = expected.copy()
    found[0] = 1.5
    assert error_of(found, expected) == 0.125
    for index, value in ((2, 1.0), (3, 0.0), (0, np.nan), (1, -np.inf)):
        wrong = expected.copy()
        wrong[index] = value
        assert error_of(wrong, expected) == float("inf")
    numbers = np.array([1, 2], np.int32)
    assert error_of(numbers, numbers) == 0 and error_of(numbers + 1, numbers) == float("inf")
    assert error_of(numbers, numbers[:1]) == float("inf")
    with pytest.raises(InputMismatch, match="tolerance -1 is no share"):
        Wrong(tolerance=-1)


# The command


def test_the_command_finds_it_and_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = save(program(), tmp_path, "good"), save(planted({"fc2": "faulty.wrong"}), tmp_path, "bad")
    x = tmp_path / "x.npy"
    np.save(x, np.random.default_rng(5).standard_normal((3, 8), np.float32))
    given = ["--wrong", "--input", f"x={x}", "--tolerance", "0.001", "-o", str(tmp_path / "verdicts.json")]
    assert main(["bisect", good, bad, *given]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{good} -> {bad}: with 1 of ")
    assert "\n  kernel.kernels of fc2@N=3: faulty.right -> faulty.wrong\n" in printed
    assert main(["bisect", good, bad, *given, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["found"][0]["subject"] == "fc2@N=3" and value["found"][0]["section"] == "kernel"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give one of --check COMMAND, --slower and --wrong"),
        (["--slower", "--wrong"], "give one of --check COMMAND, --slower and --wrong"),
        (["--slower", "--tolerance", "1"], "--input and --tolerance are of --wrong"),
        (["--check", "true", "--input", "x=x.npy"], "--input and --tolerance are of --wrong"),
    ],
)
def test_wrong_usage(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "a.aicf", "b.aicf", *options]) == 2
    assert message in capsys.readouterr().err
