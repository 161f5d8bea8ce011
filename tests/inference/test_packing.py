"""When packed weights of one executable are those of another: each change of what a pack follows from is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import aicf
from aicf.inference.packing import ModelWeights, common_bytes, packing_keys
from aicf.runtime.capture_plan import CapturePlan, Launch, ModulePlan
from tests.inference.models import WEIGHTS, classifier, rows


def two_layers(rows_: int) -> aicf.CompiledModel:
    """Two weights of one shape, both packed."""
    graph = aicf.Graph("two")
    x = graph.input("x", (rows_, 24))
    hidden = graph.relu(graph.linear(x, graph.param("a", (24, 24)), name="first"))
    graph.output(graph.linear(hidden, graph.param("b", (24, 24)), name="second"), "y")
    return aicf.compile(graph, {"a": rows(24, 24, seed=1), "b": rows(24, 24, seed=2)}, "cpu:x86-64-v3")


@pytest.fixture(scope="module")
def model() -> aicf.CompiledModel:
    return two_layers(7)


def test_programs_of_other_sizes_have_the_same_keys(model: aicf.CompiledModel) -> None:
    keys = packing_keys(model.plan)
    assert len(keys) == len(set(keys.values())) == 2
    assert packing_keys(two_layers(9).plan) == keys


def changed(plan: ModulePlan, change: Callable[[Launch], Launch]) -> ModulePlan:
    """The plan whose first pack is another."""
    prepare = plan.prepare
    assert prepare is not None
    first, *rest = prepare.launches
    return replace(plan, prepare=replace(prepare, launches=(change(first), *rest)))


CHANGES: dict[str, Callable[[Launch], Launch]] = {
    "kernel": lambda launch: replace(launch, kernel="cpu.other"),
    "record": lambda launch: replace(launch, record={**launch.record, "nr": 3}),
    "operand": lambda launch: replace(launch, ins=(replace(launch.ins[0], base=launch.ins[0].base + 1),)),
    "offset": lambda launch: replace(launch, ins=(replace(launch.ins[0], offset=64),)),
    "strides": lambda launch: replace(launch, ins=(replace(launch.ins[0], strides=(1, 24)),)),
    "element type": lambda launch: replace(launch, ins=(replace(launch.ins[0], dtype="i32"),)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_a_pack_follows_from_is_in_its_key(model: aicf.CompiledModel, name: str) -> None:
    keys, others = packing_keys(model.plan), packing_keys(changed(model.plan, CHANGES[name]))
    assert [key for key in keys if keys[key] != others[key]] == [next(iter(keys))]


def test_a_pack_of_what_was_packed_follows_from_both(model: aicf.CompiledModel) -> None:
    """The second pack reads what the first made: a change of the first is one of the second."""

    def chained(plan: CapturePlan) -> CapturePlan:
        first, second = plan.launches
        return replace(plan, launches=(first, replace(second, ins=first.outs)))

    prepare = model.plan.prepare
    assert prepare is not None
    plan = replace(model.plan, prepare=chained(prepare))
    keys, others = packing_keys(plan), packing_keys(changed(plan, CHANGES["record"]))
    assert all(keys[name] != others[name] for name in keys)


def test_they_are_shared_as_long_as_somebody_has_them() -> None:
    kept, shared = two_layers(7), ModelWeights()
    assert shared.packed(kept.plan) is None
    shared.keep(kept)
    found = shared.packed(two_layers(9).plan)
    assert found is not None and found.keys() == kept.prepared().keys()
    assert all(np.shares_memory(found[name], array) for name, array in kept.prepared().items())
    assert common_bytes([kept, kept]) == sum(array.nbytes for array in kept.prepared().values())
    del found
    kept.release()
    assert shared.packed(two_layers(9).plan) is None


def test_nothing_is_shared_where_nothing_is_packed() -> None:
    baseline = aicf.compile(classifier(), WEIGHTS, "reference", dims="N=3")
    shared = ModelWeights()
    shared.keep(baseline)
    assert packing_keys(baseline.plan) == {} and shared.packed(baseline.plan) is None
