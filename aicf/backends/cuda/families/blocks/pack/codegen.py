"""The code that lays weights out in tiles of blocks: from a launch to the text of its template."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, stage
from aicf.backends.cuda.families.blocks.layout import Float, Number, TileLayout, float_place, read_layout
from aicf.backends.cuda.families.blocks.pack import template
from aicf.backends.cuda.families.blocks.pack.kernel import THREADS, tiles_of
from aicf.backends.cuda.families.blocks.reading import codes_text, float_text, number_text
from aicf.backends.cuda.families.records import is_programmatic, read_shape
from aicf.dialects.block_bits import RUN
from aicf.errors import PlanError

_NAN = 0x7FC00000
"""Of f32. It is the scale of a part with a code that is NaN, which has no place among the halves that codes become."""
_HAS_NAN = (
    "u32(u32(u32(u32(codes & u32(0x7F7F7F7F)) ^ u32(0x7F7F7F7F)) + u32(0x7F7F7F7F)) & u32(0x80808080)) "
    "!= u32(0x80808080)"
)
"""Whether one of four codes of f8E4M3FN has all bits but the sign."""
_STORES = {1: "store_u32", 2: "store_u32x2", 4: "store_u32x4"}


def emit(launch: Launch) -> list[KernelLaunch]:
    """The weight of a launch in tiles."""
    weight, target = launch.ins[0], launch.outs[0]
    if target.layout is None:
        raise PlanError(f"instruction '{launch.name}': its result has no layout: run lower-to-emit again")
    layout, (rows, row_bytes) = read_layout(target.layout), weight.shape
    scheme = layout.stored
    constants: dict[str, Constant | Snippet] = {
        "PROGRAMMATIC": is_programmatic(launch.record),
        "THREADS": THREADS,
        "ROWS": rows,
        "ROW_STEP": weight.strides[0],
        "ROW_BLOCKS": row_bytes // scheme.nbytes,
        "ROW_TILES": layout.row_tiles(row_bytes // scheme.nbytes * scheme.length),
        "TILES": tiles_of(layout, weight.shape),
        "TILE_BYTES": layout.tile_bytes,
        "BLOCKS": layout.blocks,
        "BLOCK_BYTES": scheme.nbytes,
        "WORDS": layout.words,
        "WRITE": Snippet(("out",), tuple(_stores(layout))),
    }
    constants["READ_CODES"] = Snippet((), tuple(_codes(layout)))
    constants["READ_FACTORS"] = Snippet((), tuple(_factors(layout)))
    code = KernelCode("pack_blocks", stage(template.pack_blocks, constants), ("ptr",) * 2, THREADS)
    return [launch_in(read_shape(launch.record), code, (address_of(weight), address_of(target)))]


def _codes(layout: TileLayout) -> list[str]:
    """Statements that put the codes of both rows of a lane, a quarter of each run of the tile, into its words."""
    lines: list[str] = []
    block_runs = layout.stored.length // RUN
    for half in range(2):
        for run in range(layout.columns // RUN):
            block, inside = divmod(run, block_runs)
            index = half * layout.blocks + block
            codes = codes_text(layout.bits, inside, f"at[{index}]", "quarter")
            lines.append(f"codes = cuda.selp(inside[{index}], {codes}, u32(0))")
            if layout.bits.floats is not None:
                flag = 1 << (half * layout.parts + run * RUN // layout.bits.part)
                lines.append(f"spoilt[0] = i32(spoilt[0] | cuda.selp({_HAS_NAN}, i32({flag}), i32(0)))")
            chunk, upper = divmod(run, 2)
            lines += _placed(layout, 2 * chunk + half, 2 * upper)
    return lines


def _placed(layout: TileLayout, unit: int, first: int) -> list[str]:
    """Statements that put four codes into the words of a chunk of a row: as pairs `first` and after it."""
    lines: list[str] = []
    width = layout.high_bits
    for byte in range(4):
        pair, half = first + byte // 2, byte % 2
        if layout.bits.floats is not None:
            word, place = float_place(unit, pair)
            code = f"u32(u32(codes >> u32({8 * byte})) & u32(255))"
            lines.append(f"words[{word}] = u32(words[{word}] | u32({code} << u32({8 * place + 16 * half})))")
            continue
        low = f"u32(u32(codes >> u32({8 * byte})) & u32(15))"
        lines.append(f"words[{unit}] = u32(words[{unit}] | u32({low} << u32({4 * pair + 16 * half})))")
        if width:
            word, place = divmod(unit, 4 // width)
            at = layout.low_words + word
            high = f"u32(u32(codes >> u32({8 * byte + 4})) & u32({(1 << width) - 1}))"
            shift = width * (4 * place + pair) + 16 * half
            lines.append(f"words[{at}] = u32(words[{at}] | u32({high} << u32({shift})))")
    return lines


def _factors(layout: TileLayout) -> list[str]:
    """Statements that put the factors of both rows of a lane into its words."""
    lines: list[str] = []
    if layout.bits.floats is not None:
        lines += [
            f"spoilt[0] = i32(spoilt[0] | cuda.shfl_xor_sync(ALL_LANES, spoilt[0], {step}))"
            for step in (1, 2)
        ]
    for each in layout.floats:
        lines += _float(layout, each)
    for each in layout.numbers:
        lines += _number(layout, each)
    return lines


def _float(layout: TileLayout, each: Float) -> list[str]:
    lines: list[str] = []
    block, part = divmod(each.part, layout.block_parts)
    for half in range(2):
        index = half * layout.blocks + block
        value = float_text(layout.factors[each.factor], part, f"at[{index}]")
        if layout.bits.floats is not None:
            is_spoilt = f"(spoilt[0] & i32({1 << (half * layout.parts + each.part)})) != i32(0)"
            value = f"cuda.selp({is_spoilt}, u32({_NAN}), {value})"
        value = f"cuda.selp(inside[{index}], {value}, u32(0))"
        word, shift = (each.word, 16 * half) if each.stored == "f16" else (each.word + half, 0)
        lines.append(f"words[{word}] = u32(words[{word}] | u32({value} << u32({shift})))")
    return lines


def _number(layout: TileLayout, each: Number) -> list[str]:
    block, part = divmod(each.part, layout.block_parts)
    index = each.half * layout.blocks + block
    number = number_text(layout.factors[each.factor], part, f"at[{index}]")
    value = f"cuda.selp(inside[{index}], {number}, u32(0))"
    return [f"words[{each.word}] = u32(words[{each.word}] | u32({value} << u32({8 * each.byte})))"]


def _stores(layout: TileLayout) -> list[str]:
    """Statements that write the words of a lane; of those that a quad shares, its first lane."""
    lines: list[str] = []
    for piece in layout.pieces:
        lane = "group" if piece.is_shared else "lane"
        words = ", ".join(f"words[{piece.word + i}]" for i in range(piece.count))
        address = f"out + u64({piece.byte}) + u64({lane} * i32({4 * piece.count}))"
        store = f"{_STORES[piece.count]}({address}, {words})"
        lines += ["if quarter == i32(0):", f"    {store}"] if piece.is_shared else [store]
    return lines
