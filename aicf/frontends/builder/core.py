"""Types and the ground of the builder: arguments, results, locations, broadcasting, insertion."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias, cast

from numpy.typing import ArrayLike
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FileLineColLoc,
    IntAttr,
    ModuleOp,
    NameLoc,
    StringAttr,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import dims, logical
from aicf.dialects.dims import Size
from aicf.dialects.logical import (
    NAME_ATTR,
    ROLE_ATTR,
    UPDATES_ATTR,
    LogicalOp,
    Role,
)
from aicf.dialects.types import TensorInfo, check_filled, element_named, tensor, tensor_info
from aicf.errors import InvalidIR, quoted
from aicf.frontends.builder.checking import checked

if TYPE_CHECKING:
    from aicf.frontends.builder.graph import Graph

_PACKAGE = f"{Path(__file__).parent.parent.parent}{os.sep}"

Shape: TypeAlias = Sequence[int | str]
"""Sizes; a string is a symbolic size, such as "N" or "4*N"."""


_Operator: TypeAlias = "Callable[[Value, Operand], Value]"


def _operator(method: str) -> tuple[_Operator, _Operator]:
    """A method of the graph as an operator of its values, which stand on the left, and on the right."""

    def left(self: Value, other: Operand) -> Value:
        return getattr(self.graph, method)(self, other)

    def right(self: Value, other: Operand) -> Value:
        return getattr(self.graph, method)(other, self)

    return left, right


@dataclass(frozen=True, eq=False, repr=False)
class Value:
    """A tensor of a graph under construction; supports ``+ - * / // % ** @ & | ^ ~``, order and negation.

    ``==`` is the identity of two values, as of any Python object: elements are compared by ``Graph.eq``.
    """

    graph: Graph
    ssa: SSAValue

    @property
    def info(self) -> TensorInfo:
        """Sizes and element type."""
        return tensor_info(self.ssa.type)

    @property
    def shape(self) -> tuple[int | str, ...]:
        """The sizes, symbolic ones as text."""
        return tuple(size if isinstance(size, int) else str(size) for size in self.info.sizes)

    @property
    def dtype(self) -> str:
        """The name of the element type."""
        return self.info.element.name

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return self.info.rank

    def __repr__(self) -> str:
        name = self.ssa.name_hint or getattr(self.ssa.owner, "name", "value")
        return f"<Value {name}: {self.dtype}[{', '.join(map(str, self.shape))}] of graph '{self.graph.name}'>"

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub")
    __mul__, __rmul__ = _operator("mul")
    __truediv__, __rtruediv__ = _operator("div")
    __floordiv__, __rfloordiv__ = _operator("floor_div")
    __mod__, __rmod__ = _operator("mod")
    __pow__, __rpow__ = _operator("pow")
    __and__, __rand__ = _operator("and_")
    __or__, __ror__ = _operator("or_")
    __xor__, __rxor__ = _operator("xor")
    __lt__ = _operator("lt")[0]
    __le__ = _operator("le")[0]
    __gt__ = _operator("gt")[0]
    __ge__ = _operator("ge")[0]

    def __invert__(self) -> Value:
        return self.graph.not_(self)

    def __matmul__(self, other: Value) -> Value:
        return self.graph.matmul(self, other)

    def __neg__(self) -> Value:
        return self.graph.neg(self)


Operand: TypeAlias = Value | int | float


@dataclass
class _Result:
    """One result of the function: a value with a name, or a new value of a parameter or state."""

    value: SSAValue
    attributes: dict[str, Attribute]


@dataclass
class GraphCore:
    """What a graph has besides its ops: the interface, and how an op is made and checked."""

    name: str
    _block: Block = field(default_factory=Block, init=False, repr=False)
    _interface: list[dict[str, Attribute]] = field(
        default_factory=list[dict[str, Attribute]], init=False, repr=False
    )
    _results: list[_Result] = field(default_factory=list[_Result], init=False, repr=False)
    _names: set[str] = field(default_factory=set[str], init=False, repr=False)
    _module: ModuleOp | None = field(default=None, init=False, repr=False)
    _location: FileLineColLoc | None = field(default=None, init=False, repr=False)

    def __init_subclass__(cls) -> None:
        """The methods of each family of ops refuse arguments of other types than they state."""
        for name, method in list(vars(cls).items()):
            if not name.startswith("_") and inspect.isfunction(method):
                setattr(cls, name, checked(method))

    def refuse(self, message: str) -> NoReturn:
        """Raises InvalidIR with the caller's line."""
        raise self._error(message)

    def check_value(self, value: Value) -> None:
        """Raises InvalidIR with the caller's line for what is no value of this graph."""
        self._own(value)

    def input(self, name: str, shape: Shape, dtype: str = "f32") -> Value:
        """A tensor given at every run."""
        return self._argument(name, "input", shape, dtype)

    def param(self, name: str, shape: Shape, dtype: str = "f32") -> Value:
        """A weight, named as in the weights file."""
        return self._argument(name, "param", shape, dtype)

    def state(self, name: str, shape: Shape, dtype: str = "f32") -> Value:
        """A tensor kept from run to run."""
        return self._argument(name, "state", shape, dtype)

    def meta(self, name: str, shape: Shape, dtype: str = "f32") -> Value:
        """A small tensor that the executable maintains, such as a step count."""
        return self._argument(name, "meta", shape, dtype)

    def output(self, value: Value, name: str) -> None:
        """Make a value a result of the program."""
        self._take_name(name)
        self._results.append(_Result(self._own(value), {NAME_ATTR: StringAttr(name)}))

    def update(self, target: Value, value: Value) -> None:
        """Make a value the new value of a parameter, state or meta after the run."""
        argument = self._own(target)
        if not isinstance(argument, BlockArgument):
            raise self._error("update: the target is a computed value; give a param, state or meta")
        entry = self._interface[argument.index]
        name = entry[NAME_ATTR]
        if entry[ROLE_ATTR] == StringAttr("input"):
            raise self._error(
                f"update: the role of {name} is {entry[ROLE_ATTR]}; only param, state and meta change"
            )
        self._own(value)
        if target.info != value.info:
            raise self._error(f"update: {name} is {target.info}, the new value {value.info}")
        self._results.append(_Result(self._own(value), {UPDATES_ATTR: name}))

    def inline(self, function: FuncOp, arguments: Sequence[Value]) -> list[Value]:
        """Writes the ops of another program here, with their ids, names and locations, and gives its results.

        Args:
            function: One block that ends in `func.return`; it stays as it is.
            arguments: What its arguments are, of the same types.
        """
        if not isinstance(function, FuncOp):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._error(f"inline: the function is {quoted(function)}; it is a func.func")  # pyright: ignore[reportUnreachable]
        block = function.body.block
        arguments = self._parts(arguments)
        if [argument.type for argument in block.args] != [value.ssa.type for value in arguments]:
            wanted = ", ".join(str(tensor_info(argument.type)) for argument in block.args)
            given = ", ".join(str(value.info) for value in arguments)
            raise self._error(f"inline: @{function.sym_name.data} takes ({wanted}), given are ({given})")
        copies: dict[SSAValue, SSAValue] = dict(zip(block.args, map(self._own, arguments), strict=True))
        returned = block.last_op
        assert isinstance(returned, ReturnOp)
        for op in block.ops:
            if op is not returned:
                self._block.add_op(op.clone(copies))
        return [self._value(copies[value]) for value in returned.operands]

    def module(self) -> ModuleOp:
        """The finished program, a new module with one function; the graph takes no further ops.

        Raises:
            InvalidIR: nothing is an output or an update.
        """
        if self._module is None:
            self._module = self._finish()
        return self._module.clone()

    def constant(
        self, value: ArrayLike, shape: Shape = (), dtype: str = "f32", *, name: str | None = None
    ) -> Value:
        """A constant: a number for all elements of a shape, or the elements of a small tensor of that shape."""
        type_ = self._type(shape, dtype)
        return self._insert("constant", name, lambda: logical.ConstantOp(value, type_))

    def _argument(self, name: str, role: Role, shape: Shape, dtype: str) -> Value:
        type_ = self._type(shape, dtype)
        self._take_name(name)
        argument = self._block.insert_arg(type_, len(self._block.args), self._where())
        argument.name_hint = _hint(name)
        self._interface.append({NAME_ATTR: StringAttr(name), ROLE_ATTR: StringAttr(role)})
        return self._value(argument)

    def _take_name(self, name: str) -> None:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._error(f"the name is {quoted(name)}; give a string")  # pyright: ignore[reportUnreachable]
        if not name or name in self._names:
            raise self._error(f'the name "{name}" is {"taken" if name else "empty"}; give another')
        self._names.add(name)

    def _sizes(self, shape: Shape) -> list[Size]:
        try:
            sizes = [dims.parse_size(size) if isinstance(size, str) else index(size) for size in shape]
        except ValueError as error:
            raise self._error(str(error)) from error
        except TypeError as error:
            raise self._error(
                f'the shape is {quoted(shape)}; it is a list of sizes, such as ("N", 64)'
            ) from error
        if any(isinstance(size, int) and size < 0 for size in sizes):
            raise self._error(
                f"the shape is {quoted(shape)}; a size is not negative, a symbolic one has a name"
            )
        return sizes

    def _type(self, shape: Shape, dtype: str) -> Attribute:
        try:
            type_ = tensor(self._sizes(shape), element_named(self._text("dtype", dtype)))
            check_filled(type_)
        except (ValueError, VerifyException) as error:
            raise self._error(str(error)) from error
        return type_

    def _text(self, what: str, value: object) -> str:
        if not isinstance(value, str):
            raise self._error(f"{what} is {quoted(value)}; it is text")
        return value

    def _own(self, value: Value) -> SSAValue:
        if not isinstance(value, Value):  # pyright: ignore[reportUnnecessaryIsInstance]
            kind = type(value).__name__  # pyright: ignore[reportUnreachable]
            raise self._error(
                f"an operand is a Python {kind}, no value of the graph; use constant() or input()"
            )
        if value.graph is not self:
            raise self._error(f'a value of graph "{value.graph.name}" cannot be used in graph "{self.name}"')
        return value.ssa

    def _parts(self, parts: Sequence[Value]) -> Sequence[Value]:
        if isinstance(parts, Value):
            raise self._error("one value is no list of values; write [x]")
        if not isinstance(parts, list | tuple):
            raise self._error(f"a list of values is {quoted(parts)}; write [x, y]")
        for part in parts:
            self._own(part)
        return parts

    def _value(self, ssa: SSAValue) -> Value:
        return Value(cast("Graph", self), ssa)

    def _broadcast_together(self, what: str, operands: Sequence[Operand]) -> list[Value]:
        like = next((operand for operand in operands if isinstance(operand, Value)), None)
        if like is None:
            raise self._error(f"{what}: all operands are Python numbers; make one a constant of the graph")
        values = [
            operand if isinstance(operand, Value) else self._number(operand, like) for operand in operands
        ]
        sizes = self._joint_sizes(what, values)
        return [self._broadcast(value, sizes) for value in values]

    def _number(self, number: float, like: Value) -> Value:
        return self._insert("constant", None, lambda: logical.ConstantOp(number, like.ssa.type))

    def _joint_sizes(self, what: str, values: Sequence[Value]) -> list[Size]:
        """The sizes that all values broadcast to, aligned at the last dimension."""
        rank = max(value.rank for value in values)
        joint: list[Size] = [1] * rank
        for value in values:
            for position, size in enumerate(value.info.sizes, rank - value.rank):
                if size == 1 or size == joint[position]:
                    continue
                if joint[position] != 1:
                    shapes = " and ".join(value.info.shape_text for value in values)
                    raise self._error(
                        f"{what}: shapes {shapes} do not broadcast; sizes are equal or 1 from the right"
                    )
                joint[position] = size
        return joint

    def _broadcast(self, value: Value, sizes: Sequence[Size], name: str | None = None) -> Value:
        if value.info.sizes == tuple(sizes):
            return value
        dimensions = range(len(sizes) - value.rank, len(sizes))
        return self._insert(
            "broadcast", name, lambda: logical.BroadcastOp(self._own(value), dimensions, sizes)
        )

    def _insert(self, what: str, name: str | None, make: Callable[[], LogicalOp]) -> Value:
        return self._insert_all(what, name, make)[0]

    def _insert_all(self, what: str, name: str | None, make: Callable[[], LogicalOp]) -> list[Value]:
        """As `_insert`; all results of the op."""
        if self._module is not None:
            raise self._error(f'graph "{self.name}" is finished; add ops before module()')
        if name is not None:
            self._text("name", name)
        op: LogicalOp | None = None
        location = self._where()
        try:
            op = make()
            op.location = location if name is None else NameLoc(StringAttr(name), location)
            op.verify()
        except (VerifyException, ValueError) as error:
            if op is not None:
                op.erase()
            raise self._error(_named_message(what, error)) from error
        self._block.add_op(op)
        if name is not None:
            op.results[0].name_hint = _hint(name)
        return [self._value(result) for result in op.results]

    def _finish(self) -> ModuleOp:
        if not self._results:
            raise self._error(f'graph "{self.name}" has no result; call output() or update()')
        results = [result.value for result in self._results]
        self._block.add_op(ReturnOp(*results))
        function = FuncOp(
            self.name,
            ([argument.type for argument in self._block.args], [value.type for value in results]),
            Region(self._block),
            arg_attrs=ArrayAttr(DictionaryAttr(entry) for entry in self._interface),
            res_attrs=ArrayAttr(DictionaryAttr(result.attributes) for result in self._results),
        )
        function.location = self._where()
        return ModuleOp([function])

    def _where(self) -> FileLineColLoc:
        return _caller_location() if self._location is None else self._location

    def _error(self, message: str) -> InvalidIR:
        return _error_here(message)


# For frontends, which write ops that no line of Python adds


def write_from(graph: GraphCore, location: FileLineColLoc | None) -> None:
    """From here on ops have this source location; None is the line of Python that adds each op."""
    graph._location = location  # pyright: ignore[reportPrivateUsage]


def last_op(graph: GraphCore) -> Operation | None:
    """The op that was added last."""
    return graph._block.last_op  # pyright: ignore[reportPrivateUsage]


def ops_since(graph: GraphCore, last: Operation | None) -> list[Operation]:
    """The ops that were added after one, all if it is None."""
    found: list[Operation] = []
    op = last_op(graph)
    while op is not None and op is not last:
        found.append(op)
        op = op.prev_op
    return found[::-1]


def saved(graph: GraphCore, value: Value) -> Value:
    """The value, marked as what the backward part of a training step reads; itself if it is in memory anyway."""
    source = value.ssa
    if not isinstance(source, OpResult) or isinstance(source.op, logical.ConstantOp):
        return value
    save = logical.SaveOp(source)
    save.location = location = source.op.location
    if isinstance(location, NameLoc):
        save.location = NameLoc(StringAttr(f"{location.desc.data}.save"), location.location)
    Rewriter.insert_op(save, InsertPoint.after(source.op))
    return graph._value(save.result)  # pyright: ignore[reportPrivateUsage]


def positive_axis(axis: int, rank: int) -> int:
    """The axis counted from the first; -1 is the last, and one out of range stays as it is.

    Raises:
        InvalidIR: it is no integer, with the caller's line.
    """
    try:
        at = index(axis)
    except TypeError as error:
        raise _error_here(f"axis is {quoted(axis)}; it is an integer") from error
    return at + rank if -rank <= at < 0 else at


def integers(what: str, values: Sequence[int]) -> list[int]:
    """The values as a list. Raises InvalidIR with the caller's line if they are something else."""
    try:
        return [index(value) for value in values]
    except TypeError as error:
        raise _error_here(f"{what} is {quoted(values)}; it is a list of integers, such as [0, 1]") from error


def _error_here(message: str) -> InvalidIR:
    """An error of the innermost line of Python that is not of this package."""
    location = _caller_location()
    return InvalidIR(
        message, location=f"{location.filename.data}:{location.line.data}:{location.column.data}"
    )


def _named_message(what: str, error: Exception) -> str:
    """The message of a constructor or a verifier, led by the op's name."""
    message = str(error)
    return message if message.startswith("logical.") else f"{what.removeprefix('logical.')}: {message}"


def _hint(name: str) -> str | None:
    return name if SSAValue.is_valid_name(name) else None


def _caller_location() -> FileLineColLoc:
    """The innermost line of Python that is not of this package; the path is relative where it can be."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return FileLineColLoc(StringAttr(str(path)), IntAttr(frame.f_lineno), IntAttr(1))
