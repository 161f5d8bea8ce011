"""Random programs compiled for this machine and run natively, against the float64 reference.

All passes, kernels and the runtime together; single kernels are compared in the other files of this folder.
"""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.func import FuncOp

import aicf
from aicf.backends.cpu.target import check_host, level_named
from aicf.backends.reference.interpreter import run_module
from aicf.dialects.logical import CastOp
from aicf.dialects.types import element_of
from tests.support.elementwise_ops import INTEGERS
from tests.support.random_graphs import RandomProgram, random_program

TOLERANCE = {"f32": 1e-4, "f64": 1e-9, "f16": 1e-2, "bf16": 8e-2}
"""Of the largest magnitude of a result or 1: a chain of rounded ops, each within a few ulp."""

FLOAT_TYPES = ("f64", "f32", "f16", "f32", "bf16")

CHUNK = 6


def roles(program: RandomProgram) -> dict[str, str]:
    (function,) = (op for op in program.module.body.block.ops if isinstance(op, FuncOp))
    assert function.arg_attrs is not None
    return {e.data["logical.name"].data: e.data["logical.role"].data for e in function.arg_attrs}


def check(seed: int, target: str, threads: int) -> None:
    float_type = FLOAT_TYPES[seed % len(FLOAT_TYPES)]
    program = random_program(seed, float_type=float_type, integers=INTEGERS, steps=12)
    expected = run_module(program.module, program.inputs, "exact").outputs
    if any(
        isinstance(op, CastOp) and element_of(op.operand.type).name == "f32" for op in program.module.walk()
    ):
        float_type = max(
            float_type, "f32", key=lambda name: TOLERANCE[name]
        )  # as rates of training steps are
    role_of = roles(program)
    weights = {name: array for name, array in program.inputs.items() if role_of[name] == "param"}
    inputs = {name: array for name, array in program.inputs.items() if role_of[name] == "input"}
    exe = aicf.compile(program.module, weights=weights, target=target, threads=threads, training=True)
    found = exe(inputs)
    given = found if isinstance(found, dict) else dict(zip(expected, _tuple(found), strict=True))
    for name, wanted in expected.items():
        actual = np.asarray(given[name])
        assert actual.shape == wanted.shape, f"seed {seed}: {name}"
        scale = max(1.0, float(np.max(np.abs(wanted.astype(np.float64)), initial=0.0)))
        difference = np.abs(actual.astype(np.float64) - wanted.astype(np.float64))
        limit = TOLERANCE[float_type] * scale
        assert np.all(difference <= limit), f"seed {seed}: {name} is off by {np.max(difference)}"


def _tuple(found: object) -> tuple[object, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.drawn
@pytest.mark.parametrize("first", range(0, 42, CHUNK))
def test_host(first: int) -> None:
    for seed in range(first, first + CHUNK):
        check(seed, "cpu", threads=2 if seed % 4 == 1 else 1)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("first", [100, 106])
def test_lower_levels(level: str, first: int) -> None:
    """Code for a lower level runs on this machine as well, if this machine has it."""
    try:
        check_host(level_named(level))
    except aicf.BackendUnavailable as error:
        pytest.skip(str(error))
    for seed in range(first, first + CHUNK):
        check(seed, f"cpu:{level}", threads=1)
