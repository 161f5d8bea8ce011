"""The code that packs weights in panels."""

from __future__ import annotations

from math import prod

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import read_integer, read_text
from aicf.backends.cpu.codegen.call import Call
from aicf.backends.cpu.codegen.ir_builder import Emitter
from aicf.backends.cpu.families.gemm.pack.pairs import PairPacker, Pairs
from aicf.backends.cpu.families.gemm.pack.quads import QuadPacker
from aicf.backends.cpu.families.gemm.pack.template import Packer
from aicf.backends.cpu.target import FLOAT8, HALVES

_BITS = {**dict.fromkeys(HALVES, "i16"), **dict.fromkeys(FLOAT8, "i8")}
"""The integers that narrow floats move as."""


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """A weight in panels."""
    source = launch.ins[0]
    k_dim, nr = read_integer(launch.record, "k_dim"), read_integer(launch.record, "nr")
    shape, steps = _as_matrix(source)
    k, n = shape[k_dim], shape[1 - k_dim]
    strides = (steps[k_dim], steps[1 - k_dim])
    lanes = read_integer(launch.record, "lanes")
    into = read_text(launch.record, "element") if "element" in launch.record else source.dtype
    if "quads" in launch.record:
        shift = read_integer(launch.record, "shift") if "shift" in launch.record else 0
        QuadPacker(em, lanes, k, nr, strides, shift).matrix(n, call.ins[0], call.outs[0])
        return
    if "pairs" in launch.record:
        # Pairs of bf16 are packed as the integers of their bits.
        types = ("i16", "i16") if source.dtype in HALVES else (source.dtype, into)
        pairs = Pairs(*types, k, read_integer(launch.record, "pairs"))
        PairPacker(em, pairs, lanes, nr, strides).matrix(n, call.ins[0], call.outs[0])
        return
    # Elements that keep their type move as they are.
    if into == source.dtype:
        bits = _BITS.get(into, into)
        Packer(em, bits, bits, lanes, k, nr, strides).matrix(n, call.ins[0], call.outs[0])
        return
    Packer(em, source.dtype, into, lanes, k, nr, strides).matrix(n, call.ins[0], call.outs[0])


def _as_matrix(source: BufferRef) -> tuple[tuple[int, int], tuple[int, int]]:
    """Sizes and strides of a weight as a matrix: its dims after the first become one."""
    if len(source.shape) == 2:
        (rows, columns), (row, column) = source.shape, source.strides
        return (rows, columns), (row, column)
    return (source.shape[0], prod(source.shape[1:])), (source.strides[0], 1)
