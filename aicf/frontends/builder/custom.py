"""Ops of users in the builder, by their names."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.dialects.custom_ops import require_definition
from aicf.errors import UnsupportedOp
from aicf.frontends.builder.core import Operand, Value
from aicf.frontends.builder.derived import DerivedOps


class CustomOps(DerivedOps):
    """One method for all of them."""

    def op(self, op: str, *operands: Operand, name: str | None = None, **attributes: object) -> Value:
        """The op that a package defines by `aicf.custom_op`, such as ``graph.op("acme.top_p", x, p=0.9)``.

        Args:
            op: `package.op`.
            operands: Values of the graph.
            name: Id of the op in the program.
            attributes: Those that its meaning takes; what has a default may be left out.

        Raises:
            InvalidIR: nothing defines the op, or it is not defined for these operands and attributes.
        """
        try:
            definition = require_definition(op)
        except UnsupportedOp as error:
            raise self._error(error.message) from error
        own = [self._own(operand) for operand in operands]  # pyright: ignore[reportArgumentType]

        def make() -> logical.CustomOp:
            parameters = definition.attributes(attributes)
            result = definition.result_type([operand.type for operand in own], parameters)
            return logical.CustomOp(op, own, parameters, result, definition.version)

        return self._insert(op, name, make)
