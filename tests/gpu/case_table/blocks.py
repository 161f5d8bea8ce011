"""Cases of block-quantised weights: products of few and of many rows, and rows of an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from zlib import crc32

import numpy as np

from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.frontends.builder import Graph
from tests.gpu.case_table.case import DEQUANTIZE_BLOCKS, MATMUL_BLOCKS, Case
from tests.gpu.programs import Program, random_arrays
from tests.support.blocks import random_rows

_COUNTS = {
    "few": ((1, 5, 16), 200, 1536),
    "many": ((40, 130), 72, 4352),
}
"""Rows of each x, rows of the weight, columns: of the second one a slice after another is in shared memory."""


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
