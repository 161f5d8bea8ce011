"""Types the console blocks of a markdown page and compares what comes with what the page shows.

    $ aicf diff a.aicf b.aicf      a command; a backslash at the end goes on in the next line
    a.aicf and b.aicf: the same    what it prints; `...` is any text in a line, and alone in a line any lines

Whatever is not elided has to come, and nothing else. A command that fails is followed by `$ echo $?` and the status
that the reader sees. Any other fenced block with a language is an excerpt of a file beside the page, to the letter.

The page is run where it lies and leaves files behind: `pages` gives it a copy of the repository. Our commands run in
this process (`runner`), which imports the compiler with the first that needs it.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aicf.support import progress
from tests.lit.runner import PROGRAMS, LitFailure, of_the_system, parse_pipeline, run_command

CONSOLE = "console"
STATUS = "echo $?"

_FENCE = re.compile(r"^```(\w*)$")
_GAP = "..."
_NEVER = 3600.0
"""Seconds until progress is shown: a terminal takes that line away again, a page does not have it."""


@dataclass(frozen=True)
class Block:
    """A fenced block, and the number of its first line in the page."""

    language: str
    line: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """A command, what the page shows after it, and the number of its line."""

    line: int
    command: str
    shown: tuple[str, ...]


def run_page(page: Path) -> None:
    """Run every command of a page in its folder.

    Raises:
        LitFailure: something is not as the page says; the message names its line.
    """
    blocks = list(fenced_blocks(page.read_text("utf-8")))
    files = [path.read_text("utf-8") for path in sorted(page.parent.iterdir()) if _is_source(path)]
    for block in blocks:
        if block.language not in ("", CONSOLE) and not any(_holds(text, block.lines) for text in files):
            raise LitFailure(f"{page}:{block.line}: no file beside the page has these lines")
    steps = [step for block in blocks if block.language == CONSOLE for step in steps_of(block)]
    if not steps:
        raise LitFailure(f"{page}: has no {CONSOLE} block")
    os.chdir(page.parent)
    _run_steps(page, steps)


def _is_source(path: Path) -> bool:
    return path.is_file() and path.suffix != ".md"


def _holds(text: str, lines: Sequence[str]) -> bool:
    return "\n".join(["", *lines, ""]) in f"\n{text}"


def fenced_blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    start, language, lines = 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if not start and fence:
            start, language, lines = number + 1, fence[1], []
        elif fence:
            yield Block(language, start, tuple(lines))
            start = 0
        elif start:
            lines.append(line)


def steps_of(block: Block) -> Iterator[Step]:
    """The commands of a console block.

    Raises:
        LitFailure: it shows output before the first command.
    """
    if not block.lines[0].startswith("$ "):
        raise LitFailure(f"line {block.line}: a console block starts with a command")
    starts = [number for number, line in enumerate(block.lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(block.lines)], strict=True):
        first = start
        while block.lines[first].endswith("\\"):
            first += 1
        typed = " ".join(line.removesuffix("\\").strip() for line in block.lines[start : first + 1])
        yield Step(block.line + start, typed.removeprefix("$ "), block.lines[first + 1 : end])


def _run_steps(page: Path, steps: Sequence[Step]) -> None:
    status = 0
    for step in steps:
        where = f"{page.name}:{step.line}: $ {step.command}"
        if step.command == STATUS:
            output, status = f"{status}\n", 0
        elif status:
            raise LitFailure(f"{where}\nthe command in front has status {status}: show it with `$ {STATUS}`")
        else:
            status, output = run_line(step.command)
        if not matches(output, step.shown):
            raise LitFailure(f"{where}\n{_difference(step.shown, output)}")
    if status:
        raise LitFailure(f"{page.name}: the last command has status {status}: show it with `$ {STATUS}`")


def run_line(line: str) -> tuple[int, str]:
    """Run a command line as a terminal shows it: the status of its last command, and all that is not redirected."""
    status, data, shown = 0, b"", ""
    commands = parse_pipeline(line)
    commands[-1].merge_stderr = commands[-1].stdout_file is None
    for command in commands:
        status, output, errors = run_command(command, data, _PROGRAMS)
        shown += errors
        if command.stdout_file is not None:
            Path(command.stdout_file).write_text(output, encoding="utf-8")
            output = ""
        data = output.encode()
    return status, shown + data.decode()


def matches(output: str, shown: Sequence[str]) -> bool:
    """Whether an output is what a page shows; blanks at the end of a line, and empty lines at the end, do not count."""
    lines = [line.rstrip() for line in output.rstrip().splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == _GAP else _line_pattern(line) for line in shown)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def _line_pattern(line: str) -> str:
    return ".*?".join(re.escape(part) for part in line.split(_GAP)) + "\n"


def _difference(shown: Sequence[str], output: str) -> str:
    lines = [line.rstrip() for line in output.rstrip().splitlines()]
    return "\n".join(difflib.unified_diff(shown, lines, "the page", "the output", lineterm="", n=1))


_PROGRAMS = {
    "aicf": PROGRAMS["aicf"],
    "aicf-opt": PROGRAMS["aicf-opt"],
    "python": of_the_system(sys.executable),
    **{name: of_the_system(name) for name in ("cat", "diff", "git", "grep", "mkdir", "sed")},
}


def main(arguments: Sequence[str]) -> int:
    """Runs a page; exit status 1, and what differs, if it is not as it says."""
    progress.SHOW_AFTER = _NEVER
    try:
        run_page(Path(arguments[0]).resolve())
    except LitFailure as failure:
        print(failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
