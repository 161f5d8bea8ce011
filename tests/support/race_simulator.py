"""Whether a placed emit program can go wrong when nothing but its edges orders it, byte by byte.

Nothing is in the arena, in outputs and in what `@prepare` makes until an instruction writes its result there; what was
workspace holds nothing afterwards.

Written from the contract of the edges, and from nothing that the passes use to check it: a full edge puts the end of
its source before the start of its target, a programmatic edge puts it before the wait of its target, and what a kernel
touches before its wait (`early_reads`), or all it touches if it has no wait, is ordered by its start alone. Accesses
are exact sets of bytes, so nothing is refused here because two ranges meet that share no byte.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr
from xdsl.ir import Operation, SSAValue

from aicf.dialects.emit import PREPARE, BindOp, ProgramOp, ResolvedOp, SlotOp, ViewOp, buffer_of
from aicf.dialects.emit_types import i64_pairs

ARENA = "arena"


@dataclass(frozen=True)
class Race:
    """Why a program is wrong: `kind` (unordered, clobbered, unwritten, overlap, deadlock), and where."""

    kind: str
    where: str


@dataclass(frozen=True)
class _Touch:
    """One operand of one instruction.

    Args:
        position: Of the instruction in the text.
        root: Its bind or slot.
        space: Two touches can meet only in one space: the arena, or one bind.
        bytes: Bit i is set if byte i of the space is touched.
        before: Instructions that have ended when it happens, as bits.
        writes: Whether it changes the bytes.
        defines: Whether they hold a value then; as workspace they do not.
    """

    position: int
    root: Operation
    space: object
    bytes: int
    before: int
    writes: bool
    defines: bool


def find_race(program: ProgramOp) -> Race | None:
    """The first way in which a replay of `program`, with all slots placed, could read or leave wrong bytes."""
    empty = [bind for bind in program.binds if _starts_empty(bind, program)]
    instructions = program.instructions
    order = _Order(instructions)
    if order.is_cyclic:
        return Race("deadlock", "instructions wait for each other")
    touches = [touch for position in range(len(instructions)) for touch in order.touches(position)]
    names = [op.instruction.data for op in instructions]
    return (
        _inside_instructions(instructions)
        or _unordered(touches, names)
        or _wrong_reads(touches, names, order.ranks(), {ARENA, *empty})
        or _left_empty(touches, order.ranks(), empty)
    )


def _starts_empty(bind: BindOp, program: ProgramOp) -> bool:
    is_prepared = bind.role.data == "derived" and program.sym_name.data == PREPARE
    return bind.role.data == "output" or is_prepared


# Order


class _Order:
    """When each instruction starts, waits and ends, relative to the ends of the others."""

    def __init__(self, instructions: Iterable[ResolvedOp]) -> None:
        self.instructions = tuple(instructions)
        numbers = {op.instruction.data: position for position, op in enumerate(self.instructions)}
        self.edges = [
            [(numbers[edge.source.data], edge.kind.data) for edge in op.after if edge.source.data in numbers]
            for op in self.instructions
        ]
        self.early = [_early_reads(op) for op in self.instructions]
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.is_cyclic = not all(self._visit(position, set()) for position in range(len(self.instructions)))

    def _visit(self, position: int, path: set[int]) -> bool:
        """Fills in `position` and what it waits for; false if it waits for itself."""
        if position in path:
            return False
        if position in self.starts:
            return True
        starts = waits = 0
        for source, kind in self.edges[position]:
            if not self._visit(source, path | {position}):
                return False
            ended = self.ends[source] | 1 << source
            waits |= ended
            starts |= ended if kind == "full" else 0
        self.starts[position] = starts
        self.ends[position] = starts if self.early[position] is None else waits
        return True

    def touches(self, position: int) -> Iterator[_Touch]:
        """All operands of an instruction."""
        op, early = self.instructions[position], self.early[position] or ()
        operands = [
            *((value, False, False, number in early) for number, value in enumerate(op.ins)),
            *((value, True, True, False) for value in op.outs),
            *((value, True, False, False) for value in op.ws),
        ]
        for value, writes, defines, is_early in operands:
            root, space, first, addresses = _addresses(value)
            before = self.starts[position] if is_early else self.ends[position]
            yield _Touch(position, root, space, _bits(*addresses) << first, before, writes, defines)

    def ranks(self) -> list[int]:
        """A number for each instruction that is larger than those of all that end before it."""
        return [self.ends[position].bit_count() for position in range(len(self.instructions))]


def _early_reads(op: ResolvedOp) -> tuple[int, ...] | None:
    """The operands that the kernel of `op` reads before it waits; None if it has no wait."""
    entry = None if op.kernel is None else op.kernel.record.data.get("early_reads")
    if not isinstance(entry, ArrayAttr):
        return None
    return tuple(number.value.data for number in entry if isinstance(number, IntegerAttr))


# Bytes

_Form = tuple[tuple[int, ...], tuple[int, ...], int, int]
"""Sizes, strides in elements, bytes of an element, and bytes from the lowest to the first element."""


def _addresses(value: SSAValue) -> tuple[Operation, object, int, _Form]:
    """Root and space of a buffer, the byte of the space where its lowest element starts, and how it goes on."""
    type_ = buffer_of(value)
    elements = 0
    while isinstance(view := value.owner, ViewOp):
        elements += view.offset.value.data
        value = view.source
    root = value.owner
    assert isinstance(root, BindOp | SlotOp)
    start = 0
    if isinstance(root, SlotOp):
        assert root.offset is not None
        start = root.offset.value.data
    if type_.get_layout() is not None:
        form: _Form = ((type_.span_bytes,), (1,), 1, 0)
    else:
        shape, strides, size = type_.get_shape(), type_.get_strides(), type_.element_bytes
        down = sum(min(0, (count - 1) * step) for count, step in zip(shape, strides, strict=True))
        form = (shape, strides, size, -down * size)
    return root, ARENA if isinstance(root, SlotOp) else root, start + elements * form[2] - form[3], form


@cache
def _walk(shape: tuple[int, ...], strides: tuple[int, ...], size: int, first: int) -> NDArray[np.int64]:
    """The first byte of each element, in logical order, from the lowest element's first byte."""
    walk = np.full((), first, np.int64)
    for count, step in zip(shape, strides, strict=True):
        walk = np.add.outer(walk, np.arange(count) * step * size)
    return walk.reshape(-1)


@cache
def _bits(shape: tuple[int, ...], strides: tuple[int, ...], size: int, first: int) -> int:
    """The bytes of a buffer from its lowest element on, as bits."""
    walk = _walk(shape, strides, size, first)
    if not walk.size:
        return 0
    touched = np.zeros(int(walk.max()) + size, np.bool_)
    touched[np.add.outer(walk, np.arange(size))] = True
    return int.from_bytes(np.packbits(touched, bitorder="little").tobytes(), "little")


# What goes wrong


def _inside_instructions(instructions: Iterable[ResolvedOp]) -> Race | None:
    """Threads of one kernel are not ordered: it may write what it reads only element by element and by permission."""
    for op in instructions:
        accesses = {value: _addresses(value) for value in (*op.ins, *op.outs, *op.ws)}
        permitted = i64_pairs(op.constraints.data.get("may_alias")) or ()
        written = [*op.outs, *op.ws]
        for number, out in enumerate(written):
            others = [(written[other], None) for other in range(number)]
            others += [(value, (number, position)) for position, value in enumerate(op.ins)]
            for other, pair in others:
                if _meet(accesses[out], accesses[other]) and not (
                    pair in permitted and number < len(op.outs) and _same_walk(accesses[out], accesses[other])
                ):
                    return Race("overlap", op.instruction.data)
    return None


_Access = tuple[Operation, object, int, _Form]


def _meet(one: _Access, other: _Access) -> bool:
    return one[1] == other[1] and bool(_bits(*one[3]) << one[2] & _bits(*other[3]) << other[2])


def _same_walk(one: _Access, other: _Access) -> bool:
    mine, theirs = _walk(*one[3]) + one[2], _walk(*other[3]) + other[2]
    return np.array_equal(mine, theirs) and one[3][2] == other[3][2]


def _unordered(touches: list[_Touch], names: list[str]) -> Race | None:
    """Two accesses to one byte, one of them a write, of which neither instruction has ended before the other's."""
    for number, one in enumerate(touches):
        for other in touches[:number]:
            if not (one.writes or other.writes) or one.space != other.space or one.position == other.position:
                continue
            if one.before >> other.position & 1 or other.before >> one.position & 1:
                continue
            if one.bytes & other.bytes:
                return Race("unordered", f"{names[other.position]}, {names[one.position]}")
    return None


def _wrong_reads(
    touches: list[_Touch], names: list[str], ranks: list[int], empty: Collection[object]
) -> Race | None:
    """A read of what is empty at first whose bytes were last written through another slot, or by nobody."""
    inside = [touch for touch in touches if touch.space in empty]
    writes = sorted(
        (touch for touch in inside if touch.writes), key=lambda touch: ranks[touch.position], reverse=True
    )
    for read in inside:
        left = 0 if read.writes else read.bytes
        for write in writes:
            if not left:
                break
            if write.space == read.space and read.before >> write.position & 1 and left & write.bytes:
                if not write.defines:
                    return Race(
                        "unwritten", f"{names[read.position]} finds workspace of {names[write.position]}"
                    )
                if write.root is not read.root:
                    return Race(
                        "clobbered", f"{names[read.position]} finds what {names[write.position]} wrote"
                    )
                left &= ~write.bytes
        if left:
            return Race("unwritten", names[read.position])
    return None


def _left_empty(touches: list[_Touch], ranks: list[int], empty: Iterable[BindOp]) -> Race | None:
    """A result of the program with bytes that nothing writes, or that are workspace at last."""
    writes = sorted((touch for touch in touches if touch.writes), key=lambda touch: -ranks[touch.position])
    for bind in empty:
        _, _, first, form = _addresses(bind.buffer)
        left = _bits(*form) << first
        for write in writes:
            if write.space is bind and left & write.bytes:
                if not write.defines:
                    break
                left &= ~write.bytes
        if left:
            return Race("unwritten", bind.bind_name.data)
    return None
