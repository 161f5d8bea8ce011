"""Programs of `torch.export`, and `.pt2` files, as models of AICF: `aicf.compile(torch.export.export(model, args))`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from aicf.dialects.logical import DispatchOp
from aicf.errors import InvalidIR, PolicyError, UnsupportedOp
from aicf.frontends.exported_program import ExportedProgram
from aicf.frontends.torch.decompositions import of_export
from aicf.frontends.torch.lowering import lower_graph
from aicf.frontends.torch.program import Roles
from aicf.frontends.torch.sizes import symbols_of

_WEIGHTS = ("PARAMETER", "BUFFER", "CONSTANT_TENSOR")
_RESULTS = ("USER_OUTPUT", "BUFFER_MUTATION")


@dataclass(frozen=True)
class Exported:
    """An exported program that was read.

    Args:
        module: A logical function, or one for each choice of sizes and the table of them.
        name: Of the model.
        weights: Values of parameters, buffers and constants, by the names that PyTorch has for them.
    """

    module: ModuleOp
    name: str
    weights: Mapping[str, NDArray[Any]]


def load_exported(path: Path) -> Any:
    """Reads a `.pt2` file.

    Raises:
        InvalidIR: PyTorch cannot read it.
    """
    export = import_module("torch.export")
    try:
        return export.load(path)
    except Exception as error:
        raise InvalidIR(
            f"PyTorch cannot read it: {error}; write it with torch.export.save", location=str(path)
        ) from error


def read_exported(program: ExportedProgram, name: str, buckets: Mapping[str, Sequence[int]]) -> Exported:
    """An exported program as logical IR, with a function for each choice of its sizes.

    Args:
        program: A `torch.export.ExportedProgram`.
        name: Of the model.
        buckets: The sizes wanted for each symbolic size.

    Raises:
        UnsupportedOp: an op or an argument has no counterpart.
        PolicyError: a symbolic size has no value, or a name is none.
    """
    functional = program.run_decompositions(of_export())
    symbols = _symbols(functional.graph)
    _check_names(buckets, symbols)
    roles = roles_of(functional)
    rows: list[tuple[tuple[int, ...], str]] = []
    functions: list[Operation] = []
    for sizes in itertools.product(*(buckets[own] for own in symbols)):
        suffix = "@" + ",".join(f"{own}={size}" for own, size in zip(symbols, sizes, strict=True))
        suffix = suffix if symbols else ""
        bindings = dict(zip(symbols.values(), sizes, strict=True))
        lowered = lower_graph(functional.graph, name + suffix, bindings, replace(roles, suffix=suffix))
        if lowered.module is None:
            raise InvalidIR(f"'{name}' computes nothing; there is nothing to compile")
        function = lowered.module.body.block.first_op
        assert function is not None
        function.detach()
        functions.append(function)
        rows.append((sizes, name + suffix))
    table: list[Operation] = [DispatchOp(name, list(symbols), rows)] if symbols else []
    return Exported(ModuleOp([*table, *functions]), name, _weights(functional))


def _symbols(graph: Any) -> dict[str, str]:
    """The symbolic sizes of the inputs, by the names that the user gave: the names of their symbols."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        fake = node.meta.get("val") if node.op == "placeholder" else None
        for size in getattr(fake, "shape", ()):
            for symbol in sorted(symbols_of(size) - set(found.values())):
                found[_given_name(fake, symbol) or symbol] = symbol
    return found


def _given_name(fake: Any, symbol: str) -> str | None:
    """What the user called a size, `Dim("batch")`; a program that was loaded has forgotten it."""
    environment: Any = getattr(getattr(fake, "fake_mode", None), "shape_env", None)
    names: Mapping[str, str] = getattr(environment, "source_name_to_debug_name", {})
    variables: Mapping[str, Any] = getattr(environment, "source_to_var", {})
    for source, variable in variables.items():
        if variable.name == symbol and source in names:
            return names[source]
    return None


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
    """What the arguments and results of a functional program are.

    Args:
        prefix: Of the names of weights, which is left out.

    Raises:
        UnsupportedOp: one is no tensor and no number.
    """
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
    """The keys of a dictionary that the model returns, by the index of the result."""
    spec = program.call_spec.out_spec
    if spec is None or spec.type is not dict:
        return {}
    keys: list[object] = list(spec.context)
    if len(keys) != spec.num_leaves:
        return {}
    return {count - len(keys) + index: str(key) for index, key in enumerate(keys)}


def _weights(program: Any) -> dict[str, NDArray[Any]]:
    values = {**program.state_dict, **program.constants}
    found: dict[str, NDArray[Any]] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind.name in _WEIGHTS and spec.target in values:
            found[spec.target] = _array(values[spec.target])
    return found


def _array(tensor: Any) -> NDArray[Any]:
    """The elements of a tensor, on its memory where NumPy can see that."""
    plain = tensor.detach().cpu().contiguous()
    if str(plain.dtype) == "torch.bfloat16":
        return np.asarray(plain.view(import_module("torch").int16).numpy()).view(ml_dtypes.bfloat16)
    return np.asarray(plain.numpy())
