"""Launches of copies and concatenations: each part of the result is a generated kernel that moves elements."""

from __future__ import annotations

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.copy import moves
from aicf.backends.common.loop_nest import Strided
from aicf.backends.common.record import read_integer
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.families.copy.kernel import read_moves
from aicf.backends.cuda.families.loops.codegen import launches_of
from aicf.backends.cuda.target import ELEMENT_BYTES
from aicf.errors import PlanError


def emit(launch: Launch) -> list[KernelLaunch]:
    """One launch for each part, side by side along the record's axis."""
    (target,) = launch.outs
    sources = [Strided(ref.shape, ref.strides, ref.dtype) for ref in launch.ins]
    result = Strided(target.shape, target.strides, target.dtype)
    found = moves(launch.body, sources, result, read_integer(launch.record, "axis"))
    parts = read_moves(launch.record)
    if found is None or len(found) != len(parts):
        raise PlanError(
            f"kernel record of '{launch.name}' does not fit what it moves: run select-kernels again"
        )
    made: list[KernelLaunch] = []
    for move, part in zip(found, parts, strict=True):
        start = target.offset + move.offset * ELEMENT_BYTES[target.dtype]
        out = BufferRef(target.base, start, target.shape, target.strides, target.dtype)
        refs = [out] if move.operand is None else [launch.ins[move.operand], out]
        made += launches_of(launch.kind, move.nest, part, refs)
    return made
