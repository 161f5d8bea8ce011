"""The simulated GPU: threads meet, and what a kernel gets wrong about that shows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.cuda.simulator import run_cluster

LANES = """
def lanes(thread, told):
    value = cuda.shfl_xor_sync(ALL_LANES, 10 * thread, 1) + cuda.shfl_up_sync(ALL_LANES, thread, 4)
    odd = cuda.ballot_sync(ALL_LANES, thread % 2 == 1)
    equal = cuda.match_any_sync(ALL_LANES, thread // 8)
    told(thread, value, odd, equal, cuda.shfl_sync(ALL_LANES, thread, 3))
"""

NEIGHBOURS = """
def neighbours(thread, told):
    row = cuda.shared.array(64, i32)
    row[thread] = thread * thread
    {meet}
    told(thread, row[63 - thread] + 0)
"""

LEFT = """
def left(thread, told):
    if thread != 5:
        {meet}
    told(thread)
"""


def ran(text: str, threads: int = 64) -> dict[int, Any]:
    """What the threads of one block tell, by their numbers."""
    found: dict[int, Any] = {}

    def told(thread: int, *values: Any) -> None:
        found[thread] = values

    run_cluster(text, 1, threads, lambda rank, number: (number, told))
    return found


def test_lanes_of_a_warp_exchange_values() -> None:
    odd = 0xAAAAAAAA
    for thread, found in ran(LANES).items():
        above = thread - 4 if thread % 32 >= 4 else thread
        assert found == (10 * (thread ^ 1) + above, odd, 0xFF << thread % 32 // 8 * 8, thread // 32 * 32 + 3)


def test_a_block_meets() -> None:
    found = ran(NEIGHBOURS.format(meet="cuda.syncthreads()"))
    assert found == {thread: ((63 - thread) ** 2,) for thread in range(64)}


@pytest.mark.parametrize("meet", ["pass", "cuda.syncwarp()"])
def test_a_missing_barrier_shows(meet: str) -> None:
    """What a thread has not written yet is no number."""
    with pytest.raises(TypeError, match="NoneType"):
        ran(NEIGHBOURS.format(meet=meet))


@pytest.mark.parametrize("meet", ["cuda.syncthreads()", "cuda.shfl_sync(ALL_LANES, 1, 0)"])
def test_a_thread_that_never_comes_is_told(meet: str) -> None:
    with pytest.raises(AssertionError, match="wait for others that never come"):
        ran(LEFT.format(meet=meet))
