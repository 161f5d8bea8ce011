"""Chooses who computes the gradients of a step, AICF or PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from torch import nn

from aicf.compilation.compiled import CompiledModel
from aicf.errors import UnsupportedOp
from aicf.inspection.explain import STEP, Decision
from aicf.passes.training.differentiate import NoGradient, Unreachable
from aicf.pytorch.training.joint_part import joint_part
from aicf.pytorch.training.program import Model, StepProgram

Trace: TypeAlias = Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any], str, Set[str]], Model]
"""Takes a module with its loss, a batch, its keyword arguments, the program's name, and the trained parameters."""


@dataclass(frozen=True)
class GradientChoice:
    """Who computed the gradients of a program.

    Args:
        by: AICF or PyTorch.
        because: The reason: the option, that all ops have rules, or the op without a rule and its location.
    """

    by: Literal["aicf", "pytorch"]
    because: str

    def __str__(self) -> str:
        return f"gradients by {'AICF' if self.by == 'aicf' else 'PyTorch'}: {self.because}"


def compile_with_gradients(
    requested: Literal["auto", "aicf", "pytorch"],
    compile_step: Callable[[Trace], StepProgram],
    forward_part: Trace,
) -> tuple[StepProgram, GradientChoice]:
    """Compiles a step with gradients by AICF, or by PyTorch where AICF has none.

    Args:
        requested: The option `gradients`.
        compile_step: Compiles the step that a function traces.
        forward_part: Traces the forward part alone.

    Raises:
        NoGradient: AICF was requested and cannot compute them.
        UnsupportedOp: neither can, or an op has no counterpart.
    """
    by_option = f"the option gradients is '{requested}'"
    if requested == "pytorch":
        return compile_step(joint_part), GradientChoice("pytorch", by_option)
    try:
        reason = "every op has a rule" if requested == "auto" else by_option
        return compile_step(forward_part), GradientChoice("aicf", reason)
    except NoGradient as error:
        if requested == "aicf":
            raise
        because = _reason(error)
    try:
        return compile_step(joint_part), GradientChoice("pytorch", because)
    except UnsupportedOp as error:
        message = (
            f"AICF has no gradients ({because}), and those of PyTorch cannot be compiled: {error.message}"
        )
        raise UnsupportedOp(message, location=error.location) from error


def _reason(error: NoGradient) -> str:
    """The op without a rule and its location, without the advice of the error, which has been followed."""
    what = error.message.rpartition("; ")[0] or error.message
    location = error.stop if isinstance(error, Unreachable) else error.location
    return f"{what}, at {location}" if location else what


def note_in_ledger(executable: CompiledModel, choice: GradientChoice) -> None:
    """Writes the choice into the ledger of a program, as its first entry."""
    names = tuple(program.name for program in executable.plan.programs)
    entry = Decision(STEP, names, str(choice).partition(":")[0], choice.because, {}, {})
    record = executable.record
    executable.record = replace(record, decisions=(entry, *record.decisions))
