"""Launches of `cuda.conv_transpose_mma`: those of `cuda.conv_mma`, for each phase as an instruction of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import Record, integer, read_parts
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.families.conv.mma import codegen
from aicf.backends.cuda.families.conv.transposed.problem import (
    Phase,
    TransposedProblem,
    operands_of_phase,
    read_transposed,
)
from aicf.backends.cuda.target import ELEMENT_BYTES
from aicf.dialects.kinds import CONV_DIMS


def emit(launch: Launch) -> list[KernelLaunch]:
    """A launch for each phase, in order."""
    problem = read_transposed(launch.record, launch.ins, launch.outs[0])
    parts = read_parts(launch.record, "parts", len(problem.phases))
    return [
        made
        for own, part in zip(problem.phases, parts, strict=True)
        for made in codegen.emit(_phase(launch, problem, own, part))
    ]


def _phase(launch: Launch, problem: TransposedProblem, own: Sequence[Phase], part: Record) -> Launch:
    """The convolution of one phase as an instruction."""
    operands = operands_of_phase(problem, own)
    (x, weight), (y,) = launch.ins, launch.outs
    taps, counts = (len(phase.taps) for phase in own), (phase.count for phase in own)
    weight_shape = (problem.outputs, problem.channels, *taps)
    return replace(
        launch,
        kind="conv",
        record={**launch.record, **part, **_windows(own)},
        ins=(x, _seen(weight, operands.weight_offset, weight_shape, operands.weight_strides)),
        outs=(_seen(y, operands.y_offset, (*y.shape[:2], *counts), operands.y_strides),),
    )


def _windows(own: Sequence[Phase]) -> Record:
    """The attributes of a convolution of stride 1."""
    lows = [-phase.first for phase in own] + [0] * (CONV_DIMS - len(own))
    found = {f"{name}_{dim}": integer(1) for name in ("stride", "dilation") for dim in range(CONV_DIMS)}
    return {**found, **{f"low_{dim}": integer(low) for dim, low in enumerate(lows)}}


def _seen(ref: BufferRef, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> BufferRef:
    """A view of a buffer that starts so many elements later."""
    return replace(ref, offset=ref.offset + offset * ELEMENT_BYTES[ref.dtype], shape=shape, strides=strides)
