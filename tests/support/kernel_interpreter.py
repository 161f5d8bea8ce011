"""Generated programs (`emit.kernel`) on NumPy: what they say, by their definition, for all points at once.

It knows no backend and no pass. A value is an array with a dim for each of the iteration space, of size 1 where the
value does not differ. Floats are float64, so that results differ from those of a body by the order of sums alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap

from aicf.dialects.emit_access_ops import IndexOp, LoadOp
from aicf.dialects.emit_accumulate import AccumulateOp
from aicf.dialects.emit_kernels import KernelOp, PhaseOp, ReduceOp, StoreOp, YieldOp
from aicf.dialects.emit_scan import ScanOp
from aicf.dialects.emit_updates import is_update, program_phases, scalar_phase, update_of
from aicf.dialects.types import element_of
from aicf.semantics import value_dtype
from tests.support.scalar_meanings import scalar_value

Array = NDArray[Any]
Shapes = Sequence[tuple[int, ...]]

_COMBINE: Mapping[str, Callable[..., Array]] = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
}


def run_kernel(code: KernelOp, operands: Sequence[Array], shapes: Shapes) -> list[Array]:
    """The outputs, of `shapes`, of a generated program for its operands.

    Raises AssertionError where the program is none: an element outside of an operand, or one of an output that is not
    written exactly once.
    """
    with np.errstate(all="ignore"):
        return (_run_update if is_update(code) else _run_loops)(code, operands, shapes)


def _run_loops(code: KernelOp, operands: Sequence[Array], shapes: Shapes) -> list[Array]:
    outputs = [_Output(shape) for shape in shapes]
    run = _Run(code, (*code.parallel_sizes, *code.reduce_sizes), dict(enumerate(operands)))
    for phase in code.phases:
        run.sweep(phase, dict(enumerate(outputs)))
    return [output.written() for output in outputs]


def _run_update(code: KernelOp, operands: Sequence[Array], shapes: Shapes) -> list[Array]:
    """The numbers once, then each part by its program, as rows of elements."""
    update = update_of(code, len(operands), len(shapes))
    outputs = [_Output(shape) for shape in shapes]
    rank = len(code.parallel_sizes)
    numbers = {argument: operands[number] for argument, number in enumerate(update.scalars)}
    known: dict[SSAValue, Array] = {}
    if (phase := scalar_phase(code)) is not None:
        run = _Run(code, (1,) * rank, numbers)
        run.sweep(phase, {argument: outputs[number] for argument, number in enumerate(update.scalar_results)})
        known = run.values
    for part in update.parts:
        assert all(operands[number].size == part.elements for number in part.operands)
        assert all(outputs[number].array.size == part.elements for number in part.results)
        sizes = tuple(part.elements if dim == part.program else 1 for dim in range(rank))
        own = {
            argument: operands[number].reshape(-1)
            for argument, number in zip(update.arguments(part.program), part.operands, strict=True)
        }
        written = {
            argument: outputs[number].flat()
            for argument, number in zip(update.outputs(part.program), part.results, strict=True)
        }
        run = _Run(code, sizes, {**numbers, **own}, known)
        run.sweep(program_phases(code)[part.program], written)
    return [output.written() for output in outputs]


class _Output:
    """An output, and how often each element was written."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.array: Array = np.zeros(shape)
        self.times = np.zeros(shape, np.int64)

    def flat(self) -> _Output:
        """The same memory as one row."""
        row = _Output(())
        row.array, row.times = self.array.reshape(-1), self.times.reshape(-1)
        return row

    def store(self, where: tuple[Array, ...], value: Array) -> None:
        """Writes a value for each point of the output's map."""
        shape = np.broadcast_shapes(*(each.shape for each in where)) if where else (1,) * value.ndim
        assert np.broadcast_shapes(shape, value.shape) == shape, "points of one element have several values"
        np.add.at(self.times, where, 1)
        self.array[where] = np.broadcast_to(value, shape) if where else value.reshape(())

    def written(self) -> Array:
        """All elements."""
        assert (self.times == 1).all(), "each element of an output is written once"
        return self.array


class _Run:
    """The values of one program over one iteration space."""

    def __init__(
        self,
        code: KernelOp,
        sizes: tuple[int, ...],
        operands: Mapping[int, Array],
        known: Mapping[SSAValue, Array] | None = None,
    ) -> None:
        self.code = code
        self.sizes = sizes
        self.operands = operands
        self.values: dict[SSAValue, Array] = dict(known or {})
        self.grid = list(np.ogrid[tuple(slice(size) for size in sizes)]) if sizes else []
        for argument in code.body.block.args:
            if argument.index in operands and argument.index not in code.indexed:
                self.values[argument] = self._element(argument.index)

    def sweep(self, phase: PhaseOp, outputs: Mapping[int, _Output]) -> None:
        """Computes a phase at all points."""
        for op in phase.body.block.ops:
            if isinstance(op, YieldOp):
                values = (self.values[value] for value in op.operands)
                self.values.update(zip(phase.results, values, strict=True))
            elif isinstance(op, StoreOp):
                number = op.output.value.data
                outputs[number].store(self._index(self.code.out_maps[number]), self.values[op.value])
            elif isinstance(op, AccumulateOp):
                number = op.output.value.data
                outputs[number].store(self._index(self.code.out_maps[number]), self._accumulate(op))
            else:
                self.values[op.results[0]] = self._compute(op)

    def _index(self, map_: AffineMap) -> tuple[Array, ...]:
        """The index of each point along each dim of an operand or output."""
        rank = len(self.sizes)
        found = [np.asarray(expr.eval(self.grid, [])) for expr in map_.results]
        return tuple(index.reshape((1,) * rank) if index.ndim < rank else index for index in found)

    def _element(self, operand: int) -> Array:
        where, array = self._index(self.code.in_maps[operand]), self.operands[operand]
        return _taken(array, where) if where else array.reshape((1,) * len(self.sizes))

    def _compute(self, op: Operation) -> Array:
        match op:
            case ReduceOp():
                return self._reduce(op)
            case ScanOp():
                return self._scan(op)
            case IndexOp():
                return self.grid[op.number].astype(value_dtype(element_of(op.result.type), "exact"))
            case LoadOp():
                return self._load(op)
            case _:
                value = scalar_value(op, [self.values[operand] for operand in op.operands])
                return value if value.ndim else value.reshape((1,) * len(self.sizes))

    def _swept(self, value: Array) -> Array:
        """A value at every reduce point, also where it does not differ."""
        first = len(self.code.parallel_sizes)
        return np.broadcast_to(value, (*value.shape[:first], *self.sizes[first:]))

    def _reduce(self, op: ReduceOp) -> Array:
        value = self._swept(self.values[op.value])
        axes = tuple(range(len(self.code.parallel_sizes), value.ndim))
        return _COMBINE[op.combine.data](value, axis=axes, keepdims=True).astype(value.dtype)

    def _accumulate(self, op: AccumulateOp) -> Array:
        rows = self.sizes[: len(self.code.parallel_sizes)]
        value = self._swept(self.values[op.value])
        value = np.broadcast_to(value, (*rows, *value.shape[len(rows) :]))
        return _COMBINE[op.combine.data](value, axis=tuple(range(len(rows))), keepdims=True).astype(
            value.dtype
        )

    def _scan(self, op: ScanOp) -> Array:
        value = self._swept(self.values[op.value])
        ahead = value[..., ::-1] if op.is_reverse else value
        sums = np.cumsum(ahead, axis=-1, dtype=value.dtype)
        if op.is_exclusive:
            sums = np.concatenate([np.zeros_like(sums[..., :1]), sums[..., :-1]], axis=-1)
        return sums[..., ::-1] if op.is_reverse else sums

    def _load(self, op: LoadOp) -> Array:
        """Where the condition does not hold, the indices may be any."""
        memory = self.operands[self.code.body.block.args.index(op.memory)]  # type: ignore[arg-type]
        indices = [self.values[index] for index in op.indices]
        if op.condition is None or op.otherwise is None:
            return _taken(memory, tuple(indices)) if indices else memory.reshape((1,) * len(self.sizes))
        holds = self.values[op.condition]
        safe = tuple(np.where(holds, index, 0) for index in indices)
        return np.where(holds, _taken(memory, safe), self.values[op.otherwise])


def _taken(array: Array, where: tuple[Array, ...]) -> Array:
    assert all(
        ((index >= 0) & (index < size)).all() for index, size in zip(where, array.shape, strict=True)
    ), "elements outside of an operand are read"
    return array[where]
