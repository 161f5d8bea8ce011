"""Sizes of packed matrices. Imports no code generator."""

from __future__ import annotations

from aicf.backends.cpu.target import ELEMENT_BYTES


def panel_count(columns: int, width: int) -> int:
    """Panels of `width` columns that cover `columns`."""
    return -(-columns // width)


def packed_elements(k: int, columns: int, width: int) -> int:
    """Elements of the packed form of a ``k x columns`` matrix."""
    return panel_count(columns, width) * k * width


def packed_bytes(dtype: str, k: int, columns: int, width: int) -> int:
    """Bytes of the packed form of a ``k x columns`` matrix."""
    return packed_elements(k, columns, width) * ELEMENT_BYTES[dtype]
