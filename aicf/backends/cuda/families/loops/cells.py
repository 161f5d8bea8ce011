"""The cells of an `emit.kernel` as snippets for the templates: where elements lie, what is loaded and computed at a
point. `phases.py` says what sweeps do with them.

A *cell* is a vector of points of the sweep that one thread handles at once. A value is *uniform* if it does not vary
over the reduce space: it is known once for a row (or once for each of the columns of a vector), kept in the template's
registers `known` (elements that do not vary, totals of reductions), and what a phase computes from those for its cells
is computed once before the sweep (`before`). All other values live in cells. Pointwise kernels have cells only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from xdsl.dialects import arith
from xdsl.dialects.builtin import f32
from xdsl.ir import OpResult, SSAValue

from aicf.backends.base import BufferRef
from aicf.backends.common.lanes import LaneSteps
from aicf.backends.common.loop_nest import Access, LoopNest, index_ops, reached, reads
from aicf.backends.cuda.codegen.division import by_one_number
from aicf.backends.cuda.codegen.load import LoadText
from aicf.backends.cuda.codegen.philox import neighbouring_words
from aicf.backends.cuda.codegen.scalar import (
    ScalarText,
    dtype_of,
    element_text,
    index_type,
)
from aicf.backends.cuda.codegen.vector_access import VectorAccess, rounded_pairs, vector_access
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.loops.ends import lead_of, steps_from
from aicf.backends.cuda.families.loops.phase_pairs import reductions_of
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec
from aicf.backends.cuda.families.loops.spaces import nest_moves, reduces
from aicf.backends.cuda.families.records import Rounding
from aicf.backends.cuda.target import ELEMENT_BYTES, HALVES
from aicf.dialects.emit_kernels import CastOp, IndexOp, LoadOp, PhaseOp, PhiloxOp, StoreOp

Source = Callable[[list[str]], list[str]]
"""Adds the statements that a value takes, and gives its name in every lane."""


class CellCode:
    """Snippets for one kernel with one set of decisions.

    Args:
        nest, spec: The kernel and the decisions.
        refs: Where its inputs and outputs lie; the kernel's parameters a0 .. point there.
        rounding: Where f16 and bf16 values are rounded.
    """

    def __init__(
        self, nest: LoopNest, spec: GeneratedSpec, refs: Sequence[BufferRef], rounding: Rounding = "fused"
    ):
        self.nest = nest
        self.spec = spec
        self.kernel = nest.kernel
        self.rounding: Rounding = rounding
        self.index = index_type(nest.accesses, (*nest.kernel.parallel_sizes, *nest.kernel.reduce_sizes))
        self.varying = nest.kernel.varying_values() if reduces(nest) else None
        self.by_rows = spec.by_rows
        self.offsets = [ref.offset // ELEMENT_BYTES[ref.dtype] for ref in refs]
        self.accesses = [self._access(number) for number in range(len(refs))]
        self.steps = LaneSteps(nest, spec.vector_dim(nest), spec.vector)
        self.loads = LoadText(nest, self.steps, self.offsets)
        arguments = [a for a in self.kernel.body.block.args if a.uses and a.index not in nest.indexed]
        in_cells = [a.index for a in arguments if not self.is_uniform(a)]
        self.tiled = self.staged_inputs()
        self.late_inputs = [n for n in in_cells if spec.late and not nest_moves(nest, n)]
        self.cell_inputs = [n for n in in_cells if n not in (*self.late_inputs, *self.tiled)]
        self.point_inputs = [a.index for a in arguments if self.is_uniform(a)]
        self.point_indices = [op for op in index_ops(self.kernel) if self.is_uniform(op.result)]
        self.cell_indices = [op for op in index_ops(self.kernel) if not self.is_uniform(op.result)]
        self.uniform_lanes = 1 if self.by_rows else spec.vector
        self.words: dict[int, int] = {}
        self.loaded = 0
        for number in self.cell_inputs:
            self.words[number] = self.loaded
            self.loaded += self.accesses[number].words
        self._place_kept_and_known()

    def _access(self, number: int) -> VectorAccess:
        argument = number < self.nest.inputs
        uniform = argument and self.is_uniform(self.kernel.body.block.args[number])
        if not argument:
            uniform = reduces(self.nest) and not self.kernel.writes_reduce_space(number - self.nest.inputs)
        dim = None if self.by_rows and uniform else self.spec.vector_dim(self.nest)
        steps = None
        if self.spec.has_ends(self.nest):
            steps = steps_from(self.nest, number, lead_of(self.nest), self.offsets)
        return vector_access(self.nest, number, dim, self.spec.vector, self.offsets[number], steps)

    def staged_inputs(self) -> list[int]:
        """Inputs that reach cells through shared memory."""
        return []

    def _place_kept_and_known(self) -> None:
        """Assigns registers of a cell after its words to values kept from phase to phase, and registers of `known`."""
        self.kept: dict[SSAValue, int] = {}
        self.known: dict[SSAValue, int] = {}
        register, slot = max(1, self.loaded), 0
        for number in self.point_inputs:
            self.known[self.kernel.body.block.args[number]] = slot
            slot += self.uniform_lanes
        for op in self.point_indices:
            self.known[op.result] = slot
            slot += self.uniform_lanes
        self.known_inputs = slot
        self.totals_at: list[int] = []
        self.kept_at: list[int] = []
        for phase in self.kernel.phases:
            self.totals_at.append(slot)
            for op in reductions_of(phase):
                self.known[op.result] = slot
                slot += self.uniform_lanes
            self.kept_at.append(register)
            for result in self._kept_results(phase):
                self.kept[result] = register
                register += self.spec.vector
            register += 0 if register > self.kept_at[-1] else 1
        self.cell_registers = register
        self.known_registers = max(1, slot)
        self.kept_at.append(register)
        self.totals_at.append(slot)

    def _kept_results(self, phase: PhaseOp) -> list[OpResult]:
        if not self.spec.holds_rows:
            return []
        return [result for result in phase.results if result.uses and not self.is_uniform(result)]

    def is_uniform(self, value: SSAValue) -> bool:
        """Whether the value is known before a sweep."""
        return self.varying is not None and value not in self.varying

    # Addresses

    def base(self, number: int) -> str:
        """Where the operand of access `number` starts."""
        return f"a{number}"

    def element(self, number: int, lines: list[str], point: str, cell: str) -> str:
        """The element of access `number` at flat indices of the parallel and of the reduce space."""
        parallel = self.coordinates(point, self.nest.parallel_dims, number, lines, f"p{number}_")
        reduce = self.coordinates(cell, self.nest.reduce_dims, number, lines, f"r{number}_")
        access = self.nest.accesses[number]
        strides = tuple(dim.strides[number] for dim in self.nest.dims)
        return element_text(Access(access.dtype, access.offset, strides), [*parallel, *reduce], self.index)

    def coordinates(
        self, flat: str, dims: Sequence[int], number: int, lines: list[str], prefix: str
    ) -> list[str]:
        """Names of the indices that a flat index over `dims` stands for, as far as access `number` moves over them."""
        names = ["0"] * len(dims)
        moves = [index for index, dim in enumerate(dims) if self.nest.dims[dim].strides[number]]
        unsigned = f"u{self.index[1:]}"
        rest = flat
        for index in reversed(range(min(moves, default=len(dims)), len(dims))):
            size = self.nest.dims[dims[index]].size
            if index == 0:
                names[0] = rest
                break
            names[index] = f"{prefix}{index}"
            lines.append(f"{names[index]} = {self.index}({unsigned}({rest}) % {unsigned}({size}))")
            if any(earlier < index for earlier in moves):
                lines.append(f"{prefix}q{index} = {self.index}({unsigned}({rest}) // {unsigned}({size}))")
                rest = f"{prefix}q{index}"
        return names

    # Loads

    def load(self) -> Snippet:
        """Parameters point, cell; the result is the words of a cell."""
        lines: list[str] = []
        names = self._loads(self.cell_inputs, lines)
        return Snippet(("point", "cell"), tuple(lines), packed(names))

    def _loads(self, numbers: Sequence[int], lines: list[str], unpacked: bool = False) -> list[str]:
        names: list[str] = []
        for number in numbers:
            access = self.accesses[number]
            element = self.element(number, lines, "point", "cell")
            words = self.load_words(access, self.base(number), element, lines, f"w{number}_")
            names += access.unpack(words, lines, f"e{number}_") if unpacked else words
        return names

    def load_words(
        self, access: VectorAccess, base: str, element: str, lines: list[str], prefix: str
    ) -> list[str]:
        """Names of the words of one vector; adds its loads."""
        names: list[str] = []
        each = access.words // access.pieces
        for number, text in enumerate(access.load(base, element)):
            own = [f"{prefix}{number}_{i}" for i in range(each)]
            lines.append(f"{', '.join(own)} = {text}")
            names += own
        return names

    def load_point(self) -> Snippet:
        """Parameters point, cell; the result is the first registers of `known`."""
        lines: list[str] = []
        names = self._loads(self.point_inputs, lines, unpacked=True)
        for op in self.point_indices:
            names += self.coordinate(op, self.uniform_lanes, lines)
        return Snippet(("point", "cell"), tuple(lines), packed(names))

    def coordinate(self, op: IndexOp, lanes: int, lines: list[str]) -> list[str]:
        """Names of a coordinate of `point` or `cell` in every lane."""
        dtype = dtype_of(op.result)
        loop = self.nest.coordinates[op.number]
        if loop is None:
            return [f"{dtype}(0)"] * lanes
        dims = self.nest.dims
        in_row = dims[loop].is_reduce
        flat, own = ("cell", self.nest.reduce_dims) if in_row else ("point", self.nest.parallel_dims)
        unsigned = f"u{self.index[1:]}"
        inner = prod(dims[dim].size for dim in own if dim > loop)
        text = f"{unsigned}({flat})"
        text = f"({text} // {unsigned}({inner}))" if inner > 1 else text
        text = f"({text} % {unsigned}({dims[loop].size}))" if loop != own[0] else text
        name = f"c{op.number}_{dtype}"
        lines.append(f"{name} = {dtype}({text})")
        if lanes == 1 or loop != self.spec.vector_dim(self.nest):
            return [name] * lanes
        return [f"{dtype}({name} + {dtype}({lane}))" for lane in range(lanes)]

    def _counting(self, op: IndexOp) -> Source:
        def source(lines: list[str]) -> list[str]:
            return self.coordinate(op, self.spec.vector, lines)

        return source

    # Values

    def values(
        self, roots: Sequence[SSAValue], sources: Mapping[SSAValue, Source], lanes: int, lines: list[str]
    ) -> Callable[[SSAValue], list[str]]:
        """Computes `roots` in every lane; gives the names of any of them."""
        needed = set(reached(roots, lambda value: () if value in sources else reads(value)))
        texts = [ScalarText(self.rounding, f"v{lane}_", lines) for lane in range(lanes)]

        def define(value: SSAValue, names: Sequence[str]) -> None:
            for text, name in zip(texts, names, strict=True):
                text.names[value] = name

        def names(value: SSAValue) -> list[str]:
            return [text.value(value) for text in texts]

        for value in _in_order(needed, sources):
            define(value, sources[value](lines))
        for phase in self.kernel.phases:
            for op in phase.body.block.ops:
                if op.results and op.results[0] in needed and op.results[0] not in sources:
                    if isinstance(op, LoadOp):
                        prefix = f"l{len(lines)}_"
                        define(op.result, self.loads.emit(op, names, lanes, prefix, lines))
                        continue
                    if (
                        isinstance(op, PhiloxOp)
                        and (words := self.steps.counter_words(op, lanes)) is not None
                    ):
                        prefix = f"w{len(lines)}_"
                        define(op.result, neighbouring_words(op, names, words, prefix, lines))
                        continue
                    if isinstance(op, arith.DivfOp) and self._has_one_divisor(op, lanes):
                        divisor, prefix = names(op.rhs)[0], f"d{len(lines)}_"
                        define(op.result, by_one_number(names(op.lhs), divisor, prefix, lines))
                        continue
                    if isinstance(op, CastOp) and _rounds_pairs(op, lanes):
                        prefix = f"r{len(lines)}_"
                        dtype = dtype_of(op.result)
                        define(op.result, rounded_pairs(dtype, names(op.operands[0]), prefix, lines))
                        continue
                    for text in texts:
                        text.emit(op)
            for result, value in zip(phase.results, phase.terminator.operands, strict=True):
                if result in needed and result not in sources:
                    define(result, names(value))
        return names

    def _has_one_divisor(self, op: arith.DivfOp, lanes: int) -> bool:
        """Whether a vector of f32 is divided by one number of its row."""
        of_cells = self.by_rows and lanes > 1 and not self.is_uniform(op.lhs)
        return of_cells and self.is_uniform(op.rhs) and op.result.type == f32

    def _known_sources(self) -> dict[SSAValue, Source]:
        """Elements and totals in `known`, for what is uniform."""
        count = self.uniform_lanes
        return {
            value: named([f"known[{slot + lane}]" for lane in range(count)])
            for value, slot in self.known.items()
        }

    def cell_sources(self, boundary: Sequence[SSAValue]) -> dict[SSAValue, Source]:
        """Words and kept values in `x`, and what is computed before the sweep in `before`."""
        sources: dict[SSAValue, Source] = {}
        for number in self.cell_inputs:
            start, access = self.words[number], self.accesses[number]
            words = [f"x[{start + i}]" for i in range(access.words)]
            sources[self.kernel.body.block.args[number]] = _unpacking(access, words, f"e{number}_")
        for number in self.late_inputs:
            sources[self.kernel.body.block.args[number]] = self._loading(number)
        for op in self.cell_indices:
            sources[op.result] = self._counting(op)
        for value, start in self.kept.items():
            sources[value] = named([f"x[{start + lane}]" for lane in range(self.spec.vector)])
        for index, value in enumerate(boundary):
            lanes = range(self.spec.vector)
            names = [
                f"before[{index * self.uniform_lanes + (0 if self.by_rows else lane)}]" for lane in lanes
            ]
            sources[value] = named(names)
        return sources

    def _loading(self, number: int) -> Source:
        """Loads the element where it is used."""

        def source(lines: list[str]) -> list[str]:
            access, element = self.accesses[number], self.element(number, lines, "point", "cell")
            words = self.load_words(access, self.base(number), element, lines, f"w{number}_")
            return access.unpack(words, lines, f"e{number}_")

        return source

    def boundary(self, phase: int) -> list[SSAValue]:
        """Uniform values that cells of `phase` use, constants apart: those are written where they are used."""
        if self.varying is None:
            return []
        stored = self.cell_sources([])

        def needs(value: SSAValue) -> Sequence[SSAValue]:
            return () if value in stored or self.is_uniform(value) else reads(value)

        values = reached(self.cell_roots(phase), needs)
        return [value for value in values if self.is_uniform(value) and not _is_constant(value)]

    def cell_roots(self, number: int) -> list[SSAValue]:
        """What a phase computes for its cells."""
        phase = self.kernel.phases[number]
        roots = [op.value for op in reductions_of(phase)]
        roots += [op.value for op in self._stores(phase, of_cells=True)]
        roots += [phase.terminator.operands[result.index] for result in self._kept_results(phase)]
        return roots

    def _stores(self, phase: PhaseOp, *, of_cells: bool) -> list[StoreOp]:
        stores = [op for op in phase.body.block.ops if isinstance(op, StoreOp)]
        if self.varying is None:
            return stores if of_cells else []
        return [op for op in stores if self.kernel.writes_reduce_space(op.output.value.data) == of_cells]


def packed(names: Sequence[str]) -> str:
    """A tuple of names, of one zero if there are none: templates have no empty register arrays."""
    return f"({', '.join(names)},)" if names else "(i32(0),)"


def _rounds_pairs(op: CastOp, lanes: int) -> bool:
    """Whether lanes of f32 are rounded for more than a store, which rounds by itself."""
    is_used = any(not isinstance(use.operation, StoreOp) for use in op.result.uses)
    return lanes % 2 == 0 and is_used and op.operands[0].type == f32 and dtype_of(op.result) in HALVES


def yielded_value(phase: PhaseOp, result: OpResult) -> SSAValue:
    """What a phase gives for one of its results."""
    return phase.terminator.operands[result.index]


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value, OpResult) and isinstance(value.op, arith.ConstantOp)


def named(names: list[str]) -> Source:
    """The source of a value that has names already."""
    return lambda lines: names


def _unpacking(access: VectorAccess, words: Sequence[str], prefix: str) -> Source:
    def source(lines: list[str]) -> list[str]:
        values = access.unpack(words, lines, prefix)
        names = [f"{prefix}l{lane}" for lane in range(len(values))]
        lines.extend(f"{name} = {value}" for name, value in zip(names, values, strict=True))
        return names

    return source


def _in_order(needed: set[SSAValue], sources: Mapping[SSAValue, Source]) -> list[SSAValue]:
    return [value for value in sources if value in needed]
