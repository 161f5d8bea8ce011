"""Programs that take some decisions from one compiled program and the others from another."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from aicf.bisection.changes import changes_between, mixed
from aicf.compilation.compiled import CompiledModel
from aicf.compilation.compiling import compile_own
from aicf.compilation.extensions import from_texts
from aicf.compilation.sources import Source
from aicf.errors import InputMismatch
from aicf.frontends.text import make_context, parse_module
from aicf.passes.pipelines.collector import collector_paused

_DECIDED = ("policy", "tuning", "memory_budget", "saved_share")
"""Options whose effect is in the decisions of a program; of the others, two programs have the same."""


class Candidates:
    """The candidates between two programs.

    Args:
        good, bad: The programs: of one model, with the same weights, for the same target.

    Attributes:
        changes: The decisions that differ; a candidate takes those of some numbers from the bad program.
        units: Their numbers, those together that hardly go without each other.

    Raises:
        InputMismatch: the programs differ in more than decisions, or in none.
    """

    def __init__(self, good: CompiledModel, bad: CompiledModel) -> None:
        _check_alike(good, bad)
        record = good.record
        assert record.logical is not None
        self._decided, emitted = (
            parse_module(each.record.emit, f"<{each.name}>", context=make_context()) for each in (good, bad)
        )
        together = changes_between(self._decided, emitted)
        self.changes = tuple(change for unit in together for change in unit)
        numbers = iter(range(len(self.changes)))
        self.units = [[next(numbers) for _ in unit] for unit in together]
        if not self.changes:
            raise InputMismatch("the two programs make the same decisions; aicf diff says what else differs")
        self._logical = parse_module(record.logical, f"<{good.name}>", context=make_context())
        self._extensions = record.passes or tuple(from_texts(record.options.passes))
        self._good = good

    def compile(self, taken: Collection[int]) -> CompiledModel:
        """The program of a candidate. Raises as `aicf.compile`, where decisions do not go together.

        Args:
            taken: Numbers of the changes that it has.
        """
        policy = mixed(self._decided, [self.changes[number] for number in taken])
        options = replace(
            self._good.record.options, policy=policy.to_line(), tuning="", memory_budget=0, saved_share=1.0
        )
        name = self._good.name
        with collector_paused():
            source = Source(self._logical.clone(), name)
            return compile_own(source, self._good.weights, options, self._extensions, name, lambda step: None)


def _check_alike(good: CompiledModel, bad: CompiledModel) -> None:
    """Raises InputMismatch if two programs differ in anything but their decisions."""
    for program in (good, bad):
        if program.record.logical is None:
            raise InputMismatch(
                f"{program.name} was compiled from an emit program, whose decisions are fixed; compile the model that "
                "it was made from"
            )
    if good.record.logical != bad.record.logical:
        raise InputMismatch("the two programs are of different models; compile both from the same file")
    for name, ours in vars(good.record.options).items():
        theirs = getattr(bad.record.options, name)
        if name not in _DECIDED and ours != theirs:
            raise InputMismatch(
                f"the two programs differ in {name}, {ours!r} and {theirs!r}; compile both with the same"
            )
    _check_weights(good, bad)


def _check_weights(good: CompiledModel, bad: CompiledModel) -> None:
    for name, array in good.weights.items():
        other = bad.weights.get(name)
        if other is None or array.tobytes() != other.tobytes():
            raise InputMismatch(
                f"the two programs have different weights: '{name}'; compile both with the same weights"
            )
