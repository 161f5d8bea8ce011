"""A typed Python builder of logical programs.

    g = Graph("mlp")
    x = g.input("x", ("N", 64))
    w, b = g.param("fc1.weight", (128, 64)), g.param("fc1.bias", (128,))
    g.output(g.relu(g.linear(x, w, b)), "y")
    module = g.module()

Operands of elementwise ops are broadcast by NumPy's rules, as explicit ops; Python numbers become constants
of the other operand's type. Each op carries the place in the Python source that asked for it. Nothing is
computed and no weight is held.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

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
from xdsl.ir import Attribute, Block, BlockArgument, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import dims, logical
from aicf.dialects.dims import Size
from aicf.dialects.logical import (
    NAME_ATTR,
    ROLE_ATTR,
    UPDATES_ATTR,
    Approximation,
    LogicalOp,
    Predicate,
    Role,
)
from aicf.dialects.types import TensorInfo, element_named, tensor, tensor_info
from aicf.errors import InvalidIR

_PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"

Shape: TypeAlias = Sequence[int | str]
"""Sizes; a string is a symbolic size, such as "N" or "4*N"."""


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of a graph under construction; supports ``+ - * / @`` and negation."""

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

    def __add__(self, other: Operand) -> Value:
        return self.graph.add(self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.graph.add(other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.graph.sub(self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.graph.sub(other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.graph.mul(self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.graph.mul(other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.graph.div(self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.graph.div(other, self)

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
class Graph:
    """A program under construction; its methods raise :class:`InvalidIR`, with the Python source line, on wrong use."""

    name: str
    _block: Block = field(default_factory=Block, init=False, repr=False)
    _interface: list[dict[str, Attribute]] = field(
        default_factory=list[dict[str, Attribute]], init=False, repr=False
    )
    _results: list[_Result] = field(default_factory=list[_Result], init=False, repr=False)
    _names: set[str] = field(default_factory=set[str], init=False, repr=False)
    _module: ModuleOp | None = field(default=None, init=False, repr=False)

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
        """Make a value the new value of a parameter or state after the run."""
        argument = self._own(target)
        if not isinstance(argument, BlockArgument):
            raise self._error("update: the target is a computed value; give a param or state")
        entry = self._interface[argument.index]
        name = entry[NAME_ATTR]
        if entry[ROLE_ATTR] not in (StringAttr("param"), StringAttr("state")):
            raise self._error(
                f"update: the role of {name} is {entry[ROLE_ATTR]}; only param and state change"
            )
        if target.info != value.info:
            raise self._error(f"update: {name} is {target.info}, the new value {value.info}")
        self._results.append(_Result(self._own(value), {UPDATES_ATTR: name}))

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

    def add(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs + rhs``."""
        return self._binary(logical.AddOp, lhs, rhs, name)

    def sub(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs - rhs``."""
        return self._binary(logical.SubOp, lhs, rhs, name)

    def mul(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs * rhs``, per element."""
        return self._binary(logical.MulOp, lhs, rhs, name)

    def div(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs / rhs``; integers truncate toward zero."""
        return self._binary(logical.DivOp, lhs, rhs, name)

    def max(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """The larger of the two, per element."""
        return self._binary(logical.MaxOp, lhs, rhs, name)

    def min(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """The smaller of the two, per element."""
        return self._binary(logical.MinOp, lhs, rhs, name)

    def compare(self, predicate: Predicate, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """i1 per element: ``eq ne lt le gt ge``."""
        a, b = self._broadcast_together("compare", lhs, rhs)
        return self._insert("compare", name, lambda: logical.CompareOp(predicate, a.ssa, b.ssa))

    def select(
        self, condition: Value, on_true: Operand, on_false: Operand, *, name: str | None = None
    ) -> Value:
        """``on_true`` where the condition holds, else ``on_false``."""
        a, b = self._broadcast_together("select", on_true, on_false)
        shape = self._joint_sizes("select", [condition, a, b])
        picked = [self._broadcast(value, shape).ssa for value in (condition, a, b)]
        return self._insert("select", name, lambda: logical.SelectOp(*picked))

    def neg(self, x: Value, *, name: str | None = None) -> Value:
        """``-x``."""
        return self._unary(logical.NegOp, x, name)

    def exp(self, x: Value, *, name: str | None = None) -> Value:
        """``e ** x``."""
        return self._unary(logical.ExpOp, x, name)

    def log(self, x: Value, *, name: str | None = None) -> Value:
        """The natural logarithm."""
        return self._unary(logical.LogOp, x, name)

    def sqrt(self, x: Value, *, name: str | None = None) -> Value:
        """The square root."""
        return self._unary(logical.SqrtOp, x, name)

    def rsqrt(self, x: Value, *, name: str | None = None) -> Value:
        """``1 / sqrt(x)``."""
        return self._unary(logical.RsqrtOp, x, name)

    def tanh(self, x: Value, *, name: str | None = None) -> Value:
        """The hyperbolic tangent."""
        return self._unary(logical.TanhOp, x, name)

    def erf(self, x: Value, *, name: str | None = None) -> Value:
        """The error function."""
        return self._unary(logical.ErfOp, x, name)

    def relu(self, x: Value, *, name: str | None = None) -> Value:
        """``max(x, 0)``."""
        return self._unary(logical.ReluOp, x, name)

    def sigmoid(self, x: Value, *, name: str | None = None) -> Value:
        """``1 / (1 + exp(-x))``."""
        return self._unary(logical.SigmoidOp, x, name)

    def silu(self, x: Value, *, name: str | None = None) -> Value:
        """``x * sigmoid(x)``."""
        return self._unary(logical.SiluOp, x, name)

    def gelu(self, x: Value, approximate: Approximation = "none", *, name: str | None = None) -> Value:
        """GELU, by erf or by its tanh approximation."""
        return self._insert("gelu", name, lambda: logical.GeluOp(self._own(x), approximate))

    def cast(self, x: Value, dtype: str, *, name: str | None = None) -> Value:
        """The value in another element type."""
        return self._insert("cast", name, lambda: logical.CastOp(self._own(x), dtype))

    def matmul(
        self,
        lhs: Value,
        rhs: Value,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        name: str | None = None,
    ) -> Value:
        """The matrix product over the last two dimensions; ``rhs`` may be one matrix for all batches."""
        return self._insert(
            "matmul",
            name,
            lambda: logical.MatmulOp(
                self._own(lhs), self._own(rhs), transpose_a=transpose_a, transpose_b=transpose_b
            ),
        )

    def linear(self, x: Value, weight: Value, bias: Value | None = None, *, name: str | None = None) -> Value:
        """``x @ weight.T + bias``; weight is ``[outputs, inputs]``."""
        own_bias = None if bias is None else self._own(bias)
        return self._insert(
            "linear", name, lambda: logical.LinearOp(self._own(x), self._own(weight), own_bias)
        )

    def reduce_sum(
        self, x: Value, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Value:
        """The sum along axes; a negative axis counts from the last."""
        return self._reduce(logical.ReduceSumOp, x, axes, keepdims, name)

    def reduce_mean(
        self, x: Value, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Value:
        """The mean along axes; a negative axis counts from the last."""
        return self._reduce(logical.ReduceMeanOp, x, axes, keepdims, name)

    def reduce_max(
        self, x: Value, axes: Sequence[int], *, keepdims: bool = False, name: str | None = None
    ) -> Value:
        """The largest element along axes; a negative axis counts from the last."""
        return self._reduce(logical.ReduceMaxOp, x, axes, keepdims, name)

    def softmax(self, x: Value, axis: int = -1, *, name: str | None = None) -> Value:
        """Softmax along an axis."""
        return self._insert("softmax", name, lambda: logical.SoftmaxOp(self._own(x), _axis(axis, x.rank)))

    def layer_norm(
        self,
        x: Value,
        scale: Value,
        bias: Value,
        axis: int = -1,
        epsilon: float = logical.DEFAULT_EPSILON,
        *,
        name: str | None = None,
    ) -> Value:
        """Layer normalisation over the dimensions from ``axis`` on."""
        values = [self._own(value) for value in (x, scale, bias)]
        return self._insert(
            "layer_norm",
            name,
            lambda: logical.LayerNormOp(*values, axis=_axis(axis, x.rank), epsilon=epsilon),
        )

    def reshape(self, x: Value, shape: Shape, *, name: str | None = None) -> Value:
        """The same elements under another shape."""
        sizes = self._sizes(shape)
        return self._insert("reshape", name, lambda: logical.ReshapeOp(self._own(x), sizes))

    def transpose(self, x: Value, permutation: Sequence[int], *, name: str | None = None) -> Value:
        """Result dimension i is dimension ``permutation[i]`` of ``x``."""
        return self._insert("transpose", name, lambda: logical.TransposeOp(self._own(x), permutation))

    def broadcast_to(self, x: Value, shape: Shape, *, name: str | None = None) -> Value:
        """The value repeated to a shape by NumPy's rules."""
        return self._broadcast(x, self._sizes(shape), name)

    def slice(
        self,
        x: Value,
        starts: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """Per dimension ``sizes[i]`` elements from ``starts[i]``; size -1 takes the whole dimension."""
        return self._insert("slice", name, lambda: logical.SliceOp(self._own(x), starts, sizes, strides))

    def concat(self, parts: Sequence[Value], axis: int, *, name: str | None = None) -> Value:
        """The values one after the other along an axis."""
        if not parts:
            raise self._error("concat: nothing to concatenate; give at least one value")
        values = [self._own(part) for part in parts]
        return self._insert("concat", name, lambda: logical.ConcatOp(values, _axis(axis, parts[0].rank)))

    def _argument(self, name: str, role: Role, shape: Shape, dtype: str) -> Value:
        type_ = self._type(shape, dtype)
        self._take_name(name)
        argument = self._block.insert_arg(type_, len(self._block.args), _caller_location())
        argument.name_hint = _hint(name)
        self._interface.append({NAME_ATTR: StringAttr(name), ROLE_ATTR: StringAttr(role)})
        return Value(self, argument)

    def _take_name(self, name: str) -> None:
        if not name or name in self._names:
            raise self._error(f'the name "{name}" is {"taken" if name else "empty"}; give another')
        self._names.add(name)

    def _sizes(self, shape: Shape) -> list[Size]:
        try:
            return [dims.parse_size(size) if isinstance(size, str) else size for size in shape]
        except ValueError as error:
            raise self._error(str(error)) from error

    def _type(self, shape: Shape, dtype: str) -> Attribute:
        try:
            type_ = tensor(self._sizes(shape), element_named(dtype))
            tensor_info(type_)
        except (ValueError, VerifyException) as error:
            raise self._error(str(error)) from error
        return type_

    def _own(self, value: Value) -> SSAValue:
        if value.graph is not self:
            raise self._error(f'a value of graph "{value.graph.name}" cannot be used in graph "{self.name}"')
        return value.ssa

    def _unary(self, op_class: type[logical.UnaryOp], x: Value, name: str | None) -> Value:
        return self._insert(op_class.name, name, lambda: op_class(self._own(x)))

    def _binary(
        self, op_class: type[logical.BinaryOp], lhs: Operand, rhs: Operand, name: str | None
    ) -> Value:
        a, b = self._broadcast_together(op_class.name, lhs, rhs)
        return self._insert(op_class.name, name, lambda: op_class(a.ssa, b.ssa))

    def _reduce(
        self,
        op_class: type[logical.ReduceOp],
        x: Value,
        axes: Sequence[int],
        keepdims: bool,
        name: str | None,
    ) -> Value:
        positions = sorted(_axis(axis, x.rank) for axis in axes)
        return self._insert(op_class.name, name, lambda: op_class(self._own(x), positions, keepdims=keepdims))

    def _broadcast_together(self, what: str, lhs: Operand, rhs: Operand) -> tuple[Value, Value]:
        like = lhs if isinstance(lhs, Value) else rhs
        if not isinstance(like, Value):
            raise self._error(f"{what}: both operands are Python numbers; make one a constant of the graph")
        values = [
            operand if isinstance(operand, Value) else self._number(operand, like) for operand in (lhs, rhs)
        ]
        sizes = self._joint_sizes(what, values)
        return self._broadcast(values[0], sizes), self._broadcast(values[1], sizes)

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
        if self._module is not None:
            raise self._error(f'graph "{self.name}" is finished; add ops before module()')
        op: LogicalOp | None = None
        location = _caller_location()
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
            op.result.name_hint = _hint(name)
        return Value(self, op.result)

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
        function.location = _caller_location()
        return ModuleOp([function])

    def _error(self, message: str) -> InvalidIR:
        location = _caller_location()
        return InvalidIR(
            message, location=f"{location.filename.data}:{location.line.data}:{location.column.data}"
        )


def _axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


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
