"""Every prefix of the logical pipeline preserves the meaning of random programs, and its text round-trips."""

from __future__ import annotations

import pytest

from aicf.frontends.text import make_context, parse_module, verify_module
from aicf.passes.pipelines.text import parse_pipeline
from aicf.universe import AICF_UNIVERSE
from tests.support.module_state import state_of
from tests.support.random_graphs import assert_same_results, random_program, run_program

PIPELINE = (
    "verify-logical,assign-ids,logical-canonicalize,logical-cse,logical-dce,fold-constants,logical-dce,"
    "specialize-shapes,lower-logical,fold-transposes,logical-canonicalize,fold-constants,logical-cse,logical-dce,"
    "verify-logical"
)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(75))
def test_prefixes_preserve_meaning(seed: int) -> None:
    program = random_program(seed, float_type="f64" if seed % 5 == 0 else "f32")
    module = program.module
    expected = run_program(module, program.inputs)
    context, state = make_context(), state_of(module)
    for step in parse_pipeline(PIPELINE, AICF_UNIVERSE.all_passes):
        step.apply(context, module)
        before, state = state, state_of(module)
        if state != before:
            verify_module(module)
            assert_same_results(expected, run_program(module, program.inputs))
    text = str(module)
    assert str(parse_module(text, context=context)) == text
