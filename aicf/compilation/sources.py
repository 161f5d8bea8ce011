"""What users hand to `aicf.compile` as program text or module, dims, policy and tuning, in the form that it works on.

Nothing is compiled here. Weights are in `weight_arrays`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import TypeIs
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from aicf.dialects.emit import GroupOp, ProgramOp
from aicf.dialects.onnx import GraphOp
from aicf.errors import BackendUnavailable, InvalidIR, PolicyError, quoted
from aicf.frontends.builder import Graph
from aicf.frontends.exported_program import ExportedProgram, is_exported
from aicf.frontends.text import parse_module, verify_module
from aicf.policies.policy import PolicyLike, policy_from
from aicf.policies.tuning_table import TuningTable, resolve_tuning
from aicf.runtime.tensors import Array
from aicf.support.arguments import mapping_from, path_from
from aicf.support.extras import install

if TYPE_CHECKING:
    from onnx import ModelProto

    from aicf.frontends.torch.exported import ExportedModel

Model: TypeAlias = "str | Path | ModuleOp | Graph | bytes | ModelProto | ExportedProgram"
"""A path, program text, a module, a finished graph of the builder, an ONNX model (its bytes or package `onnx`'s), or
what `torch.export.export` gives."""

Dims: TypeAlias = str | Mapping[str, int | Sequence[int]]
"""`N=1,540;M=4`, or sizes by name."""

Values: TypeAlias = "str | Mapping[str, ArrayLike]"
"""`{"shape": [2, 3]}`, as JSON or as a dictionary: elements by name of the input."""

Policy: TypeAlias = PolicyLike
"""`auto`, inline JSON, a path, plain values, or a policy of one section or all."""

Tuning: TypeAlias = str | Path | TuningTable
"""The path of a tuning table, inline JSON, or a table."""


@dataclass(frozen=True)
class Source:
    """A program that is ours to change.

    Args:
        module: Verified.
        name: Of the model: its file's, else its function's.
        weights: Values of parameters that came with it.
        trainable: Which of these are trained where nothing else is said: of an ONNX model.
        taken: Names of weights that were given for constants of an ONNX model, which have their values.
        outputs: What an ONNX model declares of its results: element type and sizes by name.
        path: Of the file, where its ops have no positions of their own.
        readers: Of each trainable parameter of an ONNX model the nodes that read it.
        has_sizes: Whether it was read for the sizes of its symbolic dimensions already.
    """

    module: ModuleOp
    name: str
    weights: Mapping[str, Array] = field(default_factory=dict[str, Array])
    trainable: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()
    outputs: Mapping[str, tuple[str, tuple[int | str, ...]]] = field(
        default_factory=dict[str, tuple[str, tuple[int | str, ...]]]
    )
    path: str | None = None
    readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    has_sizes: bool = False

    @property
    def is_emit(self) -> bool:
        """Whether it is past `lower-to-emit`."""
        return bool(self._programs)

    @property
    def is_onnx(self) -> bool:
        """Whether it is a graph of the onnx dialect."""
        return any(isinstance(op, GraphOp) for op in self.module.body.block.ops)

    @property
    def has_groups(self) -> bool:
        """Whether groups were formed by hand, so that it is lowered already."""
        return any(isinstance(op, GroupOp) for op in self.module.walk())

    @property
    def is_open(self) -> bool:
        """Whether passes still decide something about its emit programs."""
        return any(program.phase.data != "final" for program in self._programs)

    @property
    def _programs(self) -> list[ProgramOp]:
        return [op for op in self.module.body.block.ops if isinstance(op, ProgramOp)]


def read_model(
    model: Model,
    context: Context,
    *,
    training: bool = False,
    given: Mapping[str, Array] = MappingProxyType({}),
    untie: Sequence[str] = (),
    dims: str = "",
) -> Source:
    """Reads a model.

    Args:
        training: Whether it is read to be trained: small weights of an ONNX model have names then.
        given: Weights by name; constants of an ONNX model take those of their names.
        untie: Names or patterns of initializers of an ONNX model of which each reader has a copy.
        dims: Sizes of the symbolic dimensions, of an exported program of PyTorch, which is read for each of them.

    Raises:
        InvalidIR: it cannot be read, does not parse or does not verify.
        UnsupportedOp: it is an ONNX model that uses what AICF has no counterpart of.
        BackendUnavailable: it is an ONNX model, and package `onnx` is not installed.
    """
    if isinstance(model, bytes) or _is_proto(model):
        return _read_onnx(model, training, given, untie)
    if (exported := exported_model(model)) is not None:
        return source_of(exported, dims)
    if isinstance(model, ModuleOp | Graph):
        module = model.module() if isinstance(model, Graph) else model.clone()
        verify_module(module)
        return Source(module, _name_of(module))
    if isinstance(model, str) and _is_text(model):
        module = parse_module(model, "<model>", context=context)
        return Source(module, _name_of(module))
    if not isinstance(model, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(model).__name__
        raise InvalidIR(
            f"a model is a path, program text, a module, a builder graph, an ONNX model or an exported program of "
            f"PyTorch, not {kind}{_EXPORT if _is_torch_module(model) else ''}"
        )
    path = path_from(model, InvalidIR, "the model's path")
    if path.suffix == ".onnx":
        return _read_onnx(path, training, given, untie)
    if path.suffix != ".mlir":
        raise InvalidIR(
            f"unknown model file type '{path.suffix}'; known: .mlir, .onnx, .pt2", location=str(path)
        )
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidIR(
            f"cannot read the model: {error.strerror}; check the path", location=str(path)
        ) from error
    return Source(parse_module(text, str(path), context=context), path.stem)


def read_weighted(
    model: Model, weights: Mapping[str, Array], context: Context, dims: str = ""
) -> tuple[Source, Mapping[str, Array]]:
    """A model, and those of the weights that are parameters of it. Raises as `read_model`."""
    source = read_model(model, context, given=weights, dims=dims)
    return source, {name: array for name, array in weights.items() if name not in source.taken}


def _read_onnx(
    model: Path | bytes | ModelProto, training: bool, given: Mapping[str, Array], untie: Sequence[str]
) -> Source:
    try:
        from aicf.frontends.onnx import read_onnx
    except ModuleNotFoundError as error:
        raise BackendUnavailable(
            f"ONNX models are read by package onnx, which is missing: {install('onnx')}"
        ) from error
    from aicf.passes.onnx.ops import find_row

    def has_row(domain: str, op_type: str, opset: int) -> bool:
        return find_row(op_type, domain, opset) is not None

    found = read_onnx(model, has_row, training=training, given=given, untie=untie)
    verify_module(found.module)
    path = str(model) if isinstance(model, Path) else None
    return Source(**vars(found), path=path)


def exported_model(model: object) -> ExportedModel | None:
    """An exported program of PyTorch, or that of a `.pt2` file; None if a model is of another kind.

    Raises:
        InvalidIR: the file cannot be read.
        BackendUnavailable: PyTorch is not installed.
    """
    if is_exported(model):
        from aicf.frontends.torch.exported import ExportedModel

        return ExportedModel(cast(ExportedProgram, model), "model", is_shared=True)
    if not isinstance(model, str | Path) or (isinstance(model, str) and _is_text(model)):
        return None
    path = path_from(model, InvalidIR, "the model's path")
    return _read_pt2(path) if path.suffix == ".pt2" else None


def source_of(model: ExportedModel, dims: str) -> Source:
    """An exported program for sizes of its symbolic dimensions. Raises as `ExportedModel.module`."""
    from aicf.passes.logical.specialize_shapes import parse_dims

    module = model.module(parse_dims(dims))
    verify_module(module)
    return Source(module, model.name, model.weights, has_sizes=True)


def _read_pt2(path: Path) -> ExportedModel:
    try:
        from aicf.frontends.torch.exported import ExportedModel, load_exported

        program = load_exported(path)
    except ModuleNotFoundError as error:
        raise BackendUnavailable(
            f"programs of torch.export are read by PyTorch, which is missing: {install('torch')}"
        ) from error
    return ExportedModel(program, path.stem, is_shared=False)


def _is_proto(model: Model) -> TypeIs[ModelProto]:
    """Whether it is package `onnx`'s, which is imported already if it is."""
    return type(model).__name__ == "ModelProto"


_EXPORT = "; export it with torch.export.export(model, args)"


def _is_torch_module(model: object) -> bool:
    return any(kind.__module__ == "torch.nn.modules.module" for kind in type(model).__mro__)


def _is_text(model: str) -> bool:
    """No path that people use has a line break or a brace, and no program is without."""
    return "\n" in model or "{" in model


def _name_of(module: ModuleOp) -> str:
    for op in module.body.block.ops:
        if isinstance(op, FuncOp | ProgramOp | GraphOp):
            return op.sym_name.data
    return "model"


def dims_text(dims: Dims | None) -> str:
    """The option `dims` of the pipeline. Raises PolicyError for what cannot be sizes."""
    if dims is None or isinstance(dims, str):
        return dims or ""
    _check_dictionary("dims", dims, "{'N': [1, 32]}")
    by_name = mapping_from(dims, PolicyError, "dims")
    return ";".join(f"{name}={_sizes_text(name, sizes)}" for name, sizes in by_name.items())


def _check_dictionary(option: str, value: object, example: str) -> None:
    if not isinstance(value, Mapping):
        raise PolicyError(f"{option}: {quoted(value)} is neither text nor a dictionary; write {example}")


def values_text(values: Values | None) -> str:
    """The option `values` of the pipeline, JSON on one line. Raises PolicyError for what are no numbers."""
    if values is None or isinstance(values, str):
        return values or ""
    _check_dictionary("values", values, "{'shape': [2, 3]}")
    try:
        by_name = mapping_from(values, PolicyError, "values")
        return json.dumps({name: np.asarray(value).tolist() for name, value in by_name.items()})
    except (TypeError, ValueError, RecursionError) as error:
        raise PolicyError(f"values: {error}; give numbers or lists of numbers by name of the input") from None


def _sizes_text(name: str, sizes: int | Sequence[int]) -> str:
    values = list(sizes) if isinstance(sizes, Iterable) else [sizes]
    if not values or not all(type(value) is int for value in values):
        raise PolicyError(f"dims: '{name}' needs an integer or a list of integers, got {quoted(sizes)}")
    return ",".join(str(value) for value in values)


def tuning_text(tuning: Tuning | None) -> str:
    """The tuning table as inline JSON on one line; "" for none. Raises PolicyError if it is none."""
    if tuning is None:
        return ""
    if isinstance(tuning, TuningTable):
        return tuning.to_line()
    text = tuning if isinstance(tuning, str) else str(path_from(tuning, PolicyError, "the tuning table"))
    table = resolve_tuning(text)
    return table.to_line()


def policy_text(policy: Policy | None) -> str:
    """The policy as inline JSON on one line, complete; "" for none. Raises PolicyError if it is not legal."""
    return "" if policy is None else policy_from(policy).to_line()
