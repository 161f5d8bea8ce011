"""Launches of gradients of poolings: the template with its snippets."""

from __future__ import annotations

from itertools import product
from math import prod

from aicf.backends.base import Launch
from aicf.backends.common.loop_nest import Access
from aicf.backends.cuda.codegen.scalar import REGISTERS, constant_text
from aicf.backends.cuda.codegen.vector_access import VectorAccess
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.pool.codegen import strided
from aicf.backends.cuda.families.pool.grad.problem import GradDim, GradProblem, read_grad
from aicf.backends.cuda.families.pool.grad.schedule import GradSpec, read_spec
from aicf.backends.cuda.families.pool.grad.template import gather
from aicf.backends.cuda.families.pool.groups import counting_type, number_snippet, place_snippet
from aicf.backends.cuda.families.records import read_shape
from aicf.backends.cuda.families.scatter.codegen import Constants, launched

_NAMES = ("deep", "row", "column")


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    (taps, grad), (x,) = launch.ins, launch.outs
    problem = read_grad(launch.record, strided(taps), strided(grad), strided(x))
    made = _GradText(read_spec(launch.record, problem)).constants()
    operands = {"taps": taps, "grad": grad, "x": x}
    return [launched(launch, read_shape(launch.record), gather, operands, made)]


class _GradText:
    """What the template is told of one gradient."""

    def __init__(self, spec: GradSpec) -> None:
        self.spec = spec
        self.p: GradProblem = spec.problem
        self.taps, self.grad = (
            VectorAccess(Access(dtype, 0, ()), spec.vector, 1, spec.vector) for dtype in ("i8", self.p.dtype)
        )

    def constants(self) -> Constants:
        """Of the template."""
        spec, p = self.spec, self.p
        number = counting_type(spec.grid[0] * spec.threads)
        windows = dict(zip(("DEEPS", "ROWS", "COLUMNS"), (tuple(dim.taps) for dim in p.dims), strict=True))
        return {
            **windows,
            "GROUPS": spec.groups,
            "VECTOR": spec.vector,
            "CELL": p.cell,
            "TESTED": not all(dim.is_inside for dim in p.dims),
            "NUMBERS": self._numbers(),
            "NUMBER": number_snippet(number, spec.threads),
            "PLACE": place_snippet(number, spec.order, spec.sizes, spec.vector),
            "ZERO": Snippet((), (), constant_text(0, p.dtype)),
            "TAPS_PLANE": self._plane(p.taps_planes),
            "GRAD_PLANE": self._plane(p.grad_planes),
            "LOAD_TAPS": self._load_taps(),
            "LOAD_GRAD": self._load_grad(),
            "RESULT": self._result(),
            "ENDS": any(dim.whole % dim.stride for dim in p.dims),
            "IS_THERE": self._is_there(),
            "STORE": self._store(),
            **{name.upper(): self._along(dim) for name, dim in zip(_NAMES, p.dims, strict=True)},
        }

    def _numbers(self) -> tuple[object, ...]:
        """For each window that reaches a cell, by its three numbers, which element of it each element of the cell is;
        -1 for none."""
        deeps, rows, columns = (dim.taps.values() for dim in self.p.dims)
        return tuple(
            tuple(tuple(self._window(deep, row, column) for column in columns) for row in rows)
            for deep in deeps
        )

    def _window(self, *along: tuple[int, ...]) -> tuple[int, ...]:
        _, rows, columns = (dim.size for dim in self.p.dims)
        return tuple(
            -1 if min(taps) < 0 else (taps[0] * rows + taps[1]) * columns + taps[2]
            for taps in product(*along)
        )

    # Places

    def _plane(self, steps: tuple[int, int]) -> Snippet:
        """Parameters image, channel: the first element of a plane."""
        return Snippet(("image", "channel"), (), f"i64(image) * {steps[0]} + i64(channel) * {steps[1]}")

    def _along(self, dim: GradDim) -> Snippet:
        """Parameters cell, more: where window cell + more lies among the taps and the gradients, and whether there is
        one; some one that is there if there is none."""
        if dim.is_inside:
            lines, inside = ["near = i32(cell + more)"], "True"
        else:
            lines = [
                "window = i32(cell + more)",
                f"near = i32(min(max(window, i32(0)), i32({dim.count - 1})))",
            ]
            inside = "window == near"
        return Snippet(
            ("cell", "more"),
            tuple(lines),
            f"(i64(near) * {dim.taps_step}, i64(near) * {dim.grad_step}, {inside})",
        )

    def _result(self) -> Snippet:
        """Parameters image, channel and those of a cell: its first element."""
        plane = f"i64(image) * {self.p.x_planes[0]} + i64(channel) * {self.p.x_planes[1]}"
        steps = [
            f"i64({name}) * {dim.stride * dim.x_step}" for name, dim in zip(_NAMES, self.p.dims, strict=True)
        ]
        return Snippet(("image", "channel", *_NAMES), (), " + ".join([plane, *steps]))

    def _places(self) -> dict[str, str]:
        """Where element `element` of a cell lies along each dimension: a number when the template is specialized."""
        strides = [dim.stride for dim in self.p.dims]
        return {
            name: f"(element // {prod(strides[index + 1 :])} % {strides[index]})"
            for index, name in enumerate(_NAMES)
        }

    def _is_there(self) -> Snippet:
        """Parameters element, and those of a cell: whether an element of the cell is one of the operand."""
        places = self._places()
        tests = [
            f"(i32({name} * {dim.stride} + {places[name]}) < i32({dim.whole}))"
            for name, dim in zip(_NAMES, self.p.dims, strict=True)
            if dim.whole % dim.stride
        ]
        return Snippet(("element", *_NAMES), (), " & ".join(tests) or "True")

    # Elements

    def _load_taps(self) -> Snippet:
        """Parameter element: which element of the window is the largest, for a vector of channels, into `found`."""
        names = [f"word{index}" for index in range(self.taps.words)]
        (text,) = self.taps.load("taps", "element")
        lines = [f"{', '.join(names)} = {text}"]
        values = self.taps.unpack(names, lines, "tap")
        lines += [f"found[{index}] = {value}" for index, value in enumerate(values)]
        return Snippet(("element",), tuple(lines))

    def _load_grad(self) -> Snippet:
        """Parameter element: the gradients of a vector of channels, into `part`."""
        names = [f"word{index}" for index in range(self.grad.words)]
        (text,) = self.grad.load("grad", "element")
        lines = [f"{', '.join(names)} = {text}"]
        values = self.grad.unpack(names, lines, "value")
        lines += [f"part[{index}] = {REGISTERS[self.p.dtype]}({value})" for index, value in enumerate(values)]
        return Snippet(("element",), tuple(lines))

    def _store(self) -> Snippet:
        """Parameters element, first: the sums of an element of the cell, for a vector of channels."""
        places = self._places()
        steps = [f"{places[name]} * {dim.x_step}" for name, dim in zip(_NAMES, self.p.dims, strict=True)]
        values = [f"total[element * {self.spec.vector} + {index}]" for index in range(self.spec.vector)]
        lines = [f"at = i64(first + {' + '.join(steps)})", *self.grad.store("x", "at", values)]
        return Snippet(("element", "first"), tuple(lines))
