"""Every case on the GPU: right against float64, the same bits always and either way, in the memory that was said."""

from __future__ import annotations

import gc

import pytest

from aicf import runtime
from tests.gpu.artifacts import obtained
from tests.gpu.case_table.models import BATCHES, IN_BATCHES
from tests.gpu.cases import CASES, STATELESS
from tests.gpu.harness import POISONS, assert_right, bits, instance, poison, program, results

pytestmark = pytest.mark.gpu

REPLAYS = 1000
LONG = (
    *("chain-1", "encoder-f16", "encoder-streams", "row_reductions-f32"),
    *("wgmma-split", "mma-split-workspace", "simt-split"),
)
"""Cases that are replayed so often; the others a few times."""


@pytest.mark.parametrize("name", STATELESS)
def test_results_are_those_of_float64(name: str) -> None:
    """Each pinned kernel runs; every element of every output is written, whatever memory held before."""
    graph_exec = instance(name)
    assert set(CASES[name].kernels) <= {launch.kernel for launch in graph_exec.plan.launches}
    for value in POISONS:
        poison(graph_exec, value)
        graph_exec.replay()
        assert_right(name, results(graph_exec))


@pytest.mark.parametrize("name", STATELESS)
def test_instruction_by_instruction_gives_the_bits_of_a_replay(name: str) -> None:
    """Launched one at a time, each awaited, the instructions do what they do in the graph, where they overlap."""
    graph_exec = instance(name)
    graph_exec.replay()
    whole = bits(graph_exec)
    poison(graph_exec, POISONS[0])
    graph_exec.check()
    assert bits(graph_exec) == whole


@pytest.mark.parametrize("name", STATELESS)
def test_all_replays_have_one_hash(name: str) -> None:
    """Replays back to back, looked at after every tenth, and two instances of one program give the same bits."""
    graph_exec, other = instance(name), instance(name)
    other.replay()
    hashes = {bits(other)}
    for _ in range(REPLAYS // 10 if name in LONG else 1):
        for _ in range(10):
            graph_exec.replay()
        hashes.add(bits(graph_exec))
    assert len(hashes) == 1


@pytest.mark.parametrize("name", IN_BATCHES)
def test_rows_have_the_same_bits_in_every_batch(name: str) -> None:
    """Where the policy says batch_invariant."""
    found: dict[int, bytes] = {}
    for batch in BATCHES:
        graph_exec = instance(f"batch-{name}-{batch}")
        graph_exec.replay()
        found[batch] = results(graph_exec)["y"].tobytes()
    largest = found[max(BATCHES)]
    assert all(largest.startswith(rows) for rows in found.values())


@pytest.mark.parametrize("name", STATELESS)
def test_the_peak_of_device_memory_is_as_predicted(name: str) -> None:
    """What `memory()` says before the first allocation is what is asked of the driver."""
    model = obtained(name)
    (plan,) = model.plan.programs
    predicted = model.memory()[f"peak@{plan.name}"]
    gc.collect()
    runtime.reset_peak("device")
    before = runtime.statistics("device").live_bytes
    model(program(name).inputs)
    assert runtime.statistics("device").peak_bytes - before == predicted
