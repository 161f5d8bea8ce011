"""The lowered form of a traced graph: a logical program, and how its arguments and results map to the graph's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from xdsl.dialects.builtin import ModuleOp

from aicf.frontends.torch.ops.base import Tensor
from aicf.frontends.torch.provenance import Provenance

PortRole: TypeAlias = Literal["input", "param", "state"]


@dataclass(frozen=True)
class Port:
    """A tensor at the boundary of the program.

    Args:
        name: Of the argument or result of the program.
        index: Of the placeholder of the graph, or of its result.
        role: Its role in the program; a result has the role `input`, as it changes with every call.
        tensor: Sizes in PyTorch's order, and the element type.
        strides: In PyTorch, in elements.
        order: The dimensions of PyTorch's tensor, outermost in memory first: the program has them in this order.
        device: That PyTorch has the tensor on.
    """

    name: str
    index: int
    role: PortRole
    tensor: Tensor
    strides: tuple[int, ...]
    order: tuple[int, ...]
    device: Any = None

    @property
    def dense_strides(self) -> tuple[int, ...]:
        """The strides, in elements, of a tensor that is dense in this order."""
        strides = [0] * len(self.order)
        step = 1
        for axis in reversed(self.order):
            strides[axis] = step
            step *= self.tensor.shape[axis]
        return tuple(strides)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The sizes in the order of memory: what the program reads or writes, row-major."""
        return tuple(self.tensor.shape[axis] for axis in self.order)


@dataclass(frozen=True)
class Computed:
    """A result that the program writes."""

    port: Port


@dataclass(frozen=True)
class View:
    """A result that shares the memory of other results, which the program writes.

    Args:
        port: The tensor that they are views of.
        shape, strides: Of this one.
        offset: From the start of that tensor, in elements.
    """

    port: Port
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Passed:
    """A result that is an unchanged argument of the graph, by the index of its placeholder."""

    placeholder: int


@dataclass(frozen=True)
class Alias:
    """A result that is a view of an argument of the graph.

    Args:
        placeholder: Its index.
        shape, strides: Of the view.
        offset: From the start of the argument, in elements.
    """

    placeholder: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Void:
    """A result without elements, and the device that PyTorch has it on."""

    tensor: Tensor
    device: Any = None


@dataclass(frozen=True)
class NoTensor:
    """A result that is a number, or None."""

    value: Any


Output: TypeAlias = Computed | View | Passed | Alias | Void | NoTensor


@dataclass(frozen=True)
class Lowered:
    """A traced graph, lowered for one combination of its sizes.

    Args:
        module: The logical program; None if the graph computes nothing.
        inputs: The arguments of the program that the graph has too, in order.
        outputs: The results of the graph, in order.
        updates: Arguments of the graph that get new values, by the index of the placeholder; each is a `state` of the
            program.
        has_seed: Whether the program has the input `aicf.seed`, an i64 of rank 0 that seeds its random numbers.
        notes: Decisions of the lowering, as `(node, decision)`.
        provenance: The node of each op of the program.
    """

    module: ModuleOp | None
    inputs: Sequence[Port]
    outputs: Sequence[Output]
    updates: Sequence[int]
    has_seed: bool
    notes: Sequence[tuple[str, str]] = ()
    provenance: Provenance = field(default_factory=Provenance)


@dataclass(frozen=True)
class Roles:
    """How the program treats placeholders and results of a graph, by index.

    Args:
        names: Of placeholders; the default is the name of the node.
        params: Parameters and buffers, of which kernels may keep packed copies.
        updates: Nodes whose values become the new values of placeholders, as `{index of the placeholder: name of the
            node}`; mutations that the graph itself writes, with `copy_`, need not be here.
        hidden: Results of the graph, by index, that are only such new values.
        results: Names of results, by index; the default is the name of the node.
        suffix: Of the ids of ops, if other programs of the module have the same ops.
        root: The path of the model in the module that was traced; paths of modules begin after it.
        is_alone: Whether the program runs without PyTorch: its arguments and results are row-major, and views
            of arguments are copied.
        is_differentiated: Whether AICF differentiates the program; `detach` stops gradients then.
        copies: Whether results that are arguments, or views of arguments or of each other, are copied.
        backward: Names of nodes of the backward part: values of other nodes that they read are marked by
            `logical.save`.
    """

    names: Mapping[int, str] = field(default_factory=dict[int, str])
    params: frozenset[int] = frozenset()
    updates: Mapping[int, str] = field(default_factory=dict[int, str])
    hidden: frozenset[int] = frozenset()
    results: Mapping[int, str] = field(default_factory=dict[int, str])
    suffix: str = ""
    root: str = ""
    is_alone: bool = False
    is_differentiated: bool = False
    copies: bool = False
    backward: frozenset[str] = frozenset()
