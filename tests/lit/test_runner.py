"""The lit runner: what it accepts, and that a wrong CHECK, status or command is a failure."""

from pathlib import Path

import pytest

from tests.lit.runner import Command, LitFailure, parse_pipeline, run_lines, run_lit_file

PROGRAM = "func.func @f() {\n  func.return\n}\n"


def run(tmp_path: Path, *lines: str) -> None:
    path = tmp_path / "case.mlir"
    path.write_text("".join(f"// {line}\n" for line in lines) + PROGRAM)
    run_lit_file(path, tmp_path / "case")


def test_passes(tmp_path: Path):
    run(tmp_path, "RUN: aicf-opt %s | filecheck %s", "CHECK: func.func @f")


def test_continuation_lines_and_temporaries(tmp_path: Path):
    run(
        tmp_path,
        "RUN: aicf-opt %s \\",
        "RUN:   > %t.out",
        "RUN: cat %t.out | filecheck %s --check-prefix=OTHER",
        "OTHER: func.func @f",
    )


def test_wrong_check_fails(tmp_path: Path):
    with pytest.raises(LitFailure, match="input of filecheck"):
        run(tmp_path, "RUN: aicf-opt %s | filecheck %s", "CHECK: func.func @g")


def test_exit_status_of_every_command_counts(tmp_path: Path):
    with pytest.raises(LitFailure, match=r"expected aicf-opt .* to succeed, exit status 1"):
        run(tmp_path, "RUN: aicf-opt %s -p nonsense 2>&1 | filecheck %s", "CHECK: unknown pass")
    run(tmp_path, "RUN: not aicf-opt %s -p nonsense 2>&1 | filecheck %s", "CHECK: unknown pass")


def test_variables_are_scoped_by_labels(tmp_path: Path):
    with pytest.raises(LitFailure, match="filecheck"):
        run(
            tmp_path,
            "RUN: aicf-opt %s | filecheck %s",
            "CHECK: b[[LETTER:u]]iltin.module",
            "CHECK-LABEL: func.func @f",
            "CHECK: [[LETTER]]",
        )


def test_diff_compares_files(tmp_path: Path):
    run(
        tmp_path,
        "RUN: aicf-opt %s > %t.once",
        "RUN: aicf-opt %t.once > %t.twice",
        "RUN: diff %t.once %t.twice",
    )
    with pytest.raises(LitFailure, match=r"\+builtin.module"):
        run(tmp_path, "RUN: aicf-opt %s > %t.once", "RUN: diff %s %t.once")


def test_no_run_line_is_a_failure(tmp_path: Path):
    with pytest.raises(LitFailure, match="has no RUN line"):
        run(tmp_path, "CHECK: func.func @f")


@pytest.mark.parametrize("line", ["rm -rf /", "aicf-opt a; aicf-opt b", "aicf-opt a && aicf-opt b"])
def test_unknown_commands_and_syntax_are_refused(tmp_path: Path, line: str):
    with pytest.raises(LitFailure, match=r"unknown command|unsupported shell syntax"):
        run(tmp_path, f"RUN: {line}")


def test_parse_pipeline():
    assert parse_pipeline("not a 'x{y=1}' 2>&1 | b < in > out") == [
        Command(["a", "x{y=1}"], negated=True, merge_stderr=True),
        Command(["b"], stdin_file="in", stdout_file="out"),
    ]


def test_run_lines_are_joined():
    assert run_lines("// RUN: a \\\n// RUN: b\nx\n# RUN: c\n") == ["a b", "c"]
