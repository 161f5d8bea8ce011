"""Where PyTorch's gradients of a traced forward part differ from the derivatives of the ops that rows write.

A row says so itself, see `OtherGradient`. Whoever differentiates those ops asks here first.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from aicf.frontends.torch.nodes import call_of, is_op, is_tensor, items, op_name, overload_of
from aicf.frontends.torch.ops import OTHER_GRADIENTS


def find_other_gradient(graph: Any, trained: Collection[int], result: int) -> tuple[Any, str] | None:
    """The first node between a placeholder and a result whose gradient is another one in PyTorch, and what it is.

    Args:
        graph: A `torch.fx.Graph` of a forward part.
        trained: The placeholders, by index.
        result: Its index.
    """
    for node in filter(is_op, nodes_between(graph, trained, result)):
        other = OTHER_GRADIENTS.get(overload_of(node))
        if other is not None and other.applies(call_of(node)):
            return node, f"{op_name(node)}: in PyTorch {other.reason}"
    return None


def placeholders_with_gradient(graph: Any, trained: Collection[int], result: int) -> frozenset[int]:
    """Those of the placeholders that a result passes gradients to, by index; arguments as in `find_other_gradient`."""
    needed = set(nodes_between(graph, trained, result))
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    return frozenset(index for index, node in enumerate(placeholders) if node in needed)


def nodes_between(graph: Any, trained: Collection[int], result: int) -> list[Any]:
    """The nodes that depend on a placeholder, and that a result depends on, through floats that are not detached."""
    nodes = list(graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    sources = [node for index, node in enumerate(placeholders) if index in trained]
    active = set(sources)
    for node in nodes:
        if any(source in active for source in node.all_input_nodes) and _has_gradient(node):
            active.add(node)
    needed: set[Any] = set()
    stack = [items(next(node for node in reversed(nodes) if node.op == "output").args[0])[result]]
    while stack:
        node = stack.pop()
        if node in active and node not in needed:
            needed.add(node)
            stack.extend(node.all_input_nodes)
    return [node for node in nodes if node in needed]


def _has_gradient(node: Any) -> bool:
    fakes = [fake for fake in items(node.meta.get("val")) if is_tensor(fake)]
    return any(fake.dtype.is_floating_point for fake in fakes) and not overload_of(node).startswith("detach")
