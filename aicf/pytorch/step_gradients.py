"""Who takes the gradients of a step, AICF or PyTorch, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from torch import nn

from aicf.compiled import CompiledModel
from aicf.errors import UnsupportedOp
from aicf.explain import STEP, Decision
from aicf.passes.training.differentiate import NoGradient, Unreachable
from aicf.pytorch.forward_part import forward_part
from aicf.pytorch.joint_part import joint_part
from aicf.pytorch.step_program import Model, StepProgram

Trace: TypeAlias = Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any], str, Set[str]], Model]
"""Module with its loss, batch, what is named of it, name of the program, trained parameters."""


@dataclass(frozen=True)
class GradientChoice:
    """Who took the gradients of a program.

    Args:
        by: It.
        because: Why: what the user said, that all ops have rules, or which op has none and where it is.
    """

    by: Literal["aicf", "pytorch"]
    because: str

    def __str__(self) -> str:
        return f"gradients by {'AICF' if self.by == 'aicf' else 'PyTorch'}: {self.because}"


def chosen(
    wish: Literal["auto", "aicf", "pytorch"], made: Callable[[Trace], StepProgram]
) -> tuple[StepProgram, GradientChoice]:
    """A program, and whose gradients it has.

    Args:
        wish: The option `gradients`.
        made: Compiles the step from what a function traces.

    Raises:
        NoGradient: AICF is to take them, and cannot.
        UnsupportedOp: neither can, or the program has an op without a counterpart.
    """
    if wish == "pytorch":
        return made(joint_part), GradientChoice("pytorch", "the option says so")
    try:
        told = "every op has a rule" if wish == "auto" else "the option says so"
        return made(forward_part), GradientChoice("aicf", told)
    except NoGradient as error:
        if wish == "aicf":
            raise
        because = _reason(error)
    try:
        return made(joint_part), GradientChoice("pytorch", because)
    except UnsupportedOp as error:
        message = f"AICF cannot take the gradients ({because}), and of those of PyTorch {error.message}"
        raise UnsupportedOp(message, location=error.location) from error


def _reason(error: NoGradient) -> str:
    """What there is no rule for, and where, without the way out, which was taken."""
    what = error.message.rpartition("; ")[0] or error.message
    place = error.stop if isinstance(error, Unreachable) else error.location
    return f"{what}, at {place}" if place else what


def note_in_ledger(executable: CompiledModel, choice: GradientChoice) -> None:
    """Writes the choice into the ledger of a program, as its first entry."""
    names = tuple(program.name for program in executable.plan.programs)
    entry = Decision(STEP, names, str(choice).partition(":")[0], choice.because, {}, {})
    record = executable.record
    executable.record = replace(record, decisions=(entry, *record.decisions))
