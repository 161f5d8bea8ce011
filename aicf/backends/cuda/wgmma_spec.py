"""What the wgmma kernel multiplies and how: problem, tile, ring, cluster, split; shared memory and grid. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

K_STEP = 64
"""Elements of K in a stage: 128 bytes, the width of the shared-memory swizzle."""

CHUNK_BYTES = 64 * K_STEP * 2
"""64 rows (of A) or columns (of B) of a stage."""

LINE_BYTES = 2048
"""Shared memory in which a warp turns 16 rows x 64 columns of 16-bit results into whole lines."""

STORES = ("packed", "pairs", "elements")
"""Ways of the results to memory: 16-bit in whole lines, f32 in pairs, anything one by one."""


@dataclass(frozen=True)
class Matrix:
    """An operand that bulk tensor copies read.

    Args:
        along_k: Whether neighbours in K are neighbours in memory; else neighbours in M (of A) or N (of B) are.
        stride: Elements from one row to the next, along the dim that is not contiguous.
        batch: Elements from one matrix to the next, for every batch dim; 0 where shared.
    """

    along_k: bool
    stride: int
    batch: tuple[int, ...] = ()


@dataclass(frozen=True)
class Problem:
    """`products` products of one A with equal-shaped B matrices, or one gated pair.

    Args:
        dtype: `f16` or `bf16`, of A and B.
        m, n, k: Sizes.
        batch: Sizes of the batch dims.
        a, b: Operands; all B lie alike.
        products: Number of products with their own B, extra operands and output.
        gated: Whether the epilogue takes two sums, of two B.
        store: One of `STORES`.
        early: Whether B is never written, so that it may be read before the preceding kernels are done.
    """

    dtype: str
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    batch: tuple[int, ...] = ()
    products: int = 1
    gated: bool = False
    store: str = "packed"
    early: bool = False

    @property
    def matrices(self) -> int:
        """Result matrices: products times batch."""
        return self.products * prod(self.batch)

    @property
    def k_steps(self) -> int:
        """Stages that K fills."""
        return -(-self.k // K_STEP)


@dataclass(frozen=True)
class Spec:
    """One variant of the kernel.

    Args:
        tile_m: Rows of a tile: 64 for every consumer warpgroup.
        tile_n: Columns that a warpgroup sums: of a gated pair, both halves together.
        stages: Buffers of the ring.
        cluster_m, cluster_n: Blocks side by side that share operands.
        split_k: Blocks of a cluster that share a tile's K; then nothing else is shared.
        band: Units of rows that run together, see `tile_of` in the template.
        blocks_per_sm: Blocks that must fit on a multiprocessor.
    """

    tile_m: int
    tile_n: int
    stages: int
    cluster_m: int = 1
    cluster_n: int = 1
    split_k: int = 1
    band: int = 8
    blocks_per_sm: int = 1

    @property
    def consumers(self) -> int:
        """Multiplying warpgroups."""
        return self.tile_m // 64

    @property
    def threads(self) -> int:
        """Of a block."""
        return 128 * (1 + self.consumers)

    @property
    def sharers(self) -> int:
        """Blocks that copy into each other's rings."""
        return self.cluster_m * self.cluster_n

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.sharers * self.split_k

    @property
    def a_bytes(self) -> int:
        """A's part of a stage."""
        return self.tile_m * K_STEP * 2

    @property
    def stage_bytes(self) -> int:
        """A and B of one stage."""
        return (self.tile_m + self.tile_n) * K_STEP * 2

    @property
    def pitch(self) -> int:
        """Bytes between rows of the partial sums that blocks of a split exchange."""
        return self.tile_n * 4 + 32

    @property
    def sums(self) -> int:
        """Accumulator registers of a thread."""
        return self.tile_n // 2

    def ring_bytes(self) -> int:
        """The ring, or what later takes its place."""
        ring = self.stages * self.stage_bytes
        if self.split_k == 1:
            return ring
        return max(ring, -(-self.tile_m * self.pitch // 1024) * 1024)

    def shared_bytes(self, problem: Problem) -> int:
        """Dynamic shared memory: alignment, ring, lines, barriers."""
        lines = self.consumers * 4 * LINE_BYTES if self.staged(problem) else 0
        return 1024 + self.ring_bytes() + lines + 16 * self.stages

    def staged(self, problem: Problem) -> bool:
        """Whether results go through shared memory."""
        return problem.store == "packed" and self.split_k == 1

    def width(self, problem: Problem) -> int:
        """Result columns of a tile."""
        return self.tile_n // 2 if problem.gated else self.tile_n

    def units(self, problem: Problem) -> tuple[int, int]:
        """Rows and columns of units: what a cluster does at a time."""
        rows = -(-problem.m // (self.tile_m * self.cluster_m))
        return rows, -(-problem.n // (self.width(problem) * self.cluster_n))

    def clusters(self, problem: Problem, multiprocessors: int) -> int:
        """Clusters of the grid: persistent, unless K is split."""
        units = prod(self.units(problem)) * problem.matrices
        if self.split_k > 1:
            return units
        return min(units, multiprocessors * self.blocks_per_sm // self.cluster)

    def part_steps(self, problem: Problem) -> int:
        """Stages that one block of a split multiplies; the last may have fewer."""
        return -(-problem.k_steps // self.split_k)
