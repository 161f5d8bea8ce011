"""What is true of an op, said at the op: traits that passes ask for in place of lists of op classes.

Traits of logical ops say what they compute, those of any op in a body how its kernels take operands. A new op gets
those that hold for it, and the passes need no edit.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.traits import OpTrait

# What an op computes


class Elementwise(OpTrait):
    """Element i of the result depends on element i of each operand only; all shapes are equal."""


class Reduction(OpTrait):
    """Combines elements along its ``axes``."""


@dataclass(frozen=True)
class PrimitiveReduction(Reduction):
    """A reduction that kernels know.

    Args:
        combine: How `emit.reduce` combines the elements.
    """

    combine: str


class Scan(OpTrait):
    """Combines the elements up to each one along its ``axis``."""


class Contraction(OpTrait):
    """A sum of products over a contracted dimension."""


class TakesFloat8(OpTrait):
    """Takes floats of 8 bits: it moves elements, changes their type or multiplies them into wider sums."""


class ViewLike(TakesFloat8):
    """Moves or repeats elements and computes nothing."""


class StridedView(ViewLike):
    """Of one operand: its memory, seen with other strides, where strides can say it."""


class Rearrangement(StridedView):
    """Every element of the operand once: reshape, transpose."""


class RandomNumbers(OpTrait):
    """Random numbers, which every run makes anew: none are prepared ahead, whatever they are made of."""


class Unpacking(OpTrait):
    """Reads numbers that stay packed in memory: it is never computed ahead of a run, although of weights alone."""


@dataclass(frozen=True)
class TrainingOnly(OpTrait):
    """Stands in models of training steps, and no kernel runs it.

    Args:
        replaced_by: The pass of ``aicf-training`` that replaces it.
    """

    replaced_by: str


class Composite(OpTrait):
    """Defined as several primitive ops; ``lower-logical`` expands it."""


class Normalization(Composite):
    """A composite that normalises along dimensions: softmax, layer_norm."""


# What an op costs


class Expensive(OpTrait):
    """An element costs more to compute again than to keep."""


class IndexedRead(Expensive):
    """Reads operand 0, which lies in memory, at indices that depend on coordinates and on the other operands."""


class Moved(IndexedRead):
    """All elements of the result are elements of operand 0, at other places."""


# How the kernels of an op take its operands


class StridedOperands(OpTrait):
    """Kernels read every operand from memory with any strides, 0 included."""


class PositionalOperands(StridedOperands):
    """Kernels also know operands by their position: each gets a block argument of its own, in order."""


class MatrixKernels(OpTrait):
    """Kernels multiply matrices, and choose strides for results as well as operands."""


class Internal(OpTrait):
    """Made by passes: the builder has no method for it."""
