"""The pieces of work of a model that a search goes through: their variants, what runs untuned, and their share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import KernelAttr
from aicf.errors import CaptureError
from aicf.passes.bodies.workload import workload_of
from aicf.passes.kernels.select_kernels import SelectKernelsPass
from aicf.passes.kernels.workload_key import key_of
from aicf.passes.pipelines.text import apply_pass
from aicf.tuning.candidates import Candidate, groups_of
from aicf.tuning.plan import Plan
from aicf.tuning.space import Space

PROMISING = 4.0
"""A kernel is a start if it is predicted to take at most so many times as long as the choice without a table."""


@dataclass(frozen=True)
class SearchedWork:
    """A piece of work.

    Args:
        name: Id of the first group that does it.
        groups: How many groups do it.
        us: Predicted microseconds of all these groups together.
        first: Number of its first candidate among those of the model.
        candidates: Its candidates: every variant of every kernel.
        space: The same as a space.
        untuned: Which of them runs without a tuning table.
    """

    name: str
    groups: int
    us: float
    first: int
    candidates: tuple[Candidate, ...]
    space: Space
    untuned: int


def works_of(plan: Plan) -> list[SearchedWork]:
    """The pieces of work of a model with all variants, those that take longest in all first.

    Args:
        plan: With all variants of the kernels.
    """
    chosen = _chosen_untuned(plan)
    works: list[SearchedWork] = []
    first = 0
    for digest, same in groupby(plan.candidates, key=lambda candidate: candidate.work.digest):
        found = tuple(same)
        works.append(_work(plan, found, first, chosen[digest]))
        first += len(found)
    return sorted(works, key=lambda work: (-work.us, work.first))


def _work(
    plan: Plan, found: Sequence[Candidate], first: int, chosen: Sequence[tuple[KernelAttr, float]]
) -> SearchedWork:
    untuned = _position(found, chosen[0][0])
    starts = (untuned, *_other_starts(plan, found, untuned, chosen[0][1]))
    kernels = tuple(candidate.kernel.id for candidate in found)
    space = Space(kernels, tuple(candidate.spec for candidate in found), starts)
    us = sum(us for _, us in chosen)
    return SearchedWork(found[0].group.id.data, len(chosen), us, first, tuple(found), space, untuned)


def _other_starts(plan: Plan, found: Sequence[Candidate], untuned: int, us: float) -> Iterator[int]:
    """Of each other kernel that is promising, the variant that it would take itself."""
    predicted: list[tuple[float, int]] = []
    seen = {found[untuned].kernel.id}
    for number, candidate in enumerate(found):
        if candidate.kernel.id not in seen:
            seen.add(candidate.kernel.id)
            predicted.append((candidate.us(plan.target, plan.policy), number))
    return (number for own, number in sorted(predicted) if own <= PROMISING * us)


def _position(found: Sequence[Candidate], record: KernelAttr) -> int:
    """The candidate with a record; if its kernel has such that only a device completes, the candidate of the kernel."""
    of_kernel = [n for n, candidate in enumerate(found) if candidate.kernel.id == record.kernel.data]
    exact = [number for number in of_kernel if found[number].record == record]
    if not exact and not of_kernel:
        raise CaptureError(
            f"'{found[0].group.id.data}': its kernel '{record.kernel.data}' is not among those that can be measured; "
            "unpin it in the policy"
        )
    return [*exact, *of_kernel][0]


def _chosen_untuned(plan: Plan) -> Mapping[str, list[tuple[KernelAttr, float]]]:
    """Of each piece of work, by its digest, the record that each of its groups has without a tuning table, and the
    predicted microseconds."""
    decided = plan.module.clone()
    apply_pass(SelectKernelsPass(), plan.context, decided)
    found: dict[str, list[tuple[KernelAttr, float]]] = {}
    for group, after in zip(groups_of(plan.module), groups_of(decided), strict=True):
        digest = key_of(workload_of(group).under(plan.policy).work).digest
        found.setdefault(digest, []).append(_decision(after))
    return found


def _decision(group: GroupOp) -> tuple[KernelAttr, float]:
    assert group.kernel is not None and group.expected_us is not None, "select-kernels decides both"
    return group.kernel, group.expected_us.value.data
