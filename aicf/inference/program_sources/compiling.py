"""Programs of a model that is not compiled yet: one is compiled for each combination of sizes, or cached."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from xdsl.dialects.builtin import ModuleOp

from aicf.backends.registry import target_spec
from aicf.compilation.compiled import CompiledModel
from aicf.compilation.compiling import compile_source, logical_text, resolve_options
from aicf.compilation.extensions import source_stamp
from aicf.compilation.record import Options
from aicf.compilation.sources import (
    Source,
    dims_text,
    exported_model,
    read_weighted,
    source_of,
    tuning_text,
    values_text,
)
from aicf.compilation.weight_arrays import read_weights
from aicf.engines.interface import Bucket, Interface
from aicf.engines.report import Report
from aicf.engines.request import Request
from aicf.errors import PolicyError
from aicf.frontends.text import make_context
from aicf.inference.cache import ProgramCache
from aicf.inference.devices import ordinal_of, target_for
from aicf.inference.models import exported_interface, interface_of
from aicf.inference.packing import ModelWeights
from aicf.inference.policies import compile_text
from aicf.inference.program_sources.base import COMPILED, LOADED, ProgramSource, SourcedProgram
from aicf.inference.program_sources.fixed import FixedPrograms
from aicf.inference.usage import Meter
from aicf.passes.logical.specialize_shapes import parse_dims
from aicf.passes.onnx.values import parse_values
from aicf.runtime.plan_from_ir import target_of
from aicf.runtime.tensors import Array

if TYPE_CHECKING:
    from aicf.frontends.torch.exported import ExportedModel

_COMPILING = threading.Lock()
"""One compile at a time: the passes and the code generator are for one thread."""


class Readable(Protocol):
    """A model as it is read for sizes of its dimensions."""

    @property
    def name(self) -> str:
        """Of the model."""
        ...

    @property
    def weights(self) -> Mapping[str, Array]:
        """Values of parameters that came with it."""
        ...

    def read(self, dims: str) -> tuple[Source, str]:
        """The model for these sizes, and those that the passes are left to bind."""
        ...

    def text_of(self, source: Source) -> str:
        """The text of what was read, which programs are kept under."""
        ...

    def refusal(self, sizes: Mapping[str, int]) -> str | None:
        """Why the model does not allow sizes, with the way out; None if it does."""
        ...


class _Symbolic:
    """A model with symbolic sizes, which the passes bind: it is read once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name, self.weights = source.name, source.weights
        self._text = ""

    def read(self, dims: str) -> tuple[Source, str]:
        """See `Readable`."""
        return self._source, dims

    def text_of(self, source: Source) -> str:
        """See `Readable`."""
        self._text = self._text or logical_text(source.module)
        return self._text

    def refusal(self, sizes: Mapping[str, int]) -> str | None:
        """See `Readable`; empty tensors are ONNX's own, and the compile says what becomes of them."""
        return None if self._source.is_onnx else _empty(sizes)


class _Exported:
    """A program of `torch.export`, which is read for each choice of sizes."""

    def __init__(self, model: ExportedModel) -> None:
        self._model = model
        self.name, self.weights = model.name, model.weights

    def read(self, dims: str) -> tuple[Source, str]:
        """See `Readable`."""
        with _COMPILING:
            return source_of(self._model, dims), ""

    def text_of(self, source: Source) -> str:
        """See `Readable`."""
        return logical_text(source.module)

    def refusal(self, sizes: Mapping[str, int]) -> str | None:
        """See `Readable`."""
        return _empty(sizes) or self._model.refusal(sizes)


def _empty(sizes: Mapping[str, int]) -> str | None:
    empty = [name for name, size in sizes.items() if size < 1]
    return f"{empty[0]} must be at least 1" if empty else None


def open_model(request: Request, report: Report) -> ProgramSource:
    """The source of programs of a model that is not compiled yet.

    A model that keeps state, one of several functions and an emit program are compiled at once and as a whole: the
    programs of one executable share its state.
    """
    assert not isinstance(request.model, CompiledModel)
    given, values = read_weights(request.weights), values_text(request.values)
    if (exported := exported_model(request.model)) is not None:
        empty = Source(ModuleOp([]), exported.name)
        compiler = _Compiler(_Exported(exported), given, _options(request, empty), request, report)
        return _programs(compiler, exported_interface(exported, parse_values(values)), request, values)
    source, weights = read_weighted(request.model, given, make_context())
    options = _options(request, source)
    compiler = _Compiler(_Symbolic(source), weights, options, request, report)
    interface = interface_of(source, parse_values(values), training=options.training)
    return _programs(compiler, None if source.is_emit else interface, request, values)


def _programs(
    compiler: _Compiler, interface: Interface | None, request: Request, values: str
) -> ProgramSource:
    """Of a model without an interface all programs are compiled now."""
    dims = dims_text(request.dims)
    if interface is None:
        return FixedPrograms(compiler.make(dims, values, dims))
    return CompiledPrograms(compiler, interface, dims, values)


def _options(request: Request, source: Source) -> Options:
    """What the passes are told, dims and values apart."""
    target = target_for(request.device, request.target) or ""
    threads = 1 if request.threads is None else request.threads
    texts = compile_text(request.policy), "", threads, tuning_text(request.tuning)
    named = tuple(each.text for each in request.passes)
    wanted = Options(target, *texts, strict=request.strict, passes=named, training=request.training)
    return resolve_options(source, wanted)


class _Compiler:
    """Makes executables of one model.

    Args:
        model: Read for the sizes of each.
        weights: That were given; the model may have its own.
        options: What the passes are told, dims and values apart.
        request: Of the session: passes of the caller, and the folder of compiled programs.
        report: Is told of entries of that folder.
    """

    def __init__(
        self,
        model: Readable,
        weights: Mapping[str, Array],
        options: Options,
        request: Request,
        report: Report,
    ) -> None:
        self.model, self.options = model, options
        self._weights = weights
        self._cache = None if request.cache_dir is None else ProgramCache(request.cache_dir, report)
        self._passes = request.passes
        self._stamp = [] if self._cache is None else source_stamp(request.passes)
        self._shared = ModelWeights()
        self._ordinal = ordinal_of(request.device)

    @property
    def target(self) -> str:
        """The target without libraries."""
        spec = self.options.target or target_spec(target_of(self.model.read("")[0].module))
        return "+".join(entry for entry in spec.split("+") if "=" not in entry)

    def make(self, dims: str, values: str, label: str = "") -> SourcedProgram:
        """The executable for these dims and values, out of the cache if it is there."""
        started, meter = perf_counter(), Meter()
        with meter.open():
            source, left = self.model.read(dims)
            options = replace(self.options, dims=left, values=values)
            if self._cache is None or source.is_emit:
                executable, origin, detail = self._compile(source, options), COMPILED, f"for {self.target}"
            else:
                executable, origin, detail = self._cached(self._cache, source, options, label)
        self._shared.keep(executable)
        if self._ordinal:
            executable = executable.placed(self._ordinal, self._shared.on_device)
        return SourcedProgram(executable, origin, detail, perf_counter() - started, meter)

    def _cached(
        self, cache: ProgramCache, source: Source, options: Options, label: str
    ) -> tuple[CompiledModel, str, str]:
        weights = {**self.model.weights, **self._weights}
        executable, loaded, kept = cache.load_or_compile(
            label,
            self.model.text_of(source),
            options,
            weights,
            self._shared,
            lambda: self._compile(source, options),
            self._stamp,
        )
        if loaded is not None:
            return executable, LOADED, loaded
        return executable, COMPILED, f"for {self.target}, {kept}"

    def _compile(self, source: Source, options: Options) -> CompiledModel:
        with _COMPILING:
            return compile_source(source, self._weights, options, self._shared, self._passes)


class CompiledPrograms:
    """See `ProgramSource`.

    Args:
        compiler: Makes its executables.
        interface: Of the model.
        dims, values: That were given ahead, as text.
    """

    makes_programs = True

    def __init__(self, compiler: _Compiler, interface: Interface, dims: str, values: str) -> None:
        self._compiler = compiler
        self.model = compiler.model.name
        self.name = compiler.target
        self.threads = compiler.options.threads
        self.interface = interface
        self._dims, self._values = dims, values
        self._sizes = parse_dims(dims)
        interface.given = {name: sizes[0] for name, sizes in self._sizes.items() if len(sizes) == 1}
        if unknown := [name for name in self._sizes if name not in self.interface.dims]:
            listed = ", ".join(self.interface.dims) or "none"
            raise PolicyError(
                f"dims: the program has no symbolic dimension {unknown[0]}; its dimensions are: {listed}"
            )

    def ahead(self) -> SourcedProgram | None:
        """See `ProgramSource`."""
        if any(name not in self._sizes for name in self.interface.open_dims):
            return None
        return self._compiler.make(self._dims, self._values, self._dims)

    def bucket_of(self, arguments: Sequence[Any]) -> Bucket:
        """See `ProgramSource`."""
        return self.interface.bucket_of(arguments)

    def refusal(self, bucket: Bucket) -> str | None:
        """See `ProgramSource`."""
        return self._compiler.model.refusal(dict(zip(self.interface.dims, bucket.sizes, strict=True)))

    def make(self, bucket: Bucket) -> SourcedProgram:
        """See `ProgramSource`."""
        interface = self.interface
        dims = ";".join(f"{name}={size}" for name, size in zip(interface.dims, bucket.sizes, strict=True))
        values = interface.values_of(bucket)
        return self._compiler.make(dims, json.dumps(values) if values else "", interface.label(bucket))
