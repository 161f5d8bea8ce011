"""Every decision about a product with blocks, with a cost prior. Imports no code generator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Annotated

from aicf.backends.common.record import Entry, Whole
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.blocks.layout import CHUNK, PANEL_ROWS, TileLayout
from aicf.backends.cuda.families.blocks.problem import BlocksProblem
from aicf.backends.cuda.target import GpuArch

MOST_TILE_ROWS = 32
"""Rows of x that share the codes in registers: more need more sums than there are registers."""
_MOST_WARPS = 16
_MOST_GRID_Y = 65535
"""Blocks of rows of x: what CUDA has for a grid along y."""
_LONG_K = 4096
"""Columns from which on all warps of a block share K: such a weight has few rows, and blocks, for its bytes."""
_COLUMN_BYTES = 4
"""Shared memory of an element of x: two halves."""
_FACTOR_BYTES = 8
"""Of the scale and the sum of a piece of a row of x."""
_SLICE_BYTES = 64 << 10
"""Of x in shared memory, if that is possible: three blocks run on a multiprocessor."""
_MOST_SLICE_BYTES = 104 << 10
"""Above, fewer rows of x are taken at a time: two blocks of 8 warps run on a multiprocessor. One of 16 has as much as
both."""
_STATIC_BYTES, _SUMS_BYTES = 2 << 10, 32 << 10
"""Shared memory that is left to others, and that is left to sums at first."""
_MOST_AHEAD, _AHEAD_BYTES = 32, 128 << 10
"""Panels that a warp brings into the second cache ahead, one a lane, and the bytes that the warps of a multiprocessor
bring there: less than half of the cache for all."""
_MOST_PANEL_BYTES = 1 << 19
"""Of a panel that is brought there with one instruction, whose operand has 16 bits for a count of 16 bytes."""
_LOADED_WORDS, _MOST_UNROLL = 56, 4
"""Words of weights that a lane has under way, and tiles."""
_ESTIMATED_REGISTERS, _WORD_REGISTERS, _GROUP_REGISTERS = 100, 2, 10
"""Of a thread, which has 128, by an estimate: for a word of the weight that is under way, and for each group of 4 rows
of x."""
_SMALL_WORDS = 24
"""Words of the weight under way of which a thread needs no more than 64 registers, if x has few rows."""
_WIDE_WORDS = 24
"""Of a tile: with more of them and three groups of rows, some of 128 registers would spill."""

# Figures of the prior. Guesses from the instructions of the code, not measured.
_BANDWIDTH_SHARE, _L2_SHARE, _ISSUE_SHARE = 0.85, 0.6, 0.6
_LATENCY_US, _LAUNCH_US = 2.0, 2.0
_LANES, _CYCLES_PER_US = 128, 1600.0
"""Of a multiprocessor: lanes that issue in a cycle, and cycles."""
_DECODE_INSTRUCTIONS, _ROW_INSTRUCTIONS = 1.2, 0.2
"""Of a lane for each weight: to load and to decode it, and for each row of x."""
_F32_SHARE, _TF32_SHARE = 0.6, 0.25
"""What products of f32 reach of the arithmetic peak, and products of TF32 of that of halves."""
FEW_ROWS, MANY_ROWS = 16, 64
"""Rows of x that always take along what is before and after the product, and the most that may."""
_COPY_SHARE = 0.8
_ROWS_US = 0.4
"""Of the row program before the product."""
_ROW_ORDER = "chains of a thread, lanes by exchange"
"""How a row program combines the elements of a row."""


@dataclass(frozen=True)
class BlocksSchedule:
    """How a product with blocks runs.

    Args:
        parts: Warps of a block that share a panel; each has every `parts`-th tile along K.
        groups: Panels that a block takes side by side, of each weight.
        rounds: Panels that a warp takes one after the other, with the same x in shared memory.
        unroll: Tiles that a warp has under way.
        tile_rows: Rows of x that share the codes in registers.
        slice_tiles: Tiles along K whose columns of x are in shared memory at once.
        ahead: Panels of a warp that are brought into the second cache before the wait for earlier kernels.
        early: Operands that are read before the wait for earlier kernels.
    """

    parts: Annotated[int, Entry(Whole(1, _MOST_WARPS), "k_parts")]
    groups: Annotated[int, Entry(Whole(1, _MOST_WARPS), "panel_groups")]
    rounds: Annotated[int, Entry(Whole(1), "panel_rounds")]
    unroll: Annotated[int, Entry(Whole(1, _MOST_UNROLL))]
    tile_rows: Annotated[int, Entry(Whole(1, MOST_TILE_ROWS))]
    slice_tiles: Annotated[int, Entry(Whole(1))]
    ahead: Annotated[int, Entry(Whole(0, _MOST_AHEAD), "panels_ahead")] = 0
    early: tuple[int, ...] = ()

    def threads(self, problem: BlocksProblem) -> int:
        """Of a block."""
        return 32 * self.warps(problem)

    def warps(self, problem: BlocksProblem) -> int:
        """Of a block."""
        return self.parts * self.groups * problem.products

    def blocks_per_sm(self, problem: BlocksProblem) -> int:
        """Blocks that fit on a multiprocessor by their registers: 128 of a thread, more where tiles have many words; 64
        of one whose words are few and whose loops are even, which leaves room for blocks of the next kernel."""
        if problem.layout.words > _WIDE_WORDS and self.row_groups > 2:
            return 1
        is_small = self.row_groups == 1 and self.unroll * problem.layout.words <= _SMALL_WORDS
        is_small = is_small and problem.row_tiles % (self.parts * self.unroll) == 0
        return max(1, (2 if is_small else 1) * _MOST_WARPS // self.warps(problem))

    def wave(self, problem: BlocksProblem) -> int:
        """Blocks of a multiprocessor that panels are shared out to."""
        return max(1, min(self.blocks_per_sm(problem), _MOST_WARPS // self.warps(problem)))

    @property
    def row_groups(self) -> int:
        """Groups of 4 rows of x, whose 8 columns of halves are those of one tensor-core product."""
        return -(-self.tile_rows // 4)

    def row_blocks(self, problem: BlocksProblem) -> int:
        """How often the weight is read."""
        return -(-problem.m // self.tile_rows)

    def grid(self, problem: BlocksProblem) -> tuple[int, int, int]:
        """Blocks."""
        return -(-problem.panels // (self.groups * self.rounds)), self.row_blocks(problem), 1

    def slices(self, problem: BlocksProblem) -> int:
        """How often shared memory is filled."""
        return -(-problem.row_tiles // self.slice_tiles)

    def steps(self, problem: BlocksProblem) -> int:
        """Rounds of `unroll` tiles of a warp in a slice."""
        return -(-min(self.slice_tiles, problem.row_tiles) // (self.parts * self.unroll))

    def sums_bytes(self, problem: BlocksProblem) -> int:
        """Shared memory of the sums of each warp, of one panel."""
        return 4 * self.warps(problem) * PANEL_ROWS * 4 * self.row_groups

    @property
    def results(self) -> int:
        """Of a block, of one panel of each group."""
        return self.groups * self.tile_rows * PANEL_ROWS

    def row_rounds(self, problem: BlocksProblem) -> int:
        """Quarters of chunks of a row that a thread has where the block computes the row."""
        return -(-4 * problem.row_tiles * problem.layout.chunks // self.threads(problem))

    def sums_at(self, problem: BlocksProblem) -> int:
        """Shared memory before the sums: a slice of x."""
        return min(self.slice_tiles, problem.row_tiles) * tile_bytes(problem.layout, self.tile_rows)

    def extras_at(self, problem: BlocksProblem) -> int:
        """Shared memory before what the epilogue reads beside the sums."""
        return self.sums_at(problem) + min(self.rounds, 2) * self.sums_bytes(problem)

    def shared_bytes(self, problem: BlocksProblem) -> int:
        """Dynamic shared memory of a block."""
        return self.extras_at(problem) + 4 * self.results * problem.extras

    def order(self, problem: BlocksProblem) -> str:
        """In which order the terms of a result are combined, whatever M and N."""
        part = min(problem.layout.bits.part, CHUNK)
        warps = "" if self.parts == 1 else f" of every {self.parts}th tile by one warp, then warps in order"
        rows = f"; rows: {_ROW_ORDER}, {self.warps(problem)} warps in order" if problem.has_rows else ""
        return f"parts of {part} by tensor cores, ascending in tiles of {problem.layout.columns}{warps}{rows}"


def pieces_of(layout: TileLayout) -> int:
    """Pieces of a chunk of x that have a scale of their own: its parts, one if these are longer."""
    return max(1, CHUNK // layout.bits.part)


def tile_bytes(layout: TileLayout, rows: int) -> int:
    """Shared memory of the columns of x that a tile is multiplied with."""
    return layout.chunks * rows * (_COLUMN_BYTES * CHUNK + _FACTOR_BYTES * pieces_of(layout))


def schedule_reason(schedule: BlocksSchedule, problem: BlocksProblem, arch: GpuArch) -> str | None:
    """Why a schedule cannot be carried out; None if it can."""
    if (blocks := schedule.row_blocks(problem)) > _MOST_GRID_Y:
        return f"{problem.m} rows of x, {schedule.tile_rows} to a block, take {blocks} blocks, more than {_MOST_GRID_Y}"
    if schedule.warps(problem) > _MOST_WARPS:
        panels = schedule.groups * problem.products
        return f"{panels} panels of {schedule.parts} warps each are more than {_MOST_WARPS} warps"
    room = arch.shared_bytes - _STATIC_BYTES
    if (size := schedule.shared_bytes(problem)) > room:
        return f"its share of x takes {size} bytes of shared memory, a block has {room}"
    if schedule.slices(problem) > 1 and schedule.slice_tiles % (schedule.parts * schedule.unroll):
        return f"'slice_tiles' is {schedule.slice_tiles}, no multiple of 'k_parts' times 'unroll'"
    if schedule.rounds > 1 and schedule.slices(problem) > 1:
        return "'panel_rounds' is more than 1, and not all of x is in shared memory"
    if problem.has_rows and schedule.slices(problem) > 1:
        return "what comes before the product takes whole rows, and shared memory has a slice of x"
    if schedule.ahead and problem.panel_bytes > _MOST_PANEL_BYTES:
        return f"'panels_ahead' is for panels of at most {_MOST_PANEL_BYTES} bytes, one has {problem.panel_bytes}"
    weights = range(1, 1 + problem.products)
    is_early = all(weight in schedule.early for weight in weights)
    if schedule.ahead and not (arch.has_programmatic_launch and is_early):
        return "'panels_ahead' is for kernels that start early, and read their weights before the wait"
    if schedule.tile_rows > _register_rows(problem, schedule.unroll):
        return f"{schedule.unroll} tiles and {schedule.tile_rows} rows of x do not fit into registers"
    return None


def choose(problem: BlocksProblem, arch: GpuArch, early: tuple[int, ...]) -> BlocksSchedule:
    """The schedule without a measurement. Which warp has which tiles follows from K and the scheme alone, so that the
    bits of a row do not depend on what else there is."""
    parts = k_parts(problem)
    rounds = -(-problem.row_tiles // parts)
    unroll = max(1, min(rounds, _LOADED_WORDS // problem.layout.words, _MOST_UNROLL))
    rows = _even_rows(problem.m, MOST_TILE_ROWS)
    most = _MOST_SLICE_BYTES * (2 if 2 * parts * problem.products > _MOST_WARPS else 1)
    room = min(most, arch.shared_bytes - _STATIC_BYTES - _SUMS_BYTES)
    # Fewer loads under way before fewer rows: each block of rows reads the weight again.
    while unroll > 1 and (
        _least_bytes(problem, parts, unroll, rows) > room or rows > _register_rows(problem, unroll)
    ):
        unroll //= 2
    fitting = max(1, room // _least_bytes(problem, parts, unroll, 1))
    rows = _even_rows(problem.m, min(MOST_TILE_ROWS, fitting, _register_rows(problem, unroll)))
    slice_tiles = _slice_tiles(problem, parts, unroll, rows)
    groups = max(1, _MOST_WARPS // 2 // (parts * problem.products))
    if not problem.has_rows:
        groups = min(
            groups, problem.panels
        )  # where warps share rows, their number is part of the order of sums
    chosen = _with_fitting_rows(
        BlocksSchedule(parts, groups, 1, unroll, rows, slice_tiles, early=early), problem, arch
    )
    if chosen.slices(problem) == 1:
        # As many blocks as run at once: what is prepared of x serves all panels of a block.
        resident = chosen.wave(problem) * arch.multiprocessors // chosen.row_blocks(problem)
        chosen = replace(chosen, rounds=-(-problem.panels // (groups * max(1, resident))))
    return replace(chosen, ahead=_panels_ahead(problem, chosen, arch))


def _with_fitting_rows(schedule: BlocksSchedule, problem: BlocksProblem, arch: GpuArch) -> BlocksSchedule:
    """With fewer rows of x in a block until there is room for all beside them: whether a kernel runs a product may not
    depend on how many rows that has."""
    room = arch.shared_bytes - _STATIC_BYTES
    while schedule.tile_rows > 1 and replace(schedule, rounds=2).shared_bytes(problem) > room:
        schedule = replace(schedule, tile_rows=_even_rows(problem.m, schedule.tile_rows - 1))
    return schedule


def _panels_ahead(problem: BlocksProblem, schedule: BlocksSchedule, arch: GpuArch) -> int:
    """Panels worth bringing into the second cache ahead, where that is possible: of weights that are read once."""
    is_early = all(weight in schedule.early for weight in range(1, 1 + problem.products))
    if not (is_early and arch.has_programmatic_launch) or schedule.row_blocks(problem) > 1:
        return 0
    if schedule.rounds == 1 and schedule.parts * schedule.unroll >= problem.row_tiles:
        return 0
    warps, panel_bytes = schedule.wave(problem) * schedule.groups * problem.products, problem.panel_bytes
    if panel_bytes > _MOST_PANEL_BYTES:
        return 0
    fitting = _AHEAD_BYTES // (warps * panel_bytes)
    return min(schedule.rounds, max(1, fitting), _MOST_AHEAD)


def _even_rows(rows: int, most: int) -> int:
    """Rows of x that a block takes, as many in each but the last."""
    return -(-rows // -(-rows // most))


def _register_rows(problem: BlocksProblem, unroll: int) -> int:
    """Rows of x whose sums fit into registers beside so many tiles of the weight."""
    left = _ESTIMATED_REGISTERS - _WORD_REGISTERS * unroll * problem.layout.words
    return 4 * max(1, left // _GROUP_REGISTERS)


def _least_bytes(problem: BlocksProblem, parts: int, unroll: int, rows: int) -> int:
    """Shared memory of the shortest slice of x: that of a round of all warps, or whole rows."""
    tiles = problem.row_tiles if problem.has_rows else min(parts * unroll, problem.row_tiles)
    return tiles * tile_bytes(problem.layout, rows)


def _slice_tiles(problem: BlocksProblem, parts: int, unroll: int, rows: int) -> int:
    """Tiles of a slice of x: all, or as many rounds of all warps as fit."""
    fitting = _SLICE_BYTES // tile_bytes(problem.layout, rows)
    if fitting >= problem.row_tiles or problem.has_rows:
        return problem.row_tiles
    return max(1, fitting // (parts * unroll)) * parts * unroll


def k_parts(problem: BlocksProblem) -> int:
    """Warps that share K: no more rounds of tiles than with the most, by as few as that takes."""
    most = _MOST_WARPS if problem.k >= _LONG_K else _MOST_WARPS // 2
    most = min(most, _MOST_WARPS // problem.products)
    rounds = -(-problem.row_tiles // most)
    return -(-problem.row_tiles // rounds)


def candidates(problem: BlocksProblem, arch: GpuArch, early: tuple[int, ...]) -> list[BlocksSchedule]:
    """Schedules worth a measurement, the one without a measurement first."""
    first = choose(problem, arch, early)
    others = [
        replace(first, groups=groups, rounds=-(-first.groups * first.rounds // groups), unroll=unroll)
        for groups in (1, 2)
        for unroll in (1, 2, 4)
    ]
    others += [replace(first, rounds=1), replace(first, rounds=2 * first.rounds), replace(first, ahead=0)]
    fitting = [each for each in others if schedule_reason(each, problem, arch) is None]
    return list(dict.fromkeys([first, *(each for each in fitting if each.groups <= problem.panels)]))


def cost_us(problem: BlocksProblem, schedule: BlocksSchedule, arch: GpuArch) -> float:
    """Predicted microseconds: memory or instructions, whichever is longer, and the latency of a kernel in a chain."""
    again = schedule.row_blocks(problem) - 1
    memory = problem.weight_bytes / (_BANDWIDTH_SHARE * arch.bandwidth_gbs * 1e3)
    memory += again * problem.weight_bytes / (_L2_SHARE * arch.copy_l2_gbs * 1e3)
    for_each = _DECODE_INSTRUCTIONS + _ROW_INSTRUCTIONS * 4 * schedule.row_groups
    issued = schedule.row_blocks(problem) * problem.products * problem.n * problem.k * for_each
    instructions = issued / (arch.multiprocessors * _LANES * _CYCLES_PER_US * _ISSUE_SHARE)
    return _LATENCY_US + max(memory, instructions) + (_ROWS_US if problem.has_rows else 0.0)


def apart_us(problem: BlocksProblem, arch: GpuArch) -> float:
    """Predicted microseconds of the products, and of what is before and after them as kernels of their own."""
    product = replace(problem, products=1, has_rows=False, extras=0)
    alone = cost_us(product, choose(product, arch, ()), arch)
    return problem.products * alone + (1 + problem.has_rows) * _LAUNCH_US


def widened_us(work: Workload, problem: BlocksProblem, arch: GpuArch) -> float:
    """Predicted microseconds of a product with the widened weight, which is written and read again."""
    elements = problem.n * problem.k
    moved = prod(work.operands[1].shape) + 2 * 4 * elements
    copy = moved / (_COPY_SHARE * arch.bandwidth_gbs * 1e3)
    rate = _TF32_SHARE * arch.tensor_tflops if work.tf32 else _F32_SHARE * arch.f32_tflops
    return 2 * _LAUNCH_US + copy + 2e-6 * problem.m * elements / rate
