"""Matrices stored a byte for each element, `weight`, with scales of tiles: i8, or f8E4M3FN."""

from __future__ import annotations

import numpy as np

from aicf.llm.sources.quantised.method import FLOATS, Module, PackedMatrix, Settings
from aicf.runtime.tensors import Array

E4M3 = "float8_e4m3fn"
SIGN = np.uint8(128)
"""From the bits of i8 to a u8 that is 128 larger."""

Tile = tuple[int | None, int | None]
"""Rows and columns that share a scale; None for all of them."""
ACTIVATIONS = ("input_scale", "input_zero_point", "input_scale_ub", "activation_scale")
"""Tensors of a module that say how its activations are rounded, which they are not here."""


def tile_of(settings: Settings, key: str) -> Tile:
    """A setting of two sizes. Raises UnsupportedOp if it is none."""
    match settings.values.get(key):
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            return rows, columns
        case other:
            raise settings.unsupported(key, other, "it is two sizes, 1 or more")


def by_row(grid: Array, tile: Tile, rows: int) -> Array:
    """Numbers of tiles for each row: [rows, groups], or [1, groups] if all share them."""
    return grid if tile[0] is None else np.repeat(grid, tile[0], axis=0)[:rows]


def float_matrix(module: Module, scale: str, tile: Tile, *order: str) -> PackedMatrix:
    """The matrix of ``scale * weight`` for a weight of f8E4M3FN.

    Args:
        module: Its tensors.
        scale: The name of its scales.
        tile: That shares one.
        order: The name of the groups of columns, which are checked before, where a method stores them.
    """
    weight = module.tensor("weight", (E4M3,), (None, None))
    rows, columns = weight.shape
    scales = module.grid(scale, FLOATS, tiles(weight, tile))
    layout = module.layout("f8E4M3FN", tile[1] or columns, columns)
    return PackedMatrix(
        (rows, columns),
        layout.scheme,
        module.stored("weight", scale, *order, *ACTIVATIONS),
        lambda: layout.rows(weight.view(np.uint8), by_row(scales, tile, rows)),
    )


def integer_matrix(module: Module, scale: str, zero: str, tile: Tile, *order: str) -> PackedMatrix:
    """The matrix of ``scale * (weight - zero)`` for a weight of i8; there may be no zero points.

    Args:
        module: Its tensors.
        scale, zero: The names of its scales and zero points.
        tile: That shares them.
        order: As of `float_matrix`.
    """
    weight = module.tensor("weight", ("int8",), (None, None))
    rows, columns = weight.shape
    grid = tiles(weight, tile)
    scales = module.grid(scale, FLOATS, grid)
    zeros = module.grid(zero, ("int8",), grid) if module.has(zero) else np.zeros(grid, np.int8)
    layout = module.layout("u8", tile[1] or columns, columns)
    return PackedMatrix(
        (rows, columns),
        layout.scheme,
        module.stored("weight", scale, zero, *order, *ACTIVATIONS),
        lambda: layout.rows(
            weight.view(np.uint8) ^ SIGN,
            by_row(scales, tile, rows),
            by_row(zeros, tile, rows).view(np.uint8) ^ SIGN,
        ),
    )


def tiles(weight: Array, tile: Tile) -> tuple[int, int]:
    """How many tiles of a weight lie below each other and side by side."""
    rows, columns = (-(-size // (part or size)) for size, part in zip(weight.shape, tile, strict=True))
    return rows, columns
