"""What `check_kernel` says of kernels that are right, and of each that does what it must not."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.backends.cpu.runtime.shared_functions import shared_address, table_name
from aicf.errors import CaptureError, PolicyError
from aicf.kernels import CpuFunction, SharedFunction, TensorSpec
from aicf.testing import KernelMistake, check_kernel
from tests.kernels.top_p import define


def kernel(name, function, **more):
    aicf.custom_op("checked.double", lambda x: 2 * x)
    return aicf.kernel(
        f"checked.{name}",
        runs="checked.double",
        code=CpuFunction(function),
        arguments=lambda problem: (problem.operands[0].size,),
        **more,
    )


def doubled(x, y, n):
    for i in range(n):
        y[i] = x[i] * 2


def test_a_kernel_that_is_right() -> None:
    found = check_kernel(define(), (4, 50), attributes={"p": 0.8}, bounds=True)
    assert found.largest_error == 0.0 and found.guarded_bytes > 0 and found.runs == 4


@pytest.mark.parametrize("dtype", ["f64", "i64", "i32", "u8"])
def test_element_types(dtype: str) -> None:
    check_kernel(kernel("double", doubled), TensorSpec((3, 7), dtype), bounds=True)


def test_in_place_between_two_ops() -> None:
    check_kernel(kernel("in_place", doubled, in_place=[(0, 0)]), (3, 7))


def writes_past_the_end(x, y, n):
    for i in range(n + 2):
        y[i] = x[i] * 2


def writes_before_the_start(x, y, n):
    for i in range(-1, n):
        y[i] = x[i] * 2


def leaves_elements_out(x, y, n):
    for i in range(n - 3):
        y[i] = x[i] * 2


def adds_to_the_result(x, y, n):
    for i in range(n):
        y[i] += x[i] * 2


def changes_an_operand(x, y, n):
    for i in range(n):
        y[i] = x[i] * 2
    x[0] = 3


def computes_something_else(x, y, n):
    for i in range(n):
        y[i] = x[i] * 2.01


def gives_nan(x, y, n):
    for i in range(n):
        y[i] = x[i] * 2
    y[1] = math.nan


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            writes_past_the_end,
            r"around its result \(80 bytes\) it writes . bytes outside, the first . bytes past its end",
        ),
        (writes_before_the_start, "around its result .* bytes before its start"),
        (leaves_elements_out, "3 elements of the result follow from what was in its memory before"),
        (adds_to_the_result, "20 elements of the result follow from what was in its memory before"),
        (changes_an_operand, "it changes operand 0, which it may only read"),
        (computes_something_else, r"element \[.*\] is .*, the meaning gives .* above 1e-05"),
        (gives_nan, "1 elements are not NaN or infinite where the meaning is"),
    ],
)
def test_mistakes_are_found(function, message: str) -> None:
    with pytest.raises(KernelMistake, match=f"kernel 'checked.wrong' on cpu: {message}"):
        check_kernel(kernel("wrong", function), (4, 5), bounds=True)


def counts_its_calls(x, y, calls, n):
    calls[0] += 1
    for i in range(n):
        y[i] = x[i] * calls[0]


@pytest.mark.parametrize("determinism", ["bitwise", "unordered"])
def test_other_bits_in_each_run(determinism: str) -> None:
    """Its workspace keeps what the last run left there."""
    counting = kernel("counting", counts_its_calls, workspace_bytes=1, determinism=determinism)
    message = "two runs differ in 20 elements: it is not" if determinism == "bitwise" else "the meaning gives"
    with pytest.raises(KernelMistake, match=message):
        check_kernel(counting, (4, 5))


def define_copy():
    """bcopy of the C library: from, to, bytes."""
    aicf.custom_op("checked.same", lambda x: x)
    return aicf.kernel(
        "checked.bcopy",
        runs="checked.same",
        code=SharedFunction("libc.so.6", "bcopy"),
        arguments=lambda problem: (problem.operands[0].nbytes,),
    )


def test_a_function_of_a_shared_library() -> None:
    for dtype in ("bf16", "f64"):
        check_kernel(define_copy(), TensorSpec((5, 3), dtype), bounds=True, tolerance=1e-300)


def test_an_artifact_names_the_shared_library(tmp_path: Path) -> None:
    """It loads where the library is the same file, and says what is missing elsewhere."""
    define_copy()
    graph = aicf.Graph("copied")
    graph.output(graph.op("checked.same", graph.input("x", (4,))), "y")
    aicf.compile(graph, target="cpu").save(tmp_path / "copied.aicf")
    loaded = aicf.load(tmp_path / "copied.aicf")
    x = np.arange(4, dtype=np.float32)
    assert np.array_equal(loaded(x), x)
    (name,) = loaded.native.functions
    assert name == table_name("libc.so.6", "bcopy") and shared_address(name)
    _, digest, symbol, library = name.split(" ")
    with pytest.raises(
        aicf.BackendUnavailable, match=f"with SHA-256 000000000000, here is {digest[:12]}: install"
    ):
        shared_address(f"shared {'0' * 64} {symbol} {library}")
    with pytest.raises(aicf.BackendUnavailable, match="'libnone_such.so' of a kernel does not load"):
        shared_address(f"shared {digest} {symbol} libnone_such.so")
    with pytest.raises(aicf.ArtifactError, match="asks for an unknown function 'shared bcopy'"):
        shared_address("shared bcopy")


@pytest.mark.parametrize(
    ("library", "symbol", "message"),
    [
        ("libnone_such.so", "f", "the shared library 'libnone_such.so' of a kernel does not load"),
        ("libc.so.6", "no_such_function", "'libc.so.6' has no function 'no_such_function'"),
    ],
)
def test_a_shared_library_that_is_not_there(library: str, symbol: str, message: str) -> None:
    aicf.custom_op("checked.same", lambda x: x)
    missing = aicf.kernel("checked.missing", runs="checked.same", code=SharedFunction(library, symbol))
    with pytest.raises(aicf.BackendUnavailable, match=message):
        check_kernel(missing, (4,))


def raises(x, y, n):
    if n > 1000:
        raise ValueError
    for i in range(n):
        y[i] = x[i] * 2


def allocates(x, y, n):
    kept = np.empty(n)
    for i in range(n):
        kept[i] = x[i] * 2
    for i in range(n):
        y[i] = kept[i]


def has_no_type(x, y, n):
    y[0] = "text"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raises, "function 'raises' can raise, and a kernel has nobody to raise to"),
        (allocates, "function 'allocates' (calls NRT_|can raise)"),
        (
            has_no_type,
            r"function 'has_no_type' does not compile with Numba for \(float32\*, float32\*, int64\)",
        ),
    ],
)
def test_code_that_cannot_run_without_python(function, message: str) -> None:
    with pytest.raises(CaptureError, match=f"instruction 'checked': kernel 'checked.python': {message}"):
        check_kernel(kernel("python", function), (4, 5))


def test_what_a_check_needs() -> None:
    softmax = aicf.kernel(
        "checked.softmax", runs="softmax", code=CpuFunction(doubled), cost_us=lambda problem: 1.0
    )
    with pytest.raises(PolicyError, match="runs instructions of kind softmax: give a program that has one"):
        check_kernel(softmax, (4, 5))
    with pytest.raises(PolicyError, match="runs is 1; it takes 2"):
        check_kernel(softmax, (4, 5), runs=1)
