"""`aicf compile`: a model to an artifact."""

from __future__ import annotations

from aicf.tools.cli.arguments import (
    CheckFinite,
    Dims,
    MemoryBudget,
    Meta,
    Model,
    Name,
    Output,
    Policy,
    Strict,
    Target,
    Threads,
    Training,
    Tuning,
    Values,
    Weights,
    joined_dims,
)
from aicf.tools.cli.outputs import check_output


def compile_command(
    model: Model,
    output: Output,
    weights: Weights = None,
    target: Target = None,
    dims: Dims = None,
    values: Values = "",
    policy: Policy = None,
    tuning: Tuning = None,
    threads: Threads = 1,
    meta: Meta = None,
    check_finite: CheckFinite = False,
    memory_budget: MemoryBudget = 0,
    strict: Strict = False,
    training: Training = False,
    name: Name = None,
) -> None:
    """Compile a model into an artifact that loads without a compiler."""
    from aicf.compilation.compiler import compile

    check_output(output, "the artifact", model, weights, policy, tuning)
    compiled = compile(
        model,
        weights,
        target,
        dims=joined_dims(dims),
        values=values,
        policy=policy,
        tuning=tuning,
        threads=threads,
        meta=None if meta is None else meta.value,
        check_finite=check_finite,
        memory_budget=memory_budget,
        strict=strict,
        training=training,
        name=name,
    )
    compiled.save(output)
    print(f"{output}: {compiled.summary()}")
