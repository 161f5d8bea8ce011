"""Basis of the ATen op map: what a row is, and the writer that a row uses.

A row says how one op of PyTorch's ATen is written in logical ops of static shapes. It takes the arguments of the op's
schema, in their order, and keyword-only ones by name:

    @row("addmm.default")
    def _addmm(writer: Writer, bias: Value, lhs: Value, rhs: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
        "beta * bias + alpha * (lhs @ rhs)."

Tensors come as values of the builder, sizes as integers, element types by name (`f32`). Nothing here walks a graph, and
nothing imports PyTorch: the shapes and element types of PyTorch's results are in `Writer.results`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np

from aicf.dialects.logical import PhiloxForm
from aicf.dialects.types import ElementType, element_named
from aicf.errors import UnsupportedOp
from aicf.frontends.builder import Graph, Value

Number: TypeAlias = bool | int | float
"""A Python number; in promotions, a tensor of its kind determines the element type."""
Operand: TypeAlias = Value | Number
Result: TypeAlias = "Value | Sequence[Value | None]"
"""What a row returns: its tensor, or a list with an entry for each result; None is a result that nothing reads."""
_WORDS = 4
"""Random numbers of one counter."""
_LARGEST_E4M3 = 448.0
"""The largest number of f8E4M3FN."""
Lower: TypeAlias = Callable[..., Result]
LowerT = TypeVar("LowerT", bound=Lower)


@dataclass(frozen=True)
class Tensor:
    """Sizes and element type of a tensor of PyTorch."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Empty:
    """A tensor without elements, which programs do not have."""

    info: Tensor


@dataclass(frozen=True)
class Memory:
    """Strides and offset of a tensor in PyTorch's storage, in elements."""

    strides: tuple[int, ...]
    offset: int


Call: TypeAlias = Mapping[str, Any]
"""The arguments of a call of an op, by their names in its schema; an argument that is not passed has its default."""


def _always(call: Call) -> bool:
    return True


@dataclass(frozen=True)
class OtherGradient:
    """PyTorch's gradient of an op differs from the derivative of the ops that its row writes.

    PyTorch has its own convention where there is no derivative, and some rows compute an infinity in a branch that is
    not selected.

    Args:
        reason: What PyTorch's gradient is, for the message.
        applies: To which calls.
    """

    reason: str
    applies: Callable[[Call], bool] = _always


@dataclass(frozen=True)
class CheckedIndices:
    """An operand has indices that eager mode checks against the size of another one.

    Args:
        of: The argument that is indexed.
        by: The argument that has the indices; or a list with those of each dimension, or None for it.
        axis: The dimension that they are for, from the call and the rank of what is indexed; None for all elements in
            row-major order. Not asked where there is a list.
        ignored: The argument that is an index to be skipped; "" if there is none.
        from_end: Whether negative indices count from the end.
    """

    of: str
    by: str
    axis: Callable[[Call, int], int | None]
    ignored: str = ""
    from_end: bool = False


def along_dim(*, from_end: bool = False) -> CheckedIndices:
    """Of an op that takes its `index` along its `dim`."""
    return CheckedIndices(
        "self", "index", lambda call, rank: int(call["dim"]) % max(rank, 1), from_end=from_end
    )


def _all_elements(call: Call, rank: int) -> None:
    return None


OF_EACH_DIM = CheckedIndices("self", "indices", _all_elements, from_end=True)
"""Of an op that takes a list of indices."""
OF_ALL_ELEMENTS = CheckedIndices("self", "index", _all_elements, from_end=True)
"""Of an op that takes its `index` among all elements."""


ROWS: dict[str, Lower] = {}
"""Every op that has a row, by overload: `add.Tensor`; of another namespace than aten with it, `prims.iota.default`."""
OTHER_GRADIENTS: dict[str, OtherGradient] = {}
"""What rows say about gradients, by overload."""
CHECKED_INDICES: dict[str, CheckedIndices] = {}
"""What rows say about their indices, by overload."""


def row(
    *overloads: str, other_gradient: OtherGradient | None = None, indices: CheckedIndices | None = None
) -> Callable[[LowerT], LowerT]:
    """Enters the function below into the table, for one or more overloads: `add.Tensor`, `relu.default`.

    Args:
        overloads: What the function writes.
        other_gradient: Given if differentiating the ops that it writes would not give PyTorch's gradient.
        indices: Given if eager mode checks an operand of indices.
    """

    def enter(lower: LowerT) -> LowerT:
        for overload in overloads:
            if overload in ROWS:
                raise ValueError(f"ATen op map: two rows for {overload}")
            ROWS[overload] = lower
            if other_gradient is not None:
                OTHER_GRADIENTS[overload] = other_gradient
            if indices is not None:
                CHECKED_INDICES[overload] = indices
        return lower

    return enter


ONE_OF_EQUALS = OtherGradient("among equal elements, one gets the whole gradient")
ZERO_AT_ZERO = OtherGradient("the gradient at 0 is 0")


EMPTY_ROWS: dict[str, Lower] = {}
"""Ops whose results have elements although an operand has none, by overload: a sum of nothing is 0."""


def empty_row(*overloads: str) -> Callable[[LowerT], LowerT]:
    """As `row`, for calls with an operand that has no elements, which comes as :class:`Empty`."""

    def enter(lower: LowerT) -> LowerT:
        for overload in overloads:
            if overload in EMPTY_ROWS:
                raise ValueError(f"ATen op map: two rows for {overload} without elements")
            EMPTY_ROWS[overload] = lower
        return lower

    return enter


# Element types


def is_float(dtype: str) -> bool:
    """Whether it is a floating-point type."""
    return element_named(dtype).is_float


def is_bool(dtype: str) -> bool:
    """Whether it is the type of truth values."""
    return element_named(dtype).kind == "bool"


def wide(dtype: str) -> str:
    """The type in which PyTorch computes functions and sums of a floating-point type: f32 for f16 and bf16."""
    return "f32" if dtype in ("f16", "bf16") else dtype


_CATEGORIES = ("bool", "int", "float")


def _rank(element: ElementType) -> int:
    return _CATEGORIES.index(element.kind)


def _joined(dtypes: Sequence[str]) -> str | None:
    """PyTorch's promoted type of tensors of the same category."""
    joined: str | None = None
    for dtype in dtypes:
        joined = dtype if joined is None else _promoted(joined, dtype)
    return joined


def _promoted(one: str, other: str) -> str:
    if one == other:
        return one
    first, second = element_named(one), element_named(other)
    if _rank(first) != _rank(second):
        return one if _rank(first) > _rank(second) else other
    if {one, other} == {"f16", "bf16"}:
        return "f32"
    if {one, other} == {"u8", "i8"}:
        return "i16"
    return one if first.bytes > second.bytes else other


def result_type(*operands: Operand) -> str:
    """The element type of an elementwise op of PyTorch: tensors with dimensions come before those without, and numbers
    last; a later group counts only where it is of a higher kind (bool, integer, float)."""
    tensors = [operand for operand in operands if isinstance(operand, Value)]
    groups = [
        [value.dtype for value in tensors if value.rank],
        [value.dtype for value in tensors if not value.rank],
        [_type_of_number(operand) for operand in operands if not isinstance(operand, Value)],
    ]
    found: str | None = None
    for group in groups:
        joined = _joined(group)
        if joined is None:
            continue
        if found is None or _rank(element_named(joined)) > _rank(element_named(found)):
            found = joined
    assert found is not None, "an op has operands"
    return found


def _held(number: float, dtype: str) -> float:
    """The number, or an infinity if it is too large for a floating-point type."""
    with np.errstate(over="ignore"):
        rounded = float(element_named(dtype).dtype.type(number))
    return rounded if math.isinf(rounded) else number


def _wrapped(number: int, dtype: str) -> int:
    """The number, wrapped around to the range of an integer type."""
    limits = np.iinfo(element_named(dtype).dtype)
    return (number - int(limits.min)) % (int(limits.max) - int(limits.min) + 1) + int(limits.min)


def _type_of_number(number: Number) -> str:
    if isinstance(number, bool):
        return "i1"
    return "i64" if isinstance(number, int) else "f32"


# The writer


@dataclass
class Writer:
    """Writes the ops of one node of the graph.

    Args:
        graph: The program; its methods make the ops.
        op: Its name in messages: `aten.add.Tensor`.
        results: Shapes and types of PyTorch's results, in order.
        used: The results that something reads, by index.
        seed: Returns the seed of random numbers, an i64 of rank 0, which is another one in each call.
        counters: Reserves a number of counters of the random stream for this node, and returns the first.
        memory: Returns strides and offset of the first operand, for ops that address memory.
        location: Of the node, as `file:line`.
        is_differentiated: Whether AICF differentiates these ops.
        device: The type of the device that PyTorch has the results on, `cpu` or `cuda`: some ops differ there.
    """

    graph: Graph
    op: str
    results: Sequence[Tensor]
    used: frozenset[int]
    seed: Callable[[], Value]
    counters: Callable[[int], int]
    memory: Callable[[], Memory]
    location: str | None = None
    is_differentiated: bool = False
    device: str = "cpu"
    notes: list[str] = field(default_factory=list[str])

    # Results

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the first result."""
        return self.results[0].shape

    @property
    def dtype(self) -> str:
        """The element type of the first result."""
        return self.results[0].dtype

    def unsupported(self, what: str, way_out: str) -> NoReturn:
        """Raises UnsupportedOp: which argument has no counterpart, and what to do instead."""
        raise UnsupportedOp(f"{self.op}: {what}; {way_out}", location=self.location)

    # Element types

    def cast(self, value: Value, dtype: str) -> Value:
        """The value in another element type, converted as PyTorch does: to a truth value, whether it is not 0; to
        f8E4M3FN, which has no infinity, what is too large as the largest number. f8E5M2 has infinity."""
        if value.dtype == dtype:
            return value
        if is_bool(dtype):
            return self.graph.ne(value, 0)
        if dtype == "u8" and is_float(value.dtype):
            # PyTorch goes through i64, so that -1.0 becomes 255.
            value = self.graph.cast(value, "i64")
        if dtype == "f8E4M3FN" and not is_bool(value.dtype):
            wide = value if value.dtype in ("f64", "f32", "f16", "bf16") else self.graph.cast(value, "f32")
            value = self.graph.clamp(wide, -_LARGEST_E4M3, _LARGEST_E4M3)
        return self.graph.cast(value, dtype)

    def operand(self, operand: Operand, dtype: str) -> Operand:
        """A tensor in an element type; a number as it is, in a form that the type has."""
        if isinstance(operand, Value):
            return self.cast(operand, dtype)
        if is_float(dtype):
            return _held(float(operand), dtype)
        return bool(operand) if is_bool(dtype) else _wrapped(int(operand), dtype)

    def tensor(self, operand: Operand, dtype: str, shape: Sequence[int] = ()) -> Value:
        """An operand as a tensor of an element type; a number as a tensor of a shape."""
        if isinstance(operand, Value):
            return self.cast(operand, dtype)
        return self.full(shape, operand, dtype)

    def full(self, shape: Sequence[int], number: Number, dtype: str) -> Value:
        """A tensor with the same number everywhere."""
        converted = self.operand(number, dtype)
        assert not isinstance(converted, Value)
        return self.graph.constant(converted, shape, dtype)

    def promoted(self, *operands: Operand, dtype: str | None = None) -> list[Operand]:
        """Operands in one element type, by default that of PyTorch's promotion."""
        joint = result_type(*operands) if dtype is None else dtype
        return [self.operand(operand, joint) for operand in operands]

    def widened(self, value: Value) -> Value:
        """f16 and bf16 as f32, others as they are."""
        return self.cast(value, wide(value.dtype))

    def result(self, value: Value, index: int = 0) -> Value:
        """A value in the element type of a result."""
        return self.cast(value, self.results[index].dtype)

    # Random numbers

    def stream(self, count: int) -> tuple[Value, int]:
        """The seed, and an offset from which `count` random numbers on are this node's own."""
        return self.seed(), self.counters(-(-count // _WORDS))

    def random(self, form: PhiloxForm, shape: Sequence[int], dtype: str) -> Value:
        """Random numbers of `logical.philox` from counters that no other node uses."""
        seed, offset = self.stream(math.prod(shape))
        return self.graph.philox(seed, offset, list(shape), form, dtype)

    # Shapes

    def sizes(self, value: Value) -> tuple[int, ...]:
        """The sizes of a tensor, which are numbers."""
        return value.info.shape

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the first; -1 is the last. A tensor of rank 0 has axis 0, as in PyTorch."""
        most = max(rank, 1)
        if not -most <= axis < most:
            self.unsupported(f"dimension {axis} of a tensor of rank {rank}", "give one that it has")
        return axis % most

    def axes(self, axes: Sequence[int] | int | None, rank: int) -> list[int]:
        """Axes counted from the first, in rising order; none stands for all."""
        if isinstance(axes, int):
            axes = [axes]
        if not axes:
            return list(range(rank))
        return sorted(self.axis(axis, rank) for axis in axes) if rank else []

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """The same elements in the same order in another shape."""
        return value if self.sizes(value) == tuple(shape) else self.graph.reshape(value, list(shape))

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        """Broadcast from the right, as `Tensor.expand` does."""
        return value if self.sizes(value) == tuple(shape) else self.graph.broadcast_to(value, list(shape))

    def permute(self, value: Value, order: Sequence[int]) -> Value:
        """The dimensions in another order."""
        return value if list(order) == sorted(order) else self.graph.transpose(value, list(order))

    def part(self, value: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """The elements along an axis from start to before stop, each step-th one."""
        shape = self.sizes(value)
        if start == 0 and stop >= shape[axis] and step == 1:
            return value
        count = max(0, -(-(stop - start) // step))
        starts = [start if at == axis else 0 for at in range(len(shape))]
        sizes = [count if at == axis else size for at, size in enumerate(shape)]
        steps = [step if at == axis else 1 for at in range(len(shape))]
        return self.graph.slice(value, starts, sizes, steps)

    def drop(self, value: Value, axis: int) -> Value:
        """The tensor without an axis of size 1."""
        shape = self.sizes(value)
        return self.reshape(value, [*shape[:axis], *shape[axis + 1 :]])

    def insert(self, value: Value, axis: int) -> Value:
        """The tensor with a new axis of size 1."""
        shape = self.sizes(value)
        return self.reshape(value, [*shape[:axis], 1, *shape[axis:]])


def listed(result: Any) -> list[Value | None]:
    """The results of a row, as a list with an entry for each."""
    return [result] if isinstance(result, Value) or result is None else list(result)
