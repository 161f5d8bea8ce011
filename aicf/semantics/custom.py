"""The meaning of an op of a user: what its definition says, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.custom_ops import plain_values, require_definition
from aicf.errors import InvalidIR
from aicf.semantics.base import Array, Meaning


def _custom(op: logical.CustomOp, operands: Sequence[Array]) -> Array:
    """Its function of the operands, which may not change them, for they are other ops' operands, too."""
    definition = require_definition(op.label)
    frozen = [operand.view() for operand in operands]
    for array in frozen:
        array.flags.writeable = False
    try:
        found = np.asarray(definition.meaning(*frozen, **plain_values(op.parameters)))
    except Exception as error:  # a function of a user may raise anything
        raise InvalidIR(f"op '{op.label}': its meaning raises {type(error).__name__}: {error}") from error
    if found.shape != op.info.shape:
        raise InvalidIR(
            f"op '{op.label}': its meaning gives shape {list(found.shape)}, its result rule {list(op.info.shape)}"
        )
    return found


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.CustomOp: _custom,
}
