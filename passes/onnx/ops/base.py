"""The ground of the ONNX op map: what a row is, and the node that a row reads and writes with.

A row says how one op of ONNX is written in logical ops of static shapes:

    @row("Gemm", since=7)
    def _gemm(node: Node) -> Result:
        "alpha * A' @ B' + beta * C."
        product = node.apply(logical.MatmulOp, node.operand(0), node.operand(1))
        return node.elementwise(logical.AddOp, product, node.operand(2))

The row with the largest ``since`` that is no later than the opset of the graph is taken. It is written once, for
tensors that a program computes: where all operands of a node are known, the ops that its row adds are evaluated on the
spot, so that arithmetic on shapes needs no second definition. Nothing here walks a graph: `passes/onnx/lowering.py`
does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from xdsl.ir import Region, SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import ElementType, TensorInfo, element_of_dtype, tensor_info
from aicf.errors import InvalidIR, UnsupportedOp, ValueNeeded
from aicf.passes.onnx.ops.attributes import Attributes
from aicf.passes.support.writing import Writer

Array: TypeAlias = NDArray[Any]

MAX_WORKED_OUT = 1 << 22
"""Most elements that a row computes in NumPy, of a table or of indices."""


@dataclass(frozen=True, eq=False)
class Known:
    """A tensor whose elements are known while the graph is lowered.

    Args:
        array: The elements, in the host dtype of the element table.
        write: Writes the ops that compute it, of one that is too large for a constant of the IR.
        is_weight: Whether it follows from weights that may be trained: it is written by `write`, however small it is.
    """

    array: Array
    write: Callable[[], SSAValue] | None = None
    is_weight: bool = False


@dataclass(frozen=True, eq=False)
class Items:
    """A value of a sequence type: its length and its elements are known, the elements' elements need not be."""

    items: tuple[SSAValue | Known, ...]


@dataclass(frozen=True, eq=False)
class Counted:
    """A tensor of the program of which only the first slices along an axis are there.

    What rows get is the tensor; how it goes on to be counted is the business of `passes/onnx/counted.py`.

    Args:
        value: All of it: after those slices come as many more as there could be, with values that mean nothing.
        count: How many are there (i64, of rank 0), known at run time.
        axis: Along which they are counted.
    """

    value: SSAValue
    count: SSAValue
    axis: int = 0


Tensor: TypeAlias = SSAValue | Known
"""A tensor of the program, or one that is known."""
Value: TypeAlias = Tensor | Items | Counted | None
"""What a name of the graph stands for; None is an optional value that is not there."""

OneResult: TypeAlias = SSAValue | Array | Known | Items | Counted | None
Result: TypeAlias = OneResult | Sequence[OneResult]
"""What a row gives: its output, or a list of them, one for each output; an array is a result that is known."""

Lower: TypeAlias = "Callable[[Node], Result]"


# The table


@dataclass(frozen=True)
class Row:
    """How one op is lowered from one opset on.

    Args:
        since: The first opset of the domain that it serves.
        until: The last one; None for no end.
        lower: Writes the ops.
    """

    op_type: str
    domain: str
    since: int
    until: int | None
    lower: Lower


ROWS: dict[tuple[str, str], list[Row]] = {}
"""Domain ("" is ONNX's own) and op type to rows, later opsets first."""


def row(
    op_type: str, since: int = 1, *, until: int | None = None, domain: str = ""
) -> Callable[[Lower], Lower]:
    """Enters the function below into the table; one function may have several rows.

    Args:
        op_type: As nodes name it.
        since: The first opset of the domain in which the function is right.
        until: The last one, of an op that later opsets dropped.
        domain: "" for ONNX's own.
    """

    def enter(lower: Lower) -> Lower:
        entries = ROWS.setdefault((domain, op_type), [])
        if any(entry.since == since for entry in entries):
            raise ValueError(f"op map: two rows for {op_type} since opset {since}")
        entries.append(Row(op_type, domain, since, until, lower))
        entries.sort(key=lambda entry: -entry.since)
        return lower

    return enter


def find_row(op_type: str, domain: str, opset: int) -> Row | None:
    """The row for an op in an opset of its domain, None if there is none."""
    for entry in ROWS.get((domain, op_type), ()):
        if entry.since <= opset:
            return entry if entry.until is None or opset <= entry.until else None
    return None


# What a row works with


@dataclass(frozen=True)
class Header:
    """What a node is, apart from its operands.

    Args:
        op_type: Such as `Gemm`.
        domain: "" for ONNX's own.
        name: Unique in the graph, for ids and messages.
        opset: The version of the domain that the graph imports.
        attributes: By name.
        bodies: Graphs by the name of the attribute that holds them.
        outputs: Whether each output is wanted; an absent one has no reader.
        training: Whether a node in training mode is taken as such; else all are taken in evaluation.
    """

    op_type: str
    domain: str
    name: str
    opset: int
    attributes: Attributes
    bodies: dict[str, Region]
    outputs: tuple[bool, ...]
    training: bool = False

    def __str__(self) -> str:
        return f"{self.op_type} '{self.name}'"


class Emitter(Protocol):
    """Where the ops of a node go: into the program, or through the interpreter."""

    path: str
    """Names this run of the node: no other one in the program has it."""

    def meta(self, name: str) -> SSAValue | None:
        """A meta of the program, i64, which the seed or the number of the step is; None in evaluation."""
        ...

    def evaluate(self, name: str) -> None:
        """Note a node in training mode that is taken in evaluation."""
        ...

    def emit(self, op: LogicalOp, suffix: str) -> None:
        """Take an op whose operands were given by this emitter."""
        ...

    def tensor(self, known: Known) -> SSAValue:
        """A known tensor as an operand."""
        ...

    def runtime_inputs_of(self, index: int) -> list[str]:
        """The inputs of the graph that an operand is computed from at run time."""
        ...

    def inputs_of(self, value: SSAValue) -> list[str]:
        """The inputs of the graph that a value of the program is computed from."""
        ...

    def run(self, header: Header, body: Region, values: Sequence[Value], part: str) -> list[Value]:
        """Lower the nodes of a graph attribute, as part ``part`` of the node, and give the graph's results."""
        ...


class Node(Writer):
    """One node: what is known of it, and the writing of the ops that it becomes.

    A value that a row gets or makes is an SSA value of a static tensor type; sizes are numbers. What is wrong with
    the model is told by raising :meth:`invalid`, what AICF cannot do by raising :meth:`unsupported`; ValueError and
    VerifyException of what is called are turned into the former.
    """

    def __init__(self, header: Header, operands: Sequence[Value], emitter: Emitter) -> None:
        self.header = header
        self.op_type = header.op_type
        """Such as `Gemm`."""
        self.name = header.name
        """Unique in the graph."""
        self.opset = header.opset
        """The version of the node's domain that the graph imports."""
        self.attributes = header.attributes
        """``node.attributes.int("axis", -1)``; see :class:`Attributes`."""
        self.outputs = len(header.outputs)
        """The number of outputs, absent ones before others included."""
        self.count = len(operands)
        """The number of operands given, absent ones before others included."""
        self.path = emitter.path
        """Its name, and in bodies of other nodes which run of these it is in: unique in the program."""
        self._operands = operands
        self._emitter = emitter

    # What the node is

    def meta(self, name: str) -> SSAValue | None:
        """A meta of the program, an i64 of rank 0 that changes from step to step; None in evaluation."""
        return self._emitter.meta(name)

    def trains(self, says_so: bool) -> bool:
        """Whether the node, which may say that it is in training mode, is taken as such. What is not is noted."""
        if says_so and not self.header.training:
            self._emitter.evaluate(self.name)
        return says_so and self.header.training

    def wants(self, output: int) -> bool:
        """Whether an output has a name; what it would be need not be written otherwise."""
        return output < len(self.header.outputs) and self.header.outputs[output]

    def invalid(self, message: str) -> InvalidIR:
        """The error that the model is wrong here; to be raised."""
        return InvalidIR(f"{self.header}: {message}")

    def unsupported(self, reason: str) -> UnsupportedOp:
        """The error that AICF does not do this; ``reason`` says the way out too; to be raised."""
        return UnsupportedOp(f"{self.header}: {reason}")

    # Its operands

    def has(self, index: int) -> bool:
        """Whether an operand is given."""
        return index < len(self._operands) and self._operands[index] is not None

    def operand(self, index: int) -> SSAValue:
        """An operand as a tensor; a known one is a constant."""
        return self.tensor(self.tensor_value(index))

    def operands(self, first: int = 0) -> list[SSAValue]:
        """All operands from ``first`` on, all of which must be given."""
        return [self.operand(index) for index in range(first, self.count)]

    def optional(self, index: int) -> SSAValue | None:
        """An operand, None if it is absent."""
        return self.operand(index) if self.has(index) else None

    def raw(self, index: int) -> Tensor | Items:
        """An operand as it stands."""
        value = self._operands[index] if index < len(self._operands) else None
        if value is None:
            raise self.invalid(f"operand {index} is missing; the op needs it")
        if isinstance(value, Counted):
            raise self.depends(index, f"operand {index} has a number of rows that is known at run time only")
        return value

    def values(self, first: int) -> list[Value]:
        """All operands from ``first`` on as they stand, None for an absent one."""
        return list(self._operands[first:])

    def tensor_value(self, index: int) -> Tensor:
        """An operand as it stands, which must not be a sequence."""
        value = self.raw(index)
        if isinstance(value, Items):
            raise self.invalid(f"operand {index} is a sequence, a tensor is wanted")
        return value

    def type(self, index: int) -> TensorInfo:
        """Sizes and element type of an operand."""
        value = self.tensor_value(index)
        if isinstance(value, Known):
            return TensorInfo(value.array.shape, element_of_dtype(value.array.dtype))
        return tensor_info(value.type)

    def shape(self, index: int) -> tuple[int, ...]:
        """The sizes of an operand."""
        return self.type(index).shape

    def element(self, index: int) -> ElementType:
        """The element type of an operand."""
        return self.type(index).element

    def items(self, index: int) -> Items:
        """An operand of a sequence type."""
        value = self.raw(index)
        if not isinstance(value, Items):
            raise self.invalid(f"operand {index} is a tensor, a sequence is wanted")
        return value

    def known(self, index: int) -> Array | None:
        """The elements of an operand if they are known; None if they are not, or it is absent."""
        value = self._operands[index] if index < len(self._operands) else None
        return value.array if isinstance(value, Known) else None

    def value(self, index: int, what: str) -> Array:
        """The elements of an operand that the result's shape, or which ops there are, follows from.

        Args:
            what: Its name in the op's definition, such as "axes".

        Raises:
            UnsupportedOp: they are computed at run time.
        """
        array = self.known(index)
        if array is None:
            self.raw(index)
            names = self._emitter.runtime_inputs_of(index)
            computed = (
                f"follows from input {' and '.join(map(repr, names))} at run time"
                if names
                else ("is computed at run time")
            )
            raise self.depends(
                index,
                f"{what} (operand {index}) {computed}, and which ops there are depends on it; make it a constant of "
                "the model",
            )
        return array

    def depends(self, index: int, reason: str, on: SSAValue | None = None) -> UnsupportedOp:
        """The error that which ops there are depends on an operand; to be raised. It names the inputs to bind.

        Args:
            on: What of the operand it depends on, such as its count; by default its elements.
        """
        names = self._emitter.runtime_inputs_of(index) if on is None else self._emitter.inputs_of(on)
        bind = f", or bind the input: values={{{names[0]!r}: ...}} (--values)" if names else ""
        error = self.unsupported(f"{reason}{bind}")
        return ValueNeeded(error.message, inputs=tuple(names)) if names else error

    def one(self, index: int, what: str, kinds: str) -> int | bool:
        """The one element of an operand, which must be known.

        Args:
            what: As of :meth:`value`.
            kinds: The kinds of NumPy dtype that it may have: `iu` for a whole number, `b` for a truth value.
        """
        array = self.value(index, what)
        if array.size != 1:
            raise self.invalid(f"{what} has {array.size} elements; it has one")
        if array.dtype.kind not in kinds:
            wanted = "i1" if kinds == "b" else "an integer"
            raise self.invalid(f"{what} is {element_of_dtype(array.dtype).name}; it is {wanted}")
        return array.reshape(-1)[0].item()

    def ints(self, index: int, what: str) -> list[int]:
        """The elements of an operand, which must be known, as whole numbers in a list."""
        array = self.value(index, what)
        if array.dtype.kind not in "iu" or array.ndim > 1:
            raise self.invalid(f"{what} (operand {index}) is no list of integers")
        return [int(entry) for entry in array.reshape(-1)]

    def bounded(self, count: int, what: str) -> int:
        """A number of elements that are worked out here, as long as that takes no more than some megabytes.

        Raises:
            UnsupportedOp: there are more than :data:`MAX_WORKED_OUT`.
        """
        if count > MAX_WORKED_OUT:
            raise self.unsupported(
                f"{what} is {count}; at most {MAX_WORKED_OUT} elements are worked out when the model is compiled"
            )
        return count

    def ints_of(self, name: str, index: int) -> list[int] | None:
        """What an attribute says, or in later opsets an operand; None if neither is given."""
        if self.attributes.has(name):
            return self.attributes.ints(name, None)
        return self.ints(index, name) if self.has(index) else None

    # Writing

    def add(self, op: LogicalOp, suffix: str = "") -> SSAValue:
        """Insert an op and give its first result; ``suffix`` tells it apart from others of the node."""
        return self.add_all(op, suffix)[0]

    def add_all(self, op: LogicalOp, suffix: str = "") -> Sequence[SSAValue]:
        """Insert an op and give all its results."""
        self._emitter.emit(op, suffix or op.name.removeprefix("logical."))
        return op.results

    def apply(
        self,
        op_class: Callable[..., LogicalOp],
        *operands: SSAValue | float | Sequence[SSAValue],
        name: str = "",
        **properties: object,
    ) -> SSAValue:
        """An op of a class: ``node.apply(logical.SoftmaxOp, x, axis=1)``.

        Args:
            op_class: Its constructor gets operands and properties.
            operands: Tensors, lists of them, or numbers: a number is a splat like the first tensor.
            name: Tells the op apart from others of the node; the op's own name if empty.
        """
        return self.add(op_class(*self._tensors(operands), **properties), name)

    def _tensors(
        self, operands: Sequence[SSAValue | float | Sequence[SSAValue]]
    ) -> list[SSAValue | Sequence[SSAValue]]:
        like = next((operand for operand in operands if isinstance(operand, SSAValue)), None)
        found: list[SSAValue | Sequence[SSAValue]] = []
        for operand in operands:
            if isinstance(operand, int | float):
                if like is None:
                    raise TypeError("a number needs a tensor beside it; use full()")
                operand = self.splat(operand, like, "constant")
            found.append(operand)
        return found

    def elementwise(
        self,
        op_class: Callable[..., LogicalOp],
        *operands: SSAValue | float,
        name: str = "",
        **properties: object,
    ) -> SSAValue:
        """As :meth:`apply`, of an elementwise op whose operands broadcast to one shape by NumPy's rules."""
        tensors = [operand for operand in operands if isinstance(operand, SSAValue)]
        sizes = self.joint_shape(*(tensor_info(value.type).shape for value in tensors))
        spread = [
            self.broadcast_to(value, sizes) if isinstance(value, SSAValue) else value for value in operands
        ]
        return self.apply(op_class, *spread, name=name, **properties)

    def joint_shape(self, *shapes: Sequence[int]) -> tuple[int, ...]:
        """What shapes broadcast to by NumPy's rules."""
        joint = [1] * max(map(len, shapes), default=0)
        for shape in shapes:
            for axis, size in enumerate(shape, len(joint) - len(shape)):
                if size in (1, joint[axis]):
                    continue
                if joint[axis] != 1:
                    told = " and ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
                    raise self.invalid(f"shapes {told} do not broadcast; sizes are equal or 1 from the right")
                joint[axis] = size
        return tuple(joint)

    def constant(
        self, value: ArrayLike, element: ElementType | None = None, suffix: str = "constant"
    ) -> SSAValue:
        """A small tensor, in ``element`` or else the dtype that NumPy gives it."""
        array = np.asarray(value, None if element is None else element.dtype)
        return self._emitter.tensor(Known(array))

    def full(self, number: float, sizes: Sequence[int], element: ElementType) -> SSAValue:
        """A tensor of one value everywhere, of any size."""
        return self._emitter.tensor(Known(np.broadcast_to(np.asarray(number, element.dtype), tuple(sizes))))

    def splat(self, number: float, like: SSAValue, suffix: str = "constant") -> SSAValue:
        """A tensor of one value everywhere, of the shape and type of another."""
        info = tensor_info(like.type)
        return self.full(number, info.shape, info.element)

    def broadcast_to(self, value: SSAValue, sizes: Sequence[int], suffix: str = "broadcast") -> SSAValue:
        """The value repeated to ``sizes`` by NumPy's rules (aligned at the last dimension)."""
        rank = tensor_info(value.type).rank
        return self.broadcast(value, range(len(sizes) - rank, len(sizes)), sizes, suffix)

    def broadcast_axis(self, value: SSAValue, axis: int, sizes: Sequence[int]) -> SSAValue:
        """A vector along one axis of ``sizes``, repeated along all others; such as the bias of channels."""
        return self.broadcast(value, [axis], sizes, "broadcast")

    def transpose(self, value: SSAValue, permutation: Sequence[int], suffix: str = "transpose") -> SSAValue:
        """Result dimension i is dimension ``permutation[i]``; itself if nothing moves."""
        if list(permutation) == list(range(tensor_info(value.type).rank)):
            return value
        return self.add(logical.TransposeOp(value, permutation), suffix)

    def slice(
        self,
        value: SSAValue,
        starts: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        suffix: str = "slice",
    ) -> SSAValue:
        """``sizes[i]`` elements from ``starts[i]`` on; itself if that is all of it."""
        if tensor_info(value.type).sizes == tuple(sizes):
            return value
        return self.add(logical.SliceOp(value, starts, sizes, strides), suffix)

    def concat(self, parts: Sequence[SSAValue], axis: int, suffix: str = "concat") -> SSAValue:
        """The tensors one after the other; itself if it is one."""
        return parts[0] if len(parts) == 1 else self.add(logical.ConcatOp(parts, axis), suffix)

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the first; -1 is the last."""
        if not -rank <= axis < max(rank, 1):
            raise self.invalid(f"axis {axis} is out of range for rank {rank}; it is {-rank} to {rank - 1}")
        return axis + rank if axis < 0 else axis

    def axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """Axes counted from the first, in rising order."""
        found = sorted(self.axis(axis, rank) for axis in axes)
        if len(set(found)) != len(found):
            raise self.invalid(f"axes {list(axes)} name an axis twice")
        return found

    # Tensors that may be known: elements of sequences, inputs of graphs

    def tensor(self, value: Tensor) -> SSAValue:
        """As an operand of ops."""
        return self._emitter.tensor(value) if isinstance(value, Known) else value

    def shape_of(self, value: Tensor) -> tuple[int, ...]:
        """The sizes."""
        return value.array.shape if isinstance(value, Known) else tensor_info(value.type).shape

    def part(self, value: Tensor, axis: int, start: int, size: int) -> Tensor:
        """``size`` elements along an axis from ``start`` on."""
        if isinstance(value, Known):
            return Known(value.array.take(range(start, start + size), axis))
        shape = self.shape_of(value)
        starts = [start if dim == axis else 0 for dim in range(len(shape))]
        return self.slice(value, starts, [*shape[:axis], size, *shape[axis + 1 :]])

    def pick(self, value: Tensor, axis: int, index: int) -> Tensor:
        """The elements at one place of an axis, which is dropped."""
        if isinstance(value, Known):
            return Known(value.array.take(index, axis))
        shape = self.shape_of(value)
        taken = self.part(value, axis, index, 1)
        return self.reshape(self.tensor(taken), [*shape[:axis], *shape[axis + 1 :]])

    def stack(self, values: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors of one type, one after the other along a new axis."""
        if all(isinstance(value, Known) for value in values):
            return Known(np.stack([value.array for value in values if isinstance(value, Known)], axis))
        shape = list(self.shape_of(values[0]))
        shape.insert(axis, 1)
        return self.concat([self.reshape(self.tensor(value), shape) for value in values], axis)

    # Graph attributes

    def body(self, name: str) -> Region:
        """The graph that an attribute holds."""
        if name not in self.header.bodies:
            raise self.invalid(f"attribute {name} is missing; it is a graph")
        return self.header.bodies[name]

    def run(self, body: Region, values: Sequence[Value], part: str) -> list[Value]:
        """Writes the nodes of a graph attribute here.

        Args:
            body: From :meth:`body`.
            values: What its inputs are.
            part: Tells its nodes apart from those of another run, such as "2" of the second iteration.
        """
        return self._emitter.run(self.header, body, values, part)
