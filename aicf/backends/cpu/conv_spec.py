"""What a convolution on the CPU is and every decision about its code, with a cost prior. Imports no code generator.

Three algorithms, none of which writes windows to memory:

`gemm`: windows of one element are columns of a matrix already, so this is a product of the weight and the pixels.
`direct`: tiles of pixels times vectors of output channels, a weight packed in panels as for a product. Pixels are read
where they lie, or from a copy of a block of rows with zeros around it.
`depthwise`: one channel a group. Vectors of pixels of a row, the weights of the channel in registers.

`conv.py` turns a `ConvSpec` into code and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Literal, cast

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.cpu.gemm_spec import (
    CACHE_LINE,
    L2_BYTES,
    MEETING_CYCLES,
    NOMINAL_GHZ,
    BSource,
    GemmProblem,
    GemmSpec,
    propose,
    traffic_cycles,
)
from aicf.backends.cpu.pack_spec import packed_elements
from aicf.backends.cpu.records import Record, gemm_spec, get_bool, get_int, get_record, integer, one_of
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel
from aicf.errors import PlanError

Algorithm = Literal["gemm", "direct", "depthwise"]

Pair = tuple[int, int]


@dataclass(frozen=True)
class ConvProblem:
    """A convolution along two dimensions, rows and columns of pixels; those of fewer have one row.

    Args:
        dtype: Element type of all tensors.
        batch: Images.
        groups, channels, outputs: Groups, and input and output channels of each.
        sizes, taps, counts: Rows and columns of the input, of a window, and of the result.
        strides, dilations, low: Between windows, between elements of one, and zeros in front.
        x_strides: Elements between images, channels, rows and columns of the input.
    """

    dtype: str
    batch: int
    groups: int
    channels: int
    outputs: int
    sizes: Pair
    taps: Pair
    counts: Pair
    strides: Pair
    dilations: Pair
    low: Pair
    x_strides: tuple[int, int, int, int]

    @property
    def pixels(self) -> int:
        """Pixels of a channel of the result."""
        return self.counts[0] * self.counts[1]

    @property
    def inner(self) -> int:
        """Products of one output element."""
        return self.channels * prod(self.taps)

    @property
    def spans(self) -> Pair:
        """Rows and columns of the input, with the zeros around it, that windows reach."""
        rows, columns = (
            (count - 1) * stride + (tap - 1) * dilation + 1
            for count, stride, tap, dilation in zip(
                self.counts, self.strides, self.taps, self.dilations, strict=True
            )
        )
        return rows, columns

    @property
    def is_padded(self) -> bool:
        """Whether a window reaches beyond the input."""
        ends = (span - low for span, low in zip(self.spans, self.low, strict=True))
        return any(self.low) or any(end > size for end, size in zip(ends, self.sizes, strict=True))

    @property
    def is_pointwise(self) -> bool:
        """Whether each pixel of the result is made of the pixel at its place alone, and these are one run."""
        in_a_row = self.x_strides[2] == self.sizes[1] * self.x_strides[3]
        plain = self.taps == (1, 1) and self.strides == (1, 1) and not self.is_padded
        return plain and self.counts == self.sizes and in_a_row and self.groups == 1

    def in_one_row(self) -> ConvProblem:
        """A pointwise convolution with all of its pixels as one row."""
        assert self.is_pointwise
        image, channel, _, column = self.x_strides
        row = (1, self.pixels)
        steps = (image, channel, self.pixels * column, column)
        return replace(self, sizes=row, counts=row, x_strides=steps)

    def product(self) -> GemmProblem:
        """The product that a pointwise convolution is: weight times pixels, for every image."""
        image, channel, _, column = self.x_strides
        return GemmProblem(
            *(self.dtype, self.outputs, self.pixels, self.channels),
            *((self.channels, 1), (channel, column)),
            batch=(self.batch,),
            a_batch_strides=(0,),
            b_batch_strides=(image,),
        )


@dataclass(frozen=True)
class ConvSpec:
    """A convolution with every decision about its code.

    Args:
        lanes: Elements of a vector: output channels where direct, pixels of a row where depthwise.
        tile_pixels, tile_vectors: A direct tile has so many pixels at most, and so many vectors of output channels. A
            depthwise one has `tile_vectors` vectors of pixels.
        block_rows: Rows of pixels of the result that are made from one copy of the input; all of them without one.
        copies: Whether the input is copied, with zeros around it, a block at a time.
        prepared: Whether the weight was packed ahead of time; else it is packed at the start.
        prefetch_lines: Cache lines of the next panel that each step of the innermost loop over channels asks for.
        product: Of a pointwise convolution.
    """

    problem: ConvProblem
    algorithm: Algorithm
    lanes: int
    tile_pixels: int = 1
    tile_vectors: int = 1
    block_rows: int = 1
    copies: bool = False
    prepared: bool = False
    threads: int = 1
    prefetch_lines: int = 0
    product: GemmSpec | None = None

    @property
    def nr(self) -> int:
        """Output channels of a panel of the weight."""
        return self.lanes * self.tile_vectors

    @property
    def panels(self) -> int:
        """Panels of the weight of one group."""
        return -(-self.problem.outputs // self.nr)

    @property
    def tile_rows(self) -> int:
        """Rows of pixels of a tile: several where a row is short."""
        return max(1, min(self.tile_pixels // self.problem.counts[1], self.problem.counts[0]))

    @property
    def tile_widths(self) -> list[int]:
        """Pixels of the tiles of a row, longest first."""
        columns = self.problem.counts[1]
        tiles = -(-columns // self.tile_pixels)
        return sorted(((columns + place) // tiles for place in range(tiles)), reverse=True)

    @property
    def tiles(self) -> int:
        """Tiles of a block against one panel."""
        return -(-self.block_rows // self.tile_rows) * len(self.tile_widths)

    @property
    def channel_step(self) -> int:
        """Channels of one step of the innermost loop over them."""
        return min(4, self.problem.channels) if prod(self.problem.taps) == 1 else 1

    def rows_read(self, rows: int) -> int:
        """Rows of the input that so many rows of the result are made of."""
        p = self.problem
        return (rows - 1) * p.strides[0] + (p.taps[0] - 1) * p.dilations[0] + 1

    @property
    def pitch(self) -> int:
        """Elements between rows of the copy."""
        return self.problem.spans[1]

    @property
    def plane(self) -> int:
        """Elements between channels of the copy; those of several channels fall into different sets of the cache."""
        line = CACHE_LINE // ELEMENT_BYTES[self.problem.dtype]
        used = self.rows_read(self.block_rows) * self.pitch
        lines = -(-used // line)
        return (lines + 1 if lines % 8 == 0 else lines) * line

    @property
    def copy_elements(self) -> int:
        """Elements of one thread's copy: the channels of one group, or one channel where depthwise."""
        if not self.copies:
            return 0
        return self.plane * (1 if self.algorithm == "depthwise" else self.problem.channels)

    @property
    def packed_elements(self) -> int:
        """Elements of the packed weight, if it is packed here."""
        if self.prepared or self.algorithm != "direct":
            return 0
        p = self.problem
        return packed_elements(p.inner, p.outputs, self.nr) * p.groups

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace, all threads together: each has its own copy of the input and of the weight."""
        if self.product is not None:
            return self.product.workspace_bytes
        line = CACHE_LINE // ELEMENT_BYTES[self.problem.dtype]
        elements = -(-self.packed_elements // line) * line + self.copy_elements
        return (elements * ELEMENT_BYTES[self.problem.dtype] + CACHE_LINE * bool(elements)) * self.threads

    @property
    def combination_order(self) -> str:
        """How products are summed, for the kernel record."""
        if self.product is not None:
            return self.product.combination_order
        return "ascending channel, then row and column of the window"


_BLOCK_BYTES = 192 << 10
"""Of the copy of the input that tiles are made from: it shares L2 with a panel of the weight."""
_COPY_BYTES_PER_CYCLE = 8.0
_TRANSPOSE_CYCLES = 5.0
"""Of a vector of a direct tile, which holds output channels, on its way to rows of pixels."""
_TILE_CYCLES = 20.0


def cost_us(spec: ConvSpec, epilogue_cycles: float) -> float:
    """Predicted microseconds of one thread's share; the epilogue takes so many cycles a vector."""
    cycles = {"direct": _direct_cycles, "depthwise": _depthwise_cycles}[spec.algorithm](spec, epilogue_cycles)
    return (cycles + (MEETING_CYCLES if spec.threads > 1 else 0.0)) / NOMINAL_GHZ / 1000


def _direct_cycles(spec: ConvSpec, epilogue_cycles: float) -> float:
    p, size = spec.problem, ELEMENT_BYTES[spec.problem.dtype]
    full, tail = divmod(p.counts[0], spec.tile_rows)
    total = 0.0
    for rows, times in ((spec.tile_rows, full), (tail, 1)):
        for width in spec.tile_widths if rows else ():
            sums = rows * width * spec.tile_vectors
            step = max(sums / 2, (rows * width + spec.tile_vectors) / 2, 5.0)
            tile = step * p.inner + sums * (_TRANSPOSE_CYCLES + epilogue_cycles) + _TILE_CYCLES
            total += tile * times
    panels = -(-spec.panels // spec.threads)
    weight = p.inner * spec.nr * size * panels
    blocks = -(-p.counts[0] // spec.block_rows)
    total = max(total * panels, traffic_cycles(weight) * blocks)
    if spec.copies:
        total += blocks * spec.copy_elements * size / _COPY_BYTES_PER_CYCLE
    total *= p.batch * p.groups
    return total + spec.packed_elements * size / 2


def _depthwise_cycles(spec: ConvSpec, epilogue_cycles: float) -> float:
    p, size = spec.problem, ELEMENT_BYTES[spec.problem.dtype]
    vectors = -(-p.counts[1] // spec.lanes) * p.counts[0]
    loads = 1.0 if p.strides[1] == 1 else 2.0
    row = vectors * (prod(p.taps) * loads + epilogue_cycles + 2.0) + p.counts[0] * 5.0
    channels = p.batch * p.groups * p.outputs
    total = channels * row + p.batch * p.groups * spec.copy_elements * size / _COPY_BYTES_PER_CYCLE
    moved = p.batch * p.groups * (prod(p.sizes) + p.outputs * p.pixels) * size
    return max(total, traffic_cycles(moved)) / spec.threads


@lru_cache(maxsize=1024)
def choose(
    problem: ConvProblem, level: CpuLevel, threads: int, is_param: bool, epilogue_cycles: float
) -> tuple[float, ConvSpec]:
    """Predicted microseconds and the spec that is predicted to take least, on one thread or on all."""
    shares = sorted({1, threads})
    if problem.channels == 1 and problem.groups > 1:
        specs = _depthwise(problem, level, shares)
    else:
        specs = _direct(problem, level, shares, is_param)
    found = [(cost_us(spec, epilogue_cycles), spec) for spec in specs]
    if problem.is_pointwise:
        found += _products(problem, level, shares, epilogue_cycles)
    return min(found, key=lambda entry: entry[0])


def _products(
    problem: ConvProblem, level: CpuLevel, shares: Sequence[int], epilogue_cycles: float
) -> Iterator[tuple[float, ConvSpec]]:
    """Ways to multiply the weight with the pixels, with predicted microseconds."""
    sources: tuple[BSource, ...] = ("direct", "workspace")
    for share, source in product(shares, sources):
        for us, spec in propose(
            problem.product(),
            level,
            source,
            threads=share,
            epilogue_cycles=epilogue_cycles,
            splits=(1,),
            count=1,
        ):
            yield us, ConvSpec(problem, "gemm", spec.lanes, threads=spec.threads, product=spec)


def _depthwise(problem: ConvProblem, level: CpuLevel, shares: list[int]) -> list[ConvSpec]:
    lanes = level.lanes(problem.dtype)
    vectors = max(1, min(4, problem.counts[1] // lanes))
    copies = problem.is_padded or problem.x_strides[3] != 1
    return [
        ConvSpec(
            problem,
            "depthwise",
            lanes,
            tile_vectors=vectors,
            block_rows=problem.counts[0],
            copies=copies,
            threads=share,
        )
        for share in shares
        if share <= problem.batch * problem.groups
    ]


def _direct(problem: ConvProblem, level: CpuLevel, shares: list[int], is_param: bool) -> list[ConvSpec]:
    lanes = level.lanes(problem.dtype)
    needed = -(-problem.outputs // lanes)
    found: list[ConvSpec] = []
    for vectors in range(1, min(4, needed) + 1):
        most = min((level.registers - 1 - vectors) // vectors, lanes)
        for pixels in range(min(2, most), most + 1):
            for share in shares:
                spec = ConvSpec(
                    problem,
                    "direct",
                    lanes,
                    pixels,
                    vectors,
                    problem.counts[0],
                    problem.is_padded,
                    is_param and problem.groups == 1,
                    share,
                )
                if share <= spec.panels:
                    found.append(_prefetching(_blocked(spec)))
    return found


def _prefetching(spec: ConvSpec) -> ConvSpec:
    """The spec with the next panel fetched meanwhile, if panels do not stay in L2 and tiles are few."""
    p, size = spec.problem, ELEMENT_BYTES[spec.problem.dtype]
    if spec.panels * spec.nr * p.inner * size < L2_BYTES:
        return spec
    lines = spec.channel_step * prod(p.taps) * spec.nr * size // CACHE_LINE
    return replace(spec, prefetch_lines=-(-lines // spec.tiles)) if spec.tiles <= lines else spec


def _blocked(spec: ConvSpec) -> ConvSpec:
    """The spec with blocks of rows whose copy stays in cache, even ones of whole tiles."""
    p, size = spec.problem, ELEMENT_BYTES[spec.problem.dtype]
    if not spec.copies or spec.copy_elements * size <= 2 * _BLOCK_BYTES:
        return spec
    row = spec.pitch * p.channels * size * p.strides[0]
    rows = max(_BLOCK_BYTES // row // spec.tile_rows, 1) * spec.tile_rows
    blocks = -(-p.counts[0] // rows)
    even = -(-p.counts[0] // (blocks * spec.tile_rows)) * spec.tile_rows
    return replace(spec, block_rows=min(even, p.counts[0]))


def conv_record(spec: ConvSpec) -> dict[str, Attribute]:
    """Every decision about a convolution but those of a product, which are a record of their own."""
    return {
        "algorithm": StringAttr(spec.algorithm),
        "lanes": integer(spec.lanes),
        "tile_pixels": integer(spec.tile_pixels),
        "tile_vectors": integer(spec.tile_vectors),
        "block_rows": integer(spec.block_rows),
        "copies": integer(spec.copies),
        "prepared": integer(spec.prepared),
        "threads": integer(spec.threads),
        "prefetch_lines": integer(spec.prefetch_lines),
        "workspace_bytes": integer(spec.workspace_bytes),
        "combination_order": StringAttr(spec.combination_order),
    }


def read_conv_spec(record: Record, problem: ConvProblem, fused: bool) -> ConvSpec:
    """The decisions of a record for `problem`. Raises PlanError if they contradict each other."""
    algorithm = cast(Algorithm, one_of(record, "algorithm", ("gemm", "direct", "depthwise")))
    own = None
    if algorithm == "gemm":
        own = gemm_spec(get_record(record, "product"), problem.product(), fused)
    spec = ConvSpec(
        problem,
        algorithm,
        get_int(record, "lanes"),
        get_int(record, "tile_pixels"),
        get_int(record, "tile_vectors"),
        get_int(record, "block_rows"),
        get_bool(record, "copies"),
        get_bool(record, "prepared"),
        get_int(record, "threads"),
        get_int(record, "prefetch_lines"),
        own,
    )
    if (wrong := check(spec)) is not None:
        raise PlanError(
            f"kernel record of a convolution contradicts itself: {wrong}; run select-kernels again"
        )
    return spec


def check(spec: ConvSpec) -> str | None:
    """None if there is code for `spec`, else what contradicts."""
    p = spec.problem
    if spec.algorithm == "gemm" and not p.is_pointwise:
        return "a product needs windows of one element"
    if spec.algorithm == "depthwise" and (p.channels != 1 or spec.prepared):
        return "depthwise is of one channel a group, whose weight is not packed"
    if p.is_padded and not spec.copies:
        return "zeros around the input are in a copy of it"
    if min(spec.tile_pixels, spec.tile_vectors, spec.block_rows, spec.threads) < 1:
        return "tiles, blocks and threads are 1 at least"
    if spec.algorithm == "direct" and spec.tile_pixels > spec.lanes:
        return "a tile has more pixels than a vector lanes"
    if spec.algorithm == "depthwise" and spec.block_rows != p.counts[0]:
        return "depthwise is one block of all rows"
    if spec.block_rows < p.counts[0] and spec.algorithm == "direct" and spec.block_rows % spec.tile_rows:
        return "blocks are of whole tiles"
    return None
