"""The code of products with blocks: the text of a record, and how words of a tile become halves and factors."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.base import Launch
from aicf.backends.common.packed_weights import unexpected_layout
from aicf.backends.common.record import read_integer
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, part, stage
from aicf.backends.cuda.families.blocks import template
from aicf.backends.cuda.families.blocks.kernel import read_schedule
from aicf.backends.cuda.families.blocks.layout import CHUNK, TileLayout, tiles_layout
from aicf.backends.cuda.families.blocks.problem import BlocksProblem, Roles, read_problem, read_roles
from aicf.backends.cuda.families.blocks.reading import row_text
from aicf.backends.cuda.families.blocks.schedule import BlocksSchedule, pieces_of
from aicf.backends.cuda.families.gemm.gemv.epilogue import PointEpilogue
from aicf.backends.cuda.families.gemm.gemv.prologue import Share, row_program
from aicf.backends.cuda.families.records import is_programmatic, read_rounding, read_shape
from aicf.backends.cuda.target import ELEMENT_BYTES

_PARTS = (
    template.split_chunk,
    template.prepare_x,
    template.prepare_rows,
    template.multiply,
    template.load_next,
    template.fetch_ahead,
    template.halves,
    template.factors,
    template.load_extras,
    template.finish_panels,
)
_STREAMS = {1: "stream_u32", 2: "stream_u32x2", 4: "stream_u32x4"}


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    x, (result,) = launch.ins[0], launch.outs
    roles = read_roles(launch.kind, launch.record, len(launch.ins))
    has_rows = launch.prologue is not None
    problem = read_problem(roles, launch.record, x, result, has_rows=has_rows)
    for number in roles.weights:
        if launch.ins[number].layout != tiles_layout(problem.scheme, launch.ins[number].shape):
            raise unexpected_layout(launch, number)
    schedule = read_schedule(launch.record)
    constants: dict[str, Constant | Snippet] = {
        **_sizes(problem, schedule),
        **_words(problem.layout),
        **_row_program(launch, problem, schedule, roles),
        **_epilogue(launch, roles),
        "PROGRAMMATIC": is_programmatic(launch.record),
        "EARLY": all(number in schedule.early for number in roles.weights),
        "WEIGHT": Snippet(("product",), (), _weight_text(roles)),
        "LOAD_X": _x_load(problem, schedule, x.dtype),
        "X_BITS": _x_bits(x.dtype),
        "X_BYTES": ELEMENT_BYTES[x.dtype],
        "X_WORDS": ELEMENT_BYTES[x.dtype],
        "X_ROW": Snippet(("row",), (), row_text(x.shape, x.strides, "row")),
    }
    for each in _PARTS:
        constants[each.__name__.upper()] = part(each)
    names = ["x", *(f"in{i}" for i in range(1, len(launch.ins))), "out0"]
    source = stage(template.matmul_blocks, constants)
    source = source.replace("(pointers)", f"({', '.join(names)})", 1)
    blocks = read_integer(launch.record, "blocks_per_sm")
    code = KernelCode("matmul_blocks", source, ("ptr",) * len(names), schedule.threads(problem), blocks)
    arguments = tuple(map(address_of, (*launch.ins, result)))
    return [launch_in(read_shape(launch.record), code, arguments)]


def _weight_text(roles: Roles) -> str:
    """The pointer of the weight of a product."""
    first, *others = (f"in{number}" for number in roles.weights)
    for number, name in enumerate(others, 1):
        first = f"cuda.selp(product == i32({number}), {name}, {first})"
    return first


def _epilogue(launch: Launch, roles: Roles) -> dict[str, Constant | Snippet]:
    """What becomes of the sums of an element."""
    products, row_shape = len(roles.weights), launch.ins[0].shape[:-1]
    made = PointEpilogue(launch, products, [roles.extras], row_shape, read_rounding(launch.record))
    return {
        "PRODUCTS": products,
        "EXTRAS": len(made.late),
        "LOAD_EXTRA": made.loads(made.late),
        "FINISH": made.finish(),
    }


@dataclass(frozen=True)
class _Rows:
    """The rows of x as `row_program` asks for them, one at a time."""

    k: int
    row_shape: tuple[int, ...]
    prologue: tuple[int, ...]


@dataclass(frozen=True)
class _Threads:
    """All threads of a block share a row."""

    parts: int
    early: tuple[int, ...]
    groups: int = 1


def _row_program(
    launch: Launch, problem: BlocksProblem, schedule: BlocksSchedule, roles: Roles
) -> dict[str, Constant | Snippet]:
    """What is computed of a row of x: a thread has `row_rounds` times 8 of its elements, in two pieces."""
    threads, rounds = schedule.threads(problem), schedule.row_rounds(problem)
    is_tail = rounds * threads * 8 != problem.k
    share = Share(1, 2 * rounds, 4, 8 * threads, (16, 8, 4, 2, 1), 1, is_tail, run=2, run_stride=16)
    rows = _Rows(problem.k, launch.ins[0].shape[:-1], roles.rows)
    warps = _Threads(schedule.warps(problem), schedule.early)
    program = row_program(launch, rows, warps, share, read_rounding(launch.record))
    return {
        "IS_NORMED": problem.has_rows,
        "ROW_ROUNDS": rounds,
        "ROW_TAIL": rounds * threads != 4 * problem.row_tiles * problem.layout.chunks,
        "K_TAIL": is_tail,
        "EARLY_ROW_OPERANDS": Snippet((), program.early),
        "LATE_ROW_OPERANDS": Snippet((), program.late),
        "ROW_PROGRAM": Snippet((), program.body),
        "TOTALS": max(4, -(-program.totals * schedule.warps(problem) // 4) * 4),
        "GIVEN": program.given,
        "GIVEN_WORDS": program.words,
    }


def _sizes(problem: BlocksProblem, schedule: BlocksSchedule) -> dict[str, Constant | Snippet]:
    layout, rows = problem.layout, schedule.tile_rows
    tiles = min(schedule.slice_tiles, problem.row_tiles)
    pieces = pieces_of(layout)
    factors = tiles * layout.chunks * rows * 2 * 2 * CHUNK
    items = 4 * tiles * layout.chunks * rows
    threads = schedule.threads(problem)
    rounds = -(-items // threads)
    results = schedule.results
    return {
        "M": problem.m,
        "N": problem.n,
        "K": problem.k,
        "ROWS": rows,
        "ROW_GROUPS": schedule.row_groups,
        "PARTS": schedule.parts,
        "GROUPS": schedule.groups,
        "THREADS": threads,
        "PANELS": problem.panels,
        "TILES": problem.row_tiles,
        "TILE_BYTES": layout.tile_bytes,
        "SLICES": schedule.slices(problem),
        "SLICE_TILES": tiles,
        "STEPS": schedule.steps(problem),
        "UNROLL": schedule.unroll,
        "LOADED_TILES": min(schedule.parts * schedule.unroll, problem.row_tiles),
        "AHEAD": schedule.ahead,
        "IS_EVEN": problem.row_tiles % (schedule.parts * schedule.unroll) == 0
        and problem.row_tiles % tiles == 0,
        "CHUNKS": layout.chunks,
        "PIECES": pieces,
        "RUNS": CHUNK // pieces // 16,
        "ROUNDS": rounds,
        "BATCH": min(rounds, 4),
        "X_ROUNDS": schedule.row_rounds(problem) if problem.has_rows else min(rounds, 4),
        "ITEMS": items,
        "FACTORS_AT": factors,
        "SUMS_AT": schedule.sums_at(problem),
        "EXTRAS_AT": schedule.extras_at(problem),
        "SUMS_BYTES": schedule.sums_bytes(problem),
        "PANEL_ROUNDS": schedule.rounds,
        "RESULTS": results,
        "RESULT_ROUNDS": -(-results // threads),
        "WORDS": layout.words,
    }


def _x_load(problem: BlocksProblem, schedule: BlocksSchedule, dtype: str) -> Snippet:
    """Four neighbouring elements of x; zeros past its end, where a tile or a slice reaches past it."""
    covered = schedule.slices(problem) * min(schedule.slice_tiles, problem.row_tiles) * problem.layout.columns
    if problem.has_rows:
        covered = schedule.row_rounds(problem) * schedule.threads(problem) * 8
    guard = ", inside" if covered != problem.k else ""
    # Loads that stay together: else the compiler, short of registers, waits for one before it starts the next.
    bounded = {2: "load_u32x2_or_zero", 4: "load_u32x4_or_zero"}[ELEMENT_BYTES[dtype]]
    load = bounded if guard else _STREAMS[ELEMENT_BYTES[dtype]]
    return Snippet(("address", "inside"), (), f"{load}(address{guard})")


def _x_bits(dtype: str) -> Snippet:
    """Four elements of x, packed as they lie, as bits of f32."""
    if dtype == "f32":
        return Snippet(("words",), (), "words")
    lines = ("low = words[0]", "high = words[1]", f"f = unpack_{dtype}(low)", f"g = unpack_{dtype}(high)")
    bits = ", ".join(f"f32_to_bits({pair}[{each}])" for pair in "fg" for each in range(2))
    return Snippet(("words",), lines, f"({bits})")


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
