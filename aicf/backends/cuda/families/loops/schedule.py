"""Every decision about a generated kernel: strategy, vectors, threads, splits. Imports no code generator.

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated

from aicf.backends.common.loop_nest import LoopNest, accumulate_ops, index_ops, reduces_innermost
from aicf.backends.common.record import Entry, OneOf, Whole, illegal, powers_of_two
from aicf.backends.cuda.families.loops.ends import vector_with_ends
from aicf.backends.cuda.families.loops.exponential_sums import exponential_sum_of
from aicf.backends.cuda.families.loops.moments import moments_of
from aicf.backends.cuda.families.records import CLUSTER_BLOCKS
from aicf.backends.cuda.target import ELEMENT_BYTES, PIECE_BYTES, GpuArch
from aicf.dialects.emit_kernels import AccumulateOp, ReduceOp, ScanOp, StoreOp, scans_of
from aicf.dialects.types import element_of

STRATEGIES = (
    *("pointwise", "resident", "column_sums", "rows", "online_rows", "columns", "online_columns", "tiles"),
    *("scan_rows", "scan_columns", "scan_chain"),
)

RESIDENT_WORDS = 36
"""Most 32-bit registers of a thread for the elements it holds."""
RESIDENT_THREADS = 1024
TILE = 64
"""Elements along each side of a tile."""
TILE_THREADS = 256
SHARED_BYTES = 48 << 10
"""Static shared memory of a block."""
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
        if self.strategy == "column_sums" and exchange_bytes(nest, self) > _EXCHANGE_BYTES:
            return "what the rows of a block add up does not fit its shared memory"
        if self.holds_rows and (self.lanes * self.vector * self.unroll * self.cluster < nest.reduce_size):
            return "the threads of a row do not hold it"
        if self.splits > 1 and self.strategy in ("pointwise", "resident", "online_rows", "tiles"):
            return f"strategy '{self.strategy}' does not split"
        if self.strategy == "online_rows" and exponential_sum_of(nest.kernel) is None:
            return "online rows are for kernels that sum exponentials below a maximum of f32"
        if self.by_columns and self.cluster == 1 and board_bytes(nest, self) > _EXCHANGE_BYTES:
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


def reduces(nest: LoopNest) -> bool:
    """Whether the kernel has a reduce space, be it of one point."""
    return bool(nest.kernel.reduce_sizes)


def reduce_ops(nest: LoopNest) -> list[ReduceOp]:
    """All reductions in order."""
    return [op for phase in nest.kernel.phases for op in phase.body.block.ops if isinstance(op, ReduceOp)]


def scan_ops(nest: LoopNest) -> list[ScanOp]:
    """All scans in order."""
    return [op for phase in nest.kernel.phases for op in scans_of(phase.body.block.ops)]


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


def partial_size(op: ReduceOp | ScanOp | AccumulateOp) -> int:
    """Bytes of a partial result: a register's, i1 as i32."""
    return max(4, ELEMENT_BYTES[element_of(op.value.type).name])


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


# The choice


def choose(nest: LoopNest, offsets: Sequence[int], arch: GpuArch, fixed: bool = False) -> GeneratedSpec:
    """The decisions for `nest`.

    Args:
        offsets: Elements from an aligned address to the start of each operand, inputs first.
        fixed: Whether the order of combination may depend on reduced sizes alone.
    """
    if not reduces(nest):
        return _pointwise(nest, offsets, arch)
    if accumulate_ops(nest.kernel):
        return _column_sums(nest, offsets, arch)
    rows = _contiguous_bytes(nest, nest.reduce_dims) >= _contiguous_bytes(nest, nest.parallel_dims)
    if scan_ops(nest):
        if fixed:
            return _fixed_scan(nest, offsets, arch)
        return _scan_rows(nest, offsets, arch) if rows else _scan_columns(nest, offsets, arch)
    if fixed:
        return _fixed_rows(nest, arch) if reduces_innermost(nest.kernel) else _fixed_columns(nest)
    if rows:
        return _by_rows(nest, offsets, arch)
    return _by_columns(nest, offsets, arch)


def _contiguous_bytes(nest: LoopNest, dims: Sequence[int]) -> int:
    """Bytes of the operands that are contiguous along the last of `dims`."""
    if not dims:
        return 0
    return sum(
        access_bytes(nest, number)
        for number, _ in enumerate(nest.accesses)
        if nest.dims[dims[-1]].strides[number] == 1
    )


def access_bytes(nest: LoopNest, number: int) -> int:
    """Bytes that an access touches, each once."""
    touched = prod(dim.size for dim in nest.dims if dim.strides[number])
    return touched * ELEMENT_BYTES[nest.accesses[number].dtype]


def _vector(nest: LoopNest, dim: int, offsets: Sequence[int], ragged: bool = False) -> int:
    """Elements of a vector along `dim`: 16 bytes of the widest operand that is contiguous and aligned along it. Sums of
    columns are no such operands, nor is what has one element for a column among others: it is touched once."""
    beside = {nest.inputs + op.output.value.data for op in accumulate_ops(nest.kernel)}
    if nest.reduce_dims and dim in nest.parallel_dims and (cells := _of_cells(nest)):
        beside |= set(range(len(nest.accesses))) - set(cells)
    contiguous = [n for n, stride in enumerate(nest.dims[dim].strides) if stride == 1 and n not in beside]
    if not contiguous:
        return 1
    vector = PIECE_BYTES // max(ELEMENT_BYTES[nest.accesses[n].dtype] for n in contiguous)
    while vector > 1 and not any(_aligned(nest, n, dim, offsets[n], vector) for n in contiguous):
        vector //= 2
    size = nest.dims[dim].size
    while vector > 1 and (size % vector and not (ragged and size >= vector)):
        vector //= 2
    return vector


def _of_cells(nest: LoopNest) -> list[int]:
    """The accesses that have elements along the reduced dims."""
    return [
        n for n in range(len(nest.accesses)) if any(nest.dims[dim].strides[n] for dim in nest.reduce_dims)
    ]


def _aligned(nest: LoopNest, number: int, dim: int, offset: int, vector: int) -> bool:
    others = (d.strides[number] for index, d in enumerate(nest.dims) if index != dim)
    return all(value % vector == 0 for value in (offset + nest.accesses[number].offset, *others))


def _pointwise(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    if not nest.dims:
        return GeneratedSpec("pointwise", 1, 32, 1, 1, 1)
    vector = _vector(nest, len(nest.dims) - 1, offsets, ragged=len(nest.dims) == 1)
    if tile_dim(nest) is not None:
        return GeneratedSpec("tiles", vector, TILE_THREADS, 1, TILE * TILE // (TILE_THREADS * vector), 1)
    vectors = -(-nest.parallel_size // vector)
    widest = max(ELEMENT_BYTES[access.dtype] for access in nest.accesses)
    threads = 256
    unroll = max(1, 32 // (vector * widest))
    while unroll > 1 and vectors < 4 * arch.multiprocessors * threads * unroll:
        unroll //= 2
    while threads > 64 and vectors < arch.multiprocessors * threads:
        threads //= 2
    return GeneratedSpec("pointwise", vector, threads, 1, unroll, 1)


def tile_dim(nest: LoopNest) -> int | None:
    """The dim other than the last along which operands are contiguous, where outputs are along the last; else None.

    Only where enough bytes move that way, and both dims fill a good part of a tile; never where the kernel asks for its
    coordinates or reads at indices, which tiles do not know.
    """
    if reduces(nest) or len(nest.dims) < 2 or nest.indexed or index_ops(nest.kernel):
        return None
    last = nest.dims[-1]
    if any(stride != 1 for stride in last.strides[nest.inputs :]) or last.size < TILE // 4:
        return None
    for dim in reversed(range(len(nest.dims) - 1)):
        tiled = tiled_inputs(nest, dim)
        words = sum(max(4, ELEMENT_BYTES[nest.accesses[number].dtype]) for number in tiled)
        if nest.dims[dim].size >= TILE // 4 and tiled and words * TILE * (TILE + 1) <= SHARED_BYTES:
            return dim
    return None


def tile_dims(nest: LoopNest) -> tuple[int, ...]:
    """`tile_dim` as a tuple, empty if there is none."""
    dim = tile_dim(nest)
    return () if dim is None else (dim,)


def tiled_inputs(nest: LoopNest, dim: int) -> list[int]:
    """The inputs that are contiguous along `dim` and move along the last dim."""
    return [
        number
        for number in range(nest.inputs)
        if nest.dims[dim].strides[number] == 1 and nest.dims[-1].strides[number] > 1
    ]


def _power_of_two(at_least: int) -> int:
    return 1 << max(0, at_least - 1).bit_length()


def element_words(nest: LoopNest, all_move: bool = False) -> float:
    """Most registers that one element of the reduce space takes between two phases: inputs read later, kept values.

    With `all_move` every input counts as having elements of its own for each row, also if there is one row.
    """
    kernel = nest.kernel
    most = 0.0
    for boundary in range(len(kernel.phases)):
        later = set(kernel.phases[boundary:])
        words = 0.0
        for argument in kernel.body.block.args:
            used = any(use.operation.parent_op() in later for use in argument.uses)
            moves = all_move or nest_moves(nest, argument.index)
            if used and moves and kernel.reads_reduce_space(argument):
                words += ELEMENT_BYTES[nest.accesses[argument.index].dtype] / 4
        for phase in kernel.phases[:boundary]:
            for result in phase.results:
                if kernel.varies(result) and any(use.operation.parent_op() in later for use in result.uses):
                    words += max(1.0, ELEMENT_BYTES[element_of(result.type).name] / 4)
        most = max(most, words)
    return most


def nest_moves(nest: LoopNest, number: int) -> bool:
    """Whether an access moves over the parallel space: each row has elements of its own."""
    return any(nest.dims[dim].strides[number] for dim in nest.parallel_dims)


def _by_rows(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    size, points = nest.reduce_size, nest.parallel_size
    vector = _vector(nest, nest.reduce_dims[-1], offsets) if nest.reduce_dims else 1
    held = max(vector, int(RESIDENT_WORDS / max(0.25, element_words(nest))) // vector * vector)
    busy = -(-size // (RESIDENT_THREADS * vector)) * vector
    if busy <= held and not (points * 8 < arch.multiprocessors and size > 16384):
        return _resident(size, points, vector, held, arch)
    if size % (wider := vector_with_ends(nest, offsets)):
        vector = max(vector, wider)
    threads = 512 if size >= 512 * vector * 4 else max(32, _power_of_two(-(-size // vector)) // 2)
    splits = 1
    if points < arch.multiprocessors:
        wanted = 2 * arch.multiprocessors // points
        splits = max(1, min(wanted, size // (threads * vector * 4)))
    if splits > 1 and (cluster := _row_of_cluster(size, vector, held, arch)) is not None:
        return cluster
    online = splits == 1 and exponential_sum_of(nest.kernel) is not None
    strategy = "online_rows" if online else "rows"
    return GeneratedSpec(strategy, vector, threads, threads, 4, splits, blocks_per_sm=1024 // threads)


def _resident(size: int, points: int, vector: int, held: int, arch: GpuArch) -> GeneratedSpec:
    """One warp or part of one for short rows, a block for long ones; more threads a row where rows are few."""
    vectors = -(-size // vector)
    few = points < 4 * arch.multiprocessors
    target = max(1, min(held, 2 * vector if few else 4 * vector) // vector)
    if size <= 1024 and -(-vectors // 32) * vector <= min(held, 32):
        lanes = min(32, _power_of_two(-(-vectors // max(1, 4 // vector))))
    else:
        lanes = min(RESIDENT_THREADS, max(64, _power_of_two(-(-vectors // target))))
    threads = lanes
    while threads < 128 and lanes <= 32 and points * lanes >= 2 * threads * arch.multiprocessors:
        threads *= 2
    chunks = -(-vectors // lanes)
    return GeneratedSpec(
        "resident", vector, max(32, threads), lanes, chunks, 1, late=lanes > 32 and chunks * vector > 12
    )


SUM_COLUMNS = 8
"""Columns that a block of the second launch combines: 32 bytes of each part come together."""
_EXCHANGE_BYTES = SHARED_BYTES - (8 << 10)
"""Most shared memory for that of which `exchange_bytes` speaks; threads combine what rows have in some more."""
_SUM_WORDS = {32: 176, 128: 64, 256: 64, 512: 64}
"""For each number of threads that a row may have, the most registers of one for its elements and the sums of their
columns: where a warp has a row nobody waits at barriers, which is worth fewer warps."""
_OTHER_WORDS = 48
"""Registers of a thread for the rest."""
_SM_WORDS = 64 << 10
"""Registers of a multiprocessor."""
_SM_THREADS = 512
"""Threads of a multiprocessor that walk over rows: enough to keep memory busy, and few parts to combine."""


def _column_sums(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    """As many blocks as are on the GPU together, each of which walks over rows: the fewer, the fewer parts."""
    vector = _vector(nest, nest.reduce_dims[-1], offsets) if nest.reduce_dims else 1
    spec = _walking(nest, vector, arch)
    while spec.vector > 1 and exchange_bytes(nest, spec) > _EXCHANGE_BYTES:
        spec = _walking(nest, spec.vector // 2, arch)
    return spec


def _walking(nest: LoopNest, vector: int, arch: GpuArch) -> GeneratedSpec:
    """The same with vectors of so many elements."""
    vectors, words = -(-nest.reduce_size // vector), vector * words_with_sums(nest)
    fitting = (lanes for lanes, held in _SUM_WORDS.items() if -(-vectors // lanes) * words <= held)
    lanes = min(next(fitting, max(_SUM_WORDS)), max(1, _power_of_two(vectors)))
    chunks, threads = -(-vectors // lanes), max(128, lanes)
    together = int(_SM_WORDS / (threads * (chunks * words + _OTHER_WORDS)))
    blocks_per_sm = max(1, min(together, _SM_THREADS // threads))
    rows = -(-nest.parallel_size // (threads // lanes))
    splits = max(2, min(blocks_per_sm * arch.multiprocessors, rows))
    return GeneratedSpec(
        "column_sums", vector, threads, lanes, chunks, splits, blocks_per_sm=blocks_per_sm, late=True
    )


def words_with_sums(nest: LoopNest) -> float:
    """Registers that an element of a row takes between two phases, with that of the next row and what is summed of its
    column."""
    moving = (n for n in _inputs_of_cells(nest) if nest_moves(nest, n))
    ahead = sum(ELEMENT_BYTES[nest.accesses[number].dtype] for number in moving)
    return element_words(nest) + (ahead + sum(map(partial_size, accumulate_ops(nest.kernel)))) / 4


def holds_sums(nest: LoopNest, spec: GeneratedSpec) -> bool:
    """Whether a thread has registers for its part of a row and the sums of its columns."""
    held = _SUM_WORDS[32 if spec.lanes <= 32 else max(_SUM_WORDS)]
    return spec.unroll * spec.vector * words_with_sums(nest) <= held


def _row_of_cluster(size: int, vector: int, held: int, arch: GpuArch) -> GeneratedSpec | None:
    """A row in the registers of a cluster: one launch that reads it once, where parts of it would take a launch for
    each phase. None where it does not fit."""
    vectors = -(-size // (CLUSTER_BLOCKS * vector))
    lanes = min(RESIDENT_THREADS, max(64, _power_of_two(-(-vectors // 2))))
    chunks = -(-vectors // lanes)
    if not arch.has_clusters or size % vector or chunks * vector > held:
        return None
    late = chunks * vector > 12
    return GeneratedSpec("resident", vector, lanes, lanes, chunks, 1, late=late, cluster=CLUSTER_BLOCKS)


_LINE_BYTES = 128
"""What a block has of each row where columns are few: they come together in a line of the cache."""
_ALONE_READS = {"cluster": 64 << 10, "parts": 128 << 10}
"""Most bytes that a block reads by itself before blocks of a cluster share columns, and before they come in parts,
which take another launch."""
_PARTIAL_WORDS = 48
"""Registers of a thread for totals of parts that are on their way."""
_PARTS_THREADS = 512
_PARTS_WORDS = 40
"""Registers of a thread for what is in flight where columns come in parts: 16 warps keep memory busy so."""


def _by_columns(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    """Wide blocks where they fill the GPU; else narrow ones, which share columns where those are long."""
    vector = _vector(nest, nest.parallel_dims[-1], offsets)
    strategy = "columns" if moments_of(nest.kernel) is None else "online_columns"
    across = min(32, _power_of_two(-(-nest.parallel_size // vector)))
    threads = 256
    while threads > 64 and threads // across > nest.reduce_size:
        threads //= 2
    blocks = -(-nest.parallel_size // (vector * across))
    if blocks >= 2 * arch.multiprocessors:
        return _in_shared_memory(nest, GeneratedSpec(strategy, vector, threads, threads // across, 4, 1))
    spec = _narrow_columns(nest, strategy, vector, arch)
    is_long = block_bytes(nest, replace(spec, splits=1)) > _ALONE_READS["cluster"]
    return (is_long and arch.has_clusters and _cluster_of(nest, spec, arch)) or spec


def _narrow_columns(nest: LoopNest, strategy: str, vector: int, arch: GpuArch) -> GeneratedSpec:
    """As few parts as fill the GPU, since every block of a later launch reads what all parts left of its columns."""
    line = max(1, _LINE_BYTES // (vector * _narrowest(nest)))
    across = min(_power_of_two(-(-nest.parallel_size // vector)), line)
    blocks = -(-nest.parallel_size // (vector * across))
    wanted = 1
    if nest.reduce_size * across * vector * _row_bytes(nest) > _ALONE_READS["parts"]:
        wanted = arch.multiprocessors // blocks
        wanted = wanted if wanted > 1 else max(1, 2 * arch.multiprocessors // blocks)
    threads = _PARTS_THREADS
    while threads > max(64, across) and wanted * 2 * (threads // across) > nest.reduce_size:
        threads //= 2
    lanes = threads // across
    splits = max(1, min(wanted, nest.reduce_size // (2 * lanes)))
    rows = -(-nest.reduce_size // (splits * lanes))
    turns = -(-rows // max(1, 4 * _PARTS_WORDS // (vector * max(1, _row_bytes(nest)))))
    return _in_shared_memory(nest, GeneratedSpec(strategy, vector, threads, lanes, -(-rows // turns), splits))


def _in_shared_memory(nest: LoopNest, spec: GeneratedSpec) -> GeneratedSpec:
    """With fewer threads to a column if what they add up does not fit."""
    while spec.threads > max(32, spec.threads // spec.lanes) and board_bytes(nest, spec) > _EXCHANGE_BYTES:
        spec = replace(spec, threads=spec.threads // 2, lanes=spec.lanes // 2)
    return spec


_CLUSTER_READS = 256 << 10
"""Most bytes that a block of a cluster reads by itself: about what another launch takes."""
_CLUSTER_WORDS = 64
"""Registers of a thread for what is in flight."""


def _cluster_of(nest: LoopNest, parts: GeneratedSpec, arch: GpuArch) -> GeneratedSpec | None:
    """What would be launches over `parts` of columns as one launch of clusters; None where columns are too few to fill
    the GPU that way and too long, or too short, or where more is written than one element a column.

    Blocks have 128 bytes of each row, and where that leaves most of the GPU idle 64: those come together.
    """
    if any(nest.kernel.writes_reduce_space(output) for output in range(len(nest.kernel.out_maps))):
        return None
    threads, across = 256, min(8, parts.threads // parts.lanes)
    vectors = nest.parallel_size // parts.vector
    while across * parts.vector * _narrowest(nest) > 64 and -(-vectors // across) * CLUSTER_BLOCKS < (
        arch.multiprocessors // 3
    ):
        across //= 2
    lanes, cluster = threads // across, CLUSTER_BLOCKS
    while cluster > 1 and cluster * lanes > nest.reduce_size:
        cluster //= 2
    spec = GeneratedSpec("columns", parts.vector, threads, lanes, 1, 1, cluster=cluster)
    if cluster == 1 or block_bytes(nest, spec) > _CLUSTER_READS or spec.problem(nest) is not None:
        return None
    words = max(1, parts.vector * _row_bytes(nest) // 4)
    steps = min(-(-spec.span(nest) // lanes), max(1, _CLUSTER_WORDS // words))
    return replace(spec, unroll=1 << (steps.bit_length() - 1))


def _inputs_of_cells(nest: LoopNest) -> list[int]:
    """The inputs that have elements along the reduced dims."""
    return [n for n in range(nest.inputs) if any(nest.dims[dim].strides[n] for dim in nest.reduce_dims)]


def _narrowest(nest: LoopNest) -> int:
    """Bytes of the narrowest element along the reduced dims; the widest there is where all follows from coordinates."""
    return min((ELEMENT_BYTES[nest.accesses[number].dtype] for number in _inputs_of_cells(nest)), default=8)


def _row_bytes(nest: LoopNest) -> int:
    """Bytes that one column has in each row."""
    return sum(ELEMENT_BYTES[nest.accesses[number].dtype] for number in _inputs_of_cells(nest))


def block_bytes(nest: LoopNest, spec: GeneratedSpec) -> int:
    """Bytes that one block of a cluster reads in a sweep."""
    columns = 1 if spec.by_rows else spec.vector * (spec.threads // spec.lanes)
    return spec.span(nest) * columns * _row_bytes(nest)


def _scan_rows(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    """Part of a warp for short rows, a block for long ones; parts of a row where rows are few."""
    size, points = nest.reduce_size, nest.parallel_size
    vector = _vector(nest, nest.reduce_dims[-1], offsets) if nest.reduce_dims else 1
    vectors = -(-size // vector)
    if vectors <= 4 * 32:
        lanes = min(32, _power_of_two(-(-vectors // 2)))
        threads = 32
        while threads < 256 and points * lanes >= 2 * threads * arch.multiprocessors:
            threads *= 2
        unroll = -(-vectors // lanes)
        return GeneratedSpec("scan_rows", vector, threads, lanes, unroll, 1, blocks_per_sm=1024 // threads)
    threads = min(256, _power_of_two(-(-vectors // 4)))
    splits = 1
    if points < 2 * arch.multiprocessors:
        if (chain := _scan_chain(nest, vector)) is not None:
            return chain
        splits = max(1, min(-(-4 * arch.multiprocessors // points), size // (threads * vector * 4 * 4)))
    return GeneratedSpec("scan_rows", vector, threads, threads, 4, splits, blocks_per_sm=1024 // threads)


_CHAINS = ((32 << 20, 512, 32), (4 << 20, 512, 16), (0, 256, 16))
"""Elements of all rows from which on blocks have so many threads, and those so many elements. Measured on an H100: one
row of 64 Mi f32 takes 236 us so (256 threads 237, with half the elements 267), of 16 Mi 71 (77), of 1 Mi 7.2; two
readings take 285, 76 and 8.4."""


def _scan_chain(nest: LoopNest, vector: int) -> GeneratedSpec | None:
    """A chain of tiles that reads rows once; None where values do not fit its words, or there are no more tiles than
    steps of one, which the last tile needs to be as long as the others."""
    _, threads, elements = next(
        entry for entry in _CHAINS if nest.parallel_size * nest.reduce_size >= entry[0]
    )
    unroll = max(1, min(8, elements // vector))
    tiles = -(-nest.reduce_size // (threads * vector * unroll))
    if not unroll <= tiles <= CHAIN_TILES or any(partial_size(op) > 4 for op in scan_ops(nest)):
        return None
    return GeneratedSpec("scan_chain", vector, threads, threads, unroll, tiles, blocks_per_sm=1024 // threads)


def _scan_columns(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    """A thread for each vector of points, narrower ones and more in flight where points are few; parts of a column
    only where those leave most of the GPU idle: another reading of everything costs more than half of it."""
    vector, threads, points = _vector(nest, nest.parallel_dims[-1], offsets), 128, nest.parallel_size
    while vector > 1 and points // vector < arch.multiprocessors * 512:
        vector //= 2
    while threads > 32 and points // vector < threads * 2 * arch.multiprocessors:
        threads //= 2
    unroll, splits = (8 if points // vector >= arch.multiprocessors * 512 else 16), 1
    if points // vector < arch.multiprocessors * 96:
        splits = max(1, min(arch.multiprocessors * 256 // points, nest.reduce_size // 64))
    return GeneratedSpec("scan_columns", vector, threads, 1, unroll, splits)


# The choice where the order of combination may not depend on the parallel space


def _fixed_scan(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    """Threads to a row by its length alone, as in `_fixed_rows`; columns are scanned in one order in any case."""
    if not reduces_innermost(nest.kernel):
        return replace(_scan_columns(nest, offsets, arch), splits=1)
    size = nest.reduce_size
    lanes = min(256, _power_of_two(-(-size // 4)))
    return GeneratedSpec("scan_rows", 1, max(32, lanes), lanes, 4, 1)


FIXED_ACROSS = 32
"""Neighbouring columns of a block."""


def _fixed_rows(nest: LoopNest, arch: GpuArch) -> GeneratedSpec:
    """Threads to a row by its length alone, as if rows were few; elements one by one, because how far vectors are
    aligned depends on strides between rows, which a single row has not."""
    size = nest.reduce_size
    held = max(1, int(RESIDENT_WORDS / max(0.25, element_words(nest, all_move=True))))
    if -(-size // RESIDENT_THREADS) <= held:
        return _resident(size, 1, 1, held, arch)
    threads = 512 if size >= 512 * 4 else max(32, _power_of_two(size) // 2)
    return GeneratedSpec("rows", 1, threads, threads, 4, 1)


def _fixed_columns(nest: LoopNest) -> GeneratedSpec:
    """Threads to a column by its length alone."""
    threads = 256
    while threads > 64 and threads // FIXED_ACROSS > nest.reduce_size:
        threads //= 2
    return GeneratedSpec("columns", 1, threads, threads // FIXED_ACROSS, 4, 1)
