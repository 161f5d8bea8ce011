"""Our printer beside xDSL's: the same characters."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, ModuleOp, StringAttr, f32

from aicf.dialects.printing import text_of
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from tests.support.random_graphs import random_program


@pytest.mark.parametrize("seed", range(4))
def test_programs_before_and_after_compiling(seed: int) -> None:
    program = random_program(seed, steps=8)
    assert text_of(program.module) == str(program.module)
    AicfInferencePass(target="cpu:x86-64-v3").apply(make_context(), program.module)
    assert text_of(program.module) == str(program.module)


@pytest.mark.parametrize(
    "text", ["", "plain ~!", 'a "quote"', "back\\slash", "tab\t", "line\nbreak", "größer", "\x7f"]
)
def test_strings(text: str) -> None:
    module = ModuleOp([], {"text": StringAttr(text)})
    assert text_of(module) == str(module)


def test_equal_attributes_that_print_differently() -> None:
    """0.0 equals -0.0."""
    module = ModuleOp([], {"zeros": ArrayAttr([FloatAttr(0.0, f32), FloatAttr(-0.0, f32)])})
    assert text_of(module) == str(module)
    assert "-0.0" in text_of(module)
