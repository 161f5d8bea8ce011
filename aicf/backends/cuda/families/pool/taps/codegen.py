"""Launches of the kernel that finds the largest element of each window: the snippets of a pooling, and its own."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.common.loop_nest import Access
from aicf.backends.cuda.codegen.vector_access import VectorAccess
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.pool.codegen import PoolText, strided
from aicf.backends.cuda.families.pool.problem import read_taps
from aicf.backends.cuda.families.pool.schedule import read_spec
from aicf.backends.cuda.families.pool.taps.template import taps
from aicf.backends.cuda.families.records import read_shape
from aicf.backends.cuda.families.scatter.codegen import Constants, launched


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    (x,), (y,) = launch.ins, launch.outs
    spec = read_spec(launch.record, read_taps(launch.record, strided(x), strided(y)))
    made = _TapsText(spec).constants()
    return [launched(launch, read_shape(launch.record), taps, {"x": x, "y": y}, made)]


class _TapsText(PoolText):
    """What the template is told."""

    def constants(self) -> Constants:
        """Those of a pooling of short windows; places come last to first."""
        offsets = [places[::-1] for places in self.spec.offsets]
        return {
            **super().constants(),
            **dict(zip(("DEEPS", "ROWS", "COLUMNS"), offsets, strict=True)),
            "NUMBERS": tuple(
                tuple(
                    tuple(
                        tuple(
                            self._number_at((deep, row, column), pixel) for pixel in range(self.spec.pixels)
                        )
                        for column in offsets[2]
                    )
                    for row in offsets[1]
                )
                for deep in offsets[0]
            ),
            "NONE": self.p.taps,
            "REPLACES": Snippet(("new", "old"), (), "(new >= old) | (new != new)"),
        }

    def _number_at(self, places: tuple[int, int, int], pixel: int) -> int:
        """Which element of a result's window, in row-major order, lies at places from the start of the first window of
        its group; -1 for none."""
        number = 0
        for index, (place, dim) in enumerate(zip(places, self.p.dims, strict=True)):
            axis, moved = dim.axis, pixel if index == self.spec.dim else 0
            tap, rest = divmod(place - moved * axis.stride, axis.dilation)
            if rest or not 0 <= tap < axis.size:
                return -1
            number = number * axis.size + tap
        return number

    def _store(self) -> Snippet:
        """Parameters pixel, result: a vector of channels of one result."""
        spec = self.spec
        values = [f"number[pixel * {spec.vector} + {index}]" for index in range(spec.vector)]
        lines = [f"element = i64(result + pixel * {self.p.dims[spec.dim].y_stride})"]
        lines += VectorAccess(Access("i8", 0, ()), spec.vector, 1, spec.vector).store("y", "element", values)
        return Snippet(("pixel", "result"), tuple(lines))
