"""What a convolution on the CPU is and every decision about its code. Imports no code generator.

Four algorithms, none of which writes windows to memory:

`gemm`: windows of one element are a matrix already, so this is a product of the weight and the pixels, or of the pixels
and the weight.
`direct`: tiles of pixels times vectors of output channels, a weight packed in panels as for a product. Pixels are read
where they lie, or from a copy of a block of rows with what lies around it.
`depthwise`: one channel a group. Vectors of pixels of a row, the weights of the channel in registers; or vectors of
channels, whose weights are packed in panels.

Units of several channels (`ConvProblem.terms`) are read where they lie only if they are quads of neighbours; else they
are made in the copy. A copy of bytes costs next to nothing: it moves 16 bytes or more a cycle, each of which takes part
in as many products as a window has elements times outputs, 64 a cycle. With 64 outputs of 3 x 3 that is 0.7 % of the
time, so windows at the border of the input are not told apart from those inside.

`winograd`: windows of 3 x 3 whose neighbours share products, with other rounding errors: `winograd/schedule.py`.

Whether the lanes of what the epilogue gets are pixels of a channel or channels of a pixel is one of the decisions: the
first are stored as they are where the planes of channels lie one after the other in memory, the second where the
channels of a pixel do. `candidates.py` decides, `template.py` turns a `ConvSpec` into code and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Annotated, Literal

from aicf.backends.common.record import Entry, Whole
from aicf.backends.cpu.families.conv.problem import Along, ConvProblem
from aicf.backends.cpu.families.conv.winograd.schedule import WinogradSpec
from aicf.backends.cpu.families.gemm.pack.schedule import packed_elements
from aicf.backends.cpu.families.gemm.schedule import CACHE_LINE, MOST_VECTORS, GemmSpec
from aicf.backends.cpu.families.vectors import VECTOR_LANES
from aicf.backends.cpu.target import ELEMENT_BYTES

Algorithm = Literal["gemm", "direct", "depthwise", "winograd"]
Partition = Literal["panels", "rows"]
"""What threads share: panels of output channels, or rows of pixels of all images."""
MOST_PREFETCHED = 64
"""Most lines that a step of the innermost loop asks for."""


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
        copies: Whether the input is copied, with what lies around it, a block at a time; pairs of channels are made
            there, and quads where channels are not neighbours.
        partition: What several threads share.
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
    prefetch_lines: Annotated[int, Entry(Whole(0, MOST_PREFETCHED))] = 0
    partition: Annotated[Partition, Entry()] = "panels"
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
    def start_rows(self) -> int:
        """Rows of a panel before its units: what sums start from, if elements of the input are read too large."""
        return int(self.problem.shift != 0)

    @property
    def panel_units(self) -> int:
        """Units of a panel, with the rows before them."""
        return (self.problem.steps + self.start_rows) * self.nr

    @property
    def blocks(self) -> int:
        """Blocks of rows of an image."""
        return -(-self.problem.counts[0] // self.block_rows)

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
    def place_bytes(self) -> int:
        """Bytes of what `copy_strides` count: quads lie at any byte, other units one after the other."""
        return 1 if self.problem.quads else ELEMENT_BYTES[self.problem.dtype]

    @property
    def unit_places(self) -> int:
        """Places of a unit."""
        return ELEMENT_BYTES[self.problem.dtype] // self.place_bytes

    @property
    def plane(self) -> int:
        """Places between channels of a copy of planes; those of several channels fall into different sets of the
        cache."""
        return self._spread(self.rows_read(self.block_rows) * self.pitch * self.unit_places)

    @property
    def copies_channels_last(self) -> bool:
        """Whether the copy has the channels of a pixel side by side, as the input has them."""
        p = self.problem
        _, channel, _, column = p.x_strides
        together = channel == 1 and column != 1 and not p.pairs
        return self.algorithm == "direct" and together and p.channels % p.terms == 0

    @property
    def copied_pixel(self) -> int:
        """Places between pixels of such a copy."""
        channels, line = self.problem.channels, CACHE_LINE // self.place_bytes
        return channels if channels % line else self._spread(channels)

    @property
    def copy_strides(self) -> tuple[int, int, int]:
        """Places between units of channels, rows and columns of the copy."""
        unit = self.unit_places
        if self.copies_channels_last:
            return unit, self.pitch * self.copied_pixel, self.copied_pixel
        return self.plane, self.pitch * unit, unit

    def _spread(self, places: int) -> int:
        """So many places or more, in lines of which several in a row fall into different sets of the cache."""
        line = CACHE_LINE // self.place_bytes
        lines = -(-places // line)
        return (lines + 1 if lines % 8 == 0 else lines) * line

    @property
    def copy_bytes(self) -> int:
        """Bytes of one thread's copy: of the channels of one group, or of one channel where depthwise."""
        if not self.copies:
            return 0
        if self.copies_channels_last:
            return self.rows_read(self.block_rows) * self.copy_strides[1] * self.place_bytes
        planes = 1 if self.algorithm == "depthwise" else self.problem.depth
        return self.plane * planes * self.place_bytes

    @property
    def packed_elements(self) -> int:
        """Units of the packed weight, if it is packed here."""
        if self.prepared or not self.packs:
            return 0
        matrices = self.problem.groups if self.algorithm == "direct" else 1
        rows = self.problem.steps + self.start_rows
        return packed_elements(rows, self.weight_columns, self.nr) * matrices

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace, all threads together: each has its own copy of the input and of the weight."""
        if (parts := self.product or self.winograd) is not None:
            return parts.workspace_bytes
        packed = self.packed_elements * ELEMENT_BYTES[self.problem.dtype]
        lines = -(-packed // CACHE_LINE) + -(-self.copy_bytes // CACHE_LINE)
        return (lines + bool(lines)) * CACHE_LINE * self.threads

    @property
    def combination_order(self) -> str:
        """How products are summed, for the kernel record."""
        if (parts := self.product or self.winograd) is not None:
            return parts.combination_order
        order = "ascending channel, then row and column of the window"
        together = self.problem.channels_together
        return order if together >= self.problem.depth else f"{order}, sums of {together} channels each"
