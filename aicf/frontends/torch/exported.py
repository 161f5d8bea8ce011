"""Programs of `torch.export`, and `.pt2` files, as models of AICF: `aicf.compile(torch.export.export(model, args))`."""

from __future__ import annotations

import itertools
import re
import warnings
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from aicf.dialects.dims import parse_size
from aicf.dialects.logical import DispatchOp
from aicf.errors import InvalidIR, PolicyError, UnsupportedOp
from aicf.frontends.exported_program import ExportedProgram
from aicf.frontends.torch.decompositions import of_export
from aicf.frontends.torch.lowering import lower_graph
from aicf.frontends.torch.nodes import LEAVE_OUT, check_ops, is_tensor
from aicf.frontends.torch.program import Computed, Lowered, Roles
from aicf.frontends.torch.sizes import expression_of, symbols_of
from aicf.support.torch_types import SEED, host_view, name_of

_WEIGHTS = ("PARAMETER", "BUFFER", "CONSTANT_TENSOR")
_RESULTS = ("USER_OUTPUT", "BUFFER_MUTATION")


@contextmanager
def quiet_export() -> Generator[None]:
    """Hides PyTorch's warning about its own use of tree specs, which it gives in each export."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")
        yield


def load_exported(path: Path) -> Any:
    """Reads a `.pt2` file.

    Raises:
        InvalidIR: PyTorch cannot read it.
    """
    export = import_module("torch.export")
    try:
        with quiet_export():
            return export.load(path)
    except Exception as error:
        raise InvalidIR(
            f"PyTorch cannot read it: {error}; write it with torch.export.save", location=str(path)
        ) from error


Described: TypeAlias = tuple[str, tuple[int | str, ...], str]
"""Name, sizes and element type of a tensor; a symbolic size is in text, `?` if it is no polynomial."""


@dataclass(frozen=True)
class Surface:
    """Inputs and outputs of an exported program.

    Args:
        function: For the sizes that it was traced with.
        inputs: In the order of the module's arguments, unused ones included, then the seed of random numbers, if there
            is one.
        outputs: In order.
    """

    function: FuncOp
    inputs: Sequence[Described]
    outputs: Sequence[Described]


class ExportedModel:
    """A program of `torch.export`, traced once and lowered for each combination of its sizes.

    Args:
        program: A `torch.export.ExportedProgram`.
        name: Of the model.
        is_shared: Whether the caller has its tensors and may change them later; weights are copies then.

    Attributes:
        weights: Values of parameters, buffers and constants, by the names that PyTorch has for them.

    Raises:
        UnsupportedOp: an argument or a result has no counterpart.
    """

    def __init__(self, program: ExportedProgram, name: str, *, is_shared: bool) -> None:
        with quiet_export():
            functional = program.run_decompositions(of_export())
        self.name = name
        self._graph = functional.graph
        self._symbols = _symbols(self._graph)
        self._ranges = _ranges(functional)
        self._roles = roles_of(functional)
        self.weights: Mapping[str, NDArray[Any]] = _weights(functional, is_shared)

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the symbolic sizes."""
        return tuple(self._symbols)

    def module(self, buckets: Mapping[str, Sequence[int]]) -> ModuleOp:
        """Logical IR: a function for each choice of sizes and the table of them, or the only function.

        Args:
            buckets: The sizes wanted for each symbolic size.

        Raises:
            UnsupportedOp: an op has no counterpart.
            PolicyError: a symbolic size has no value or one that the program does not allow, or a name is unknown.
        """
        _check_names(buckets, self._symbols)
        rows: list[tuple[tuple[int, ...], str]] = []
        functions: list[Operation] = []
        for chosen in itertools.product(*(buckets[own] for own in self._symbols)):
            sizes = dict(zip(self._symbols, chosen, strict=True))
            if (refusal := self.refusal(sizes)) is not None:
                raise PolicyError(f"dims: {refusal}")
            suffix = "@" + ",".join(f"{own}={size}" for own, size in sizes.items()) if sizes else ""
            function = _function_of(self._lowered(sizes, suffix))
            function.detach()
            functions.append(function)
            rows.append((chosen, self.name + suffix))
        table: list[Operation] = [DispatchOp(self.name, self.dims, rows)] if self.dims else []
        return ModuleOp([*table, *functions])

    def refusal(self, sizes: Mapping[str, int]) -> str | None:
        """Why the program does not allow these sizes, with advice; None if it does."""
        for name, size in sizes.items():
            least, most = self._ranges.get(self._symbols[name], (1, None))
            if size < least or (most is not None and size > most):
                allowed = f"{least} or more" if most is None else f"{least} to {most}"
                return f"{name} is {size}, and the program was exported for {allowed}; export it with another range"
        return None

    def surface(self) -> Surface:
        """Inputs and outputs. Raises as `module`."""
        lowered = self._lowered({name: self._example(symbol) for name, symbol in self._symbols.items()}, "")
        names = {symbol: name for name, symbol in self._symbols.items()}
        ports = {port.index: port.name for port in lowered.inputs}
        inputs = [
            _described(ports.get(index, self._roles.names[index]), node, names)
            for index, node in enumerate(_placeholders(self._graph))
            if index not in self._roles.params
            and index not in self._roles.updates
            and is_tensor(fake := node.meta.get("val"))
            and name_of(fake.dtype) is not None  # others are unused
        ]
        (results,) = self._graph.output_node().args
        outputs = [
            _described(output.port.name, results[output.port.index], names)
            for output in lowered.outputs
            if isinstance(output, Computed)
        ]
        if lowered.has_seed:
            inputs.append((SEED, (), "i64"))
        return Surface(_function_of(lowered), inputs, outputs)

    def _lowered(self, sizes: Mapping[str, int], suffix: str) -> Lowered:
        bindings = {self._symbols[name]: size for name, size in sizes.items()}
        roles = replace(self._roles, suffix=suffix)
        lowered = lower_graph(self._graph, self.name + suffix, bindings, roles)
        if lowered.module is None:
            raise InvalidIR(f"'{self.name}' computes nothing; there is nothing to compile")
        return lowered

    def _example(self, symbol: str) -> int:
        """A size that the program allows: the one that it was traced with, if it stores that."""
        sizes = [
            size for node in _placeholders(self._graph) for size in getattr(node.meta.get("val"), "shape", ())
        ]
        for size in sizes:
            if str(expression_of(size)) == symbol and (hint := size.node.hint) is not None:
                return int(hint)
        return max(2, self._ranges.get(symbol, (1, None))[0])


def _function_of(lowered: Lowered) -> FuncOp:
    assert lowered.module is not None
    function = lowered.module.body.block.first_op
    assert isinstance(function, FuncOp)
    return function


def _placeholders(graph: Any) -> list[Any]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _described(name: str, node: Any, names: Mapping[str, str]) -> Described:
    fake = node.meta["val"]
    return name, tuple(_size_text(size, names) for size in fake.shape), name_of(fake.dtype) or "?"


def _size_text(size: Any, names: Mapping[str, str]) -> int | str:
    """A size, with the user's names for its symbols."""
    expression = expression_of(size)
    if expression is None:
        return int(size)
    text = str(expression)
    for symbol in symbols_of(size):
        text = re.sub(rf"\b{symbol}\b", names.get(symbol, symbol), text)
    try:
        return str(parse_size(text))
    except ValueError:
        return "?"


def _symbols(graph: Any) -> dict[str, str]:
    """The symbolic sizes of the inputs, by the names that the user gave: the names of their symbols."""
    found: dict[str, str] = {}
    for node in _placeholders(graph):
        fake = node.meta.get("val")
        for size in getattr(fake, "shape", (fake,)):  # of a tensor, or a number that is an input
            for symbol in sorted(symbols_of(size) - set(found.values())):
                found[_user_name(fake, symbol) or symbol] = symbol
    return found


def _user_name(fake: Any, symbol: str) -> str | None:
    """The user's name of a size, `Dim("batch")`; a loaded program does not store it."""
    environment: Any = getattr(getattr(fake, "fake_mode", None), "shape_env", None)
    names: Mapping[str, str] = getattr(environment, "source_name_to_debug_name", {})
    variables: Mapping[str, Any] = getattr(environment, "source_to_var", {})
    for source, variable in variables.items():
        if variable.name == symbol and source in names:
            return names[source]
    return None


def _ranges(program: Any) -> dict[str, tuple[int, int | None]]:
    """The least and the largest value of each symbol; None for no bound.

    Traces assume sizes of at least 2 by default, and are valid for 1 too.
    """
    found: dict[str, tuple[int, int | None]] = {}
    for symbol, allowed in program.range_constraints.items():
        least, most = (int(bound) if bound.is_Integer else None for bound in (allowed.lower, allowed.upper))
        found[str(symbol)] = (least if least is not None and least > 2 else 1, most)
    return found


def _check_names(buckets: Mapping[str, Sequence[int]], symbols: Mapping[str, str]) -> None:
    listed = ", ".join(symbols) or "none"
    if unknown := [name for name in buckets if name not in symbols]:
        raise PolicyError(
            f"dims: the program has no symbolic dimension {unknown[0]}; its dimensions are: {listed}"
        )
    if unbound := [name for name in symbols if name not in buckets]:
        example = ";".join(f"{name}=1" for name in unbound)
        raise PolicyError(
            f'unbound symbolic dimensions: {", ".join(unbound)}; give sizes for each, as in dims="{example}" '
            f"(--dims '{example}' on the command line)"
        )


def roles_of(program: Any, prefix: str = "") -> Roles:
    """The roles of the arguments and results of a functional program.

    Args:
        prefix: Removed from the names of weights.

    Raises:
        UnsupportedOp: one is neither a tensor nor a number, or an op has no counterpart.
    """
    check_ops(program.graph, LEAVE_OUT)
    signature = program.graph_signature
    names: dict[int, str] = {}
    by_target: dict[str, int] = {}
    for index, spec in enumerate(signature.input_specs):
        kind = spec.kind.name
        if kind not in (*_WEIGHTS, "USER_INPUT"):
            raise UnsupportedOp(
                f"an argument of the program is a {kind.lower()}; pass tensors and numbers only"
            )
        names[index] = spec.arg.name if kind == "USER_INPUT" else spec.target.removeprefix(prefix)
        by_target[spec.target] = index
    params = frozenset(
        index for index, spec in enumerate(signature.input_specs) if spec.kind.name in _WEIGHTS
    )
    updates: dict[int, str] = {}
    hidden: set[int] = set()
    for index, spec in enumerate(signature.output_specs):
        kind = spec.kind.name
        if kind not in _RESULTS:
            raise UnsupportedOp(
                f"a result of the program is a {kind.lower().replace('_', ' ')}; return the new value instead"
            )
        if kind == "BUFFER_MUTATION":
            updates[by_target[spec.target]] = spec.arg.name
            hidden.add(index)
    results = _result_names(program, len(signature.output_specs))
    return Roles(names, params, updates, frozenset(hidden), results, is_alone=True)


def _result_names(program: Any, count: int) -> dict[int, str]:
    """The keys of a mapping that the model returns, by the index of the result."""
    keys = _result_keys(program)
    return {count - len(keys) + index: str(key) for index, key in enumerate(keys)}


def _result_keys(program: Any) -> list[object]:
    """The keys of the mapping of tensors that the model returns, such as a dictionary; empty if it returns no such."""
    spec = program.call_spec.out_spec
    bases: Sequence[type] = getattr(getattr(spec, "type", None), "__mro__", ())
    if dict not in bases:
        return []
    context: Any = spec.context[1] if defaultdict in bases else spec.context
    keys = list[object](context or ())
    return keys if len(keys) == spec.num_leaves else []


def _weights(program: Any, is_shared: bool) -> dict[str, NDArray[Any]]:
    values = {**program.state_dict, **program.constants}
    found: dict[str, NDArray[Any]] = {}
    for spec in program.graph_signature.input_specs:
        value = values.get(spec.target) if spec.kind.name in _WEIGHTS else None
        if value is not None and value.device.type != "meta":  # weights of meta tensors come with the model
            array = host_view(value.cpu().contiguous())
            found[spec.target] = array.copy() if is_shared else array
    return found
