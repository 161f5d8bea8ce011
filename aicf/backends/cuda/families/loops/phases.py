"""The phases of an `emit.kernel` as snippets for the templates: what a sweep computes, combines and stores, and the
parts of a row or column that blocks share. The words are those of `cells.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.ir import SSAValue

from aicf.backends.common.loop_nest import Access
from aicf.backends.cuda.codegen.combine import (
    by_butterflies,
    by_clusters,
    by_columns,
    by_row_clusters,
    finished,
    partial_dtype,
    tree,
    widened,
)
from aicf.backends.cuda.codegen.scalar import (
    combine_text,
    identity_text,
)
from aicf.backends.cuda.codegen.vector_access import VectorAccess
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.loops.cells import CellCode, Source, packed, yielded_value
from aicf.backends.cuda.families.loops.ends import has_head, lead_of
from aicf.backends.cuda.families.loops.phase_pairs import reductions_of
from aicf.backends.cuda.families.loops.spaces import partial_size
from aicf.backends.cuda.target import ELEMENT_BYTES, PIECE_BYTES
from aicf.dialects.emit_kernels import PhaseOp, ReduceOp, StoreOp


class PhaseCode(CellCode):
    """Snippets of the phases: what a sweep computes, combines and stores, and the parts of those that are split."""

    def head(self) -> Snippet:
        """Parameter point; the result is how many elements of its row come before the first aligned vector."""
        if not has_head(self.nest, self.spec.vector, self.offsets):
            return Snippet(("point",), (), f"{self.index}(0)")
        lines: list[str] = []
        number = lead_of(self.nest)
        element = self.element(number, lines, "point", f"{self.index}(0)")
        after = f"{self.index}({element}) + {self.index}({self.offsets[number]})"
        size = self.nest.reduce_size
        return Snippet(
            ("point",),
            tuple(lines),
            f"{self.index}(min({self.index}(({self.index}(0) - ({after})) & {self.index}({self.spec.vector - 1})), "
            f"{self.index}({size})))",
        )

    def sweeps(self, phase: int) -> bool:
        """Whether the phase has cells to visit."""
        return bool(self.cell_roots(phase))

    def known_to(self, phase: int) -> int:
        """Where the registers of `known` end that the reductions of a phase give."""
        return self.totals_at[phase + 1]

    def reductions(self, phase: int) -> list[ReduceOp]:
        """The reductions of a phase."""
        return reductions_of(self.kernel.phases[phase])

    def before(self, phase: int) -> Snippet:
        """Parameter known; the result is the registers `before`."""
        boundary = self.boundary(phase)
        lines: list[str] = []
        value = self.values(boundary, self._known_sources(), self.uniform_lanes, lines)
        return Snippet(("known",), tuple(lines), packed([name for v in boundary for name in value(v)]))

    def before_count(self, phase: int) -> int:
        """Registers that `before` takes."""
        return max(1, len(self.boundary(phase)) * self.uniform_lanes)

    def point_stores(self, phase: int) -> Snippet:
        """Parameters known, point; stores the outputs of a phase that have no reduce dims."""
        stores = self._stores(self.kernel.phases[phase], of_cells=False)
        lines: list[str] = []
        value = self.values([op.value for op in stores], self._known_sources(), self.uniform_lanes, lines)
        made = [(op.output.value.data, value(op.value)) for op in stores]
        for output, names in made:
            lines += self._store(output, names, lines)
        return Snippet(("known", "point"), tuple(lines or ["pass"]))

    def has_point_stores(self, phase: int) -> bool:
        """Whether there are any."""
        return bool(self._stores(self.kernel.phases[phase], of_cells=False))

    def _store(self, output: int, names: Sequence[str], lines: list[str]) -> list[str]:
        number = self.nest.inputs + output
        element = self.element(number, lines, "point", "cell")
        return self.accesses[number].store(self.base(number), element, names)

    def start(self, phase: int) -> Snippet:
        """The registers `total` at the start."""
        lanes = range(self.uniform_lanes)
        names = [
            identity_text(op.combine.data, partial_dtype(op)) for op in self.reductions(phase) for _ in lanes
        ]
        return Snippet((), (), packed(names))

    def first_at(self, phase: int) -> int:
        """Where in `total` what follows from the first cell of a row or column begins; at its end if nothing does."""
        return self.totals(phase)

    def from_first(self, phase: int) -> Snippet:
        """Parameters point, cell, x, before; the result is those registers."""
        return Snippet(("point", "cell", "x", "before"), (), packed([]))

    def totals(self, phase: int) -> int:
        """Registers that `total` takes."""
        return max(1, len(self.reductions(phase)) * self.uniform_lanes)

    def sweep(self, number: int) -> Snippet:
        """Parameters `sweep_parameters`; the result is (total, kept values, and what `beside_totals` gives).

        valid: whether the cell is one of the reduce space, inside: whether the point is one of the parallel space.
        """
        phase = self.kernel.phases[number]
        lines: list[str] = []
        value = self.values(
            self.cell_roots(number), self.cell_sources(self.boundary(number)), self.spec.vector, lines
        )
        totals = self._accumulated(phase, value, lines)
        beside = self.beside_totals(phase, value, lines)
        kept = [name for result in self._kept_results(phase) for name in value(yielded_value(phase, result))]
        stores = self._stores(phase, of_cells=True)
        if stores:
            stored: list[str] = []
            for op in stores:
                stored += self._store(op.output.value.data, value(op.value), lines)
            lines += ["if valid:", "    if inside:", *(f"        {line}" for line in stored)]
        results = ", ".join(map(packed, (totals, kept, *beside)))
        return Snippet(self.sweep_parameters, tuple(lines or ["pass"]), f"({results})")

    sweep_parameters: tuple[str, ...] = ("point", "cell", "valid", "inside", "x", "before", "total")

    def beside_totals(
        self, phase: PhaseOp, value: Callable[[SSAValue], list[str]], lines: list[str]
    ) -> list[list[str]]:
        """More registers that a sweep gives; adds what computes them."""
        return []

    def kept_count(self, phase: int) -> int:
        """Registers that the kept values of a phase take in a cell."""
        return max(1, len(self._kept_results(self.kernel.phases[phase])) * self.spec.vector)

    def _accumulated(
        self, phase: PhaseOp, value: Callable[[SSAValue], list[str]], lines: list[str]
    ) -> list[str]:
        names: list[str] = []
        for index, op in enumerate(reductions_of(phase)):
            how, dtype = op.combine.data, partial_dtype(op)
            lanes = [widened(name, op) for name in value(op.value)]
            groups = [tree(how, dtype, lanes)] if self.by_rows else lanes
            for lane, text in enumerate(groups):
                slot = index * self.uniform_lanes + lane
                step = f"t{slot}"
                lines.append(f"{step} = {combine_text(how, dtype, f'total[{slot}]', text)}")
                lines.append(f"n{slot} = {step} if valid else total[{slot}]")
                names.append(f"n{slot}")
        return names

    def combine(self, phase: int, *, finish: bool = True) -> Snippet:
        """Parameters total, thread; combines over the threads of a row or column, all of which get the result. Where
        blocks share it, it names `heard` of the template, a barrier for each phase.

        finish: whether that is the whole result, to be turned into the type that later phases see.
        """
        lines: list[str] = []
        if self.spec.cluster > 1:
            across = by_row_clusters if self.by_rows else by_clusters
            names = across(self.spec, self.reductions(phase), f"u32(heard + {8 * phase})", lines)
        else:
            across = by_butterflies if self.by_rows else by_columns
            names = across(self.spec, self.reductions(phase), lines)
        if finish:
            reductions = self.reductions(phase)
            names = [
                finished(reductions[i // self.uniform_lanes], name, self.rounding)
                for i, name in enumerate(names)
            ]
        return Snippet(("total", "thread"), tuple(lines), packed(names))

    # Partial results of splits

    def _partials(self, op: ReduceOp) -> tuple[str, VectorAccess]:
        """Where the parts of a reduction start, and how those of a vector of points are touched, in pieces of up to 16
        bytes. Part after part has an element for each point."""
        points, dtype, start = self.nest.parallel_size, partial_dtype(op), 0
        for phase in self.kernel.phases:
            for other in reductions_of(phase):
                if other is op:
                    piece = min(self.uniform_lanes, PIECE_BYTES // ELEMENT_BYTES[dtype])
                    while points % piece or start % (piece * ELEMENT_BYTES[dtype]):
                        piece //= 2
                    return f"w + u64({start})", VectorAccess(
                        Access(dtype, 0, ()), self.uniform_lanes, 1, piece
                    )
                start += self.spec.splits * points * partial_size(other)
        raise AssertionError("a reduction of another kernel")

    def _partial_element(self) -> str:
        return f"i64(part) * {self.nest.parallel_size} + i64(point)"

    def write_partials(self, phase: int) -> Snippet:
        """Parameters total, point, part; writes the totals of one part."""
        lines: list[str] = []
        lanes = self.uniform_lanes
        for index, op in enumerate(self.reductions(phase)):
            base, access = self._partials(op)
            names = [f"total[{index * lanes + lane}]" for lane in range(lanes)]
            lines += access.store(base, self._partial_element(), names)
        return Snippet(("total", "point", "part"), tuple(lines or ["pass"]))

    def load_partials(self, phase: int) -> Snippet:
        """Parameters point, part; the result is the totals of that part."""
        lines: list[str] = []
        names: list[str] = []
        for index, op in enumerate(self.reductions(phase)):
            base, access = self._partials(op)
            words = self.load_words(access, base, self._partial_element(), lines, f"w{index}_")
            names += access.unpack(words, lines, f"e{index}_")
        return Snippet(("point", "part"), tuple(lines), packed(names))

    def partials(self, phase: int) -> int:
        """Registers that the totals of a part take."""
        return max(1, len(self.reductions(phase)) * self.uniform_lanes)

    def add_partials(self, phase: int) -> Snippet:
        """Parameters total, found, part, valid; the result is the totals with those found of a part, if it is valid."""
        lines: list[str] = []
        names: list[str] = []
        for index, op in enumerate(self.reductions(phase)):
            for lane in range(self.uniform_lanes):
                slot = index * self.uniform_lanes + lane
                both = combine_text(op.combine.data, partial_dtype(op), f"total[{slot}]", f"found[{slot}]")
                lines.append(f"n{slot} = {both}")
                lines.append(f"n{slot} = n{slot} if valid else total[{slot}]")
                names.append(f"n{slot}")
        return Snippet(("total", "found", "part", "valid"), tuple(lines), packed(names))

    # Pointwise

    def pointwise(self) -> Snippet:
        """Parameters point, x: computes and stores one cell."""
        lines: list[str] = []
        stored = self.stored(self.cell_sources([]), lines)
        return Snippet(("point", "x"), (*lines, *stored))

    def stored(self, sources: Mapping[SSAValue, Source], lines: list[str]) -> list[str]:
        """Statements that store all outputs of a cell; adds what computes them to `lines`."""
        stores = [
            op for phase in self.kernel.phases for op in phase.body.block.ops if isinstance(op, StoreOp)
        ]
        value = self.values([op.value for op in stores], sources, self.spec.vector, lines)
        found: list[str] = []
        for op in stores:
            found += self._store(op.output.value.data, value(op.value), lines)
        return found
