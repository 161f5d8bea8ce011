"""Digests of code: what changes them, and what does not."""

from __future__ import annotations

from types import FunctionType

import numba
import pytest
from numba import cuda

from aicf.backends.common.user_code import (
    CpuFunction,
    CudaFunction,
    CudaSource,
    SharedFunction,
    function_digest,
)

FACTOR = 2.0
OFFSET = 1.0


def helper(value):
    return value * FACTOR


def scaled(x, y, n):
    for i in range(n):
        y[i] = helper(x[i]) if i in {1, 2, 3} else (lambda value: value + OFFSET)(x[i])


def edited(**changed) -> str:
    """The digest of `scaled` where other things are so called in its module."""
    return function_digest(FunctionType(scaled.__code__, {**globals(), **changed}))


def test_the_same_function_has_one_digest() -> None:
    """In other processes, too: `test_custom_ops` compares the bytes of artifacts, which have it."""
    assert edited() == function_digest(scaled) == CpuFunction(scaled).digest


def test_what_a_function_reads_from_outside_is_in_its_digest() -> None:
    def other(value):
        return value * FACTOR + 1

    numbers = {**globals(), "FACTOR": 3.0}
    assert edited(helper=other) != edited()
    assert edited(OFFSET=2.0) != edited()  # which only the function inside of it reads
    assert edited(helper=FunctionType(helper.__code__, numbers)) != edited()


@pytest.mark.parametrize(
    "other",
    [
        "def scaled(x, y, n):\n    for i in range(n):\n        y[i] = x[i] * 3\n",
        "def scaled(x, y, n):\n    for i in range(n):\n        y[i] = x[i] * 2.0\n",
        "def scaled(y, x, n):\n    for i in range(n):\n        y[i] = x[i] * 2\n",
    ],
)
def test_another_text_has_another_digest(other: str) -> None:
    """Also without a file to read it from, as in a session."""
    first = "def scaled(x, y, n):\n    for i in range(n):\n        y[i] = x[i] * 2\n"
    found = []
    for text in (first, first, other):
        names: dict[str, FunctionType] = {}
        exec(text, names)
        found.append(function_digest(names["scaled"]))
    assert found[0] == found[1] != found[2]


def test_what_numba_made_of_a_function_stands_for_it() -> None:
    made = (numba.njit(helper), numba.cfunc("float64(float64)")(helper))
    assert {CpuFunction(each).python for each in made} == {helper}
    assert CudaFunction(cuda.jit(scaled)).python is scaled


def test_sources_and_libraries() -> None:
    source = 'extern "C" __global__ void f(float* x) { x[0] = 1; }'
    digests = {
        CudaSource(source, "f").digest,
        CudaSource(source.replace("1", "2"), "f").digest,
        CudaSource(source, "f", ("--use_fast_math",)).digest,
        SharedFunction("libc.so.6", "bcopy").digest,
        SharedFunction("libc.so.6", "memcpy").digest,
    }
    assert len(digests) == 5
