"""Where the programs of a session run, as their plans tell it."""

from __future__ import annotations

from collections import Counter

from aicf.compilation.compiled import CompiledModel
from aicf.engines.placement import Placed
from aicf.inspection.explain import lower_bound_of
from aicf.runtime.capture_plan import CapturePlan


def placed(executable: CompiledModel, plan: CapturePlan) -> Placed:
    """Where one program of `executable` runs."""
    return Placed(
        plan.name,
        f"{executable.plan.backend}:{executable.plan.arch}",
        dict(Counter(launch.kernel for launch in plan.launches).most_common()),
        plan.arena_bytes,
        lower_bound_of(plan.name, executable.decisions),
        tuple(bind.name for bind in plan.graph.binds if bind.binding == "staged"),
    )
