"""Launches of poolings: the templates with their snippets."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan, prod

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.loop_nest import Access, Strided
from aicf.backends.cuda.codegen.scalar import (
    REGISTERS,
    combine_text,
    constant_text,
    identity_text,
)
from aicf.backends.cuda.codegen.vector_access import VectorAccess
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.pool import template as kernels
from aicf.backends.cuda.families.pool.groups import counting_type, number_snippet, place_snippet
from aicf.backends.cuda.families.pool.problem import Border, PoolDim, PoolProblem, read_pool
from aicf.backends.cuda.families.pool.schedule import TOGETHER, PoolSpec, read_spec
from aicf.backends.cuda.families.records import read_shape
from aicf.backends.cuda.families.scatter.codegen import Constants, launched
from aicf.backends.cuda.target import HALVES
from aicf.dialects.window_counts import found_span

_NAMES = ("deep", "row", "column")
_LOWEST = {"f16": 0xFC00FC00, "bf16": 0xFF80FF80}
"""Two negative infinities in a register."""


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    (x,), (y,) = launch.ins, launch.outs
    problem = read_pool(launch.record, strided(x), strided(y))
    spec = read_spec(launch.record, problem)
    made = PoolText(spec).constants()
    template = kernels.short if spec.lanes == 1 else kernels.long
    return [launched(launch, read_shape(launch.record), template, {"x": x, "y": y}, made)]


def strided(ref: BufferRef) -> Strided:
    """The operand by its sizes, strides and type."""
    return Strided(ref.shape, ref.strides, ref.dtype)


class PoolText:
    """What the templates are told of one pooling."""

    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.p: PoolProblem = spec.problem
        self.dtype = spec.problem.dtype
        self.access = VectorAccess(Access(self.dtype, 0, ()), spec.vector, 1, spec.vector)
        self.number = counting_type(spec.grid[0] * spec.slots)

    def constants(self) -> Constants:
        """Of both templates."""
        common: Constants = {
            "GROUPS": self.spec.groups,
            "REGISTERS": self.spec.registers,
            "NUMBER": number_snippet(self.number, self.spec.slots),
            "PLACE": self._place(),
            "PLANE": Snippet(("image", "channel"), (), self._planes(self.p.x_planes)),
            "NOTHING": Snippet((), (), self._nothing()),
            "LOAD": self._load(),
            "INSIDE": self._inside(),
            "COMBINED": Snippet(("old", "new"), (), self._combined("old", "new")),
            "RESULT": self._result(),
            "STORE": self._store(),
            **{name.upper(): self._along(*pair) for name, pair in self._dims().items()},
        }
        return {**common, **(self._short() if self.spec.lanes == 1 else self._long())}

    def _dims(self) -> dict[str, tuple[PoolDim, Border]]:
        return dict(zip(_NAMES, zip(self.p.dims, self.p.borders, strict=True), strict=True))

    def _short(self) -> Constants:
        offsets = dict(zip(("DEEPS", "ROWS", "COLUMNS"), self.spec.offsets, strict=True))
        uses = dict(zip(("DEEP_USES", "ROW_USES", "COLUMN_USES"), self.spec.uses, strict=True))
        tested = Border.TESTED in self.p.borders
        return {**offsets, **uses, "PIXELS": self.spec.pixels, "TESTED": tested}

    def _long(self) -> Constants:
        spec = self.spec
        register = "u32" if spec.packed else REGISTERS[self.dtype]
        return {
            "TAPS": self.p.taps,
            "LANES": spec.lanes,
            "LEVELS": spec.lanes.bit_length() - 1,
            "APART": spec.slots if spec.along == "channels" else 1,
            "TOGETHER": TOGETHER,
            "SHARED_BY": self._shared_by(),
            "SHARED": Snippet((), (), f"cuda.shared.array({spec.threads * spec.registers}, {register})"),
            "EXISTING": Snippet(
                ("number",),
                (f"last = {self.number}({spec.groups - 1})",),
                "cuda.selp(number < last, number, last)",
            ),
            "TAP": self._tap(),
        }

    # Who does what

    def _shared_by(self) -> Snippet:
        """Parameter thread: its group in the block, and its number among those that share a window. Neighbours have
        neighbouring channels, or neighbouring elements of a window."""
        inner = self.spec.slots if self.spec.along == "channels" else self.spec.lanes
        near, far = f"i32(thread % {inner})", f"i32(thread // {inner})"
        return Snippet(
            ("thread",), (), f"({near}, {far})" if self.spec.along == "channels" else f"({far}, {near})"
        )

    def _place(self) -> Snippet:
        """Parameter number: the image, the first channel and the first result of a group. The last group of a row
        starts early enough to be a whole one: what two threads compute is the same."""
        spec, moved = self.spec, list[str]()
        if spec.pixels > 1:
            name, last = "dhw"[spec.dim], self.p.dims[spec.dim].axis.count - spec.pixels
            moved.append(f"{name} = i32(min(i32({name} * {spec.pixels}), i32({last})))")
        return place_snippet(self.number, spec.order, spec.sizes, spec.vector, moved)

    # Places in windows

    def _tap(self) -> Snippet:
        """Parameter tap: the place of an element of a window in row-major order."""
        lines = ["rest = tap"]
        for name, dim in reversed(list(zip(_NAMES, self.p.dims, strict=True))):
            size, dilation = dim.axis.size, dim.axis.dilation
            if name == _NAMES[0]:
                lines.append(f"{name} = i32(rest * {dilation})")
                continue
            pair = f"(u32(rest), u32({size}))"
            lines.append(f"{name} = i32(i32(remainder{pair}) * {dilation})")
            lines.append(f"rest = i32(quotient{pair})")
        return Snippet(("tap",), tuple(lines), f"({', '.join(_NAMES)})")

    def _along(self, dim: PoolDim, border: Border) -> Snippet:
        """Parameters result, place: where the element at a place of a result's window lies along a dimension, and
        whether it is one of the operand; some one that is if it is not."""
        axis, params = dim.axis, ("result", "place")
        if border is Border.NONE:
            at = f"i64(result) * {axis.stride * dim.x_stride} + i64(place) * {dim.x_stride}"
            return Snippet(params, (), f"({at}, True)")
        lines = (
            f"coordinate = i32(result * {axis.stride} + place - {axis.low})",
            f"near = i32(min(max(coordinate, i32(0)), i32({axis.whole - 1})))",
        )
        inside = "coordinate == near" if border is Border.TESTED else "True"
        return Snippet(params, lines, f"(i64(near) * {dim.x_stride}, {inside})")

    def _inside(self) -> Snippet:
        """Parameters deep, row, column: whether the coordinates along all dimensions are those of the operand."""
        tested = [name for name, (_, border) in self._dims().items() if border is Border.TESTED]
        return Snippet(_NAMES, (), " & ".join(tested) or "True")

    # Elements

    def _load(self) -> Snippet:
        """Parameters number, element: a vector into the registers `taken`, from `number` vectors on."""
        words = [f"word{index}" for index in range(self.access.words)]
        (text,) = self.access.load("x", "element")
        lines = [f"{', '.join(words)} = {text}"]
        values = words if self.spec.packed else self.access.unpack(words, lines, "value")
        lines += [f"taken[number * {len(values)} + {index}] = {value}" for index, value in enumerate(values)]
        return Snippet(("number", "element"), tuple(lines))

    def _nothing(self) -> str:
        """What changes no result, in a register."""
        if self.spec.packed:
            return f"u32({_LOWEST[self.dtype]})"
        return identity_text(self.p.how, self.dtype)

    def _combined(self, old: str, new: str) -> str:
        if self.spec.packed:
            return f"max_nan_{self.dtype}x2({old}, {new})"
        return combine_text(self.p.how, self.dtype, old, new)

    # Results

    def _planes(self, strides: tuple[int, int]) -> str:
        return f"i64(image) * {strides[0]} + i64(channel) * {strides[1]}"

    def _result(self) -> Snippet:
        """Parameters image, channel and those of a result: its element."""
        steps = [f"i64({name}) * {dim.y_stride}" for name, dim in zip(_NAMES, self.p.dims, strict=True)]
        return Snippet(("image", "channel", *_NAMES), (), " + ".join([self._planes(self.p.y_planes), *steps]))

    def _store(self) -> Snippet:
        """Parameters pixel, result, and the place of the first result: a vector of channels of one result."""
        spec = self.spec
        values = [f"combined[pixel * {spec.registers} + {index}]" for index in range(spec.registers)]
        lines = [f"element = i64(result + pixel * {self.p.dims[spec.dim].y_stride})"]
        if self.p.mode == "avg":
            values = self._means(values, lines)
        if spec.packed:
            name = "store_u32" if len(values) == 1 else f"store_u32x{len(values)}"
            lines.append(f"{name}(y + u64(i64(element) * {self.access.bytes}), {', '.join(values)})")
        else:
            lines += self.access.store("y", "element", values)
        return Snippet(("pixel", "result", *_NAMES), tuple(lines))

    def _means(self, sums: Sequence[str], lines: list[str]) -> list[str]:
        """The sums over the number of elements that the window finds; adds the statements that it takes.

        Sums of halves are multiplied by a reciprocal, which costs one division for all channels: they are rounded to
        halves anyway. So are all sums if it is exact.
        """
        found, known = self.p.found, prod(each for each in self.p.found if each is not None)
        if None not in found:
            if known == 0:
                return [constant_text(nan, self.dtype)] * len(sums)
            if self.dtype in HALVES or known.bit_count() == 1:
                return [f"({total} * {constant_text(1 / known, self.dtype)})" for total in sums]
            return [self._quotient(total, constant_text(known, self.dtype)) for total in sums]
        counts = [self._count(index, lines) for index, each in enumerate(found) if each is None]
        lines.append(f"found = {REGISTERS[self.dtype]}(i32({' * '.join([*counts, str(known)])}))")
        if self.dtype not in HALVES:
            return [self._quotient(total, "found") for total in sums]
        lines.append(f"part = {self._quotient('f32(1.0)', 'found')}")
        return [f"({total} * part)" for total in sums]

    def _quotient(self, total: str, divisor: str) -> str:
        """Rounded once."""
        return f"cuda.libdevice.{'ddiv_rn' if self.dtype == 'f64' else 'fdiv_rn'}({total}, {divisor})"

    def _count(self, index: int, lines: list[str]) -> str:
        """How many elements the window at `pixel` finds along a dimension: the steps before the end of what counts less
        those before its start. Adds the statements that it takes."""
        name, axis = _NAMES[index], self.p.dims[index].axis
        place = f"({name} + pixel)" if index == self.spec.dim else name
        lines.append(f"{name}_start = i32({place} * {axis.stride} - {axis.low})")
        first, last = found_span(axis, self.p.padding_counts)
        for which, bound in (("first", first), ("last", last)):
            away = f"i32(max(i32({bound} - {name}_start), i32(0)))"
            if axis.dilation > 1:
                away = f"i32(quotient(u32({away} + {axis.dilation - 1}), u32({axis.dilation})))"
            lines.append(f"{name}_{which} = i32(min({away}, i32({axis.size})))")
        return f"({name}_last - {name}_first)"
