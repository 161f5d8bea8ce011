"""The data of a report: it is that of the explanation, the plan, the measurement and the comparison."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

import aicf
from aicf.comparison.diff import compare
from aicf.compilation.reading import read_record
from aicf.compilation.saved_program import read_saved_program
from aicf.errors import ArtifactError, InputMismatch
from aicf.report import gather_report
from aicf.report.contents import Compiled
from aicf.tools.aicf_cli import main
from tests.report.conftest import Files, times_of


@pytest.fixture(scope="module")
def mlp(files: Files) -> Compiled:
    return gather_report(files.mlp).compiled[0]


@pytest.fixture(scope="module")
def step(files: Files) -> Compiled:
    return gather_report(files.step, passes=False).compiled[0]


@pytest.mark.parametrize("name", ["mlp", "step"])
def test_instructions_are_those_of_the_explanation(name: str, files: Files) -> None:
    path = getattr(files, name)
    explained = aicf.load(path).explain()
    found = gather_report(path, passes=False).compiled[0].programs
    assert [each.name for each in found] == [each.name for each in explained.programs]
    for program, expected in zip(found, explained.programs, strict=True):
        assert tuple(each.row for each in program.instructions) == expected.rows
        assert (program.arena_bytes, program.lower_bound_bytes) == (
            expected.arena_bytes,
            expected.lower_bound_bytes,
        )


def test_launches_are_those_of_the_plan(step: Compiled, files: Files) -> None:
    _, plan = read_record(files.step)
    for program, expected in zip(step.programs, plan.all_programs, strict=True):
        for each, node, launch in zip(
            program.instructions, expected.graph.nodes, expected.launches, strict=True
        ):
            assert each.stream == launch.stream
            assert each.record == launch.record
            assert [name for name, _ in each.after] == [edge.source for edge in node.after]
            assert (len(each.reads), len(each.writes)) == (len(launch.ins), len(launch.outs))


def test_neighbours_have_the_answers_of_why_not(mlp: Compiled, files: Files) -> None:
    exe = aicf.load(files.mlp)
    pairs = [pair for program in mlp.programs for pair in program.neighbours]
    assert ("fc1@N=3", "fc2@N=3") in [(pair.producer, pair.consumer) for pair in pairs]
    for pair in pairs:
        assert pair.because
        answer = exe.why_not(pair.producer, pair.consumer)
        assert set(pair.because) <= {*answer.because}, pair


def test_the_arena_has_what_instructions_touch(step: Compiled, files: Files) -> None:
    """Every operand in the arena lies in one buffer that is alive at its instruction, and no two of these overlap."""
    _, plan = read_record(files.step)
    (program,) = step.programs
    assert max(buffer.offset + buffer.size for buffer in program.arena) == program.arena_bytes
    for position, launch in enumerate(plan.programs[0].launches):
        alive = [b for b in program.arena if b.touches[0] <= position <= b.touches[-1]]
        taken = sorted((b.offset, b.offset + b.size) for b in alive)
        assert all(end <= start for (_, end), (start, _) in pairwise(taken))
        for operand in (*launch.ins, *launch.outs, *launch.ws):
            if operand.base == 0:
                (own,) = [b for b in alive if b.offset <= operand.offset < b.offset + b.size]
                assert position in own.touches


def test_the_model_is_a_graph_with_locations(mlp: Compiled) -> None:
    assert mlp.model is not None
    ops = {op.id: op for op in mlp.model}
    assert list(ops) == ["fc1", "relu1", "fc2", "relu2", "fc3", "prob"]
    assert ops["relu1"].reads == ("fc1",) and ops["relu1"].kind == "relu"
    assert ops["fc1"].inputs == ("x", "fc1.weight", "fc1.bias")
    assert ops["prob"].type == "f32[N, 10]"
    assert str(ops["fc1"].location).endswith("mlp.mlir:11:3")


def test_every_stage_reads_as_the_program_after_its_pass(mlp: Compiled, files: Files) -> None:
    exe = aicf.load(files.mlp)
    stages, runs, texts = mlp.stages, (), {}
    for stage in stages.stages:
        runs = stage.lines or runs
        pairs = zip(runs[::2], runs[1::2], strict=True)
        texts[stage.made_by] = [
            line for first, count in pairs for line in stages.lines[first : first + count]
        ]
    assert stages.missing is None
    assert texts["model"] == exe.ir("logical").splitlines()
    for name in ("lower-logical", "fuse-epilogues", "schedule", "plan-capture"):
        shown = iter(exe.ir(name).splitlines())
        missing = [line for line in texts[name] if line not in shown]  # in order
        assert not missing and not any("emit.decision" in line for line in texts[name])
    assert stages.stages[-1].made_by == "verify-capture-safe" and not stages.stages[-1].lines


def test_without_the_passes_there_is_the_first_stage_and_the_last(files: Files) -> None:
    stages = gather_report(files.mlp, passes=False).compiled[0].stages
    assert [stage.made_by for stage in stages.stages] == ["model", "final"]
    assert stages.missing == "the report was made with --no-passes"


def test_passes_that_make_another_program_are_told(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aicf.compilation.stages.print_module", lambda module: "another program\n")
    stages = gather_report(files.mlp).compiled[0].stages
    assert [stage.made_by for stage in stages.stages] == ["model", "final"]
    assert stages.missing is not None and "makes another program" in stages.missing


def test_saves_are_in_the_report(step: Compiled) -> None:
    assert step.saves is not None
    assert list(step.saves.again) == ["act0.save"]


def test_measured_times_go_to_their_program(files: Files, tmp_path: Path) -> None:
    times = {}
    for name, us in (("unfused", 3.0), ("mlp", 2.0)):
        times[name] = tmp_path / f"{name}.json"
        times[name].write_text(times_of(getattr(files, name), us), "utf-8")
    report = gather_report(files.mlp, files.unfused, list(times.values()), passes=False)
    for compiled, us in zip(report.compiled, (2.0, 3.0), strict=True):
        for program in compiled.programs[:2]:
            measured = [each.measured_us for each in program.instructions]
            assert measured == [us * number for number in range(1, len(measured) + 1)]
            assert program.replay_us == 8.0
            for each in program.instructions:
                assert each.bound is not None and each.measured_us is not None
                least = max(each.bound.arithmetic_us, each.bound.memory_us)
                assert each.bound.share == pytest.approx(least / each.measured_us)


def test_a_time_that_no_clock_can_tell_has_no_share(files: Files, tmp_path: Path) -> None:
    times = tmp_path / "times.json"
    times.write_text(times_of(files.mlp, 1e-4), "utf-8")
    program = gather_report(files.mlp, measured=[times], passes=False).compiled[0].programs[0]
    assert {each.bound.share for each in program.instructions if each.bound is not None} == {None}


BAD_TIMES = {
    "of another program": (
        lambda text: text.replace("fc1@", "fc9@"),
        InputMismatch,
        "of another program than",
    ),
    "of another target": (lambda text: text.replace("v3", "v4"), InputMismatch, "'mlp' for cpu:x86-64-v4"),
    "no JSON": (lambda text: text[:-9], ArtifactError, "is no JSON"),
    "of something else": (
        lambda text: '{"a": 1}',
        ArtifactError,
        "has an unknown field 'a'; measured times are",
    ),
}


@pytest.mark.parametrize("case", BAD_TIMES)
def test_bad_times_are_one_line(
    case: str, files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, kind, message = BAD_TIMES[case]
    times = tmp_path / "times.json"
    times.write_text(change(times_of(files.mlp, 1.0)), "utf-8")
    with pytest.raises(kind, match=message):
        gather_report(files.mlp, measured=[times], passes=False)
    command = ["view", str(files.mlp), "--profile", str(times), "-o", str(tmp_path / "out.html")]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"{times}: error: ") and error.count("\n") == 1
    assert not (tmp_path / "out.html").exists()


def test_the_comparison_is_that_of_diff(files: Files) -> None:
    report = gather_report(files.mlp, files.unfused, passes=False)
    expected = compare(read_saved_program(files.mlp), read_saved_program(files.unfused))
    assert report.comparison == expected.to_json_value()
    assert json.dumps(report.comparison).count("fusion lost") == 4


def test_emit_ir_has_a_report_too(files: Files, tmp_path: Path) -> None:
    text = tmp_path / "final.mlir"
    text.write_text(aicf.load(files.mlp).ir("emit"), "utf-8")
    whole, bare = (gather_report(path, passes=False).compiled[0] for path in (files.mlp, text))
    assert bare.model is None
    assert bare.stages.missing == "the program was compiled from emit IR"
    assert bare.programs == whole.programs
    assert bare.decisions == whole.decisions
