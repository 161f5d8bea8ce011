"""The table of the GPU tests: programs, the kernels that must run them, and how exact they must be.

A case pins a kernel by the policy, or one of its variants (a tile, a split) by a tuning table of one row. Nothing here
needs a GPU: `prepare` compiles the same table where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp

from aicf.frontends.builder import Graph
from aicf.frontends.text import parse_module
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.training.differentiate import DifferentiatePass
from aicf.policies.kernel_policy import Fusion
from tests.gpu import cudnn, fp8, integer_networks, programs
from tests.gpu.convolutions import (
    Convolution,
    channels_last_convolutions,
    convolutions,
    depthwise_convolutions,
    depthwise_layer,
    flattened,
    image_layer,
    random_convolutions,
)
from tests.gpu.integers import (
    integer_convolution,
    integer_gated,
    integer_product,
    integer_projections,
    random_integer_convolution,
    random_integer_windows,
    whole_range,
)
from tests.gpu.pools import POOL_POLICY, DrawnPool, Lies, drawn_pools, pool_layer, pools
from tests.gpu.programs import Program, arguments, random_arrays
from tests.gpu.random_ops import RANDOM_OPS
from tests.gpu.training import TRAININGS
from tests.gpu.weight_grads import (
    bulk_weight_grads,
    random_depthwise_grads,
    random_weight_grads,
    weight_grads,
)
from tests.gpu.weight_grads import depthwise as depthwise_grad
from tests.gpu.weight_grads import layer as grad_layer
from tests.support import training_graphs, update_programs
from tests.support.fused_graphs import FAMILIES, fused_program
from tests.support.indexing_programs import LARGE, PROGRAMS, READS, built
from tests.support.meta_programs import regression_batch, regression_program, regression_start
from tests.support.multi_output_programs import built as several
from tests.support.random_graphs import random_program
from tests.support.random_programs import random_numbers
from tests.support.update_programs import Tensor

Array = programs.Array
ROOT = Path(__file__).parent.parent.parent
TARGET = "cuda:sm_90a"

GENERATED, COPY, CONCAT = "cuda.generated", "cuda.copy", "cuda.concat"
WGMMA_TF32, MMA_TF32 = "cuda.gemm_wgmma_tf32", "cuda.gemm_mma_tf32"
WGMMA_INT8, MMA_INT8 = "cuda.gemm_wgmma_int8", "cuda.gemm_mma_int8"
WGMMA, MMA, SIMT, GEMV = "cuda.gemm_wgmma", "cuda.gemm_mma", "cuda.gemm_simt", "cuda.gemv"
GEMM_NORM = "cuda.gemm_norm"
ATTENTION, ATTENTION_SIMT, LIBRARY = "cuda.attention", "cuda.attention_simt", "cuda.cublaslt"
ATTENTION_WGMMA, ATTENTION_STEP = "cuda.attention_wgmma", "cuda.attention_step"
CONV_WGMMA, CONV_SIMT = "cuda.conv_wgmma", "cuda.conv_simt"
CONV_MMA_INT8, CONV_WGMMA_INT8 = "cuda.conv_mma_int8", "cuda.conv_wgmma_int8"
CONV_MMA, CONV_MMA_TF32 = "cuda.conv_mma", "cuda.conv_mma_tf32"
CONV_DEPTHWISE = "cuda.conv_depthwise"
POOL = "cuda.pool"
SCATTER, SCATTER_SORTED = "cuda.scatter", "cuda.scatter_sorted"
LAST_UPDATE, TOPK = "cuda.last_update", "cuda.topk"
NON_MAX_SUPPRESSION = "cuda.non_max_suppression"
MULTI_TENSOR = "cuda.multi_tensor"


@dataclass(frozen=True)
class Case:
    """One program, and what it is compiled for.

    Args:
        make: Makes the program, always the same.
        kernels: Kernels that must be among those that run it.
        policy: What the compiler is told.
        variant: Entries of the first kernel's record that say which variant of it runs; None leaves it to the compiler.
        depth: How many roundings in a row there are at least; the tolerance grows with it.
        sums: How far sums of the hardware's products may be off, if that is more than a rounding to their type.
        target: As on the command line.
        options: More of what `aicf.compile` is told.
    """

    make: Callable[[], Program]
    kernels: tuple[str, ...]
    policy: Mapping[str, Any] = field(default_factory=dict[str, Any])
    variant: Mapping[str, object] | None = None
    depth: int = 1
    sums: float = 0.0
    target: str = TARGET
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


DROPPING: Mapping[str, Any] = {"training": True}
"""Options of programs that may hold a dropout, which compiled models drop by default."""


def _built(name: str, build: Callable[[], Graph]) -> Callable[[], Program]:
    def make() -> Program:
        module = build().module()
        return Program(module, random_arrays(module, name))

    return make


def _graphs() -> dict[str, Case]:
    """Generated kernels: every operation and element type."""
    table: dict[str, tuple[Callable[[str], Graph], tuple[str, ...], tuple[str, ...]]] = {
        "float_operations": (programs.float_operations, ("f32",), (GENERATED,)),
        "summed_operations": (programs.summed_operations, ("f16", "bf16", "f64"), (GENERATED,)),
        "integer_operations": (programs.integer_operations, ("i64", "i32", "i16", "i8", "u8"), (GENERATED,)),
        "angles": (programs.angles, ("f32", "f64"), (GENERATED,)),
        "bool_operations": (programs.bool_operations, ("i1",), (GENERATED, COPY, CONCAT)),
        "broadcasting": (programs.broadcasting, ("f32", "f16"), (GENERATED,)),
        "row_reductions": (programs.row_reductions, ("f32", "f16", "bf16"), (GENERATED,)),
        "concats": (programs.concats, ("f32", "f16", "bf16"), (GENERATED,)),
        "many_classes": (programs.many_classes, ("f32", "bf16"), (GENERATED,)),
        "many_blocks": (programs.many_blocks, ("f32", "f16"), (GENERATED,)),
        "norms": (programs.norms, ("f32", "f16", "bf16"), (GENERATED,)),
        "column_reductions": (programs.column_reductions, ("f32", "f16"), (GENERATED,)),
        "integer_reductions": (programs.integer_reductions, ("i32", "i16", "u8"), (GENERATED,)),
        "other_reductions": (
            programs.other_reductions,
            ("f32", "f16", "bf16", "f64", "i32", "i64"),
            (GENERATED,),
        ),
        "places": (programs.indexing, ("f32", "f16", "i64", "i8"), (GENERATED,)),
        "running_sums": (
            programs.running_sums,
            ("f32", "f16", "bf16", "f64", "i64", "i32", "i8"),
            (GENERATED,),
        ),
        "truths": (programs.truths, ("i1",), (GENERATED,)),
        "other_norms": (programs.other_norms, ("f32", "f16", "bf16", "f64"), (GENERATED,)),
        "long_rows": (programs.long_rows, ("f32", "f16"), (GENERATED,)),
        "pooling": (programs.pooling, ("f32", "f16", "bf16", "f64"), (POOL, GENERATED)),
        "padded_pooling": (programs.padded_pooling, ("f32", "f16", "bf16", "i8"), (POOL,)),
        "padded_windows": (programs.padded_pooling, ("f32", "f16", "bf16", "i8"), (GENERATED,)),
        "recurrent": (programs.recurrent, ("f32", "f64"), (GENERATED,)),
        "detection": (programs.detection, ("f32", "f64"), (NON_MAX_SUPPRESSION,)),
        "moves": (programs.moves, ("f32", "bf16", "i64", "i16", "u8"), (COPY, CONCAT)),
        "convolutions": (programs.convolutions, ("f32", "f16"), ()),
        "philox": (random_numbers, ("f32", "f16", "bf16", "f64"), (GENERATED,)),
        "losses": (programs.losses, ("f32", "f16", "bf16", "f64"), (GENERATED,)),
        "counters": (programs.counters, ("f32", "f64"), (GENERATED,)),
        "clipping": (programs.clipping, ("f32", "f64"), (GENERATED,)),
    }
    cases: dict[str, Case] = {}
    for family, (build, dtypes, kernels) in table.items():
        for dtype in dtypes:
            name = f"{family}-{dtype}"
            options = DROPPING if family == "philox" else {}
            policy = {"forbid": [POOL]} if family == "padded_windows" else {}
            cases[name] = Case(_built(name, partial(build, dtype)), kernels, policy, options=options)
    return cases


def _indexing() -> dict[str, Case]:
    """Reads and writes at places that are computed, with indices in range and out of it."""
    tiles = {"kernels": {"scatter_combine": SCATTER}}
    cases = {"places-rows": Case(_rows_written, (SCATTER, LAST_UPDATE), tiles, depth=4)}
    for name in PROGRAMS:
        dtypes = ("f32", "f16") if name in READS else ("f32",)
        kernels = (TOPK,) if name.startswith("topk") else ()
        for dtype in dtypes:
            cases[f"places-{name}-{dtype}"] = Case(partial(_indexing_program, name, dtype), kernels, depth=4)
    for kernel, pairs in SCATTERS.items():
        policy = {"kernels": {"scatter_combine": kernel}}
        for name, dtype in pairs:
            make = partial(_indexing_program, name, dtype)
            cases[f"places-{KERNEL_NAMES[kernel]}-{name}-{dtype}"] = Case(make, (kernel,), policy, depth=4)
    cases["places-topk-long"] = Case(partial(_indexing_program, "topk-long", "f32"), (TOPK,))
    return cases


_COMBINED = (
    *(("scatter-add", dtype) for dtype in ("f32", "f16", "bf16", "f64", "i64")),
    *((name, "f32") for name in ("scatter-max", "scatter-scalars", "scatter-turned")),
)
SCATTERS = {SCATTER_SORTED: (*_COMBINED, ("scatter-many", "f32")), SCATTER: _COMBINED}
"""Programs that are told how to scatter, by name and type."""
KERNEL_NAMES = {SCATTER_SORTED: "sorted", SCATTER: "tiles"}


def _rows_written() -> Program:
    module = programs.rows_written()
    return Program(module, random_arrays(module, "rows"))


def _indexing_program(name: str, dtype: str) -> Program:
    made = built({**PROGRAMS, **LARGE}[name], dtype)
    return Program(made.graph.module(), made.arrays)


KIND_OF = {
    "product": "gemm",
    "dense": "gemm_epilogue",
    "integer_dense": "gemm_epilogue",
    "kept_dense": "gemm_epilogue",
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
    return name, Case(_built(name, build), (kernel,), policy, depth=depth)


def _products() -> dict[str, Case]:
    product, dense, gated = programs.product, programs.dense, programs.gated
    spread = programs.spread_product
    integers = programs.integer_dense
    projections, normed, rows = programs.projections, programs.normed_dense, programs.rows_normed
    kept = programs.kept_dense
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
            _product("mma-product-f16", MMA, partial(product, "f16", 75, 100, 136)),
            _product("mma-product-nn", MMA, partial(product, "bf16", 33, 49, 51, transpose="nn")),
            _product("mma-product-tn", MMA, partial(product, "f16", 40, 56, 64, transpose="tn")),
            _product("mma-product-shared", MMA, partial(product, "f16", 48, 64, 96, (4,), shared=True)),
            _product("mma-dense-f16", MMA, partial(dense, "f16", 128, 192, 512)),
            _product("mma-gated-bf16", MMA, partial(gated, "bf16", 40, 96, 128)),
            _product("mma-projections-f16", MMA, partial(projections, "f16", 50, 64, 96)),
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


def _rounded_products() -> dict[str, Case]:
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
        "tf32-gated-odd": partial(programs.gated, "f32", 40, 96, 128),
        "tf32-projections-three": partial(programs.projections, "f32", 50, 64, 96),
    }
    cases: dict[str, Case] = {}
    for name, build in table.items():
        kernel = WGMMA_TF32 if name.startswith("tf32wg") else MMA_TF32
        policy = {**TF32, "kernels": {KIND_OF[name.split("-")[1]]: kernel}}
        cases[name] = Case(partial(_exact_in_tf32, name, build), (kernel,), policy, depth=SUM_DEPTH[kernel])
    rounding = _built("tf32-rounding", partial(dense, 64, 512, 784, "relu"))
    return {**cases, "tf32-rounding": Case(rounding, (MMA_TF32,), TF32, depth=ROUNDED_DEPTH)}


def _exact_in_tf32(name: str, build: Callable[[], Graph]) -> Program:
    """A program whose operands have 10 bits of mantissa."""
    module = build().module()
    arrays = random_arrays(module, name)
    for array in arrays.values():
        bits: np.ndarray[Any, np.dtype[np.uint32]] = array.view(np.uint32)
        bits &= np.uint32(0xFFFFE000)
    return Program(module, arrays)


def _integer_products() -> dict[str, Case]:
    """Products of 8-bit integers with sums of i32: all pairs of types, results of every type, edges, packed weights,
    splits."""
    made = integer_product
    both, left, right = ("i8", "i8"), ("u8", "i8"), ("i8", "u8")
    table: dict[str, tuple[str, Callable[[], Graph], dict[str, object] | None]] = {
        "int8-i8-i8": (MMA_INT8, partial(made, both, 75, 100, 136), None),
        "int8-u8-i8": (MMA_INT8, partial(made, left, 33, 49, 52, "relu", transpose_b=False), None),
        "int8-i8-u8": (MMA_INT8, partial(made, right, 128, 192, 512, "i8"), None),
        "int8-u8-u8": (MMA_INT8, partial(made, ("u8", "u8"), 50, 64, 96, "u8", (3,)), None),
        "int8-row": (MMA_INT8, partial(made, left, 1, 768, 768, "scaled"), None),
        "int8-residual": (MMA_INT8, partial(made, left, 70, 51, 300, "rows"), None),
        "int8-halves": (MMA_INT8, partial(made, left, 64, 128, 72, "halves"), None),
        "int8-gated": (MMA_INT8, partial(integer_gated, left, 40, 96, 128), None),
        "int8-projections": (MMA_INT8, partial(integer_projections, left, 50, 64, 96), None),
        "int8wg-gated": (WGMMA_INT8, partial(integer_gated, left, 130, 192, 256), None),
        "int8wg-projections": (WGMMA_INT8, partial(integer_projections, left, 128, 128, 128), None),
        "int8-cluster": (
            MMA_INT8,
            partial(made, left, 64, 128, 1024, "gelu"),
            {"split_k": 4, "split_through": "cluster"},
        ),
        "int8-workspace": (
            MMA_INT8,
            partial(made, left, 64, 128, 1024, "i8"),
            {"split_k": 8, "split_through": "workspace"},
        ),
        "int8wg-i8-i8": (WGMMA_INT8, partial(made, both, 192, 320, 256), None),
        "int8wg-u8-i8": (WGMMA_INT8, partial(made, left, 130, 192, 272, "relu", transpose_b=False), None),
        "int8wg-i8-u8": (WGMMA_INT8, partial(made, right, 200, 96, 272, "i8"), None),
        "int8wg-u8-u8": (WGMMA_INT8, partial(made, ("u8", "u8"), 100, 72, 64, "sums", (3,)), None),
        "int8wg-residual": (WGMMA_INT8, partial(made, left, 77, 51, 80, "rows"), None),
        "int8wg-halves": (WGMMA_INT8, partial(made, left, 77, 104, 80, "halves"), None),
        "int8wg-waves": (
            WGMMA_INT8,
            partial(made, left, 2048, 1536, 256, "u8"),
            {"tile": [128, 128]},
        ),
        "int8wg-wide": (WGMMA_INT8, partial(made, left, 512, 512, 512, "i8"), {"tile": [128, 256]}),
        "int8wg-shared-a": (
            WGMMA_INT8,
            partial(made, both, 512, 512, 256, "gelu"),
            {"cluster_shape": [1, 2, 1]},
        ),
        "int8wg-shared-b": (
            WGMMA_INT8,
            partial(made, both, 512, 512, 256, "i8"),
            {"cluster_shape": [2, 1, 1]},
        ),
        "int8wg-split": (
            WGMMA_INT8,
            partial(made, left, 64, 128, 1024, "u8"),
            {"cluster_shape": [1, 1, 4]},
        ),
    }
    cases: dict[str, Case] = {}
    for name, (kernel, build, variant) in table.items():
        kinds = ("gemm", "gemm_epilogue", "gemm_gated", "gemm_multi")
        policy = {} if variant else {"kernels": dict.fromkeys(kinds, kernel)}
        cases[name] = Case(partial(_whole_range, name, build), (kernel,), policy, variant)
    return cases


def float8_sums(k: int) -> float:
    """How far sums of `k` products of floats of 8 bits may be off on Hopper, beside their mean square: its tensor cores
    cut 32 products off some 13 bits below the largest, and then the sum so far."""
    return 2.0**-8 + k / 32 * 2.0**-14


def _float8() -> dict[str, Case]:
    """Floats of 8 bits: casts, moves, and products by all pairs of types, with results of every type."""
    kinds = ("gemm", "gemm_epilogue", "gemm_gated", "gemm_multi")
    cases: dict[str, Case] = {}
    for name, (kernel, build, variant) in fp8.float8_products().items():
        policy = {} if variant else {"kernels": dict.fromkeys(kinds, kernel)}
        cases[name] = Case(_built(name, build), (kernel,), policy, variant, sums=float8_sums(build.args[3]))
    for dtype in fp8.FLOAT8:
        for what, build in (("casts", fp8.float8_casts), ("moves", fp8.float8_moves)):
            cases[f"fp8-{what}-{dtype}"] = Case(_built(f"fp8-{what}-{dtype}", partial(build, dtype)), ())
    cases["fp8-of-halves"] = Case(_built("fp8-of-halves", fp8.product_into_float8), ())
    return cases


def _integer_convolutions() -> dict[str, Case]:
    """Convolutions of 8-bit integers: random ones with anything around, layers of networks, variants."""
    cases: dict[str, Case] = {}
    for seed in range(RANDOM_CONVOLUTIONS):
        build = partial(random_integer_convolution, 40 + seed)
        cases[f"int8conv-{seed}"] = _integer_case(f"int8conv-{seed}", CONV_MMA_INT8, build)
    for seed in range(RANDOM_CONVOLUTIONS):
        build = partial(random_integer_windows, 40 + seed)
        cases[f"int8windows-{seed}"] = _integer_case(f"int8windows-{seed}", CONV_WGMMA_INT8, build)
    made, types = integer_convolution, ("u8", "i8")
    stem, layer = image_layer(2, 3, 64, 112, 7, 2, last=False), image_layer(2, 128, 128, 28)
    small = image_layer(1, 256, 96, 7)
    table: dict[str, tuple[str, Callable[[], Graph], dict[str, object] | None]] = {
        "int8conv-stem": (CONV_MMA_INT8, partial(made, types, stem, "u8", 117), None),
        "int8conv-layer": (CONV_MMA_INT8, partial(made, types, layer, "residual", 3), None),
        "int8conv-row-major": (
            CONV_MMA_INT8,
            partial(made, types, image_layer(2, 64, 100, 28, last=False), "i8", 128),
            {"tile": [128, 64, 64]},
        ),
        "int8conv-cluster": (
            CONV_MMA_INT8,
            partial(made, types, small, "u8", 9),
            {"split_k": 4, "split_through": "cluster"},
        ),
        "int8conv-workspace": (
            CONV_MMA_INT8,
            partial(made, types, small, "scaled"),
            {"split_k": 8, "split_through": "workspace"},
        ),
        "int8windows-layer": (CONV_WGMMA_INT8, partial(made, types, layer, "residual"), None),
        "int8windows-wide": (CONV_WGMMA_INT8, partial(made, types, layer, "u8"), {"tile": [128, 128]}),
        "int8windows-split": (
            CONV_WGMMA_INT8,
            partial(made, types, small, "u8"),
            {"cluster_shape": [1, 1, 4]},
        ),
    }
    for name, (kernel, build, variant) in table.items():
        cases[name] = _integer_case(name, kernel, build, variant)
    return cases


def _quantised_networks() -> dict[str, Case]:
    """Products of dequantised tensors become those of bytes by themselves."""
    table = {
        "int8-convolutional": (integer_networks.convolutional, CONV_MMA_INT8),
        "int8-transformer": (integer_networks.transformer, MMA_INT8),
    }
    return {
        name: Case(partial(_whole_range, name, build), (kernel,), depth=4)
        for name, (build, kernel) in table.items()
    }


def _integer_case(
    name: str, kernel: str, build: Callable[[], Graph], variant: Mapping[str, object] | None = None
) -> Case:
    return Case(partial(_whole_range, name, build), (kernel,), {"kernels": {"conv": kernel}}, variant)


def _whole_range(name: str, build: Callable[[], Graph]) -> Program:
    """A program of bytes of the whole range of their types."""
    return whole_range(build(), name)


def _variants() -> dict[str, Case]:
    """Variants that the compiler does not take by itself at these sizes: other tiles, and sums split in every way."""
    dense, gated, make = programs.dense, programs.gated, programs.attention
    square = partial(programs.product, "bf16", 512, 512, 256)
    shallow = partial(programs.product, "f32", 64, 128, 512, transpose="nn")
    turned = partial(programs.product, "f32", 256, 128, 512)
    deep = partial(dense, "f16", 64, 128, 1024)
    long = partial(programs.attention_op, "f16", 500, 700, 64, 2, 150)
    token = partial(programs.attention_op, "f16", 1, 333, 64, 2)
    table: dict[str, tuple[str, Callable[[], Graph], dict[str, object]]] = {
        "wgmma-wide": (WGMMA, square, {"tile": [128, 256]}),
        "wgmma-narrow": (WGMMA, square, {"tile": [128, 64]}),
        "wgmma-kept-wide": (
            WGMMA,
            partial(programs.kept_dense, "bf16", 4096, 1024, 256),
            {"tile": [128, 256]},
        ),
        "wgmma-waves": (WGMMA, partial(programs.product, "bf16", 2048, 1536, 128), {"tile": [128, 128]}),
        "wgmma-shared-a": (WGMMA, square, {"cluster_shape": [1, 2, 1]}),
        "wgmma-shared-b": (WGMMA, square, {"cluster_shape": [2, 1, 1]}),
        "wgmma-split": (WGMMA, deep, {"cluster_shape": [1, 1, 4]}),
        "wgmma-split-gated": (WGMMA, partial(gated, "bf16", 64, 128, 512), {"cluster_shape": [1, 1, 2]}),
        "norm-tall": (
            GEMM_NORM,
            partial(programs.rows_normed, "f16", 1024, 768, 128, "layer_norm"),
            {"tile": [128, 128]},
        ),
        "norm-shared-a": (
            GEMM_NORM,
            partial(programs.rows_normed, "f16", 1024, 768, 128, "layer_norm"),
            {"tile": [64, 192]},
        ),
        "mma-split-cluster": (MMA, deep, {"split_k": 4, "split_through": "cluster"}),
        "mma-split-workspace": (MMA, deep, {"split_k": 8, "split_through": "workspace"}),
        "mma-split-gated": (
            MMA,
            partial(gated, "f16", 40, 96, 512),
            {"split_k": 2, "split_through": "workspace"},
        ),
        "mma-warps-along-k": (MMA, deep, {"warps": [1, 1, 4]}),
        "mma-wide": (MMA, partial(dense, "bf16", 100, 200, 96), {"tile": [64, 128, 32]}),
        "tf32wg-split": (WGMMA_TF32, turned, {"cluster_shape": [1, 1, 4]}),
        "tf32wg-wide": (WGMMA_TF32, turned, {"tile": [64, 128]}),
        "tf32wg-shared-b": (WGMMA_TF32, turned, {"cluster_shape": [2, 1, 1]}),
        "tf32-split-cluster": (MMA_TF32, shallow, {"split_k": 4, "split_through": "cluster"}),
        "tf32-split-workspace": (MMA_TF32, shallow, {"split_k": 2, "split_through": "workspace"}),
        "tf32-warps-along-k": (MMA_TF32, shallow, {"warps": [1, 1, 8]}),
        "step-one-block": (ATTENTION_STEP, token, {"splits": 1, "warps": 8}),
        "step-blocks": (ATTENTION_STEP, token, {"splits": 4, "warps": 4}),
        "simt-split": (SIMT, partial(dense, "f32", 40, 64, 512), {"split_k": 4}),
        "attention-warps": (
            ATTENTION,
            partial(make, "f16", 64, 100, 64, 64),
            {"combination_order": "keys in tiles, in order; then the warps, in order"},
        ),
        "attention_wgmma-single": (ATTENTION_WGMMA, long, {"groups": 1, "block_n": 64}),
        "attention_wgmma-turns": (ATTENTION_WGMMA, long, {"groups": 2, "block_n": 128, "turns": 1}),
        "attention_wgmma-three": (ATTENTION_WGMMA, long, {"groups": 3, "block_n": 64, "turns": 1}),
        "library-product": (LIBRARY, partial(programs.product, "f16", 64, 96, 128), {}),
        "library-dense": (LIBRARY, partial(dense, "bf16", 64, 96, 128, "relu", residual=False), {}),
    }
    # Norms join their products where a policy asks for it: alone a product of these sizes takes less.
    policies: dict[str, dict[str, Any]] = {
        GEMM_NORM: {"kernels": {"gemm_norm": GEMM_NORM}},
        **dict.fromkeys((MMA_TF32, WGMMA_TF32), TF32),
    }
    depths = dict.fromkeys((MMA_TF32, WGMMA_TF32), ROUNDED_DEPTH)
    return {
        name: Case(_built(name, build), (kernel,), policies.get(kernel, {}), want, depths.get(kernel, 1))
        for name, (kernel, build, want) in table.items()
    }


def _windows() -> dict[str, Case]:
    """Convolutions out of bulk tensor copies: random ones, and variants that are not taken at these sizes."""
    policy = {"kernels": {"conv": CONV_WGMMA}}
    cases: dict[str, Case] = {}
    for seed in range(RANDOM_WINDOWS):
        name, dtype = f"windows-{seed}", ("f16", "bf16")[seed % 2]
        cases[name] = Case(
            _built(name, partial(channels_last_convolutions, dtype, seed, WINDOWS_EACH)),
            (CONV_WGMMA,),
            policy,
        )
    table: dict[str, tuple[Convolution, dict[str, object]]] = {
        "split": (image_layer(1, 128, 128, 7), {"cluster_shape": [1, 1, 4]}),
        "shared-b": (image_layer(2, 72, 64, 20), {"cluster_shape": [2, 1, 1]}),
        "shared-a": (image_layer(2, 64, 256, 20), {"cluster_shape": [1, 2, 1]}),
        "wide": (image_layer(2, 64, 256, 20), {"tile": [128, 256]}),
        "narrow": (image_layer(1, 64, 256, 20, 1), {"tile": [64, 64]}),
        "steps": (image_layer(1, 64, 64, 40, 1, 2), {"tile": [128, 64]}),
        "waves": (image_layer(8, 8, 64, 60, after="relu"), {"tile": [128, 64]}),
    }
    name = "windows-flattened"
    cases[name] = Case(_built(name, partial(flattened, "f16")), (CONV_WGMMA,), policy)
    for what, (made, variant) in table.items():
        name = f"windows-{what}"
        cases[name] = Case(_built(name, partial(convolutions, "f16", [made])), (CONV_WGMMA,), policy, variant)
    return cases


RANDOM_WINDOWS, WINDOWS_EACH = 20, 12
"""Programs of random convolutions, and how many each has."""


def _convolutions() -> dict[str, Case]:
    """Convolutions of any strides: random ones, and variants that are not taken at these sizes."""
    cases: dict[str, Case] = {}
    for seed in range(RANDOM_CONVOLUTIONS):
        dtype = ("f16", "bf16", "f32")[seed % 3]
        build = partial(random_convolutions, dtype, seed, CONVOLUTIONS_EACH)
        cases[f"convolve-{seed}"] = _convolved(f"convolve-{seed}", dtype, build)
    for seed in range(4):
        dtype, name = ("f32", "f64")[seed % 2], f"convolve-simt-{seed}"
        build = partial(random_convolutions, dtype, 100 + seed, CONVOLUTIONS_EACH)
        cases[name] = _convolved(name, dtype, build, kernel=CONV_SIMT)
    table: dict[str, tuple[str, Convolution, dict[str, object]]] = {
        "stem": ("f16", image_layer(2, 3, 64, 112, 7, 2, last=False), {}),
        "stem-last": ("bf16", image_layer(2, 3, 64, 112, 7, 2), {}),
        "row-major": ("f16", image_layer(2, 128, 128, 28, last=False), {"tile": [128, 64, 32]}),
        "last": ("f16", image_layer(2, 128, 128, 28), {"tile": [128, 64, 64]}),
        "wide": ("bf16", image_layer(2, 64, 200, 28), {"tile": [128, 128, 32]}),
        "cluster": ("f16", image_layer(1, 256, 96, 7), {"split_k": 4, "split_through": "cluster"}),
        "workspace": ("f16", image_layer(1, 256, 96, 7), {"split_k": 8, "split_through": "workspace"}),
        "workspace-row": (
            "bf16",
            image_layer(1, 256, 90, 7, last=False),
            {"split_k": 4, "split_through": "workspace"},
        ),
        "single": ("f16", image_layer(3, 96, 72, 14, 1, last=False), {}),
        "tf32-stem": ("f32", image_layer(2, 3, 64, 112, 7, 2, last=False), {}),
        "tf32-last": ("f32", image_layer(2, 128, 128, 28), {"tile": [128, 64, 32]}),
        "tf32-row-major": ("f32", image_layer(2, 128, 128, 28, last=False), {"tile": [128, 64, 32]}),
        "simt-last": ("f32", image_layer(2, 64, 128, 28), {"tile": [128, 128, 16]}),
        "simt-row-major": ("f32", image_layer(2, 64, 100, 28, last=False), {"tile": [128, 64, 16]}),
        "simt-split": ("f32", image_layer(1, 256, 96, 7), {"split_k": 4}),
        "tf32-workspace": ("f32", image_layer(1, 256, 96, 7), {"split_k": 8, "split_through": "workspace"}),
    }
    name = "convolve-flattened"
    cases[name] = _convolved(name, "f16", partial(flattened, "f16", 2))
    for what, (dtype, made, variant) in table.items():
        name = f"convolve-{what}"
        kernel = CONV_SIMT if what.startswith("simt") else None
        cases[name] = _convolved(name, dtype, partial(convolutions, dtype, [made]), variant or None, kernel)
    return cases


def _library_calls() -> dict[str, Case]:
    """Convolutions and attention that cuDNN runs, by the plan that it offers."""
    cases: dict[str, Case] = {}
    for short, each in cudnn.PROGRAMS.items():
        name = f"cudnn-{short}"
        make = partial(_exact_in_tf32, name, each.build) if each.rounds else _built(name, each.build)
        # Heads that no kernel of tensor cores takes are fused where the policy asks for it.
        policy = {**each.policy, **({"attention": "cudnn"} if short.startswith("attention") else {})}
        cases[name] = Case(make, (each.kernel,), policy, {}, depth=_SUMS_DEPTH if "f32" in name else 1)
    return cases


def _convolved(
    name: str,
    dtype: str,
    build: Callable[[], Graph],
    variant: Mapping[str, object] | None = None,
    kernel: str | None = None,
) -> Case:
    kernel = kernel or (CONV_MMA_TF32 if dtype == "f32" else CONV_MMA)
    policy = {**TF32, "kernels": {"conv": kernel}}
    make = partial(_exact_in_tf32, name, build) if kernel == CONV_MMA_TF32 else _built(name, build)
    return Case(make, (kernel,), policy, variant, depth=_SUMS_DEPTH if dtype == "f32" else 1)


_SUMS_DEPTH = 4
"""Tensor cores cut sums of f32 off instead of rounding them: 144 steps of k are off by up to 7.5e-6. Sums of thousands
of products are not much closer where each is rounded."""


RANDOM_CONVOLUTIONS, CONVOLUTIONS_EACH = 15, 10
"""Programs of random convolutions, and how many each has."""


def _depthwise() -> dict[str, Case]:
    """Depthwise convolutions: random ones, and variants that are not taken at these sizes."""
    policy = {"kernels": {"conv": CONV_DEPTHWISE}}
    last = {**policy, "layouts": {"*": "channels_last"}}
    cases: dict[str, Case] = {}
    for seed in range(RANDOM_DEPTHWISE):
        name, dtype = f"depthwise-{seed}", ("f16", "bf16", "f32")[seed % 3]
        build = partial(depthwise_convolutions, dtype, seed, CONVOLUTIONS_EACH)
        lies = last if seed < RANDOM_DEPTHWISE // 2 else policy
        cases[name] = Case(_built(name, build), (CONV_DEPTHWISE,), lies, depth=4)
    made = depthwise_layer
    table: dict[str, tuple[str, Convolution, dict[str, object]]] = {
        "mobile": ("f16", made(2, 64, 56), {"vector": 8, "pixels": 4}),
        "mobile-steps": ("bf16", made(2, 96, 57, 3, 2, after="silu"), {"vector": 8, "pixels": 2}),
        "next": ("f16", made(2, 96, 30, 7, after="bias"), {"vector": 8, "pixels": 4}),
        "next-f32": ("f32", made(4, 64, 29, 7, after="gelu"), {"vector": 4, "pixels": 4}),
        "speech": ("bf16", made(2, 256, 201, 31, rank=1, after="silu"), {"vector": 8, "pixels": 4}),
        "rows": ("f16", made(2, 40, 30, 5, last=False, after="residual"), {"pixels": 4, "threads": 128}),
        "residual": ("f16", made(4, 64, 31, after="residual"), {"vector": 8, "pixels": 4}),
        "twice": ("bf16", made(2, 64, 31, multiplier=2), {"vector": 8, "pixels": 2}),
        "block": ("f32", made(2, 64, 13, rank=3, after="residual"), {"vector": 4, "pixels": 2}),
    }
    for what, (dtype, layer_, variant) in table.items():
        name = f"depthwise-{what}"
        build = partial(convolutions, dtype, [layer_])
        lies = last if layer_.result_last else policy
        cases[name] = Case(_built(name, build), (CONV_DEPTHWISE,), lies, variant, depth=4)
    return cases


def _weight_grads() -> dict[str, Case]:
    """Gradients of the weights of convolutions: random ones, and tiles that are not taken at these sizes."""
    cases: dict[str, Case] = {}
    random_ones: dict[str, tuple[str, str, Callable[..., Graph]]] = {
        **{f"{seed}": (MMA_GRAD, ("f16", "bf16")[seed % 2], random_weight_grads) for seed in range(6)},
        **{f"tf32-{seed}": (MMA_TF32_GRAD, "f32", random_weight_grads) for seed in range(3)},
        **{f"simt-{seed}": (SIMT_GRAD, ("f32", "f64")[seed % 2], random_weight_grads) for seed in range(4)},
        **{f"bulk-{seed}": (WGMMA_GRAD, ("f16", "bf16")[seed % 2], bulk_weight_grads) for seed in range(8)},
        **{
            f"depthwise-{seed}": (DEPTHWISE_GRAD, FLOATS[seed % len(FLOATS)], random_depthwise_grads)
            for seed in range(8)
        },
    }
    for seed, (what, (kernel, dtype, build)) in enumerate(random_ones.items()):
        made = partial(build, dtype, seed, CONVOLUTIONS_EACH)
        cases[f"weight_grad-{what}"] = _weight_grad(f"weight_grad-{what}", kernel, made, CONVOLUTIONS_EACH)
    for what, (kernel, dtype, made, variant) in _WEIGHT_GRADS.items():
        build = partial(weight_grads, dtype, [made])
        cases[f"weight_grad-{what}"] = _weight_grad(f"weight_grad-{what}", kernel, build, 1, variant)
    return cases


MMA_GRAD, MMA_TF32_GRAD = "cuda.weight_grad_mma", "cuda.weight_grad_mma_tf32"
WGMMA_GRAD, SIMT_GRAD = "cuda.weight_grad_wgmma", "cuda.weight_grad_simt"
DEPTHWISE_GRAD = "cuda.weight_grad_depthwise"
FLOATS = ("bf16", "f16", "f32", "f64")

_WEIGHT_GRADS: dict[str, tuple[str, str, Convolution, dict[str, object]]] = {
    "layer1": (WGMMA_GRAD, "bf16", grad_layer(8, 64, 64, 56), {"tile": [64, 128]}),
    "layer1-wide": (WGMMA_GRAD, "bf16", grad_layer(8, 64, 64, 56), {"tile": [64, 256]}),
    "layer2": (WGMMA_GRAD, "bf16", grad_layer(8, 128, 128, 28), {"tile": [128, 192]}),
    "layer2-shared": (WGMMA_GRAD, "f16", grad_layer(8, 128, 128, 28), {"cluster_shape": [1, 2, 1]}),
    "layer3-shared": (WGMMA_GRAD, "f16", grad_layer(8, 256, 256, 14), {"cluster_shape": [2, 1, 1]}),
    "layer4": (WGMMA_GRAD, "bf16", grad_layer(8, 512, 512, 7), {"parts": 1}),
    "steps": (WGMMA_GRAD, "bf16", grad_layer(8, 64, 128, 56, 3, 2), {"tile": [128, 128]}),
    "single": (WGMMA_GRAD, "bf16", grad_layer(8, 64, 256, 56, 1), {"tile": [64, 64]}),
    "skip": (WGMMA_GRAD, "bf16", grad_layer(8, 64, 128, 56, 1, 2), {"tile": [128, 64]}),
    "stem": (MMA_GRAD, "bf16", grad_layer(8, 3, 64, 224, 7, 2), {"tile": [64, 96, 64]}),
    "stem-row-major": (MMA_GRAD, "f16", grad_layer(4, 3, 64, 112, 7, 2, last=False), {"tile": [64, 64, 32]}),
    "row-major": (MMA_GRAD, "f16", grad_layer(4, 64, 64, 28, last=False), {"tile": [64, 64, 32]}),
    "large-tile": (MMA_GRAD, "bf16", grad_layer(4, 128, 128, 28), {"tile": [128, 128, 64]}),
    "tf32": (MMA_TF32_GRAD, "f32", grad_layer(4, 64, 64, 28), {"tile": [64, 64, 32]}),
    "simt": (SIMT_GRAD, "f32", grad_layer(4, 64, 64, 28), {"tile": [64, 64, 16]}),
    "mobile": (DEPTHWISE_GRAD, "bf16", depthwise_grad(8, 144, 56), {"pixels": 4}),
    "mobile-steps": (DEPTHWISE_GRAD, "f16", depthwise_grad(8, 96, 57, 3, 2), {"pixels": 2}),
    "mobile-rows": (DEPTHWISE_GRAD, "f32", depthwise_grad(4, 40, 30, 5, last=False), {"pixels": 4}),
}
"""Kernel, type, gradient, and the tile or parts that it is summed with."""


def _weight_grad(
    name: str,
    kernel: str,
    build: Callable[[], Graph],
    count: int,
    variant: Mapping[str, object] | None = None,
) -> Case:
    policy = {**TF32, "kernels": {f"grad_c{number}": kernel for number in range(count)}}
    make = partial(_exact_in_tf32, name, build) if kernel == MMA_TF32_GRAD else _built(name, build)
    return Case(make, (kernel,), policy, variant, depth=_SUMS_DEPTH)


RANDOM_DEPTHWISE = 6
"""Programs of random depthwise convolutions, of `CONVOLUTIONS_EACH`."""


def _pools() -> dict[str, Case]:
    """Poolings: drawn ones in every layout, and variants that are not taken at these sizes."""
    cases: dict[str, Case] = {}
    for lies, policy in POOL_POLICY.items():
        for number in range(DRAWN_POOLS):
            cases[f"pools-{lies}-{number}"] = Case(
                partial(drawn_pools, lies, number), (POOL,), policy, depth=4
            )
    image, small = (2, 64, 21, 26), (3, 40, 9, 10)
    table: dict[str, tuple[DrawnPool, Lies, dict[str, object]]] = {
        "two": (pool_layer("max_pool", "f16", image, 3, 2), "last", {"pixels": 2}),
        "four": (pool_layer("avg_pool", "bf16", image, 3, 1), "last", {"pixels": 4}),
        "four-rows": (pool_layer("max_pool", "f32", image, 5, 1), "rows", {"pixels": 4}),
        "two-rows": (pool_layer("avg_pool", "f16", small, 3, 2), "rows", {"pixels": 2, "threads": 128}),
        "wide": (pool_layer("avg_pool", "f32", small, 7, 1), "last", {"vector": 4, "threads": 256}),
        "block": (pool_layer("max_pool", "i8", (1, 32, 5, 6, 7), 3, 1), "last", {"pixels": 2}),
    }
    for what, (drawn, lies, variant) in table.items():
        make = partial(pools, lies, [drawn])
        cases[f"pools-{what}"] = Case(make, (POOL,), POOL_POLICY[lies], variant, depth=4)
    return cases


DRAWN_POOLS = 4
"""Programs of drawn poolings in each layout."""


def _attentions() -> dict[str, Case]:
    make, op, masked = programs.attention, programs.attention_op, programs.masked_attention
    exported, two = programs.exported_attention, programs.two_masks
    table: dict[str, tuple[str, Callable[[], Graph]]] = {
        "attention-f16": (ATTENTION, partial(make, "f16", 128, 128, 64, 64)),
        "attention-odd": (ATTENTION, partial(make, "bf16", 77, 51, 32, 48)),
        "attention-mask": (ATTENTION, partial(make, "f16", 64, 96, 64, 64, (2, 1, 1, 96))),
        "attention-full-mask": (ATTENTION, partial(make, "bf16", 33, 65, 64, 64, (33, 65))),
        "attention_simt-f32": (ATTENTION_SIMT, partial(make, "f32", 33, 50, 24, 20)),
        "attention_simt-mask": (ATTENTION_SIMT, partial(make, "f16", 20, 33, 20, 24, (2, 1, 1, 33))),
        "attention-causal": (ATTENTION, partial(op, "f16", 200, 200, 64, 4, 0)),
        "attention-causal-odd": (ATTENTION, partial(op, "bf16", 77, 151, 48, 4, 74)),
        "attention-grouped": (ATTENTION, partial(op, "f16", 50, 70, 64, 2)),
        "attention-grouped-causal": (ATTENTION, partial(op, "bf16", 1, 333, 128, 1, 332)),
        "attention-bool": (ATTENTION, partial(op, "f16", 65, 130, 64, 2, None, (65, 130))),
        "attention-bool-causal": (ATTENTION, partial(op, "f16", 65, 130, 32, 2, 65, (2, 1, 65, 130))),
        "attention_wgmma-f16": (ATTENTION_WGMMA, partial(op, "f16", 256, 256, 64, 4)),
        "attention_wgmma-odd": (ATTENTION_WGMMA, partial(op, "bf16", 77, 451, 128, 1)),
        "attention_wgmma-causal": (ATTENTION_WGMMA, partial(op, "f16", 400, 400, 64, 2, 0)),
        "attention_wgmma-causal-odd": (ATTENTION_WGMMA, partial(op, "bf16", 177, 251, 128, 4, 74)),
        "attention_wgmma-token": (ATTENTION_WGMMA, partial(op, "f16", 1, 333, 64, 2, 332)),
        "attention_wgmma-mask": (ATTENTION_WGMMA, partial(masked, "f16", 256, 256, 64, (256, 256), hidden=9)),
        "attention_wgmma-padding": (ATTENTION_WGMMA, partial(masked, "bf16", 200, 330, 64, (2, 1, 1, 330))),
        "attention_wgmma-mask-odd": (
            ATTENTION_WGMMA,
            partial(masked, "bf16", 77, 451, 128, (2, 4, 77, 451), None, 2, 5),
        ),
        "attention_wgmma-mask-causal": (
            ATTENTION_WGMMA,
            partial(masked, "f16", 300, 400, 128, (1, 4, 300, 400), 100, 2, 7),
        ),
        "attention_wgmma-bool": (ATTENTION_WGMMA, partial(op, "f16", 130, 260, 64, 2, None, (130, 260))),
        "attention_wgmma-bool-causal": (
            ATTENTION_WGMMA,
            partial(op, "bf16", 190, 190, 64, 4, 0, (2, 1, 190, 190)),
        ),
        "attention-zeros": (
            ATTENTION,
            partial(masked, "bf16", 130, 77, 64, (2, 1, 130, 77), hidden=3, zeros=True),
        ),
        "attention-all-zeros": (
            ATTENTION,
            partial(masked, "f16", 65, 130, 32, (2, 1, 65, 130), hidden=1, zeros=True),
        ),
        "attention_wgmma-zeros": (
            ATTENTION_WGMMA,
            partial(masked, "f16", 200, 330, 64, (2, 1, 200, 330), hidden=5, zeros=True),
        ),
        "attention_wgmma-all-zeros": (
            ATTENTION_WGMMA,
            partial(masked, "bf16", 128, 128, 64, (128, 128), hidden=1, zeros=True),
        ),
        "attention_simt-zeros": (
            ATTENTION_SIMT,
            partial(masked, "f32", 33, 50, 24, (33, 50), 17, 2, 4, True),
        ),
        "attention_step-zeros": (
            ATTENTION_STEP,
            partial(masked, "f16", 1, 333, 64, (2, 1, 1, 333), hidden=1, zeros=True),
        ),
        "attention_step-f16": (ATTENTION_STEP, partial(op, "f16", 1, 512, 64, 4)),
        "attention_step-odd": (ATTENTION_STEP, partial(op, "bf16", 1, 333, 128, 2, 301)),
        "attention_step-bool": (ATTENTION_STEP, partial(op, "f16", 1, 77, 32, 4, None, (2, 1, 1, 77))),
        "attention_step-mask": (ATTENTION_STEP, partial(make, "bf16", 1, 1000, 64, 64, (2, 1, 1, 1000))),
        "attention_simt-causal": (ATTENTION_SIMT, partial(op, "f32", 75, 100, 24, 4, 25)),
        "attention_simt-grouped": (ATTENTION_SIMT, partial(op, "f32", 33, 50, 40, 2, 17, (33, 50))),
        "attention-exported": (ATTENTION, partial(exported, "f16", 77, 100, 64, (77, 100), 5)),
        "attention-exported-tiles": (ATTENTION, partial(exported, "bf16", 130, 451, 48, broken=7)),
        "attention_wgmma-exported": (ATTENTION_WGMMA, partial(exported, "bf16", 200, 330, 64, broken=9)),
        "attention_wgmma-exported-mask": (
            ATTENTION_WGMMA,
            partial(exported, "f16", 130, 260, 128, (2, 1, 130, 260), 5, 7),
        ),
        "attention_step-exported": (
            ATTENTION_STEP,
            partial(exported, "f16", 1, 333, 64, (2, 3, 1, 333), 2),
        ),
        "attention_step-exported-plain": (ATTENTION_STEP, partial(exported, "bf16", 1, 500, 128)),
        "attention_simt-exported": (
            ATTENTION_SIMT,
            partial(exported, "f32", 33, 50, 24, (2, 1, 33, 50), 4, 6),
        ),
        "attention-two-masks": (ATTENTION, partial(two, "f16", 64, 96, 64)),
        "attention_simt-two-masks": (ATTENTION_SIMT, partial(two, "f32", 33, 50, 24)),
    }
    return {
        name: Case(_built(name, build), (kernel,), {"kernels": {"attention": kernel}})
        for name, (kernel, build) in table.items()
    }


@dataclass(frozen=True)
class AttentionGradients:
    """Gradients of attention, see `programs.attention_gradients`."""

    dtype: str
    rows: int
    columns: int
    size: int
    past: int | None = None
    mask: Sequence[int] | None = None
    hidden: int = 0

    def program(self, name: str) -> Program:
        """The program of the case called `name`."""
        return _built(name, partial(programs.attention_gradients, *vars(self).values()))()

    def added(self, mask: Array | None) -> Array | None:
        """What is added to the scores, given the operand `mask`."""
        if mask is None or not self.hidden:
            return mask
        is_hidden = np.arange(mask.shape[-2]) % self.hidden == self.hidden - 1
        return np.where(is_hidden[:, None], np.array(-np.inf, mask.dtype), mask)


_GRADIENTS = {
    "attention_backward": {
        "64": AttentionGradients("bf16", 64, 64, 64),
        "100": AttentionGradients("f16", 100, 100, 64),
        "128": AttentionGradients("bf16", 128, 128, 64),
        "257": AttentionGradients("f16", 257, 257, 64),
        "tall": AttentionGradients("f16", 300, 77, 64),
        "wide": AttentionGradients("bf16", 77, 300, 64),
        "causal": AttentionGradients("bf16", 257, 257, 64, 0),
        "causal-tall": AttentionGradients("f16", 300, 100, 64, 0),
        "past": AttentionGradients("f16", 100, 228, 64, 128),
        "hidden-keys": AttentionGradients("bf16", 100, 257, 64, 3),
        "padding": AttentionGradients("bf16", 128, 200, 64, None, (2, 1, 1, 200)),
        "mask": AttentionGradients("f16", 100, 257, 64, None, (1, 3, 100, 257)),
        "mask-causal": AttentionGradients("bf16", 257, 257, 64, 0, (1, 3, 257, 257)),
        "zeros": AttentionGradients("bf16", 128, 200, 64, None, (2, 1, 128, 200), 3),
        "zeros-causal": AttentionGradients("f16", 100, 257, 64, 157, (100, 257), 4),
        "all-zeros": AttentionGradients("bf16", 100, 100, 64, None, (100, 100), 1),
        "d128-64": AttentionGradients("f16", 64, 64, 128),
        "d128-100": AttentionGradients("bf16", 100, 100, 128),
        "d128-128": AttentionGradients("f16", 128, 128, 128),
        "d128-257": AttentionGradients("bf16", 257, 257, 128),
        "d128-past": AttentionGradients("f16", 100, 257, 128, 31),
        "d128-padding": AttentionGradients("f16", 128, 200, 128, None, (2, 1, 1, 200)),
        "d128-mask-causal": AttentionGradients("bf16", 100, 200, 128, 100, (1, 3, 100, 200)),
        "d32": AttentionGradients("bf16", 200, 133, 32, 5),
        "d96": AttentionGradients("f16", 130, 133, 96),
        "tiles-32": AttentionGradients("bf16", 257, 300, 64, 43),
        "two-tiles": AttentionGradients("f16", 257, 300, 64),
        "two-tiles-causal": AttentionGradients("bf16", 300, 257, 64, 0),
    },
    "attention_backward_wgmma": {
        "64": AttentionGradients("bf16", 64, 64, 64),
        "100": AttentionGradients("f16", 100, 100, 64),
        "257": AttentionGradients("f16", 257, 257, 64),
        "512": AttentionGradients("bf16", 512, 512, 64, 0),
        "tall": AttentionGradients("f16", 300, 77, 64),
        "wide": AttentionGradients("bf16", 77, 300, 64),
        "causal": AttentionGradients("bf16", 257, 257, 64, 0),
        "causal-tall": AttentionGradients("f16", 300, 100, 64, 0),
        "past": AttentionGradients("f16", 100, 228, 64, 128),
        "hidden-keys": AttentionGradients("bf16", 100, 257, 64, 3),
        "padding": AttentionGradients("bf16", 128, 200, 64, None, (2, 1, 1, 200)),
        "mask": AttentionGradients("f16", 100, 257, 64, None, (1, 3, 100, 257)),
        "mask-causal": AttentionGradients("bf16", 257, 257, 64, 0, (1, 3, 257, 257)),
        "zeros": AttentionGradients("bf16", 128, 200, 64, None, (2, 1, 128, 200), 3),
        "zeros-causal": AttentionGradients("f16", 100, 257, 64, 157, (100, 257), 4),
        "all-zeros": AttentionGradients("bf16", 100, 100, 64, None, (100, 100), 1),
        "d128": AttentionGradients("bf16", 257, 257, 128),
        "d128-past": AttentionGradients("f16", 100, 257, 128, 31),
        "d128-mask-causal": AttentionGradients("bf16", 100, 200, 128, 100, (1, 3, 100, 200)),
        "groups": AttentionGradients("bf16", 257, 300, 64, 43),
        "groups-mask": AttentionGradients("f16", 300, 257, 64, None, (2, 1, 1, 257)),
    },
    "attention_backward_short": {
        "64": AttentionGradients("bf16", 64, 64, 64),
        "100": AttentionGradients("f16", 100, 100, 64),
        "128": AttentionGradients("bf16", 128, 128, 64),
        "tall": AttentionGradients("f16", 128, 33, 64),
        "wide": AttentionGradients("bf16", 20, 128, 64),
        "one-block": AttentionGradients("bf16", 128, 128, 64),
        "causal": AttentionGradients("bf16", 128, 128, 64, 0),
        "past": AttentionGradients("f16", 60, 100, 64, 40),
        "hidden-keys": AttentionGradients("bf16", 50, 128, 64, 3),
        "padding": AttentionGradients("bf16", 128, 128, 64, None, (2, 1, 1, 128)),
        "padding-odd": AttentionGradients("f16", 128, 99, 64, None, (2, 1, 1, 99)),
        "mask": AttentionGradients("f16", 100, 77, 64, None, (1, 3, 100, 77)),
        "mask-causal": AttentionGradients("bf16", 128, 128, 64, 0, (1, 3, 128, 128)),
        "zeros": AttentionGradients("bf16", 128, 100, 64, None, (2, 1, 128, 100), 3),
        "zeros-causal": AttentionGradients("f16", 50, 64, 64, 14, (50, 64), 4),
        "all-zeros": AttentionGradients("bf16", 100, 100, 64, None, (100, 100), 1),
        "d128-64": AttentionGradients("f16", 64, 64, 128),
        "d128-100": AttentionGradients("bf16", 100, 100, 128, 0),
        "d128-mask": AttentionGradients("f16", 128, 128, 128, None, (1, 3, 128, 128)),
    },
}
ATTENTION_GRADIENTS = {
    f"{kernel}-{name}": made for kernel, cases in _GRADIENTS.items() for name, made in cases.items()
}
"""By case, whose name begins with that of the kernel; looked at by `test_attention_backward`."""

_BACKWARD_VARIANTS: dict[str, dict[str, object]] = {
    "tiles-32": {"query_tiles": 1, "tile": 32},
    "two-tiles": {"query_tiles": 2, "tile": 32},
    "two-tiles-causal": {"query_tiles": 2, "tile": 32},
    "one-block": {"blocks_per_sm": 1},
    "groups": {"query_groups": 2, "key_groups": 2, "stages": 3},
    "groups-mask": {"query_groups": 2, "key_groups": 2, "stages": 2},
}


def gradients_kernel(name: str) -> str:
    """The kernel that a case of `ATTENTION_GRADIENTS` runs."""
    return f"cuda.{name.partition('-')[0]}"


def _attention_gradients() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for name, made in ATTENTION_GRADIENTS.items():
        kernel, variant = gradients_kernel(name), _BACKWARD_VARIANTS.get(name.partition("-")[2])
        policy = {} if variant else {"kernels": {"attention_backward": kernel}}
        cases[name] = Case(partial(made.program, name), (kernel,), policy, variant)
    return cases


def _attention_steps() -> dict[str, Case]:
    """Attention that writes a row of its keys and values first, into memory of its own."""
    make = programs.attention_step
    table: dict[str, Callable[[], Graph]] = {
        "step-f16": partial(make, "f16", 512, 64),
        "step-odd": partial(make, "bf16", 77, 128, "i32"),
        "step-mask": partial(make, "f16", 300, 32, "i64", (1, 300)),
    }
    return {
        name: Case(_built(name, build), (ATTENTION_STEP,), {"kernels": {"attention_step": ATTENTION_STEP}})
        for name, build in table.items()
    }


def _multi_output() -> dict[str, Case]:
    """One kernel with several results, of the whole space and of one element a row: pointwise, rows in registers, rows
    that are read again, columns, running sums."""
    shapes = {"f32": (64, 1024), "f16": (33, 100), "bf16": (3, 40000)}
    return {
        f"multi-{name}-{dtype}": Case(
            _built(f"multi-{name}-{dtype}", partial(several, name, *shape, dtype)), (GENERATED,), depth=4
        )
        for name in ("activation", "softmax_and_sum", "largest", "columns", "loss", "running")
        for dtype, shape in shapes.items()
    }


def _models() -> dict[str, Case]:
    """Models in small, as the compiler likes to run them."""
    chain, encoder = programs.chain, programs.encoder
    return {
        "chain-1": Case(_built("chain-1", partial(chain, "f16", 1)), (GEMV,), depth=4),
        "chain-64": Case(_built("chain-64", partial(chain, "f16", 64)), (), depth=4),
        "chain-f32": Case(_built("chain-f32", partial(chain, "f32", 48, 1, 64, 128)), (SIMT,), depth=4),
        "encoder-f16": Case(
            _built("encoder-f16", partial(encoder, "f16", 2, 64, 2, 64)), (ATTENTION,), depth=4
        ),
        "encoder-bf16": Case(
            _built("encoder-bf16", partial(encoder, "bf16", 1, 33, 2, 32)), (ATTENTION,), depth=4
        ),
        "encoder-f32": Case(
            _built("encoder-f32", partial(encoder, "f32", 1, 24, 2, 16)), (ATTENTION_SIMT,), depth=4
        ),
    }


def _single_programs() -> dict[str, Case]:
    """Code for Hopper without its `a` features: no warpgroup products, but programmatic launch and clusters."""
    some = {**_models(), **_variants()}
    names = ("chain-1", "encoder-f16", "mma-split-cluster", "simt-split")
    return {f"plain-{name}": replace(some[name], target="cuda:sm_90") for name in names}


WARPGROUPS = {"one": WGMMA, "two": WGMMA, "rows0": WGMMA}
"""Of the products that are written next to each other."""


def _policies() -> dict[str, Case]:
    """What a user may ask for: branches side by side, a rounding after each operation, no fusion."""
    encoder = partial(programs.encoder, "f16", 2, 64, 2, 64)
    unfused = dict.fromkeys((entry.name for entry in fields(Fusion)), False)
    table: dict[str, tuple[Callable[[], Graph], tuple[str, ...], dict[str, Any]]] = {
        "encoder-streams": (encoder, (ATTENTION,), {"streams": 3, "fusion": {"horizontal": False}}),
        "encoder-unfused": (encoder, (MMA, GENERATED), {"fusion": unfused}),
        "concats-streams": (
            partial(programs.concats, "f16"),
            (GENERATED, WGMMA),
            {"streams": 3, "kernels": WARPGROUPS},
        ),
        "concats-mma": (
            partial(programs.concats, "f16"),
            (GENERATED, MMA),
            {"kernels": dict.fromkeys(WARPGROUPS, MMA)},
        ),
        "concats-copied": (
            partial(programs.concats, "f16"),
            (GENERATED, CONCAT),
            {"fusion": {"concat": False}},
        ),
        "norms-strict": (partial(programs.norms, "f16"), (GENERATED,), {"rounding": "strict"}),
        "pitched": (
            partial(programs.pitched, "bf16"),
            (WGMMA, GENERATED),
            {
                "layouts": {"scores": "pitched", "likely": "pitched"},
                "fusion": {"attention": False, "norm": False, "prologue": False},
            },
        ),
    }
    return {
        name: Case(_built(name, build), kernels, policy, depth=4)
        for name, (build, kernels, policy) in table.items()
    }


BATCHES = (1, 33)
"""Of the cases whose rows may not depend on it."""

IN_BATCHES: dict[str, Callable[[int], Graph]] = {
    "chain": lambda batch: programs.chain("f16", batch, 1),
    "encoder": lambda batch: programs.encoder("f16", batch, 32, 2, 32),
    "scalar": lambda batch: programs.encoder("f32", batch, 24, 2, 16),
    "wide": lambda batch: programs.encoder("f16", batch, 150, 2, 64),
}
"""Models by what they are in the names of cases, as functions of the batch."""


def _in_batches() -> dict[str, Case]:
    """The class `batch_invariant`: one model in batches that all begin with the same rows."""
    policy = {"determinism": "batch_invariant"}
    return {
        f"batch-{name}-{batch}": Case(partial(_batch, name, batch), (), policy, depth=4)
        for name in IN_BATCHES
        for batch in BATCHES
    }


def _batch(name: str, batch: int) -> Program:
    arrays = random_arrays(IN_BATCHES[name](max(BATCHES)).module(), f"batch-{name}")
    return Program(IN_BATCHES[name](batch).module(), {**arrays, "x": arrays["x"][:batch]})


def _random() -> dict[str, Case]:
    """Random programs over all operations, and random ones of the forms that passes fuse."""
    cases: dict[str, Case] = {}
    for dtype, seeds in (("f32", (0, 1, 2)), ("f16", (3, 4)), ("bf16", (5,)), ("f64", (6,))):
        for seed in seeds:
            cases[f"random-{dtype}-{seed}"] = Case(
                partial(_random_program, dtype, seed), (), depth=4, options=DROPPING
            )
    for seed, family in enumerate(FAMILIES):
        for dtype in ("f32", "f16"):
            cases[f"fused-{family}-{dtype}"] = Case(partial(_fused_program, family, seed, dtype), (), depth=4)
    return cases


def _random_program(dtype: str, seed: int) -> Program:
    made = random_program(seed, float_type=dtype)
    return Program(made.module, made.inputs)


def _fused_program(family: str, seed: int, dtype: str) -> Program:
    made = fused_program(family, seed, dtype)
    return Program(made.module, made.inputs)


def _step() -> Program:
    module = parse_module((ROOT / "examples" / "sgd" / "step.mlir").read_text())
    return Program(module, {**random_arrays(module, "step"), "lr": np.array(0.125, np.float32)})


def _gradients() -> dict[str, Case]:
    """Losses and the parameters and states after a step, as outputs: a step that can be taken again."""
    return {
        "gradients-mlp": Case(partial(_differentiated, training_graphs.mlp), (GENERATED, SIMT), depth=4),
        "gradients-encoder": Case(
            partial(_differentiated, partial(training_graphs.encoder, layers=1, dropout=0.25)),
            (GENERATED, SIMT),
            depth=8,
        ),
    }


def _differentiated(make: Callable[[], training_graphs.Program]) -> Program:
    module, arrays = make()
    for step in (AssignIdsPass(), DifferentiatePass()):
        step.apply(Context(), module)
    (function,) = (op for op in module.ops if isinstance(op, FuncOp))
    assert function.res_attrs is not None
    named = [
        DictionaryAttr({"logical.name": StringAttr(f"new {next(iter(entry.data.values())).data}")})
        for entry in function.res_attrs
    ]
    function.properties["res_attrs"] = ArrayAttr(named)
    return Program(module, dict(arrays))


_OPTIMIZERS: tuple[Tensor, ...] = (
    *(Tensor((33, 7)), Tensor((257, 3), "adamw {weight_decay = 0.1 : f64}"), Tensor((5,), "sgd", ())),
    Tensor((70, 2), "sgd {momentum = 0.9 : f64, nesterov}", ("momentum_buffer",)),
)


def _updates() -> Program:
    """Tensors that each have an optimizer; states are zeros, and the first step comes."""
    module = parse_module(update_programs.Program(_OPTIMIZERS).text())
    arrays = random_arrays(module, UPDATES)
    zeros = {
        name: np.zeros_like(arrays[name]) for name, role, _ in arguments(module) if role in ("state", "meta")
    }
    return Program(module, {**arrays, **zeros})


def _metas() -> Program:
    """A step after dropout, whose counter the program or the executable keeps; from its beginning."""
    random = np.random.default_rng(59)
    arrays = regression_start(random) | regression_batch(random)
    return Program(regression_program().module(), arrays)


STEP = "step-of-descent"
"""The case that updates its parameters."""
UPDATES = "updates"
"""The case of all optimizers."""
METAS = {who: f"metas-{who}" for who in ("device", "host")}
"""The cases of a step that is checked, by who computes its counter, rate and corrections."""

STATELESS: dict[str, Case] = {
    **_graphs(),
    **_indexing(),
    **_products(),
    **_rounded_products(),
    **_integer_products(),
    **_integer_convolutions(),
    **_float8(),
    **_quantised_networks(),
    **_variants(),
    **_windows(),
    **_convolutions(),
    **_library_calls(),
    **_depthwise(),
    **_weight_grads(),
    **_pools(),
    **_attentions(),
    **_attention_steps(),
    **_multi_output(),
    **_models(),
    **_gradients(),
    **_single_programs(),
    **_policies(),
    **_in_batches(),
    **_random(),
}
TOKEN = "token-of-a-decoder"
"""The case that writes a row of its state in place."""

TRAINING_CASES: dict[str, Case] = {
    f"train-{name}": Case(training.program, (MULTI_TENSOR,), options=training.options)
    for name, training in TRAININGS.items()
}
"""Steps that update parameters, states and counters; looked at by `test_training`."""

RANDOM_OP_CASES: dict[str, Case] = {
    name: Case(ops.program, (), depth=4, options=DROPPING) for name, ops in RANDOM_OPS.items()
}
"""Looked at by `test_every_op`."""

CASES: dict[str, Case] = {
    **STATELESS,
    **RANDOM_OP_CASES,
    **TRAINING_CASES,
    **_attention_gradients(),
    STEP: Case(_step, (SIMT, GENERATED)),
    UPDATES: Case(_updates, (MULTI_TENSOR,)),
    **{
        name: Case(_metas, (GENERATED,), options={"meta": who, "check_finite": True})
        for who, name in METAS.items()
    },
    TOKEN: Case(
        _built(TOKEN, partial(programs.attention_step, "f16", 200, 64, state=True)), (ATTENTION_STEP,)
    ),
}
"""By name."""
