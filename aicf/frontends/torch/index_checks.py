"""Which arguments of a traced graph are indices, and of how many elements: eager mode checks them, programs do not.

A row says which of its operands are indices, see `CheckedIndices`. Indices that the graph computes are not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

from aicf.frontends.torch.layouts import is_view
from aicf.frontends.torch.locations import line_of, text_of
from aicf.frontends.torch.nodes import base_op, call_of, is_node, is_op, op_name, overload_of
from aicf.frontends.torch.ops import CHECKED_INDICES, Call, CheckedIndices
from aicf.frontends.torch.sizes import number_of


@dataclass(frozen=True)
class IndexCheck:
    """An argument whose elements are indices.

    Args:
        argument: Its index among the placeholders.
        low: The least index in range: 0, or less if negative ones count from the end.
        size: The least index that is out of range.
        ignored: An index that is skipped wherever it is; None if there is none.
        op: The op that reads it, for the message.
        location: The user's line, if it is known.
    """

    argument: int
    low: int
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
    finder = _Finder({node: index for index, node in enumerate(placeholders)}, bindings or {})
    found: dict[tuple[object, ...], IndexCheck] = {}
    for node in filter(is_op, graph.nodes):
        if (row := CHECKED_INDICES.get(overload_of(node))) is not None:
            for check in finder.checks(node, row):
                found.setdefault((check.argument, check.low, check.size, check.ignored), check)
    return list(found.values())


@dataclass(frozen=True)
class _Finder:
    """Finds the checks of a node.

    Args:
        numbers: The index of each placeholder.
        bindings: The value of each symbolic size.
    """

    numbers: Mapping[Any, int]
    bindings: Mapping[str, int]

    def checks(self, node: Any, row: CheckedIndices) -> Iterator[IndexCheck]:
        """Those of the indices that are placeholders."""
        call = call_of(node)
        ignored = call[row.ignored] if row.ignored else None
        for index, size in self._indices(row, call):
            source = self._source(index)
            if source not in self.numbers or source.meta["val"].is_floating_point():
                continue
            low = -size if row.from_end else 0
            line = text_of(line_of(node.meta))
            yield IndexCheck(self.numbers[source], low, size, ignored, op_name(node), line)

    def _indices(self, row: CheckedIndices, call: Call) -> Iterator[tuple[Any, int]]:
        """Tensors of indices, each with the number of elements that it chooses from."""
        sizes, by = call[row.of].meta["val"].shape, call[row.by]
        if isinstance(by, list | tuple):
            indices = cast("Sequence[Any]", by)
            yield from (
                (index, self._number(size))
                for index, size in zip(indices, sizes, strict=False)
                if index is not None and not _is_mask(index)
            )
        elif (axis := row.axis(call, len(sizes))) is None:
            yield by, prod(map(self._number, sizes))
        else:
            yield by, self._number(sizes[axis]) if sizes else 1

    def _number(self, size: Any) -> int:
        return int(number_of(size, self.bindings))

    def _source(self, node: Any) -> Any:
        """The node whose elements another one has, all of them and no others, in another shape or type."""
        while is_node(node) and is_op(node) and self._keeps_elements(node):
            node = node.args[0]
        return node

    def _keeps_elements(self, node: Any) -> bool:
        own = node.meta.get("val")
        source: Any = node.args[0] if node.args else None
        if not is_node(source) or not hasattr(source.meta.get("val"), "numel"):
            return False
        if base_op(node) == "expand":
            return self._number(own.numel()) > 0
        is_same = is_view(node) or base_op(node) in _COPIES
        return is_same and str(own.numel()) == str(source.meta["val"].numel())


def _is_mask(node: Any) -> bool:
    return str(node.meta["val"].dtype) in ("torch.bool", "torch.uint8")


_COPIES = ("_to_copy", "clone")
