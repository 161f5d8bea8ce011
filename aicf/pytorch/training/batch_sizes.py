"""Forward parts of batches of many sizes: traced size by size at first, then once with symbolic sizes.

A trace is used for another batch only where all that PyTorch assumed for it holds: the sizes and strides of the batch,
the ranges of symbolic sizes, and its guards. What PyTorch cannot trace with symbolic sizes is traced for each batch.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, TypeAlias, cast

from torch import Tensor, nn
from torch.export import Dim, ShapesCollection
from torch.utils._pytree import tree_map_only

from aicf.errors import PolicyError, UnsupportedOp
from aicf.frontends.torch.sizes import number_of, value_of
from aicf.pytorch.programs import bindings_of
from aicf.pytorch.training.forward_part import ForwardCall, batch_inputs, lowered_part, traced_part
from aicf.pytorch.training.module_state import autocast_types, modes_of, signature_of, step_tensors
from aicf.pytorch.training.program import Model

LOGGER = logging.getLogger("aicf.pytorch")
_BY_THEMSELVES = 2
"""Batches that are traced for their own sizes: many loops have those of one size and the last one of each epoch. A
trace with symbolic sizes takes longer."""
_LEAST = 2
"""PyTorch assumes of a symbolic size that it is not 0 or 1."""
_MOST_FORMS = 4
_Found: TypeAlias = tuple[Any, Mapping[str, int]]
"""A functional `torch.export.ExportedProgram`, and the value of each symbolic size."""


class ForwardParts:
    """Traces and lowers forward parts without gradients, and keeps traces for batches to come."""

    def __init__(self) -> None:
        self._by_form: OrderedDict[object, _Traces] = OrderedDict()

    def __call__(
        self,
        module: nn.Module,
        batch: tuple[Any, ...],
        named: Mapping[str, Any],
        name: str,
        trained: Set[str],
    ) -> Model:
        """The forward part for a batch.

        Args:
            module: Returns the loss; its submodule `model` is the trained module.
            batch, named: Its arguments, by position and by name.
            name: Of the program.
            trained: Names of the parameters to train.

        Raises:
            NoRule: between one of them and the loss, PyTorch's gradient is not the derivative of the ops.
            UnsupportedOp, InvalidIR: as in `lower_graph`.
        """
        call = ForwardCall(module, batch, named, trained)
        traces = self._traces_of(call)
        try:
            if (found := traces.kept(call) or traces.symbolic(call)) is not None:
                return lowered_part(call, name, *found)
        except Exception as error:  # if symbols are not its cause, it comes again below
            traces.give_up(error)
        return lowered_part(call, name, traces.fixed(call), {})

    def _traces_of(self, call: ForwardCall) -> _Traces:
        """The traces that may be used for a call, but for the sizes of its batch."""
        values, spec = call.leaves()
        tensors = step_tensors(call.module)
        state = (modes_of(call.module), signature_of(tensors), autocast_types(), frozenset(call.trained))
        form = (str(spec), *map(_form, values), *state)
        traces = self._by_form.setdefault(form, _Traces(tensors))
        self._by_form.move_to_end(form)
        if len(self._by_form) > _MOST_FORMS:
            self._by_form.popitem(last=False)
        return traces


def _form(value: Any) -> object:
    if isinstance(value, Tensor):
        return value.dtype, value.device, value.dim()
    return type(cast(object, value)), value


class _Traces:
    """The traces of batches that differ only in their sizes.

    Args:
        tensors: Of the module. They are held, so that no other tensor gets the identity of one of them.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._first = list[tuple[int, ...]]()
        self._count = 0
        self._changing = set[tuple[int, int]]()
        """Dimensions that had several sizes, each by the number of its tensor and its own."""
        self._symbolic = frozenset[tuple[int, int]]()
        """Those of which the program, if it was traced with symbols, has symbols."""
        self._program: Any = None
        self._is_fixed = False

    def kept(self, call: ForwardCall) -> _Found | None:
        """The latest program, if it is valid for a call."""
        values, _ = call.leaves()
        self._note([tuple(value.shape) for value in values if isinstance(value, Tensor)])
        if self._program is None:
            return None
        bindings = valid_bindings(self._program, values)
        return None if bindings is None else (self._program, bindings)

    def _note(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self._count += 1
        self._first = self._first or list(shapes)
        for number, (shape, first) in enumerate(zip(shapes, self._first, strict=True)):
            self._changing |= {(number, dim) for dim, size in enumerate(shape) if size != first[dim]}

    def symbolic(self, call: ForwardCall) -> _Found | None:
        """A new program with symbols for all sizes that have changed; None if it would be of no use."""
        values, _ = call.leaves()
        tensors = [value for value in values if isinstance(value, Tensor)]
        if self._is_fixed or self._count <= _BY_THEMSELVES or self._changing <= self._symbolic:
            return None
        if any(tensors[number].shape[dim] < _LEAST for number, dim in self._changing):
            return None
        self._symbolic = frozenset(self._changing)
        program = traced_part(*self._with_symbols(call))
        if (bindings := valid_bindings(program, values)) is None:
            return None
        self._program = program
        return program, bindings

    def _with_symbols(self, call: ForwardCall) -> tuple[ForwardCall, Any]:
        """The call, and which dimensions get symbols, as `torch.export.export` takes it.

        PyTorch marks the tensors, so they are others on the same memory. One may be there twice."""
        values, _ = call.leaves()
        others = {id(value): value.detach() for value in values if isinstance(value, Tensor)}
        batch, named = tree_map_only(Tensor, lambda value: others[id(value)], (call.batch, dict(call.named)))
        tensors = [others[id(value)] for value in values if isinstance(value, Tensor)]
        dims: dict[int, dict[int, Any]] = {}
        for number, dim in self._changing:
            dims.setdefault(id(tensors[number]), {})[dim] = Dim.DYNAMIC
        shapes: Any = ShapesCollection()
        for tensor in others.values():
            if id(tensor) in dims:
                shapes[tensor] = dims[id(tensor)]
        return replace(call, batch=batch, named=named), shapes.dynamic_shapes(call.module, batch, named)

    def fixed(self, call: ForwardCall) -> Any:
        """A new program for the sizes of one batch."""
        try:
            program = traced_part(call)
        except Exception:
            self._is_fixed = True
            raise
        if not self._symbolic:
            self._program = program
        return program

    def give_up(self, error: Exception) -> None:
        """Traces each batch by itself from now on."""
        reason = str(error).strip().partition("\n")[0]
        LOGGER.info("each size of a batch is traced by itself: %s: %s", type(error).__name__, reason)
        self._is_fixed, self._program = True, None


def valid_bindings(program: Any, values: Sequence[Any]) -> Mapping[str, int] | None:
    """The value of each symbolic size for a batch, by its name; None if the program is not for such a batch.

    Args:
        program: A functional `torch.export.ExportedProgram`.
        values: Of the flattened batch.
    """
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    inputs = [nodes[index] for index in batch_inputs(program)]
    bindings = bindings_of(inputs, values)
    try:
        pairs = zip(inputs, values, strict=True)
        is_valid = (
            all(_is_alike(node.meta["val"], value, bindings) for node, value in pairs)
            and all(_is_in_range(program, name, size) for name, size in bindings.items())
            and all(bool(value_of(each, bindings)) for each in _assumed(inputs))
        )
    except (PolicyError, UnsupportedOp):  # a symbol that the sizes of the batch do not tell
        return None
    return bindings if is_valid else None


def _is_alike(fake: Any, value: Any, bindings: Mapping[str, int]) -> bool:
    if not isinstance(fake, Tensor):
        return True  # the form of the batch has it
    sizes, own = (*fake.shape, *fake.stride()), (*value.shape, *value.stride())
    return all(number_of(size, bindings) == actual for size, actual in zip(sizes, own, strict=True))


def _is_in_range(program: Any, name: str, size: int) -> bool:
    ranges = {str(symbol): allowed for symbol, allowed in program.range_constraints.items()}
    return size >= _LEAST and (name not in ranges or bool(ranges[name].lower <= size <= ranges[name].upper))


def _assumed(inputs: Sequence[Any]) -> Iterator[Any]:
    """What PyTorch assumed of the symbols, as expressions that must be true."""
    modes = {id(mode): mode for node in inputs if (mode := getattr(node.meta["val"], "fake_mode", None))}
    for environment in (mode.shape_env for mode in modes.values() if mode.shape_env is not None):
        deferred = [each for some in environment.deferred_runtime_asserts.values() for each in some]
        yield from (environment.replace(each.expr) for each in (*environment.guards, *deferred))
