"""The meaning of every logical op, one NumPy function each, in one table.

A meaning gets its operands in the type it computes in (``evaluate.py`` chooses it: float64, float32 for f16
and bf16, integers as they are) and returns the result before rounding. It is the definition that kernels are
tested against, so it is written for clarity: the formulas of the ops' docstrings, NumPy and ``math`` alone.
A family of ops has a file with its part of the table.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation

from aicf.semantics import (
    attention,
    contraction,
    convolution,
    custom,
    data_movement,
    detection,
    elementwise,
    indexing,
    losses,
    normalization,
    pooling,
    quantised_blocks,
    random,
    recurrent,
    reduction,
    training,
)
from aicf.semantics.base import Meaning

SEMANTICS: Mapping[type[Operation], Meaning] = {
    **elementwise.MEANINGS,
    **contraction.MEANINGS,
    **convolution.MEANINGS,
    **attention.MEANINGS,
    **reduction.MEANINGS,
    **normalization.MEANINGS,
    **pooling.MEANINGS,
    **data_movement.MEANINGS,
    **indexing.MEANINGS,
    **detection.MEANINGS,
    **quantised_blocks.MEANINGS,
    **random.MEANINGS,
    **recurrent.MEANINGS,
    **losses.MEANINGS,
    **training.MEANINGS,
    **custom.MEANINGS,
}
"""Every value-producing op of the logical dialect and what it computes."""
