"""The code that writes rows into a state."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.record import Whole, read_integer, read_list
from aicf.backends.cpu.codegen.call import Call, strided
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import extended
from aicf.backends.cpu.families.loops.template import LoopPointers, emit_loops
from aicf.backends.cpu.families.records import read_loops
from aicf.backends.cpu.families.write_row.kernel import WriteRow


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The old state copied where the result lies elsewhere, then each row to the index that it has."""
    numbers = read_list(launch.record, "operands", [Whole(0)] * 3)
    rows, at, before = (strided(launch.ins[int(number)]) for number in numbers)
    write = WriteRow(rows, at, before, strided(launch.outs[0]), read_integer(launch.record, "axis"))
    specs = read_loops(launch.record, nests := write.copies())
    (row, index, old), result = (call.ins[number] for number in numbers), call.outs[0]
    zero, one = em.index(0), em.index(1)

    def copied() -> None:
        emit_loops(em, nests[0], specs[0], LoopPointers((old, result), zero, one))

    # Whether the instruction is in place is known when it runs: instructions of equal records share their code.
    em.when(em.b.icmp_unsigned("!=", old, result), copied)
    size = em.index(write.result.shape[write.axis])

    def each(dim: int, row: Value, index: Value, result: Value) -> None:
        """All rows of a position in the first `dim` of the dimensions that the index has."""
        if dim < len(write.index.shape):

            @em.each(0, write.index.shape[dim])
            def along(number: Value) -> None:
                each(
                    dim + 1,
                    em.moved(row, number, write.row.strides[dim], write.row.dtype),
                    em.moved(index, number, write.index.strides[dim], write.index.dtype),
                    em.moved(result, number, write.result.strides[dim], write.result.dtype),
                )

            return
        first = extended(em, em.load(index, write.index.dtype, 1), write.index.dtype)

        @em.each(0, write.row.shape[write.axis])
        def written(number: Value) -> None:
            named = em.b.add(first, number)
            from_end = em.b.select(em.b.icmp_signed("<", named, zero), em.b.add(named, size), named)

            def store() -> None:
                source = em.moved(row, number, write.row.strides[write.axis], write.row.dtype)
                target = em.moved(result, from_end, write.result.strides[write.axis], write.result.dtype)
                emit_loops(em, nests[1], specs[1], LoopPointers((source, target), zero, one))

            em.when(em.b.icmp_unsigned("<", from_end, size), store)

    each(0, row, index, result)
