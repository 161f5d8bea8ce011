"""What the wgmma kernel multiplies and how: the task, the variants that could do it, their cost. Plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Annotated

from aicf.backends.common.record import Entry, OneOf, Whole
from aicf.backends.cuda.families.gemm.problem import FEW_ROWS, FEW_ROWS_SHARE, Access, GemmProblem
from aicf.backends.cuda.families.records import BAND, CLUSTER_BLOCKS, STAGES
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch

K_BYTES = 128
"""Of K in a stage: the width of the shared-memory swizzle."""

CHUNK_BYTES = 64 * K_BYTES
"""64 rows (of A) or columns (of B) of a stage."""

LINE_BYTES = 2048
"""Shared memory in which a warp turns 16 rows x 64 columns of 16-bit results into whole lines."""

STATISTICS_ROWS = 64
"""Rows of a part of the statistics of columns, moments or sums: those of a warpgroup."""

SLAB_ROWS = 16
"""Rows of a warp, all of which have results or none."""

_REGISTERS = 65536
"""Of a multiprocessor."""

_SUMMED_WIDTH = 128
"""Most columns of a tile whose rows leave sums of columns: these are computed in a loop over 64 columns at a time, into
which all sums of the product go."""

_BLOCKS = Whole(1, CLUSTER_BLOCKS)


@dataclass(frozen=True)
class Tensor:
    """An operand as bulk tensor copies read it.

    Args:
        along_k: Whether neighbours in K are neighbours in memory; else neighbours in M (of A) or N (of B) are.
        rows: Its size in M or N.
        stride: Elements from one line to the next, along the dim that is not contiguous.
        batch: Elements from one matrix to the next, for every batch dim; 0 where shared.
    """

    along_k: bool
    rows: int
    stride: int
    batch: tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """Products with their epilogue.

    Args:
        problem: The products.
        extras: Operands of the epilogue besides the sums, of one product.
        output: Its result.
        early: Whether nothing writes B while the program runs, so that it may be read before the preceding kernels are
            done.
        functions: Functions such as erf that the epilogue calls for an element.
        more: Results after the first: of one product, all of its epilogue.
        row_totals: Reductions of the rows by the epilogue; 0 if it is pointwise. With some, the blocks of a cluster
            lie side by side and have whole rows.
        a_elements: Elements of A in memory, of a convolution: its windows overlap. None for rows times K of them.
        summed: Which operand, `a` or `b`, is summed over K beside the product, and the type of the sums.
        moments: Whether each `STATISTICS_ROWS` rows of results leave the mean of every column and the squares around
            it.
        column_sums: How many sums of every column they leave, of what is computed of results and of `beside`.
        beside: Operands that these sums read, over the dims of an epilogue.
        is_uneven: Whether K has another length in each matrix: `problem.k` is the mean.
    """

    problem: GemmProblem
    extras: tuple[Access, ...]
    output: Access
    early: bool
    functions: int = 0
    more: tuple[Access, ...] = ()
    row_totals: int = 0
    a_elements: int | None = None
    summed: tuple[str, str] | None = None
    moments: bool = False
    column_sums: int = 0
    beside: tuple[Access, ...] = ()
    is_uneven: bool = False

    @property
    def left(self) -> int:
        """Numbers of f32 that a part of `STATISTICS_ROWS` rows leaves for every column."""
        return 2 if self.moments else self.column_sums

    @property
    def convolves(self) -> bool:
        """Whether A is the pixels of a convolution."""
        return self.a_elements is not None

    @property
    def outputs(self) -> tuple[Access, ...]:
        """All results."""
        return (self.output, *self.more)

    def giving(self, output: int) -> Task:
        """The same with another one of its results as the first."""
        return replace(self, output=self.outputs[output])

    @property
    def matrices(self) -> int:
        """Result matrices: products times batch."""
        return self.problem.products * self.problem.batches

    @property
    def k_step(self) -> int:
        """Elements of K in a stage."""
        return K_BYTES // self.problem.element_bytes

    @property
    def k_steps(self) -> int:
        """Stages that K fills."""
        return ceil(self.problem.k / self.k_step)

    @property
    def gated(self) -> bool:
        """Whether the epilogue takes two sums, of two B."""
        return self.problem.factors == 2

    @property
    def a(self) -> Tensor:
        """The left operand."""
        p = self.problem
        return _tensor(p.m, p.k, p.a_strides[0], p.a_strides[1], p.a_batch, p.element_bytes)

    @property
    def b(self) -> Tensor:
        """Every right operand."""
        p = self.problem
        return _tensor(p.n, p.k, p.b_strides[1], p.b_strides[0], p.b_batch, p.element_bytes)

    def store(self, split: bool) -> str:
        """How results go to memory: 16-bit ones `packed` to 16 bytes, 8-bit ones in `bytes`, as many together, f32 and
        i32 in `vectors`, any one by one (`elements`)."""
        if ELEMENT_BYTES[self.output.dtype] == 1:
            line = 8 if split else 16
            return "bytes" if self.output.vector_bytes(line) and self.problem.n % line == 0 else "elements"
        if self.output.dtype not in ("f32", "i32"):
            return "packed" if self.output.vector_bytes(8) == 16 else "elements"
        together = 4 if split else 2
        fits = self.output.vector_bytes(together) == 4 * together
        return "vectors" if fits and self.problem.n % (8 if split else 2) == 0 else "elements"


def _tensor(
    rows: int, k: int, row_stride: int, k_stride: int, batch: tuple[int, ...], element_bytes: int
) -> Tensor:
    """The line that is contiguous is the one along K, unless only the other one is."""
    along_k = k_stride == 1 or k == 1
    if not along_k and row_stride != 1 and rows > 1:
        raise ValueError("neither dim of the operand is contiguous")
    lines, width = (rows, k) if along_k else (k, rows)
    stride = row_stride if along_k else k_stride
    whole = 16 // element_bytes
    return Tensor(along_k, rows, stride if lines > 1 else ceil(width / whole) * whole, batch)


def tensor_reason(task: Task) -> str | None:
    """Why bulk tensor copies cannot read the operands, None if they can."""
    p = task.problem
    lines = (
        ("A", (p.m, p.k), p.a_strides, p.a_batch, p.a_alignment),
        ("B", (p.n, p.k), (p.b_strides[1], p.b_strides[0]), p.b_batch, p.b_alignment),
    )
    for name, sizes, strides, batch, alignment in lines:
        if all(step != 1 and size > 1 for size, step in zip(sizes, strides, strict=True)):
            return f"{name} has no contiguous dim: its strides are {list(strides)}"
        tensor = task.a if name == "A" else task.b
        whole = 16 // p.element_bytes
        if tensor.stride % whole or tensor.stride < whole or any(step % whole for step in tensor.batch):
            steps = [tensor.stride, *tensor.batch]
            return f"the bulk tensor copy needs strides of whole 16 bytes, {name} has {steps} elements"
        if alignment % 16:
            return f"the bulk tensor copy needs {name} at a multiple of 16 bytes"
        if sum(step != 0 for step in batch) > 3:
            return f"{name} has more than three batch dims"
    return None


@dataclass(frozen=True)
class Spec:
    """One variant of the kernel. Of `tile_m` and `tile_n` only the pairs of `_TILES` and `_ROW_TILES` are legal.

    Args:
        tile_m: Rows of a tile: 64 for every consumer warpgroup.
        tile_n: Columns that a warpgroup sums: of a gated pair, both halves together.
        stages: Buffers of the ring.
        cluster_m, cluster_n: Blocks side by side that share operands.
        split_k: Blocks of a cluster that share a tile's K; then nothing else is shared.
        band: Units of rows that run together, see `tile_of` in the template.
        blocks_per_sm: Blocks that must fit on a multiprocessor.
    """

    tile_m: Annotated[int, Entry(OneOf((64, 128)), "tile")]
    tile_n: Annotated[int, Entry(OneOf((64, 128, 192, 256)), "tile")]
    stages: Annotated[int, Entry(STAGES, "ring")]
    cluster_m: Annotated[int, Entry(_BLOCKS, "cluster_shape")] = 1
    cluster_n: Annotated[int, Entry(_BLOCKS, "cluster_shape")] = 1
    split_k: Annotated[int, Entry(_BLOCKS, "cluster_shape")] = 1
    band: Annotated[int, Entry(BAND, "ring")] = 8
    blocks_per_sm: Annotated[int, Entry(Whole(1, 2), "ring")] = 1

    @property
    def consumers(self) -> int:
        """Multiplying warpgroups."""
        return self.tile_m // 64

    @property
    def threads(self) -> int:
        """Of a block."""
        return 128 * (1 + self.consumers)

    @property
    def a_sharers(self) -> int:
        """Blocks side by side of which each copies a part of A for all: one if their number leaves no even parts."""
        return self.cluster_n if self.tile_m % (8 * self.cluster_n) == 0 else 1

    @property
    def sharers(self) -> int:
        """Blocks that copy into each other's rings."""
        return self.cluster_m * self.a_sharers

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.cluster_m * self.cluster_n * self.split_k

    @property
    def a_bytes(self) -> int:
        """A's part of a stage."""
        return self.tile_m * K_BYTES

    @property
    def stage_bytes(self) -> int:
        """A and B of one stage."""
        return (self.tile_m + self.tile_n) * K_BYTES

    @property
    def pitch(self) -> int:
        """Bytes between rows of the partial sums that blocks of a split exchange."""
        return self.tile_n * 4 + 32

    @property
    def sums(self) -> int:
        """Accumulator registers of a thread."""
        return self.tile_n // 2

    @property
    def ring_bytes(self) -> int:
        """The buffers."""
        return self.stages * self.stage_bytes

    def line_bytes(self, task: Task) -> int:
        """Bytes of shared memory after the ring, through which results go: lines of them, or the parts of a split."""
        if self.split_k > 1:
            return ceil(self.tile_m * self.pitch / 128) * 128
        ways = (task.giving(index).store(False) for index in range(len(task.outputs)))
        packed = any(way in ("packed", "bytes") for way in ways)
        return self.consumers * 4 * LINE_BYTES if packed else 0

    @property
    def pair_bytes(self) -> int:
        """What all blocks of a row say of two rows, in whole vectors of 16 bytes."""
        return 16 * ceil(self.cluster_n / 2)

    def totals_bytes(self, task: Task) -> int:
        """Shared memory through which the blocks of a row exchange its totals."""
        return task.row_totals * (self.tile_m // 2) * self.pair_bytes if self.cluster_n > 1 else 0

    def statistics_bytes(self, task: Task) -> int:
        """Shared memory in which every warp leaves the means and squares, or the sums, of its rows."""
        return self.consumers * 4 * 4 * task.left * self.width(task)

    def around_bytes(self, task: Task) -> int:
        """Shared memory after the ring: lines, totals of rows, statistics of columns."""
        return self.line_bytes(task) + self.totals_bytes(task) + self.statistics_bytes(task)

    def shared_bytes(self, task: Task) -> int:
        """Dynamic shared memory: alignment, ring, what is after it, barriers."""
        return 1024 + self.ring_bytes + self.around_bytes(task) + 16 * self.stages

    def width(self, task: Task) -> int:
        """Result columns of a tile."""
        return self.tile_n // task.problem.factors

    def units(self, task: Task) -> tuple[int, int]:
        """Rows and columns of units: what a cluster does at a time."""
        rows = ceil(task.problem.m / (self.tile_m * self.cluster_m))
        return rows, ceil(task.problem.n / (self.width(task) * self.cluster_n))

    def all_units(self, task: Task) -> int:
        """Units of all matrices."""
        return prod(self.units(task)) * task.matrices

    def clusters(self, task: Task, arch: GpuArch) -> int:
        """Clusters of the grid: they stay for several units, unless their blocks exchange sums or totals of rows."""
        units = self.all_units(task)
        return units if self.split_k > 1 or task.row_totals else min(units, self.resident(arch))

    def resident(self, arch: GpuArch) -> int:
        """Clusters that run at a time."""
        return arch.multiprocessors * self.blocks_per_sm // self.cluster

    def part_steps(self, task: Task) -> int:
        """Stages that one block of a split multiplies; the last may have fewer."""
        return ceil(task.k_steps / self.split_k)


def register_share(spec: Spec) -> int:
    """Registers of a thread if all threads of a multiprocessor have as many."""
    return min(255, _REGISTERS // (spec.threads * spec.blocks_per_sm))


def registers(spec: Spec) -> tuple[int, int] | None:
    """Registers of a producer's and a consumer's thread, where an even share is too few for the sums. A legal spec with
    several blocks on a multiprocessor needs none."""
    if register_share(spec) >= spec.sums + 64:
        return None
    return {1: (40, 216), 2: (40, 232)}[spec.consumers]


# Operands of the epilogue that are read before the product

_OTHER_REGISTERS = 40, 104, 64
"""Of a consumer's thread, beside sums and what is held: of a pointwise epilogue, of one that calls functions, and of a
row program, which needs half as many again as there are sums."""


def varies_by_row(task: Task, access: Access) -> bool:
    """Whether an operand of the epilogue has more than one row of a matrix."""
    return any(access.strides[len(task.problem.batch) : -1])


def held_words(task: Task, spec: Spec) -> dict[int, int]:
    """Operands of the epilogue that are read before the product, as many as fit in registers, with their words of a
    fragment."""
    if spec.split_k > 1:
        return {}
    room = _registers_beside(task, spec) // (spec.width(task) // 8)
    chosen: dict[int, int] = {}
    for number, extra in enumerate(task.extras):
        words = 2 if varies_by_row(task, extra) else 1
        if extra.vector_bytes(2) == 4 and task.problem.n % 2 == 0 and sum(chosen.values()) + words <= room:
            chosen[number] = words
    return chosen


def _registers_beside(task: Task, spec: Spec) -> int:
    """Of a consumer's thread, for what is held."""
    base, calling, of_rows = _OTHER_REGISTERS
    if task.row_totals:
        return register_share(spec) - 3 * spec.sums // 2 - of_rows
    _, most = registers(spec) or (0, register_share(spec))
    return most - spec.sums - (calling if task.functions else base)


_TILES = ((128, 256), (128, 192), (128, 128), (64, 256), (128, 64), (64, 128), (64, 64))
_ROW_TILES = ((128, 128), (64, 192), (128, 64), (64, 128), (64, 64))
"""Of products with whole rows in a cluster: the row program needs about as many registers again as there are sums."""
"""Legal pairs of `tile_m` and `tile_n`: of a product, and of one with a row program after it."""


def spec_reason(spec: Spec, task: Task, arch: GpuArch) -> str | None:
    """Why `spec` cannot run `task` on `arch`, None if it can."""
    if (spec.tile_m, spec.tile_n) not in (_ROW_TILES if task.row_totals else _TILES):
        return f"there is no code for tiles of {spec.tile_m}x{spec.tile_n}"
    if task.column_sums and spec.tile_n > _SUMMED_WIDTH:
        return f"sums of columns leave no registers for more than {_SUMMED_WIDTH} columns of a tile"
    if spec.cluster > CLUSTER_BLOCKS:
        return f"{spec.cluster} blocks are more than a cluster holds"
    if spec.blocks_per_sm > 1 and register_share(spec) < spec.sums + 64:
        # What a producer gives up is not enough for the consumers of its block: they would wait for it forever.
        return f"{spec.blocks_per_sm} blocks have too few registers for {spec.sums} sums a thread"
    shared = spec.shared_bytes(task)
    if shared > arch.shared_bytes or (shared + 1024) * spec.blocks_per_sm > arch.shared_bytes + 1024:
        return f"{shared >> 10} KiB of shared memory a block are more than {arch.name} has"
    for name, tensor, length, share in (
        ("A", task.a, spec.tile_m, spec.tile_m // spec.a_sharers),
        ("B", task.b, spec.width(task), spec.tile_n // spec.cluster_m),
    ):
        if share % 8 or (not tensor.along_k and (length % 64 or share % 64)):
            return f"a tile of {length} lines of {name} does not come apart for its cluster"
        if max(length, share) % min(length, share):
            return f"a share of {share} lines of {name} crosses from one matrix into the other"
    if task.gated and spec.width(task) % 8:
        return f"half of {spec.tile_n} columns is no whole fragment"
    if task.row_totals and (spec.cluster != spec.cluster_n or spec.units(task)[1] > 1):
        return f"{task.problem.n} columns are too many for a cluster of up to 8 tiles of {spec.tile_n}"
    if spec.split_k == 1:
        if spec.line_bytes(task) and spec.width(task) % 64:
            return f"{spec.width(task)} columns are not whole lines of results"
        return None
    if task.more or task.summed or task.left:
        return "blocks that share a tile's K finish its rows with one result"
    if task.is_uneven:
        return "blocks do not share K where it has another length in each matrix"
    if spec.sharers > 1 or spec.tile_m % spec.split_k:
        return f"{spec.split_k} blocks cannot share the {spec.tile_m} rows of a tile"
    if (spec.split_k - 1) * spec.part_steps(task) >= task.k_steps:
        return f"k = {task.problem.k} is too short for {spec.split_k} parts"
    return None


# What is worth measuring

_FIXED_WIDTHS = (128, 192, 64)
"""The first has a tile for many rows as well as one for few."""
_CLUSTERS = ((2, 1), (1, 2), (1, 1))
_SPLITS = (2, 4, 8)
_DEPTHS = (4, 8)
"""Stages; as many of them as fit."""


def fixed_row_specs(task: Task, arch: GpuArch) -> list[Spec]:
    """Of the specs for products with row totals those that combine a row in one order, whatever the number of rows: all
    of one width, the first of `_FIXED_WIDTHS` that 64 rows have room for."""
    found = list(legal_specs(task, arch))
    least = (spec.tile_n for spec in found if spec.tile_m == 64)
    width = min(least, key=_FIXED_WIDTHS.index, default=0)
    return [spec for spec in found if spec.tile_n == width]


def legal_specs(task: Task, arch: GpuArch) -> Iterator[Spec]:
    """All specs worth measuring for `task` on `arch`, in a fixed order."""
    seen: set[Spec] = set()
    for tile_m, tile_n in _ROW_TILES if task.row_totals else _TILES:
        if tile_m >= 2 * max(64, task.problem.m) or tile_n >= 2 * task.problem.factors * max(
            64, task.problem.n
        ):
            continue
        for spec in _row_variants(tile_m, tile_n, task) if task.row_totals else _variants(tile_m, tile_n):
            for depth in _DEPTHS:
                fitted = _fitted(spec, depth, task, arch)
                if fitted is not None and fitted not in seen and spec_reason(fitted, task, arch) is None:
                    seen.add(fitted)
                    yield fitted


def _variants(tile_m: int, tile_n: int) -> Iterator[Spec]:
    """Clusters, orders and splits of a tile, with one stage."""
    for cluster_m, cluster_n in _CLUSTERS:
        for band in (8, 16, 32):
            yield Spec(tile_m, tile_n, 1, cluster_m, cluster_n, band=band)
    if tile_m == 64 and tile_n <= 128:
        yield Spec(tile_m, tile_n, 1, blocks_per_sm=2)
    for split in _SPLITS:
        yield Spec(tile_m, tile_n, 1, split_k=split)


def _row_variants(tile_m: int, tile_n: int, task: Task) -> Iterator[Spec]:
    """As many blocks side by side as a row has tiles, if a cluster may have as many."""
    blocks = ceil(task.problem.n / tile_n)
    if blocks <= CLUSTER_BLOCKS:
        yield Spec(tile_m, tile_n, 1, cluster_n=blocks)


def _fitted(spec: Spec, depth: int, task: Task, arch: GpuArch) -> Spec | None:
    """`spec` with up to `depth` stages, no more than it has use for; None if two do not fit, or if it differs from
    another only in an order that few units do not have."""
    room = (arch.shared_bytes + 1024) // spec.blocks_per_sm - 3072
    room -= spec.around_bytes(task)
    uses = spec.part_steps(task) * ceil(spec.all_units(task) / spec.clusters(task, arch))
    stages = min(depth, room // spec.stage_bytes, max(2, uses))
    if stages < 2 or (spec.band > 8 and spec.units(task)[0] <= spec.band // 2):
        return None
    return Spec(
        spec.tile_m,
        spec.tile_n,
        stages,
        spec.cluster_m,
        spec.cluster_n,
        spec.split_k,
        spec.band,
        spec.blocks_per_sm,
    )


# Cost prior

_START_US = 0.7
"""Launch, first copies, last stores."""
_PEAK_SHARE, _START_COLUMNS = 1.09, 24
"""Of the rated throughput, were a product infinitely wide; columns that it could do while it starts."""
_ALONE_SHARE = 0.85
"""Of that, for one warpgroup of a multiprocessor: nobody multiplies while it waits."""
_LATENCY_US = 1.2
"""From asking for a stage to having it."""
_CLUSTER_US = {1: 1.5, 2: 1.5, 4: 3.5}
"""Its blocks can only start together, and wait for each other at every stage; by bytes of an element, for f32 fills
twice as many stages."""
_REDUCE_US = 0.24, 4.0
"""For every block that shares a tile, and for 128 sums of every thread of a warpgroup, which they exchange."""
_CLUSTER_SHARE = 0.85
"""Of the multiprocessors, for clusters of more than two: they do not reach over the parts that a GPU consists of."""
_EPILOGUE_US = 0.4, 3.6
"""Of 128 sums of every thread of a warpgroup: to the result, and for every function on the way."""
_ELEMENTS_PER_US = 280e3
"""16-bit results that all multiprocessors store one by one: each is a part of a sector."""
_OVERLAP = 0.58
"""Power of the warpgroups of a multiprocessor by which their epilogues take longer: they fill each other's waits."""
_TURN_US, _CLUSTER_TURN_US = 0.5, 0.8
"""From a unit of a block to its next one, if nobody else on the multiprocessor multiplies meanwhile; and more for every
further block of a cluster that does not stay, for all of them start together."""
_SPLIT_REGISTERS = 96, 8
"""Of a thread that shares a tile's K, beside its sums, and for the indices of a batch."""
_ROW_SHARE = 0.6
"""Of the memory throughput, for what row programs read and write in all waves but the last: the blocks of a wave do so
together, and nobody multiplies meanwhile."""
_READ_US = 0.03
"""For every word that a thread of a row program reads after the product, in all waves but the last: few are under way
at a time."""
_SUM_US = 0.03
"""For every stage that is summed on the way: most of it is hidden, as shared memory and warps wait for tensor cores.
Reckoned from what they do, not measured."""
_STATISTICS_US = 0.5
"""Of 128 sums of every thread of a warpgroup, whose means and squares are taken: some 20 instructions for a vector of
eight elements, and two butterflies for each column of it. Reckoned from what they do, not measured."""
_BESIDE_US = 0.5
"""For 64 columns of a tile whose sums read something beside the results: a wait for memory that nothing hides.
Reckoned, not measured."""
_SWEEP_US, _MEET_US = 0.4, 0.7
"""For every total of a row: of 128 sums of every thread of a warpgroup, and of all blocks of the row meeting."""
_SHARED_GBS = 95.0
"""Into the shared memory of one multiprocessor."""
_READ_SHARE = {1: 1.8, 2: 1.8, 4: 1.13}
"""Of the L2 copy throughput, for reads alone, by bytes of an element."""
_BEHIND_SHARE = 0.05
"""Of the time of L2, that is seen even where something else takes longer."""
_SHARED_WINDOWS_US = 0.12
"""For every stage of windows that blocks of a cluster copy for each other, beyond that of a matrix."""
_BEHIND_MEMORY_SHARE = 0.25
"""Of the time that multiprocessors are busy with a convolution, that is seen even where memory takes longer: K is short
there, and a unit's epilogue comes after few stages. Both figures are fitted to layers of ResNet-50."""


def predicted_us(spec: Spec, task: Task, arch: GpuArch) -> float:
    """Microseconds: the waves of units, each the slowest of tensor cores, latency, L2 and shared memory and its
    epilogue, at least the time of memory, plus what is not hidden. Fitted to measurements on an H100, most of them
    inside a transformer: the previous kernel has just ended, the weights are not in L2."""
    p = task.problem
    left = p.m * p.k if task.a_elements is None else task.a_elements
    operands = p.element_bytes * p.batches * (left + p.k * p.n * p.factors * p.products)
    if p.m <= FEW_ROWS:
        operands /= FEW_ROWS_SHARE
    return overlapped_us(spec, task, arch, operands + _epilogue_bytes(task))


def overlapped_us(spec: Spec, task: Task, arch: GpuArch, moved: float) -> float:
    """The same of a task that moves so many bytes between memory and L2."""
    busy, memory = _busy_us(spec, task, arch), moved / (arch.bandwidth_gbs * 1e3)
    start = _START_US + _CLUSTER_US[task.problem.element_bytes] * (spec.sharers > 1)
    if task.convolves:
        return start + max(busy, memory) + _BEHIND_MEMORY_SHARE * min(busy, memory)
    return start + max(busy, memory)


def _busy_us(spec: Spec, task: Task, arch: GpuArch) -> float:
    """Of the multiprocessors: all waves, and what lies between them."""
    usable = int(arch.multiprocessors * (_CLUSTER_SHARE if spec.cluster > 2 else 1.0))
    beside = _beside(spec, task, arch)
    blocks, slots = spec.all_units(task) * spec.cluster, usable * beside
    together = min(beside, ceil(blocks / usable))
    wave = spec.part_steps(task) * _step_us(spec, task, arch, together, min(blocks, slots))
    per_store, per_function = _EPILOGUE_US
    stores = 1 if task.row_totals else len(task.outputs)  # those of row programs are in `_SWEEP_US`
    each = per_store * stores + per_function * task.functions + _STATISTICS_US * task.left / 2
    epilogue = each * spec.sums / (128 * spec.split_k)
    wave += _SUM_US * spec.part_steps(task) * (task.summed is not None)
    wave += epilogue * (spec.consumers * together) ** _OVERLAP
    wave += _BESIDE_US * spec.tile_n / 64 * bool(task.beside)
    if task.row_totals:
        wave += task.row_totals * (_SWEEP_US * spec.sums / 128 + _MEET_US * (spec.cluster_n > 1))
    if spec.split_k > 1:
        start, exchange = _REDUCE_US
        wave += start * spec.split_k + exchange * spec.sums * spec.consumers / 128
    waves = ceil(blocks / slots)
    turn = _turn_us(spec, task, together)
    if task.row_totals:
        around = _epilogue_bytes(task) / (arch.bandwidth_gbs * 1e3 * _ROW_SHARE * waves)
        turn += _READ_US * _late_words(task, spec) + around
    busy = waves * wave + (waves - 1) * turn
    if task.output.dtype not in ("f32", "i32") and task.store(spec.split_k > 1) == "elements":
        busy += task.problem.m * task.problem.n * task.matrices / _ELEMENTS_PER_US
    return busy


def _turn_us(spec: Spec, task: Task, together: int) -> float:
    """Between two units of a block, or from one block to the next one in its place, with `together` of them on a
    multiprocessor."""
    alone = _TURN_US if spec.consumers * together == 1 else 0.0
    stays = spec.split_k == 1 and not task.row_totals
    return alone if stays else _TURN_US + _CLUSTER_TURN_US * (spec.cluster - 1)


def _late_words(task: Task, spec: Spec) -> int:
    """Words of its own rows that a thread of a row program reads after the product."""
    held = held_words(task, spec)
    late = (extra for number, extra in enumerate(task.extras) if number not in held and extra.strides[-1])
    return spec.width(task) // 8 * sum(2 for extra in late if varies_by_row(task, extra))


def _epilogue_bytes(task: Task) -> float:
    """What the epilogues of all products read and write."""
    dims = task.problem.epilogue_dims
    moved = 0.0
    for access in (*task.extras, *task.beside, *task.outputs):
        elements = prod(size for size, step in zip(dims, access.strides, strict=True) if step)
        moved += elements * ELEMENT_BYTES[access.dtype]
    return moved * task.problem.products


def _beside(spec: Spec, task: Task, arch: GpuArch) -> int:
    """Blocks of a multiprocessor: those that stay, or, if K is split, those that fit."""
    if spec.split_k == 1:
        return spec.blocks_per_sm
    beside_sums, of_batch = _SPLIT_REGISTERS
    registers_each = spec.sums + beside_sums + (of_batch if task.problem.batch else 0)
    by_registers = _REGISTERS // (spec.threads * registers_each)
    return max(1, min(arch.shared_bytes // (spec.shared_bytes(task) + 1024), by_registers))


def _step_us(spec: Spec, task: Task, arch: GpuArch, together: int, running: int) -> float:
    """Of one stage of the `together` blocks of a multiprocessor, while `running` blocks read."""
    flops = (
        2.0 * spec.tile_m * spec.tile_n * (K_BYTES / 2) * together
    )  # a stage of TF32 or of integers takes as long as one of halves
    share = _PEAK_SHARE * spec.tile_n / (spec.tile_n + _START_COLUMNS)
    share *= _ALONE_SHARE if spec.consumers * together == 1 else 1.0
    multiply = flops / (arch.tensor_tflops * 1e6 / arch.multiprocessors * share)
    loaded = float(K_BYTES) * (spec.tile_m / spec.a_sharers + spec.tile_n / spec.cluster_m)
    copy = loaded * together / (_SHARED_GBS * 1e3)
    l2 = loaded * running / (arch.copy_l2_gbs * 1e3 * _READ_SHARE[task.problem.element_bytes])
    shared = _SHARED_WINDOWS_US if task.convolves and spec.sharers > 1 else 0.0
    return max(multiply, copy, l2, _LATENCY_US / spec.stages) + _BEHIND_SHARE * l2 + shared


def ranked_specs(task: Task, arch: GpuArch, fixed: bool = False) -> list[Spec]:
    """All legal specs, with `fixed` those of `fixed_row_specs`, by the prior the cheapest first; of equal ones that
    which leaves the next kernel more shared memory, then in the order of `legal_specs`."""
    found = fixed_row_specs(task, arch) if fixed else legal_specs(task, arch)
    return sorted(found, key=lambda spec: (predicted_us(spec, task, arch), spec.shared_bytes(task)))
