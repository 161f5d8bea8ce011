"""The IR after each pass, in a form that is small: most lines stand in many stages, and are kept once.

Without the ledger, which the report has in a better form, and without the data of large constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ModuleOp

from aicf.compilation.record import Record
from aicf.compilation.stages import print_module, run_again
from aicf.errors import AicfError
from aicf.pass_files import passes_in
from aicf.report.contents import Stage, Stages

MODEL, FINAL = "model", "final"
"""In place of a pass: the program as it was given, and as it runs."""

_LEDGER = re.compile(r"^( *)emit\.ledger \{\n(?:\1 .*\n)*\1\}\n", re.MULTILINE)
_BYTES = re.compile(r'"0x([0-9A-Fa-f]{64})[0-9A-Fa-f]+"')
"""The data of a large constant."""


def stages_of(record: Record, every: bool) -> Stages:
    """The IR after each pass that made a program; only the first and the last if the passes cannot be run again here.

    Args:
        record: What the program knows of its making.
        every: Whether to run the passes; if not, only the first and the last stage are given.
    """
    lines = _Lines()
    if record.logical is not None:
        lines.add(MODEL, record.logical)
    missing = _missing(record, every) or _run_again(record, lines)
    if missing is not None:
        lines.add(FINAL, record.emit)
    return Stages(tuple(lines.numbers), tuple(lines.stages), missing)


def _missing(record: Record, every: bool) -> str | None:
    if record.logical is None:
        return "the program was compiled from emit IR"
    return None if every else "the report was made with --no-passes"


def _run_again(record: Record, lines: _Lines) -> str | None:
    """Adds the stage after each pass; why they are not there, if the passes cannot be run again."""

    checking = passes_in("verify")

    def look(name: str, module: ModuleOp) -> None:
        if name in checking:  # they change nothing
            lines.repeat(name)
        else:
            lines.add(name, print_module(module))

    try:
        run_again(record, look)
    except AicfError as error:
        del lines.stages[1:]
        return error.message
    return None


class _Lines:
    """Stages as indices into `numbers`, whose keys are the lines in order of first use."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.stages: list[Stage] = []
        self._last: tuple[int, ...] = ()

    def add(self, made_by: str, text: str) -> None:
        """One stage more; it is empty if the text is that of the stage before."""
        numbers = self.numbers
        shown = _BYTES.sub(r'"0x\1..."', _LEDGER.sub("", text))
        lines = tuple(numbers.setdefault(line, len(numbers)) for line in shown.splitlines())
        self.stages.append(Stage(made_by, () if lines == self._last else tuple(_runs(lines))))
        self._last = lines

    def repeat(self, made_by: str) -> None:
        """One stage more, which is that before."""
        self.stages.append(Stage(made_by, ()))


def _runs(numbers: Sequence[int]) -> Iterator[int]:
    """Numbers as runs: the first of a run and its length one after the other. What a pass leaves alone is few runs."""
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield from (numbers[start], at - start)
            start = at
