"""The code that widens rows of blocks: from a launch to the text of its template."""

from __future__ import annotations

from math import prod

from aicf.backends.base import Launch
from aicf.backends.common.record import read_text
from aicf.backends.cuda.codegen.scalar import float8_unpacked
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Snippet, stage
from aicf.backends.cuda.families.blocks.reading import codes_text, row_text, value_text, widened_factor_text
from aicf.backends.cuda.families.blocks.widen import template
from aicf.backends.cuda.families.blocks.widen.kernel import THREADS
from aicf.backends.cuda.families.records import is_programmatic, read_shape
from aicf.dialects.block_bits import BLOCK_BITS, RUN, BlockBits
from aicf.dialects.block_schemes import BLOCK_SCHEMES


def emit(launch: Launch) -> list[KernelLaunch]:
    """The rows of a launch."""
    name = read_text(launch.record, "scheme")
    scheme, packed, result = BLOCK_SCHEMES[name], launch.ins[0], launch.outs[0]
    constants = {
        "PROGRAMMATIC": is_programmatic(launch.record),
        "THREADS": THREADS,
        "ROW_BLOCKS": packed.shape[-1] // scheme.nbytes,
        "BLOCKS": prod(packed.shape) // scheme.nbytes,
        "BLOCK_BYTES": scheme.nbytes,
        "LENGTH": scheme.length,
        "SOURCE_ROW": Snippet(("row",), (), row_text(packed.shape, packed.strides, "row")),
        "TARGET_ROW": Snippet(("row",), (), row_text(result.shape, result.strides, "row")),
        "WIDEN": Snippet(("at", "out", "quarter"), tuple(_lines(name))),
    }
    code = KernelCode(
        "dequantize_blocks", stage(template.dequantize_blocks, constants), ("ptr",) * 2, THREADS
    )
    return [launch_in(read_shape(launch.record), code, (address_of(packed), address_of(result)))]


def _values(bits: BlockBits, run: int, scale: str, minimum: str, lines: list[str]) -> list[str]:
    """The elements of four codes; floats of 8 bits are unpacked by statements that `lines` gets."""
    if bits.floats is not None:
        names = [f"float{run}_{number}" for number in range(4)]
        lines += float8_unpacked(bits.floats, f"codes{run}", names)
        return [f"{scale} * {name}" for name in names]
    codes = [f"i32(u32(codes{run} >> u32({8 * byte})) & u32(255))" for byte in range(4)]
    return [value_text(bits, code, scale, minimum) for code in codes]


def _lines(scheme: str) -> list[str]:
    """Statements that widen a quarter of each run of the block at `at`, to f32 from `out` on."""
    bits, lines = BLOCK_BITS[scheme], list[str]()
    for part in range(BLOCK_SCHEMES[scheme].length // bits.part):
        lines.append(f"scale{part} = {widened_factor_text(bits.scale, part, 'at')}")
        if bits.minimum is not None:
            lines.append(f"minimum{part} = {widened_factor_text(bits.minimum, part, 'at')}")
        for run in range(part * bits.part // RUN, (part + 1) * bits.part // RUN):
            lines.append(f"codes{run} = {codes_text(bits, run, 'at', 'quarter')}")
            values = _values(bits, run, f"scale{part}", f"minimum{part}", lines)
            address = f"out + u64({4 * RUN * run}) + u64(quarter * i32(16))"
            lines.append(f"store_f32x4({address}, {', '.join(values)})")
    return lines
