"""Launches of depthwise convolutions: the template with its snippets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common import loop_nest
from aicf.backends.common.record import read_integer
from aicf.backends.cuda.codegen.scalar import point_snippet
from aicf.backends.cuda.codegen.vector_access import VectorAccess
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.conv.depthwise import template
from aicf.backends.cuda.families.conv.depthwise.problem import WindowDim, of_launch
from aicf.backends.cuda.families.conv.depthwise.schedule import NAMES, DepthwiseSpec, Vector, read_spec
from aicf.backends.cuda.families.conv.problem import FIRST_EXTRA, WEIGHT, X
from aicf.backends.cuda.families.gemm.problem import Access
from aicf.backends.cuda.families.records import read_rounding, read_shape
from aicf.backends.cuda.families.scatter.codegen import Constants, launched

_DIMS = ("deep", "row", "column")


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    problem = of_launch(launch)
    spec = read_spec(launch.record, {"channels": problem, "pixels": problem})
    operands = {"x": launch.ins[X], "weight": launch.ins[WEIGHT], **_named("e", launch.ins[FIRST_EXTRA:])}
    operands |= _named("y", launch.outs)
    made = _DepthwiseText(spec, _point(launch)).constants()
    found = launched(launch, read_shape(launch.record), template.depthwise, operands, made)
    blocks = read_integer(launch.record, "blocks_per_sm")
    return [replace(found, code=replace(found.code, blocks_per_sm=blocks))]


def _named(prefix: str, refs: Sequence[BufferRef]) -> dict[str, BufferRef]:
    return {f"{prefix}{number}": ref for number, ref in enumerate(refs)}


def _point(launch: Launch) -> Snippet | None:
    """What follows the sums at one point, every operand given as a value. It computes with no index, and is not told
    any."""
    if launch.code is None:
        return None
    values = len(launch.ins) - FIRST_EXTRA + 1
    found = point_snippet(launch.code, values, (), launch.outs, read_rounding(launch.record))
    return replace(found, params=found.params[:values])


class _DepthwiseText:
    """What the template is told of one convolution."""

    def __init__(self, spec: DepthwiseSpec, point: Snippet | None) -> None:
        self.spec, self.p, self.point = spec, spec.problem, point
        self.number = "i32" if spec.grid[0] * spec.threads < 1 << 31 else "i64"
        self.line, self.other = self.p.line, 3 - self.p.line
        self.shared = [
            number
            for number, access in enumerate(self.p.reads)
            if spec.pixels > 1 and access.strides[1 + self.line] == 0 and access.dtype != "f64"
        ]
        """What all pixels of a thread read, as a bias."""

    def constants(self) -> Constants:
        """All that the template asks for."""
        spec, dims = self.spec, self.p.dims
        deep, other, line = dims[0], dims[self.other], dims[self.line]
        points = {} if self.point is None else {"POINT": self.point}
        return {
            **template.PARTS,
            **points,
            "GROUPS": spec.groups,
            "VECTOR": spec.vector,
            "PIXELS": spec.pixels,
            "INPUTS": spec.inputs,
            "WORDS": spec.words,
            "TESTED": any(dim.is_padded for dim in dims),
            "DEEPS": deep.taps,
            "OTHERS": other.taps,
            "SEGMENTS": spec.segments,
            "EACH": asdict(spec.each),
            "REST": asdict(spec.rest),
            "DEEP_STEP": deep.dilation,
            "OTHER_STEP": other.dilation,
            "LINE_STEP": line.dilation,
            "WEIGHT_STEP": line.weight_stride,
            "UNROLLED": spec.is_unrolled,
            "GUARDED": line.count % spec.pixels != 0,
            "NOTHING": Snippet((), (), "u32(0)" if spec.is_packed else "f32(0)"),
            "NUMBER": self._number(),
            "PLACE": self._place(),
            "ALONG": Snippet(("row", "column"), (), f"({_DIMS[self.other]}, {_DIMS[self.line]})"),
            "PLANE": self._plane(),
            "DEEP": _along(deep),
            "OTHER": _along(other),
            "LINE": _along(line),
            "INSIDE": self._inside(),
            "WEIGHT": self._weight(),
            "LOAD_WEIGHT": self._load_weight(),
            "LOAD": self._load(),
            "UNPACK": self._unpack(),
            "HELD": len(self.shared) * spec.vector,
            "FETCH": self._fetch(),
            "FINISH": self._finish(),
        }

    # Who does what

    def _number(self) -> Snippet:
        """Parameter thread, in the block: its number."""
        block = f"{self.number}({self.number}(cuda.blockIdx.x) * {self.spec.threads})"
        return Snippet(("thread",), (), f"{self.number}({block} + {self.number}(thread))")

    def _place(self) -> Snippet:
        """Parameter number: the image, the first output, the first result, and along the line the first one that the
        thread stores. The last of a line start early enough to be whole ones: no window reaches further for them."""
        spec, sizes = self.spec, self.spec.sizes
        lines = ["rest = number"]
        outermost = next((name for name in reversed(NAMES) if sizes[name] > 1), NAMES[-1])
        for name in NAMES:
            if sizes[name] == 1:
                lines.append(f"{name} = i32(0)")
            elif name == outermost:
                lines.append(f"{name} = i32(rest)")
            else:
                lines += self._divided(name, sizes[name])
        name, last = _DIMS[self.line], self.p.dims[self.line].count - spec.pixels
        lines.append(f"own = i32({name} * {spec.pixels})")
        lines.append(f"{name} = i32(min(own, i32({last})))")
        lines.append(f"output = i32((far * {spec.near} + near) * {spec.vector})")
        return Snippet(("number",), tuple(lines), f"(image, output, {', '.join(_DIMS)}, own)")

    def _divided(self, name: str, size: int) -> list[str]:
        """Splits `rest`, which is not negative."""
        if self.number == "i64":
            return [f"{name} = i32(rest % {size})", f"rest = i64(rest // {size})"]
        pair = f"(u32(rest), u32({size}))"
        return [f"{name} = i32(remainder{pair})", f"rest = i32(quotient{pair})"]

    # Operand and weight

    def _plane(self) -> Snippet:
        """Parameters image, output: the first element of the channel that the output is made of."""
        (image, channel), times = self.p.x_planes, self.p.multiplier
        of = "output" if times == 1 else f"quotient(u32(output), u32({times}))"
        return Snippet(("image", "output"), (), f"i64(image) * {image} + i64({of}) * {channel}")

    def _inside(self) -> Snippet:
        """Parameters deep, other, line: whether the coordinates along all dimensions are those of the operand."""
        dims = {"deep": 0, "other": self.other, "line": self.line}
        tested = [name for name, number in dims.items() if self.p.dims[number].is_padded]
        return Snippet(tuple(dims), (), " & ".join(tested) or "True")

    def _load(self) -> Snippet:
        """Parameters place, element: the channels of a place into the registers `words`."""
        access = _accessed(self.spec.x_access)
        names = [f"word{index}" for index in range(access.words)]
        (text,) = access.load("x", "element")
        lines = [f"{', '.join(names)} = {text}"]
        values = names if self.spec.is_packed else access.unpack(names, lines, "value")
        lines += [f"words[place * {len(values)} + {index}] = {value}" for index, value in enumerate(values)]
        return Snippet(("place", "element"), tuple(lines))

    def _unpack(self) -> Snippet:
        """Parameter place: its channels into the registers `values`."""
        count = self.spec.words
        own = [f"words[place * {count} + {index}]" for index in range(count)]
        if not self.spec.is_packed:
            return Snippet(("place",), tuple(f"values[{index}] = {word}" for index, word in enumerate(own)))
        lines = [
            f"values[{2 * index}], values[{2 * index + 1}] = unpack_{self.p.dtype}({word})"
            for index, word in enumerate(own)
        ]
        return Snippet(("place",), tuple(lines))

    def _weight(self) -> Snippet:
        """Parameters output, deep, other, line: the element of a tap."""
        dims = (("deep", 0), ("other", self.other), ("line", self.line))
        steps = [f"i64({name}) * {self.p.dims[number].weight_stride}" for name, number in dims]
        params = ("output", *(name for name, _ in dims))
        return Snippet(params, (), f"i64({' + '.join([f'i64(output) * {self.p.weight_step}', *steps])})")

    def _load_weight(self) -> Snippet:
        """Parameters tap, element: the weights of a tap into the registers `factors`."""
        lines: list[str] = []
        values = _loaded(_accessed(self.spec.weight_access), "weight", lines, "w")
        count = self.spec.vector
        lines += [f"factors[tap * {count} + {index}] = {value}" for index, value in enumerate(values)]
        return Snippet(("tap", "element"), tuple(lines))

    # What follows the sums

    def _fetch(self) -> Snippet:
        """Parameters image, output and those of the first result: what all pixels share into the registers `held`."""
        spec, lines = self.spec, list[str]()
        for place, number in enumerate(self.shared):
            values = self._read(number, "0", lines)
            lines += [f"held[{place * spec.vector + lane}] = {value}" for lane, value in enumerate(values)]
        return Snippet(("image", "output", *_DIMS), tuple(lines))

    def _read(self, number: int, pixel: str, lines: list[str]) -> list[str]:
        """The values of an operand of the epilogue; adds the statements that load them."""
        access = self.p.reads[number]
        lines.append(f"element = {self._element(access, pixel)}")
        return _loaded(_accessed(self.spec.end_access(access)), f"e{number}", lines, f"e{number}_")

    def _finish(self) -> Snippet:
        """Parameters pixel, image, output and those of the first result: computes and stores one pixel of a thread. All
        is read before anything is stored: a result may lie on an operand."""
        spec, lines = self.spec, list[str]()
        extras: list[list[str]] = []
        for number in range(len(self.p.reads)):
            if number in self.shared:
                first = self.shared.index(number) * spec.vector
                extras.append([f"held[{first + lane}]" for lane in range(spec.vector)])
            else:
                extras.append(self._read(number, "pixel", lines))
        results = [
            self._computed(lane, [values[lane] for values in extras], lines) for lane in range(spec.vector)
        ]
        for number, access in enumerate(self.p.writes):
            lines.append(f"element = {self._element(access, 'pixel')}")
            values = [lane[number] for lane in results]
            lines += _accessed(spec.end_access(access)).store(f"y{number}", "element", values)
        return Snippet(("pixel", "image", "output", *_DIMS), tuple(lines))

    def _computed(self, lane: int, extras: Sequence[str], lines: list[str]) -> list[str]:
        """The results of one sum; adds the statements that it takes."""
        total = f"sums[pixel * {self.spec.vector} + {lane}]"
        if self.point is None:
            return [total] * len(self.p.writes)
        names = [f"r{number}_{lane}" for number in range(len(self.p.writes))]
        lines.append(f"{', '.join(names)} = splice(POINT, {', '.join([total, *extras])})")
        return names

    def _element(self, access: Access, pixel: str) -> str:
        """Of the first output of a pixel of the thread."""
        image, *pixels, output = access.strides
        names = ("image", *_DIMS, "output")
        terms = [
            f"i64({name}) * {step}"
            for name, step in zip(names, (image, *pixels, output), strict=True)
            if step
        ]
        step = pixels[self.line]
        terms += [f"{pixel} * {step}"] if step else []
        terms += [str(access.offset)] if access.offset else []
        return f"i64({' + '.join(terms) or '0'})"


def _along(dim: WindowDim) -> Snippet:
    """Parameters result, place: where the element at a place of a result's window lies along a dimension, and whether
    it is one of the operand; some one that is if it is not."""
    params = ("result", "place")
    if not dim.is_padded:
        first = -dim.low * dim.x_stride  # of no zeros, or of fewer than none: the operand is cut off
        at = f"i64(result) * {dim.stride * dim.x_stride} + i64(place) * {dim.x_stride} + {first}"
        return Snippet(params, (), f"(i64({at}), True)")
    lines = (
        f"coordinate = i32(result * {dim.stride} + place - {dim.low})",
        f"near = i32(min(max(coordinate, i32(0)), i32({dim.whole - 1})))",
    )
    return Snippet(params, lines, f"(i64(near) * {dim.x_stride}, coordinate == near)")


def _accessed(vector: Vector) -> VectorAccess:
    """How a vector is moved, as text."""
    return VectorAccess(loop_nest.Access(vector.dtype, 0, ()), vector.count, vector.step, vector.piece)


def _loaded(access: VectorAccess, base: str, lines: list[str], prefix: str) -> list[str]:
    """The values of a vector that starts at `element`; adds the statements that load it."""
    words: list[str] = []
    each = access.words // access.pieces
    for number, text in enumerate(access.load(base, "element")):
        own = [f"{prefix}word{number}_{index}" for index in range(each)]
        lines.append(f"{', '.join(own)} = {text}")
        words += own
    return access.unpack(words, lines, prefix)
