"""The row program after a wgmma product (a norm): the text that works on the sums of a tile where they are.

A cluster has all columns of its rows: each block a tile of them, each warpgroup 64 rows, each thread two rows (8 apart)
of every fragment of 8 columns, two neighbours each. Totals of a row combine over the thread's elements, then over the
four threads that share the row, then over the blocks, which tell each other theirs: the order is fixed, and all blocks
get the same bits. `codegen.py` says what is loaded and stored; here is no memory but the totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import BlockArgument, SSAValue

from aicf.backends.cuda.codegen.scalar import (
    ScalarText,
    combine_text,
    dtype_of,
    identity_text,
    rounded_text,
)
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.gemm.wgmma.schedule import Spec, Task
from aicf.backends.cuda.families.records import Rounding
from aicf.backends.cuda.target import NARROW_FLOATS
from aicf.dialects.emit_kernels import KernelOp, PhaseOp, ReduceOp, StoreOp, YieldOp

PARAMETERS = ("acc", "held", "staging", "matrix", "row", "column", "lane")
"""Of the row program and of a store: the values, the words of operands that are held, the warp's lines, the matrix, the
warp's first row and column, the lane."""

_SITES = [(half, parity) for half in range(2) for parity in range(2)]
"""The elements of a fragment that a thread has: upper or lower row, even or odd column."""


def meetings(code: KernelOp) -> int:
    """How often the blocks of a row wait for each other: once for each phase with totals."""
    return sum(bool(_reductions(phase)) for phase in code.phases)


@dataclass(frozen=True)
class Held:
    """An operand after the sums that was read before the product: a word holds two 16-bit neighbours.

    Args:
        first: Index of its first word among those of a fragment.
        words: Of a fragment: one for each row, or one for both.
        step: Words of all operands from one fragment to the next.
        dtype: Of its elements.
    """

    first: int
    words: int
    step: int
    dtype: str

    def site(self, number: str) -> tuple[str, str]:
        """The pairs of a thread's upper and lower row in fragment `number`."""
        words = [f"held[{self.step} * ({number}) + {self.first + word}]" for word in range(self.words)]
        upper, lower = (f"unpack_{self.dtype}({words[half % self.words]})" for half in range(2))
        return upper, lower


def row_snippet(
    code: KernelOp, task: Task, spec: Spec, rounding: Rounding, held: Mapping[int, Held]
) -> Snippet:
    """The row program of one tile.

    Its text names LOAD_EXTRA<k> (matrix, row, column; gives operand k at the four elements of a site), but for operands
    that are `held`, and STORE_RESULT<o> (with the values of result o), and the totals' address TOTALS_AT.
    """
    return _Writer(code, task, spec, rounding, held).snippet()


@dataclass(frozen=True)
class _Total:
    """One reduction: its number in the program, and its names for the upper and the lower row."""

    op: ReduceOp
    number: int

    @property
    def names(self) -> tuple[str, str]:
        return f"total{self.number}_0", f"total{self.number}_1"

    def chain(self, half: int, parity: int) -> str:
        return f"chain{self.number}_{half}_{parity}"

    def combined(self, a: str, b: str) -> str:
        return combine_text(self.op.combine.data, dtype_of(self.op.value), a, b)

    @property
    def identity(self) -> str:
        return identity_text(self.op.combine.data, dtype_of(self.op.value))


class _Writer:
    """Walks the phases. A value that does not vary along the columns is a local for each of the two rows; one that does
    is registers for all elements of the thread if a later phase reads it, else a local of the loop over fragments."""

    def __init__(self, code: KernelOp, task: Task, spec: Spec, rounding: Rounding, held: Mapping[int, Held]):
        self.code, self.task, self.spec, self.held = code, task, spec, held
        self.rounding: Rounding = rounding
        self.lines: list[str] = []
        self.rows = [ScalarText(rounding, f"row{half}_") for half in range(2)]
        self.arrays: dict[SSAValue, str] = {code.body.block.args[0]: "acc"}
        """Values of all elements: what their registers are called."""
        self.totals = 0
        self.met = False

    def snippet(self) -> Snippet:
        """The text of all phases."""
        self._start()
        for number, phase in enumerate(self.code.phases):
            self._phase(number, phase)
        return Snippet(PARAMETERS, tuple(self.lines))

    def _start(self) -> None:
        """Where the thread's rows and their totals are, and operands that are one for a row."""
        self.lines += ["quad = lane & 3", "line = row + (lane >> 2)"]
        if self.spec.cluster_n > 1:
            pair = "((thread - 128) >> 7) * 32 + ((thread >> 5) & 3) * 8 + (lane >> 2)"
            self.lines.append(f"mine = u32(shared + u32(TOTALS_AT + ({pair}) * {self.spec.pair_bytes}))")
        for argument in self.code.body.block.args[1:]:
            if argument.uses and not self.code.varies(argument):
                name = f"extra{argument.index - 1}"
                self.lines.append(f"{name} = splice(LOAD_EXTRA{argument.index - 1}, matrix, line, column)")
                for half, row in enumerate(self.rows):
                    row.names[argument] = f"{name}[{2 * half}]"

    def _phase(self, number: int, phase: PhaseOp) -> None:
        for row in self.rows:
            for op in phase.body.block.ops:
                if not isinstance(op, ReduceOp | StoreOp | YieldOp) and not self.code.varies(op.results[0]):
                    row.emit(op)
            self.lines += row.lines
            row.lines.clear()
        totals = [_Total(op, self.totals + index) for index, op in enumerate(_reductions(phase))]
        self.totals += len(totals)
        kept = {value: f"kept{number}_{index}" for index, value in enumerate(self._kept(phase))}
        stored = self._stored(phase)
        self._sweep(number, phase, totals, kept, stored)
        self._combine(totals)
        self.arrays |= kept
        self._name_results(phase, totals)
        for output, name in stored.items():
            self._store(output, name)

    def _kept(self, phase: PhaseOp) -> list[SSAValue]:
        """What varies along the columns and is computed here for later phases."""
        kept = (value for value in phase.terminator.operands if self.code.varies(value))
        return [value for value in dict.fromkeys(kept) if value not in self.arrays]

    def _stored(self, phase: PhaseOp) -> dict[int, str]:
        """Registers of the results that the phase computes; one that lies in registers already is stored at once."""
        found: dict[int, str] = {}
        for op in phase.body.block.ops:
            if isinstance(op, StoreOp):
                output = op.output.value.data
                if (name := self.arrays.get(op.value)) is not None:
                    self._store(output, name)
                else:
                    found[output] = f"result{output}"
        return found

    def _store(self, output: int, name: str) -> None:
        values = name if name == "acc" else f"{name}[0:SUMS]"
        self.lines.append(f"splice(STORE_RESULT{output}, {values}, held, staging, matrix, row, column, lane)")

    def _name_results(self, phase: PhaseOp, totals: Sequence[_Total]) -> None:
        by_op = {total.op: total for total in totals}
        for result, value in zip(phase.results, phase.terminator.operands, strict=True):
            if isinstance(value.owner, ReduceOp):
                for row, name in zip(self.rows, by_op[value.owner].names, strict=True):
                    row.names[result] = name
            elif value in self.arrays:
                self.arrays[result] = self.arrays[value]
            else:
                for row in self.rows:
                    row.names[result] = row.names[value]

    # The loop over fragments

    def _sweep(
        self,
        number: int,
        phase: PhaseOp,
        totals: Sequence[_Total],
        kept: dict[SSAValue, str],
        stored: dict[int, str],
    ) -> None:
        if not (totals or kept or stored):
            return
        for name in (*kept.values(), *stored.values()):
            self.lines.append(f"{name} = registers(SUMS, f32(0.0))")
        for total in totals:
            self.lines += [f"{total.chain(*site)} = {total.identity}" for site in _SITES]
        body = ["first = column + 8 * number + quad * 2"]
        read = self._read(phase)
        for number_after in sorted(read.values()):
            body += self._read_site(number_after)
        for half, parity in _SITES:
            body += self._element(number, phase, (half, parity), read, totals, kept, stored)
        self.lines.append("for number in unrolled(WIDTH // 8):")
        self.lines += [f"    {line}" for line in body]

    def _read(self, phase: PhaseOp) -> dict[BlockArgument, int]:
        """Operands that the phase reads along the columns, with their numbers among those after the sums."""
        arguments = self.code.body.block.args[1:]
        return {
            argument: argument.index - 1
            for argument in arguments
            if self.code.varies(argument) and any(use.operation.parent_op() is phase for use in argument.uses)
        }

    def _read_site(self, number: int) -> list[str]:
        """Statements that make `extra<number>` the operand's four elements of a site."""
        if (held := self.held.get(number)) is None:
            return [f"extra{number} = splice(LOAD_EXTRA{number}, matrix, line, first)"]
        upper, lower = held.site("number")
        if held.words == 1:
            return [f"pair = {upper}", f"extra{number} = (pair[0], pair[1], pair[0], pair[1])"]
        four = "(above[0], above[1], below[0], below[1])"
        return [f"above = {upper}", f"below = {lower}", f"extra{number} = {four}"]

    def _element(
        self,
        number: int,
        phase: PhaseOp,
        site: tuple[int, int],
        read: dict[BlockArgument, int],
        totals: Sequence[_Total],
        kept: dict[SSAValue, str],
        stored: dict[int, str],
    ) -> list[str]:
        """What the phase does with one element of a fragment."""
        half, parity = site
        element = 2 * half + parity
        at = f"[4 * number + {element}]"
        text = ScalarText(self.rounding, f"at{number}_{element}_")
        text.names |= self.rows[half].names
        text.names |= {value: name + at for value, name in self.arrays.items()}
        text.names |= {argument: f"extra{k}[{element}]" for argument, k in read.items()}
        self._round_sum(text)
        by_op = {total.op: total for total in totals}
        ends: list[str] = []
        for op in phase.body.block.ops:
            match op:
                case ReduceOp():
                    total = by_op[op]
                    value, chain = (
                        self._inside(text.value(op.value), total.identity, parity),
                        total.chain(*site),
                    )
                    ends.append(f"{chain} = {total.combined(chain, value)}")
                case StoreOp():
                    if (output := op.output.value.data) in stored:
                        ends.append(f"{stored[output]}{at} = {text.value(op.value)}")
                case YieldOp():
                    continue
                case _:
                    if self.code.varies(op.results[0]):
                        text.emit(op)
        keeps = [f"{name}{at} = {text.value(value)}" for value, name in kept.items()]
        return [*text.lines, *keeps, *ends]

    def _round_sum(self, text: ScalarText) -> None:
        """With strict rounding the product is a value of its own type."""
        product = self.code.body.block.args[0]
        if self.rounding == "strict" and dtype_of(product) in NARROW_FLOATS:
            text.names[product] = text.fresh(rounded_text(text.names[product], dtype_of(product)))

    def _inside(self, value: str, outside: str, parity: int) -> str:
        """The value where the row has a column, else `outside`."""
        columns = self.task.problem.n
        if columns % (self.spec.width(self.task) * self.spec.cluster_n) == 0:
            return value
        return f"cuda.selp(first + {parity} < {columns}, {value}, {outside})"

    # Totals

    def _combine(self, totals: Sequence[_Total]) -> None:
        """The totals of whole rows, in every thread that has elements of them."""
        for total in totals:
            for half, name in enumerate(total.names):
                self.lines.append(f"{name} = {total.combined(total.chain(half, 0), total.chain(half, 1))}")
                for distance in (1, 2):
                    other = f"cuda.shfl_xor_sync(ALL_LANES, {name}, {distance})"
                    self.lines.append(f"{name} = {total.combined(name, other)}")
        if totals and self.spec.cluster_n > 1:
            self._exchange(totals)
        if self.rounding == "strict":
            for total in totals:
                rounded = (f"{name} = {rounded_text(name, dtype_of(total.op.value))}" for name in total.names)
                self.lines += rounded

    def _exchange(self, totals: Sequence[_Total]) -> None:
        """Each of the four threads of a row sends to every fourth block; then all add up what they received."""
        blocks = self.spec.cluster_n
        if not self.met and self.spec.sharers == 1:
            self.lines.append("cluster_wait()")
        self.met = True
        for total in totals:
            self.lines.append(f"to = u32({self._total_address(total)} + u32(rank << 3))")
            for first in range(0, blocks, 4):
                peer = "quad" if first == 0 else f"quad + {first}"
                call = f"store_cluster_f32x2(map_shared(to, u32({peer})), {', '.join(total.names)})"
                full = first + 4 <= blocks
                self.lines += [call] if full else [f"if {peer} < {blocks}:", f"    {call}"]
        self.lines += ["cuda.syncwarp()", "cluster_arrive()", "cluster_wait()"]
        for total in totals:
            self._gather(total, self.spec.cluster_n)

    def _total_address(self, total: _Total) -> str:
        """The address of what the blocks of a row say of this thread's two rows."""
        return f"u32(mine + u32({total.number * (self.spec.tile_m // 2) * self.spec.pair_bytes}))"

    def _gather(self, total: _Total, blocks: int) -> None:
        upper, lower = total.names
        for block in range(blocks):
            if block % 2 == 0:
                self.lines.append(
                    f"received = load_shared_f32x4(u32({self._total_address(total)} + u32({block * 8})))"
                )
            first, second = (f"received[{2 * (block % 2) + half}]" for half in range(2))
            if block == 0:
                self.lines += [f"{upper} = {first}", f"{lower} = {second}"]
            else:
                self.lines += [
                    f"{upper} = {total.combined(upper, first)}",
                    f"{lower} = {total.combined(lower, second)}",
                ]


def _reductions(phase: PhaseOp) -> list[ReduceOp]:
    return [op for op in phase.body.block.ops if isinstance(op, ReduceOp)]
