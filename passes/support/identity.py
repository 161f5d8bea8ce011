"""Identity of ops across rewrites: ids, sources and locations.

An op's ``aicf.id`` is unique in the module; ``aicf.src`` is the set of original ids it stands for. A rewrite
says what becomes of both through the functions here and never copies attributes by hand, so that ledger,
policy and ``explain`` can follow a value from the source to the instruction. Ops of a program without ids
(before ``assign-ids``) just get none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, FileLineColLoc, FusedLoc, NameLoc, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint
from xdsl.utils.hints import isa

from aicf.dialects.logical import ID_ATTR, SRC_ATTR
from aicf.errors import InvalidIR

_PART = "@batch"
_PART_NUMBER = re.compile(rf"{_PART}(\d+)")


def op_id(op: Operation) -> str | None:
    """The op's id, None before ``assign-ids``."""
    attr = op.attributes.get(ID_ATTR)
    return attr.data if isinstance(attr, StringAttr) else None


def sources(op: Operation) -> tuple[str, ...]:
    """The original ids the op stands for, in order of first mention; empty before ``assign-ids``."""
    attr = op.attributes.get(SRC_ATTR)
    if not isinstance(attr, ArrayAttr):
        return ()
    # `isa` on the element type costs more than all the rest of a rewrite.
    entries = cast("ArrayAttr[Attribute]", attr)
    return tuple(source.data for source in entries if isinstance(source, StringAttr))


def set_identity(op: Operation, identity: str | None, src: Iterable[str]) -> None:
    """Give an op an id and the sources it stands for; None and an empty set leave the attribute out."""
    op.attributes.pop(ID_ATTR, None)
    op.attributes.pop(SRC_ATTR, None)
    if identity is not None:
        op.attributes[ID_ATTR] = StringAttr(identity)
    unique = tuple(dict.fromkeys(src))
    if unique:
        op.attributes[SRC_ATTR] = ArrayAttr(StringAttr(source) for source in unique)


def merge_sources(into: Operation, *others: Operation) -> None:
    """Let an op stand for others too, which it computes from now on."""
    joined = [*sources(into), *(source for other in others for source in sources(other))]
    set_identity(into, op_id(into), joined)


def value_hint(identity: str) -> str | None:
    """The SSA name that shows an id in the text, None where the id is no SSA name."""
    name = identity.split("@", 1)[0]
    return name if SSAValue.is_valid_name(name) else None


def unused(stem: str, taken: set[str], before_number: str = ".", end: str = "") -> str:
    """`stem` and `end`, with a number between them where that is `taken`; adds it to `taken`."""
    name, number = f"{stem}{end}", 0
    while name in taken:
        number += 1
        name = f"{stem}{before_number}{number}{end}"
    taken.add(name)
    return name


class IdTable:
    """The ids in use in a module, or in some ops of one, and new ones that are not."""

    def __init__(self, *roots: Operation) -> None:
        walked = (op for root in roots for op in root.walk())
        self._used = {identity for op in walked if (identity := op_id(op)) is not None}
        self._next: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """``wanted`` itself, or where it is taken ``wanted_1``, ``wanted_2`` and so on, in order of asking."""
        candidate = wanted
        while candidate in self._used:
            self._next[wanted] = self._next.get(wanted, 0) + 1
            candidate = f"{wanted}_{self._next[wanted]}"
        self._used.add(candidate)
        return candidate


def replace_with_op(rewriter: PatternRewriter, old: Operation, new: Operation, *absorbed: Operation) -> None:
    """Put one op in the place of another: it takes the id, the location, and the sources of it and of ``absorbed``."""
    set_identity(new, op_id(old), sources(old))
    merge_sources(new, *absorbed)
    new.location = old.location
    rewriter.replace(old, new)


def replace_with_value(rewriter: PatternRewriter, old: Operation, value: SSAValue) -> None:
    """Replace an op by a value that exists; the op that defines it stands for both from now on."""
    if isinstance(value.owner, Operation) and sources(value.owner):
        merge_sources(value.owner, old)
    rewriter.replace(old, [], [value])


class Expansion:
    """Inserts the ops that one op expands into before that op, and then erases the op.

    The op called ``fc1`` expands into ops called ``fc1.<suffix>``, each with its sources and its location.
    """

    def __init__(self, rewriter: PatternRewriter, op: Operation, ids: IdTable) -> None:
        self._rewriter = rewriter
        self._op = op
        self._ids = ids

    def add(self, new: Operation, suffix: str) -> SSAValue:
        """Insert an op with one result; ``suffix`` "" gives it the id of the expanded op itself."""
        identity = op_id(self._op)
        if identity is not None:
            if suffix:
                identity = self._ids.fresh(derived_id(identity, suffix))
            new.attributes[ID_ATTR] = StringAttr(identity)
            new.results[0].name_hint = value_hint(identity)
        if (src := self._op.attributes.get(SRC_ATTR)) is not None:
            new.attributes[SRC_ATTR] = src
        new.location = self._op.location
        self._rewriter.insert(new, InsertPoint.before(self._op))
        return new.results[0]

    def finish(self, results: Sequence[SSAValue]) -> None:
        """Replace the expanded op's results and erase it."""
        self._rewriter.replace(self._op, [], results)


def name_after(new: Operation, op: Operation, suffix: str, ids: IdTable) -> None:
    """Call an op that is written for another one ``<id>.<suffix>``; it gets that one's sources and location."""
    identity = op_id(op)
    if identity is not None:
        identity = ids.fresh(derived_id(identity, suffix))
        new.results[0].name_hint = value_hint(identity)
    set_identity(new, identity, sources(op))
    new.location = op.location


def derived_id(identity: str, suffix: str) -> str:
    """``fc1`` and ``matmul`` to ``fc1.matmul``; the bucket stays last: ``fc1@N=32`` gives ``fc1.matmul@N=32``."""
    stem, at, bucket = identity.partition("@")
    return f"{stem}.{suffix}{at}{bucket}"


def copied_id(identity: str, reader: str) -> str:
    """The id of the copy of an op that one of its readers gets for itself."""
    return derived_id(identity, reader.partition("@")[0])


def part_id(identity: str, part: int) -> str:
    """The id of the copy of an op that micro-batch ``part`` of a training step has: ``fc1@batch2``."""
    return f"{identity}{_PART}{part}"


def part_of(identity: str) -> str | None:
    """The micro-batch of an op of this id; None for what is of none of them, or of all."""
    found = _PART_NUMBER.search(identity)
    return None if found is None else found.group(1)


def position_of(op: Operation) -> str | None:
    """``file:line:col`` of an op, or of the nearest op around it that has one."""
    current: Operation | None = op
    while current is not None:
        if (position := _position(current.location)) is not None:
            return position
        current = current.parent_op()
    return None


def _position(location: Attribute) -> str | None:
    if isinstance(location, FileLineColLoc):
        return f"{location.filename.data}:{location.line.data}:{location.column.data}"
    if isinstance(location, NameLoc):
        return _position(location.location)
    if isinstance(location, FusedLoc) and isa(location.locations, ArrayAttr[Attribute]):
        return next((position for part in location.locations if (position := _position(part))), None)
    return None


def invalid(op: Operation, message: str) -> InvalidIR:
    """The error that an op breaks a rule: says which op, by name and id, and where it is in the source."""
    identity = op_id(op)
    subject = op.name if identity is None else f'{op.name} "{identity}"'
    return InvalidIR(f"{subject}: {message}", location=position_of(op))


def invalid_function(function: FuncOp, message: str) -> InvalidIR:
    """The error that a function breaks a rule: says which one, and where it is in the source."""
    return InvalidIR(f"@{function.sym_name.data}: {message}", location=position_of(function))
