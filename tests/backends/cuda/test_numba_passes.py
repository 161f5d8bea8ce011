"""Steps that replace Numba's decide what Numba's do, on random graphs of blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba.cuda.core import analysis

from aicf.backends.cuda.compiler.numba_passes import linear_passes

Names = dict[int, set[str]]


class Flow:
    """What the analyses ask a control flow graph: blocks are numbers, edges pairs of them."""

    def __init__(self, edges: set[tuple[int, int]]) -> None:
        self._edges = edges

    def successors(self, block: int) -> Iterator[tuple[int, None]]:
        return ((end, None) for start, end in self._edges if start == block)

    def predecessors(self, block: int) -> Iterator[tuple[int, None]]:
        return ((start, None) for start, end in self._edges if end == block)


def flow(random: np.random.Generator, blocks: int) -> Flow:
    """Blocks in a row with jumps ahead and back between them."""
    row = {(block, block + 1) for block in range(blocks - 1)}
    return Flow(row | {(int(a), int(b)) for a, b in random.integers(0, blocks, (blocks // 2, 2))})


def naming(random: np.random.Generator, blocks: int) -> Names:
    """A few of ten variables for each block."""
    return {
        block: {f"v{n}" for n in random.integers(0, 10, random.integers(0, 4))} for block in range(blocks)
    }


def test_the_same_variables_are_alive() -> None:
    """Also those that no block defines, or that are defined on some of the ways alone."""
    for seed in range(200):
        random = np.random.default_rng(seed)
        blocks = int(random.integers(1, 30))
        cfg, used, defined = flow(random, blocks), naming(random, blocks), naming(random, blocks)
        with linear_passes():
            found = analysis.compute_live_map(cfg, dict.fromkeys(range(blocks)), used, defined)
        assert found == analysis.compute_live_map(cfg, dict.fromkeys(range(blocks)), used, defined), seed


def test_the_steps_are_numbas_again_afterwards() -> None:
    own = analysis.compute_live_map
    with linear_passes():
        assert analysis.compute_live_map is not own
    assert analysis.compute_live_map is own
