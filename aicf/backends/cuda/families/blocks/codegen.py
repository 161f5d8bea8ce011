"""The code of products with blocks: the text of a record, and how words of a tile become halves and factors."""

from __future__ import annotations

from math import prod

from aicf.backends.base import Launch
from aicf.backends.common.packed_weights import unexpected_layout
from aicf.backends.common.record import read_integer, read_text
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, part, stage
from aicf.backends.cuda.families.blocks import template
from aicf.backends.cuda.families.blocks.kernel import read_schedule
from aicf.backends.cuda.families.blocks.layout import CHUNK, PANEL_ROWS, TileLayout, tiles_layout
from aicf.backends.cuda.families.blocks.reading import row_text
from aicf.backends.cuda.families.blocks.schedule import BlocksProblem, BlocksSchedule, pieces_of, tile_bytes
from aicf.backends.cuda.families.records import is_programmatic, read_shape

_STREAMS = {1: "stream_u32", 2: "stream_u32x2", 4: "stream_u32x4"}


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    (x, weight), (result,) = launch.ins, launch.outs
    scheme = read_text(launch.record, "scheme")
    problem = BlocksProblem(scheme, prod(x.shape[:-1]), result.shape[-1], x.shape[-1])
    if weight.layout != tiles_layout(scheme, weight.shape):
        raise unexpected_layout(launch, 1)
    schedule = read_schedule(launch.record)
    constants: dict[str, Constant | Snippet] = {
        **_sizes(problem, schedule),
        **_words(problem.layout),
        "PROGRAMMATIC": is_programmatic(launch.record),
        "EARLY": 1 in schedule.early,
        "LOAD_X": _x_load(problem, schedule),
        "X_ROW": Snippet(("row",), (), row_text(x.shape, x.strides, "row")),
        "RESULT_ROW": Snippet(("row",), (), row_text(result.shape, result.strides, "row")),
        "RESULT_STEP": result.strides[-1],
    }
    for each in (
        template.prepare_x,
        template.multiply,
        template.load_next,
        template.halves,
        template.factors,
        template.finish_panels,
    ):
        constants[each.__name__.upper()] = part(each)
    source = stage(template.matmul_blocks, constants)
    blocks = read_integer(launch.record, "blocks_per_sm")
    code = KernelCode("matmul_blocks", source, ("ptr",) * 3, schedule.threads, blocks)
    arguments = (address_of(x), address_of(weight), address_of(result))
    return [launch_in(read_shape(launch.record), code, arguments)]


def _sizes(problem: BlocksProblem, schedule: BlocksSchedule) -> dict[str, Constant | Snippet]:
    layout, rows = problem.layout, schedule.tile_rows
    tiles = min(schedule.slice_tiles, problem.row_tiles)
    pieces = pieces_of(layout)
    factors = tiles * layout.chunks * rows * 2 * 2 * CHUNK
    items = 4 * tiles * layout.chunks * rows
    rounds = -(-items // schedule.threads)
    results = schedule.groups * rows * PANEL_ROWS
    return {
        "M": problem.m,
        "N": problem.n,
        "K": problem.k,
        "ROWS": rows,
        "ROW_GROUPS": schedule.row_groups,
        "PARTS": schedule.parts,
        "GROUPS": schedule.groups,
        "THREADS": schedule.threads,
        "PANELS": problem.panels,
        "TILES": problem.row_tiles,
        "TILE_BYTES": layout.tile_bytes,
        "SLICES": schedule.slices(problem),
        "SLICE_TILES": tiles,
        "STEPS": schedule.steps(problem),
        "UNROLL": schedule.unroll,
        "IS_EVEN": problem.row_tiles % (schedule.parts * schedule.unroll) == 0
        and problem.row_tiles % tiles == 0,
        "CHUNKS": layout.chunks,
        "PIECES": pieces,
        "RUNS": CHUNK // pieces // 16,
        "ROUNDS": rounds,
        "BATCH": min(rounds, 4),
        "ITEMS": items,
        "FACTORS_AT": factors,
        "SUMS_AT": tiles * tile_bytes(layout, rows),
        "SUMS_BYTES": schedule.sums_bytes(),
        "PANEL_ROUNDS": schedule.rounds,
        "RESULTS": results,
        "RESULT_ROUNDS": -(-results // schedule.threads),
        "WORDS": layout.words,
    }


def _x_load(problem: BlocksProblem, schedule: BlocksSchedule) -> Snippet:
    """16 bytes of x; zeros past its end, where a tile or a slice reaches past it."""
    covered = schedule.slices(problem) * min(schedule.slice_tiles, problem.row_tiles) * problem.layout.columns
    is_tail = covered != problem.k
    text = "load_u32x4_or_zero(address, inside)" if is_tail else "load_u32x4(address)"
    return Snippet(("address", "inside"), (), text)


def _words(layout: TileLayout) -> dict[str, Constant | Snippet]:
    """What the words of a tile are: loads, halves of codes, factors."""
    bits, factors = layout.bits, layout.factors
    numbers = {(each.factor, each.part, each.half): (each.word, each.byte) for each in layout.numbers}
    return {
        "LOAD_TILE": Snippet(("at", "base"), tuple(_loads(layout))),
        "FIELDS": tuple(
            tuple(tuple(_fields(layout, chunk, half, pair) for pair in range(4)) for half in range(2))
            for chunk in range(layout.chunks)
        ),
        "FIELD_COUNT": len(layout.fields(0, 0, 0)),
        "CODE_UNIT": layout.code_unit,
        "PART": bits.part,
        "STORED": tuple(factor.stored for factor in factors),
        "FLOAT_WORDS": tuple(
            tuple(layout.float_of(number, each).word for each in range(layout.parts))
            for number in range(len(factors))
        ),
        "IS_NESTED": tuple(factor.number is not None for factor in factors),
        "NUMBERS": tuple(
            tuple(
                tuple(numbers.get((number, each, half), (0, 0)) for half in range(2))
                for each in range(layout.parts)
            )
            for number in range(len(factors))
        ),
        "NUMBER_OFFSETS": tuple(2.0**23 + (128 if factor.signed else 0) for factor in factors),
        "HAS_MINIMA": bits.minimum is not None,
        "MINIMUM_SIGN": float(bits.sign),
        "OFFSET": float(bits.offset),
    }


def _fields(layout: TileLayout, chunk: int, half: int, pair: int) -> tuple[tuple[int, int, int], ...]:
    """The fields of a pair of codes, as plain numbers."""
    return tuple((each.word, each.shift, each.mask) for each in layout.fields(chunk, half, pair))


def _loads(layout: TileLayout) -> list[str]:
    """Statements that load the words of a tile at `at` into `w` from `base` on."""
    lines: list[str] = []
    for piece in layout.pieces:
        lane = "shared" if piece.is_shared else "lane"
        address = f"at + u64({piece.byte}) + u64({lane} * i32({4 * piece.count}))"
        target = f"w[base + {piece.word}]"
        if piece.count > 1:
            target = f"w[base + {piece.word} : base + {piece.word + piece.count}]"
        lines.append(f"{target} = {_STREAMS[piece.count]}({address})")
    return lines
