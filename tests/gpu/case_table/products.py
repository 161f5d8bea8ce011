"""Cases of products of floats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from aicf.frontends.builder import Graph
from tests.gpu import programs
from tests.gpu.case_table.case import (
    GEMM_NORM,
    GEMV,
    MMA,
    MMA_TF32,
    SIMT,
    SKINNY,
    WGMMA,
    WGMMA_TF32,
    Case,
    program_of,
)
from tests.gpu.programs import Program, random_arrays

KIND_OF = {
    "product": "gemm",
    "dense": "gemm_epilogue",
    "integer_dense": "gemm_epilogue",
    "kept_dense": "gemm_epilogue",
    "sloped": "gemm_epilogue_bwd",
    "gated": "gemm_gated",
    "projections": "gemm_multi",
    "normed_dense": "norm_gemm",
    "rows_normed": "gemm_norm",
    "normed_gated": "norm_gated",
}
"""What a program multiplies to the kind of its instruction."""


def _product(name: str, kernel: str, build: Callable[[], Graph], depth: int = 1) -> tuple[str, Case]:
    """A case whose products all run on one kernel; the name says after the first hyphen what they are."""
    policy = {"kernels": {KIND_OF[name.split("-")[1]]: kernel}}
    return name, Case(program_of(name, build), (kernel,), policy, depth=depth)


def product_cases() -> dict[str, Case]:
    product, dense, gated = programs.product, programs.dense, programs.gated
    spread = programs.spread_product
    integers = programs.integer_dense
    projections, normed, rows = programs.projections, programs.normed_dense, programs.rows_normed
    kept, sloped = programs.kept_dense, programs.sloped
    return dict(
        (
            _product("wgmma-product-f16", WGMMA, partial(product, "f16", 192, 320, 256)),
            _product("wgmma-product-nn", WGMMA, partial(product, "bf16", 128, 256, 72, transpose="nn")),
            _product("wgmma-product-tt", WGMMA, partial(product, "f16", 96, 136, 128, transpose="tt")),
            _product("wgmma-product-batched", WGMMA, partial(product, "bf16", 100, 72, 64, (3, 2))),
            _product("wgmma-product-spread", WGMMA, partial(spread, "f16", 128, 128, 64, (2, 1), (3,))),
            _product("mma-product-spread", MMA, partial(spread, "bf16", 48, 64, 96, (), (3,))),
            _product("simt-product-spread", SIMT, partial(spread, "f32", 33, 40, 51, (4, 1, 3), (2, 1))),
            _product("wgmma-dense-bf16", WGMMA, partial(dense, "bf16", 77, 51, 72)),
            _product("wgmma-gated-bf16", WGMMA, partial(gated, "bf16", 130, 192, 256)),
            _product("wgmma-kept_dense-bf16", WGMMA, partial(kept, "bf16", 1000, 328, 72)),
            _product("wgmma-kept_dense-f16", WGMMA, partial(kept, "f16", 77, 104, 72, "relu")),
            _product("wgmma-projections-f16", WGMMA, partial(projections, "f16", 128, 128, 128)),
            _product("wgmma-sloped-bf16", WGMMA, partial(sloped, "bf16", 130, 192, 256)),
            _product("mma-sloped-f16", MMA, partial(sloped, "f16", 75, 100, 136, "sigmoid")),
            _product("simt-sloped-f32", SIMT, partial(sloped, "f32", 33, 40, 51)),
            _product("gemv-sloped-f16", GEMV, partial(sloped, "f16", 2, 192, 256)),
            _product("mma-product-f16", MMA, partial(product, "f16", 75, 100, 136)),
            _product("mma-product-nn", MMA, partial(product, "bf16", 33, 49, 51, transpose="nn")),
            _product("mma-product-tn", MMA, partial(product, "f16", 40, 56, 64, transpose="tn")),
            _product("mma-product-shared", MMA, partial(product, "f16", 48, 64, 96, (4,), shared=True)),
            _product("mma-dense-f16", MMA, partial(dense, "f16", 128, 192, 512)),
            _product("mma-gated-bf16", MMA, partial(gated, "bf16", 40, 96, 128)),
            _product("mma-projections-f16", MMA, partial(projections, "f16", 50, 64, 96)),
            _product("skinny-product-f16", SKINNY, partial(product, "f16", 5, 100, 136)),
            _product("skinny-dense-bf16", SKINNY, partial(dense, "bf16", 8, 512, 4096)),
            _product("skinny-gated-bf16", SKINNY, partial(gated, "bf16", 32, 192, 512)),
            _product("skinny-projections-f16", SKINNY, partial(projections, "f16", 13, 200, 1000)),
            _product("skinny-sloped-f16", SKINNY, partial(sloped, "f16", 2, 192, 256)),
            _product("simt-product-f32", SIMT, partial(product, "f32", 75, 100, 136)),
            _product("simt-product-f64", SIMT, partial(product, "f64", 33, 40, 51, transpose="nn")),
            _product("simt-product-i32", SIMT, partial(product, "i32", 33, 40, 50)),
            _product("simt-product-i16", SIMT, partial(product, "i16", 128, 192, 512)),
            _product("simt-product-i8", SIMT, partial(product, "i8", 33, 40, 50, (3,), transpose="tn")),
            _product("simt-product-u8", SIMT, partial(product, "u8", 75, 100, 136, transpose="tt")),
            _product("simt-integer_dense-i8", SIMT, partial(integers, "i8", 70, 51, 300)),
            _product("simt-integer_dense-u8", SIMT, partial(integers, "u8", 64, 128, 72)),
            _product("simt-integer_dense-i16", SIMT, partial(integers, "i16", 20, 33, 40)),
            _product("simt-dense-f32", SIMT, partial(dense, "f32", 128, 192, 512)),
            _product("simt-gated-f32", SIMT, partial(gated, "f32", 40, 96, 128)),
            _product("simt-projections-f64", SIMT, partial(projections, "f64", 20, 33, 40)),
            _product("norm-rows_normed-ln", GEMM_NORM, partial(rows, "f16", 130, 768, 256, "layer_norm"), 2),
            _product("norm-rows_normed-rms", GEMM_NORM, partial(rows, "bf16", 77, 512, 136, "rms_norm"), 2),
            _product(
                "norm-rows_normed-kept",
                GEMM_NORM,
                partial(rows, "f16", 64, 256, 72, "layer_norm", keep=True),
                2,
            ),
            _product(
                "norm-rows_normed-softmax", GEMM_NORM, partial(rows, "f16", 100, 330, 264, "softmax"), 2
            ),
            _product(
                "norm-rows_normed-narrow",
                GEMM_NORM,
                partial(rows, "bf16", 70, 51, 64, "softmax", keep=True),
                2,
            ),
            _product(
                "norm-rows_normed-gelu",
                GEMM_NORM,
                partial(rows, "bf16", 200, 384, 128, "rms_norm", activation="gelu"),
                2,
            ),
            _product("gemv-dense-f16", GEMV, partial(dense, "f16", 1, 512, 768)),
            _product("gemv-product-f32", GEMV, partial(product, "f32", 4, 96, 256)),
            _product("gemv-normed_dense-f16", GEMV, partial(normed, "f16", 1, 512, 256), 2),
            _product("gemv-normed_dense-bf16", GEMV, partial(normed, "bf16", 16, 96, 384), 2),
            _product("gemv-normed_dense-rms", GEMV, partial(normed, "f16", 1, 512, 256, norm="rms_norm"), 2),
            _product("gemv-gated-bf16", GEMV, partial(gated, "bf16", 2, 256, 512)),
            _product("gemv-normed_gated-f16", GEMV, partial(gated, "f16", 1, 256, 512, norm=True), 2),
            _product("gemv-projections-f16", GEMV, partial(projections, "f16", 1, 192, 192)),
        )
    )


TF32: dict[str, Any] = {"tf32": True}
ROUNDED_DEPTH = 1000
"""A rounding to TF32 is 2^13 times as coarse as one to f32; of sums of many terms it is seen less."""
SUM_DEPTH = {MMA_TF32: 1, WGMMA_TF32: 10}
"""Sums of whole warpgroups are less exact than those of f32; by how much is allowed here, not measured."""


def rounded_product_cases() -> dict[str, Case]:
    """Products that may round f32 to TF32. Operands that lose nothing by it are multiplied as exactly as any f32; one
    case has others."""
    product, dense = partial(programs.product, "f32"), partial(programs.dense, "f32")
    table: dict[str, Callable[[], Graph]] = {
        "tf32wg-product-batched": partial(product, 100, 72, 64, (3,)),
        "tf32wg-dense-gelu": partial(dense, 192, 320, 256),
        "tf32wg-gated-odd": partial(programs.gated, "f32", 130, 192, 72),
        "tf32wg-projections-three": partial(programs.projections, "f32", 128, 128, 128),
        "tf32-product-nt": partial(product, 75, 100, 136),
        "tf32-product-nn": partial(product, 33, 49, 51, transpose="nn"),
        "tf32-product-tn": partial(product, 40, 56, 64, transpose="tn"),
        "tf32-product-tt": partial(product, 66, 130, 72, transpose="tt"),
        "tf32-product-batched": partial(product, 48, 64, 96, (3,), transpose="tn"),
        "tf32-product-shared": partial(product, 48, 64, 96, (4,), shared=True),
        "tf32-dense-relu": partial(dense, 128, 192, 512, "relu"),
        "tf32wg-sloped-relu": partial(programs.sloped, "f32", 130, 192, 72),
        "tf32-sloped-relu": partial(programs.sloped, "f32", 48, 64, 96),
        "tf32-gated-odd": partial(programs.gated, "f32", 40, 96, 128),
        "tf32-projections-three": partial(programs.projections, "f32", 50, 64, 96),
    }
    cases: dict[str, Case] = {}
    for name, build in table.items():
        kernel = WGMMA_TF32 if name.startswith("tf32wg") else MMA_TF32
        policy = {**TF32, "kernels": {KIND_OF[name.split("-")[1]]: kernel}}
        cases[name] = Case(partial(exact_in_tf32, name, build), (kernel,), policy, depth=SUM_DEPTH[kernel])
    rounding = program_of("tf32-rounding", partial(dense, 64, 512, 784, "relu"))
    return {**cases, "tf32-rounding": Case(rounding, (MMA_TF32,), TF32, depth=ROUNDED_DEPTH)}


def exact_in_tf32(name: str, build: Callable[[], Graph]) -> Program:
    """A program whose operands have 10 bits of mantissa."""
    module = build().module()
    arrays = random_arrays(module, name)
    for array in arrays.values():
        bits: np.ndarray[Any, np.dtype[np.uint32]] = array.view(np.uint32)
        bits &= np.uint32(0xFFFFE000)
    return Program(module, arrays)
