"""Snippets of columns whose means and squares around them are taken in one sweep, see `moments.py`.

A thread keeps the mean of what it has seen of a column, the sum of squares around that mean, and how many elements that
were: one count, as its columns are seen together. Means are distances from the first element of the column, so that
they are about as large as the deviation and lose no digits to a mean that is larger. In the registers `total` means
come first, then squares, the count, and those first elements. A part of a column leaves its mean and its squares; its
count follows from its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from aicf.backends.base import BufferRef
from aicf.backends.common.loop_nest import LoopNest
from aicf.backends.cuda.codegen.combine import ColumnBoard
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.loops.cells import packed
from aicf.backends.cuda.families.loops.moments import moments_of
from aicf.backends.cuda.families.loops.phases import PhaseCode
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec
from aicf.backends.cuda.families.records import Rounding
from aicf.dialects.emit_kernels import PhaseOp, ReduceOp


@dataclass(frozen=True)
class Seen:
    """Names of what was seen of some columns.

    Args:
        means, squares: Of each column of each sum; squares around that mean.
        count: Of the elements of each column, an f32.
    """

    means: list[str]
    squares: list[str]
    count: str


class MomentCode(PhaseCode):
    """The phases of a kernel, one of which does the work of the next one too."""

    def __init__(
        self, nest: LoopNest, spec: GeneratedSpec, refs: Sequence[BufferRef], rounding: Rounding = "fused"
    ):
        super().__init__(nest, spec, refs, rounding)
        found = moments_of(nest.kernel)
        assert found is not None, "the decisions were checked"
        self.moments = found
        self.columns = len(found.squares) * spec.vector
        """Columns of all sums that a thread sees."""
        self.squares_at = [
            self.columns + at * spec.vector + lane for at in found.squares for lane in range(spec.vector)
        ]
        """The slots of `total` for the squares of each."""

    def _is_first(self, phase: int) -> bool:
        return phase == self.moments.phase

    def _is_second(self, phase: int) -> bool:
        return phase == self.moments.phase + 1

    def sweeps(self, phase: int) -> bool:
        return not self._is_second(phase) and super().sweeps(phase)

    def reductions(self, phase: int) -> list[ReduceOp]:
        if self._is_second(phase):
            return []
        return [*super().reductions(phase), *(super().reductions(phase + 1) if self._is_first(phase) else [])]

    def known_to(self, phase: int) -> int:
        return super().known_to(phase + 1 if self._is_first(phase) else phase)

    def totals(self, phase: int) -> int:
        return super().totals(phase) + (1 + self.columns) * self._is_first(phase)

    def first_at(self, phase: int) -> int:
        return super().first_at(phase) - self.columns * self._is_first(phase)

    def from_first(self, phase: int) -> Snippet:
        if not self._is_first(phase):
            return super().from_first(phase)
        lines: list[str] = []
        roots = [op.value for op in super().reductions(phase)]
        value = self.values(roots, self.cell_sources(self.boundary(phase)), self.spec.vector, lines)
        names = [name for root in roots for name in value(root)]
        return Snippet(("point", "cell", "x", "before"), tuple(lines), packed(names))

    def part_rows(self) -> int:
        """Elements of a column in a part, but for the last."""
        return self.spec.span(self.nest)

    def start(self, phase: int) -> Snippet:
        if not self._is_first(phase):
            return super().start(phase)
        return Snippet((), (), packed(["f32(0.0)"] * self.totals(phase)))

    # What was seen, as registers in the order of the reductions

    def _seen(self, registers: str, count: str) -> Seen:
        means = [f"{registers}[{slot}]" for slot in range(self.columns)]
        return Seen(means, [f"{registers}[{slot}]" for slot in self.squares_at], count)

    def _in_slots(self, seen: Seen) -> list[str]:
        squares = dict(zip(self.squares_at, seen.squares, strict=True))
        return [*seen.means, *(squares[slot] for slot in sorted(squares))]

    def _total(self) -> Seen:
        return self._seen("total", f"total[{2 * self.columns}]")

    def _first_elements(self) -> list[str]:
        return [f"total[{2 * self.columns + 1 + column}]" for column in range(self.columns)]

    # Snippets

    def _accumulated(
        self, phase: PhaseOp, value: Callable[[SSAValue], list[str]], lines: list[str]
    ) -> list[str]:
        if phase is not self.kernel.phases[self.moments.phase]:
            return super()._accumulated(phase, value, lines)
        total = self._total()
        lines.append(f"grown = {total.count} + f32(1.0)")
        _quotient("share", "f32(1.0)", "grown", lines)
        lines.append(f"grown = grown if valid else {total.count}")
        sums = super().reductions(self.moments.phase)
        elements = [name for op in sums for name in value(op.value)]
        for i, element, first in zip(range(self.columns), elements, self._first_elements(), strict=True):
            unchanged = total.means[i]  # the mean itself moves neither the mean nor the squares
            lines.append(f"x{i} = {element} - {first} if valid else {unchanged}")
            lines.append(f"d{i} = x{i} - {total.means[i]}")
            lines.append(f"m{i} = cuda.fma(d{i}, share, {total.means[i]})")
            lines.append(f"q{i} = cuda.fma(d{i}, x{i} - m{i}, {total.squares[i]})")
        columns = range(self.columns)
        seen = Seen([f"m{i}" for i in columns], [f"q{i}" for i in columns], "grown")
        return [*self._in_slots(seen), seen.count, *self._first_elements()]

    def combine(self, phase: int, *, finish: bool = True) -> Snippet:
        if not self._is_first(phase):
            return super().combine(phase, finish=finish)
        lines: list[str] = []
        seen = self._met(lines)
        if finish:
            means = [
                f"({mean} + {first})" for mean, first in zip(seen.means, self._first_elements(), strict=True)
            ]
            sums = [f"{mean} * f32({float(self.nest.reduce_size)!r})" for mean in means]
            names = self._in_slots(Seen(sums, seen.squares, seen.count))
        else:
            names = [*self._in_slots(seen), seen.count, *self._first_elements()]
        return Snippet(("total", "thread"), tuple(lines), packed(names))

    def add_partials(self, phase: int) -> Snippet:
        if not self._is_first(phase):
            return super().add_partials(phase)
        span, size = self.part_rows(), self.nest.reduce_size
        rest = f"max({self.index}(0), {self.index}({self.index}({size}) - part * {self.index}({span})))"
        lines = [f"elements = f32(min({self.index}({span}), {rest}))"]
        joined = _joined(self._total(), self._seen("found", "elements"), "j_", lines)
        total = self._total()
        pairs = zip(
            [*self._in_slots(joined), joined.count], [*self._in_slots(total), total.count], strict=True
        )
        lines += [f"n{slot} = {new} if valid else {old}" for slot, (new, old) in enumerate(pairs)]
        names = [f"n{slot}" for slot in range(2 * self.columns + 1)]
        return Snippet(
            ("total", "found", "part", "valid"), tuple(lines), packed([*names, *self._first_elements()])
        )

    # Threads of a block

    def _met(self, lines: list[str]) -> Seen:
        """What all threads of a column have seen: those of a warp by halves, then the warps ascending.

        Threads of a warp round what they have in common differently, so that of one of them goes on.
        """
        seen = self._total()
        if self.spec.lanes == 1:
            return seen
        board = ColumnBoard(self.spec)
        step = board.warp // 2
        while step >= board.across:
            seen = _joined(seen, _neighbour(seen, step, lines), f"h{step}_", lines)
            step //= 2
        arrays = range(self.columns // self.spec.vector)
        for i in arrays:
            lines += [f"{name}{i} = cuda.shared.array({board.size}, f32)" for name in ("means", "squares")]
        lines.append(f"counts = cuda.shared.array({board.rows}, f32)")
        here = self._on_board(board.cell)
        stores = zip([*here.means, *here.squares], [*seen.means, *seen.squares], strict=True)
        lines += board.by_writers([f"{cell} = {name}" for cell, name in stores])
        lines += [f"if thread % {board.warp} == 0:", f"    counts[thread // {board.warp}] = {seen.count}"]
        lines.append("cuda.syncthreads()")
        for start in board.starts:
            lines += board.by_owners(start, _added(board, start, arrays))
        lines.append("cuda.syncthreads()")
        return self._on_board(board.total)

    def _on_board(self, at: Callable[[int], str]) -> Seen:
        """Elements of the shared arrays, for each lane of the vector `at` some place."""
        places = [divmod(column, self.spec.vector) for column in range(self.columns)]
        means, squares = ([f"{name}{i}[{at(lane)}]" for i, lane in places] for name in ("means", "squares"))
        return Seen(means, squares, f"f32({float(self.nest.reduce_size)!r})")


def _neighbour(seen: Seen, step: int, lines: list[str]) -> Seen:
    """What the thread has seen that is `step` away in the warp."""
    columns = range(len(seen.means))
    other = Seen([f"om{step}_{i}" for i in columns], [f"oq{step}_{i}" for i in columns], f"oc{step}")
    names = zip(
        [*other.means, *other.squares, other.count], [*seen.means, *seen.squares, seen.count], strict=True
    )
    lines += [f"{theirs} = cuda.shfl_xor_sync(ALL_LANES, {own}, {step})" for theirs, own in names]
    return other


def _added(board: ColumnBoard, start: int, arrays: range) -> list[str]:
    """Joins the rows that one column has on the board, ascending, into the first."""
    lines: list[str] = []

    def row(number: int) -> Seen:
        at = f"[{number * board.columns} + thread + {start}]"
        return Seen(
            [f"means{i}{at}" for i in arrays], [f"squares{i}{at}" for i in arrays], f"counts[{number}]"
        )

    first = found = row(0)
    for number in range(1, board.rows):
        found = _joined(found, row(number), f"r{number}_", lines)
    cells = zip([*first.means, *first.squares], [*found.means, *found.squares], strict=True)
    return [*lines, *(f"{cell} = {name}" for cell, name in cells)]


def _joined(one: Seen, other: Seen, prefix: str, lines: list[str]) -> Seen:
    """What both have seen; where nobody has seen anything, the first."""
    lines.append(f"{prefix}theirs = {other.count}")
    lines.append(f"{prefix}count = {one.count} + {prefix}theirs")
    lines.append(f"{prefix}some = max({prefix}count, f32(1.0))")
    _quotient(f"{prefix}share", f"{prefix}theirs", f"{prefix}some", lines)
    lines.append(f"{prefix}weight = {one.count} * {prefix}share")
    columns = range(len(one.means))
    joined = Seen([f"{prefix}m{i}" for i in columns], [f"{prefix}q{i}" for i in columns], f"{prefix}count")
    for i in columns:
        apart = f"{prefix}d{i}"
        lines.append(f"{apart} = {other.means[i]} - {one.means[i]}")
        lines.append(f"{joined.means[i]} = cuda.fma({apart}, {prefix}share, {one.means[i]})")
        both = f"{one.squares[i]} + {other.squares[i]}"
        lines.append(f"{joined.squares[i]} = cuda.fma({apart} * {apart}, {prefix}weight, {both})")
    return joined


def _quotient(name: str, dividend: str, divisor: str, lines: list[str]) -> None:
    """Of two counts, without a branch; 1 where they are equal, so that what one alone has seen stays as it is."""
    lines.append(f"{name}_inverse = rcp_approx({divisor})")
    lines.append(f"{name}_near = {dividend} * {name}_inverse")
    rest = f"cuda.fma(-{divisor}, {name}_near, {dividend})"
    lines.append(f"{name} = cuda.fma({rest}, {name}_inverse, {name}_near)")
