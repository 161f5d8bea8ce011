"""The descriptor of `cuda.weight_grad_depthwise`: gradients of weights with one input channel a group. No code
generator is imported here.

A product of such a gradient has one column for each element of a window: tensor cores would multiply zeros. Here a
thread adds up sums of its own channels, and a block those of its threads in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import Record, RecordCodec
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.weight_grad.depthwise import schedule as depthwise
from aicf.backends.cuda.families.conv.weight_grad.depthwise.schedule import DepthwiseTile
from aicf.backends.cuda.families.conv.weight_grad.parted_kernel import Parted, PartedKernel
from aicf.backends.cuda.families.conv.weight_grad.problem import WeightGradProblem
from aicf.backends.cuda.families.conv.windows import KOrder, channels_order
from aicf.backends.cuda.families.records import Shape
from aicf.backends.cuda.target import FLOATS, GpuArch

_CODEC = RecordCodec(DepthwiseTile)
_MOST_BLOCKS = 65535
"""Of a grid, along all dimensions but the first."""


class WeightGradDepthwiseKernel(PartedKernel[DepthwiseTile]):
    """Gradients of floats with one input channel a group; halves are added in f32."""

    id = "cuda.weight_grad_depthwise"
    library = "depthwise"
    simplicity = 3

    def dtype_reason(self, work: Workload) -> str | None:
        dtype = work.operands[0].dtype
        return None if dtype in FLOATS else f"it sums products of {', '.join(FLOATS)}, not of {dtype}"

    def channels_reason(self, problem: WeightGradProblem) -> str | None:
        conv = problem.windows
        if conv.channels != 1 or conv.groups == 1:
            return f"its groups have {conv.channels} input channels, and one of several groups is summed here"
        if conv.taps[-1] > depthwise.MOST_ROW:
            return f"its windows have {conv.taps[-1]} elements in a row, more than {depthwise.MOST_ROW}"
        return None

    def order(self, problem: WeightGradProblem) -> KOrder:
        return channels_order(problem.windows, 1)

    def k_of(self, problem: WeightGradProblem, tile: DepthwiseTile) -> int:
        return tile.item_lanes * tile.pixels

    def steps(self, problem: WeightGradProblem, tile: DepthwiseTile) -> int:
        return -(-depthwise.items(problem, tile) // tile.item_lanes)

    def tiles(self, problem: WeightGradProblem, arch: GpuArch) -> Iterable[DepthwiseTile]:
        return depthwise.tiles(problem)

    def is_direct(self, problem: WeightGradProblem, schedule: Parted[DepthwiseTile]) -> bool:
        """A window is a few elements of the result: parts are added where these lie."""
        return False

    def reason(
        self, schedule: Parted[DepthwiseTile], problem: WeightGradProblem, arch: GpuArch
    ) -> str | None:
        if max(schedule.tile.grid(problem, schedule.parts)[1:]) > _MOST_BLOCKS:
            return f"its windows have {depthwise.window_rows(problem)} rows, more than a grid has room for"
        return depthwise.tile_reason(schedule.tile, problem)

    def wave(self, problem: WeightGradProblem, tile: DepthwiseTile, arch: GpuArch) -> tuple[int, int]:
        return prod(tile.grid(problem, 1)), arch.multiprocessors * depthwise.resident(tile)

    def part_us(self, schedule: Parted[DepthwiseTile], problem: WeightGradProblem, arch: GpuArch) -> float:
        return depthwise.part_us(problem, schedule.tile, schedule.parts, arch)

    def entries(
        self, schedule: Parted[DepthwiseTile], problem: WeightGradProblem, arch: GpuArch
    ) -> dict[str, Attribute]:
        tile = schedule.tile
        shape = Shape(tile.grid(problem, schedule.parts), (tile.threads, 1, 1))
        order = f"a thread its pixels ascending, {tile.item_lanes} threads by turns, added in order"
        return {**_CODEC.entries(tile), **shape.entries(), "combination_order": StringAttr(order)}

    def read_tile(self, record: Record) -> DepthwiseTile:
        return _CODEC.read(record)


KERNELS = (WeightGradDepthwiseKernel(),)
"""The kernel of this family."""
