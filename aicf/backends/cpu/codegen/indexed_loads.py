"""Code for `emit.load`: elements at computed indices, one, several side by side, or one by one.

A guarded load never touches memory where its condition does not hold: a scalar one reads element 0 instead, a wide one
is masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from aicf.backends.common.lanes import LaneSteps
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars, dtype_of, extended
from aicf.dialects.emit_kernels import LoadOp

ValueOf = Callable[[SSAValue], Value]


@dataclass(frozen=True)
class Memory:
    """An operand that is read at indices: where it starts, element type, element strides."""

    address: Value
    dtype: str
    strides: tuple[int, ...]


def indexed_load(s: Scalars, op: LoadOp, memory: Memory, value: ValueOf) -> Value:
    """One element, in a scalar; `value` gives scalars."""
    em = s.em
    flat = _flat(em, [extended(em, value(index), dtype_of(index)) for index in op.indices], memory.strides)
    if op.condition is None or op.otherwise is None:
        return em.load(em.address(memory.address, flat, memory.dtype), memory.dtype, 1)
    condition, otherwise = value(op.condition), value(op.otherwise)
    guarded = em.b.select(condition, flat, em.index(0))
    found = em.load(em.address(memory.address, guarded, memory.dtype), memory.dtype, 1)
    return em.b.select(condition, found, otherwise)


def _flat(em: Emitter, indices: Sequence[Value], strides: Sequence[int]) -> Value:
    """The element that scalar indices name (i64)."""
    flat = em.index(0)
    for index, stride in zip(indices, strides, strict=True):
        if stride:
            flat = em.b.add(flat, em.scaled(index, stride))
    return flat


@dataclass(frozen=True)
class WideLoad:
    """A load in all lanes of a vector, of which the first `active` exist."""

    scalars: Scalars
    op: LoadOp
    memory: Memory
    steps: LaneSteps
    active: int

    def emit(self, value: ValueOf, first: ValueOf) -> Value:
        """The vector; `value` gives vectors, `first` their first lanes."""
        step = self.steps.load_step(self.op)
        if step == 0 and (self.op.condition is None or self.steps.step(self.op.condition) == 0):
            return self.scalars.em.splat(indexed_load(self._one, self.op, self.memory, first), self._lanes)
        if step == 1:
            return self._side_by_side(value, first)
        return self._one_by_one(value)

    @property
    def _lanes(self) -> int:
        return self.scalars.lanes

    @property
    def _one(self) -> Scalars:
        return self.scalars.of(1)

    def _side_by_side(self, value: ValueOf, first: ValueOf) -> Value:
        em, memory, op = self.scalars.em, self.memory, self.op
        indices = [extended(em, first(index), dtype_of(index)) for index in op.indices]
        flat = _flat(em, indices, memory.strides)
        address = em.address(memory.address, flat, memory.dtype)
        if op.condition is None or op.otherwise is None:
            return em.load(address, memory.dtype, self._lanes, self.active)
        condition = value(op.condition)
        mask = condition
        if self.active < self._lanes:
            mask = em.b.and_(condition, em.lane_mask(self._lanes, self.active))
        found = em.load_masked(address, memory.dtype, self._lanes, mask)
        return em.b.select(condition, found, value(op.otherwise))

    def _one_by_one(self, value: ValueOf) -> Value:
        """Lanes that do not exist are left out: their indices need not be in range."""
        em, op, dtype = self.scalars.em, self.op, self.memory.dtype
        vectors = [(value(index), dtype_of(index)) for index in op.indices]
        guard = None if op.condition is None else value(op.condition)
        addresses: list[Value] = []
        for lane in range(self.active):
            indices = [extended(em, em.lane(vector, lane), own) for vector, own in vectors]
            flat = _flat(em, indices, self.memory.strides)
            guarded = flat if guard is None else em.b.select(em.lane(guard, lane), flat, em.index(0))
            addresses.append(em.address(self.memory.address, guarded, dtype))
        found = em.load_apart(addresses, dtype, self._lanes)
        return found if op.otherwise is None else em.b.select(guard, found, value(op.otherwise))
