"""What a compiled program says of the precision of its ops, as the ledger has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.inspection.explain import Decision
from aicf.passes.legalize.narrow_products import WIDE, NarrowProductsPass
from aicf.passes.logical.lower_precision import STAYS, LowerPrecisionPass
from aicf.passes.support.policy import without_bucket
from aicf.policies.precision_policy import EIGHT_BITS, FLOATS


@dataclass(frozen=True)
class Lowered:
    """What became of the ops of a model.

    Args:
        ops: Those that are lowered, in text order, with their precision.
        saved_us: Of products of 8 bits, the predicted microseconds that they save; 0 where f32 was faster.
        others: Those that stay f32, by the reason.
    """

    ops: dict[str, str]
    saved_us: dict[str, float]
    others: dict[str, tuple[str, ...]]


def lowered_ops(decisions: Sequence[Decision]) -> Lowered:
    """Reads a ledger."""
    ops: dict[str, str] = {}
    others: dict[str, dict[str, None]] = {}
    for decision in decisions:
        if decision.made_by != LowerPrecisionPass.name:
            continue
        names = [without_bucket(subject) for subject in decision.subjects]
        if decision.choice == STAYS:
            others.setdefault(decision.because, {}).update(dict.fromkeys(names))
        elif decision.choice in FLOATS:
            ops.update(dict.fromkeys(names, decision.choice))
        elif (precision := decision.choice.partition(":")[0]) in EIGHT_BITS:
            ops.update(dict.fromkeys(names, precision))
    saved = {name: _saved(name, decisions) for name, precision in ops.items() if precision in EIGHT_BITS}
    known = {name: us for name, us in saved.items() if us is not None}
    return Lowered(ops, known, {why: tuple(names) for why, names in others.items()})


def _saved(name: str, decisions: Sequence[Decision]) -> float | None:
    """Of all buckets together; None if nothing was predicted."""
    found: list[float] = []
    for decision in decisions:
        if decision.made_by != NarrowProductsPass.name:
            continue
        own = without_bucket(decision.subjects[0])
        if own == name or own.startswith(f"{name}."):
            narrow, wide = decision.cost.get("narrow_us"), decision.cost.get("wide_us")
            is_narrow = decision.choice != WIDE
            times = isinstance(narrow, int | float) and isinstance(wide, int | float)
            found.append(float(wide) - float(narrow) if is_narrow and times else 0.0)  # type: ignore[arg-type]
    return round(sum(found), 3) if found else None
