"""What the loops of a generated kernel read and write: elements of its accesses, and scratch between its phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import BlockArgument, SSAValue

from aicf.backends.common.lanes import LaneSteps
from aicf.backends.common.loop_nest import Dim, LoopNest, origin
from aicf.backends.cpu.codegen.indexed_loads import Memory
from aicf.backends.cpu.codegen.ir_builder import I8, Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars, convert, dtype_of
from aicf.backends.cpu.families.loops.schedule import SCRATCH_BYTES, LoopSpec
from aicf.backends.cpu.target import ELEMENT_BYTES, REGISTERS
from aicf.dialects.emit_kernels import LoadOp, StoreOp


@dataclass(frozen=True)
class Cursor:
    """Where a loop body is: the address of each access there, and the index of each loop that the kernel counts."""

    addresses: tuple[Value, ...]
    indices: Mapping[int, Value]


class LoopMemory:
    """A nest with its decisions, as values read and write it: strides, coordinates, and scratch between phases.

    Args:
        varying: Values that differ from cell to cell.
        vector: The vectorised dim, if there is one, and `inner` whether it is a reduce dim.
        reduce: Reduce dims that are loops.
        straight: The whole reduce space is a few vectors, whose values stay in registers from phase to phase.
        scratch: Memory of values that a later phase reads again.
    """

    def __init__(self, em: Emitter, nest: LoopNest, spec: LoopSpec) -> None:
        self.em = em
        self.nest = nest
        self.spec = spec
        self.kernel = nest.kernel
        self.scalars = Scalars(em, spec.lanes, spec.rounding == "strict")
        self.varying = nest.kernel.varying_values()
        self.vector: Dim | None = nest.dims[spec.vector_dim] if spec.vector_dim >= 0 else None
        self.inner = self.vector is not None and self.vector.is_reduce
        self.steps = LaneSteps(nest, spec.vector_dim if spec.vector_dim >= 0 else None, spec.lanes)
        self.reduce = [i for i in nest.reduce_dims if i != spec.vector_dim]
        self.straight = self.inner and not self.reduce and -(-self.vector_size // spec.lanes) <= spec.unroll
        self.scratch = {} if self.straight else self._allocate_scratch()

    @property
    def vector_size(self) -> int:
        """Size of the vectorised dim."""
        return 1 if self.vector is None else self.vector.size

    def _allocate_scratch(self) -> dict[SSAValue, Value]:
        """Stack for values that a later phase reads again, as far as it is small."""
        padded = -(-self.vector_size // self.spec.lanes) * self.spec.lanes if self.inner else 1
        for dim in self.reduce:
            padded *= self.nest.dims[dim].size
        elements = padded if self.inner else padded * self.spec.unroll * self.spec.lanes
        found: dict[SSAValue, Value] = {}
        for phase in self.kernel.phases:
            for result in phase.results:
                source = origin(result)
                size = elements * ELEMENT_BYTES[register_of(source)]
                if result in self.varying and result.uses and source not in found and size <= SCRATCH_BYTES:
                    found[source] = self.em.stack(I8, size)
        return found

    def stride(self, access: int) -> int:
        """Distance between the lanes of a vector."""
        return 0 if self.vector is None else self.vector.strides[access]

    def load(self, access: int, cursor: Cursor, shift: int, lanes: int, active: int) -> Value:
        """Elements of a read access at `cursor`, `shift` vector steps further on; its memory may hold a wider type."""
        dtype, stride = self.nest.accesses[access].dtype, self.stride(access)
        address = self.em.address(cursor.addresses[access], shift * stride, dtype)
        loaded = self.em.load_strided(address, stride, dtype, lanes, active)
        if (own := dtype_of(self.kernel.body.block.args[access])) == dtype:
            return loaded
        scalars = self.scalars.of(lanes)
        return scalars.settled(convert(scalars, loaded, dtype, own), own)

    def coordinate(self, dim: int, cursor: Cursor, shift: int) -> tuple[Value, int]:
        """The coordinate along a dim of the kernel, `shift` vector steps from `cursor`, and from lane to lane."""
        loop = self.nest.coordinates[dim]
        if loop is None:
            return self.em.index(0), 0
        index = cursor.indices[loop]
        if loop != self.spec.vector_dim:
            return index, 0
        return (self.em.b.add(index, self.em.index(shift)) if shift else index), 1

    def loaded_from(self, op: LoadOp, cursor: Cursor) -> Memory:
        """What a load reads."""
        assert isinstance(op.memory, BlockArgument)
        number = op.memory.index
        return Memory(cursor.addresses[number], self.nest.accesses[number].dtype, self.nest.indexed[number])

    def store(self, value: Value, op: StoreOp, cursor: Cursor, shift: int, lanes: int, active: int) -> None:
        """Write an output, in a wider type if that is what its memory holds."""
        access = self.nest.inputs + op.output.value.data
        dtype, stride = self.nest.accesses[access].dtype, self.stride(access)
        if (own := dtype_of(op.value)) != dtype:
            scalars = self.scalars.of(lanes)
            value = convert(scalars, scalars.rounded(value, own), own, dtype)
        address = self.em.address(cursor.addresses[access], shift * stride, dtype)
        self.em.store_strided(value, address, stride, dtype, lanes, active)

    def load_scratch(self, source: SSAValue, position: Value) -> Value:
        """A value kept by an earlier phase."""
        dtype = register_of(source)
        return self.em.load(self.em.address(self.scratch[source], position, dtype), dtype, self.spec.lanes)

    def moved(self, cursor: Cursor, dim: int, index: Value) -> Cursor:
        """The cursor at `index` of a loop."""
        steps = zip(cursor.addresses, self.nest.dims[dim].strides, self.nest.accesses, strict=True)
        addresses = tuple(self.em.moved(base, index, stride, access.dtype) for base, stride, access in steps)
        indices = {**cursor.indices, dim: index} if dim in self.nest.coordinates else cursor.indices
        return Cursor(addresses, indices)


def register_of(value: SSAValue) -> str:
    """Element type of the register that holds a value."""
    return REGISTERS[dtype_of(value)]
