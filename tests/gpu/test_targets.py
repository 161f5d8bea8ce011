"""One program on every backend: `cuda` gives what `reference` and `cpu` give."""

from __future__ import annotations

import pytest

import aicf
from tests.gpu.cases import CASES
from tests.gpu.harness import assert_right, executable, program

pytestmark = pytest.mark.gpu

NAMES = (
    *("chain-f32", "encoder-f32", "norms-f32", "moves-f32", "integer_reductions-i32"),
    *(name for name in CASES if name.startswith("random-f32")),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_gives_the_same_on_every_target(name: str) -> None:
    """Each is held to float64, with the tolerance of its types; integers are equal."""
    made = program(name)
    assert_right(name, executable(name).run(made.inputs))
    for target in ("reference", "cpu"):
        model = aicf.compile(made.module, made.weights, target, **CASES[name].options)
        assert_right(name, model.run(made.inputs))
