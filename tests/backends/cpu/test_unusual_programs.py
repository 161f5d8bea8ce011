"""Programs that reuse operands in unusual ways, run natively twice with one and two threads, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.backends.reference.interpreter import run_module
from aicf.frontends.text import parse_module

Array = NDArray[np.generic]


def argument(name: str, type_: str, role: str = "input") -> str:
    return f'%{name} : {type_} {{logical.name = "{name}", logical.role = "{role}"}}'


def function(arguments: list[str], results: list[str], *lines: str) -> str:
    body = "\n".join(lines)
    return f"func.func @f({', '.join(arguments)}) -> ({', '.join(results)}) {{\n{body}\n}}"


def result(type_: str, name: str = "", updates: str = "") -> str:
    entries = [f'logical.name = "{name}"'] if name else []
    entries += [f'logical.updates = "{updates}"'] if updates else []
    return f"{type_} {{{', '.join(entries)}}}"


V, M, T = "tensor<4xf32>", "tensor<4x4xf32>", "tensor<3x4xf32>"
SPREAD = (
    f"%1 = logical.broadcast %v {{dimensions = [0]}} : {V} -> {M}",
    f"%2 = logical.broadcast %v {{dimensions = [1]}} : {V} -> {M}",
)

PROGRAMS = {
    "outer_product_of_one_vector": function(
        [argument("v", V)],
        [result(M, "y")],
        *SPREAD,
        f"%3 = logical.mul %1, %2 : {M}",
        f"func.return %3 : {M}",
    ),
    "pairwise_differences_of_a_computed_vector": function(
        [argument("x", V)],
        [result(M, "y")],
        f"%v = logical.exp %x : {V}",
        *SPREAD,
        f"%3 = logical.sub %1, %2 : {M}",
        f"func.return %3 : {M}",
    ),
    "row_sums_along_columns": function(
        [argument("x", M)],
        [result(M, "y")],
        f"%r = logical.reduce_sum %x {{axes = [1]}} : {M} -> {V}",
        f"%b = logical.broadcast %r {{dimensions = [1]}} : {V} -> {M}",
        f"%1 = logical.sub %x, %b : {M}",
        f"func.return %1 : {M}",
    ),
    "product_with_own_transposition": function(
        [argument("x", T)],
        [result("tensor<3x3xf32>", "y")],
        f"%t = logical.transpose %x {{permutation = [1, 0]}} : {T} -> tensor<4x3xf32>",
        f"%1 = logical.matmul %x, %t : ({T}, tensor<4x3xf32>) -> tensor<3x3xf32>",
        "func.return %1 : tensor<3x3xf32>",
    ),
    "square_with_itself_as_residual": function(
        [argument("x", M)],
        [result(M, "y")],
        f"%1 = logical.matmul %x, %x : ({M}, {M}) -> {M}",
        f"%2 = logical.add %1, %x : {M}",
        f"func.return %2 : {M}",
    ),
    "covariance": function(
        [argument("x", T)],
        [result("tensor<3x3xf32>", "y"), result("tensor<3xf32>", "d")],
        f"%r = logical.reduce_mean %x {{axes = [1], keepdims}} : {T} -> tensor<3x1xf32>",
        f"%b = logical.broadcast %r {{dimensions = [0, 1]}} : tensor<3x1xf32> -> {T}",
        f"%c = logical.sub %x, %b : {T}",
        f"%m = logical.matmul %c, %c {{transpose_b}} : ({T}, {T}) -> tensor<3x3xf32>",
        "%s = logical.reduce_max %m {axes = [0]} : tensor<3x3xf32> -> tensor<3xf32>",
        "func.return %m, %s : tensor<3x3xf32>, tensor<3xf32>",
    ),
    "scalar": function(
        [argument("x", "tensor<f32>")],
        [result("tensor<f32>", "y")],
        "%1 = logical.exp %x : tensor<f32>",
        "func.return %1 : tensor<f32>",
    ),
    "constant_and_argument": function(
        [argument("x", V)],
        [result("tensor<2xf32>", "c"), result(V, "x2"), result(V, "x3")],
        "%1 = logical.constant dense<[1.0, 2.0]> : tensor<2xf32>",
        f"func.return %1, %x, %x : tensor<2xf32>, {V}, {V}",
    ),
    "old_and_new_state": function(
        [argument("x", V), argument("s", V, "state")],
        [result(V, "old"), result(V, "new", "s")],
        f"%1 = logical.add %s, %x : {V}",
        f"func.return %s, %1 : {V}, {V}",
    ),
    "one_value_for_two_states": function(
        [argument("x", V), argument("s", V, "state"), argument("t", V, "state")],
        [result(V, "y"), result(V, "", "s"), result(V, "", "t")],
        f"%y = logical.mul %s, %t : {V}",
        f"%1 = logical.add %s, %x : {V}",
        f"func.return %y, %1, %1 : {V}, {V}, {V}",
    ),
    "swapped_states": function(
        [argument("x", V), argument("s", V, "state"), argument("t", V, "state")],
        [result(V, "y"), result(V, "", "s"), result(V, "", "t")],
        f"%y = logical.sub %s, %x : {V}",
        f"func.return %y, %t, %s : {V}, {V}, {V}",
    ),
    "transposed_state": function(
        [argument("x", M), argument("s", M, "state")],
        [result(M, "y"), result(M, "", "s")],
        f"%t = logical.transpose %s {{permutation = [1, 0]}} : {M} -> {M}",
        f"%1 = logical.add %t, %x : {M}",
        f"%y = logical.neg %s : {M}",
        f"func.return %y, %1 : {M}, {M}",
    ),
    "attention": function(
        [argument(name, "tensor<2x3x4x8xf32>") for name in "qkv"],
        [result("tensor<2x4x24xf32>", "y")],
        "%a = logical.matmul %q, %k {transpose_b} : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x4xf32>",
        "%s = logical.softmax %a {axis = 3} : tensor<2x3x4x4xf32>",
        "%o = logical.matmul %s, %v : (tensor<2x3x4x4xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>",
        "%t = logical.transpose %o {permutation = [0, 2, 1, 3]} : tensor<2x3x4x8xf32> -> tensor<2x4x3x8xf32>",
        "%r = logical.reshape %t : tensor<2x4x3x8xf32> -> tensor<2x4x24xf32>",
        "func.return %r : tensor<2x4x24xf32>",
    ),
}


def feeds_of(module, random: np.random.Generator) -> tuple[dict[str, Array], dict[str, Array]]:
    """Random inputs and states of the module's one function."""
    (op,) = module.body.block.ops
    inputs: dict[str, Array] = {}
    states: dict[str, Array] = {}
    for entry, value in zip(op.arg_attrs, op.args, strict=True):
        array = random.uniform(-1, 1, value.type.get_shape()).astype(np.float32)
        target = inputs if entry.data["logical.role"].data == "input" else states
        target[entry.data["logical.name"].data] = array
    return inputs, states


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, threads: int) -> None:
    module = parse_module(PROGRAMS[name], f"{name}.mlir")
    inputs, states = feeds_of(module, np.random.default_rng(5))
    exe = aicf.compile(module, weights=states, threads=threads)
    expected_states = dict(states)
    for _ in range(3):
        expected = run_module(module, {**inputs, **expected_states}, "exact")
        found = exe(inputs)
        values = found if isinstance(found, tuple) else (found,)
        for wanted, given in zip(expected.outputs.values(), values, strict=True):
            assert np.shape(given) == wanted.shape
            np.testing.assert_allclose(given, wanted, rtol=0, atol=2e-6)
        expected_states |= expected.updates


def test_windows_that_overlap_are_no_matrix_of_a_library() -> None:
    """The columns of the right operand share elements: a library takes the distance of two for a mistake."""
    random = np.random.default_rng(6)
    x = random.standard_normal((1, 1, 640)).astype(np.float32)
    w = random.standard_normal((64, 1, 256)).astype(np.float32)
    graph = aicf.Graph("windows")
    graph.output(graph.conv(graph.input("x", x.shape), graph.param("w", w.shape), strides=[128]), "y")
    windows = np.lib.stride_tricks.sliding_window_view(x[0, 0].astype(np.float64), 256)[::128]
    found = aicf.compile(graph, {"w": w})(x)
    np.testing.assert_allclose(found[0], w[:, 0].astype(np.float64) @ windows.T, rtol=0, atol=1e-4)
