"""Products of rows with packed matrices of their own, as experts are: against float64, and what is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.compilation.compiled import CompiledModel
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.frontends.builder import Graph
from tests.support.blocks import random_rows, widened

RNG = np.random.default_rng(311)
MATRICES, ROWS, COLUMNS = 5, 37, 256
SCHEMES = ("Q4_1", "Q6_K", "U8_16", "E4M3_128")
INDICES = np.array([[3, 0, -1], [-6, 9, 3]])
WHICH = np.array([[3, 0, 4], [0, 4, 3]])
"""The matrices of the indices: these count from the end, and are clamped."""
PACKED = {
    name: random_rows(RNG, BLOCK_SCHEMES[name], MATRICES * ROWS, COLUMNS).reshape(MATRICES, ROWS, -1)
    for name in SCHEMES
}
WIDE = {name: widened(BLOCK_SCHEMES[name], packed) for name, packed in PACKED.items()}


def compiled(columns: tuple[int, ...], **options: Any) -> CompiledModel:
    """Columns x [..., COLUMNS, 1] times the matrices that are chosen for each."""
    g = Graph("chosen")
    x, indices = g.input("x", columns), g.input("i", INDICES.shape, "i64")
    for name in SCHEMES:
        weight = g.dequantize_blocks(g.param(name, PACKED[name].shape, "u8"), name)
        g.output(g.matmul(g.gather(weight, indices), x), f"y.{name}")
    return aicf.compile(g, PACKED, **options)


def check(found: Mapping[str, np.ndarray], x: np.ndarray) -> None:
    for name in SCHEMES:
        chosen = WIDE[name][WHICH]
        magnitude = np.abs(chosen) @ np.abs(x).astype(np.float64)
        assert (np.abs(found[f"y.{name}"] - chosen @ x) <= 2.0**-20 * magnitude).all(), name


def random_x(*sizes: int) -> np.ndarray:
    return RNG.standard_normal(sizes).astype(np.float32)


def test_a_column_for_each_matrix() -> None:
    model = compiled((2, 3, COLUMNS, 1))
    text = model.ir("emit")
    assert text.count('kernel("cpu.matmul_blocks"') == len(SCHEMES)
    assert "cpu.dequantize_blocks" not in text and '"gather"' not in text
    x = random_x(2, 3, COLUMNS, 1)
    check(model.run({"x": x, "i": INDICES}), x)


@pytest.mark.parametrize("options", [{"threads": 2}, {"policy": {"forbid": ["cpu.matmul_blocks"]}}], ids=str)
def test_one_column_for_all_matrices(options: Mapping[str, Any]) -> None:
    """By threads that share the panels, and without the kernel, as a gather of what is widened."""
    model, x = compiled((COLUMNS, 1), **options), random_x(COLUMNS, 1)
    check(model.run({"x": x, "i": INDICES}), x)
