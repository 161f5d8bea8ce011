"""How values change from lane to lane of a vector: what decides whether a read at computed indices is one wide load.

A *step* is the difference between neighbouring lanes; None where it is no constant. Integer arithmetic wraps, and the
step of a value that wraps inside a vector is still its step: such a lane is out of range, where no load happens.
"""

from __future__ import annotations

from math import gcd, prod

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import BlockArgument, OpResult, SSAValue

from aicf.backends.common.loop_nest import LoopNest, origin, reads
from aicf.dialects.emit_kernels import IndexOp, LoadOp, PhiloxOp, ScanOp

_ULT = arith.CMPI_COMPARISON_OPERATIONS.index("ult")


class LaneSteps:
    """Steps of values in vectors of `lanes` points along loop `vector_dim` of the nest; None for single points."""

    def __init__(self, nest: LoopNest, vector_dim: int | None, lanes: int = 1):
        self.nest = nest
        self.vector_dim = vector_dim
        self.lanes = lanes
        self._steps: dict[SSAValue, int | None] = {}

    def step(self, value: SSAValue) -> int | None:
        """The difference between neighbouring lanes."""
        value = origin(value)
        if value not in self._steps:
            self._steps[value] = self._step(value)
        return self._steps[value]

    def _step(self, value: SSAValue) -> int | None:
        if self.vector_dim is None:
            return 0
        if isinstance(value, BlockArgument):
            return 0 if self.nest.dims[self.vector_dim].strides[value.index] == 0 else None
        assert isinstance(value, OpResult)
        op = value.op
        if isinstance(op, IndexOp):
            return int(self.nest.coordinates[op.number] == self.vector_dim)
        if isinstance(op, ScanOp):  # sums of what is alike in all lanes differ from lane to lane
            return None
        steps = [self.step(operand) for operand in reads(value)]
        match op, steps:
            case arith.AddiOp(), [int(a), int(b)]:
                return a + b
            case arith.SubiOp(), [int(a), int(b)]:
                return a - b
            case arith.CmpiOp(), [int(), 0] if self._is_even(op):
                return 0
            case _:
                return 0 if all(step == 0 for step in steps) else None

    def _is_even(self, op: arith.CmpiOp) -> bool:
        """Whether `x < c`, unsigned, comes out alike for a whole vector: it starts and c lies at multiples of it."""
        bound = origin(op.rhs)
        return (
            op.predicate.value.data == _ULT
            and self.step(op.lhs) == 1
            and self.multiple(op.lhs) % self.lanes == 0
            and isinstance(bound, OpResult)
            and self.multiple(bound) % self.lanes == 0
        )

    def multiple(self, value: SSAValue) -> int:
        """A number whose powers of two divide the value in the first lane, also if it wraps; 0 for the value 0."""
        value = origin(value)
        if not isinstance(value, OpResult):
            return 1
        match value.op:
            case IndexOp() as op:
                loop = self.nest.coordinates[op.number]
                return 0 if loop is None else self.lanes if loop == self.vector_dim else 1
            case arith.ConstantOp(value=IntegerAttr() as constant):
                return abs(constant.value.data)
            case arith.AddiOp() | arith.SubiOp():
                return gcd(*(self.multiple(operand) for operand in value.op.operands))
            case arith.MuliOp():
                return prod(self.multiple(operand) for operand in value.op.operands)
            case _:
                return 1

    def counter_words(self, op: PhiloxOp, lanes: int) -> tuple[int, ...] | None:
        """Which word each of `lanes` lanes takes, counted from the first word of the first lane's counter; None unless
        the lanes take words of whole counters, four lanes of each."""
        if lanes % 4 or self.step(op.seed) != 0 or self.step(op.offset) != 0:
            return None
        return self._numbers(op.index, lanes)

    def _numbers(self, value: SSAValue, lanes: int) -> tuple[int, ...] | None:
        """How far each lane is ahead of the multiple of four that the first one stands at: neighbours in order, or with
        some of their lowest two bits set or cleared."""
        value = origin(value)
        if self.step(value) == 1 and self.multiple(value) % 4 == 0:
            return tuple(range(lanes))
        if not isinstance(value, OpResult) or not isinstance(value.op, arith.AndIOp | arith.OrIOp):
            return None
        bits, ahead = _constant(value.op.rhs), self._numbers(value.op.lhs, lanes)
        if bits is None or ahead is None:
            return None
        if isinstance(value.op, arith.OrIOp):
            return tuple(number | bits for number in ahead) if 0 <= bits < 4 else None
        return tuple(number & bits for number in ahead) if bits | 3 == -1 else None

    def load_step(self, load: LoadOp) -> int | None:
        """Elements in memory between neighbouring lanes of a load."""
        total = 0
        for index, stride in zip(load.indices, self.nest.memory_strides(load), strict=True):
            if (step := self.step(index)) is None:
                return None
            total += step * stride
        return total

    def load_multiple(self, load: LoadOp) -> int:
        """A number that divides the element in memory at which the first lane loads; 0 for the first element."""
        pairs = zip(load.indices, self.nest.memory_strides(load), strict=True)
        return gcd(*(self.multiple(index) * stride for index, stride in pairs))


def _constant(value: SSAValue) -> int | None:
    value = origin(value)
    match value.owner:
        case arith.ConstantOp(value=IntegerAttr() as constant):
            return constant.value.data
        case _:
            return None
