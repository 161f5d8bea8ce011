"""Whole programs on the CPU backend: kernels, epilogues, threads, libraries, deterministic and self-contained code."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aicf.backends.cpu.runtime.blas import LIBRARY, function_address, host_libraries, table_name
from aicf.backends.cpu.target import host_level
from aicf.errors import BackendUnavailable, PolicyError
from tests.backends.cpu.harness import NUMPY, runnable_levels
from tests.backends.cpu.programs import (
    argument,
    compile_program,
    function,
    kernels_of,
    lower,
    mlp,
    normal,
    tensor,
)

Array = NDArray[Any]
HOST = host_level().name
EVERY_LEVEL = [level.name for level in runnable_levels()]


def close(found: Array, exact: Array, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(
        found, exact, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(exact).max()))
    )


def mlp_weights(width: int = 40, inner: int = 96) -> dict[str, Array]:
    return {
        "w1": normal(inner, width, seed=1),
        "b1": normal(inner, seed=2),
        "w2": normal(width, inner, seed=3) / inner,
    }


def mlp_reference(x: Array, weights: dict[str, Array], approximate: str) -> Array:
    wide = x.astype(np.float64)
    h = wide @ weights["w1"].T.astype(np.float64) + weights["b1"]
    inner = (
        np.vectorize(erf)(h / np.sqrt(2))
        if approximate == "none"
        else np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3))
    )
    y = 0.5 * h * (1 + inner) @ weights["w2"].T.astype(np.float64) + wide
    e = np.exp(y - y.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("level", EVERY_LEVEL)
@pytest.mark.parametrize("rows,approximate", [(1, "none"), (17, "tanh"), (70, "none")])
def test_mlp_with_gelu_and_residual(rows: int, approximate: str, level: str) -> None:
    weights, x = mlp_weights(), normal(rows, 40)
    executable = compile_program(mlp(rows, approximate), level, weights)
    close(executable(x), mlp_reference(x, weights, approximate))


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_threads_share_instructions(level: str, threads: int) -> None:
    text, weights, x = mlp(261, "tanh", 120, 400), mlp_weights(120, 400), normal(261, 120)
    assert str(lower(text, level, threads=threads)).count(f" threads = {threads} : i64, p") >= 2
    executable = compile_program(text, level, weights, threads=threads)
    first = executable(x)
    close(first, mlp_reference(x, weights, "tanh"))
    for _ in range(50):
        np.testing.assert_array_equal(executable(x), first)
    np.testing.assert_array_equal(compile_program(text, level, weights)(x), first)


def matmul(a: tuple[int, ...], b: tuple[int, ...], result: tuple[int, ...], dtype: str, flags: str) -> str:
    types = f"({tensor(a, dtype)}, {tensor(b, dtype)}) -> {tensor(result, dtype)}"
    return f"%r = logical.matmul %a, %b {{{flags}}} : {types}"


MATMULS = [
    ((5, 7), (7, 9), False, False),
    ((7, 5), (7, 9), True, False),
    ((5, 7), (9, 7), False, True),
    ((7, 5), (9, 7), True, True),
    ((1, 300), (300, 33), False, False),
    ((3, 5, 7), (3, 7, 9), False, False),
    ((3, 5, 7), (3, 9, 7), False, True),
    ((2, 3, 5, 7), (7, 9), False, False),
    ((4, 1, 7), (7, 9), False, False),
    ((2, 3, 7, 5), (7, 9), True, False),
    ((64, 1), (1, 80), False, False),
]


@pytest.mark.parametrize(
    "role,dtype", [("input", "f32"), ("param", "f32"), ("param", "f64"), ("input", "i32"), ("param", "i64")]
)
@pytest.mark.parametrize("a_shape,b_shape,transpose_a,transpose_b", MATMULS)
def test_matmul(
    a_shape: tuple[int, ...],
    b_shape: tuple[int, ...],
    transpose_a: bool,
    transpose_b: bool,
    role: str,
    dtype: str,
) -> None:
    rng = np.random.default_rng(8)
    a, b = ((rng.standard_normal(shape) * 50).astype(NUMPY[dtype]) for shape in (a_shape, b_shape))
    exact = np.matmul(
        (a.swapaxes(-1, -2) if transpose_a else a).astype(np.float64),
        (b.swapaxes(-1, -2) if transpose_b else b).astype(np.float64),
    )
    flags = ", ".join(name for name, on in (("transpose_a", transpose_a), ("transpose_b", transpose_b)) if on)
    text = function(
        [argument("a", a_shape, dtype), argument("b", b_shape, dtype, role)],
        (exact.shape, dtype),
        matmul(a_shape, b_shape, exact.shape, dtype, flags),
    )
    weights = {"b": b} if role == "param" else {}
    executable = compile_program(text, HOST, weights)
    close(executable(a) if role == "param" else executable(a, b), exact, 1e-5)


def test_bias_over_batches_stays_fused() -> None:
    shape = (2, 6, 5, 12)
    wide = tensor(shape, "f32")
    text = function(
        [
            argument("x", (2, 6, 5, 8)),
            argument("w", (12, 8), role="param"),
            argument("b", (12,), role="param"),
            argument("y", shape),
        ],
        (shape, "f32"),
        f"""%h = logical.linear %x, %w, %b : (tensor<2x6x5x8xf32>, tensor<12x8xf32>, tensor<12xf32>) -> {wide}
        %s = logical.sigmoid %h : {wide}
        %r = logical.mul %s, %y : {wide}""",
    )
    weights = {"w": normal(12, 8, seed=1), "b": normal(12, seed=2)}
    x, y = normal(2, 6, 5, 8), normal(*shape, seed=3)
    exact = y / (1 + np.exp(-(x.astype(np.float64) @ weights["w"].T + weights["b"])))
    close(compile_program(text, HOST, weights)(x, y), exact)
    assert len([kernel for kernel in kernels_of(lower(text, HOST)) if kernel != "cpu.pack"]) == 1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat(axis: int, threads: int) -> None:
    shapes = [tuple(5 + number if dim == axis else 40 for dim in range(3)) for number in range(3)]
    result = tuple(18 if dim == axis else 40 for dim in range(3))
    types = ", ".join(tensor(shape, "f32") for shape in shapes)
    text = function(
        [argument(f"x{number}", shape) for number, shape in enumerate(shapes)],
        (result, "f32"),
        f"%r = logical.concat %x0, %x1, %x2 {{axis = {axis}}} : ({types}) -> {tensor(result, 'f32')}",
    )
    inputs = [normal(*shape, seed=number) for number, shape in enumerate(shapes)]
    np.testing.assert_array_equal(
        compile_program(text, HOST, {}, threads=threads)(*inputs), np.concatenate(inputs, axis)
    )


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "i32", "i1"])
def test_transposed_result_is_a_copy(dtype: str) -> None:
    text = function(
        [argument("x", (6, 5, 35), dtype)],
        ((35, 6, 5), dtype),
        f"%r = logical.transpose %x {{permutation = [2, 0, 1]}} : tensor<6x5x35x{dtype}> -> tensor<35x6x5x{dtype}>",
    )
    x = (normal(6, 5, 35) * 9).astype(NUMPY[dtype])
    np.testing.assert_array_equal(compile_program(text, HOST, {})(x), x.transpose(2, 0, 1))
    assert kernels_of(lower(text, HOST)) == ["cpu.copy"]


# Choosing kernels


SQUARE = function(
    [argument("a", (64, 48)), argument("b", (48, 56))],
    ((64, 56), "f32"),
    "%r = logical.matmul %a, %b : (tensor<64x48xf32>, tensor<48x56xf32>) -> tensor<64x56xf32>",
)


@pytest.mark.parametrize(
    "level,kernel",
    [("x86-64-v4", "cpu.gemm_avx512"), ("x86-64-v3", "cpu.gemm_avx2"), ("x86-64-v2", "cpu.gemm_portable")],
)
def test_the_widest_legal_variant_is_chosen(level: str, kernel: str) -> None:
    assert kernels_of(lower(SQUARE, level)) == [kernel]


def test_rejected_variants_say_why() -> None:
    text = str(lower(SQUARE, "x86-64-v2"))
    assert "needs cpu level x86-64-v4 (512-bit vectors), the target is x86-64-v2" in text
    assert "the target lists no scipy-openblas64" in text


@pytest.mark.parametrize("kernel", ["cpu.gemm_avx2", "cpu.gemm_portable"])
def test_a_pinned_narrower_variant_runs(kernel: str) -> None:
    if not HOST.startswith("x86-64-v4"):
        pytest.skip("needs a machine with several variants")
    a, b = normal(64, 48), normal(48, 56, seed=1)
    policy = {"kernels": {"gemm": kernel}}
    assert kernels_of(lower(SQUARE, HOST, policy=policy)) == [kernel]
    close(compile_program(SQUARE, HOST, {}, policy=policy)(a, b), a.astype(np.float64) @ b)


# The library


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("a_shape,b_shape,transpose_a,transpose_b", [m for m in MATMULS if m[0] != (64, 1)])
def test_library_gemm(a_shape: Any, b_shape: Any, transpose_a: bool, transpose_b: bool, threads: int) -> None:
    a, b = normal(*a_shape, dtype=np.float64), normal(*b_shape, dtype=np.float64, seed=1)
    exact = np.matmul(a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b)
    flags = ", ".join(name for name, on in (("transpose_a", transpose_a), ("transpose_b", transpose_b)) if on)
    text = function(
        [argument("a", a_shape, "f64"), argument("b", b_shape, "f64")],
        (exact.shape, "f64"),
        matmul(a_shape, b_shape, exact.shape, "f64", flags),
    )
    options: dict[str, Any] = {
        "policy": {"kernels": {"gemm": "cpu.gemm_blas"}},
        "library": host_libraries()[LIBRARY],
        "threads": threads,
    }
    assert kernels_of(lower(text, HOST, **options)) == ["cpu.gemm_blas"]
    close(compile_program(text, HOST, {}, **options)(a, b), exact, 1e-13)


@pytest.mark.parametrize("left", [False, True])
def test_the_library_is_given_no_windows_that_overlap(left: bool) -> None:
    view = "%v = logical.window %x {sizes = [64], strides = [8], dilations = [1]}"
    product = (
        "%r = logical.matmul %v, %w : (tensor<30x64xf32>, tensor<64x40xf32>) -> tensor<30x40xf32>"
        if left
        else "%r = logical.matmul %w, %v {transpose_a, transpose_b} : (tensor<64x40xf32>, tensor<30x64xf32>)"
        " -> tensor<40x30xf32>"
    )
    text = function(
        [argument("x", (300,)), argument("w", (64, 40))],
        ((30, 40) if left else (40, 30), "f32"),
        f"{view} : tensor<300xf32> -> tensor<30x64xf32>\n{product}",
    )
    policy = {"kernels": {"gemm": "cpu.gemm_blas"}}
    with pytest.raises(PolicyError, match="takes no rows that overlap, the strides of"):
        lower(text, HOST, policy=policy, library="0.1 Core")


def test_another_library_version_is_refused() -> None:
    if not host_libraries():
        with pytest.raises(BackendUnavailable, match="which is not installed: pip install scipy-openblas64"):
            function_address(table_name("scipy_cblas_sgemm64_", "0.1 Old"))
        return
    with pytest.raises(BackendUnavailable, match=r"compiled for scipy-openblas64 0\.1 Old, here is"):
        function_address(table_name("scipy_cblas_sgemm64_", "0.1 Old"))


def test_constants_are_moved_like_operands() -> None:
    text = function(
        [argument("x", (4, 3))],
        ((4, 9), "f32"),
        """%c = logical.constant dense<2.5> : tensor<4x2xf32>
        %d = logical.constant dense<-1.0> : tensor<4x1xf32>
        %r = logical.concat %c, %x, %d, %x {axis = 1}
           : (tensor<4x2xf32>, tensor<4x3xf32>, tensor<4x1xf32>, tensor<4x3xf32>) -> tensor<4x9xf32>""",
    )
    x = normal(4, 3)
    exact = np.concatenate([np.full((4, 2), 2.5), x, np.full((4, 1), -1), x], 1)
    np.testing.assert_array_equal(compile_program(text, HOST, {})(x), exact)


def test_a_returned_constant_is_filled_in() -> None:
    text = function(
        [argument("x", (4,))], ((4, 3), "i64"), "%r = logical.constant dense<-7> : tensor<4x3xi64>"
    )
    np.testing.assert_array_equal(compile_program(text, HOST, {})(normal(4)), np.full((4, 3), -7))
