"""Text of `emit.load`: elements at computed indices, in 16-byte pieces where lanes lie side by side, else one by one.

A guarded load is a branch: where its condition does not hold memory is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from xdsl.ir import BlockArgument, SSAValue

from aicf.backends.common.lanes import LaneSteps
from aicf.backends.common.loop_nest import LoopNest
from aicf.backends.cuda.codegen.vector_access import VectorAccess, load_one
from aicf.backends.cuda.target import ELEMENT_BYTES, PIECE_BYTES
from aicf.dialects.emit_kernels import LoadOp, memory_of

NamesOf = Callable[[SSAValue], Sequence[str]]
"""The names of a value, one for each lane."""


class LoadText:
    """Statements for the loads of one kernel.

    Args:
        nest: The kernel.
        steps: How its values change from lane to lane of a vector.
        offsets: Elements from an aligned address to the start of each operand.
    """

    def __init__(self, nest: LoopNest, steps: LaneSteps, offsets: Sequence[int]):
        self.nest = nest
        self.steps = steps
        self.offsets = offsets

    def emit(self, op: LoadOp, names: NamesOf, lanes: int, prefix: str, lines: list[str]) -> list[str]:
        """Names of the elements in all lanes; `names` gives those of the operands."""
        step = self.steps.load_step(op)
        even = op.condition is None or self.steps.step(op.condition) == 0
        if lanes == 1 or (step == 0 and even):
            return self._one(op, names, 0, prefix, lines) * lanes
        if step == 1 and even:
            return self._side_by_side(op, names, lanes, prefix, lines)
        return [self._one(op, names, lane, f"{prefix}{lane}_", lines)[0] for lane in range(lanes)]

    def _number(self, op: LoadOp) -> int:
        assert isinstance(op.memory, BlockArgument)
        return op.memory.index

    def _element(self, op: LoadOp, names: NamesOf, lane: int) -> str:
        """The element in memory that a lane loads."""
        strides = self.nest.memory_strides(op)
        shape = memory_of(op.memory.type).get_shape()
        reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        type_ = "i32" if reach < 1 << 31 else "i64"
        terms = [
            f"{type_}({names(index)[lane]}) * {stride}"
            for index, stride in zip(op.indices, strides, strict=True)
            if stride
        ]
        return f"{type_}({' + '.join(terms) or '0'})"

    def _one(self, op: LoadOp, names: NamesOf, lane: int, prefix: str, lines: list[str]) -> list[str]:
        number = self._number(op)
        text = load_one(self.nest.accesses[number].dtype, f"a{number}", self._element(op, names, lane))
        return _guarded(op, names, [lane], [f"{prefix}g = {text}"], [f"{prefix}g"], prefix, lines)

    def _side_by_side(
        self, op: LoadOp, names: NamesOf, lanes: int, prefix: str, lines: list[str]
    ) -> list[str]:
        number = self._number(op)
        access = self.nest.accesses[number]
        piece = min(lanes, PIECE_BYTES // ELEMENT_BYTES[access.dtype])
        aligned = gcd(self.steps.load_multiple(op), self.offsets[number])
        while aligned % piece:
            piece //= 2
        wide = VectorAccess(access, lanes, 1, piece)
        inner: list[str] = []
        words: list[str] = []
        each = wide.words // wide.pieces
        for index, text in enumerate(wide.load(f"a{number}", self._element(op, names, 0))):
            own = [f"{prefix}w{index}_{i}" for i in range(each)]
            inner.append(f"{', '.join(own)} = {text}")
            words += own
        values = wide.unpack(words, inner, f"{prefix}u")
        return _guarded(op, names, range(lanes), inner, values, prefix, lines)


def _guarded(
    op: LoadOp,
    names: NamesOf,
    lanes: Sequence[int],
    loading: Sequence[str],
    values: Sequence[str],
    prefix: str,
    lines: list[str],
) -> list[str]:
    """Adds `loading`, which makes `values`, under the condition of the load, if it has one."""
    made = [f"{prefix}v{lane}" for lane in lanes]
    if op.condition is None or op.otherwise is None:
        lines += [*loading, *(f"{name} = {value}" for name, value in zip(made, values, strict=True))]
        return made
    otherwise = names(op.otherwise)
    lines += [f"{name} = {otherwise[lane]}" for name, lane in zip(made, lanes, strict=True)]
    taken = [*loading, *(f"{name} = {value}" for name, value in zip(made, values, strict=True))]
    lines += [f"if {names(op.condition)[lanes[0]]}:", *(f"    {line}" for line in taken)]
    return made
