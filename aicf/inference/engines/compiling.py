"""An engine over a model: it compiles a program for each combination of sizes, or finds it in the cache."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from aicf.backends.registry import target_spec
from aicf.compiled import CompiledModel, Options
from aicf.compiler import compile_source, logical_text, resolve_options
from aicf.errors import PolicyError
from aicf.frontends.text import make_context
from aicf.inference.cache import ProgramCache, key_of
from aicf.inference.devices import target_for
from aicf.inference.engines.base import COMPILED, LOADED, Engine, Made
from aicf.inference.engines.fixed import FixedEngine
from aicf.inference.engines.opening import Asked, compile_policy
from aicf.inference.interface import Interface, Sizes
from aicf.inference.models import interface_of
from aicf.inference.report import Report
from aicf.inference.usage import Meter
from aicf.passes.specialize_shapes import parse_dims
from aicf.runtime.plan_from_ir import target_of
from aicf.runtime.tensors import Array
from aicf.sources import Source, dims_text, read_model, tuning_text
from aicf.weight_arrays import read_weights

_COMPILING = threading.Lock()
"""One compile at a time: the passes and the code generator are for one thread."""


def open_model(asked: Asked, report: Report) -> Engine:
    """The engine of a model that is not compiled yet.

    A model that keeps state, one of several functions and an emit program are compiled at once and as a whole: the
    programs of one executable share its state.
    """
    assert not isinstance(asked.model, CompiledModel)
    source = read_model(asked.model, make_context())
    target = target_for(asked.device, asked.engine) or ""
    threads = 1 if asked.threads is None else asked.threads
    texts = compile_policy(asked.policy), "", threads, tuning_text(asked.tuning)
    options = resolve_options(source, Options(target, *texts))
    cache = None if asked.cache_dir is None else ProgramCache(asked.cache_dir, report)
    compiler = _Compiler(source, read_weights(asked.weights), options, cache)
    dims = dims_text(asked.dims)
    interface = interface_of(source.module)
    if source.is_emit or interface is None:
        return FixedEngine(compiler.make(dims))
    return CompilingEngine(compiler, interface, dims)


class _Compiler:
    """Makes executables of one model.

    Args:
        source: The model.
        weights: All of them.
        options: What the passes are told, dims apart.
        cache: Where compiled programs are kept; None if nowhere.
    """

    def __init__(
        self, source: Source, weights: Mapping[str, Array], options: Options, cache: ProgramCache | None
    ) -> None:
        self.source = source
        self.options = options
        self._weights = weights
        self._cache = cache
        self._text = "" if cache is None else logical_text(source.module)

    @property
    def target(self) -> str:
        """The target without libraries."""
        spec = self.options.target or target_spec(target_of(self.source.module))
        return spec.partition("+")[0]

    def make(self, dims: str, label: str = "") -> Made:
        """The executable for these dims, out of the cache if it is there."""
        started, meter = perf_counter(), Meter()
        with meter.open():
            if self._cache is None or self.source.is_emit:
                executable, origin, detail = self._compile(dims), COMPILED, f"for {self.target}"
            else:
                executable, origin, detail = self._cached(self._cache, dims, label)
        return Made(executable, origin, detail, perf_counter() - started, meter)

    def _cached(self, cache: ProgramCache, dims: str, label: str) -> tuple[CompiledModel, str, str]:
        options = replace(self.options, dims=dims)
        key = key_of(self._text, options)

        def find() -> CompiledModel | None:
            return cache.load(key, label, self._text, options, self._weights)

        if (found := find()) is not None:
            return found, LOADED, f"from {cache.path(key)}"
        with cache.alone(key, label):
            if (found := find()) is not None:
                return found, LOADED, f"from {cache.path(key)}, where another process put it"
            executable = self._compile(dims)
            where = cache.save(key, label, executable)
        return executable, COMPILED, f"for {self.target}, {where}"

    def _compile(self, dims: str) -> CompiledModel:
        with _COMPILING:
            return compile_source(self.source, self._weights, replace(self.options, dims=dims))


class CompilingEngine:
    """See `Engine`.

    Args:
        compiler: Makes its executables.
        interface: Of the model.
        dims: Sizes that were given ahead, as text.
    """

    makes_programs = True

    def __init__(self, compiler: _Compiler, interface: Interface, dims: str) -> None:
        self._compiler = compiler
        self.model = compiler.source.name
        self.name = compiler.target
        self.threads = compiler.options.threads
        self.interface = interface
        self._dims = dims
        self._sizes = parse_dims(dims)
        if unknown := [name for name in self._sizes if name not in self.interface.dims]:
            listed = ", ".join(self.interface.dims) or "none"
            raise PolicyError(
                f"dims: the program has no symbolic dimension {unknown[0]}; its dimensions are: {listed}"
            )

    def ahead(self) -> Made | None:
        """See `Engine`."""
        if any(name not in self._sizes for name in self.interface.dims):
            return None
        return self._compiler.make(self._dims, self._dims)

    def sizes_of(self, arguments: Sequence[Any]) -> Sizes:
        """See `Engine`."""
        return self.interface.sizes_of(arguments)

    def refusal(self, sizes: Sizes) -> str | None:
        """See `Engine`."""
        for name, size in zip(self.interface.dims, sizes, strict=True):
            if size < 1:
                return f"{name} must be at least 1"
        return None

    def make(self, sizes: Sizes) -> Made:
        """See `Engine`."""
        pairs = zip(self.interface.dims, sizes, strict=True)
        return self._compiler.make(
            ";".join(f"{name}={size}" for name, size in pairs), self.interface.label(sizes)
        )
