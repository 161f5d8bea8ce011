"""Programs on memory of others: every tensor is an address that comes with the run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aicf import runtime
from aicf.runtime.addressed import Addressed
from aicf.runtime.tensors import address
from tests.runtime.support import ADD_RELU, BUCKETS, COUNTER, add_relu, executable, random, scale

RNG = np.random.default_rng(84)


def run(program: Addressed, arrays: Mapping[str, np.ndarray]) -> None:
    program.run([address(arrays[name]) for name in program.names])


def test_arguments_and_results_are_where_they_are() -> None:
    stale = random(RNG, 6)
    program = executable(ADD_RELU, {"b": stale}).addressed()
    assert set(program.names) == {"x", "b", "y", "z"} and not program.packs
    for _ in range(3):
        arrays = {name: random(RNG, 4, 6) for name in "xyz"} | {"b": random(RNG, 6)}
        run(program, arrays)
        for name, wanted in zip("yz", add_relu(arrays["x"], arrays["b"]), strict=True):
            np.testing.assert_array_equal(arrays[name], wanted)


def test_parameters_are_packed_when_somebody_says_so() -> None:
    weights = {"w": random(RNG, 2)}
    program = executable(BUCKETS, weights).addressed(N=5)
    assert program.packs == ("w",)
    arrays = {"x": random(RNG, 5, 2), "m": random(RNG, 5, 2), "y": random(RNG, 5, 2)}
    before, w = weights["w"].copy(), random(RNG, 2)
    run(program, arrays)
    np.testing.assert_array_equal(arrays["y"], scale(arrays["x"], arrays["m"], before))
    program.prepare({"w": address(w)})
    run(program, arrays)
    np.testing.assert_array_equal(arrays["y"], scale(arrays["x"], arrays["m"], w))
    runtime.shutdown()  # what was packed last is packed again
    run(program, arrays)
    np.testing.assert_array_equal(arrays["y"], scale(arrays["x"], arrays["m"], w))


def test_what_a_program_updates_is_updated_where_it_is() -> None:
    start = random(RNG, 3)
    exe = executable(COUNTER, {"w": start})
    program = exe.addressed()
    arrays = {"x": random(RNG, 3), "w": random(RNG, 3)}
    wanted = arrays["w"] + arrays["x"] + arrays["x"]
    run(program, arrays)
    run(program, arrays)
    np.testing.assert_array_equal(arrays["w"], wanted)
    np.testing.assert_array_equal(exe.state("w")["w"], start)
