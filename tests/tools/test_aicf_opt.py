"""The driver's exit statuses, output files and messages; what passes do is tested in lit."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from xdsl.ir import Attribute
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from aicf.dialects.emit import PHASES
from aicf.frontends.text import make_context
from aicf.passes.logical.logical_cse import LogicalCsePass
from aicf.passes.pipelines.text import pass_summary
from aicf.passes.support.works_on import WorksOn
from aicf.tools import aicf_opt
from aicf.tools.aicf_opt import main
from aicf.universe import AICF_UNIVERSE
from tests.support.processes import interruptible

ROOT = Path(__file__).parents[2]
PROGRAM = "func.func @f() {\n  func.return\n}\n"


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "m.mlir"
    path.write_text(PROGRAM)
    return str(path)


def test_prints_the_program(program: str, capsys: pytest.CaptureFixture[str]):
    assert main([program]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("builtin.module {\n  func.func @f()")
    assert output.err == ""


def test_print_parse_print_is_stable(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main([program])
    first = capsys.readouterr().out
    (tmp_path / "again.mlir").write_text(first)
    main([str(tmp_path / "again.mlir")])
    assert capsys.readouterr().out == first


def test_errors_are_one_line_with_status_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "m.mlir"
    path.write_text("func.func @f( {")
    assert main([str(path)]) == 1
    assert capsys.readouterr().err == f"{path}:1:15: error: expected argument or type, found '{{'\n"


def test_debug_adds_the_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "m.mlir"
    path.write_text("func.func @f( {")
    assert main([str(path), "--debug"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--nonsense"], ["-t", "nonsense"], ["-t", "mlir{"]])
def test_usage_errors_have_status_two(program: str, arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert main([program, *arguments]) == 2
    assert "aicf-opt: error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        ("canonicalise", "unknown pass 'canonicalise'; did you mean 'canonicalize'"),
        ("assign-idz", "unknown pass 'assign-idz'; did you mean 'assign-ids'"),
        ("cse{limit=3}", "pass 'cse' has no option 'limit'; it has no options"),
        ("cse{", "malformed pipeline 'cse{'"),
        (
            "cse{a=b:c}",
            "malformed pipeline 'cse{a=b:c}': Unknown token; write name{option=value},name and quote",
        ),
        (
            'set-target{tarjet="cpu"}',
            "pass 'set-target' has no option 'tarjet'; did you mean 'target'? legal: ",
        ),
        ("set-target{target=cpu threads=many}", "pass 'set-target': "),
        ("set-target{target=gpu9}", "unknown backend 'gpu9'; registered: "),
        ("dce,,cse", "malformed pipeline 'dce,,cse'"),
    ],
)
def test_pipeline_errors(program: str, pipeline: str, expected: str, capsys: pytest.CaptureFixture[str]):
    assert main([program, "-p", pipeline]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"aicf-opt: error: {expected}")
    assert error.count("\n") == 1


def test_a_bare_target_is_this_machine(program: str, capsys: pytest.CaptureFixture[str]):
    assert main([program, "-p", "set-target{target=cpu}"]) == 0
    assert '#emit.target<"cpu", "' in capsys.readouterr().out


def test_a_level_is_kept(program: str, capsys: pytest.CaptureFixture[str]):
    assert main([program, "-p", 'set-target{target="cpu:x86-64-v3"}']) == 0
    assert '#emit.target<"cpu", "x86-64-v3"' in capsys.readouterr().out


def test_unreadable_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path / "none.mlir")]) == 1
    error = capsys.readouterr().err
    assert error == f"{tmp_path}/none.mlir: error: cannot read the program: No such file or directory\n"


def test_any_file_name_will_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "m.txt").write_text(PROGRAM)
    assert main([str(tmp_path / "m.txt")]) == 0
    for suffix, way_out in (
        ("bin", "save the file as UTF-8 text"),
        (
            "onnx",
            "an ONNX model is no text: `aicf compile` takes it, and aicf.compile(...).ir('logical') is its text",
        ),
    ):
        (tmp_path / f"m.{suffix}").write_bytes(b"\x08\x0a\xff")
        assert main([str(tmp_path / f"m.{suffix}")]) == 1
        assert capsys.readouterr().err.endswith(
            f"m.{suffix}:2:1: error: the program is not UTF-8: byte 0xff; {way_out}\n"
        )


def test_output_file(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    target = tmp_path / "out.mlir"
    assert main([program, "-o", str(target)]) == 0
    assert target.read_text().startswith("builtin.module")
    assert capsys.readouterr().out == ""


def test_a_failure_leaves_the_output_file(tmp_path: Path):
    target = tmp_path / "out.mlir"
    target.write_text("before")
    bad = tmp_path / "bad.mlir"
    bad.write_text("nonsense")
    assert main([str(bad), "-o", str(target)]) == 1
    assert target.read_text() == "before"


def test_unwritable_output(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    target = tmp_path / "no" / "out.mlir"
    assert main([program, "-o", str(target)]) == 1
    error = capsys.readouterr().err
    assert error == f"{target}: error: cannot write the output: No such file or directory\n"


def test_output_to_a_device(program: str):
    assert main([program, "-o", os.devnull]) == 0
    assert not os.path.isfile(os.devnull)


def test_disable_verify_does_not_outlive_the_call(program: str):
    before = Attribute.__post_init__
    assert main([program, "--disable-verify"]) == 0
    assert Attribute.__post_init__ is before


def failing_pass(error: BaseException) -> type[ModulePass]:
    class FailingPass(ModulePass):
        name = "failing"

        def apply(self, ctx: object, op: object) -> None:
            raise error

    return FailingPass


@pytest.mark.parametrize(
    ("error", "status", "expected"),
    [
        (PassFailedException("no route"), 1, "m.mlir:1:1: error: pass 'failing': no route\n"),
        (
            KeyError("x"),
            1,
            "m.mlir:1:1: error: pass 'failing' failed: KeyError: 'x'; --debug prints the traceback\n",
        ),
        (KeyboardInterrupt(), 130, "aicf-opt: interrupted\n"),
    ],
)
def test_a_failing_pass(
    program: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
    expected: str,
):
    monkeypatch.setitem(aicf_opt.AICF_UNIVERSE.all_passes, "failing", lambda: failing_pass(error))
    assert main([program, "-p", "failing"]) == status
    assert capsys.readouterr().err.endswith(expected)


def test_time_passes_leaves_stdout_to_the_program(program: str, capsys: pytest.CaptureFixture[str]):
    assert main([program, "-p", "cse,dce", "--time-passes"]) == 0
    output = capsys.readouterr()
    assert "Pass cse took" in output.err
    assert output.out.startswith("builtin.module")


def test_help_fits_a_terminal_and_breaks_no_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("usage: aicf-opt")
    assert len(lines) < 80 and max(map(len, lines)) <= 80
    assert not any(line.endswith("-") for line in lines)
    assert "riscv-asm" in " ".join(lines) and "--list-passes lists all" in " ".join(" ".join(lines).split())


def test_the_list_of_passes_has_one_a_line_and_ours_first(capsys: pytest.CaptureFixture[str]):
    assert main(["--list-passes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines]
    ours = list(AICF_UNIVERSE.all_passes)
    assert names[: len(ours)] == ours and len(set(names)) == len(names)
    assert {"canonicalize", "cse", "dce"} <= {*names[len(ours) :]}
    assert all(len(line.split(maxsplit=1)) == 2 and "``" not in line for line in lines)
    (row,) = [line for line in lines if line.startswith("set-target ")]
    assert row.endswith(
        "writes what the module is compiled for into it, where every later pass reads it. {target, threads}"
    )
    (row,) = [line for line in lines if line.startswith("aicf-inference ")]
    assert row.endswith("training, until}")


@pytest.mark.parametrize("name", AICF_UNIVERSE.all_passes)
def test_every_pass_says_what_it_does_and_works_on(name: str):
    pass_class = AICF_UNIVERSE.all_passes[name]()
    summary = pass_summary(pass_class)
    assert summary.endswith(".") and not summary.startswith(("`" + name, name)) and len(summary) <= 110
    works_on = getattr(pass_class, "works_on", None)
    assert isinstance(works_on, WorksOn)
    assert works_on.before is None or works_on.before in PHASES
    context = make_context()
    assert all(context.get_optional_op(op) is not None for op in works_on.ops)


def test_an_error_inside_a_named_pipeline_names_the_pass(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(LogicalCsePass, "apply", fail)
    assert main([program, "-p", "aicf-inference{target=reference}"]) == 1
    assert "pass 'logical-cse' failed: KeyError: 'x'" in capsys.readouterr().err


def test_version_names_both(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("aicf-opt ")


def start(*arguments: str, **streams: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "aicf.tools.aicf_opt", *arguments]
    return subprocess.Popen(interruptible(command), cwd=ROOT, text=True, stderr=subprocess.PIPE, **streams)


def test_a_reader_that_goes_away_is_no_traceback(program: str):
    read, write = os.pipe()
    os.close(read)
    with start(program, stdout=write) as process:
        os.close(write)
        _, errors = process.communicate(timeout=60)
    assert errors == ""
    assert process.returncode == 1


def test_ctrl_c_has_status_130():
    with start(stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.write("func.func @f() {")
        process.stdin.flush()
        # Once the pipe is empty, the driver is inside main and waits for the rest of its input.
        deadline = time.monotonic() + 60
        while unread_bytes(process.stdin.fileno()) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "aicf-opt: interrupted\n"


def unread_bytes(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]
