"""Descriptor of `cuda.attention_wgmma`, attention out of bulk tensor copies on Hopper: what it can run, at what
predicted cost, with which record. Imports no code generator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from xdsl.ir import Attribute

from aicf.backends.common.record import Entry, OneOf, RecordCodec
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.problem import (
    CACHED,
    AttentionProblem,
    bulk_copy_reason,
    common_record,
    heads_as_queries,
    mask_clocks,
    problem_of,
    read_scale,
)
from aicf.backends.cuda.families.attention.tensor.kernel import TensorAttention
from aicf.backends.cuda.families.records import STAGES, Shape
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr

LINE_BYTES = 2048
"""Shared memory through which a warp stores its results: 16 rows of 64."""


@dataclass(frozen=True)
class Spec:
    """One variant of the kernel.

    Args:
        groups: Warpgroups that multiply, 64 queries each.
        block_n: Keys of a tile.
        stages: Tiles in flight of keys, and of values.
        turns: 1 if the warpgroups take turns at multiplying, else 0.
    """

    groups: Annotated[int, Entry(OneOf((1, 2, 3)))]
    block_n: Annotated[int, Entry(OneOf((64, 128)))]
    stages: Annotated[int, Entry(STAGES)]
    turns: Annotated[int, Entry(OneOf((0, 1)))]

    @property
    def block_m(self) -> int:
        """Queries of a unit."""
        return 64 * self.groups

    @property
    def threads(self) -> int:
        """Of a block: one warpgroup copies."""
        return 128 * (1 + self.groups)

    @property
    def blocks_per_sm(self) -> int:
        """Blocks that share a multiprocessor and its registers."""
        return 2 if self.groups == 1 else 1

    @property
    def registers(self) -> tuple[int, int]:
        """Of a thread that copies, and of one that multiplies."""
        return {1: (40, 216), 2: (24, 240), 3: (24, 160)}[self.groups]


@dataclass(frozen=True)
class Layout:
    """Shared memory of a block, in bytes from a multiple of 1024: queries, the rings of keys and of values, the lines
    that results go through, barriers."""

    query_bytes: int
    key_bytes: int
    value_bytes: int
    keys: int
    values: int
    lines: int
    barriers: int
    total: int


def layout_of(problem: AttentionProblem, spec: Spec) -> Layout:
    """Where everything lies."""
    queries = 2 * spec.block_m * problem.d
    key_bytes, value_bytes = 2 * spec.block_n * problem.d, 2 * spec.block_n * problem.dv
    values = queries + spec.stages * key_bytes
    lines = values + spec.stages * value_bytes
    barriers = lines + 4 * spec.groups * LINE_BYTES
    total = 1024 + barriers + 16 * (1 + 2 * spec.stages)
    return Layout(queries, key_bytes, value_bytes, queries, values, lines, barriers, total)


_OTHER_REGISTERS = 32
"""Beside those of the matrices: addresses, maxima and sums."""


def mask_registers(problem: AttentionProblem, spec: Spec) -> int:
    """That hold the mask of a tile: two halves in each, or one f32. Those of two rows are counted where all share one,
    too: a tile that fits depends on the number of queries in no way then."""
    return 0 if problem.mask is None else spec.block_n // 2 * ELEMENT_BYTES[problem.mask[1]] // 4


def spec_reason(problem: AttentionProblem, spec: Spec, arch: GpuArch) -> str | None:
    """Why `spec` cannot run `problem` on `arch`, None if it can."""
    method = f"{spec.groups} warpgroups and tiles of {spec.block_n} keys"
    if spec.turns and spec.groups == 1:
        return "one warpgroup takes no turns"
    # Scores, weights, which are half as wide, sums, and the mask of the scores.
    registers = spec.block_n // 2 + spec.block_n // 4 + problem.dv // 2 + _OTHER_REGISTERS
    registers += mask_registers(problem, spec)
    if registers > spec.registers[1]:
        return f"{method} need {registers} registers a thread, {spec.registers[1]} are there"
    total = layout_of(problem, spec).total
    if spec.blocks_per_sm * (total + 1024) > arch.shared_bytes + 1024:
        return f"{method} in {spec.stages} stages need {total >> 10} KiB of shared memory a block"
    return None


def specs(problem: AttentionProblem, arch: GpuArch, fixed: bool = False) -> Iterator[Spec]:
    """The variants that make sense for `problem` on `arch`; with `fixed` only those that combine keys in one order,
    whatever the number of queries and batch elements: in the widest tiles that there is room for."""
    found = [spec for spec in _variants() if spec_reason(problem, spec, arch) is None]
    widest = max((spec.block_n for spec in found), default=0)
    wanted = [spec for spec in found if spec.block_n == widest] if fixed else found
    # Warpgroups without queries are a waste; where no fewer have room for the tile, they are the order's price.
    few = [spec for spec in wanted if problem.m > 64 * (spec.groups - 1)]
    yield from few or wanted


def _variants() -> Iterator[Spec]:
    """Those worth measuring."""
    for groups in (2, 3, 1):
        for block_n in (128, 64):
            for stages in (2, 3):
                for turns in (0, 1) if groups > 1 else (0,):
                    yield Spec(groups, block_n, stages, turns)


# Cost prior: clocks of a Hopper multiprocessor, fitted to order the variants; measurements replace it.

_CLOCK_MHZ = 1400.0
"""What is left of the clock at the power limit, where products and exponentials run side by side."""
_START_CLOCKS, _UNIT_CLOCKS, _DIAGONAL_CLOCKS = 2500.0, 700.0, 1200.0
"""Of a block until its first product, of a unit until its results are stored, and of what a causal one hides."""
_TILE_CLOCKS = 400.0
"""A tile's barriers and reductions over the lanes of a row."""
_SCORE_CLOCKS, _PRODUCT_CLOCKS = 0.085, 1 / 2048
"""A score's exponential and the rest of its softmax; a multiplication."""
_MASK_CLOCKS = (0.023, 0.076)
"""More for a score to which a mask is added: with one row for all queries, and with a row for each."""


def predicted_us(problem: AttentionProblem, spec: Spec, arch: GpuArch) -> float:
    """Microseconds: the units that the busiest block does, one after the other. A tile is bound by its own products and
    softmax in a row, or by what all warpgroups of the multiprocessor want of the one or the other."""
    seen = problem.tiles_seen(spec.block_m, spec.block_n)
    units = len(seen) * problem.count
    blocks = arch.multiprocessors * spec.blocks_per_sm
    laps = -(-units // blocks)
    sharing = spec.groups * (spec.blocks_per_sm if units > arch.multiprocessors else 1)
    scores = 64 * spec.block_n
    products = scores * (problem.d + problem.dv) * _PRODUCT_CLOCKS
    softmax = scores * (_SCORE_CLOCKS + mask_clocks(problem, _MASK_CLOCKS))
    tile = max(products + softmax, sharing * max(products, softmax)) + _TILE_CLOCKS
    # Two blocks hide each other's stores.
    unit = _UNIT_CLOCKS / spec.blocks_per_sm
    if problem.past is None:
        return (_START_CLOCKS + laps * (unit + seen[0] * tile)) / _CLOCK_MHZ
    # Short units fill the gaps that long ones leave, nearly; where all run at once, the longest are waited for.
    tiles = max(seen[-1], 1.1 * sum(seen) * problem.count / blocks)
    return (_START_CLOCKS + laps * (unit + _DIAGONAL_CLOCKS) + tiles * tile) / _CLOCK_MHZ


@lru_cache(maxsize=1024)
def ranked_specs(problem: AttentionProblem, arch: GpuArch, fixed: bool = False) -> tuple[Spec, ...]:
    """All `specs`, by the prior the cheapest first, equals in their order."""
    return tuple(
        sorted(specs(problem, arch, fixed), key=lambda spec: round(predicted_us(problem, spec, arch), 3))
    )


# Records

_CODEC = RecordCodec(Spec)
read_spec = _CODEC.read


def units_of(problem: AttentionProblem, spec: Spec) -> int:
    """Units of all batch elements."""
    return -(-problem.m // spec.block_m) * problem.count


# Descriptor


class WgmmaAttentionKernel(TensorAttention[Spec]):
    """Attention for f16 and bf16, see `wgmma/template.py`."""

    id = "cuda.attention_wgmma"
    library = "flash_v3"
    version = 3
    simplicity = 3
    codec = _CODEC
    ranked = staticmethod(ranked_specs)
    us = staticmethod(predicted_us)
    reason = staticmethod(spec_reason)

    def arch_reason(self, arch: GpuArch) -> str | None:
        if arch.has_tma and arch.has_wgmma:
            return None
        return f"warpgroup products and bulk tensor copies need sm_90a, the target is {arch.name}"

    def operands_reason(self, work: Workload, problem: AttentionProblem) -> str | None:
        return _shape_reason(problem, read_scale(work.attrs), work.batch_invariant)

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: a warpgroup has whole rows of scores, and hidden tiles add zeros."""
        return f"by warpgroups, keys in tiles of {self.schedule(work, target).block_n}, in order"

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        spec = schedule
        problem, arch = self.tiled(problem_of(work)), arch_named(target.arch.data)
        blocks = min(units_of(problem, spec), arch.multiprocessors * spec.blocks_per_sm)
        shape = Shape((blocks, 1, 1), (spec.threads, 1, 1), (1, 1, 1), layout_of(problem, spec).total)
        return common_record(work, arch, shape, "keys in tiles, in order") | _CODEC.entries(spec)


def _shape_reason(problem: AttentionProblem, scale: float, fixed: bool) -> str | None:
    """Why sizes or strides have no code here. With `fixed` the sizes of batch and queries do not count: strides are
    judged as if there were several of each."""
    if problem.d not in (64, 128) or problem.dv not in (64, 128):
        return (
            f"queries and values of {problem.d} and {problem.dv} elements are no panels of 64: 64 or 128 each"
        )
    if scale <= 0:
        return f"scores are multiplied by {scale}, here by something above 0: use cuda.attention"
    batch, m = (tuple(2 for _ in problem.batch), 2) if fixed else (problem.batch, problem.m)
    if not problem.result.moves_in_eights(m, batch):
        return "rows of the result are not neighbours that start at multiples of 16 bytes: use cuda.attention"
    for name, rows, count in (
        ("queries", problem.q, m),
        ("keys", problem.k, problem.n),
        ("values", problem.v, problem.n),
    ):
        if (reason := bulk_copy_reason(rows, count, batch)) is not None:
            return f"{reason} of the {name}: copy them first"
    return None


class CachedWgmmaKernel(WgmmaAttentionKernel):
    """The same over a cache, as for a part of a prompt: tiles of keys after the first that no query of a unit sees, by
    a position that is an operand, are not copied. Of one token for each text, heads that share keys are one unit."""

    id = "cuda.cached_attention_wgmma"
    version = 2
    kinds = frozenset({CACHED})

    def tiled(self, problem: AttentionProblem) -> AttentionProblem:
        return heads_as_queries(problem)


KERNELS = (WgmmaAttentionKernel(), CachedWgmmaKernel())
"""The kernels of this family."""
