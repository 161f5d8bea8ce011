"""What a convolution on the CPU is and every decision about its code. Imports no code generator.

Four algorithms, none of which writes windows to memory:

`gemm`: windows of one element are a matrix already, so this is a product of the weight and the pixels, or of the pixels
and the weight.
`direct`: tiles of pixels times vectors of output channels, a weight packed in panels as for a product. Pixels are read
where they lie, or from a copy of a block of rows with zeros around it.
`depthwise`: one channel a group. Vectors of pixels of a row, the weights of the channel in registers; or vectors of
channels, whose weights are packed in panels.
`winograd`: windows of 3 x 3 whose neighbours share products, with other rounding errors: `winograd/schedule.py`.

Whether the lanes of what the epilogue gets are pixels of a channel or channels of a pixel is one of the decisions: the
first are stored as they are where the planes of channels lie one after the other in memory, the second where the
channels of a pixel do. `candidates.py` decides, `template.py` turns a `ConvSpec` into code and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated, Any, Literal

from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import (
    Entry,
    OneOf,
    Record,
    RecordCodec,
    RecordError,
    Whole,
    illegal,
    integer,
    read_entry,
    read_part,
)
from aicf.backends.cpu.families.conv.windows import Stretch, stretches
from aicf.backends.cpu.families.conv.winograd.matrices import OUTPUT_TILES, TAPS
from aicf.backends.cpu.families.conv.winograd.schedule import (
    WinogradProblem,
    WinogradSpec,
    check_winograd,
    without_product,
)
from aicf.backends.cpu.families.gemm.pack.schedule import packed_elements
from aicf.backends.cpu.families.gemm.schedule import CACHE_LINE, MOST_VECTORS, GemmProblem, GemmSpec
from aicf.backends.cpu.families.records import gemm_record, gemm_spec
from aicf.backends.cpu.families.vectors import VECTOR_LANES, lanes_reason
from aicf.backends.cpu.target import ELEMENT_BYTES, SHORT_INTEGERS

Algorithm = Literal["gemm", "direct", "depthwise", "winograd"]
Along = Literal["pixels", "channels"]
"""What the lanes of a vector of finished sums are: pixels of one channel, or channels of one pixel."""

Pair = tuple[int, int]


@dataclass(frozen=True)
class ConvProblem:
    """A convolution along two dimensions, rows and columns of pixels; those of fewer have one row.

    Args:
        dtype: Element type of sums, of packed weights and of copies of the input.
        batch: Images.
        groups, channels, outputs: Groups, and input and output channels of each.
        sizes, taps, counts: Rows and columns of the input, of a window, and of the result.
        strides, dilations, low: Between windows, between elements of one, and zeros before the first element.
        x_strides: Elements between images, channels, rows and columns of the input.
        operand_type: Type of the input in memory, where it is not `dtype`.
        weight_type: Type of the weight in memory, where it is not that of the input: both are short integers then.
        around: What lies around the input.
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
    operand_type: str = ""
    weight_type: str = ""
    around: int = 0

    @property
    def element(self) -> str:
        """Type of the input in memory, and of a weight of floats."""
        return self.operand_type or self.dtype

    @property
    def weight_element(self) -> str:
        """Type of the weight in memory."""
        return self.weight_type or self.element

    @property
    def widens(self) -> bool:
        """Whether input and weight are narrower than the sums. Each element of the input takes part in many products:
        it is widened once, on its way into a copy of the input, and not for each of them."""
        return self.element != self.dtype

    @property
    def pairs(self) -> bool:
        """Whether one operation multiplies pairs of i16, of two channels, and adds the two products in i32.

        What tiles read then are *units*, elements of two channels in the bytes of one sum; else a unit is one element.
        """
        return self.element in SHORT_INTEGERS

    @property
    def depth(self) -> int:
        """Units of the channels of a group; where their number is odd, the second channel of the last is zero."""
        return -(-self.channels // 2) if self.pairs else self.channels

    @property
    def steps(self) -> int:
        """Units of one output element."""
        return self.depth * prod(self.taps)

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
        """Whether each pixel of the result is made of the pixel at its position alone, and these are one run."""
        in_a_row = self.x_strides[2] == self.sizes[1] * self.x_strides[3]
        pointwise = self.taps == (1, 1) and self.strides == (1, 1) and not self.is_padded
        return pointwise and self.counts == self.sizes and in_a_row and self.groups == 1

    def along(self, dim: int) -> list[Stretch]:
        """The pixels of the result along rows (0) or columns (1), by whether their windows reach out."""
        reach = (self.taps[dim] - 1) * self.dilations[dim] + 1
        given = {"count": self.counts[dim], "stride": self.strides[dim], "low": self.low[dim]}
        return stretches(**given, reach=reach, whole=self.sizes[dim])

    def in_one_row(self) -> ConvProblem:
        """A pointwise convolution with all of its pixels as one row."""
        assert self.is_pointwise
        image, channel, _, column = self.x_strides
        row = (1, self.pixels)
        steps = (image, channel, self.pixels * column, column)
        return replace(self, sizes=row, counts=row, x_strides=steps)

    def product(self, along: Along) -> GemmProblem:
        """The product that a pointwise convolution is, for every image: weight times pixels, whose rows are channels,
        or pixels times weight, whose rows are pixels."""
        image, channel, _, column = self.x_strides
        if along == "channels":
            return GemmProblem(
                *(self.dtype, self.pixels, self.outputs, self.channels),
                *((column, channel), (1, self.channels)),
                batch=(self.batch,),
                a_batch_strides=(image,),
                b_batch_strides=(0,),
                a_type=self.element,
                b_type=self.weight_element,
            )
        return GemmProblem(
            *(self.dtype, self.outputs, self.pixels, self.channels),
            *((self.channels, 1), (channel, column)),
            batch=(self.batch,),
            a_batch_strides=(0,),
            b_batch_strides=(image,),
            a_type=self.weight_element,
            b_type=self.element,
        )


@dataclass(frozen=True)
class ConvSpec:
    """A convolution with every decision about its code.

    Args:
        lanes: Elements of a vector.
        lanes_along: What the lanes of finished vectors are. Those of a direct tile are output channels, and are
            transposed in registers if they have to be pixels.
        tile_pixels, tile_vectors: A tile has so many pixels at most, and so many vectors of output channels; a
            depthwise one whose lanes are pixels has `tile_vectors` vectors of those.
        block_rows: Rows of pixels of the result that are made from one copy of the input; all of them without one.
        copies: Whether the input is copied, with zeros around it, a block at a time; pairs of channels are made there.
        prepared: Whether the weight was packed ahead of time; else it is packed at the start.
        prefetch_lines: Cache lines of the next panel that each step of the innermost loop over channels asks for.
        product: Of a pointwise convolution.
        winograd: How tiles are transformed and multiplied, where that is the algorithm.
    """

    problem: ConvProblem
    algorithm: Annotated[Algorithm, Entry()]
    lanes: Annotated[int, Entry(VECTOR_LANES)]
    lanes_along: Annotated[Along, Entry()] = "pixels"
    tile_pixels: Annotated[int, Entry(Whole(1, 64))] = 1
    tile_vectors: Annotated[int, Entry(Whole(1, MOST_VECTORS))] = 1
    block_rows: Annotated[int, Entry(Whole(1))] = 1
    copies: Annotated[bool, Entry()] = False
    prepared: Annotated[bool, Entry()] = False
    threads: Annotated[int, Entry(Whole(1))] = 1
    prefetch_lines: Annotated[int, Entry(Whole(0, 64))] = 0
    product: GemmSpec | None = None
    winograd: WinogradSpec | None = None

    @property
    def output_tile(self) -> int:
        """Rows and columns of a tile of the result that is transformed; 0 without."""
        return 0 if self.winograd is None else self.winograd.tile

    @property
    def nr(self) -> int:
        """Output channels of a panel of the weight."""
        return self.lanes * self.tile_vectors

    @property
    def packs(self) -> bool:
        """Whether tiles read the weight in panels."""
        return self.algorithm == "direct" or (
            self.algorithm == "depthwise" and self.lanes_along == "channels"
        )

    @property
    def weight_columns(self) -> int:
        """Columns of the matrix that is packed: output channels of one group, or of all where depthwise."""
        return self.problem.groups if self.algorithm == "depthwise" else self.problem.outputs

    @property
    def panels(self) -> int:
        """Panels of the weight of one group, of all groups where depthwise."""
        return -(-self.weight_columns // self.nr)

    @property
    def tile_rows(self) -> int:
        """Rows of pixels of a tile: several where a row is short."""
        return max(1, min(self.tile_pixels // self.problem.counts[1], self.problem.counts[0]))

    @property
    def tiles_of_row(self) -> int:
        """Tiles side by side in a row of pixels."""
        return -(-self.problem.counts[1] // self.tile_pixels)

    def width_counts(self, bands: int) -> list[tuple[int, int]]:
        """Pixels of the tiles of a row, longest first, each with how many tiles of so many bands of rows have them.

        Tiles of a row differ by one pixel at most.
        """
        columns, tiles = self.problem.counts[1], self.tiles_of_row
        width, longer = divmod(columns, tiles)
        found = ((width + 1, longer * bands), (width, (tiles - longer) * bands))
        return [(pixels, count) for pixels, count in found if count]

    @property
    def tiles(self) -> int:
        """Tiles of a block against one panel."""
        return -(-self.block_rows // self.tile_rows) * self.tiles_of_row

    @property
    def channel_step(self) -> int:
        """Units of channels of one step of the innermost loop over them."""
        return min(4, self.problem.depth) if prod(self.problem.taps) == 1 else 1

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
        """Elements between channels of a copy of planes; those of several channels fall into different sets of the
        cache."""
        return self._spread(self.rows_read(self.block_rows) * self.pitch)

    @property
    def copies_channels_last(self) -> bool:
        """Whether the copy has the channels of a pixel side by side, as the input has them."""
        _, channel, _, column = self.problem.x_strides
        together = channel == 1 and column != 1 and not self.problem.pairs
        return self.algorithm == "direct" and together

    @property
    def copied_pixel(self) -> int:
        """Elements between pixels of such a copy."""
        channels, line = self.problem.channels, CACHE_LINE // ELEMENT_BYTES[self.problem.dtype]
        return channels if channels % line else self._spread(channels)

    @property
    def copy_strides(self) -> tuple[int, int, int]:
        """Elements between channels, rows and columns of the copy."""
        if self.copies_channels_last:
            return 1, self.pitch * self.copied_pixel, self.copied_pixel
        return self.plane, self.pitch, 1

    def _spread(self, elements: int) -> int:
        """So many elements or more, in lines of which several in a row fall into different sets of the cache."""
        line = CACHE_LINE // ELEMENT_BYTES[self.problem.dtype]
        lines = -(-elements // line)
        return (lines + 1 if lines % 8 == 0 else lines) * line

    @property
    def copy_elements(self) -> int:
        """Units of one thread's copy: the channels of one group, or one channel where depthwise."""
        if not self.copies:
            return 0
        if self.copies_channels_last:
            return self.rows_read(self.block_rows) * self.copy_strides[1]
        return self.plane * (1 if self.algorithm == "depthwise" else self.problem.depth)

    @property
    def packed_elements(self) -> int:
        """Units of the packed weight, if it is packed here."""
        if self.prepared or not self.packs:
            return 0
        matrices = self.problem.groups if self.algorithm == "direct" else 1
        return packed_elements(self.problem.steps, self.weight_columns, self.nr) * matrices

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace, all threads together: each has its own copy of the input and of the weight."""
        if (parts := self.product or self.winograd) is not None:
            return parts.workspace_bytes
        line = CACHE_LINE // ELEMENT_BYTES[self.problem.dtype]
        elements = -(-self.packed_elements // line) * line + self.copy_elements
        return (elements * ELEMENT_BYTES[self.problem.dtype] + CACHE_LINE * bool(elements)) * self.threads

    @property
    def combination_order(self) -> str:
        """How products are summed, for the kernel record."""
        if (parts := self.product or self.winograd) is not None:
            return parts.combination_order
        return "ascending channel, then row and column of the window"


def winograd_reason(problem: ConvProblem) -> str | None:
    """Why tiles of a convolution are not transformed; None if they can be."""
    if problem.taps != (TAPS, TAPS) or problem.strides != (1, 1) or problem.dilations != (1, 1):
        return "Winograd's products are of windows of 3 x 3, one next to the other"
    if problem.pairs:
        return "Winograd's products are of floats"
    if problem.groups != 1:
        return "Winograd's products are of all channels, in one group"
    if problem.widens:
        return f"Winograd's transforms read what sums are of, not {problem.element}"
    return None


def tiled(problem: ConvProblem) -> WinogradProblem:
    """What of a convolution decides how its tiles are transformed and multiplied."""
    p = problem
    return WinogradProblem(p.dtype, p.batch, p.channels, p.outputs, p.counts)


_CODEC = RecordCodec(ConvSpec)
_WINOGRAD = RecordCodec(WinogradSpec)


def conv_record(spec: ConvSpec) -> dict[str, Attribute]:
    """Every decision about a convolution, those of its products as records of their own."""
    entries: dict[str, Attribute] = {
        "algorithm": StringAttr(spec.algorithm),
        "output_tile": integer(spec.output_tile),
        **_CODEC.entries(spec),
        "workspace_bytes": integer(spec.workspace_bytes),
        "combination_order": StringAttr(spec.combination_order),
    }
    if spec.product is not None:
        entries["product"] = DictionaryAttr(gemm_record(spec.product))
    if (winograd := spec.winograd) is not None:
        own = {**_WINOGRAD.entries(winograd), "product": DictionaryAttr(gemm_record(winograd.product))}
        entries["winograd"] = DictionaryAttr(own)
    return entries


def read_conv_spec(record: Record, problem: ConvProblem, fused: bool) -> ConvSpec:
    """The decisions of a record for `problem`. Raises RecordError if they contradict each other."""
    entries = _CODEC.values(record)
    if entries["algorithm"] == "gemm":
        if not problem.is_pointwise:
            raise RecordError(f"its {illegal('algorithm', 'gemm', 'one for windows of several elements')}")
        own = gemm_spec(read_part(record, "product"), problem.product(entries["lanes_along"]), fused)
        entries["product"] = own
    elif entries["algorithm"] == "winograd":
        if (reason := winograd_reason(problem)) is not None:
            raise RecordError(f"its 'algorithm' is winograd: {reason}")
        entries["winograd"] = _read_winograd(record, entries, problem, fused)
    spec = ConvSpec(problem, **entries)
    if (reason := lanes_reason(spec.lanes, problem.dtype) or check(spec)) is not None:
        raise RecordError(reason)
    return spec


def _read_winograd(
    record: Record, entries: Mapping[str, Any], problem: ConvProblem, fused: bool
) -> WinogradSpec:
    own = read_part(record, "winograd")
    tile = read_entry(record, "output_tile", OneOf(OUTPUT_TILES))
    rows = _WINOGRAD.values(own)["block_rows"]
    blank = without_product(tiled(problem), tile, rows, entries["lanes"], entries["threads"])
    if rows > blank.rows:
        raise RecordError(f"in its 'winograd', its {illegal('block_rows', rows, Whole(1, blank.rows))}")
    return replace(blank, product=gemm_spec(read_part(own, "product"), blank.product.problem, fused))


def check(spec: ConvSpec) -> str | None:
    """None if there is code for `spec`, else what contradicts."""
    p = spec.problem
    if spec.winograd is not None:
        return winograd_reason(p) or check_winograd(spec.winograd, spec.prepared)
    if p.widens and not spec.copies:
        return f"an input of {p.element} is widened in a copy of it"
    if spec.algorithm == "gemm" and not p.is_pointwise:
        return "a product needs windows of one element"
    if spec.algorithm == "gemm" and spec.product is not None:
        if spec.prepared != (spec.product.b_source == "packed"):
            return "a weight is packed ahead of time if it is the right operand of its product"
    elif spec.prepared and not spec.packs:
        return "its weight is not packed"
    if spec.algorithm == "depthwise" and p.channels != 1:
        return "depthwise is of one channel a group"
    if spec.algorithm == "depthwise" and spec.lanes_along == "channels":
        return _check_channels(spec)
    if spec.algorithm == "depthwise" and prod(p.taps) > MOST_PLANE_TAPS:
        return f"vectors of pixels have windows of {MOST_PLANE_TAPS} elements at most"
    if p.is_padded and not spec.copies:
        return "zeros around the input are in a copy of it"
    if p.pairs and not spec.copies and spec.algorithm == "direct":
        return "pairs of channels are in a copy of the input"
    if min(spec.tile_pixels, spec.tile_vectors, spec.block_rows, spec.threads) < 1:
        return "tiles, blocks and threads are 1 at least"
    if spec.algorithm == "direct" and spec.lanes_along == "pixels" and spec.tile_pixels > spec.lanes:
        return "a tile has more pixels than a vector lanes"
    if spec.algorithm == "depthwise" and spec.block_rows != p.counts[0]:
        return "depthwise is one block of all rows"
    if spec.block_rows < p.counts[0] and spec.algorithm == "direct" and spec.block_rows % spec.tile_rows:
        return "blocks are of whole tiles"
    return None


MOST_TAPS = 64
"""Most elements of a window whose products are written out one after the other for vectors of channels."""
MOST_PLANE_TAPS = 1024
"""The same for vectors of pixels. A depthwise convolution of larger windows is a direct one, in loops over them."""


def _check_channels(spec: ConvSpec) -> str | None:
    """The same for vectors of channels of a depthwise convolution."""
    p = spec.problem
    if p.outputs != 1 or p.x_strides[1] != 1:
        return "vectors of channels are of one output for each, which lie side by side in the input"
    if prod(p.taps) > MOST_TAPS:
        return f"vectors of channels have windows of {MOST_TAPS} elements at most"
    if spec.copies:
        return "vectors of channels are read where they lie"
    if min(spec.tile_pixels, spec.tile_vectors, spec.threads) < 1:
        return "tiles, blocks and threads are 1 at least"
    return None
