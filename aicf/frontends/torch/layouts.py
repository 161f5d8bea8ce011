"""Memory layouts of the tensors of a traced graph: views, and the order of dimensions in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from aicf.frontends.torch.nodes import base_op, is_getitem, is_node, is_op, is_tensor
from aicf.frontends.torch.program import Port

_UNDECLARED_VIEW = "_unsafe_view"
"""The op whose result is a view although its schema does not say so."""


def is_view(node: Any) -> bool:
    """Whether a node calls an op that may return a view of its operand, by the aliases of its schema."""
    if not is_op(node):
        return False
    aliases = [result.alias_info for result in node.target._schema.returns]
    has_alias = any(alias is not None and not alias.is_write for alias in aliases)
    return has_alias or base_op(node) == _UNDECLARED_VIEW


def viewed(node: Any, placeholders: Mapping[Any, int]) -> Any | None:
    """The placeholder that a node is a view of, if any."""
    fake = node.meta.get("val")
    while node not in placeholders:
        if is_getitem(node):
            node = node.args[0]
        if not is_view(node) or not is_node(node.args[0]):
            return None
        node = node.args[0]
    theirs = node.meta.get("val")
    return node if is_tensor(theirs) and same_storage(fake, theirs) else None


def root_of(node: Any) -> Any:
    """The node whose memory a chain of views shares."""
    fake = node.meta.get("val")
    while is_tensor(fake):
        step = node.args[0] if is_getitem(node) else node
        if not is_view(step) or not is_node(step.args[0]):
            break
        theirs = step.args[0].meta.get("val")
        if not is_tensor(theirs) or not same_storage(fake, theirs):
            break
        node = step.args[0]
    return node


def has_dense_strides(port: Port) -> bool:
    """Whether PyTorch's strides are those of a tensor that is dense in the order of the port."""
    sizes = port.tensor.shape
    pairs = zip(sizes, port.strides, port.dense_strides, strict=True)
    return all(size == 1 or one == other for size, one, other in pairs)


def same_storage(one: Any, other: Any) -> bool:
    """Whether PyTorch says that two tensors share memory."""
    if one.dtype != other.dtype:
        return False
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The dimensions, outermost in memory first, of a tensor that is dense in some order; else their own order."""
    rank = len(shape)
    natural = tuple(range(rank))
    big = [axis for axis in natural if shape[axis] > 1]
    sorted_big = sorted(big, key=lambda axis: (-strides[axis], axis))
    if sorted_big == big:
        return natural
    expected = math.prod(shape)
    for axis in sorted_big:
        expected //= shape[axis]
        if strides[axis] != expected:
            return natural
    ones = [axis for axis in natural if shape[axis] <= 1]
    return tuple([*ones, *sorted_big])
