"""Every prefix of `aicf-training` after `differentiate` means the same, on random training steps.

What gradients are is held to differences and to PyTorch in `test_differentiate.py` and `test_gradients_pytorch.py`.
Here the step as `differentiate` writes it is the yardstick of all passes after it, updates of parameters, states and
the counter included, on the reference interpreter in `exact` arithmetic. Generated programs are held to their bodies.
"""

from __future__ import annotations

import numpy as np
import pytest

from aicf.backends.reference.interpreter import run_module
from aicf.frontends.text import make_context, parse_module, verify_module
from aicf.passes.emit.lower_to_emit import LowerToEmitPass
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from aicf.passes.training.differentiate import DifferentiatePass
from tests.passes.test_pipeline_prefixes import (
    PHASE_ENDS,
    PLACED,
    TARGETS,
    assert_close,
    check_orders,
    reference_run,
)
from tests.support.generated_code import check_codes
from tests.support.module_state import state_of
from tests.support.op_coverage import OF_TRAINING
from tests.support.random_graphs import RandomProgram
from tests.support.random_training import random_training_program

GRAPHS, CHUNK = 30, 5
WHOLE = 4
"""Of each so many steps, one is verified as a whole after each phase, runs in other orders and goes through text."""


def step(seed: int) -> RandomProgram:
    return random_training_program(seed, float_type="f64" if seed % 5 == 0 else "f32", steps=3)


def test_the_steps_hold_every_optimizer() -> None:
    made = {type(op) for seed in range(20) for op in step(seed).module.walk()}
    assert {op.name for op in OF_TRAINING} - {op.name for op in made} == {"logical.save"}


@pytest.mark.drawn
@pytest.mark.parametrize("first", range(0, GRAPHS, CHUNK))
def test_random_steps(first: int) -> None:
    for seed in range(first, first + CHUNK):
        check_prefixes(step(seed), seed)


def check_prefixes(program: RandomProgram, seed: int) -> None:
    context, orders, whole = make_context(), np.random.default_rng(seed), seed // len(TARGETS) % WHOLE == 0
    passes = AicfTrainingPass(target=TARGETS[seed % len(TARGETS)]).passes()
    written = next(number for number, each in enumerate(passes, 1) if isinstance(each, DifferentiatePass))
    module = program.module
    for each in passes[:written]:
        each.apply(context, module)
    expected, magnitude = reference_run(module, program.inputs, "")
    state = state_of(module)
    for each in passes[written:]:
        each.apply(context, module)
        where = f"seed {seed} after {each.name}"
        if each.name.startswith("verify-"):
            continue
        if whole and each.name in PHASE_ENDS:
            verify_module(module)
        before, state = state, state_of(module)
        if state != before:
            assert_close(expected, run_module(module, program.inputs, "exact"), magnitude, where)
        if each.name == LowerToEmitPass.name:
            check_codes(module, program.inputs, where)
        if whole and each.name in PLACED:
            check_orders(module, program.inputs, orders, where)
    if whole:
        text = str(module)
        assert str(parse_module(text, context=context)) == text, f"seed {seed}"
