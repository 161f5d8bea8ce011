"""What a combining scatter does to one row, as loops: every backend that scatters reads this first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from xdsl.dialects import arith
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap

from aicf.backends.common.copy import copy_nest
from aicf.backends.common.loop_nest import LoopNest, Strided, nest_of
from aicf.dialects.emit_kernels import CastOp, KernelOp, PhaseOp, StoreOp, YieldOp
from aicf.dialects.emit_types import contiguous_strides
from aicf.dialects.types import element_named

_Make = Callable[[SSAValue, SSAValue], Operation]
_FLOAT: Mapping[str, _Make] = {
    "add": arith.AddfOp,
    "max": arith.MaximumfOp,
    "min": arith.MinimumfOp,
    "mul": arith.MulfOp,
}
_INT: Mapping[str, _Make] = {
    "add": arith.AddiOp,
    "max": arith.MaxSIOp,
    "min": arith.MinSIOp,
    "mul": arith.MuliOp,
}
_UNSIGNED: Mapping[str, _Make] = {**_INT, "max": arith.MaxUIOp, "min": arith.MinUIOp}


@dataclass(frozen=True)
class Scatter:
    """A scatter of updates [U, inner...] into rows of an operand [N, inner...].

    Args:
        operand, indices, updates, result: Where they lie.
        mode: `add`, `max`, `min` or `mul`.

    The result may have a wider element type than operand and updates: where sums and products wait to be rounded.
    """

    operand: Strided
    indices: Strided
    updates: Strided
    result: Strided
    mode: str

    def copy(self) -> LoopNest:
        """The operand to the result."""
        return copy_nest(self.operand, self.result)

    def summed_in(self, dtype: str) -> Scatter:
        """The same into a dense buffer of another element type."""
        shape = self.result.shape
        return replace(self, result=Strided(shape, contiguous_strides(shape), dtype))

    def row(self) -> LoopNest:
        """A row of the result and an update, combined, to the row of the result."""
        dtype = self.result.dtype
        element = element_named(dtype)
        update = element_named(self.updates.dtype)
        block = Block(arg_types=[element.type, update.type])
        cast = [] if update == element else [CastOp(block.args[1], element.type)]
        values = (block.args[0], cast[0].result if cast else block.args[1])
        table = _FLOAT if element.is_float else _UNSIGNED if dtype == "u8" else _INT
        combined = table[self.mode](*values)
        block.add_op(PhaseOp(Region(Block([*cast, combined, StoreOp(combined.results[0], 0), YieldOp()]))))
        inner = self.result.shape[1:]
        identity = AffineMap.identity(len(inner))
        kernel = KernelOp("row", inner, [], [identity] * 2, [identity], Region(block))
        strides = [self.result.strides[1:], self.updates.strides[1:], self.result.strides[1:]]
        return nest_of(kernel, strides, [dtype, self.updates.dtype, dtype])
