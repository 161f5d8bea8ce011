"""Schedules of PyTorch's meanings: the rates that a step takes, beside PyTorch's formulas in NumPy."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import aicf
from aicf.training.schedules import InProgram, MultiStep, OneCycle, Step

STEPS = 45


def step_lr(epoch: int, rate: float, size: int, gamma: float) -> float:
    """`StepLR` at a scheduler epoch, which counts from 0."""
    return rate * gamma ** (epoch // size)


def multi_step_lr(epoch: int, rate: float, milestones: list[int], gamma: float) -> float:
    """`MultiStepLR`: bisect_right of the milestones."""
    return rate * gamma ** int(np.searchsorted(milestones, epoch, side="right"))


def one_cycle_lr(
    epoch: int, top: float, total: int, start: float, way: str, div: float, final_div: float
) -> float:
    """`OneCycleLR` of two phases, as its `get_lr` has them."""
    first, last = top / div, top / div / final_div
    ends = (float(start * total) - 1, total - 1)
    low, high, begin, end = (first, top, 0.0, ends[0]) if epoch <= ends[0] else (top, last, *ends)
    part = min((epoch - begin) / (end - begin), 1.0)
    if way == "linear":
        return low + (high - low) * part
    return high + (low - high) / 2 * (1 + np.cos(np.pi * part))


def warmed(rates: list[float], warmup: int, top: float) -> list[float]:
    """The line up to `top`, then the schedule from its beginning."""
    return [top * step / warmup for step in range(1, warmup + 1)] + rates[: len(rates) - warmup]


CASES: dict[str, tuple[InProgram, list[float]]] = {
    "step": (Step(0.5, step_size=7, gamma=0.3), [step_lr(e, 0.5, 7, 0.3) for e in range(STEPS)]),
    "step-warm": (
        Step(0.5, warmup=4, step_size=1, gamma=0.9),
        warmed([step_lr(e, 0.5, 1, 0.9) for e in range(STEPS)], 4, 0.5),
    ),
    "multi": (
        MultiStep(0.5, milestones=[20, 5, 5, 31]),
        [multi_step_lr(e, 0.5, [5, 5, 20, 31], 0.1) for e in range(STEPS)],
    ),
    "multi-warm": (
        MultiStep(0.5, warmup=3, milestones=[2, 6], gamma=2.0),
        warmed([multi_step_lr(e, 0.5, [2, 6], 2.0) for e in range(STEPS)], 3, 0.5),
    ),
    "cycle": (OneCycle(0.5, total=40), [one_cycle_lr(e, 0.5, 40, 0.3, "cos", 25, 1e4) for e in range(STEPS)]),
    "cycle-linear": (
        OneCycle(0.5, total=30, pct_start=0.45, anneal_strategy="linear", div_factor=4, final_div_factor=10),
        [one_cycle_lr(e, 0.5, 30, 0.45, "linear", 4, 10) for e in range(STEPS)],
    ),
}


def rates(schedule: InProgram, target: str, meta: Literal["device", "host"], dtype: str) -> np.ndarray:
    """What SGD takes off a weight whose gradient is 1, at each step, in f64."""
    graph = aicf.Graph("one")
    x, w = graph.input("x", (1,), dtype), graph.param("w", (1,), dtype)
    graph.output(graph.reduce_sum(x * w, [0]), "loss")
    start = {"w": np.zeros(1, "f8" if dtype == "f64" else "f4")}
    step = aicf.train_step(
        graph, None, aicf.optimizers.SGD(schedule), weights=start, target=target, meta=meta
    )
    taken: list[float] = []
    for _ in range(STEPS):
        step.load_state_dict({**step.state_dict(), **start})
        step(np.ones(1, start["w"].dtype))
        taken.append(-float(step.weights()["w"][0]))
    return np.array(taken)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("meta", ["device", "host"])
def test_rates(name: str, meta: Literal["device", "host"]) -> None:
    schedule, wanted = CASES[name]
    np.testing.assert_allclose(rates(schedule, "cpu", meta, "f64"), wanted, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", CASES)
def test_both_ways_give_the_same_bits_of_f32(name: str) -> None:
    schedule, wanted = CASES[name]
    found = [
        rates(schedule, target, meta, "f32") for target, meta in (("reference", "device"), ("cpu", "host"))
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], np.array(wanted).astype(np.float32))


def test_schedules_scale_as_a_whole() -> None:
    for schedule, wanted in CASES.values():
        scaled = schedule.scaled(0.5)
        assert isinstance(scaled, InProgram)
        np.testing.assert_allclose(
            rates(scaled, "reference", "device", "f64"), np.multiply(wanted, 0.5), rtol=1e-12, atol=1e-15
        )


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (Step(0.1), "period is 0 and milestones are"),
        (Step(0.1, step_size=-1), "period is -1"),
        (Step(0.1, step_size=2, gamma=0.0), "factor is 0.0; it is more than 0"),
        (MultiStep(0.1), "give one of them"),
        (MultiStep(0.1, milestones=[-1, 3]), "they are numbers of steps"),
        (OneCycle(0.1), "rise is -1.0 of 0 steps"),
        (OneCycle(0.1, total=3), "make total larger"),
        (OneCycle(0.1, total=30, anneal_strategy="wave"), "anneal_strategy is 'wave'; it is cos or linear"),  # pyright: ignore[reportArgumentType]
        (OneCycle(0.1, total=30, div_factor=0), "div_factor and final_div_factor are more than 0"),
    ],
)
def test_schedules_that_make_no_sense(schedule: InProgram, message: str) -> None:
    with pytest.raises(aicf.InvalidIR, match=message):
        rates(schedule, "reference", "device", "f64")
