"""Writing the body of one instruction: what it is asked to be, its ops one after the other, and patterns as ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Region, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import BodyOp, YieldOp
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.bodies.kind_patterns import Attrs
from aicf.passes.bodies.patterns import Line, Pattern
from aicf.passes.logical.lowerings import lowerings
from aicf.passes.support.greedy import apply_patterns
from aicf.passes.support.identity import IdTable, derived_id, set_identity, unused, value_hint
from aicf.passes.support.writing import Writer


class NoBody(Exception):
    """The kind and attributes do not say what the instruction means; the message says why."""


@dataclass(frozen=True)
class Request:
    """An instruction that needs a body.

    Args:
        name: Unique in the module; ids of the body's ops start with it.
        src: The source ops it stands for.
        kind, attrs: As it states them; the attributes fit a schema of the kind.
        operands, results: Tensor types of what it reads and defines, in order.
    """

    name: str
    src: tuple[str, ...]
    kind: str
    attrs: Attrs
    operands: tuple[Attribute, ...]
    results: tuple[Attribute, ...]


class BodyWriter(Writer):
    """Writes the ops of one body."""

    def __init__(self, request: Request):
        self.request = request
        self.block = Block(arg_types=request.operands)
        self._taken: set[str] = set()

    @property
    def args(self) -> Sequence[SSAValue]:
        """What the instruction reads."""
        return self.block.args

    def add(self, op: LogicalOp, suffix: str = "") -> SSAValue:
        """Appends an op called after the instruction and `suffix`."""
        wanted = derived_id(self.request.name, suffix) if suffix else self.request.name
        identity = unused(wanted, self._taken)
        set_identity(op, identity, self.request.src)
        op.results[0].name_hint = value_hint(identity)
        self.block.add_op(op)
        return op.results[0]

    # What the instruction says

    def integer(self, name: str) -> int:
        """An integer or bool attribute."""
        value = self.request.attrs[name]
        assert isinstance(value, IntegerAttr)
        return value.value.data

    def number(self, name: str) -> float:
        """A float attribute."""
        value = self.request.attrs[name]
        assert isinstance(value, FloatAttr)
        return value.value.data

    def text(self, name: str) -> str:
        """A string attribute."""
        value = self.request.attrs[name]
        assert isinstance(value, StringAttr)
        return value.data

    def axis(self, name: str = "axis", of: int = 0) -> int:
        """An attribute that is an axis of an operand."""
        axis, rank = self.integer(name), tensor_info(self.args[of].type).rank
        if not 0 <= axis < rank:
            raise NoBody(f"{name} is {axis}, operand {of} has axes 0 to {rank - 1}")
        return axis

    # Formulas

    def spread_row(self, row: SSAValue, like: SSAValue, part: str) -> SSAValue:
        """A value of rank 1 repeated along the last dim of `like`."""
        info = tensor_info(like.type)
        return self.add(logical.BroadcastOp(row, [info.rank - 1], info.sizes), part)

    def spread(self, value: SSAValue, dims: Sequence[int], like: SSAValue, part: str) -> SSAValue:
        """A value of the dims `dims` of `like`, repeated over the others."""
        return self.broadcast(value, dims, tensor_info(like.type).sizes, f"{part}.broadcast")

    def total(self, value: SSAValue, axes: Sequence[int], part: str, *, keepdims: bool = False) -> SSAValue:
        """The sum along axes."""
        return self.add(logical.ReduceSumOp(value, axes, keepdims=keepdims), part)

    def mean(self, total: SSAValue, count: int, part: str) -> SSAValue:
        """A sum over the number of its terms."""
        return self.apply(logical.DivOp, total, float(count), name=part)

    def write(self, pattern: Pattern, **known: SSAValue) -> SSAValue:
        """The ops of a pattern of elementwise ops without broadcasts; those in `known` are there."""
        values = {f"${index}": value for index, value in enumerate(self.args)} | known
        lines = [line for line in pattern.lines if line.name not in known]
        for line in lines:
            like = next(values[token] for token in reversed(line.operands) if token in values)
            operands = [
                values[token] if token in values else self.splat(_number(token, like), like, "constant")
                for token in line.operands
            ]
            values[line.name] = self.add(_op_of(line, operands), "" if line is lines[-1] else line.word)
        return values[pattern.results[0]]

    def finish(self, values: Sequence[SSAValue]) -> Block:
        """Yields `values` and lowers composite ops."""
        self.block.add_op(YieldOp(values))
        body = BodyOp("body", Region(self.block))
        module = ModuleOp([body])
        apply_patterns(module, lowerings(IdTable(module)))
        return body.body.detach_block(self.block)


def _number(token: str, like: SSAValue) -> float:
    """The number of a constant of the type of `like`."""
    return float(token) if element_of(like.type).is_float else int(token)


def _op_of(line: Line, operands: Sequence[SSAValue]) -> LogicalOp:
    """The op of a line of a pattern."""
    if line.predicate is not None:
        predicates = logical.PREDICATES
        return logical.CompareOp(predicates[predicates.index(line.predicate)], *operands)
    return _CLASSES[line.word](*operands)


@dataclass(frozen=True)
class KindRow:
    """How a kind becomes a body: its writer, and the names of its operands (None for any number)."""

    write: Callable[[BodyWriter], SSAValue | Sequence[SSAValue]]
    names: Callable[[BodyWriter], tuple[str, ...] | None]


def fixed(*names: str) -> Callable[[BodyWriter], tuple[str, ...]]:
    """The operands of a kind that always has the same ones."""
    return lambda writer: names


_CLASSES: Mapping[str, Callable[..., LogicalOp]] = {
    op.name.removeprefix("logical."): op for op in logical.Logical.operations if issubclass(op, LogicalOp)
}
