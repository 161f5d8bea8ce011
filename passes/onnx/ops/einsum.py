"""Einsum as diagonals, sums and products of matrices, one operand after the other."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.pointwise import narrow, widen

_ELLIPSIS = "..."


@dataclass(frozen=True)
class _Term:
    """A tensor whose dimensions have labels, each once."""

    value: SSAValue
    labels: tuple[str, ...]

    def size(self, label: str) -> int:
        """The size of a dimension, 1 of one that it lacks."""
        return tensor_info(self.value.type).shape[self.labels.index(label)] if label in self.labels else 1


@row("Einsum", since=12)
def _einsum(node: Node) -> Result:
    """Products over all labels, summed over those that the result does not name.

    Operands are taken from the left; a label is summed as soon as neither a later operand nor the result has it.
    """
    inputs, output = _labels(node)
    if any(0 in node.shape(index) for index in range(node.count)):
        return _of_nothing(node, inputs, output)
    terms = [
        _Term(*_diagonal(node, widen(node, node.operand(index)), labels))
        for index, labels in enumerate(inputs)
    ]
    found, *others = terms
    found = _summed(node, found, _wanted(others, output))
    for number, other in enumerate(others):
        later = _wanted(others[number + 1 :], output)
        found = _product(node, found, _summed(node, other, {*later, *found.labels}), later)
    result = node.transpose(found.value, [found.labels.index(label) for label in output])
    return narrow(node, result)


def _wanted(terms: Sequence[_Term], output: Sequence[str]) -> set[str]:
    """The labels that somebody still needs."""
    return {*output, *(label for term in terms for label in term.labels)}


def _labels(node: Node) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand, and of the result; an ellipsis stands for labels "0", "1" and so on."""
    equation = re.sub(r"\s", "", node.attributes.string("equation", ""))
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    if len(parts) != node.count or not re.fullmatch(r"[A-Za-z.,]*", left + right):
        raise node.invalid(f"equation '{equation}' has {len(parts)} terms for {node.count} operands")
    spread = max(
        len(node.shape(index)) - len(part.replace(_ELLIPSIS, "")) for index, part in enumerate(parts)
    )
    inputs = [_spelled(node, part, len(node.shape(index)), spread) for index, part in enumerate(parts)]
    if arrow:
        return inputs, _spelled(node, right, len(right.replace(_ELLIPSIS, "")) + spread, spread)
    flat = [label for labels in inputs for label in labels]
    named = sorted(label for label in set(flat) if flat.count(label) == 1 and not label.isdigit())
    return inputs, [*(label for label in map(str, range(spread)) if label in flat), *named]


def _spelled(node: Node, term: str, rank: int, spread: int) -> list[str]:
    """The label of each dimension; the ellipsis of a term is aligned at its last dimension."""
    before, ellipsis, after = term.partition(_ELLIPSIS)
    count = rank - len(before) - len(after)
    if count < 0 or (count and not ellipsis) or "." in before + after:
        raise node.invalid(f"term '{term}' of the equation does not name {rank} dimensions")
    return [*before, *(map(str, range(spread - count, spread)) if ellipsis else ()), *after]


def _diagonal(node: Node, value: SSAValue, labels: Sequence[str]) -> tuple[SSAValue, tuple[str, ...]]:
    """The value with every label once: of two dimensions of one label only the indices where they are equal."""
    names = list(labels)
    twice = next((label for label in names if names.count(label) > 1), None)
    if twice is None:
        return value, tuple(names)
    first = names.index(twice)
    second = names.index(twice, first + 1)
    kept = [axis for axis in range(len(names)) if axis not in (first, second)]
    value = node.transpose(value, [*kept, first, second])
    *outer, rows, columns = tensor_info(value.type).shape
    if rows != columns:
        raise node.invalid(f"label {twice} of one operand has sizes {rows} and {columns}")
    # Indices (i, i) of a square are n + 1 elements apart.
    flat = node.reshape(value, [*outer, rows * columns])
    strides = [1] * len(outer) + [rows + 1]
    diagonal = node.slice(flat, [0] * len(strides), [*outer, rows], strides)
    return _diagonal(node, diagonal, [*(names[axis] for axis in kept), twice])


def _summed(node: Node, term: _Term, wanted: set[str]) -> _Term:
    """Without the labels that nobody wants."""
    axes = [axis for axis, label in enumerate(term.labels) if label not in wanted]
    if not axes:
        return term
    labels = tuple(label for label in term.labels if label in wanted)
    return _Term(node.apply(logical.ReduceSumOp, term.value, axes=axes), labels)


def _product(node: Node, lhs: _Term, rhs: _Term, wanted: set[str]) -> _Term:
    """A batched product of matrices: labels of both that are wanted are the batch, the others are contracted."""
    shared = [label for label in lhs.labels if label in rhs.labels]
    batch = [label for label in shared if label in wanted]
    summed = [label for label in shared if label not in wanted]
    rows = [label for label in lhs.labels if label not in shared]
    columns = [label for label in rhs.labels if label not in shared]
    sizes = {label: _joint(node, label, lhs, rhs) for label in (*lhs.labels, *rhs.labels)}
    left = _matrices(node, lhs, (batch, rows, summed), sizes)
    right = _matrices(node, rhs, (batch, summed, columns), sizes)
    product = node.apply(logical.MatmulOp, left, right)
    labels = (*batch, *rows, *columns)
    return _Term(node.reshape(product, [sizes[label] for label in labels]), labels)


def _joint(node: Node, label: str, *terms: _Term) -> int:
    """The size of a label; one of the operands may have 1."""
    found = {term.size(label) for term in terms} - {1}
    if len(found) > 1:
        raise node.invalid(f"label {label} has sizes {sorted(found)}; they are equal, or 1")
    return found.pop() if found else 1


def _matrices(node: Node, term: _Term, groups: Sequence[Sequence[str]], sizes: dict[str, int]) -> SSAValue:
    """The term as three dimensions, each made of a group of labels."""
    labels = [label for group in groups for label in group]
    value = node.transpose(term.value, [term.labels.index(label) for label in labels])
    value = node.broadcast_to(value, [sizes[label] for label in labels])
    return node.reshape(value, [math.prod(sizes[label] for label in group) for group in groups])


def _of_nothing(node: Node, inputs: Sequence[Sequence[str]], output: Sequence[str]) -> Result:
    """Sums of nothing, or no sums."""
    sizes: dict[str, int] = {}
    for index, labels in enumerate(inputs):
        for label, size in zip(labels, node.shape(index), strict=True):
            sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
    return np.zeros([sizes[label] for label in output], node.element(0).dtype)
