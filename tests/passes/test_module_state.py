"""What the tests of prefixes pass over is unchanged: whenever the text of a module changes, its state does."""

from __future__ import annotations

import pytest

from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from tests.support.module_state import state_of
from tests.support.random_graphs import random_program


@pytest.mark.parametrize("seed", range(4))
def test_no_pass_changes_the_text_alone(seed: int) -> None:
    module, context = random_program(seed, steps=8).module, make_context()
    state, text = state_of(module), str(module)
    unchanged = 0
    for step in AicfInferencePass("cpu:x86-64-v3").passes():
        step.apply(context, module)
        assert str(module) == text or state_of(module) != state, step.name
        unchanged += state_of(module) == state
        state, text = state_of(module), str(module)
    assert unchanged >= 8
