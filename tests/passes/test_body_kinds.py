"""Kind and attributes of every body that has a kind of its own, and of its nearest relatives that have not."""

from __future__ import annotations

from typing import Any

import pytest
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr, i1

from aicf.dialects import logical
from aicf.passes.bodies.kinds import derive_kind
from aicf.passes.bodies.products import are_alike
from tests.passes.bodies import body

M, ROW, COL = "tensor<4x6xf32>", "tensor<6xf32>", "tensor<4x1xf32>"
X = f"%x : {M}"
XY = f"%x : {M}, %y : {M}"


def yields(name: str, type_: str = M) -> str:
    return f"emit.yield %{name} : {type_}"


def json_values(attrs: Any) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in attrs.items():
        match value:
            case StringAttr():
                found[key] = value.data
            case IntegerAttr():
                found[key] = bool(value.value.data) if value.type == i1 else value.value.data
            case FloatAttr():
                found[key] = value.value.data
            case _:
                raise AssertionError(value)
    return found


SOFTMAX = (
    f"%m = logical.reduce_max %x {{axes = [1], keepdims}} : {M} -> {COL}",
    f"%mb = logical.broadcast %m {{dimensions = [0, 1]}} : {COL} -> {M}",
    f"%d = logical.sub %x, %mb : {M}",
    f"%e = logical.exp %d : {M}",
    f"%s = logical.reduce_sum %e {{axes = [1], keepdims}} : {M} -> {COL}",
    f"%sb = logical.broadcast %s {{dimensions = [0, 1]}} : {COL} -> {M}",
    f"%r = logical.div %e, %sb : {M}",
)


def layer_norm(divisor: float = 6.0) -> tuple[str, ...]:
    return (
        f"%n = logical.constant dense<{divisor}> : {COL}",
        f"%eps = logical.constant dense<0.5> : {COL}",
        f"%a = logical.reduce_sum %x {{axes = [1], keepdims}} : {M} -> {COL}",
        f"%mu = logical.div %a, %n : {COL}",
        f"%mub = logical.broadcast %mu {{dimensions = [0, 1]}} : {COL} -> {M}",
        f"%c = logical.sub %x, %mub : {M}",
        f"%q = logical.mul %c, %c : {M}",
        f"%qs = logical.reduce_sum %q {{axes = [1], keepdims}} : {M} -> {COL}",
        f"%v = logical.div %qs, %n : {COL}",
        f"%ve = logical.add %v, %eps : {COL}",
        f"%i = logical.rsqrt %ve : {COL}",
        f"%ib = logical.broadcast %i {{dimensions = [0, 1]}} : {COL} -> {M}",
        f"%t = logical.mul %c, %ib : {M}",
        f"%gb = logical.broadcast %g {{dimensions = [1]}} : {ROW} -> {M}",
        f"%u = logical.mul %t, %gb : {M}",
        f"%hb = logical.broadcast %h {{dimensions = [1]}} : {ROW} -> {M}",
        f"%r = logical.add %u, %hb : {M}",
    )


FACTORS = "%a : tensor<4x8xf32>, %w : tensor<6x8xf32>"
PRODUCT = f"%m = logical.matmul %a, %w {{transpose_b}} : (tensor<4x8xf32>, tensor<6x8xf32>) -> {M}"
BIAS = (
    f"%bb = logical.broadcast %b {{dimensions = [1]}} : {ROW} -> {M}",
    f"%s = logical.add %m, %bb : {M}",
)
GELU = (
    f"%half = logical.constant dense<0.5> : {M}",
    f"%k = logical.constant dense<0.7071067> : {M}",
    f"%one = logical.constant dense<1.0> : {M}",
    f"%g0 = logical.mul %s, %k : {M}",
    f"%g1 = logical.erf %g0 : {M}",
    f"%g2 = logical.add %g1, %one : {M}",
    f"%g3 = logical.mul %s, %half : {M}",
    f"%r = logical.mul %g3, %g2 : {M}",
)
PRODUCT_TYPES = f"{{transpose_b}} : (tensor<4x8xf32>, tensor<6x8xf32>) -> {M}"
GATED = f"{FACTORS}, %u : tensor<6x8xf32>"
TWO_PRODUCTS = (PRODUCT, f"%n = logical.matmul %a, %u {PRODUCT_TYPES}")
ROWS = (
    "%x2 = logical.mul %a, %a : tensor<4x8xf32>",
    "%xs = logical.reduce_sum %x2 {axes = [1], keepdims} : tensor<4x8xf32> -> tensor<4x1xf32>",
    "%xi = logical.rsqrt %xs : tensor<4x1xf32>",
    "%xb = logical.broadcast %xi {dimensions = [0, 1]} : tensor<4x1xf32> -> tensor<4x8xf32>",
    "%xn = logical.mul %a, %xb : tensor<4x8xf32>",
    "%sb = logical.broadcast %s {dimensions = [1]} : tensor<8xf32> -> tensor<4x8xf32>",
    "%n = logical.mul %xn, %sb : tensor<4x8xf32>",
)
HEADS = f"{FACTORS}, %v : tensor<6x5xf32>"
SCORES = f"%t = logical.matmul %a, %w {PRODUCT_TYPES}"
MIXED = f"%y = logical.matmul %r, %v : ({M}, tensor<6x5xf32>) -> tensor<4x5xf32>"
SCALE = (f"%k = logical.constant dense<4.0> : {M}", f"%u = logical.div %t, %k : {M}")


def softmax_of(value: str) -> list[str]:
    return [line.replace("%x", f"%{value}") for line in SOFTMAX]


LR = "%lr : tensor<f32>"
SPREAD = f"%l = logical.broadcast %lr {{dimensions = []}} : tensor<f32> -> {M}"


def gemm(bias: bool, residual: bool, activation: str) -> dict[str, object]:
    flags = {"transpose_a": False, "transpose_b": True, "bias": bias, "residual": residual}
    return {**flags, "activation": activation}


CASES = {
    "copy": (X, [yields("x")], "copy", {}),
    "constant": ("", [f"%c = logical.constant dense<1.0> : {M}", yields("c")], "generated", {}),
    "add": (XY, [f"%r = logical.add %x, %y : {M}", yields("r")], "add", {}),
    "add_swapped": (XY, [f"%r = logical.add %y, %x : {M}", yields("r")], "generated", {}),
    "doubled": (X, [f"%r = logical.add %x, %x : {M}", yields("r")], "generated", {}),
    "relu": (X, [f"%r = logical.relu %x : {M}", yields("r")], "relu", {}),
    "tanh": (X, [f"%r = logical.tanh %x : {M}", yields("r")], "generated", {}),
    "bias_add": (
        f"%b : {ROW}, {X}",
        [
            f"%bb = logical.broadcast %b {{dimensions = [1]}} : {ROW} -> {M}",
            f"%r = logical.add %x, %bb : {M}",
            yields("r"),
        ],
        "bias_add",
        {},
    ),
    "column_add": (
        f"%b : tensor<4xf32>, {X}",
        [
            f"%bb = logical.broadcast %b {{dimensions = [0]}} : tensor<4xf32> -> {M}",
            f"%r = logical.add %x, %bb : {M}",
            yields("r"),
        ],
        "generated",
        {},
    ),
    "reduce_sum": (
        "%x : tensor<4x5x6xf32>",
        [
            "%r = logical.reduce_sum %x {axes = [1, 2], keepdims} : tensor<4x5x6xf32> -> tensor<4x1x1xf32>",
            yields("r", "tensor<4x1x1xf32>"),
        ],
        "reduce_sum",
        {"first_axis": 1, "axis_count": 2, "keepdims": True},
    ),
    "reduce_sum_gap": (
        "%x : tensor<4x5x6xf32>",
        [
            "%r = logical.reduce_sum %x {axes = [0, 2]} : tensor<4x5x6xf32> -> tensor<5xf32>",
            yields("r", "tensor<5xf32>"),
        ],
        "generated",
        {},
    ),
    "softmax": (X, [*SOFTMAX, yields("r")], "softmax", {"axis": 1}),
    "softmax_and_more": (X, [*SOFTMAX, f"%z = logical.neg %r : {M}", yields("z")], "generated", {}),
    "softmax_of_rows_spread_over_columns": (
        "%x : tensor<4x4xf32>",
        [
            *(
                line.replace("4x6", "4x4")
                .replace("4x1", "4")
                .replace(", keepdims", "")
                .replace("[0, 1]", "[1]")
                for line in SOFTMAX
            ),
            yields("r", "tensor<4x4xf32>"),
        ],
        "generated",
        {},
    ),
    "softmax_without_keepdims": (
        X,
        [
            *(
                line.replace("4x1", "4").replace(", keepdims", "").replace("[0, 1]", "[0]")
                for line in SOFTMAX
            ),
            yields("r"),
        ],
        "softmax",
        {"axis": 1},
    ),
    "layer_norm": (
        f"{X}, %g : {ROW}, %h : {ROW}",
        [*layer_norm(), yields("r")],
        "layernorm_fwd",
        {"axis": 1, "epsilon": 0.5},
    ),
    "layer_norm_of_another_count": (
        f"{X}, %g : {ROW}, %h : {ROW}",
        [*layer_norm(5.0), yields("r")],
        "generated",
        {},
    ),
    "gemm": (FACTORS, [PRODUCT, yields("m")], "gemm", {"transpose_a": False, "transpose_b": True}),
    "gemm_bias": (
        f"{FACTORS}, %b : {ROW}",
        [PRODUCT, *BIAS, yields("s")],
        "gemm_epilogue",
        gemm(True, False, "none"),
    ),
    "gemm_gelu": (
        f"{FACTORS}, %b : {ROW}",
        [PRODUCT, *BIAS, *GELU, yields("r")],
        "gemm_epilogue",
        gemm(True, False, "gelu"),
    ),
    "gemm_residual": (
        f"{FACTORS}, %b : {ROW}, %z : {M}",
        [PRODUCT, *BIAS, f"%r = logical.add %s, %z : {M}", yields("r")],
        "gemm_epilogue",
        gemm(True, True, "none"),
    ),
    "gemm_other": (
        FACTORS,
        [PRODUCT, f"%r = logical.exp %m : {M}", yields("r")],
        "gemm_epilogue",
        gemm(False, False, "generated"),
    ),
    "gemm_swapped": (
        "%w : tensor<6x8xf32>, %a : tensor<4x8xf32>",
        [PRODUCT, yields("m")],
        "generated",
        {},
    ),
    "concat": (
        XY,
        [
            f"%r = logical.concat %x, %y {{axis = 0}} : ({M}, {M}) -> tensor<8x6xf32>",
            yields("r", "tensor<8x6xf32>"),
        ],
        "concat",
        {"axis": 0},
    ),
    "sgd_step": (
        f"{LR}, %g : {M}, %w : {M}",
        [SPREAD, f"%s = logical.mul %l, %g : {M}", f"%r = logical.sub %w, %s : {M}", yields("r")],
        "sgd_step",
        {"learning_rate_operand": 0},
    ),
    "sgd_step_swapped": (
        f"{LR}, %g : {M}, %w : {M}",
        [SPREAD, f"%s = logical.mul %g, %l : {M}", f"%r = logical.sub %w, %s : {M}", yields("r")],
        "sgd_step",
        {"learning_rate_operand": 0},
    ),
    "sgd_step_gradient_first": (
        f"%g : {M}, {LR}, %w : {M}",
        [SPREAD, f"%s = logical.mul %g, %l : {M}", f"%r = logical.sub %w, %s : {M}", yields("r")],
        "sgd_step",
        {"learning_rate_operand": 1},
    ),
    "sgd_step_constant": (
        f"%g : {M}, %w : {M}",
        [
            f"%l = logical.constant dense<0.1> : {M}",
            f"%s = logical.mul %g, %l : {M}",
            f"%r = logical.sub %w, %s : {M}",
            yields("r"),
        ],
        "sgd_step",
        {"learning_rate_operand": -1},
    ),
    "gated": (
        GATED,
        [*TWO_PRODUCTS, f"%r = logical.mul %m, %n : {M}", yields("r")],
        "gemm_gated",
        {"transpose_a": False, "transpose_b": True},
    ),
    "gated_with_one_product_left_out": (
        GATED,
        [*TWO_PRODUCTS, f"%r = logical.relu %m : {M}", yields("r")],
        "generated",
        {},
    ),
    "gated_of_other_order": (
        "%w : tensor<6x8xf32>, %a : tensor<4x8xf32>, %u : tensor<6x8xf32>",
        [*TWO_PRODUCTS, f"%r = logical.mul %m, %n : {M}", yields("r")],
        "generated",
        {},
    ),
    "multi": (
        GATED,
        [*TWO_PRODUCTS, f"emit.yield %m, %n : {M}, {M}"],
        "gemm_multi",
        {"transpose_a": False, "transpose_b": True, "products": 2},
    ),
    "multi_with_other_epilogues": (
        GATED,
        [
            *TWO_PRODUCTS,
            f"%p = logical.relu %m : {M}",
            f"%q = logical.tanh %n : {M}",
            f"emit.yield %p, %q : {M}, {M}",
        ],
        "generated",
        {},
    ),
    "multi_in_another_order": (
        GATED,
        [*TWO_PRODUCTS, f"emit.yield %n, %m : {M}, {M}"],
        "generated",
        {},
    ),
    "norm_gemm": (
        f"{FACTORS}, %s : tensor<8xf32>",
        [*ROWS, f"%m = logical.matmul %n, %w {PRODUCT_TYPES}", yields("m")],
        "norm_gemm",
        {"transpose_a": False, "transpose_b": True, "prologue_operands": 1},
    ),
    "norm_gemm_whose_rows_are_read_again": (
        f"{FACTORS}, %s : tensor<8xf32>",
        [
            *ROWS,
            f"%m = logical.matmul %n, %w {PRODUCT_TYPES}",
            f"emit.yield %m, %n : {M}, tensor<4x8xf32>",
        ],
        "generated",
        {},
    ),
    "gemm_norm": (
        FACTORS,
        [SCORES, *softmax_of("t"), yields("r")],
        "gemm_norm",
        {"transpose_a": False, "transpose_b": True},
    ),
    "gemm_norm_that_gives_its_rows_too": (
        f"{FACTORS}, %b : {ROW}",
        [
            SCORES,
            f"%bb = logical.broadcast %b {{dimensions = [1]}} : {ROW} -> {M}",
            f"%v = logical.add %t, %bb : {M}",
            *softmax_of("v"),
            f"emit.yield %r, %v : {M}, {M}",
        ],
        "gemm_norm",
        {"transpose_a": False, "transpose_b": True},
    ),
    "gemm_norm_of_three_results": (
        FACTORS,
        [SCORES, *softmax_of("t"), f"%q = logical.relu %t : {M}", f"emit.yield %r, %t, %q : {M}, {M}, {M}"],
        "generated",
        {},
    ),
    "product_whose_rows_are_summed": (
        FACTORS,
        [
            PRODUCT,
            f"%t = logical.reduce_sum %m {{axes = [1]}} : {M} -> tensor<4xf32>",
            "emit.yield %t : tensor<4xf32>",
        ],
        "generated",
        {},
    ),
    "norm_gated": (
        f"{GATED}, %s : tensor<8xf32>",
        [
            *ROWS,
            f"%p = logical.matmul %n, %w {PRODUCT_TYPES}",
            f"%q = logical.matmul %n, %u {PRODUCT_TYPES}",
            f"%r = logical.mul %p, %q : {M}",
            yields("r"),
        ],
        "norm_gated",
        {"transpose_a": False, "transpose_b": True, "prologue_operands": 1},
    ),
    "packed_with_a_residual": (
        "%a : tensor<4x32xf32>, %w : tensor<8x18xui8>, %z : tensor<4x8xf32>",
        [
            '%p = logical.matmul_blocks %a, %w {scheme = "Q4_0"}'
            " : (tensor<4x32xf32>, tensor<8x18xui8>) -> tensor<4x8xf32>",
            "%r = logical.add %p, %z : tensor<4x8xf32>",
            "emit.yield %r : tensor<4x8xf32>",
        ],
        "matmul_blocks_fused",
        {"scheme": "Q4_0", "products": 1, "prologue": False, "prologue_operands": 0},
    ),
    "packed_of_other_order": (
        "%w : tensor<8x18xui8>, %a : tensor<4x32xf32>, %z : tensor<4x8xf32>",
        [
            '%p = logical.matmul_blocks %a, %w {scheme = "Q4_0"}'
            " : (tensor<4x32xf32>, tensor<8x18xui8>) -> tensor<4x8xf32>",
            "%r = logical.add %p, %z : tensor<4x8xf32>",
            "emit.yield %r : tensor<4x8xf32>",
        ],
        "generated",
        {},
    ),
    "attention": (
        HEADS,
        [SCORES, *softmax_of("t"), MIXED, yields("y", "tensor<4x5xf32>")],
        "attention",
        {
            "scale": 1.0,
            "mask": False,
            "causal": False,
            "past": 0,
            "nan_as_zero": False,
            "empty_as_zero": False,
        },
    ),
    "attention_with_scale_and_mask": (
        f"{HEADS}, %z : {M}",
        [
            *(SCORES, *SCALE, f"%p = logical.add %z, %u : {M}"),
            *softmax_of("p"),
            *(MIXED, yields("y", "tensor<4x5xf32>")),
        ],
        "attention",
        {
            "scale": 0.25,
            "mask": True,
            "causal": False,
            "past": 0,
            "nan_as_zero": False,
            "empty_as_zero": False,
        },
    ),
    "attention_masked_in_front_of_the_scale": (
        f"{HEADS}, %z : {M}",
        [
            *(SCORES, f"%p = logical.add %t, %z : {M}", SCALE[0], f"%u = logical.div %p, %k : {M}"),
            *softmax_of("u"),
            *(MIXED, yields("y", "tensor<4x5xf32>")),
        ],
        "generated",
        {},
    ),
    "attention_with_more_behind_it": (
        HEADS,
        [
            *(SCORES, *softmax_of("t"), MIXED, "%o = logical.relu %y : tensor<4x5xf32>"),
            yields("o", "tensor<4x5xf32>"),
        ],
        "generated",
        {},
    ),
    "two_results": (
        XY,
        [f"%r = logical.add %x, %y : {M}", f"emit.yield %r, %x : {M}, {M}"],
        "generated",
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_kind(name: str) -> None:
    arguments, lines, kind, attrs = CASES[name]
    found_kind, found_attrs = derive_kind(body(arguments, *lines))
    assert (found_kind, json_values(found_attrs)) == (kind, attrs)


def test_products_of_matrices_that_other_indices_choose_are_not_alike() -> None:
    types = "(tensor<4x32xf32>, tensor<3x8x18xui8>, tensor<4xi64>) -> tensor<4x8xf32>"
    block = body(
        "%a : tensor<4x32xf32>, %w : tensor<3x8x18xui8>, %i : tensor<4xi64>, %j : tensor<4xi64>",
        f'%p = logical.matmul_blocks %a, %w, %i {{scheme = "Q4_0"}} : {types}',
        f'%q = logical.matmul_blocks %a, %w, %j {{scheme = "Q4_0"}} : {types}',
        f'%r = logical.matmul_blocks %a, %w, %i {{scheme = "Q4_0"}} : {types}',
        "emit.yield %r : tensor<4x8xf32>",
    )
    one, other, again = (op for op in block.ops if isinstance(op, logical.MatmulBlocksOp))
    assert are_alike(one, again) and not are_alike(one, other)
