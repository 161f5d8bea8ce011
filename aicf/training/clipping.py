"""Gradients that together have at most a given norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aicf.frontends.builder import Graph, Value


def clip(graph: Graph, gradients: Mapping[str, Value], max_norm: float) -> Mapping[str, Value]:
    """The gradients of parameters by name, made shorter together where their norm is above `max_norm`, as PyTorch's
    `clip_grad_norm_` does."""
    norm = graph.global_norm(_of_one_type(graph, list(gradients.values())), name="grad.norm")
    factor = graph.clip_factor(norm, max_norm, name="grad.clip")
    factors = {factor.dtype: factor}
    for value in gradients.values():
        if value.dtype not in factors:
            factors[value.dtype] = graph.cast(factor, value.dtype)
    return {
        name: graph.mul(value, factors[value.dtype], name=f"{name}.grad.clipped")
        for name, value in gradients.items()
    }


def _of_one_type(graph: Graph, values: Sequence[Value]) -> Sequence[Value]:
    """The values as they are, or where their types differ in one that holds all of them."""
    dtypes = {value.dtype for value in values}
    if len(dtypes) == 1:
        return values
    wide = "f64" if "f64" in dtypes else "f32"
    return [value if value.dtype == wide else graph.cast(value, wide) for value in values]
