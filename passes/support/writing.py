"""Writing ops of the logical dialect one after the other: what formulas and gradient rules have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.dims import Size
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import ElementType, element_of, tensor_info
from aicf.passes.support.identity import invalid


class Writer(ABC):
    """Adds ops one after the other; a method adds one op (or none) and gives its value."""

    @abstractmethod
    def add(self, op: LogicalOp, suffix: str) -> SSAValue:
        """Insert an op whose id says what it was written for, as its part ``suffix``."""

    def apply(
        self, op_class: Callable[..., LogicalOp], *operands: SSAValue | float, name: str = ""
    ) -> SSAValue:
        """An elementwise op, called by the op's own name or ``name``; a number is a splat like the operands.

        Two parts of the same name are told apart by a number.
        """
        like = next(operand for operand in operands if isinstance(operand, SSAValue))
        values = [
            operand if isinstance(operand, SSAValue) else self.splat(operand, like, "constant")
            for operand in operands
        ]
        op = op_class(*values)
        return self.add(op, name or op.name.removeprefix("logical."))

    def cast(self, value: SSAValue, element: ElementType, suffix: str) -> SSAValue:
        """The value in another element type; itself if it has that."""
        if element_of(value.type) == element:
            return value
        return self.add(logical.CastOp(value, element), suffix)

    def splat(self, number: float, like: SSAValue, suffix: str) -> SSAValue:
        """A constant of the shape and type of ``like``."""
        return self.add(logical.ConstantOp(number, like.type), suffix)

    def reshape(self, value: SSAValue, sizes: Sequence[Size], suffix: str = "reshape") -> SSAValue:
        """The same elements under another shape; itself if it has that."""
        if tensor_info(value.type).sizes == tuple(sizes):
            return value
        return self.add(logical.ReshapeOp(value, sizes), suffix)

    def broadcast(
        self, value: SSAValue, dimensions: Sequence[int], sizes: Sequence[Size], suffix: str
    ) -> SSAValue:
        """The value repeated to ``sizes``; itself if it has them."""
        if tensor_info(value.type).sizes == tuple(sizes):
            return value
        return self.add(logical.BroadcastOp(value, dimensions, sizes), suffix)


class OpWriter(Writer):
    """Adds ops on behalf of ``op``."""

    op: LogicalOp

    def mean(self, value: SSAValue, axes: Sequence[int], keepdims: bool, suffix: str) -> SSAValue:
        """Sum over the count; ``suffix`` names the quotient."""
        total = self.add(logical.ReduceSumOp(value, axes, keepdims=keepdims), _join(suffix, "sum"))
        count = math.prod(static_size(self.op, tensor_info(value.type).sizes[axis]) for axis in axes)
        divisor = self.splat(count, total, _join(suffix, "count"))
        return self.add(logical.DivOp(total, divisor), suffix)


def _join(stem: str, suffix: str) -> str:
    return f"{stem}.{suffix}" if stem else suffix


def static_size(op: LogicalOp, size: Size) -> int:
    """The size as a number.

    Raises:
        InvalidIR: it is symbolic.
    """
    if not isinstance(size, int):
        raise invalid(op, f"a mean over symbolic size {size} has no count; run specialize-shapes first")
    return size
