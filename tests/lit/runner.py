"""Runs the RUN lines of a lit file in this process: forty tests in the time of one ``aicf-opt`` start.

It knows the commands and the shell syntax that our lit files use, and refuses the rest; plain ``lit
lit_tests`` runs the same files with a real shell (``lit_tests/lit.cfg.py``).
"""

from __future__ import annotations

import contextlib
import difflib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.ops import CheckOp
from filecheck.options import parse_argv_options
from filecheck.parser import Parser

INPUTS_FOLDER = "Inputs"
"""Folders of this name hold files that tests read and that are no tests."""

_RUN = re.compile(r"^\s*(?://|#)\s*RUN:\s*(.*)$", re.MULTILINE)
_OPERATORS = {"|", ">", "<", ">&", "&&", "||", ";", "&", ">>"}


Program = Callable[[list[str]], int]
"""What a command does with its arguments; it prints, and gives its exit status."""


class LitFailure(Exception):
    """A RUN line did not do what the test expects; the message is for the report."""


@dataclass
class Command:
    """One process of a pipeline."""

    arguments: list[str]
    negated: bool = False
    merge_stderr: bool = False
    stdin_file: str | None = None
    stdout_file: str | None = None


def run_lit_file(path: Path, temporary: Path) -> None:
    """Run every RUN line of ``path``; ``temporary`` is the prefix that ``%t`` stands for.

    Raises:
        LitFailure: A command failed, or the file uses something this runner does not know.
    """
    lines = run_lines(path.read_text(encoding="utf-8"))
    if not lines:
        raise LitFailure(f"{path} has no RUN line; input files belong into a folder named {INPUTS_FOLDER}")
    for line in lines:
        for name, value in (("%s", path), ("%S", path.parent), ("%t", temporary)):
            line = re.sub(rf"{name}\b", lambda _: str(value), line)  # noqa: B023
        _run_pipeline(line, parse_pipeline(line))


def run_lines(text: str) -> list[str]:
    """The RUN lines of a test, continuation lines joined."""
    joined: list[str] = []
    continued = False
    for part in _RUN.findall(text):
        piece = part.rstrip()
        body = piece.removesuffix("\\").rstrip()
        if continued:
            joined[-1] += " " + body
        else:
            joined.append(body)
        continued = piece.endswith("\\")
    return joined


def parse_pipeline(line: str) -> list[Command]:
    """Split ``a | not b 2>&1 | c > file`` into commands.

    Raises:
        LitFailure: For shell syntax that our lit files have no use for.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands = [Command([])]
    tokens = list(lexer)
    index = 0
    while index < len(tokens):
        token = tokens[index]
        command = commands[-1]
        match token:
            case "|":
                commands.append(Command([]))
            case ">&" if command.arguments[-1:] == ["2"] and tokens[index + 1 : index + 2] == ["1"]:
                command.arguments.pop()
                command.merge_stderr = True
                index += 1
            case "<" | ">" if index + 1 < len(tokens):
                index += 1
                if token == "<":
                    command.stdin_file = tokens[index]
                else:
                    command.stdout_file = tokens[index]
            case "not" if not command.arguments:
                command.negated = True
            case _ if token in _OPERATORS:
                raise LitFailure(f"unsupported shell syntax {token!r} in: {line}")
            case _:
                command.arguments.append(token)
        index += 1
    return commands


def _run_pipeline(line: str, commands: Sequence[Command]) -> None:
    data = b""
    for command in commands:
        if command.stdin_file is not None:
            data = Path(command.stdin_file).read_bytes()
        status, output, errors = run_command(command, data)
        if (status != 0) != command.negated:
            wanted = "to fail" if command.negated else "to succeed"
            shown = "" if command.merge_stderr else output
            raise LitFailure(
                f"RUN: {line}\nexpected {shlex.join(command.arguments)} {wanted}, exit status {status}\n"
                f"{errors}{shown}{_input_listing(command, data)}"
            )
        if command.stdout_file is not None:
            Path(command.stdout_file).write_text(output, encoding="utf-8")
            output = ""
        data = output.encode()


def _input_listing(command: Command, data: bytes) -> str:
    if command.arguments[0] != "filecheck":
        return ""
    return f"--- input of filecheck ---\n{data.decode(errors='replace')}"


def run_command(
    command: Command, data: bytes, programs: Mapping[str, Program] | None = None
) -> tuple[int, str, str]:
    """Run one command on the bytes of its standard input; `programs` are `PROGRAMS` if not given.

    Returns:
        Exit status, what it wrote, and what it wrote to standard error if that is not merged.

    Raises:
        LitFailure: it is none of the programs.
    """
    programs = PROGRAMS if programs is None else programs
    if not command.arguments or command.arguments[0] not in programs:
        known = ", ".join(sorted(programs))
        raise LitFailure(
            f"unknown command {' '.join(command.arguments[:1])!r}; this runner knows not, {known}"
        )
    name, *arguments = command.arguments
    output = io.StringIO()
    errors = output if command.merge_stderr else io.StringIO()
    stdin = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            status = programs[name](arguments)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.stdin = stdin
    return status, output.getvalue(), "" if errors is output else errors.getvalue()


def _aicf_opt(arguments: list[str]) -> int:
    from aicf.tools.aicf_opt import main

    return main(arguments)


def _aicf(arguments: list[str]) -> int:
    from aicf.tools.aicf_cli import main

    return main(arguments) or 0


def _cat(arguments: list[str]) -> int:
    for name in arguments:
        sys.stdout.write(Path(name).read_text(encoding="utf-8"))
    return 0


class _ScopedMatcher(Matcher):
    """Variables without ``$`` end at the next CHECK-LABEL.

    filecheck 1.0.6 accepts ``--enable-var-scope`` and does nothing about it.
    """

    def check_label(self, op: CheckOp) -> None:
        super().check_label(op)
        self.purge_variables()


def _diff(arguments: list[str]) -> int:
    left, right = (Path(name).read_text("utf-8").splitlines(keepends=True) for name in arguments)
    difference = list(difflib.unified_diff(left, right, *arguments))
    sys.stdout.writelines(difference)
    return int(bool(difference))


def _filecheck(arguments: list[str]) -> int:
    options = parse_argv_options(["filecheck", *arguments])
    text = sys.stdin.read() if options.input_file == "-" else Path(options.input_file).read_text("utf-8")
    return _ScopedMatcher(options, FInput(options.input_file, text), Parser.from_opts(options)).run()


def of_the_system(*program: str) -> Program:
    """A program of the system. What it writes to standard error, such as progress, counts only if it fails."""

    def run(arguments: list[str]) -> int:
        done = subprocess.run(
            [*program, *arguments], input=sys.stdin.read(), capture_output=True, text=True, check=False
        )
        sys.stdout.write(done.stdout)
        if done.returncode:
            sys.stderr.write(done.stderr)
        return done.returncode

    return run


PROGRAMS: Mapping[str, Program] = {
    "aicf": _aicf,
    "aicf-opt": _aicf_opt,
    "cat": _cat,
    "diff": _diff,
    "filecheck": _filecheck,
    "sed": of_the_system("sed"),
}
