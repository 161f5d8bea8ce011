"""Cases of block-quantised weights: products of few and of many rows, and rows of an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from zlib import crc32

import ml_dtypes
import numpy as np

from aicf.dialects.block_schemes import BLOCK_SCHEMES, Scheme
from aicf.frontends.builder import Graph
from aicf.llm.quantizing.encoding import ENCODED, encode
from aicf.llm.sources.quantised.blocks import BlockLayout
from tests.gpu.case_table.case import DEQUANTIZE_BLOCKS, MATMUL_BLOCKS, Case
from tests.gpu.programs import Array, Program, random_arrays
from tests.support.blocks import random_rows

_COUNTS = {
    "few": ((1, 5, 16), 200, 1536),
    "many": ((40, 130), 72, 4352),
}
"""Rows of each x, rows of the weight, columns: of the second one a slice after another is in shared memory."""

_MLPS = {
    "one": ("Q4_0", "bf16", 1, 2048, 8192),
    "fp8": ("E4M3_128", "bf16", 1, 2048, 2048),
    "float": ("Q4_1", "f32", 1, 544, 1536),
    "some": ("Q8_0", "f16", 5, 512, 992),
    "most": ("Q4_0", "bf16", 16, 1024, 512),
}
"""Scheme and type of x, its rows, columns, and rows of the gate: what is before and after products is part of them."""


def blocks_cases() -> dict[str, Case]:
    cases = {
        f"blocks-{scheme}": Case(
            partial(_program, scheme, *_COUNTS["few"]), (MATMUL_BLOCKS, DEQUANTIZE_BLOCKS), depth=4
        )
        for scheme in BLOCK_SCHEMES
    }
    for scheme in ("Q4_0", "Q6_K"):
        make = partial(_program, scheme, *_COUNTS["many"])
        cases[f"blocks-{scheme}-many"] = Case(make, (MATMUL_BLOCKS,), depth=4)
    for name, (scheme, dtype, rows, columns, inner) in _MLPS.items():
        make = partial(_mlp, scheme, dtype, rows, columns, inner)
        cases[f"blocks-mlp-{name}"] = Case(make, (MATMUL_BLOCKS,), depth=8)
    cases["blocks-of-a-model"] = Case(partial(_program, "Q4_0", (1,), 8192, 2048), (MATMUL_BLOCKS,), depth=4)
    return cases


def _program(scheme: str, counts: Sequence[int], rows: int, columns: int) -> Program:
    """Products of x of several numbers of rows with one weight, and some of its rows."""
    g = Graph("blocks")
    random = np.random.default_rng(crc32(f"{scheme} {counts}".encode()))
    packed = random_rows(random, BLOCK_SCHEMES[scheme], rows, columns)
    weight = g.dequantize_blocks(g.param("w", packed.shape, "u8"), scheme)
    for count in counts:
        g.output(g.linear(g.input(f"x{count}", (count, columns)), weight), f"y{count}")
    g.output(g.gather(weight, g.input("i", (7,), "i64")), "rows")
    module = g.module()
    return Program(module, random_arrays(module, scheme) | {"w": packed})


def _mlp(scheme: str, dtype: str, rows: int, columns: int, inner: int) -> Program:
    """A norm, a gate and what it gates, then a product to which x is added: two kernels."""
    g = Graph("mlp")
    random = np.random.default_rng(crc32(f"{scheme} {dtype} {rows}".encode()))
    packed = {
        name: _in_blocks(BLOCK_SCHEMES[scheme], random.standard_normal(size, np.float32) * size[1] ** -0.5)
        for name, size in {"gate": (inner, columns), "up": (inner, columns), "down": (columns, inner)}.items()
    }
    widened = {
        name: g.dequantize_blocks(g.param(name, rows.shape, "u8"), scheme) for name, rows in packed.items()
    }
    gate, up, down = (weight if dtype == "f32" else g.cast(weight, dtype) for weight in widened.values())
    x = g.input("x", (rows, columns), dtype)
    normed = g.rms_norm(x, g.param("scale", (columns,), dtype), epsilon=1e-5)
    g.output(x + g.linear(g.silu(g.linear(normed, gate)) * g.linear(normed, up), down), "y")
    module = g.module()
    return Program(module, random_arrays(module, scheme) | packed)


def _in_blocks(scheme: Scheme, matrix: Array) -> Array:
    """Rows of bytes; of floats of 8 bits all scales are 1/64."""
    if scheme.name in ENCODED:
        return encode(scheme, matrix)
    codes = (64 * matrix).astype(ml_dtypes.float8_e4m3fn)
    scales = np.full((1, matrix.shape[1] // scheme.length), 1 / 64)
    return BlockLayout("f8E4M3FN", scheme, scheme.length, 1).rows(codes.view(np.uint8), scales)
