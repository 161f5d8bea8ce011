"""Whoever computes the counters, a training step goes the same way, and what is random differs from step to step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

import aicf
from aicf.backends.reference.interpreter import Results, run_module
from aicf.compilation.compiled import CompiledModel
from aicf.dialects.json_values import json_value
from aicf.dialects.logical import NAME_ATTR
from aicf.dialects.step_names import BAD_STEP
from aicf.dialects.types import element_named
from aicf.errors import PolicyError
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from aicf.passes.support.interface import argument_entry, meta_attrs
from aicf.passes.training.differentiate import DifferentiatePass
from aicf.passes.training.separate_meta import SeparateMetaPass
from aicf.runtime.on_host.formulas import FORMULAS
from aicf.runtime.tensors import Array
from aicf.semantics.random import philox_word, uniform
from tests.passes.test_pipeline_prefixes import TARGETS, assert_close, reference_run
from tests.support.meta_programs import (
    dropout_program,
    regression_batch,
    regression_program,
    regression_start,
)
from tests.support.random_training import random_training_program

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
    return aicf.compile(dropout_program(), SEEDS, "cpu", meta=request.param, training=True)


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


def test_dropout_takes_counters_after_those_of_the_step_before(drop: CompiledModel) -> None:
    """Beside Philox itself: step n keeps what the numbers from counter 8000 n on say."""
    kept = masks(drop, 5, 3)
    numbers = np.arange(32000).reshape(128, 250)
    for step, mask in enumerate(kept):
        words = philox_word(np.array(5), np.array(step * 8000), numbers)
        np.testing.assert_array_equal(mask, uniform(words, element_named("f32")) >= np.float32(0.25))


@pytest.mark.parametrize("meta", ["device", "host"])
def test_a_program_without_metas_leaves_nobody_to_choose(meta: Any) -> None:
    baseline = aicf.Graph("plain")
    baseline.output(baseline.exp(baseline.input("x", (4,))), "y")
    with pytest.raises(
        PolicyError, match="meta: the program has no counter or other meta; leave the option out"
    ):
        aicf.compile(baseline, target="cpu", meta=meta)


@pytest.mark.parametrize("seed", range(6))
def test_every_pass_keeps_the_meaning(seed: int) -> None:
    """Of random steps that are checked and whose counters the executable keeps, from `differentiate` to the end."""
    program = random_training_program(seed, float_type="f64" if seed % 2 else "f32", steps=2)
    target, module, context = TARGETS[seed % len(TARGETS)], program.module, make_context()
    passes = AicfTrainingPass(target=target, meta="host", check_finite=True).passes()
    written = next(number for number, each in enumerate(passes, 1) if isinstance(each, DifferentiatePass))
    for each in passes[:written]:
        each.apply(context, module)
    expected, magnitude = reference_run(module, program.inputs, "")
    inputs = {**program.inputs, BAD_STEP: np.array(0)}
    kept: dict[str, Array] = {}
    for each in passes[written:]:
        each.apply(context, module)
        if isinstance(each, SeparateMetaPass):
            kept = compute_metas(module, inputs)
        if not each.name.startswith("verify-"):
            found = run_module(module, inputs, "exact")
            assert found.updates.pop(BAD_STEP) == 0, each.name
            given = Results(found.outputs, {**kept, **found.updates})
            assert_close(expected, given, magnitude, f"seed {seed} after {each.name}")
    assert "step" in kept


def compute_metas(module: ModuleOp, inputs: dict[str, Array]) -> dict[str, Array]:
    """Adds the metas that follow from others to the inputs, as exact as the formulas are; gives what is kept."""
    (function,) = (op for op in module.body.block.ops if isinstance(op, func.FuncOp))
    kept: dict[str, str] = {}
    for argument in function.args:
        entry = argument_entry(function, argument.index)
        host, name = meta_attrs(entry)[0], str(json_value(entry[NAME_ATTR]))
        data: dict[str, Any] = {} if host is None else {k: json_value(v) for k, v in host.data.items()}
        if (next_ := data.pop("next", None)) is not None:
            kept[name] = next_
        elif data:
            formula, of = FORMULAS[data.pop("formula")], data.pop("of")
            values = [inputs[each].item() if isinstance(each, str) else each for each in of]
            inputs[name] = np.asarray(formula.compute(*values, **data))
    return {name: inputs[next_] for name, next_ in kept.items()}
