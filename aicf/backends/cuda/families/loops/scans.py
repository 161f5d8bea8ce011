"""Kernels with prefix sums (`emit.scan`) as snippets: what a thread scans of its cell, and what it stores then.

Along rows a cell is a vector of the scanned dim: `prefix` scans it by itself, the template finds out what lies ahead
of it, and `finish` puts both together. Across columns a thread walks down its points, with their totals in registers.
Where rows or columns are split, a first launch adds up each part: the kernel with reductions in place of its scans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.ir import Operation, SSAValue

from aicf.backends.base import BufferRef
from aicf.backends.common.loop_nest import LoopNest
from aicf.backends.cuda.codegen.combine import WARP, partial_dtype
from aicf.backends.cuda.codegen.scalar import (
    combine_text,
    dtype_of,
    identity_text,
    rounded_text,
    wrapped_text,
)
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.loops.cells import Source, named, packed
from aicf.backends.cuda.families.loops.phases import PhaseCode
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec
from aicf.backends.cuda.families.loops.spaces import scan_ops
from aicf.backends.cuda.families.records import Rounding
from aicf.backends.cuda.target import SHORT_INTEGERS
from aicf.dialects.emit_kernels import ReduceOp, ScanOp, StoreOp, YieldOp


class ScanCode(PhaseCode):
    """Snippets of a kernel of one phase that scans; register groups have a register for each scan."""

    def __init__(
        self, nest: LoopNest, spec: GeneratedSpec, refs: Sequence[BufferRef], rounding: Rounding = "fused"
    ):
        super().__init__(nest, spec, refs, rounding)
        self.scans = scan_ops(nest)
        self.order = list(range(spec.vector))[:: -1 if self.is_reverse else 1]

    @property
    def is_reverse(self) -> bool:
        """Whether the scans walk from the end."""
        return self.scans[0].is_reverse

    @property
    def group(self) -> int:
        """Threads of a row within one warp."""
        return min(self.spec.lanes, WARP)

    def _each(self, text: str) -> list[str]:
        return [text.format(i=i) for i in range(len(self.scans))]

    # Along rows

    def prefix(self) -> Snippet:
        """Parameters point, cell, valid, x, before; the result is each scan of the cell by itself, lane by lane."""
        lines: list[str] = []
        value = self.values(
            [op.value for op in self.scans], self.cell_sources(self.boundary(0)), self.spec.vector, lines
        )
        names: list[str] = []
        for i, op in enumerate(self.scans):
            how, dtype = op.combine.data, partial_dtype(op)
            lanes, last = value(op.value), ""
            for lane in self.order:
                own = f"({lanes[lane]} if valid else {identity_text(how, dtype)})"
                lines.append(f"p{i}_{lane} = {combine_text(how, dtype, last, own) if last else own}")
                last = f"p{i}_{lane}"
            names += [f"p{i}_{lane}" for lane in range(self.spec.vector)]
        return Snippet(("point", "cell", "valid", "x", "before"), tuple(lines), packed(names))

    def up_to(self) -> Snippet:
        """Parameters prefix, thread; the result is what the cells of a warp up to this thread's give together."""
        lines: list[str] = []
        for i, op in enumerate(self.scans):
            how, dtype = op.combine.data, partial_dtype(op)
            lines.append(f"u{i} = prefix[{i * self.spec.vector + self.order[-1]}]")
            step = 1
            while step < self.group:
                lines.append(f"o{i}_{step} = cuda.shfl_up_sync(ALL_LANES, u{i}, {step})")
                joined = combine_text(how, dtype, f"o{i}_{step}", f"u{i}")
                lines.append(f"u{i} = {joined} if thread % {self.group} >= {step} else u{i}")
                step *= 2
        return Snippet(("prefix", "thread"), tuple(lines), packed(self._each("u{i}")))

    def ahead(self) -> Snippet:
        """Parameters upto, thread; the result is the same without this thread's cell."""
        lines: list[str] = []
        for i, op in enumerate(self.scans):
            first = identity_text(op.combine.data, partial_dtype(op))
            lines.append(
                f"b{i} = cuda.shfl_up_sync(ALL_LANES, upto[{i}], 1)" if self.group > 1 else f"b{i} = {first}"
            )
            lines.append(f"b{i} = b{i} if thread % {self.group} > 0 else {first}")
        return Snippet(("upto", "thread"), tuple(lines), packed(self._each("b{i}")))

    def whole(self) -> Snippet:
        """Parameters upto, thread; the result is what all cells of the warp's share of a row give together."""
        last = f"i32(thread % {WARP} // {self.group} * {self.group} + {self.group - 1})"
        names = [f"cuda.shfl_sync(ALL_LANES, upto[{i}], {last})" for i in range(len(self.scans))]
        return Snippet(("upto", "thread"), (), packed(names))

    def join(self) -> Snippet:
        """Parameters first, second; the result is both, in this order."""
        names = [
            combine_text(op.combine.data, partial_dtype(op), f"first[{i}]", f"second[{i}]")
            for i, op in enumerate(self.scans)
        ]
        return Snippet(("first", "second"), (), packed(names))

    def starts(self) -> Snippet:
        """What scans start from, for every point that a thread has."""
        names = [
            identity_text(op.combine.data, partial_dtype(op))
            for op in self.scans
            for _ in range(self.uniform_lanes)
        ]
        return Snippet((), (), packed(names))

    def board(self) -> Snippet:
        """No parameters; the result is shared memory for what each warp has, twice: of this tile and of the last."""
        size = 2 * (self.spec.lanes // self.group)
        lines = [f"s{i} = cuda.shared.array({size}, {partial_dtype(op)})" for i, op in enumerate(self.scans)]
        return Snippet((), tuple(lines), packed(self._each("s{i}")))

    def put(self) -> Snippet:
        """Parameters board, slot, values."""
        return Snippet(("board", "slot", "values"), tuple(self._each("board[{i}][slot] = values[{i}]")))

    def get(self) -> Snippet:
        """Parameters board, slot; the result is what is there."""
        return Snippet(("board", "slot"), (), packed(self._each("board[{i}][slot]")))

    def finish(self) -> Snippet:
        """Parameters point, cell, valid, inside, x, before, prefix, ahead: joins the last two, computes and stores."""
        lines: list[str] = []
        results: dict[ScanOp, list[str]] = {}
        for i, op in enumerate(self.scans):
            own = [f"prefix[{i * self.spec.vector + lane}]" for lane in self.order]
            upto = [combine_text(op.combine.data, partial_dtype(op), f"ahead[{i}]", text) for text in own]
            walked = [f"ahead[{i}]", *upto[:-1]] if op.is_exclusive else upto
            names = {lane: f"r{i}_{lane}" for lane in self.order}
            for lane, text in zip(self.order, walked, strict=True):
                lines.append(f"{names[lane]} = {self._rounded(op, text)}")
            results[op] = [names[lane] for lane in range(self.spec.vector)]
        lines += self._stored_after(results)
        parameters = ("point", "cell", "valid", "inside", "x", "before", "prefix", "ahead")
        return Snippet(parameters, tuple(lines))

    # From tile to tile

    def _status_address(self, i: int) -> str:
        """Address of the status word of a step of scan `i`: a flag in its upper half, the value in its lower half."""
        words = self.spec.exchanged_words(self.nest)
        return f"w + (u64({i * words}) + u64(step) * u64({self.nest.parallel_size}) + u64(point)) * u64(8)"

    def tell(self) -> Snippet:
        """Parameters point, step, values."""
        lines: list[str] = []
        for i, op in enumerate(self.scans):
            value = (
                f"values[{i}]" if partial_dtype(op) == "i32" else f"cuda.libdevice.float_as_int(values[{i}])"
            )
            lines.append(f"publish_u64({self._status_address(i)}, u64({1 << 32}) | u64(u32({value})))")
        return Snippet(("point", "step", "values"), tuple(lines))

    def ask(self) -> Snippet:
        """Parameters point, step; waits until it has published, the result is what."""
        lines: list[str] = []
        names: list[str] = []
        for i, op in enumerate(self.scans):
            lines += [
                f"q{i} = poll_u64({self._status_address(i)})",
                f"while q{i} < u64({1 << 32}):",
                f"    q{i} = poll_u64({self._status_address(i)})",
            ]
            bits = f"i32(u32(q{i}))"
            names.append(bits if partial_dtype(op) == "i32" else f"cuda.libdevice.int_as_float({bits})")
        return Snippet(("point", "step"), tuple(lines), packed(names))

    # Across columns

    def step(self) -> Snippet:
        """Parameters point, cell, valid, inside, x, before, total: stores one cell; returns the totals after it."""
        lines: list[str] = []
        value = self.values(
            [op.value for op in self.scans], self.cell_sources(self.boundary(0)), self.spec.vector, lines
        )
        results: dict[ScanOp, list[str]] = {}
        totals: list[str] = []
        for i, op in enumerate(self.scans):
            names: list[str] = []
            for lane, text in enumerate(value(op.value)):
                slot = i * self.spec.vector + lane
                joined = combine_text(op.combine.data, partial_dtype(op), f"total[{slot}]", text)
                lines.append(f"n{slot} = {joined} if valid else total[{slot}]")
                own = f"total[{slot}]" if op.is_exclusive else f"n{slot}"
                lines.append(f"r{slot} = {self._rounded(op, own)}")
                names.append(f"r{slot}")
                totals.append(f"n{slot}")
            results[op] = names
        lines += self._stored_after(results)
        parameters = ("point", "cell", "valid", "inside", "x", "before", "total")
        return Snippet(parameters, tuple(lines), packed(totals))

    # Both

    def _rounded(self, op: ScanOp, text: str) -> str:
        if dtype_of(op.value) in SHORT_INTEGERS:
            return wrapped_text(text, dtype_of(op.value))
        return rounded_text(text, dtype_of(op.value)) if self.rounding == "strict" else text

    def _stored_after(self, results: dict[ScanOp, list[str]]) -> list[str]:
        """Statements that compute and store the outputs of a valid cell, the scans there having these names."""
        sources: dict[SSAValue, Source] = {
            **self.cell_sources(self.boundary(0)),
            **{op.result: named(names) for op, names in results.items()},
        }
        lines: list[str] = []
        stored = self.stored(sources, lines)
        return [*lines, "if valid:", "    if inside:", *(f"        {line}" for line in stored)]


def totals_of(nest: LoopNest, spec: GeneratedSpec) -> tuple[LoopNest, GeneratedSpec]:
    """The kernel that adds up each part of a row or column: reductions in place of the scans, and nothing stored."""
    kernel = nest.kernel.clone()
    (phase,) = kernel.phases
    block = phase.body.block
    reductions: list[ReduceOp] = []
    for op in scan_ops(replace(nest, kernel=kernel)):
        reduction = ReduceOp(op.combine.data, op.value)
        block.insert_op_before(reduction, op)
        reductions.append(reduction)
    for op in reversed(list(block.ops)):
        if isinstance(op, StoreOp) or _is_unused(op):
            block.erase_op(op)
    return replace(nest, kernel=kernel), replace(spec, strategy="rows" if spec.by_rows else "columns")


def _is_unused(op: Operation) -> bool:
    return not isinstance(op, ReduceOp | YieldOp) and not any(result.uses for result in op.results)
