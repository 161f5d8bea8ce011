"""The row program before a `cuda.gemv` (a norm): the text that runs on the registers of the threads of a row.

A thread has its share of every activation row in the array `a`, and leaves the result of the program there. The
templates say where the text goes, `codegen.py` with which operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Protocol

from xdsl.ir import BlockArgument, SSAValue

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.loop_nest import access_of
from aicf.backends.cuda.codegen.scalar import ScalarText, combine_text, dtype_of, identity_text, load_text
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.gemm.gemv.schedule import GemvProblem, Spec, TilesSpec
from aicf.backends.cuda.families.records import Rounding
from aicf.backends.cuda.target import ELEMENT_BYTES
from aicf.dialects.emit_kernels import KernelOp, PhaseOp, ReduceOp, StoreOp, YieldOp

UNPACK = {
    "f16": Snippet(("word",), (), "unpack_f16(word)"),
    "bf16": Snippet(("word",), (), "unpack_bf16(word)"),
    "f32": Snippet(("word",), (), "(bits_to_f32(word),)"),
}
"""A word of memory as a tuple of f32."""

_CHAINS = 4
"""Independent chains of a reduction of the row program: one add need not wait for the one before."""


class RowsProblem(Protocol):
    """What a product says of the rows that it multiplies, see `GemvProblem`."""

    @property
    def k(self) -> int:
        """Elements of a row."""
        ...

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Sizes of the dims that make the rows."""
        ...

    @property
    def prologue(self) -> tuple[int, ...]:
        """Operand numbers of what the row program reads beside x."""
        ...


class RowsSchedule(Protocol):
    """Which threads have a row."""

    @property
    def parts(self) -> int:
        """Warps that share it."""
        ...

    @property
    def groups(self) -> int:
        """Sets of so many warps in a block, each with all rows."""
        ...

    @property
    def early(self) -> tuple[int, ...]:
        """Operands that are read before the wait."""
        ...


@dataclass
class RowProgram:
    """The text of the row program: loads before and after the wait, and its statements.

    Args:
        early, late, body: Statements.
        totals: Sums that cross warps.
        given, words: Values that are loaded, and words of those that wait packed.
    """

    early: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    totals: int = 0
    given: int = 0
    words: int = 0


@dataclass(frozen=True)
class Share:
    """What a thread holds of the activations, for the row program.

    Args:
        rows: Rows, held side by side.
        chunks: Pieces of a row, of `vector` elements each.
        vector: Elements of a piece.
        stride: Elements between the pieces, or between runs of them.
        exchange: Lane distances over which the lanes that share a row exchange.
        lines: Rows that the lanes of a warp hold in the same register.
        masked: Whether pieces may lie past the end of the row.
        run, run_stride: Pieces of a run, and elements between these.
    """

    rows: int
    chunks: int
    vector: int
    stride: int
    exchange: tuple[int, ...]
    lines: int
    masked: bool
    run: int = 1
    run_stride: int = 0

    @property
    def elements(self) -> int:
        """Of one row."""
        return self.chunks * self.vector

    def start(self, piece: str) -> str:
        """Where a piece starts, in elements after the first one of the thread."""
        if self.run == 1:
            return f"{piece} * {self.stride}"
        return f"({piece} // {self.run} * {self.stride} + {piece} % {self.run} * {self.run_stride})"


def share_of(problem: GemvProblem, spec: Spec) -> Share:
    """The share of a thread in the template of `spec`."""
    chunks, vector = spec.chunks(problem), problem.vector
    if isinstance(spec, TilesSpec):
        masked = spec.steps(problem) * spec.parts * chunks * 32 != problem.k
        return Share(spec.slots(problem), chunks, vector, 32, (2, 1), 8, masked)
    masked = spec.parts * chunks * 32 * vector != problem.k
    return Share(problem.m, chunks, vector, 32 * vector, (16, 8, 4, 2, 1), 1, masked)


def row_program(
    launch: Launch, problem: RowsProblem, spec: RowsSchedule, share: Share, rounding: Rounding
) -> RowProgram:
    """The prologue on registers: each thread has its share of every row in `a`, and leaves the result there."""
    if launch.prologue is None:
        return RowProgram()
    return _Writer(launch, launch.prologue, problem, spec, share, rounding).text()


class _Writer:
    """Walks the phases of a prologue.

    A value that does not vary along K is a local of its own, one for each row; one that does is an array of registers,
    or a local inside the loop over the thread's elements. A reduction combines the elements of a thread in order, then
    lanes by exchange, then the warps that share the row in order.
    """

    def __init__(
        self,
        launch: Launch,
        kernel: KernelOp,
        problem: RowsProblem,
        spec: RowsSchedule,
        share: Share,
        rounding: Rounding,
    ):
        self.launch, self.kernel, self.problem, self.spec, self.share = launch, kernel, problem, spec, share
        self.elements = share.elements
        self.rounding: Rounding = rounding
        self.program = RowProgram()
        self.body: list[str] = []
        self.rows = [ScalarText(rounding, f"row{m}_") for m in range(share.rows)]
        self.arrays: list[dict[SSAValue, str]] = [{} for _ in range(share.rows)]
        """Of each row: text of a value that varies, at element `e`."""
        self.packed: dict[BlockArgument, list[str]] = {}
        """Operands that lie packed in `words`: what unpacks them."""

    def text(self) -> RowProgram:
        """All of it."""
        for m in range(self.share.rows):
            self.arrays[m][self.kernel.body.block.args[0]] = f"a[{m * self.elements} + e]"
        for index, number in enumerate(self.problem.prologue, 1):
            self._operand(self.kernel.body.block.args[index], number)
        for number, phase in enumerate(self.kernel.phases):
            self._phase(number, phase)
        self.program.body = tuple(self.body)
        return self.program

    def _operand(self, argument: BlockArgument, number: int) -> None:
        """Loads what the program reads beside x: along K as wide as it lies, else one element.

        Wide loads stay packed in `words` until the phase that uses them, so that they cost few registers meanwhile.
        """
        ref = self.launch.ins[number]
        access = access_of(self.kernel.in_maps[argument.index], ref.strides, ref.dtype)
        rows, step = access.strides[:-1], access.strides[-1]
        shared = not any(rows)
        lines: list[str] = []
        first = self.program.given
        indices = [*product(*map(range, self.problem.row_shape))]
        for m in range(self.share.rows):
            index = indices[m]
            if m == 0 or not shared:
                first = self.program.given
                self.program.given += self.elements if step else 1
                start = access.offset + sum(i * s for i, s in zip(index, rows, strict=True))
                loads, unpacking = self._loads(first, f"in{number}", ref, start, step)
                lines += loads
                self.packed.setdefault(argument, []).extend(unpacking)
            if step:
                self.arrays[m][argument] = f"given[{first} + e]"
            else:
                self.rows[m].names[argument] = f"given[{first}]"
        if number in self.spec.early:
            self.program.early += tuple(lines)
        else:
            self.program.late += tuple(lines)

    def _loads(
        self, first: int, base: str, ref: BufferRef, start: int, step: int
    ) -> tuple[list[str], list[str]]:
        """Loads of the thread's elements, element 0 of the row at `start`; and what fills `given` from `first` on."""
        size, vector = ELEMENT_BYTES[ref.dtype], self.share.vector
        if step == 0:
            return [f"given[{first}] = {load_text(ref.dtype, f'{base} + u64({start * size})')}"], []
        count = vector * size // 4
        if step == 1 and count % 2 == 0 and (ref.offset + start * size) % 16 == 0:
            return self._wide_loads(first, base, ref, start)
        k = f"min(k0 + i32({self.share.start(f'(e // {vector})')} + e % {vector}), i32({self.problem.k - 1}))"
        address = f"{base} + u64({k}) * u64({step * size}) + u64({start * size})"
        line = f"    given[{first} + e] = {load_text(ref.dtype, address)}"
        return [f"for e in unrolled({self.elements}):", line], []

    def _wide_loads(self, first: int, base: str, ref: BufferRef, start: int) -> tuple[list[str], list[str]]:
        size, vector = ELEMENT_BYTES[ref.dtype], self.share.vector
        count = vector * size // 4
        width = 4 if count % 4 == 0 else 2
        load, guard = f"load_u32x{width}", ""
        if self.share.masked:
            load, guard = f"{load}_or_zero", ", inside[j]"
        word = self.program.words
        self.program.words += self.share.chunks * count
        address = (
            f"{base} + u64(k0) * u64({size}) + u64({start * size} + {self.share.start('j')} * {size} + c * 4)"
        )
        loads = [
            f"for j in unrolled({self.share.chunks}):",
            f"    for c in unrolled(0, {count}, {width}):",
            f"        words[{word} + j * {count} + c : {word + width} + j * {count} + c] = {load}({address}{guard})",
        ]
        at, each = f"{first} + i * {4 // size}", 4 // size
        values = UNPACK[ref.dtype].result.replace("word", f"words[{word} + i]")
        return loads, [
            f"for i in unrolled({self.share.chunks * count}):",
            f"    given[{at} : {at} + {each}] = {values}",
        ]

    def _phase(self, number: int, phase: PhaseOp) -> None:
        for argument in [a for a in self.packed if any(use.operation.parent_op() is phase for use in a.uses)]:
            self.body += self.packed.pop(argument)
        reduces = [op for op in phase.body.block.ops if isinstance(op, ReduceOp)]
        sums = {op: [f"sum{number}_{i}_{m}" for m in range(self.share.rows)] for i, op in enumerate(reduces)}
        for m in range(self.share.rows):
            self._invariant(m, phase)
            if self.kernel.sweeps_reduce_space(phase):
                self._sweep(number, m, phase, {op: names[m] for op, names in sums.items()})
        self._combine(sums)
        for result, value in zip(phase.results, phase.terminator.operands, strict=True):
            for m, row in enumerate(self.rows):
                if isinstance(value.owner, ReduceOp):
                    row.names[result] = sums[value.owner][m]
                elif value in self.arrays[m]:
                    self.arrays[m][result] = self.arrays[m][value]
                else:
                    row.names[result] = row.names[value]

    def _invariant(self, m: int, phase: PhaseOp) -> None:
        """Ops of values that are one for the whole row."""
        row = self.rows[m]
        for op in phase.body.block.ops:
            if not isinstance(op, ReduceOp | StoreOp | YieldOp) and not self.kernel.varies(op.results[0]):
                row.emit(op)
        self.body += row.lines
        row.lines.clear()

    def _sweep(self, number: int, m: int, phase: PhaseOp, sums: dict[ReduceOp, str]) -> None:
        """The loop over the elements of a thread."""
        kept = [value for value in phase.terminator.operands if self.kernel.varies(value)]
        names = {value: f"kept{number}_{i}_{m}" for i, value in enumerate(kept)}
        for name in names.values():
            self.body.append(f"{name} = registers({self.elements}, f32(0.0))")
        for op, name in sums.items():
            self.body.append(
                f"{name}_chains = registers({_CHAINS}, {identity_text(op.combine.data, dtype_of(op.value))})"
            )
        text = ScalarText(self.rounding, f"at{number}_{m}_")
        text.names |= self.rows[m].names
        text.names |= {value: array for value, array in self.arrays[m].items()}
        stored: list[str] = []
        for op in phase.body.block.ops:
            match op:
                case ReduceOp():
                    dtype = dtype_of(op.value)
                    value = self._inside(text.names[op.value], identity_text(op.combine.data, dtype))
                    chain = f"{sums[op]}_chains[e % {_CHAINS}]"
                    text.lines.append(f"{chain} = {combine_text(op.combine.data, dtype, chain, value)}")
                case StoreOp():
                    value = self._inside(text.names[op.value], "f32(0.0)")
                    stored.append(f"a[{m * self.elements} + e] = {value}")
                case YieldOp():
                    continue
                case _:
                    if self.kernel.varies(op.results[0]):
                        text.emit(op)
        keeps = [f"{name}[e] = {text.names[value]}" for value, name in names.items()]
        self.body.append(f"for e in unrolled({self.elements}):")
        self.body += [f"    {line}" for line in (*text.lines, *keeps, *stored)]
        self.arrays[m] |= {value: f"{name}[e]" for value, name in names.items()}
        for op, name in sums.items():
            chains = [f"{name}_chains[{i}]" for i in range(_CHAINS)]
            while len(chains) > 1:
                pairs = zip(chains[::2], chains[1::2], strict=True)
                chains = [combine_text(op.combine.data, dtype_of(op.value), a, b) for a, b in pairs]
            self.body.append(f"{name} = {chains[0]}")

    def _inside(self, value: str, outside: str) -> str:
        """The value where the row has an element, else `outside`."""
        if not self.share.masked:
            return value
        return f"cuda.selp(inside[e // {self.share.vector}] != i32(0), {value}, {outside})"

    def _combine(self, sums: dict[ReduceOp, list[str]]) -> None:
        """The sums of all threads that share a row, in every one of them."""
        parts, groups = self.spec.parts, self.spec.groups
        ordered = [(op, name) for op, names in sums.items() for name in names]
        for op, name in ordered:
            dtype = dtype_of(op.value)
            for distance in self.share.exchange:
                other = f"cuda.shfl_xor_sync(ALL_LANES, {name}, {distance})"
                self.body.append(f"{name} = {combine_text(op.combine.data, dtype, name, other)}")
        if parts == 1 or not ordered:
            return
        lines = self.share.lines
        writer, line = ("lane == i32(0)", "") if lines == 1 else ("(lane & i32(3)) == i32(0)", " + line")
        # Where all warps share the rows, the template may call others a group.
        group, warp = ("i32(0)", "warp") if groups == 1 else ("group", f"(group * i32({parts}) + part)")
        first = self.program.totals
        self.program.totals += len(ordered)
        self.body.append(f"if {writer}:")
        for slot, (_, name) in enumerate(ordered, first):
            at = f"i32({slot * groups * parts * lines}) + {warp} * i32({lines}){line}"
            self.body.append(f"    totals[{at}] = {name}")
        self.body.append("cuda.syncthreads()")
        for slot, (op, name) in enumerate(ordered, first):
            at = f"i32({slot * groups * parts * lines}) + {group} * i32({parts * lines}){line}"
            value = f"totals[{at} + i32(s * {lines})]"
            self.body += [
                f"{name} = totals[{at}]",
                f"for s in unrolled(1, {parts}):",
                f"    {name} = {combine_text(op.combine.data, dtype_of(op.value), name, value)}",
            ]
