"""In which element types a program computes because a policy said so, and what that costs: out of the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aicf.inspection.explain import Decision

_LOWERS = "lower-precision"
_ERROR = "relative_error"
_STAYS = "stays f32"
_MODEL = "module"


@dataclass(frozen=True)
class Precision:
    """What became of the ops of a model.

    Args:
        model: What the model was lowered to, with what was measured, in words; empty without calibration.
        errors: The relative error of each output, as calibration measured it.
        lowered: Ids of ops by what they became.
        op_errors: The relative error of the outputs if one op alone is rounded, by its id.
        others: Ids of ops that stay f32, by the reason.
    """

    model: str
    errors: Mapping[str, float]
    lowered: Mapping[str, tuple[str, ...]]
    op_errors: Mapping[str, float]
    others: Mapping[str, tuple[str, ...]]

    def lines(self) -> Iterator[str]:
        """One line for the model, one for each precision, one for each reason to stay f32."""
        errors = ", ".join(f"{name} {error:.3%}" for name, error in self.errors.items())
        yield f"precision: {self.model or 'as the policy says'}" + (
            f"; relative error: {errors}" if errors else ""
        )
        for choice, ids in self.lowered.items():
            shown = [f"{id_} ({self.op_errors[id_]:.3%})" if id_ in self.op_errors else id_ for id_ in ids]
            yield f"{choice}: {', '.join(shown)}"
        for because, ids in self.others.items():
            yield f"{_STAYS}: {', '.join(ids)}: {because}"


def precision_in(decisions: Sequence[Decision]) -> Precision | None:
    """What `lower-precision` decided; None if nothing was to be lowered."""
    own = [each for each in decisions if each.made_by == _LOWERS]
    model, errors = "", dict[str, float]()
    lowered: dict[str, dict[str, None]] = {}
    others: dict[str, dict[str, None]] = {}
    op_errors: dict[str, float] = {}
    for each in own:
        if each.subjects == (_MODEL,):
            model, errors = f"{each.choice}, {each.because}", _numbers(each.cost)
            continue
        ids = [id_.partition("@")[0] for id_ in each.subjects]
        place = (
            others.setdefault(each.because, {})
            if each.choice == _STAYS
            else lowered.setdefault(each.choice, {})
        )
        place.update(dict.fromkeys(ids))
        if _ERROR in (figures := _numbers(each.cost)):
            op_errors.update(dict.fromkeys(ids, figures[_ERROR]))
    if not own:
        return None
    return Precision(model, errors, _tuples(lowered), op_errors, _tuples(others))


def _numbers(cost: Mapping[str, object]) -> dict[str, float]:
    return {name: float(value) for name, value in cost.items() if isinstance(value, int | float)}


def _tuples(ids: Mapping[str, Mapping[str, None]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(found) for name, found in ids.items()}
