"""Which arguments of a traced graph are indices, and of how many elements: eager mode checks them, programs do not.

A row says which of its operands are indices, see `CheckedIndices`. Indices that the graph computes are not found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aicf.frontends.torch.layouts import is_view
from aicf.frontends.torch.locations import line_of, text_of
from aicf.frontends.torch.nodes import base_op, call_of, is_node, is_op, op_name, overload_of
from aicf.frontends.torch.ops import CHECKED_INDICES
from aicf.frontends.torch.sizes import number_of


@dataclass(frozen=True)
class IndexCheck:
    """An argument whose elements are indices from 0 on.

    Args:
        argument: Its index among the placeholders.
        size: The least index that is out of range.
        ignored: An index that is skipped wherever it is; None if there is none.
        op: The op that reads it, for the message.
        location: The user's line, if it is known.
    """

    argument: int
    size: int
    ignored: int | None
    op: str
    location: str | None


def index_checks(graph: Any, bindings: Mapping[str, int] | None = None) -> list[IndexCheck]:
    """The indices among the arguments of a graph.

    Args:
        graph: A `torch.fx.Graph` of functional ATen ops.
        bindings: The value of each symbolic size.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    numbers = {node: index for index, node in enumerate(placeholders)}
    found: dict[tuple[int, int, int | None], IndexCheck] = {}
    for node in filter(is_op, graph.nodes):
        if (row := CHECKED_INDICES.get(overload_of(node))) is None:
            continue
        call = call_of(node)
        source, operand = _source(call[row.by]), call[row.of].meta["val"]
        if source not in numbers or source.meta["val"].is_floating_point():
            continue
        rank = operand.dim()
        size = int(number_of(operand.shape[row.axis(call, rank)], bindings or {})) if rank else 1
        ignored = call[row.ignored] if row.ignored else None
        check = IndexCheck(numbers[source], size, ignored, op_name(node), text_of(line_of(node.meta)))
        found.setdefault((check.argument, size, ignored), check)
    return list(found.values())


def _source(node: Any) -> Any:
    """The node whose elements another one has, all of them, in another shape or type."""
    while is_node(node) and is_op(node) and _keeps_elements(node):
        node = node.args[0]
    return node


def _keeps_elements(node: Any) -> bool:
    own = node.meta.get("val")
    source: Any = node.args[0] if node.args else None
    if not is_node(source) or not hasattr(source.meta.get("val"), "numel"):
        return False
    is_same = is_view(node) or base_op(node) in _COPIES
    return is_same and str(own.numel()) == str(source.meta["val"].numel())


_COPIES = ("_to_copy", "clone")
