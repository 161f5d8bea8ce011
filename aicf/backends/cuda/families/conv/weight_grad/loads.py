"""Which thread brings what of both operands into shared memory, where a row is a pixel. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from aicf.backends.cuda.families.conv.problem import ConvProblem
from aicf.backends.cuda.families.conv.weight_grad.problem import WeightGradProblem
from aicf.backends.cuda.families.conv.windows import Loads, k_order, loads_of, padded_dims, x_width
from aicf.backends.cuda.families.gemm.tiled_kernel import TileSpec

_HELD_WORDS = 24
"""Registers of a thread through which elements may pass in one stage."""
_COLUMN_REGISTERS = 48
"""Of a thread, for places of columns."""
_CHUNK_CYCLES = {16: 4.0, 8: 6.0, 4: 10.0, 2: 13.0}
"""Of a multiprocessor for a chunk of each lane of a warp, by bytes of a copy: beside what copies of rows take."""
_PIXEL_CYCLES = 10.0
"""The same for finding a pixel."""
_LINE_BYTES = 128
_CYCLES_PER_US = 1700.0


@dataclass(frozen=True)
class PixelLoads:
    """The loads of both operands: rows are pixels, chunks are of output channels or of windows."""

    grad: Loads
    x: Loads

    @property
    def held_words(self) -> int:
        """Of a thread."""
        return sum(4 * loads.items for loads in (self.grad, self.x) if loads.is_held)

    def column_registers(self, problem: WeightGradProblem) -> int:
        """Of a thread, for where its columns lie."""
        own = self.x.chunk_items * (2 + len(padded_dims(problem.windows)))
        return own + 2 * self.grad.chunk_items

    def registers(self, problem: WeightGradProblem) -> int:
        """Of a thread, beside those of a product of matrices."""
        return self.column_registers(problem) + self.held_words


@lru_cache(maxsize=4096)
def pixel_loads(problem: WeightGradProblem, spec: TileSpec) -> PixelLoads | None:
    """How the threads of a block bring its tiles; None if these do not divide over them."""
    grad = _loads(problem.grad, spec.bm, spec)
    x = _loads(problem.windows, spec.bn, spec)
    return None if grad is None or x is None else PixelLoads(grad, x)


def _loads(operand: ConvProblem, columns: int, spec: TileSpec) -> Loads | None:
    """Neighbouring threads take neighbouring columns where these lie side by side, else neighbouring pixels."""
    order = k_order(operand)
    if columns % order.chunk:
        return None
    apart = order.run.x_step != 1 or order.run.dim is not None
    return loads_of(spec.bk, columns // order.chunk, spec.threads, x_width(operand), apart)


def load_reason(problem: WeightGradProblem, spec: TileSpec) -> str | None:
    """Why the threads of a block cannot bring its tiles, None if they can."""
    loads, tile = pixel_loads(problem, spec), f"{spec.bm}x{spec.bn}x{spec.bk}"
    if loads is None:
        return f"tile {tile} does not divide over {spec.threads} threads that copy it"
    if loads.held_words > _HELD_WORDS or loads.column_registers(problem) > _COLUMN_REGISTERS:
        return f"tile {tile} needs more registers than a thread has"
    return None


def load_us(problem: WeightGradProblem, spec: TileSpec) -> float:
    """What it takes a multiprocessor to bring a stage, beside what copies of rows take."""
    loads = pixel_loads(problem, spec)
    assert loads is not None, "asked of legal tiles"
    cycles = 0.0
    for own, operand in ((loads.grad, problem.grad), (loads.x, problem.windows)):
        order = k_order(operand)
        step = operand.strides[-1] * abs(operand.x_strides[-1]) if own.down else order.chunk
        each = _CHUNK_CYCLES[own.width] * _lines(own.width, step * operand.element_bytes)
        cycles += own.rows * own.chunks / 32 * each
        cycles += own.rows * (1 if own.down else own.chunks) / 32 * _PIXEL_CYCLES
    return cycles / _CYCLES_PER_US


def _lines(width: int, step: int) -> float:
    """How many times as long a load of a warp takes whose lanes read single elements `step` bytes apart."""
    return 1.0 if width > 4 else max(1.0, min(32.0, 32 * step / _LINE_BYTES) / 4)
