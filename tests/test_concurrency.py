"""Determinism under use: threads, replays and processes give the same bits, and compiling gives the same bytes.

Processes are started anew, so that hash seeds, addresses and code generation differ in everything they may.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import aicf

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "examples" / "digits" / "mlp.mlir"
THREADS = 8
REPLAYS = 1000
PROCESSES = 3
TARGETS = ("cpu", "reference")

COMPILE = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.test_concurrency import compiled
exe = compiled("cpu")
exe.save(sys.argv[2])
with open(sys.argv[3], "w") as file:
    file.write(exe.ir("emit"))
"""

RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import aicf
from tests.test_concurrency import digest, images
print(digest(aicf.load(sys.argv[2])(images(7))))
"""


def weights() -> dict[str, np.ndarray]:
    """The same numbers in every process."""
    rng = np.random.default_rng(11)
    shapes = {"fc1": (128, 64), "fc2": (64, 128), "fc3": (10, 64)}
    made = {f"{name}.weight": rng.normal(0, 0.2, shape) for name, shape in shapes.items()}
    made |= {f"{name}.bias": rng.normal(0, 0.2, shape[0]) for name, shape in shapes.items()}
    return {name: value.astype(np.float32) for name, value in made.items()}


def images(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (rows, 64)).astype(np.float32)


def compiled(target: str, threads: int = 1) -> aicf.CompiledModel:
    return aicf.compile(MODEL, weights(), target, dims="N=1,7", threads=threads)


def in_numpy(x: np.ndarray) -> np.ndarray:
    """The digits classifier in float64."""
    value, w = x.astype(np.float64), weights()
    for name in ("fc1", "fc2", "fc3"):
        value = value @ w[f"{name}.weight"].T.astype(np.float64) + w[f"{name}.bias"]
        value = value if name == "fc3" else np.maximum(value, 0)
    exponentials = np.exp(value - value.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def together(work: Callable[[int], None]) -> None:
    """Runs `work(number)` on all threads at once; the first error is raised here."""
    gate = threading.Barrier(THREADS)

    def start(number: int) -> None:
        gate.wait()
        work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(start, number) for number in range(THREADS)]:
            done.result()


# Threads


@pytest.mark.parametrize(("target", "calls"), [("cpu", 200), ("reference", 5)])
def test_eight_threads_get_their_own_answers(target: str, calls: int):
    """Each thread has inputs of its own, in both buckets, and checks every answer against the one of a lone call."""
    exe = compiled(target)
    inputs = [images(7 if number % 2 else 1, seed=number) for number in range(THREADS)]
    alone = [exe(x) for x in inputs]
    for x, answer in zip(inputs, alone, strict=True):
        np.testing.assert_allclose(answer, in_numpy(x), rtol=1e-5, atol=1e-6)

    def work(number: int) -> None:
        for _ in range(calls):
            assert np.array_equal(exe(inputs[number]), alone[number])

    together(work)


def test_eight_threads_call_a_program_of_two_threads():
    exe = compiled("cpu", threads=2)
    inputs = [images(7, seed=number) for number in range(THREADS)]
    alone = [exe(x) for x in inputs]

    def work(number: int) -> None:
        for _ in range(50):
            assert np.array_equal(exe(inputs[number]), alone[number])

    together(work)


def test_threads_that_update_one_state_lose_no_step():
    """A stateful program serialises: after all calls the parameter has taken every step."""
    text = """
    func.func @count(%x: tensor<16xf32> {logical.name = "x", logical.role = "input"},
                     %n: tensor<16xf32> {logical.name = "n", logical.role = "state"})
        -> (tensor<16xf32> {logical.updates = "n"}) {
      %y = logical.add %n, %x : tensor<16xf32>
      func.return %y : tensor<16xf32>
    }
    """
    exe = aicf.compile(text, {"n": np.zeros(16, np.float32)}, "cpu")
    calls = 100

    def work(number: int) -> None:
        step = np.full(16, number + 1, np.float32)
        for _ in range(calls):
            exe(step)

    together(work)
    assert np.array_equal(exe.state()["n"], np.full(16, calls * sum(range(1, THREADS + 1)), np.float32))


# Replays and processes


@pytest.mark.parametrize("target", TARGETS)
def test_a_thousand_replays_give_the_same_bits(target: str):
    exe = compiled(target)
    x = images(7)
    replays = REPLAYS if target == "cpu" else 100
    assert len({digest(exe(x)) for _ in range(replays)}) == 1


def in_new_process(code: str, *arguments: str, seed: int) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-c", code, str(ROOT), *arguments]
    done = subprocess.run(command, check=False, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def compiled_twice(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    """Artifact and emit IR of two processes."""
    folder = tmp_path_factory.mktemp("twice")
    made = [(folder / f"{number}.aicf", folder / f"{number}.mlir") for number in range(2)]
    for number, (artifact, text) in enumerate(made):
        in_new_process(COMPILE, str(artifact), str(text), seed=number)
    return made


def test_two_processes_compile_the_same_bytes(compiled_twice: list[tuple[Path, Path]]):
    (first, first_text), (second, second_text) = compiled_twice
    assert first_text.read_bytes() == second_text.read_bytes()
    assert first.read_bytes() == second.read_bytes()


def test_processes_compute_the_same_bits(compiled_twice: list[tuple[Path, Path]]):
    """Three processes that load the artifact, and this one that compiled for itself."""
    artifact = str(compiled_twice[0][0])
    hashes = {in_new_process(RUN, artifact, seed=number) for number in range(PROCESSES)}
    assert hashes == {digest(compiled("cpu")(images(7)))}
