"""Generated kernels of bodies: iteration space, index maps, phases, what is kept, and why some bodies have none."""

from __future__ import annotations

import pytest
from xdsl.ir.affine import AffineMap

from aicf.dialects.emit_kernels import KernelOp
from aicf.passes.bodies.kernel_code import NoCode, derive_code
from tests.passes.bodies import body

M = "tensor<4x6xf32>"


def code(arguments: str, *lines: str) -> KernelOp:
    return derive_code(body(arguments, *lines), "k")


def maps(found: list[AffineMap] | tuple[AffineMap, ...]) -> list[str]:
    return [str(entry) for entry in found]


def scalar_ops(kernel: KernelOp) -> list[list[str]]:
    """Names of the ops of each phase, without its yield."""
    return [[op.name for op in phase.body.block.ops][:-1] for phase in kernel.phases]


def kept(kernel: KernelOp) -> list[list[str | None]]:
    return [[result.name_hint for result in phase.results] for phase in kernel.phases]


def test_pointwise_is_one_phase_with_maps_for_broadcasts() -> None:
    kernel = code(
        f"%x : {M}, %r : tensor<6xf32>, %c : tensor<4x1xf32>, %s : tensor<f32>",
        f"%rb = logical.broadcast %r {{dimensions = [1]}} : tensor<6xf32> -> {M}",
        f"%cb = logical.broadcast %c {{dimensions = [0, 1]}} : tensor<4x1xf32> -> {M}",
        f"%sb = logical.broadcast %s {{dimensions = []}} : tensor<f32> -> {M}",
        f"%1 = logical.mul %x, %rb : {M}",
        f"%2 = logical.sub %1, %cb : {M}",
        f"%3 = logical.div %2, %sb : {M}",
        f"emit.yield %3 : {M}",
    )
    assert (list(kernel.parallel_sizes), list(kernel.reduce_sizes)) == ([4, 6], [])
    assert maps(kernel.in_maps) == [
        "(d0, d1) -> (d0, d1)",
        "(d0, d1) -> (d1)",
        "(d0, d1) -> (d0, 0)",
        "(d0, d1) -> ()",
    ]
    assert maps(kernel.out_maps) == ["(d0, d1) -> (d0, d1)"]
    assert scalar_ops(kernel) == [["arith.mulf", "arith.subf", "arith.divf", "emit.store"]]


def test_dims_of_size_one_are_constant_in_maps() -> None:
    kernel = code(
        "%x : tensor<1x6xf32>", "%1 = logical.exp %x : tensor<1x6xf32>", "emit.yield %1 : tensor<1x6xf32>"
    )
    assert maps(kernel.in_maps) == ["(d0, d1) -> (0, d1)"]


def test_several_results_are_stored_in_one_phase() -> None:
    kernel = code(
        f"%x : {M}",
        f"%1 = logical.exp %x : {M}",
        f"%2 = logical.neg %1 : {M}",
        f"emit.yield %1, %2 : {M}, {M}",
    )
    assert scalar_ops(kernel) == [["math.exp", "emit.store", "arith.negf", "emit.store"]]
    assert maps(kernel.out_maps) == ["(d0, d1) -> (d0, d1)"] * 2


def test_reduced_dims_come_last() -> None:
    kernel = code(
        "%x : tensor<4x5x6xf32>",
        "%1 = logical.reduce_sum %x {axes = [0, 2]} : tensor<4x5x6xf32> -> tensor<5xf32>",
        "emit.yield %1 : tensor<5xf32>",
    )
    assert (list(kernel.parallel_sizes), list(kernel.reduce_sizes)) == ([5], [4, 6])
    assert maps(kernel.in_maps) == ["(d0, d1, d2) -> (d1, d0, d2)"]
    assert maps(kernel.out_maps) == ["(d0, d1, d2) -> (d0)"]
    assert scalar_ops(kernel) == [["emit.reduce"], ["emit.store"]]


def test_expensive_values_are_kept_and_cheap_ones_computed_again() -> None:
    column = "tensor<4x1xf32>"
    kernel = code(
        f"%x : {M}",
        f"%h = logical.constant dense<0.5> : {M}",
        f"%cheap = logical.mul %x, %h : {M}",
        f"%dear = logical.exp %cheap : {M}",
        f"%sum = logical.reduce_sum %dear {{axes = [1], keepdims}} : {M} -> {column}",
        f"%root = logical.sqrt %sum : {column}",
        f"%spread = logical.broadcast %root {{dimensions = [0, 1]}} : {column} -> {M}",
        f"%1 = logical.div %dear, %spread : {M}",
        f"%2 = logical.add %1, %cheap : {M}",
        f"emit.yield %2 : {M}",
    )
    assert kept(kernel) == [["sum", "dear"], []]
    first, last = scalar_ops(kernel)
    assert first == ["arith.constant", "arith.mulf", "math.exp", "emit.reduce"]
    assert sorted(last) == sorted(
        ["math.sqrt", "arith.divf", "arith.constant", "arith.mulf", "arith.addf", "emit.store"]
    )


def test_values_of_a_row_are_kept_for_later_sweeps() -> None:
    column = "tensor<4x1xf32>"
    kernel = code(
        f"%x : {M}",
        f"%n = logical.constant dense<6.0> : {column}",
        f"%sum = logical.reduce_sum %x {{axes = [1], keepdims}} : {M} -> {column}",
        f"%mean = logical.div %sum, %n : {column}",
        f"%back = logical.broadcast %mean {{dimensions = [0, 1]}} : {column} -> {M}",
        f"%centred = logical.sub %x, %back : {M}",
        f"%largest = logical.reduce_max %centred {{axes = [1], keepdims}} : {M} -> {column}",
        f"%top = logical.broadcast %largest {{dimensions = [0, 1]}} : {column} -> {M}",
        f"%1 = logical.sub %centred, %top : {M}",
        f"emit.yield %1 : {M}",
    )
    assert kept(kernel) == [["sum"], ["largest", "mean"], []]


def test_epilogue_reads_the_accumulator_and_not_the_factors() -> None:
    kernel = code(
        f"%a : tensor<4x8xf32>, %w : tensor<8x6xf32>, %b : tensor<6xf32>, %z : {M}",
        f"%m = logical.matmul %a, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> {M}",
        f"%bb = logical.broadcast %b {{dimensions = [1]}} : tensor<6xf32> -> {M}",
        f"%1 = logical.add %m, %bb : {M}",
        f"%2 = logical.add %1, %z : {M}",
        f"emit.yield %2 : {M}",
    )
    assert [argument.name_hint for argument in kernel.body.block.args] == ["m", "b", "z"]
    assert maps(kernel.in_maps) == ["(d0, d1) -> (d0, d1)", "(d0, d1) -> (d1)", "(d0, d1) -> (d0, d1)"]
    assert scalar_ops(kernel) == [["arith.addf", "arith.addf", "emit.store"]]


def test_what_is_normed_after_a_product_is_computed_once() -> None:
    """The sum of product and residual is kept from phase to phase, and stored without being added again."""
    column = "tensor<4x1xf32>"
    kernel = code(
        f"%a : tensor<4x8xf32>, %w : tensor<8x6xf32>, %z : {M}",
        f"%m = logical.matmul %a, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> {M}",
        f"%v = logical.add %m, %z : {M}",
        f"%top = logical.reduce_max %v {{axes = [1], keepdims}} : {M} -> {column}",
        f"%back = logical.broadcast %top {{dimensions = [0, 1]}} : {column} -> {M}",
        f"%c = logical.sub %v, %back : {M}",
        f"emit.yield %c, %v : {M}, {M}",
    )
    assert [argument.name_hint for argument in kernel.body.block.args] == ["m", "z"]
    assert kept(kernel) == [["top", "v"], []]
    assert scalar_ops(kernel) == [["arith.addf", "emit.reduce"], ["arith.subf", "emit.store", "emit.store"]]


@pytest.mark.parametrize(
    ("arguments", "lines", "reason"),
    [
        pytest.param(
            f"%x : {M}",
            [
                f"%1 = logical.exp %x : {M}",
                f"%2 = logical.transpose %1 {{permutation = [1, 0]}} : {M} -> tensor<6x4xf32>",
                "emit.yield %2 : tensor<6x4xf32>",
            ],
            "logical.transpose moves elements between ops of one instruction",
            id="transposition_behind",
        ),
        pytest.param(
            "%x : tensor<4x4xf32>",
            [
                "%1 = logical.exp %x : tensor<4x4xf32>",
                "%2 = logical.transpose %1 {permutation = [1, 0]} : tensor<4x4xf32> -> tensor<4x4xf32>",
                "emit.yield %2 : tensor<4x4xf32>",
            ],
            "logical.transpose moves elements between ops of one instruction",
            id="square_transposition",
        ),
        pytest.param(
            f"%x : {M}",
            [
                f"%1 = logical.reduce_sum %x {{axes = [1]}} : {M} -> tensor<4xf32>",
                "%2 = logical.reduce_sum %1 {axes = [0]} : tensor<4xf32> -> tensor<f32>",
                "emit.yield %2 : tensor<f32>",
            ],
            "reductions over different axes",
            id="axes",
        ),
        pytest.param(
            "%x : tensor<4x8xf32>, %y : tensor<3x8xf32>",
            [
                "%1 = logical.reduce_sum %x {axes = [0, 1]} : tensor<4x8xf32> -> tensor<f32>",
                "%2 = logical.reduce_sum %y {axes = [0, 1]} : tensor<3x8xf32> -> tensor<f32>",
                "%3 = logical.add %1, %2 : tensor<f32>",
                "emit.yield %3 : tensor<f32>",
            ],
            "reductions of different shapes",
            id="shapes_of_reductions",
        ),
        pytest.param(
            "%x : tensor<4x4xf32>",
            [
                "%1 = logical.reduce_sum %x {axes = [1]} : tensor<4x4xf32> -> tensor<4xf32>",
                "%2 = logical.broadcast %1 {dimensions = [1]} : tensor<4xf32> -> tensor<4x4xf32>",
                "%3 = logical.sub %x, %2 : tensor<4x4xf32>",
                "emit.yield %3 : tensor<4x4xf32>",
            ],
            "reads a value at other indices than another op computes or reads it",
            id="row_sums_along_columns",
        ),
        pytest.param(
            "%x : tensor<4xf32>",
            [
                "%1 = logical.broadcast %x {dimensions = [0]} : tensor<4xf32> -> tensor<4x4xf32>",
                "%2 = logical.broadcast %x {dimensions = [1]} : tensor<4xf32> -> tensor<4x4xf32>",
                "%3 = logical.mul %1, %2 : tensor<4x4xf32>",
                "emit.yield %3 : tensor<4x4xf32>",
            ],
            "reads a value at other indices than another op computes or reads it",
            id="outer_product_of_one_value",
        ),
        pytest.param(
            "%a : tensor<4x4xf32>, %b : tensor<4x4xf32>",
            [
                "%1 = logical.matmul %a, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
                "%2 = logical.reduce_sum %1 {axes = [1]} : tensor<4x4xf32> -> tensor<4xf32>",
                "emit.yield %2 : tensor<4xf32>",
            ],
            "a reduction after a product",
            id="reduced_product",
        ),
        pytest.param(
            "%a : tensor<4x4xf32>, %b : tensor<4x4xf32>",
            [
                "%1 = logical.matmul %a, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
                "%2 = logical.matmul %1, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
                "emit.yield %2 : tensor<4x4xf32>",
            ],
            "two products in one instruction",
            id="two_products",
        ),
        pytest.param(
            "%a : tensor<4x32xf32>, %b : tensor<4x18xui8>",
            [
                "%1 = logical.relu %a : tensor<4x32xf32>",
                '%2 = logical.matmul_blocks %1, %b {scheme = "Q4_0"} : (tensor<4x32xf32>, tensor<4x18xui8>) -> '
                "tensor<4x4xf32>",
                "emit.yield %2 : tensor<4x4xf32>",
            ],
            "a product of packed weights with a value that the same instruction computes",
            id="packed_product_of_a_computed_value",
        ),
        pytest.param(
            "%a : tensor<4x32xf32>, %b : tensor<3x4x18xui8>, %i : tensor<4xi64>",
            [
                '%1 = logical.matmul_blocks %a, %b, %i {scheme = "Q4_0"} : (tensor<4x32xf32>, tensor<3x4x18xui8>, '
                "tensor<4xi64>) -> tensor<4x4xf32>",
                "%2 = logical.relu %1 : tensor<4x4xf32>",
                "emit.yield %2 : tensor<4x4xf32>",
            ],
            "an op next to a product of packed weights that indices choose",
            id="chosen_packed_matrices",
        ),
        pytest.param(
            "%x : tensor<2xf32>",
            [
                "%c = logical.constant dense<[1.0, 2.0]> : tensor<2xf32>",
                "%1 = logical.add %x, %c : tensor<2xf32>",
                "emit.yield %1 : tensor<2xf32>",
            ],
            "a constant whose elements differ",
            id="table",
        ),
        pytest.param(
            "%x : tensor<6xf32>",
            [
                "%1 = logical.exp %x : tensor<6xf32>",
                "%2 = logical.reshape %1 : tensor<6xf32> -> tensor<2x3xf32>",
                "emit.yield %2 : tensor<2x3xf32>",
            ],
            "",
            id="reshape_behind",
        ),
    ],
)
def test_bodies_without_code(arguments: str, lines: list[str], reason: str) -> None:
    with pytest.raises(NoCode) as error:
        code(arguments, *lines)
    assert reason in str(error.value)
