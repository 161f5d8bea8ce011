"""Cases of products and convolutions of 8 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from aicf.frontends.builder import Graph
from tests.gpu import fp8, integer_networks
from tests.gpu.case_table.case import CONV_MMA_INT8, CONV_WGMMA_INT8, MMA_INT8, WGMMA_INT8, Case, program_of
from tests.gpu.case_table.convolutions import RANDOM_CONVOLUTIONS
from tests.gpu.convolutions import image_layer
from tests.gpu.integers import (
    integer_convolution,
    integer_gated,
    integer_product,
    integer_projections,
    random_integer_convolution,
    random_integer_windows,
    whole_range,
)
from tests.gpu.programs import Program


def integer_product_cases() -> dict[str, Case]:
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
        kinds = ("gemm", "gemm_epilogue", "gemm_epilogue_bwd", "gemm_gated", "gemm_multi")
        policy = {} if variant else {"kernels": dict.fromkeys(kinds, kernel)}
        cases[name] = Case(partial(_whole_range, name, build), (kernel,), policy, variant)
    return cases


def float8_sums(k: int) -> float:
    """How far sums of `k` products of floats of 8 bits may be off on Hopper, beside their mean square: its tensor cores
    cut 32 products off some 13 bits below the largest, and then the sum so far.

    An estimate: on an H200 some were further off than 2^-12, by how much is not measured yet.
    """
    return 2.0**-8 + k / 32 * 2.0**-14


def float8_cases() -> dict[str, Case]:
    """Floats of 8 bits: casts, moves, and products by all pairs of types, with results of every type."""
    kinds = ("gemm", "gemm_epilogue", "gemm_epilogue_bwd", "gemm_gated", "gemm_multi")
    cases: dict[str, Case] = {}
    for name, (kernel, build, variant) in fp8.float8_products().items():
        policy = {} if variant else {"kernels": dict.fromkeys(kinds, kernel)}
        cases[name] = Case(
            program_of(name, build), (kernel,), policy, variant, sums=float8_sums(build.args[3])
        )
    for dtype in fp8.FLOAT8:
        for what, build in (("casts", fp8.float8_casts), ("moves", fp8.float8_moves)):
            cases[f"fp8-{what}-{dtype}"] = Case(program_of(f"fp8-{what}-{dtype}", partial(build, dtype)), ())
    cases["fp8-of-halves"] = Case(program_of("fp8-of-halves", fp8.product_into_float8), ())
    return cases


def integer_convolution_cases() -> dict[str, Case]:
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


def quantised_network_cases() -> dict[str, Case]:
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
