"""The decisions of `cuda.attention_backward_wgmma`: its warpgroups and stages, where everything lies in shared memory,
and what that is predicted to take. Plain data.

No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Annotated

from aicf.backends.common.record import Entry, OneOf, RecordCodec
from aicf.backends.cuda.families.attention.problem import AttentionProblem, mask_clocks
from aicf.backends.cuda.target import GpuArch

TILE = 64
"""Rows that are walked over at a time, and rows of a warpgroup."""
STATE_BYTES = 12
"""Three numbers of f32 that say of a query what the second launch needs."""


@dataclass(frozen=True)
class Spec:
    """One variant of the kernel.

    Args:
        query_groups: Warpgroups of a block in the launch that walks over the keys.
        key_groups: Warpgroups of a block in the launch that walks over the queries.
        stages: Tiles in flight.
    """

    query_groups: Annotated[int, Entry(OneOf((1, 2)))]
    key_groups: Annotated[int, Entry(OneOf((1, 2)))]
    stages: Annotated[int, Entry(OneOf((2, 3)))]


CODEC = RecordCodec(Spec)
read_spec = CODEC.read


@dataclass(frozen=True)
class Phase:
    """One of the two launches.

    Args:
        is_rows: Whether it is the first one, whose blocks hold queries and walk over keys.
        held, streamed: Rows that blocks share out, and rows that each walks over.
        d, dv: Elements of a query or key, and of a value.
        groups: Warpgroups of a block.
        stages: Tiles in flight.
        has_full_mask: Whether there is a mask with a row for each query.
    """

    is_rows: bool
    held: int
    streamed: int
    d: int
    dv: int
    groups: int
    stages: int
    has_full_mask: bool

    @property
    def threads(self) -> int:
        """Of a block."""
        return 128 * self.groups

    @property
    def block(self) -> int:
        """Rows of a block."""
        return 64 * self.groups

    @property
    def blocks(self) -> int:
        """Of a batch element."""
        return -(-self.held // self.block)

    @property
    def total(self) -> int:
        """Registers of results."""
        return self.d // 2 if self.is_rows else (self.d + self.dv) // 2

    @property
    def registers(self) -> int:
        """Of a thread, about: scores and D, these in pairs to be multiplied, results, and the rest."""
        states, weights = (_STATE_REGISTERS, 1) if self.is_rows else (0, 2)
        mask = _MASK_REGISTERS if self.has_full_mask else 0
        return TILE + TILE // 4 * weights + self.total + states + mask + _OTHER_REGISTERS

    @property
    def blocks_per_sm(self) -> int:
        """Blocks that share a multiprocessor: the compiler must leave registers for as many as have shared memory."""
        by_registers = 65536 // (self.threads * self.registers)
        return max(1, min(by_registers, _SHARED_BYTES // (self.shared_bytes + 1024)))

    # Shared memory, in bytes from a multiple of 1024. Results pass through the room of the first held rows.

    @property
    def held2(self) -> int:
        """Where the second held rows begin, after the first ones."""
        return 2 * self.block * self.d

    @property
    def tiles(self) -> int:
        """Where the stages begin."""
        return self.held2 + 2 * self.block * self.dv

    @property
    def states(self) -> int:
        """Where the states of queries begin in a stage, after its rows."""
        return 2 * TILE * (self.d + self.dv)

    @property
    def state_bytes(self) -> int:
        """Of the states that a tile brings."""
        return 0 if self.is_rows else TILE * STATE_BYTES

    @property
    def stage(self) -> int:
        """One stage, whole units of 1024."""
        return self.states + (0 if self.is_rows else 1024)

    @property
    def barriers(self) -> int:
        """Where barriers begin: of the held rows, and of each stage."""
        return self.tiles + self.stages * self.stage

    @property
    def shared_bytes(self) -> int:
        """All, with what aligns it."""
        return 1024 + self.barriers + 8 * (1 + self.stages)


_SHARED_BYTES = 228 << 10
"""Of a multiprocessor with warpgroup products; each block takes 1024 more than it asks for."""
_STATE_REGISTERS, _MASK_REGISTERS, _OTHER_REGISTERS = 8, 8, 8
"""Beside those of the matrices: maxima and sums; lines of a mask; addresses, for which the compiler finds most room in
the matrices."""


def phases(problem: AttentionProblem, spec: Spec) -> tuple[Phase, Phase]:
    """The two launches, in order."""
    m, n, d, dv = problem.m, problem.n, problem.d, problem.dv
    has_full_mask = problem.mask is not None and problem.mask[0].row != 0
    return (
        Phase(True, m, n, d, dv, spec.query_groups, spec.stages, has_full_mask),
        Phase(False, n, m, d, dv, spec.key_groups, spec.stages, has_full_mask),
    )


def padded_queries(problem: AttentionProblem) -> int:
    """Queries of a batch element, in whole tiles: so many states it has in the workspace."""
    return -(-problem.m // TILE) * TILE


def workspace_bytes(problem: AttentionProblem) -> int:
    """The states of all queries."""
    return problem.count * padded_queries(problem) * STATE_BYTES


def spec_reason(problem: AttentionProblem, spec: Spec, arch: GpuArch) -> str | None:
    """Why `spec` cannot run `problem` on `arch`, None if it can."""
    for phase, name in zip(phases(problem, spec), ("queries", "keys"), strict=True):
        method = f"{phase.block} {name} of {problem.d} and {problem.dv} elements"
        if phase.registers > 255:
            return f"{method} need {phase.registers} registers a thread: use cuda.attention_backward"
        if phase.shared_bytes > arch.shared_bytes:
            return f"{method} do not fit in the shared memory of {arch.name}"
    return None


def specs(problem: AttentionProblem, arch: GpuArch) -> Iterator[Spec]:
    """The variants that make sense. All combine sums in one order."""
    for query_groups in (1, 2):
        for key_groups in (1, 2):
            for stages in (2, 3):
                spec = Spec(query_groups, key_groups, stages)
                if spec_reason(problem, spec, arch) is None:
                    yield spec


# Cost prior: it orders the variants; measurements replace it.

_START_US = 4.0
"""Of each launch."""
_CLOCK_MHZ = 1500.0
_PRODUCT_CLOCKS, _SCORE_CLOCKS = 1 / 2048, 0.06
"""A multiplication; an exponential and the arithmetic about it."""
_MASK_CLOCKS = (0.023, 0.076)
"""More for a score to which a mask is added: with one row for all queries, and with a row for each."""
_WAITING = 0.5
"""What one warpgroup by itself waits for what nothing hides, to all that it does."""
_PRODUCTS = (5, 4)
"""Of each launch, with the scores of the first one, which takes them twice."""


def predicted_us(problem: AttentionProblem, spec: Spec, arch: GpuArch) -> float:
    """Microseconds: nine products and three exponentials of each score, fewer if attention is causal, and rounds of
    blocks that are not full."""
    scores = _scores(problem)
    total = 0.0
    for phase, products, exponentials in zip(phases(problem, spec), _PRODUCTS, (2, 1), strict=True):
        clocks = products * (problem.d + problem.dv) / 2 * _PRODUCT_CLOCKS
        clocks += exponentials * (_SCORE_CLOCKS + mask_clocks(problem, _MASK_CLOCKS))
        us = scores * clocks / arch.multiprocessors / _CLOCK_MHZ
        total += us * _idle(phase, problem.count, arch) + _START_US
    return total


def _scores(problem: AttentionProblem) -> int:
    """Scores that are made, in whole tiles."""
    return problem.count * sum(problem.tiles_seen(TILE, TILE)) * TILE * TILE


def _idle(phase: Phase, count: int, arch: GpuArch) -> float:
    """What it takes in place of 1 because multiprocessors are not full all the time."""
    rounds = phase.blocks * count / (arch.multiprocessors * phase.blocks_per_sm)
    # Blocks drift apart, so a last round is rarely a whole one. Warpgroups hide each other's softmax.
    waiting = 1 + _WAITING / (phase.blocks_per_sm * phase.groups)
    return waiting * (max(1.0, rounds) + ceil(rounds)) / 2 / rounds


@lru_cache(maxsize=1024)
def ranked_specs(problem: AttentionProblem, arch: GpuArch, fixed: bool = False) -> tuple[Spec, ...]:
    """All `specs`, by the prior the cheapest first, equals in their order. All combine sums in one order, whether it is
    `fixed` or not."""
    return tuple(sorted(specs(problem, arch), key=lambda spec: round(predicted_us(problem, spec, arch), 3)))
