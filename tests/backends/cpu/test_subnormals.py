"""Numbers below the smallest normal one in an update: states do not end among them, unless the record keeps them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.compilation.stages import print_module
from aicf.errors import InvalidIR
from aicf.frontends.text import make_context, parse_module
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from aicf.passes.verify.verify_emit import VerifyEmitPass
from tests.support.update_programs import Program, Tensor

SHAPES = ((37,), (4, 5))
NORMAL = np.finfo(np.float32).tiny
MOMENTUM = 0.9

Array = NDArray[np.floating]


def flushed(values: NDArray[np.float64]) -> Array:
    """In f32, where subnormal numbers are 0."""
    narrow = values.astype(np.float32)
    return np.where(np.abs(narrow) < NORMAL, np.float32(0), narrow)


def program() -> str:
    """Momentum for two tensors."""
    sgd = "sgd {momentum = 0.9 : f64}"
    return Program([Tensor(shape, sgd, ("momentum_buffer",)) for shape in SHAPES]).text()


def compiled(threads: int, subnormals: str = "zero") -> aicf.Executable:
    """The program with buffers from normal numbers over the smallest ones to 0."""
    weights: dict[str, Array] = {"step": np.array(3)}
    random = np.random.default_rng(1)
    for number, shape in enumerate(SHAPES):
        sizes = 10.0 ** random.uniform(-46, -34, shape) * random.choice([-1, 1], shape)
        weights |= {f"p{number}": random.normal(size=shape).astype(np.float32)}
        weights |= {f"p{number}.momentum_buffer": sizes.astype(np.float32)}
    executable = aicf.compile(program(), weights, "cpu", threads=threads)
    if subnormals == "zero":
        return executable
    return aicf.compile(edited(executable.ir("emit"), "zero", subnormals), weights)


def edited(emit: str, old: str, new: str) -> str:
    """The program with another entry in the record of its update."""
    entry = f'subnormals = "{old}"'
    assert emit.count(entry) == 1
    return emit.replace(entry, f'subnormals = "{new}"')


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("subnormals", ["zero", "keep"])
def test_a_state_that_decays_ends_as_zero(threads: int, subnormals: str):
    executable = compiled(threads, subnormals)
    before = executable.weights
    executable(*(np.zeros(shape, np.float32) for shape in SHAPES))
    state = executable.state()
    for number, shape in enumerate(SHAPES):
        name = f"p{number}.momentum_buffer"
        given = before[name]
        assert (np.abs(given) < NORMAL).any() and (np.abs(given) > 2 * NORMAL).any()
        if subnormals == "keep":
            wanted = given.astype(np.float64) * np.float64(np.float32(MOMENTUM))
            np.testing.assert_array_equal(state[name], wanted.astype(np.float32))
            continue
        wanted = flushed(flushed(given.astype(np.float64)).astype(np.float64) * np.float32(MOMENTUM))
        np.testing.assert_array_equal(state[name], wanted)
        assert state[name].shape == shape
    assert np.float32(1e-40) * np.ones(1, np.float32) > 0  # the thread that called computes as before


def test_what_the_record_may_say():
    with pytest.raises(InvalidIR, match="its 'subnormals' is tiny, legal: zero, keep"):
        compiled(1, "tiny")
    module = parse_module(program())
    AicfTrainingPass("cpu:aarch64-v8").apply(make_context(), module)
    module = parse_module(edited(print_module(module), "keep", "zero"))
    with pytest.raises(
        InvalidIR, match="instruction 'n0' .* its 'subnormals' is zero, legal: keep on aarch64-v8"
    ):
        VerifyEmitPass().apply(make_context(), module)
