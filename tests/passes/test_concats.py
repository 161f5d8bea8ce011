"""Concatenations that their producers write: real programs against NumPy, and random graphs full of them."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import aicf
from aicf.errors import InvalidIR
from aicf.frontends.text import make_context, parse_module
from aicf.passes.emit.lower_to_emit import LowerToEmitPass
from aicf.passes.emit.raise_emit import RaiseEmitPass
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run
from tests.passes.test_pipeline_prefixes import TARGETS, check_prefixes
from tests.passes.test_raise_emit import compiled, stripped
from tests.support.concat_programs import PROGRAMS, ConcatProgram, random_arrays
from tests.support.random_graphs import RandomProgram, random_program
from tests.support.random_steps.concats import STEPS

COPIED = {"fusion": {"concat": False}}


def graph(seed: int) -> RandomProgram:
    return random_program(seed, float_type="f64" if seed % 5 == 0 else "f32", steps=6, taken=STEPS)


def results(exe: aicf.CompiledModel, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    found = exe(**feeds)
    return list(
        found.values() if isinstance(found, dict) else found if isinstance(found, tuple) else (found,)
    )


FOLDED = {"rotary"}
"""Programs that have no concat left, as `fold-rotations` takes it."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_with_and_without(name: str) -> None:
    """The same values whether parts are copied or not, and fewer bytes moved where they are not."""
    program: ConcatProgram = PROGRAMS[name]()
    rng = np.random.default_rng(len(name))
    feeds, weights = random_arrays(program.feeds, rng), random_arrays(program.weights, rng)
    expected = program.meaning({key: value.astype(np.float64) for key, value in (feeds | weights).items()})
    moved: list[int] = []
    for policy in ({}, COPIED):
        exe = aicf.compile(program.build(), weights=weights, target="cpu", policy=policy)
        for given, wanted in zip(results(exe, feeds), expected.values(), strict=True):
            np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-4)
        (explained,) = (each for each in exe.explain().programs if each.name != "prepare")
        moved.append(sum(row.bytes for row in explained.rows))
    assert moved[0] == moved[1] if name in FOLDED else moved[0] < moved[1]


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_prefixes_of_random_graphs(first: int) -> None:
    for seed in range(first, first + 4):
        program = graph(seed)
        check_prefixes(
            program.module, program.inputs, seed, f"seed {seed}", target=TARGETS[seed % 2], whole=False
        )


@pytest.mark.parametrize("first", (20, 24))
def test_raised_programs_are_the_same_again(first: int) -> None:
    for seed in range(first, first + 4):
        module, target = graph(seed).module, TARGETS[seed % 2]
        compiled(module, target)
        text = stripped(module)
        RaiseEmitPass().apply(make_context(), module)
        again = parse_module(str(module), "raised")
        compiled(again, start="lowered")
        assert stripped(again) == text, f"seed {seed}"


def _lowered(text: str) -> ModuleOp:
    """Groups as they are written by hand, up to programs."""
    module = parse_module(text, "hand")
    run((*AicfInferencePass("cpu:x86-64-v3", start="lowered").passes()[:1],), make_context(), module)
    LowerToEmitPass().apply(make_context(), module)
    return module


HAND = """func.func @hand(%x : tensor<3x4xf32> {{logical.name = "x", logical.role = "input"}})
    -> (tensor<6x4xf32> {{logical.name = "y"}}) {{
  %e = emit.group "exp" from ["exp"] ins(%a = %x : tensor<3x4xf32>) -> (tensor<3x4xf32>)
      kernel("reference.body", {{version = 1 : i64, determinism = "bitwise"}}) {{
    %r = logical.exp %a {{aicf.id = "exp", aicf.src = ["exp"]}} : tensor<3x4xf32>
    emit.yield %r : tensor<3x4xf32>
  }}
  %y = logical.concat {parts} {{axis = 0, aicf.id = "cat", aicf.src = ["cat"]}} :
      (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<6x4xf32>
  func.return %y : tensor<6x4xf32>
}}"""


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            "%e, %x",
            "no instruction writes operand 1; put the concatenation into a group, and run elide-concats",
        ),
        ("%e, %e", "operand . belongs in two places; put the concatenation into a group"),
    ],
)
def test_a_view_by_hand_that_nobody_could_write(parts: str, message: str) -> None:
    with pytest.raises(InvalidIR, match=message):
        _lowered(HAND.format(parts=parts))
