"""Pages as tests: what a page shows must come, all of it and nothing else, and a page that shows nothing is no test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lit.runner import LitFailure
from tests.lit.session import fenced_blocks, matches, run_page, steps_of

PROGRAM = "func.func @f() {\n  func.return\n}\n"
SHOWN = ["$ aicf-opt f.mlir", "builtin.module {", "  func.func @f() {", "    func.return", "  }", "}"]


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *lines: str, language: str = "console") -> None:
    (tmp_path / "f.mlir").write_text(PROGRAM)
    page = tmp_path / "page.md"
    page.write_text("\n".join(["Text.", f"```{language}", *lines, "```", ""]))
    monkeypatch.chdir(tmp_path)  # run_page goes where the page is
    run_page(page)


def test_a_page_that_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run(
        tmp_path,
        monkeypatch,
        *SHOWN,
        "$ aicf-opt \\",
        "    nowhere.mlir",
        "nowhere.mlir: error: ...",
        "$ echo $?",
        "1",
    )
    run(
        tmp_path,
        monkeypatch,
        "$ aicf-opt f.mlir -o g.mlir",
        "$ cat g.mlir | grep func.func",
        "  func.func @f() {",
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (SHOWN[:-1], r"page.md:3: \$ aicf-opt f.mlir\n(.*\n)*\+}"),
        ([*SHOWN, "more"], r"-more"),
        ([SHOWN[0], "builtin.modul...", "}"], r"\+  func.func @f\(\) \{"),
        (["$ aicf-opt f.mlir -p nonsense", "..."], r"the last command has status 1: show it with `\$ echo"),
        (["$ aicf-opt f.mlir -p nonsense", "...", *SHOWN], r"the command in front has status 1"),
        (["$ aicf-opt f.mlir -p nonsense", "...", "$ echo $?", "0"], r"-0\n\+1"),
        (["$ rm -rf f.mlir"], "unknown command 'rm'"),
        (["builtin.module {"], "a console block starts with a command"),
    ],
)
def test_a_page_that_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], message: str
):
    with pytest.raises(LitFailure, match=message):
        run(tmp_path, monkeypatch, *lines)


def test_other_blocks_are_excerpts_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(LitFailure, match="page.md: has no console block"):
        run(tmp_path, monkeypatch, "  func.return", "}", language="mlir")
    with pytest.raises(LitFailure, match="page.md:3: no file beside the page has these lines"):
        run(tmp_path, monkeypatch, "  func.return ", language="mlir")


@pytest.mark.parametrize(
    ("output", "shown", "same"),
    [
        ("a\nb\n", ["a", "b"], True),
        ("a \nb\n\n", ["a", "b"], True),
        ("a\n", ["a", "b"], False),
        ("a\nb\nc\n", ["a", "...", "c"], True),
        ("a\nc\n", ["a", "...", "c"], True),
        ("a\nb\n", ["...", "c"], False),
        ("takes 3.4 us\n", ["takes ... us"], True),
        ("takes\n3.4 us\n", ["takes ... us"], False),
        ("a.b\n", ["a?b"], False),
        ("", [], True),
        ("a\n", [], False),
    ],
)
def test_what_matches(output: str, shown: list[str], same: bool):
    assert matches(output, shown) == same


def test_blocks_and_steps_know_their_lines():
    page = "one\n```mlir\nx\n```\n\n```console\n$ a \\\n  b\nc\n$ d\n```\n"
    first, second = fenced_blocks(page)
    assert (first.language, first.line, first.lines) == ("mlir", 3, ("x",))
    assert [(step.line, step.command, step.shown) for step in steps_of(second)] == [
        (7, "a b", ("c",)),
        (10, "d", ()),
    ]
