"""Every decision about a generated kernel, and what follows from it: strategy, vectors, threads, splits, launches.
`choice.py` takes them. Imports no code generator.

    pointwise   no reduction: a thread computes `unroll` vectors
    resident    rows: the threads of a row hold it in registers from phase to phase
    rows        rows too long for that: every phase reads the row again
    online_rows the same, where one phase takes a maximum and the sum of exponentials below it
    columns     the reduced dims are not the contiguous ones: a thread owns neighbouring points
    online_columns  the same, where one phase takes means and the squares around them
    tiles       pointwise, where an operand is contiguous along another dim than the result: through shared memory
    column_sums rows in registers, whose columns are combined too: blocks walk over rows with what they have of each
    scan_rows, scan_columns     prefix sums along the contiguous dim, or along another
    scan_chain  prefix sums along few long rows: each tile is a part, and a block waits for what those before it give

With `splits` > 1 each row or column is cut into parts, and every phase is a launch of its own: blocks write partial
results to the workspace, and the next launch combines them in ascending order. Before a scan, a launch computes the
totals of its parts; before a chain, one clears the workspace. Column sums are `splits` parts, one for each block that
walks, and a second launch combines them. With `cluster` > 1 the parts of a row or column are
blocks of one cluster, which combine their results through shared memory: all phases are one launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Annotated

from aicf.backends.common.loop_nest import LoopNest, accumulate_ops
from aicf.backends.common.record import Entry, OneOf, Whole, illegal, powers_of_two
from aicf.backends.cuda.families.loops.exponential_sums import exponential_sum_of
from aicf.backends.cuda.families.loops.moments import moments_of
from aicf.backends.cuda.families.loops.spaces import (
    SHARED_BYTES,
    TILE,
    partial_size,
    reduce_ops,
    reduces,
    row_bytes,
    scan_ops,
    tile_dim,
    tile_dims,
)
from aicf.backends.cuda.families.records import CLUSTER_BLOCKS
from aicf.dialects.emit_kernels import StoreOp

STRATEGIES = (
    *("pointwise", "resident", "column_sums", "rows", "online_rows", "columns", "online_columns", "tiles"),
    *("scan_rows", "scan_columns", "scan_chain"),
)

RESIDENT_WORDS = 36
"""Most 32-bit registers of a thread for the elements it holds."""
RESIDENT_THREADS = 1024
TILE_THREADS = 256
CHAIN_TILES = 65535
"""Most blocks along the second dim of a grid."""
MOST_VECTOR = 16
"""Elements of one byte in a piece of memory that one access takes."""
MOST_ELEMENTS = 256
"""Elements that a thread has in flight, each with code of its own: more than any strategy below asks for."""
MOST_POINTS = 32
"""The same where nothing is reduced."""


@dataclass(frozen=True)
class GeneratedSpec:
    """The decisions about one kernel.

    Args:
        strategy: One of `STRATEGIES`.
        vector: Neighbouring elements that one thread handles as one.
        threads: Of a block.
        lanes: Threads that share one row, or one vector of columns; 1 for pointwise.
        unroll: Vectors of a thread that are in flight together; all of its row if resident.
        splits: Blocks that share one row or column; those that walk over rows for sums of their columns.
        blocks_per_sm: Blocks that must fit on one multiprocessor: rows that are read again live from many blocks side
            by side, not from many registers.
        late: Whether operands that all rows share are loaded where they are used, not with the row: fewer registers.
        cluster: Blocks of one cluster that share columns, or a row.
    """

    strategy: Annotated[str, Entry(OneOf(STRATEGIES))]
    vector: Annotated[int, Entry(Whole(1, MOST_VECTOR))]
    threads: Annotated[int, Entry(powers_of_two(32, RESIDENT_THREADS))]
    lanes: Annotated[int, Entry(powers_of_two(1, RESIDENT_THREADS))]
    unroll: Annotated[int, Entry(Whole(1, MOST_ELEMENTS))]
    splits: Annotated[int, Entry(Whole(1, CHAIN_TILES))]
    blocks_per_sm: Annotated[int, Entry(Whole(1, RESIDENT_THREADS))] = 1
    late: Annotated[bool, Entry()] = False
    cluster: int = 1

    def problem(self, nest: LoopNest) -> str | None:
        """Why these decisions do not fit `nest`; None if they do."""
        most = MOST_POINTS if self.strategy in ("pointwise", "tiles") else MOST_ELEMENTS
        if not (unroll := Whole(1, most // self.vector)).holds(self.unroll):
            return f"its {illegal('unroll', self.unroll, unroll)} with vectors of {self.vector}"
        if not (blocks := Whole(1, 2048 // self.threads)).holds(self.blocks_per_sm):
            return f"its {illegal('blocks_per_sm', self.blocks_per_sm, blocks)} with {self.threads} threads"
        if self.cluster > 1 and not self._may_be_cluster():
            return (
                f"a cluster has at most {CLUSTER_BLOCKS} blocks of whole warps that share columns, or a row in "
                "registers, and nothing else"
            )
        if self.threads % self.lanes:
            return "the threads of a row must be a power of two that divides the block"
        if self.strategy.startswith("scan_") != bool(scan_ops(nest)):
            return "scan strategies are for kernels with prefix sums, and only for them"
        if self.lanes > 32 and not self.by_columns and self.lanes != self.threads:
            return "a row of more than one warp has a block of its own"
        if (self.strategy in ("pointwise", "tiles")) != (not reduces(nest)):
            return "pointwise strategies are for kernels without reduction, and only for them"
        if self.strategy == "scan_chain" and (
            self.span(nest) != self.lanes * self.vector * self.unroll
            or self.splits > CHAIN_TILES
            or any(partial_size(op) > 4 for op in scan_ops(nest))
        ):
            return "a link of a chain is one tile, and what it gives fits a word with a flag"
        if (self.strategy == "column_sums") != bool(accumulate_ops(nest.kernel)):
            return "column sums are for kernels that combine over their rows, and only for them"
        if self.strategy == "column_sums" and self.splits < 2:
            return "sums of columns come in two parts or more"
        if self.strategy == "column_sums" and exchange_bytes(nest, self) > EXCHANGE_BYTES:
            return "what the rows of a block add up does not fit its shared memory"
        if self.holds_rows and (self.lanes * self.vector * self.unroll * self.cluster < nest.reduce_size):
            return "the threads of a row do not hold it"
        if self.splits > 1 and self.strategy in ("pointwise", "resident", "online_rows", "tiles"):
            return f"strategy '{self.strategy}' does not split"
        if self.strategy == "online_rows" and exponential_sum_of(nest.kernel) is None:
            return "online rows are for kernels that sum exponentials below a maximum of f32"
        if self.by_columns and self.cluster == 1 and board_bytes(nest, self) > EXCHANGE_BYTES:
            return "what the threads of its columns add up does not fit its shared memory"
        if self.strategy == "online_columns" and moments_of(nest.kernel) is None:
            return "online columns are for kernels that sum f32, and then the squares around the mean"
        if self.strategy == "tiles" and (
            tile_dim(nest) is None or self.vector * self.unroll * self.threads != TILE * TILE
        ):
            return "the block does not fill a tile, or there is nothing to transpose"
        if self.has_ends(nest) and (len(nest.reduce_dims) != 1 or self.lanes < 2 * self.vector):
            return "elements beside whole vectors need a row of one dim, and a thread each"
        dim = self.vector_dim(nest)
        flat = self.strategy == "pointwise" and len(nest.dims) == 1
        ragged = flat or self.has_ends(nest)
        if self.vector > 1 and (dim is None or (nest.dims[dim].size % self.vector and not ragged)):
            return "the vector does not divide its dim"
        return None

    def _may_be_cluster(self) -> bool:
        across = self.threads // self.lanes
        if self.strategy == "resident":
            return across == 1
        return (
            self.strategy == "columns"
            and self.splits == 1
            and self.threads % 32 == 0
            and across <= 32
            and across * self.vector <= self.threads
        )

    def has_ends(self, nest: LoopNest) -> bool:
        """Whether whole vectors leave elements of a row, see `ends.py`."""
        return self.reads_again and nest.reduce_size % self.vector != 0

    @property
    def reads_again(self) -> bool:
        """Whether every phase reads its rows from memory."""
        return self.strategy in ("rows", "online_rows")

    def sweeps(self, nest: LoopNest) -> int:
        """How often a row is read."""
        if not self.reads_again:
            return 1
        phases = sum(nest.kernel.sweeps_reduce_space(phase) for phase in nest.kernel.phases)
        return phases - (self.strategy == "online_rows")

    @property
    def by_columns(self) -> bool:
        """Whether a thread owns neighbouring points whose reduce space other threads share."""
        return self.strategy in ("columns", "online_columns")

    @property
    def holds_rows(self) -> bool:
        """Whether rows stay in registers from phase to phase."""
        return self.strategy in ("resident", "column_sums")

    @property
    def by_rows(self) -> bool:
        """Whether the threads of a row share its reduce space in vectors."""
        return self.reads_again or self.holds_rows or self.strategy in ("scan_rows", "scan_chain")

    def vector_dim(self, nest: LoopNest) -> int | None:
        """The dim of the nest along which vectors lie."""
        dims = nest.reduce_dims if self.by_rows else nest.parallel_dims
        return dims[-1] if dims else None

    def span(self, nest: LoopNest) -> int:
        """Elements of the reduce space that one of the blocks of a row or column visits."""
        step = self.lanes * (self.vector if self.by_rows else 1)
        return -(-nest.reduce_size // (self.splits * self.cluster * step)) * step

    def exchanged_words(self, nest: LoopNest) -> int:
        """Words that the blocks of one scan of a chain exchange: one a tile, and one a group of tiles."""
        return nest.parallel_size * (self.splits + -(-self.splits // self.threads))

    def blocks(self, nest: LoopNest) -> int:
        """Blocks over the parallel space."""
        points = nest.parallel_size
        match self.strategy:
            case "pointwise":
                return -(-(points // self.vector) // (self.threads * self.unroll))
            case "tiles":
                dims = (*tile_dims(nest), len(nest.dims) - 1)
                return prod(
                    -(-dim.size // TILE) if i in dims else dim.size for i, dim in enumerate(nest.dims)
                )
            case "column_sums":
                return self.splits
            case "columns" | "online_columns" | "scan_columns":
                return -(-points * self.lanes // (self.vector * self.threads))
            case _:
                return -(-points * self.lanes // self.threads)

    def launches(self, nest: LoopNest) -> list[tuple[range, int]]:
        """Per launch the phases it runs, and the blocks that share a row or column."""
        phases = nest.kernel.phases
        if self.splits == 1:
            return [(range(len(phases)), 1)]
        joined = self.joined_phase(nest)
        if scan_ops(nest):
            return [(range(len(phases)), self.splits)] * 2
        found: list[tuple[range, int]] = []
        for number, phase in enumerate(phases):
            if number == joined:
                continue
            if nest.kernel.sweeps_reduce_space(phase):
                found.append((range(number, number + 1), self.splits))
            elif any(isinstance(op, StoreOp) for op in phase.body.block.ops):
                found.append((range(number, number + 1), 1))
        return found

    def joined_phase(self, nest: LoopNest) -> int | None:
        """The phase of columns whose work the one before it does."""
        found = moments_of(nest.kernel) if self.strategy == "online_columns" else None
        return None if found is None else found.phase + 1

    def grids(self, nest: LoopNest) -> list[tuple[int, int, int]]:
        """Of each launch."""
        if self.strategy == "scan_chain":
            clears = -(-self.exchanged_words(nest) * len(scan_ops(nest)) // self.threads)
            return [(clears, 1, 1), (self.blocks(nest), self.splits, 1)]
        if self.strategy == "column_sums":
            combining = len(accumulate_ops(nest.kernel)) * -(-nest.reduce_size // SUM_COLUMNS)
            return [(self.splits, 1, 1), (combining, 1, 1)]
        return [(self.blocks(nest), splits * self.cluster, 1) for _, splits in self.launches(nest)]

    def combination_order(self, nest: LoopNest) -> str:
        """How reductions are combined, for the kernel record."""
        if not reduces(nest):
            return "none"
        if scan_ops(nest):
            return self._scan_order()
        own = "a thread its elements ascending"
        if self.strategy == "column_sums":
            rows, lanes = self.threads // self.lanes, self.threads // SUM_COLUMNS
            return (
                f"{own}, then {self.lanes} threads by butterflies; columns: {rows} rows of a block each "
                f"{self.splits * rows} apart, then those ascending, then {self.splits} parts strided over {lanes} "
                "threads, those ascending"
            )
        if self.has_ends(nest):
            own = "a thread its elements of whole vectors ascending, then one beside them"
        if self.strategy == "online_rows":
            own += ", sums of exponentials shrunk as the maximum grows"
        if self.cluster > 1 and self.by_rows:
            return f"{own}, then {self.lanes} threads by butterflies, then {self.cluster} blocks ascending"
        if self.cluster > 1:
            warps = self.threads // 32
            within = f"then {self.lanes // warps} threads of a warp by butterflies, {warps} warps ascending"
            return f"{own}, {within}, then {self.cluster} blocks ascending"
        if self.strategy == "online_columns":
            own += ", which move its mean"
        across = self._column_order() if self.by_columns else f"then {self.lanes} threads by butterflies"
        parts = f", then {self.splits} parts strided over the threads, likewise" if self.splits > 1 else ""
        return f"{own}, {across}{parts}"

    def _column_order(self) -> str:
        """How the threads of a column come together."""
        together = max(1, 32 * self.lanes // self.threads)
        if together == 1:
            return f"then {self.lanes} threads ascending"
        return f"then {together} threads of a warp by butterflies, {self.lanes // together} warps ascending"

    def _scan_order(self) -> str:
        parts = (
            f"; after the totals of the {self.splits} preceding parts, in order" if self.splits > 1 else ""
        )
        if self.strategy == "scan_chain":
            parts = (
                f"; after the preceding tiles of {self.threads}, by butterflies, and those groups in order"
            )
        if self.strategy == "scan_columns":
            return f"each point in the order of the scan{parts}"
        group = min(self.lanes, 32)
        return (
            f"prefixes of {self.vector} elements, over {group} threads by doubling, {self.unroll} of those in order, "
            f"{self.lanes // group} warps in order, tiles of {self.lanes * self.vector * self.unroll} in order{parts}"
        )


SUM_COLUMNS = 8
"""Columns that a block of the second launch combines: 32 bytes of each part come together."""
EXCHANGE_BYTES = SHARED_BYTES - (8 << 10)
"""Most shared memory for that of which `exchange_bytes` speaks; threads combine what rows have in some more."""


_PARTIAL_WORDS = 48
"""Registers of a thread for totals of parts that are on their way."""


def partial_bytes(nest: LoopNest, spec: GeneratedSpec) -> int:
    """Workspace for the partial results of all reductions."""
    if spec.splits == 1:
        return 0
    if spec.strategy == "scan_chain":
        return 8 * spec.exchanged_words(nest) * len(scan_ops(nest))
    if spec.strategy == "column_sums":
        return spec.splits * nest.reduce_size * sum(map(partial_size, accumulate_ops(nest.kernel)))
    ops = (*reduce_ops(nest), *scan_ops(nest))
    return sum(spec.splits * nest.parallel_size * partial_size(op) for op in ops)


def board_bytes(nest: LoopNest, spec: GeneratedSpec) -> int:
    """Shared memory in which the threads of columns leave what they have of all reductions: a row for each warp, or for
    each thread of a column where a warp has no column twice."""
    across = spec.threads // spec.lanes
    rows = spec.threads // max(32, across) if spec.lanes > 1 else 0
    return rows * across * spec.vector * sum(map(partial_size, reduce_ops(nest)))


def parts_together(nest: LoopNest, spec: GeneratedSpec) -> int:
    """Parts of a row or column that a thread loads before it combines the first of them: all it has to, if registers
    hold them."""
    words = sum(map(partial_size, reduce_ops(nest))) // 4 * (1 if spec.by_rows else spec.vector)
    return max(1, min(_PARTIAL_WORDS // max(1, words), -(-spec.splits // spec.lanes)))


def exchange_bytes(nest: LoopNest, spec: GeneratedSpec) -> int:
    """Shared memory in which the rows of a block add up a vector of columns of each thread."""
    return spec.threads * spec.vector * sum(map(partial_size, accumulate_ops(nest.kernel)))


def block_bytes(nest: LoopNest, spec: GeneratedSpec) -> int:
    """Bytes that one block of a cluster reads in a sweep."""
    columns = 1 if spec.by_rows else spec.vector * (spec.threads // spec.lanes)
    return spec.span(nest) * columns * row_bytes(nest)
