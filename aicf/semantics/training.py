"""The meaning of a value that is marked; a gradient has none before it is written as ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.errors import UnsupportedOp
from aicf.semantics.base import Array, Meaning, unary


def _gradient(op: logical.GradientOp, operands: Sequence[Array]) -> Array:
    raise UnsupportedOp("logical.gradient says what is asked for, not how; run differentiate first")


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.GradientOp: _gradient,
    logical.SaveOp: unary(lambda x: x),
}
