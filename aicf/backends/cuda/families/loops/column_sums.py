"""Sums of columns beside what a kernel computes of its rows, as snippets for the templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from aicf.backends.base import BufferRef
from aicf.backends.common.loop_nest import LoopNest, accumulate_ops
from aicf.backends.cuda.codegen.combine import finished, partial_dtype, widened
from aicf.backends.cuda.codegen.scalar import (
    address_text,
    combine_text,
    dtype_of,
    identity_text,
    load_text,
    store_text,
)
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.loops.phases import PhaseCode
from aicf.backends.cuda.families.loops.schedule import SUM_COLUMNS, GeneratedSpec
from aicf.backends.cuda.families.loops.spaces import partial_size
from aicf.backends.cuda.families.records import Rounding
from aicf.dialects.emit_kernels import AccumulateOp, PhaseOp, accumulates_of


class SumCode(PhaseCode):
    """Snippets of a kernel with strategy `column_sums`. Its workspace `w` has each sum's parts one after the other, a
    row of columns each."""

    def __init__(self, nest: LoopNest, spec: GeneratedSpec, refs: Sequence[BufferRef], rounding: Rounding):
        self.sums = accumulate_ops(nest.kernel)
        super().__init__(nest, spec, refs, rounding)

    sweep_parameters = (*PhaseCode.sweep_parameters, "sums")

    def cell_roots(self, number: int) -> list[SSAValue]:
        sums = accumulates_of(self.kernel.phases[number].body.block.ops)
        return [*super().cell_roots(number), *(op.value for op in sums)]

    def beside_totals(
        self, phase: PhaseOp, value: Callable[[SSAValue], list[str]], lines: list[str]
    ) -> list[list[str]]:
        """The sums of a cell with one row more, those of other phases as they are."""
        own = accumulates_of(phase.body.block.ops)
        names: list[str] = []
        for index, op in enumerate(self.sums):
            slots = [index * self.spec.vector + lane for lane in range(self.spec.vector)]
            if op not in own:
                names += [f"sums[{slot}]" for slot in slots]
                continue
            how, dtype = op.combine.data, partial_dtype(op)
            for slot, text in zip(slots, value(op.value), strict=True):
                lines.append(f"s{slot} = {combine_text(how, dtype, f'sums[{slot}]', widened(text, op))}")
                lines.append(f"s{slot} = s{slot} if valid else sums[{slot}]")
                lines.append(f"s{slot} = s{slot} if inside else sums[{slot}]")
                names.append(f"s{slot}")
        return [names]

    def sum_start(self) -> Snippet:
        """The sums of a cell at the start."""
        names = [_first(op) for op in self.sums for _ in range(self.spec.vector)]
        return Snippet((), (), f"({', '.join(names)},)")

    # At the end of the walk

    def board(self) -> Snippet:
        """No parameters; the result is shared memory for a vector of columns of each thread, an array for each sum."""
        size = self.spec.threads * self.spec.vector
        lines = [f"b{i} = cuda.shared.array({size}, {partial_dtype(op)})" for i, op in enumerate(self.sums)]
        return Snippet((), tuple(lines), f"({', '.join(f'b{i}' for i in range(len(self.sums)))},)")

    def put(self) -> Snippet:
        """Parameters board, thread, sums."""
        vector = self.spec.vector
        lines = [
            f"board[{i}][thread * {vector} + {lane}] = sums[{i * vector + lane}]"
            for i in range(len(self.sums))
            for lane in range(vector)
        ]
        return Snippet(("board", "thread", "sums"), tuple(lines))

    def write(self) -> Snippet:
        """Parameters board, own, column, part: combines column `own` of the board over the rows of the block, and
        writes what comes of it as that of `column`."""
        width = self.spec.lanes * self.spec.vector
        lines: list[str] = []
        for i, op in enumerate(self.sums):
            how, dtype = op.combine.data, partial_dtype(op)
            for row in range(self.spec.threads // self.spec.lanes):
                cell = f"board[{i}][{row * width} + own]"
                lines.append(f"t{i} = {combine_text(how, dtype, f't{i}', f'c{i}') if row else cell}")
                if row + 1 < self.spec.threads // self.spec.lanes:
                    lines.append(f"c{i} = board[{i}][{(row + 1) * width} + own]")
            lines.append(store_text(dtype, self._address(i), f"t{i}"))
        return Snippet(("board", "own", "column", "part"), tuple(lines))

    def _address(self, number: int) -> str:
        """Of what part `part` has of `column` of a sum."""
        size = self.nest.reduce_size
        start = sum(self.spec.splits * size * partial_size(op) for op in self.sums[:number])
        return f"w + u64({start} + (i64(part) * {size} + i64(column)) * {partial_size(self.sums[number])})"

    # In the second launch

    def first(self, number: int) -> Snippet:
        """What a sum starts from."""
        return Snippet((), (), _first(self.sums[number]))

    def read(self, number: int) -> Snippet:
        """Parameters column, part; the result is what that part has of a sum."""
        return Snippet(
            ("column", "part"), (), load_text(partial_dtype(self.sums[number]), self._address(number))
        )

    def add(self, number: int) -> Snippet:
        """Parameters total, part, valid: the result is both if the part is valid, else the first."""
        op = self.sums[number]
        both = combine_text(op.combine.data, partial_dtype(op), "total", "part")
        return Snippet(("total", "part", "valid"), (f"both = {both}",), "both if valid else total")

    def finish(self, number: int) -> Snippet:
        """Parameters thread, column, inside, total: combines over the threads of a column, ascending, and stores."""
        op = self.sums[number]
        how, dtype = op.combine.data, partial_dtype(op)
        lines = [
            f"shared = cuda.shared.array({self.spec.threads}, {dtype})",
            "shared[thread] = total",
            "cuda.syncthreads()",
        ]
        inner = ["s = shared[thread]"]
        for other in range(1, self.spec.threads // SUM_COLUMNS):
            inner += [
                f"c = shared[{other * SUM_COLUMNS} + thread]",
                f"s = {combine_text(how, dtype, 's', 'c')}",
            ]
        inner.append(f"f = {finished(op, 's', self.rounding)}")
        access = self.nest.inputs + op.output.value.data
        element = self.element(access, inner, "0", "column")
        address = address_text(self.base(access), element, dtype_of(op.value))
        inner.append(store_text(dtype_of(op.value), address, "f"))
        lines += [f"if thread < {SUM_COLUMNS}:", "    if inside:", *(f"        {line}" for line in inner)]
        return Snippet(("thread", "column", "inside", "total"), tuple(lines))


def _first(op: AccumulateOp) -> str:
    return identity_text(op.combine.data, partial_dtype(op))
