"""What a GEMM on the CPU is: the problem, and the problem with every decision about its code. No code generator.

A GEMM here may be more than one product: several of one A, side by side or with one epilogue over all of their sums,
and A may be made row by row on the way in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from aicf.backends.common.record import Entry, OneOf, Whole, illegal
from aicf.backends.cpu.families.gemm.units import DOT_LANES, SHIFT, terms_by_type
from aicf.backends.cpu.families.vectors import VECTOR_LANES, lanes_reason
from aicf.backends.cpu.target import ELEMENT_BYTES

CACHE_LINE = 64

SPLITS = (1, 2, 4, 8)
"""Independent sums over K that a register tile may have."""
MOST_ROWS, MOST_VECTORS = 14, 8
"""Rows of a register tile, and vectors of one of its rows."""
MOST_SUMS = 256
"""Vectors of sums of a tile. Those that registers do not hold are spilled, which is right and slow; the bound is on the
time that a compile takes."""

BSource = Literal["packed", "direct", "workspace"]
Partition = Literal["none", "rows", "columns"]


@dataclass(frozen=True)
class GemmProblem:
    """What is computed: ``C[b, m, n] = sum_k A[b, m, k] * B[b, k, n]``. Strides are in elements.

    Hundreds of specs are priced for one problem: what they all ask is found once.
    """

    dtype: str
    """Element type of the sums."""
    m: int
    n: int
    k: int
    a_strides: tuple[int, int]
    """Distance between rows and between columns of A."""
    b_strides: tuple[int, int]
    """Distance between rows (k) and between columns (n) of B; unused when B is packed."""
    batch: tuple[int, ...] = ()
    a_batch_strides: tuple[int, ...] = ()
    b_batch_strides: tuple[int, ...] = ()
    """0 where B is shared by the batch; for packed B, in packed elements."""
    products: int = 1
    """How many B of equal shape and strides A is multiplied with."""
    joined: bool = False
    """The epilogue takes the sums of all products together (a gate); else each product has its own."""
    b_rows: int = 0
    """Rows of packed B, if it has more than the `k` that are used."""
    makes_rows: bool = False
    """A is no operand: a row program writes its rows into workspace block by block, as `a_strides` say."""
    a_type: str = ""
    b_type: str = ""
    """Element types of A and B in memory, where they are not `dtype`."""

    unit_terms: int = 0
    """Terms of K in a unit, where it has more than `units.terms_by_type` says."""

    @cached_property
    def terms(self) -> int:
        """Neighbouring terms of K that one operation multiplies and adds up; tiles read *units* of so many."""
        return self.unit_terms or terms_by_type(self)

    @cached_property
    def pairs(self) -> bool:
        """Whether units are pairs of i16."""
        return self.terms == 2 and self.dtype == "i32"

    @cached_property
    def quads(self) -> bool:
        """Whether units are four 8-bit integers."""
        return self.terms == 4

    @cached_property
    def reads_units(self) -> bool:
        """Whether units of A are read where they lie."""
        return self.terms > 1 and not self.pairs

    @cached_property
    def shift(self) -> int:
        """How much larger terms of A are read than they are."""
        return SHIFT if self.quads and self.a_element == "i8" else 0

    @cached_property
    def is_float(self) -> bool:
        """Whether sums are of floats."""
        return self.dtype in ("f32", "f64")

    @cached_property
    def depth(self) -> int:
        """Units along K; terms of the last one that K does not have are zero."""
        return self.units(self.k)

    def units(self, terms: int) -> int:
        """Units of so many terms of K."""
        return -(-terms // self.terms)

    @cached_property
    def wide_element(self) -> str:
        """Element type of the factors of one multiplication."""
        if self.terms == 1:
            return self.dtype
        return "i16" if self.pairs else self.b_element

    def unit_type(self, element: str) -> str:
        """An element type of as many bytes as a unit of `element`."""
        if self.reads_units:
            return "i32"
        return {"i8": "i16", "u8": "i16", "i16": "i32"}[element] if self.pairs else element

    @cached_property
    def a_element(self) -> str:
        """Element type of A in memory."""
        return self.a_type or self.dtype

    @cached_property
    def b_element(self) -> str:
        """Element type of B in memory, before it is packed."""
        return self.b_type or self.dtype

    @property
    def widens_rows(self) -> bool:
        """Whether rows of A are written to workspace in the type of the sums: a tile reads each many times."""
        return not (self.makes_rows or self.reads_units) and self.a_element != self.dtype

    @property
    def copies_rows(self) -> bool:
        """Whether tiles read A in workspace."""
        return self.makes_rows or self.widens_rows

    @property
    def tile_element(self) -> str:
        """Element type of A where tiles read it: strides count such elements."""
        return self.a_element if self.reads_units else self.dtype

    @property
    def tile_strides(self) -> tuple[int, int]:
        """Distance between rows and between units of A where tiles read it."""
        if self.reads_units:
            return self.a_strides[0], self.terms
        return (self.depth, 1) if self.widens_rows else self.a_strides

    @property
    def tile_products(self) -> int:
        """Products whose sums one tile holds."""
        return self.products if self.joined else 1


@dataclass(frozen=True)
class GemmSpec:
    """A problem with every decision about its code."""

    problem: GemmProblem
    lanes: Annotated[int, Entry(VECTOR_LANES)]
    mr: Annotated[int, Entry(Whole(1, MOST_ROWS), "tile_rows")]
    """Rows of a register tile."""
    nv: Annotated[int, Entry(Whole(1, MOST_VECTORS), "tile_vectors")]
    """Vectors in a row of a register tile; a panel of B is ``nv * lanes`` columns."""
    k_split: Annotated[int, Entry(OneOf(SPLITS))] = 1
    """Independent sums over ``k mod k_split``, added pairwise at the end: hides FMA latency in small tiles."""
    k_unroll: Annotated[int, Entry(Whole(1, 16))] = 4
    b_source: Annotated[BSource, Entry()] = "packed"
    """``packed``: B is ``[ceil(n / nr)][k][nr]``, zero padded. ``direct``: rows of B are contiguous and read in place.
    ``workspace``: panels are packed into ``workspace_bytes`` just before use."""
    group: Annotated[int, Entry(Whole(1, 1 << 16), "panel_group")] = 1
    """Panels of B that are packed into workspace at a time. All rows of A pass over them together, a tile of rows over
    one panel after the other, so that A is fetched as often as there are groups, and the panels stay in cache. (Packing
    the tile of rows as well took more time than it saved.)"""
    mc: Annotated[int, Entry(Whole(0), "block_rows")] = 0
    """Rows of A kept in cache while all panels of B pass (multiple of `mr`); 0 is all rows."""
    partition: Annotated[Partition, Entry()] = "none"
    threads: Annotated[int, Entry(Whole(1))] = 1
    fused: bool = True
    """Multiply-adds round once (the level has FMA)."""
    dots: bool = False
    """One operation multiplies pairs of i16 and adds them up (the level has avx512vnni)."""
    prefetch_lines: Annotated[int, Entry(Whole(0, 64))] = 0
    """Cache lines of packed B to prefetch per unrolled step of K."""
    prefetch_ahead: Annotated[int, Entry(Whole(0, 1 << 20))] = 0
    """Bytes from what is read to what is prefetched; 0: each tile of a panel fetches its share of the next panel."""
    tile_buffer: bool = False
    """Pass the tile to the epilogue row by row through a stack buffer: less code for long epilogues."""
    b_panel_type: str = ""
    """Element type of panels of B that were packed ahead of time, where it is not `GemmProblem.wide_element`."""

    @cached_property
    def b_element(self) -> str:
        """Element type of B where tiles read it."""
        if self.b_source == "direct":
            return self.problem.b_element
        return self.b_panel_type or self.problem.wide_element

    @cached_property
    def b_unit(self) -> str:
        """An element type of as many bytes as a unit of B where tiles read it."""
        return self.problem.unit_type(self.b_element)

    @cached_property
    def nr(self) -> int:
        """Columns of a panel of B."""
        return self.nv * self.lanes

    @property
    def k_step(self) -> int:
        """Units of K in one iteration of the K loop."""
        split = max(1, min(self.k_split, self.problem.depth))
        return -(-self.k_unroll // split) * split

    @property
    def start_rows(self) -> int:
        """Rows of a panel of B before its units: what sums start from."""
        return int(self.problem.shift != 0)

    @property
    def panel_elements(self) -> int:
        """Units of one packed panel of B, with the rows before them."""
        return (self.problem.units(self.problem.b_rows or self.problem.k) + self.start_rows) * self.nr

    @property
    def work(self) -> float:
        """Vector operations of one multiply-add, as seen by the arithmetic ports."""
        if self.problem.is_float:
            return 1.0 if self.fused else 2.0
        if self.problem.pairs:
            return 1.0 if self.dots else 1.5
        return 1.0 if self.problem.quads else 3.0

    @property
    def row_elements(self) -> int:
        """Units of a block of A in workspace, padded to whole cache lines."""
        if not self.problem.copies_rows:
            return 0
        line = CACHE_LINE // ELEMENT_BYTES[self.problem.dtype]
        return -(-(self.mc or self.problem.m) * self.problem.depth // line) * line

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace needed, all threads together: each has its own rows of A and panels of B."""
        panels = self.panel_elements * self.problem.tile_products * self.group
        copied = panels if self.b_source == "workspace" else 0
        return (self.row_elements + copied) * ELEMENT_BYTES[self.problem.dtype] * self.threads

    @property
    def combination_order(self) -> str:
        """How products are summed, for the kernel record."""
        terms = "pairs of k" if self.problem.is_float and self.problem.terms == 2 else "k"
        if self.k_split == 1:
            return f"ascending {terms}"
        return f"ascending {terms} in {self.k_split} strided sums, added pairwise"


def check(spec: GemmSpec) -> str | None:
    """None if the emitter can make code for `spec`, else what contradicts."""
    p = spec.problem
    if (reason := _tile_reason(spec)) is not None:
        return reason
    if spec.b_source == "direct" and p.b_strides[1] != 1:
        return "B is read in place but its rows are not contiguous"
    if spec.b_source == "direct" and p.terms > 1:
        rows = "quads" if p.quads else "pairs"
        return f"{rows} of rows of B are packed, not read in place"
    if spec.b_panel_type not in ("", p.b_element) or (spec.b_panel_type and spec.b_source != "packed"):
        return (
            "panels of B have the element type of B or of the sums, and only those packed ahead may be narrow"
        )
    if spec.b_source == "workspace" and spec.partition == "rows":
        return "threads pack the columns they own, so B in workspace cannot be shared by rows"
    if spec.group > 1 and (spec.b_source != "workspace" or p.products > 1 or p.copies_rows or spec.mc):
        return "groups of panels are packed for one product of all rows of a matrix"
    if (spec.partition == "none") != (spec.threads == 1):
        return "one thread has no partition, several need one"
    if spec.mc % spec.mr:
        return "the row block is not a multiple of the tile"
    return None


def _tile_reason(spec: GemmSpec) -> str | None:
    """Why a tile has no code."""
    p = spec.problem
    if (reason := lanes_reason(spec.lanes, p.dtype)) is not None:
        return reason
    if p.reads_units and spec.lanes not in DOT_LANES:
        return f"its {illegal('lanes', spec.lanes, OneOf(DOT_LANES))} for units of {p.terms} terms of K"
    if spec.mr * spec.nv * spec.k_split > MOST_SUMS:
        legal = f"{Whole(1, MOST_SUMS // (spec.nv * spec.k_split))} with {spec.nv} vectors and {spec.k_split} sums"
        return f"its {illegal('tile_rows', spec.mr, legal)}"
    return None
