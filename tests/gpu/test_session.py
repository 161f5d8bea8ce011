"""Sessions on the GPU: calls from threads, tensors of torch in place, memory, times, and programs made on first use."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from aicf import InferenceSession, runtime
from aicf.backends.cuda.compiler.toolchain import toolchain_lock
from aicf.errors import BackendUnavailable
from tests.gpu.artifacts import obtained
from tests.gpu.harness import assert_right, program
from tests.gpu.test_bindings import Interface, on_gpu, to_host
from tests.inference.models import WEIGHTS, classified, classifier, rows

pytestmark = pytest.mark.gpu

NAME = "encoder-f16"
THREADS, CALLS = 8, 25


def _can_compile() -> bool:
    try:
        return bool(toolchain_lock())
    except BackendUnavailable:
        return False


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("session") / f"{NAME}.aicf"
    obtained(NAME).save(path)
    return path


@pytest.fixture
def session(artifact: Path) -> Iterator[InferenceSession]:
    with InferenceSession(artifact, device="cuda:0") as session:
        yield session


def digest(results: dict[str, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in results.values())).hexdigest()


def test_eight_threads_get_one_result_hash(session: InferenceSession) -> None:
    """The answers are right, and have the same bits in every thread."""
    inputs = program(NAME).inputs
    session.warm_up()
    assert_right(NAME, session.run(inputs))

    def work(_: int) -> set[str]:
        return {digest(session.run(inputs)) for _ in range(CALLS)}

    with ThreadPoolExecutor(THREADS) as pool:
        assert len(set.union(*pool.map(work, range(THREADS)))) == 1


def test_tensors_of_torch_are_bound_in_place(session: InferenceSession) -> None:
    """By DLPack and by the array interface; the next run reads what was written into them."""
    import torch

    inputs = program(NAME).inputs
    like = session.run(inputs)
    outputs = {key: torch.full_like(on_gpu(value), float("nan")) for key, value in like.items()}
    tensors = {key: on_gpu(value) for key, value in inputs.items()}
    for wrapped in (tensors, {key: Interface(value) for key, value in tensors.items()}):
        binding = session.bind({**wrapped, **outputs})
        binding.start(3)
        binding.wait()
        found = {key: to_host(value, like[key]) for key, value in outputs.items()}
        assert digest(found) == digest(like)
    for value in tensors.values():
        value.zero_()
    binding.run()
    assert digest({key: to_host(value, like[key]) for key, value in outputs.items()}) != digest(like)


def test_memory_is_what_was_predicted(session: InferenceSession) -> None:
    """Bytes requested from the driver; closing gives all of them back."""
    gc.collect()
    before = runtime.statistics("device").live_bytes
    session.run(program(NAME).inputs)
    (row,) = session.memory.programs
    held = runtime.statistics("device").live_bytes - before
    assert row.requested == row.predicted >= held > 0
    session.close()
    gc.collect()
    assert runtime.statistics("device").live_bytes == before


def test_the_profile_joins_times_to_the_ops_of_the_model(session: InferenceSession) -> None:
    profile = session.profile(program(NAME).inputs, repeats=5)
    sources = {source for node in profile.instructions for source in node.src}
    assert set(profile.by_source()) == sources
    assert all(0 <= each.best_us <= each.median_us < profile.replay_us for each in profile.instructions)


@pytest.mark.skipif(not _can_compile(), reason="this machine has nothing that compiles for cuda")
def test_a_new_shape_is_compiled_for_the_gpu_and_found_again(tmp_path: Path) -> None:
    """The second session loads what the first one compiled, and gives the same bits."""
    x, hashes = rows(40, 24), set[str]()
    for what in ("compiled", "loaded"):
        with InferenceSession(classifier(), WEIGHTS, device="cuda", cache_dir=tmp_path) as session:
            assert session.target.startswith("cuda:sm_")
            results = session.run([x])
            assert [event.program for event in session.report.of(what)] == ["N=40"]
        for name, wanted in zip(("logits", "probabilities"), classified(x), strict=True):
            np.testing.assert_allclose(results[name], wanted, rtol=1e-4, atol=1e-5)
        hashes.add(digest(results))
    assert len(hashes) == 1


@pytest.mark.skipif(not _can_compile(), reason="this machine has nothing that compiles for cuda")
def test_programs_made_one_by_one_share_their_weights_on_the_gpu() -> None:
    """The second requests less by the weights, and no more than it said."""
    with InferenceSession(classifier(), WEIGHTS, device="cuda") as session:
        for count in (40, 41):
            x = rows(count, 24)
            for value, wanted in zip(session.run([x]).values(), classified(x), strict=True):
                np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)
        first, second = session.memory.programs
    assert first.requested == first.predicted
    assert second.requested == second.predicted
    assert first.predicted - second.predicted >= sum(array.nbytes for array in WEIGHTS.values())
