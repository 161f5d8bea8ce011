"""Cases of variants that kernels would not take at these sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aicf.frontends.builder import Graph
from tests.gpu import programs
from tests.gpu.case_table.case import (
    ATTENTION,
    ATTENTION_STEP,
    ATTENTION_WGMMA,
    GEMM_NORM,
    LIBRARY,
    MMA,
    MMA_TF32,
    SIMT,
    WGMMA,
    WGMMA_TF32,
    Case,
    program_of,
)
from tests.gpu.case_table.products import ROUNDED_DEPTH, TF32


def variant_cases() -> dict[str, Case]:
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
        name: Case(program_of(name, build), (kernel,), policies.get(kernel, {}), want, depths.get(kernel, 1))
        for name, (kernel, build, want) in table.items()
    }
