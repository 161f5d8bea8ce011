"""Which nodes of a traced forward part pass back something else than their row's ops would.

A row gives the numbers of an op. What its ops pass back is the derivative of those numbers, which is not always what
PyTorch passes back: PyTorch has a convention of its own where there is no derivative, and some rows compute with an
infinity that they then leave out. Whoever takes the gradients of the ops asks here first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from aicf.frontends.torch.nodes import is_op, is_tensor, items, op_name, overload_of

_When: TypeAlias = Callable[[Any], bool]


def _always(node: Any) -> bool:
    return True


def _is_other_norm(node: Any) -> bool:
    """Whether a norm is none of those whose rules say what 0 passes back."""
    order = node.args[1] if len(node.args) > 1 else node.kwargs.get("ord", 2)
    return order is not None and float(order) not in (1.0, 2.0, float("inf"), float("-inf"), 0.0)


def _is_other_distance(node: Any) -> bool:
    order = node.args[2] if len(node.args) > 2 else node.kwargs.get("p", 2.0)
    return float(order) not in (1.0, 2.0, float("inf"), 0.0)


def _takes_extremes(node: Any) -> bool:
    return bool({"amax", "amin"} & {*node.args, *node.kwargs.values()} - set(node.all_input_nodes))


_ONE, _ZERO = "one of several equals has all of it", "0 passes back 0"
_OTHERS: Mapping[str, tuple[_When, str]] = {
    "adaptive_max_pool1d.default": (_always, _ONE),
    "adaptive_max_pool2d.default": (_always, _ONE),
    "adaptive_max_pool3d.default": (_always, _ONE),
    "as_strided_scatter.default": (_always, "what is overwritten passes back too"),
    "atan2.default": (_always, "two zeros pass back 0"),
    "cdist.default": (_is_other_distance, "a distance of 0 passes back 0"),
    "fmax.default": (_always, _ONE),
    "fmin.default": (_always, _ONE),
    "fmod.Tensor": (_always, "the divisor gets its part"),
    "linalg_vector_norm.default": (_is_other_norm, "a norm of 0 passes back 0"),
    "max.dim": (_always, _ONE),
    "max_unpool2d.default": (_always, "all that fall on one place pass back"),
    "max_unpool3d.default": (_always, "all that fall on one place pass back"),
    "min.dim": (_always, _ONE),
    "multi_margin_loss.default": (_always, "what is on the margin passes nothing back"),
    "norm.Scalar": (_is_other_norm, "a norm of 0 passes back 0"),
    "norm.ScalarOpt_dim": (_is_other_norm, "a norm of 0 passes back 0"),
    "remainder.Scalar_Tensor": (_always, "the divisor gets its part"),
    "remainder.Tensor": (_always, "the divisor gets its part"),
    "scatter_reduce.two": (_takes_extremes, "an extreme that is there before has its share"),
    "sinc.default": (_always, _ZERO),
    "special_i1.default": (_always, "it has a slope at 0"),
    "special_i1e.default": (_always, "it has a slope at 0"),
    "special_log_ndtr.default": (_always, "far from 0 it has a slope"),
    "std.correction": (_always, _ZERO),
    "std.default": (_always, _ZERO),
    "std.dim": (_always, _ZERO),
    "std_mean.correction": (_always, _ZERO),
    "std_mean.default": (_always, _ZERO),
    "std_mean.dim": (_always, _ZERO),
    "xlogy.Tensor": (_always, _ZERO),
}
"""By overload: which calls of it, and what PyTorch has that the ops of the row have not."""


def foreign_gradient(graph: Any, trained: Collection[int], result: int) -> tuple[Any, str] | None:
    """The first node on the way from a placeholder to a result that passes back otherwise, and how.

    Args:
        graph: A `torch.fx.Graph` of a forward part.
        trained: The placeholders, by index.
        result: Its index.
    """
    for node in filter(is_op, _on_the_way(graph, trained, result)):
        when, what = _OTHERS.get(overload_of(node), (None, ""))
        if when is not None and when(node):
            return node, f"{op_name(node)}: in PyTorch {what}"
    return None


def reached(graph: Any, trained: Collection[int], result: int) -> frozenset[int]:
    """The placeholders that a result passes gradients back to, by index; arguments as of `foreign_gradient`."""
    needed = set(_on_the_way(graph, trained, result))
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    return frozenset(index for index, node in enumerate(placeholders) if node in needed)


def _on_the_way(graph: Any, trained: Collection[int], result: int) -> list[Any]:
    """Nodes that depend on a placeholder, and that a result depends on, through floats that are not detached."""
    nodes = list(graph.nodes)
    sources = [
        node for index, node in enumerate(n for n in nodes if n.op == "placeholder") if index in trained
    ]
    active = set(sources)
    for node in nodes:
        if any(source in active for source in node.all_input_nodes) and _passes_back(node):
            active.add(node)
    needed: set[Any] = set()
    stack = [items(next(node for node in reversed(nodes) if node.op == "output").args[0])[result]]
    while stack:
        node = stack.pop()
        if node in active and node not in needed:
            needed.add(node)
            stack.extend(node.all_input_nodes)
    return [node for node in nodes if node in needed]


def _passes_back(node: Any) -> bool:
    fakes = [fake for fake in items(node.meta.get("val")) if is_tensor(fake)]
    return any(fake.dtype.is_floating_point for fake in fakes) and not overload_of(node).startswith("detach")
