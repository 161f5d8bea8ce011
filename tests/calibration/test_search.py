"""Which ops stay f32, on losses that are known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from aicf.calibration.outputs import Reference
from aicf.calibration.report import OpAccuracy
from aicf.calibration.search import kept_in_f32, ranked
from aicf.errors import InputMismatch


def losing(costs: Mapping[str, float], calls: list[frozenset[str]] | None = None):
    def lost(rounded: frozenset[str]) -> float:
        if calls is not None:
            calls.append(rounded)
        return sum(costs[op] for op in rounded)

    return lost


def test_nothing_stays_where_nothing_has_to():
    assert kept_in_f32(["a", "b"], losing({"a": 0.1, "b": 0.1}), 0.2) == []
    assert kept_in_f32([], losing({}), 0.0) == []


def test_the_fewest_of_the_costliest_stay():
    costs = {f"op{number}": 2.0**-number for number in range(12)}
    calls: list[frozenset[str]] = []
    assert kept_in_f32(list(costs), losing(costs, calls), 0.3) == ["op0", "op1", "op2"]
    assert len(calls) < 12


def test_ops_that_stayed_for_their_place_are_lowered_again():
    """`c` breaks the model and comes third: `a` and `b` go back."""
    costs = {"a": 0.01, "b": 0.01, "c": 1.0, "d": 0.01}
    assert kept_in_f32(list(costs), losing(costs), 0.05) == ["c"]


def test_all_stay_where_none_may_be_rounded():
    costs = {"a": 0.1, "b": 0.1, "c": 0.1}
    assert kept_in_f32(list(costs), losing(costs), 0.0) == ["a", "b", "c"]


def test_what_saves_no_time_costs_most():
    ops = [
        OpAccuracy("fast", "int8", 0.02, 10.0),
        OpAccuracy("slow", "int8", 0.01, 1.0),
        OpAccuracy("useless", "int8", 0.001, 0.0),
        OpAccuracy("free", "int8", 0.0, 0.0),
    ]
    assert ranked(ops) == ["useless", "slow", "fast", "free"]
    unknown = [OpAccuracy("a", "f16", 0.01, None), OpAccuracy("b", "f16", 0.02, None)]
    assert ranked(unknown) == ["b", "a"]


# Outputs

F32 = [{"y": np.array([[3.0, 4.0]], np.float32)}, {"y": np.array([[0.0, 5.0]], np.float32)}]


def test_errors_are_over_all_samples():
    other = [{"y": np.array([[3.0, 4.5]], np.float32)}, {"y": np.array([[0.0, 4.0]], np.float32)}]
    (found,) = Reference(F32).compare(other).outputs
    assert found.relative_error == pytest.approx(np.sqrt((0.5**2 + 1.0**2) / 50))
    assert found.largest == 1.0 and found.agreement == 1.0


def test_labels_and_top1():
    reference = Reference(F32, np.array([1, 0]))
    other = [{"y": np.array([[5.0, 4.0]], np.float32)}, {"y": np.array([[6.0, 5.0]], np.float32)}]
    compared = reference.compare(other)
    assert compared.agreement == 0.0 and reference.top1 == 0.5 and compared.top1 == 0.5
    with pytest.raises(InputMismatch, match="labels: 3 of them, and the samples have 2; give one for each"):
        Reference(F32, np.array([1, 0, 0]))
    with pytest.raises(InputMismatch, match="labels: no output of the model has labels"):
        Reference([{"y": np.zeros((2, 1), np.float32)}], np.array([1]))


def test_outputs_that_are_not_finite_or_no_floats():
    wanted = [{"a": np.array([1.0, np.inf]), "n": np.array([1, 2, 3])}]
    same, broken = wanted, [{"a": np.array([np.nan, np.inf]), "n": np.array([1, 2, 4])}]
    assert Reference(wanted).compare(same).error == 0.0
    compared = Reference(wanted).compare(broken)
    assert compared.error == np.inf and compared.outputs[1].agreement == pytest.approx(2 / 3)
    zeros = [{"a": np.zeros(4)}]
    assert Reference(zeros).compare([{"a": np.full(4, 0.5)}]).error == 0.5
