"""What a model computes in float64: the meaning of its ops by AICF's `reference` interpreter, on one set of inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aicf.runtime.tensors import Array


def exact_outputs(
    model: Path, sizes: Mapping[str, int], values: Mapping[str, Array], feeds: Mapping[str, Array]
) -> dict[str, Array]:
    """Outputs in float64 where they are floats.

    Args:
        sizes: Of all symbolic dimensions.
        values: Inputs that shapes follow from.
        feeds: All inputs.

    Raises:
        UnsupportedOp: AICF has no meaning for an op.
    """
    from aicf.backends.reference.interpreter import run_module
    from aicf.compilation.compiler import compile
    from aicf.frontends.text import make_context, parse_module
    from aicf.inference.counting import Counts

    exe = compile(model, target="reference", dims=dict(sizes), values=dict(values))
    module = parse_module(exe.ir("emit"), "<emit>", context=make_context())
    outputs = run_module(module, {**feeds, **exe.weights}, "exact").outputs
    graph = exe.plan.programs[0].graph
    ordered = {bind.name: outputs[bind.name] for bind in graph.outputs}
    counts = Counts.read(graph)
    return counts.taken(ordered, ()) if counts.names else ordered
