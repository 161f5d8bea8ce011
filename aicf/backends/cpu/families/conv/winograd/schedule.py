"""Convolutions of 3 x 3 windows by Winograd's F(2x2) and F(4x4): every decision about their code, with a cost prior.
Imports no code generator.

Rows of tiles of all images are taken in blocks. A block is transformed into workspace, a matrix ``[tiles][channels]``
for each of the 16 or 36 elements of a transformed tile; each is multiplied with its matrix of the weight, which was
transformed and packed ahead of time; and what these products give is transformed back on its way to the epilogue. The
products are those of the GEMM microkernel, all of one block in one loop.

There are 2.25 and 4 times fewer products than in a direct convolution, of a weight that is 16/9 and 4 times as large.
Sums are others, those of transformed numbers, and so are rounding errors. In f32 against float64, relative to the root
mean square of the result, for random numbers of either sign (those of activations are 0.7 to 0.9 times as large):

    channels            64        128        256        512
    direct     rms  4.3e-7     6.0e-7     8.4e-7     1.2e-6     largest  4e-6 to 9e-6
    F(2x2)          2.6e-7     3.5e-7     4.9e-7     6.9e-7              2e-6 to 4e-6
    F(4x4)          7.5e-7     1.0e-6     1.4e-6     2.0e-6              8e-6 to 2e-5

So F(2x2) is more accurate than the direct sum and F(4x4) has 1.7 times its error, 2 times for activations: both are
offered wherever `rounding` is `fused`. A policy of strict rounding has neither, and one of batch-invariant results
neither, for which tile is faster depends on the batch; the bits of a tile do not.

Memory has a bound: a block is at least one row of tiles, of all channels, and a weight grows with the tile. What would
take more than `MOST_WORKSPACE_BYTES` a thread or `MOST_WEIGHT_BYTES` is not offered.

`template.py` turns a `WinogradSpec` into code and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from aicf.backends.common.record import Entry, Whole
from aicf.backends.cpu.families.conv.winograd.matrices import OUTPUT_TILES, TAPS
from aicf.backends.cpu.families.gemm import schedule as gemm_spec
from aicf.backends.cpu.families.gemm.pack.schedule import packed_elements
from aicf.backends.cpu.families.gemm.schedule import (
    CACHE_LINE,
    L2_BYTES,
    L3_BYTES_PER_CYCLE,
    MEETING_CYCLES,
    NOMINAL_GHZ,
    STREAM_AHEAD,
    GemmProblem,
    GemmSpec,
)
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel

MOST_WORKSPACE_BYTES = 32 << 20
"""Of one thread: transformed tiles and products of a block. Larger ones leave every cache anyway."""
MOST_WEIGHT_BYTES = 256 << 20
"""Of a weight that is transformed ahead of time; in F(4x4) one of 2.3 thousand channels to as many fits."""


def panel_vectors(outputs: int, lanes: int) -> int:
    """Vectors of output channels in a panel of the weight: one width, so that all programs share one packing."""
    return min(2, -(-outputs // lanes))


@dataclass(frozen=True)
class WinogradProblem:
    """What is computed: images of `channels` to images of `outputs` channels with `counts` rows and columns."""

    dtype: str
    batch: int
    channels: int
    outputs: int
    counts: tuple[int, int]


@dataclass(frozen=True)
class WinogradSpec:
    """A problem with every decision about its code.

    Args:
        tile: Rows and columns of a tile of the result: 2 or 4.
        block_rows: Rows of tiles of a block, counted through all images.
        product: Of a full block, for every element of the transformed tile.
    """

    problem: WinogradProblem
    tile: int
    block_rows: Annotated[int, Entry(Whole(1))]
    product: GemmSpec
    threads: int = 1

    @property
    def lanes(self) -> int:
        """Elements of a vector: channels of the input, then of the output, then pixels."""
        return self.product.lanes

    @property
    def taps(self) -> int:
        """Rows and columns of a transformed tile."""
        return self.tile + TAPS - 1

    @property
    def tile_counts(self) -> tuple[int, int]:
        """Rows and columns of tiles of an image."""
        rows, columns = (-(-count // self.tile) for count in self.problem.counts)
        return rows, columns

    @property
    def rows(self) -> int:
        """Rows of tiles of all images."""
        return self.problem.batch * self.tile_counts[0]

    @property
    def nr(self) -> int:
        """Output channels of a panel of the weight."""
        return panel_vectors(self.problem.outputs, self.lanes) * self.lanes

    @property
    def pitch(self) -> int:
        """Columns of the copy of a row of tiles, with the zeros around the input."""
        return self.tile_counts[1] * self.tile + TAPS - 1

    @property
    def copy_elements(self) -> int:
        """Elements of the copy: a vector of channels for each pixel of a row of tiles."""
        return self.taps * self.pitch * self.lanes

    @property
    def input_pitch(self) -> int:
        """Elements from one transformed tile to the next: all channels, in whole vectors."""
        return -(-self.problem.channels // self.lanes) * self.lanes

    @property
    def input_plane(self) -> int:
        """Elements from one matrix of transformed tiles to the next."""
        return self._plane(self.block_rows * self.tile_counts[1] * self.input_pitch)

    @property
    def output_pitch(self) -> int:
        """Elements from the products of one tile to those of the next."""
        return -(-self.problem.outputs // self.lanes) * self.lanes

    @property
    def output_plane(self) -> int:
        """Elements from one matrix of products to the next."""
        return self._plane(self.block_rows * self.tile_counts[1] * self.output_pitch)

    def _plane(self, elements: int) -> int:
        """The elements in whole cache lines, an odd number: neighbouring planes fall into different sets of a cache."""
        line = CACHE_LINE // ELEMENT_BYTES[self.problem.dtype]
        return (-(-elements // line) | 1) * line

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace, all threads together: each has its own copy, transformed tiles and products."""
        line = CACHE_LINE // ELEMENT_BYTES[self.problem.dtype]
        copy = -(-self.copy_elements // line) * line
        matrices = self.taps**2 * (self.input_plane + self.output_plane)
        return (copy + matrices) * ELEMENT_BYTES[self.problem.dtype] * self.threads

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weight as it is packed ahead of time."""
        p = self.problem
        one = packed_elements(p.channels, p.outputs, self.nr)
        return one * self.taps**2 * ELEMENT_BYTES[p.dtype]

    @property
    def combination_order(self) -> str:
        """How products are summed, for the kernel record."""
        return (
            f"Winograd F({self.tile}x{self.tile}, 3x3): transformed tiles in ascending channel, then rows and columns "
            "of the tile"
        )

    def product_problem(self, rows: int) -> GemmProblem:
        """The products of so many rows of tiles."""
        p = self.problem
        return GemmProblem(
            *(p.dtype, rows * self.tile_counts[1], p.outputs, p.channels),
            *((self.input_pitch, 1), (0, 1)),
            batch=(self.taps**2,),
            a_batch_strides=(self.input_plane,),
            b_batch_strides=(packed_elements(p.channels, p.outputs, self.nr),),
        )


def check_winograd(spec: WinogradSpec, prepared: bool) -> str | None:
    """None if there is code for `spec`, else what contradicts."""
    product = spec.product
    if (reason := memory_reason(spec)) is not None:
        return reason
    if not prepared:
        return "the weight of Winograd's products is transformed ahead of time, which only a parameter can be"
    if spec.tile not in OUTPUT_TILES or spec.lanes % spec.tile:
        return "a tile has 2 or 4 rows and columns, and a vector holds whole ones of its rows"
    if min(spec.block_rows, spec.threads) < 1 or spec.block_rows > spec.rows:
        return "blocks and threads are 1 at least, and a block has no more rows than there are"
    if (product.b_source, product.nv, product.k_split, product.threads, product.mc) != (
        *("packed", spec.nr // spec.lanes, 1, 1, 0),
    ):
        return "the products of transformed tiles are of packed panels, one sum each, in one thread"
    if product.problem != spec.product_problem(spec.block_rows):
        return "its products are those of another block"
    return None


def memory_reason(spec: WinogradSpec) -> str | None:
    """None if the spec keeps to its share of memory, else what takes too much."""
    workspace = spec.workspace_bytes // spec.threads
    for what, taken, most in (
        ("transformed tiles and products of a block", workspace, MOST_WORKSPACE_BYTES),
        ("its transformed weight", spec.weight_bytes, MOST_WEIGHT_BYTES),
    ):
        if taken > most:
            each = " a thread" if most == MOST_WORKSPACE_BYTES else ""
            return f"{what} would take {taken / 2**20:.0f} MiB{each}, the most is {most >> 20}"
    return None


def least_memory_reason(problem: WinogradProblem, level: CpuLevel, tile: int) -> str | None:
    """`memory_reason` of blocks as small as they can be, of one row of tiles."""
    return memory_reason(without_product(problem, tile, 1, level.lanes(problem.dtype), 1))


def without_product(
    problem: WinogradProblem, tile: int, block_rows: int, lanes: int, threads: int
) -> WinogradSpec:
    """The spec without decisions about its products, of which only the vectors are known."""
    nothing = GemmProblem(problem.dtype, 1, 1, 1, (1, 1), (1, 1))
    blank = GemmSpec(nothing, lanes, 1, panel_vectors(problem.outputs, lanes))
    spec = WinogradSpec(problem, tile, block_rows, blank, threads)
    return replace(spec, product=replace(blank, problem=spec.product_problem(block_rows)))


def with_product(spec: WinogradSpec, level: CpuLevel) -> WinogradSpec:
    """The spec with the tile of its products that is predicted to take least."""
    vectors = (spec.product.nv,)
    (_, found), *_ = gemm_spec.propose(
        spec.product.problem, level, "packed", vectors_of=vectors, splits=(1,), count=1
    )
    return replace(spec, product=_prefetching(replace(found, mc=0), spec.weight_bytes))


def _prefetching(product: GemmSpec, weight_bytes: int) -> GemmSpec:
    """The products with the next panel fetched meanwhile, if the weight does not stay in L2: each is read once."""
    p = product.problem
    if weight_bytes <= L2_BYTES // 2:
        return replace(product, prefetch_lines=0, prefetch_ahead=0)
    step_lines = product.k_step * product.nr * ELEMENT_BYTES[p.dtype] // CACHE_LINE
    tiles = -(-p.m // product.mr)
    ahead = 0 if tiles > 1 else STREAM_AHEAD
    return replace(product, prefetch_lines=-(-step_lines // tiles), prefetch_ahead=ahead)


def propose_winograd(
    problem: WinogradProblem,
    level: CpuLevel,
    tile: int,
    threads: int,
    epilogue_cycles: float,
) -> Iterator[tuple[float, WinogradSpec]]:
    """Specs with predicted microseconds of one thread's share; none where vectors are too short for tiles, or blocks
    too few for the threads."""
    p, lanes = problem, level.lanes(problem.dtype)
    rows, columns = (-(-count // tile) for count in p.counts)
    if lanes % tile or p.batch * rows < threads or min(p.channels, p.outputs, columns) < 1:
        return
    for block_rows in _block_rows(p.batch * rows, columns, threads):
        bare = without_product(problem, tile, block_rows, lanes, threads)
        if memory_reason(bare) is None:
            spec = with_product(bare, level)
            yield cost_us(spec, epilogue_cycles), spec


_BLOCK_TILES = (16, 32, 64, 128)
"""About so many in a block: the weight is read once for each, and transformed tiles leave the cache."""


def _block_rows(rows: int, columns: int, threads: int) -> Sequence[int]:
    """Sizes of blocks that share `rows` rows evenly, as many for each thread."""
    parts = {-(-rows * columns // (tiles * threads)) * threads for tiles in _BLOCK_TILES}
    return sorted({-(-rows // min(count, rows)) for count in parts})


_MEMORY_BYTES_PER_CYCLE = 6.7
"""Of a weight that is in no cache, as those of a whole model are: read once, in order, asked for ahead."""
_HIDDEN = 2 / 3
"""Of the shorter one of arithmetic and traffic, which run beside each other."""
_INPUT_CYCLES = {2: 45.0, 4: 160.0}
"""Of a vector of channels of a tile: copied, transformed, stored."""
_OUTPUT_CYCLES = {2: 20.0, 4: 60.0}
"""Of a vector of output channels of a tile, up to the epilogue."""


def cost_us(spec: WinogradSpec, epilogue_cycles: float) -> float:
    """Predicted microseconds of one thread's share; the epilogue takes so many cycles a vector."""
    full, tail = divmod(spec.rows, spec.block_rows)
    blocks = full + (tail > 0)
    own_blocks = -(-blocks // spec.threads)
    arithmetic = _block_cycles(spec, spec.block_rows, epilogue_cycles) * min(own_blocks, full)
    if own_blocks > full:
        arithmetic += _block_cycles(spec, tail, epilogue_cycles)
    traffic = spec.weight_bytes / _MEMORY_BYTES_PER_CYCLE
    if spec.weight_bytes > L2_BYTES // 2:
        traffic += spec.weight_bytes * (own_blocks - 1) / L3_BYTES_PER_CYCLE
    longer, shorter = sorted((arithmetic, traffic), reverse=True)
    total = longer + shorter * (1 - _HIDDEN) + (MEETING_CYCLES if spec.threads > 1 else 0.0)
    return total / NOMINAL_GHZ / 1000


def _block_cycles(spec: WinogradSpec, rows: int, epilogue_cycles: float) -> float:
    """Predicted cycles of a block, if what it reads of the weight were there."""
    p = spec.problem
    product = gemm_spec.cycles(replace(spec.product, problem=spec.product_problem(rows)))
    tiles = rows * spec.tile_counts[1]
    inputs, outputs = (-(-count // spec.lanes) for count in (p.channels, p.outputs))
    around = inputs * _INPUT_CYCLES[spec.tile] + outputs * _OUTPUT_CYCLES[spec.tile]
    runs = rows * spec.tile * -(-p.counts[1] // spec.lanes) * p.outputs
    spilled = max(spec.workspace_bytes // spec.threads - L2_BYTES // 2, 0) / L3_BYTES_PER_CYCLE
    return product + tiles * around + runs * epilogue_cycles + spilled
