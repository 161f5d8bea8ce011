"""Where rows of a tensor start, by their number."""

from __future__ import annotations

from aicf.backends.common.loop_nest import Strided
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value


def row_address(em: Emitter, base: Value, tensor: Strided, number: Value) -> Value:
    """The start of a row, by its number over all dims but the last."""
    address, rest = base, number
    for dim in reversed(range(len(tensor.shape) - 1)):
        size = em.index(tensor.shape[dim])
        coordinate = em.b.srem(rest, size) if dim else rest
        address = em.moved(address, coordinate, tensor.strides[dim], tensor.dtype)
        rest = em.b.sdiv(rest, size) if dim else rest
    return address
