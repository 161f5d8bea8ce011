"""Values inside the loops of a generated kernel: at a point, at a cell of its reduce space, and in their first lane.

A value that does not vary over the reduce space is computed once at its point, and widened for the cells that read it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from xdsl.dialects import arith
from xdsl.ir import OpResult, SSAValue

from aicf.backends.common.loop_nest import origin
from aicf.backends.cpu.codegen.evaluator import Evaluator
from aicf.backends.cpu.codegen.indexed_loads import WideLoad, indexed_load
from aicf.backends.cpu.codegen.ir_builder import Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars
from aicf.backends.cpu.codegen.scalar.philox import neighbouring_words
from aicf.backends.cpu.families.loops.memory import Cursor, LoopMemory
from aicf.dialects.emit_kernels import LoadOp, PhiloxOp, ReduceOp


class LoopVector(Evaluator, ABC):
    """Values at one vector of the loops, or at one point: `active` lanes from `shift` vector steps past `cursor`."""

    def __init__(self, memory: LoopMemory, scalars: Scalars, cursor: Cursor, shift: int, active: int) -> None:
        super().__init__(scalars)
        self.memory = memory
        self.cursor = cursor
        self.shift = shift
        self.active = active
        self.first = _FirstLane(self)

    @abstractmethod
    def known_scalar(self, value: SSAValue) -> Value | None:
        """What is computed already, if it is a scalar."""

    def load(self, operand: int) -> Value:
        return self.memory.load(operand, self.cursor, self.shift, self.scalars.lanes, self.active)

    def coordinate(self, dim: int) -> tuple[Value, int]:
        return self.memory.coordinate(dim, self.cursor, self.shift)

    def load_at(self, op: LoadOp) -> Value:
        memory = self.memory.loaded_from(op, self.cursor)
        if self.scalars.lanes == 1:
            return indexed_load(self.scalars, op, memory, self.value)
        wide = WideLoad(self.scalars, op, memory, self.memory.steps, self.active)
        return wide.emit(self.value, self.first.value)

    def random(self, op: PhiloxOp) -> Value:
        words = self.memory.steps.counter_words(op, self.scalars.lanes)
        if words is not None:
            return neighbouring_words(self.memory.em, words, self.first.operands(op))
        return super().random(op)


class _FirstLane(Evaluator):
    """Values in the first lane alone: what addresses of wide loads are made of."""

    def __init__(self, vector: LoopVector) -> None:
        super().__init__(vector.scalars.of(1))
        self.vector = vector

    def known(self, value: SSAValue) -> Value | None:
        if (found := self.vector.known_scalar(value)) is not None:
            return found
        return super().known(value)

    def load(self, operand: int) -> Value:
        vector = self.vector
        return vector.memory.load(operand, vector.cursor, vector.shift, 1, 1)

    def coordinate(self, dim: int) -> tuple[Value, int]:
        return self.vector.coordinate(dim)

    def compute(self, value: SSAValue) -> Value:
        if isinstance(value, OpResult) and isinstance(value.op, ReduceOp):
            return self.scalars.em.lane(self.vector.value(value), 0)
        return super().compute(value)

    def load_at(self, op: LoadOp) -> Value:
        memory = self.vector.memory.loaded_from(op, self.vector.cursor)
        return indexed_load(self.scalars, op, memory, self.value)


class Point(LoopVector):
    """What does not vary over the reduce space, at one point or one vector of points."""

    def __init__(self, memory: LoopMemory, cursor: Cursor, shift: int, lanes: int, active: int) -> None:
        super().__init__(memory, memory.scalars.of(lanes), cursor, shift, active)
        self.wide: dict[SSAValue, Value] = {}
        self.cells: dict[int, Cell] = {}

    def known_scalar(self, value: SSAValue) -> Value | None:
        return self.known(value) if self.scalars.lanes == 1 else None

    def compute(self, value: SSAValue) -> Value:
        assert not (isinstance(value, OpResult) and isinstance(value.op, ReduceOp)), "read before its phase"
        return super().compute(value)

    def widened(self, value: SSAValue, lanes: int) -> Value:
        """The value in every lane of a cell."""
        if lanes == self.scalars.lanes:
            return self.value(value)
        if value not in self.wide:
            source = origin(value)
            if isinstance(source, OpResult) and isinstance(source.op, arith.ConstantOp):
                self.wide[value] = self.scalars.of(lanes).emit(source.op, [])
            else:
                self.wide[value] = self.scalars.em.splat(self.value(value), lanes)
        return self.wide[value]


class Cell(LoopVector):
    """One vector of the reduce space."""

    def __init__(self, point: Point, cursor: Cursor, shift: int, active: int, position: Value) -> None:
        super().__init__(point.memory, point.memory.scalars, cursor, shift, active)
        self.point = point
        self.position = position

    def known_scalar(self, value: SSAValue) -> Value | None:
        """What is known of the point, if the point is one."""
        is_one = self.point.scalars.lanes == 1 and value not in self.memory.varying
        return self.point.value(value) if is_one else None

    def known(self, value: SSAValue) -> Value | None:
        if value not in self.memory.varying:
            return self.point.widened(value, self.scalars.lanes)
        return self.values.get(value)

    def _is_kept(self, value: SSAValue) -> bool:
        """Whether an earlier phase has left the value in scratch."""
        return value is not origin(value) and origin(value) in self.memory.scratch

    def needs(self, value: SSAValue) -> tuple[SSAValue, ...]:
        return () if self._is_kept(value) else super().needs(value)

    def compute(self, value: SSAValue) -> Value:
        if self._is_kept(value):
            return self.memory.load_scratch(origin(value), self.position)
        return super().compute(value)
