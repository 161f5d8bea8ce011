"""Patterns of bodies: what a body computes, one line an op, found whatever the order of its ops in the text.

A line is an op and its operands: `$number` an argument of the body, the name of another line, a number or `c` for a
splat constant of that value or of any. `name = ` before the op names the line; else it is `%` and its number. `^` after
an operand allows a broadcast, and needs none where the sizes do not ask for one. Operands come in the order that is
written here: to commute them is another pattern. The last line is the result, unless several are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit_kernels import YieldOp
from aicf.passes.bodies.view_folding import yielded

ANY = "c"
"""Stands for any splat constant."""

_COMPARE = "compare_"


@dataclass(frozen=True)
class Line:
    """One op of a pattern: its name, the word of its op, and what its operands are."""

    name: str
    word: str
    operands: tuple[str, ...]

    @property
    def predicate(self) -> str | None:
        """Of a comparison; None of other ops."""
        return self.word.removeprefix(_COMPARE) if self.word.startswith(_COMPARE) else None


@dataclass(frozen=True)
class Pattern:
    """What a body computes: its ops, and which of them it gives."""

    lines: tuple[Line, ...]
    results: tuple[str, ...]

    @classmethod
    def of(cls, *lines: str, results: str = "") -> Pattern:
        """A pattern from its text; `results` names lines."""
        parsed = tuple(_line(number, text) for number, text in enumerate(lines))
        return cls(parsed, tuple(results.split()) or (parsed[-1].name,))

    @property
    def words(self) -> tuple[str, ...]:
        """Its ops in the order of the alphabet: bodies with others do not match."""
        return tuple(sorted(line.word for line in self.lines))


def _line(number: int, text: str) -> Line:
    name, _, rest = text.rpartition(" = ")
    word, *operands = rest.split()
    return Line(name or f"%{number}", word, tuple(operands))


@dataclass(frozen=True)
class Match:
    """The op of each line of a pattern that a body matches."""

    found: Mapping[str, Operation]
    ops: tuple[Operation, ...]
    """In the order of the lines."""

    def __getitem__(self, name: str) -> Operation:
        return self.found[name]


def counted_ops(block: Block) -> list[Operation]:
    """The ops of a body that patterns have lines for: all but constants and broadcasts."""
    others = YieldOp | logical.ConstantOp | logical.BroadcastOp
    return [op for op in block.ops if not isinstance(op, others)]


def words_of(ops: Sequence[Operation]) -> tuple[str, ...]:
    """What `Pattern.words` is for a body with these ops."""
    return tuple(sorted(_word(op) for op in ops))


def _word(op: Operation) -> str:
    if isinstance(op, logical.CompareOp):
        return f"{_COMPARE}{op.predicate.data}"
    return op.name.removeprefix("logical.")


def match(pattern: Pattern, block: Block) -> Match | None:
    """Which op of a body is which line of a pattern with the same words; None if it computes something else."""
    results = yielded(block)
    if len(results) != len(pattern.results):
        return None
    matcher = _Matcher({line.name: line for line in pattern.lines}, {})
    if not all(matcher.is_operand(name, value) for name, value in zip(pattern.results, results, strict=True)):
        return None
    found = matcher.found
    if len(set(found.values())) < len(pattern.lines):
        return None
    return Match(found, tuple(found[line.name] for line in pattern.lines))


@dataclass
class _Matcher:
    lines: Mapping[str, Line]
    found: dict[str, Operation]

    def is_operand(self, token: str, value: SSAValue) -> bool:
        """Whether a value is what a line says of its operand; notes the ops that it is computed by."""
        name = token.removesuffix("^")
        is_line = name in self.lines
        if isinstance(value.owner, logical.BroadcastOp) and (
            name != token or not (is_line or name[0] == "$")
        ):
            value = value.owner.operand
        if is_line:
            return isinstance(value, OpResult) and self._is_line(self.lines[name], value.op)
        if name.startswith("$"):
            return isinstance(value, BlockArgument) and value.index == int(name[1:])
        return _is_splat(value, name)

    def _is_line(self, line: Line, op: Operation) -> bool:
        if line.name in self.found:
            return self.found[line.name] is op
        if _word(op) != line.word or len(op.operands) != len(line.operands):
            return False
        self.found[line.name] = op
        return all(self.is_operand(*pair) for pair in zip(line.operands, op.operands, strict=True))


def _is_splat(value: SSAValue, token: str) -> bool:
    """Whether a value is a splat constant, of the number that the token says."""
    if not isinstance(value.owner, logical.ConstantOp) or not value.owner.is_splat:
        return False
    array = value.owner.array
    if token == ANY:
        return True
    wanted, given = float(token), float(array.item())
    return isnan(given) if isnan(wanted) else given == float(array.dtype.type(wanted))
