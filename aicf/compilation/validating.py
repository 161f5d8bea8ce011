"""A policy checked against a model: all decisions of a compile are made, and no code. `aicf.policies` comes here."""

from __future__ import annotations

from dataclasses import replace

from aicf.compilation.compiling import decide
from aicf.compilation.record import Options
from aicf.compilation.sources import Dims, Model, Policy, dims_text, policy_text, read_weighted
from aicf.frontends.text import make_context
from aicf.passes.pipelines.collector import collector_paused
from aicf.support.progress import progress


def validate(
    policy: Policy,
    model: Model,
    target: str | None = None,
    *,
    dims: Dims | None = None,
    threads: int = 1,
    training: bool = False,
) -> None:
    """Makes every decision that a compile with the policy makes. Raises as `aicf.Policy.validate`.

    Args:
        policy, model, target, dims, threads, training: As of `aicf.compile`.
    """
    context = make_context()
    requested = Options(target or "", policy_text(policy), dims_text(dims), threads, training=training)
    with progress("validating") as step, collector_paused():
        step("reading")
        source, _ = read_weighted(model, {}, context, requested.dims)
        if source.has_sizes:
            requested = replace(requested, dims="")
        decide(source, requested, (), context, step)
