"""The vectors that a record may ask for. Imports no code generator."""

from __future__ import annotations

from aicf.backends.common.record import OneOf, illegal, powers_of_two
from aicf.backends.cpu.target import register_bytes

VECTOR_BYTES = 64
"""Of the widest vector of any level; a level with shorter ones takes several registers for it."""
VECTOR_LANES = powers_of_two(1, VECTOR_BYTES)


def legal_lanes(dtype: str) -> OneOf:
    """Elements that a vector of `dtype` may have."""
    return powers_of_two(1, VECTOR_BYTES // register_bytes(dtype))


def lanes_reason(lanes: int, dtype: str) -> str | None:
    """Why no vector has so many elements of `dtype`; None if one may."""
    legal = legal_lanes(dtype)
    return None if legal.holds(lanes) else f"its {illegal('lanes', lanes, legal)} for {dtype}"
