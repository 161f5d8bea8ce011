"""An engine over a model: it compiles a program for each combination of sizes, or finds it in the cache."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from aicf.backends.registry import target_spec
from aicf.compiled import CompiledModel, Options
from aicf.compiler import compile_source, logical_text, resolve_options
from aicf.errors import PolicyError
from aicf.extensions import Extension, source_stamp
from aicf.frontends.text import make_context
from aicf.inference.cache import ProgramCache
from aicf.inference.devices import target_for
from aicf.inference.engines.base import COMPILED, LOADED, Engine, EngineProgram
from aicf.inference.engines.fixed import FixedEngine
from aicf.inference.engines.request import Request
from aicf.inference.interface import Bucket, Interface
from aicf.inference.models import interface_of
from aicf.inference.packing import ModelWeights
from aicf.inference.policies import compile_text
from aicf.inference.report import Report
from aicf.inference.usage import Meter
from aicf.passes.logical.specialize_shapes import parse_dims
from aicf.passes.onnx.values import parse_values
from aicf.runtime.plan_from_ir import target_of
from aicf.runtime.tensors import Array
from aicf.sources import Source, dims_text, read_weighted, tuning_text, values_text
from aicf.weight_arrays import read_weights

_COMPILING = threading.Lock()
"""One compile at a time: the passes and the code generator are for one thread."""


def open_model(request: Request, report: Report) -> Engine:
    """The engine of a model that is not compiled yet.

    A model that keeps state, one of several functions and an emit program are compiled at once and as a whole: the
    programs of one executable share its state.
    """
    assert not isinstance(request.model, CompiledModel)
    source, weights = read_weighted(request.model, read_weights(request.weights), make_context())
    target = target_for(request.device, request.engine) or ""
    threads = 1 if request.threads is None else request.threads
    texts = compile_text(request.policy), "", threads, tuning_text(request.tuning)
    named = tuple(each.text for each in request.passes)
    wanted = Options(target, *texts, strict=request.strict, passes=named, training=request.training)
    options = resolve_options(source, wanted)
    cache = None if request.cache_dir is None else ProgramCache(request.cache_dir, report)
    compiler = _Compiler(source, weights, options, cache, request.passes)
    dims = dims_text(request.dims)
    values = values_text(request.values)
    interface = interface_of(source, parse_values(values), training=options.training)
    if source.is_emit or interface is None:
        return FixedEngine(compiler.make(dims, values, dims))
    return CompilingEngine(compiler, interface, dims, values)


class _Compiler:
    """Makes executables of one model.

    Args:
        source: The model.
        weights: All of them.
        options: What the passes are told, dims apart.
        cache: Where compiled programs are kept; None if nowhere.
        passes: Of the caller, which `options` names.
    """

    def __init__(
        self,
        source: Source,
        weights: Mapping[str, Array],
        options: Options,
        cache: ProgramCache | None,
        passes: Sequence[Extension],
    ) -> None:
        self.source = source
        self.options = options
        self._weights = weights
        self._cache = cache
        self._passes = passes
        self._stamp = [] if cache is None else source_stamp(passes)
        self._shared = ModelWeights()
        self._text = "" if cache is None else logical_text(source.module)

    @property
    def target(self) -> str:
        """The target without libraries."""
        spec = self.options.target or target_spec(target_of(self.source.module))
        return spec.partition("+")[0]

    def make(self, dims: str, values: str, label: str = "") -> EngineProgram:
        """The executable for these dims and values, out of the cache if it is there."""
        started, meter = perf_counter(), Meter()
        options = replace(self.options, dims=dims, values=values)
        with meter.open():
            if self._cache is None or self.source.is_emit:
                executable, origin, detail = self._compile(options), COMPILED, f"for {self.target}"
            else:
                executable, origin, detail = self._cached(self._cache, options, label)
        self._shared.keep(executable)
        return EngineProgram(executable, origin, detail, perf_counter() - started, meter)

    def _cached(self, cache: ProgramCache, options: Options, label: str) -> tuple[CompiledModel, str, str]:
        weights = {**self.source.weights, **self._weights}
        executable, loaded, kept = cache.made(
            label, self._text, options, weights, self._shared, lambda: self._compile(options), self._stamp
        )
        if loaded is not None:
            return executable, LOADED, loaded
        return executable, COMPILED, f"for {self.target}, {kept}"

    def _compile(self, options: Options) -> CompiledModel:
        with _COMPILING:
            return compile_source(self.source, self._weights, options, self._shared, self._passes)


class CompilingEngine:
    """See `Engine`.

    Args:
        compiler: Makes its executables.
        interface: Of the model.
        dims, values: That were given ahead, as text.
    """

    makes_programs = True

    def __init__(self, compiler: _Compiler, interface: Interface, dims: str, values: str) -> None:
        self._compiler = compiler
        self.model = compiler.source.name
        self.name = compiler.target
        self.threads = compiler.options.threads
        self.interface = interface
        self._dims, self._values = dims, values
        self._sizes = parse_dims(dims)
        if unknown := [name for name in self._sizes if name not in self.interface.dims]:
            listed = ", ".join(self.interface.dims) or "none"
            raise PolicyError(
                f"dims: the program has no symbolic dimension {unknown[0]}; its dimensions are: {listed}"
            )

    def ahead(self) -> EngineProgram | None:
        """See `Engine`."""
        if any(name not in self._sizes for name in self.interface.open_dims):
            return None
        return self._compiler.make(self._dims, self._values, self._dims)

    def bucket_of(self, arguments: Sequence[Any]) -> Bucket:
        """See `Engine`."""
        return self.interface.bucket_of(arguments)

    def refusal(self, bucket: Bucket) -> str | None:
        """See `Engine`."""
        if self._compiler.source.is_onnx:
            return None  # empty tensors are ONNX's own, and the compile says what becomes of them
        empty = [name for name, size in zip(self.interface.dims, bucket.sizes, strict=True) if size < 1]
        return f"{empty[0]} must be at least 1" if empty else None

    def make(self, bucket: Bucket) -> EngineProgram:
        """See `Engine`."""
        interface = self.interface
        dims = ";".join(f"{name}={size}" for name, size in zip(interface.dims, bucket.sizes, strict=True))
        values = interface.values_of(bucket)
        return self._compiler.make(dims, json.dumps(values) if values else "", interface.label(bucket))
