"""Whoever computes the counters, a training step goes the same way, and what is random differs from step to step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicf
from aicf.compiled import CompiledModel
from aicf.dialects.types import element_named
from aicf.semantics.random import philox_word, uniform
from tests.support.meta_programs import (
    dropout_program,
    regression_batch,
    regression_program,
    regression_start,
)

RNG = np.random.default_rng(53)
SEEDS = {"seed": np.array(11), "step": np.array(0)}


def test_device_and_host_give_one_trajectory() -> None:
    """Bit for bit, on batches that differ: f32 values of counters, rates and corrections are the same ones."""
    weights = regression_start(RNG)
    steps = [aicf.compile(regression_program(), weights, "cpu", meta=meta) for meta in ("device", "host")]
    computed = [bind.name for bind in steps[1].plan.programs[0].graph.binds if bind.is_computed]
    assert len(computed) == 5  # the step, its rate, two corrections, the offset of dropout
    for _ in range(30):
        batch = regression_batch(RNG)
        one, other = (step.run(batch)["loss"] for step in steps)
        assert one.tobytes() == other.tobytes()
    one, other = (step.state() for step in steps)
    assert one["step"] == 30
    for name, value in one.items():
        assert value.tobytes() == other[name].tobytes(), name


@pytest.fixture(scope="module", params=["device", "host"])
def drop(request: pytest.FixtureRequest) -> CompiledModel:
    return aicf.compile(dropout_program(), SEEDS, "cpu", meta=request.param)


def masks(exe: CompiledModel, seed: int, count: int) -> np.ndarray[Any, Any]:
    """What is kept in runs from the first step on."""
    exe.set_state({"seed": np.array(seed), "step": np.array(0)})
    x = np.ones((128, 250), np.float32)
    found = [exe(x) for _ in range(count)]
    assert set(np.unique(found)) == {np.float32(0), np.float32(1 / 0.75)}
    return np.stack(found) != 0


def test_dropout_is_random(drop: CompiledModel) -> None:
    """Replays differ, one seed repeats them, another seed does not; shares and overlaps are those of independent
    draws, within five standard deviations."""
    kept = masks(drop, 11, 6)
    np.testing.assert_array_equal(kept, masks(drop, 11, 6))
    size = kept[0].size
    for mask in kept:
        assert abs(mask.mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / size)
    other = masks(drop, 12, 1)[0]
    pairs = [(kept[i], kept[j]) for i in range(6) for j in range(i)] + [(kept[0], other)]
    # Also what is next to each other in a row, in a column, and in the numbering of the elements.
    pairs += [(kept[0][:, 1:], kept[0][:, :-1]), (kept[0][1:], kept[0][:-1])]
    for one, two in pairs:
        expected = 0.75**2
        spread = np.sqrt(expected * (1 - expected) / one.size)
        assert abs((one & two).mean() - expected) < 5 * spread


def test_dropout_takes_counters_behind_those_of_the_step_before(drop: CompiledModel) -> None:
    """Beside Philox itself: step n keeps what the numbers from counter 8000 n on say."""
    kept = masks(drop, 5, 3)
    numbers = np.arange(32000).reshape(128, 250)
    for step, mask in enumerate(kept):
        words = philox_word(np.array(5), np.array(step * 8000), numbers)
        np.testing.assert_array_equal(mask, uniform(words, element_named("f32")) >= np.float32(0.25))
