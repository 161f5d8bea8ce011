"""Rows that are there one after the other: what ops of ONNX give whose number of rows follows from the numbers.

A program is static, so such a result has room for all rows that there could be, and a count beside it: a `Counted`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_named, tensor_info
from aicf.passes.onnx.ops.base import Node
from aicf.passes.onnx.ops.elementwise import select

_INDICES = element_named("i64")


def compacted(node: Node, holds: SSAValue, rows: SSAValue) -> tuple[SSAValue, SSAValue]:
    """The rows ``[N, columns]`` (i64) whose condition ``[N]`` (i1) holds, in order, then rows of -1; and how many."""
    count, columns = tensor_info(rows.type).shape
    reached = node.apply(logical.CumsumOp, node.cast(holds, _INDICES, "held"), axis=0, name="reached")
    before = node.apply(logical.SubOp, reached, 1, name="before")
    # A row that is not held goes to an index that there is not, and so nowhere.
    indices = select(node, holds, before, node.splat(count, before, "nowhere"))
    none = node.full(-1, (count, columns), _INDICES)
    kept = node.apply(logical.ScatterOp, none, indices, rows, mode="set", name="rows")
    held = node.reshape(node.slice(reached, [count - 1], [1], suffix="last"), (), "count")
    return kept, held


def coordinates(node: Node, sizes: Sequence[int], dims: Sequence[int]) -> list[SSAValue]:
    """For each of ``dims`` a column ``[elements, 1]`` (i64): the index of each element along it, in row-major order."""
    columns: list[SSAValue] = []
    for dim in dims:
        indices = node.add(logical.IotaOp(dim, sizes, _INDICES), f"places{dim}")
        columns.append(node.reshape(indices, (math.prod(sizes), 1), f"column{dim}"))
    return columns
