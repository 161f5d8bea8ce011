"""Whatever stands on a command line where something else is wanted: one line and status 1, or a usage error (status 2).

Each argument and option of each command gets the texts of `test_nonsense`, and the others what they want.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import aicf
from aicf.tools import aicf_cli, aicf_opt
from tests.test_nonsense import MOST, TEXT, TEXTS, X

WORDS = {
    **TEXTS,
    "zero": "0",
    "fraction": "1.5",
    "2^63": str(1 << 63),
    "digits": "9" * 5000,
    "array": "x.npy",
    "model": "m.mlir",
    "artifact": "m.aicf",
    "pair": "x=x.npy",
    "pair of nothing": "x=nowhere.npy",
    "pair of NUL": "x=a\0b",
}
COMMANDS: Mapping[str, Mapping[str, str]] = {
    "compile": {"model": "m.mlir", "output": "out.aicf", "target": "reference"},
    "run": {"model": "m.aicf", "input": "x=x.npy"},
    "explain": {"model": "m.aicf"},
    "diff": {"before": "m.aicf", "after": "m.aicf"},
    "view": {"model": "m.aicf", "output": "out.html"},
    "bench": {"model": "m.aicf", "repeats": "3"},
    "tune": {"model": "m.mlir", "prepare": "cases"},
    "policy extract": {"program": "m.aicf"},
    "policy apply": {"model": "m.mlir", "policy": "p.yaml", "output": "again.aicf"},
}
"""By command what each parameter is that it does not do without; the files are in the folder."""
LONG = {"bench repeats": ("2^63", "digits")}
"""What is legal, and would take for ever."""
LINES: dict[str, list[str]] = {
    "no such command": ["A" * 100_000],
    "no such policy command": ["policy", "B" * 100_000],
    "no such option": ["--" + "A" * 100_000],
    "no such option of a command": ["compile", "--" + "A" * 100_000],
    "too many arguments": ["run", "m.aicf", "x" * 100_000],
    "half a character": ["a\ud800"],
    "NUL": ["--a\0b"],
    "an empty word": [""],
    "no value": ["compile", "m.mlir", "-o"],
}

Main = Callable[[Sequence[str]], int]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that `COMMANDS` name."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "m.mlir").write_text(TEXT, "utf-8")
    (folder / "FOLDER").mkdir()
    np.save(folder / "x.npy", X)
    aicf.compile(TEXT, target="reference").save(folder / "m.aicf")
    assert aicf_cli.main(["policy", "extract", str(folder / "m.aicf"), "-o", str(folder / "p.yaml")]) == 0
    return folder


@pytest.fixture
def _in_folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder holds the files, which a command may write over."""
    shutil.copytree(made, tmp_path / "files")
    monkeypatch.chdir(tmp_path / "files")


pytestmark = pytest.mark.usefixtures("_in_folder")


def _parameters() -> Iterator[tuple[str, str]]:
    """Every argument, and every option that takes a value, of every command."""
    for name in COMMANDS:
        for parameter in _command(name).params:
            if not getattr(parameter, "is_flag", False):
                yield name, parameter.name


@cache
def _command(name: str) -> Any:
    command: Any = typer.main.get_command(aicf_cli.app_of())
    for word in name.split():
        command = command.commands[word]
    return command


def _line(name: str, changed: str, word: str) -> list[str]:
    """A command line with a word in place of what one parameter wants."""
    given = {**COMMANDS[name], changed: word}
    parameters = [each for each in _command(name).params if each.name in given]
    options = [f"{max(p.opts, key=len)}={given[p.name]}" for p in parameters if p.param_type_name == "option"]
    arguments = [given[p.name] for p in parameters if p.param_type_name == "argument"]
    return [*name.split(), *options, "--", *arguments]


def _opt_options() -> Iterator[str]:
    """The input of `aicf-opt`, and its options that take a value."""
    parser = argparse.ArgumentParser()
    aicf_opt.AicfOptMain(["m.mlir"]).register_all_arguments(parser)
    for action in parser._actions:
        if action.nargs != 0:
            yield max(action.option_strings, key=len, default="")


def problem_of_line(main: Main, words: Sequence[str]) -> str | None:
    """What is wrong with how a command line ends. Of a real stream: what has no encoding is an error there."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", newline="", write_through=True)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(words)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]!r}"
    err.seek(0)
    lines = err.read().splitlines()
    if status not in (0, 1, 2) or (status and not lines):
        return f"status {status} with {len(lines)} lines"
    if status == 1 and len(lines) != 1:
        return f"{len(lines)} lines: {lines[:3]}"
    bad = [line for line in lines if len(line) > 2 * MOST or not line.isprintable() or "Traceback" in line]
    return f"a line of {len(bad[0])} characters: {bad[0][:200]!r}" if bad else None


@pytest.mark.parametrize(("name", "parameter"), list(_parameters()), ids=lambda value: value)
def test_words_of_commands(name: str, parameter: str) -> None:
    words = {word: text for word, text in WORDS.items() if word not in LONG.get(f"{name} {parameter}", ())}
    _check(aicf_cli.main, {word: _line(name, parameter, text) for word, text in words.items()})


@pytest.mark.parametrize("option", list(_opt_options()))
def test_words_of_aicf_opt(option: str) -> None:
    lines = {word: ["m.mlir", f"{option}={text}"] if option else ["--", text] for word, text in WORDS.items()}
    _check(aicf_opt.main, lines)


def test_lines_of_no_command() -> None:
    _check(aicf_cli.main, LINES)


def _check(main: Main, lines: Mapping[str, Sequence[str]]) -> None:
    found = {word: problem for word, line in lines.items() if (problem := problem_of_line(main, line))}
    assert not found, "\n".join(f"{word}: {problem}" for word, problem in found.items())
