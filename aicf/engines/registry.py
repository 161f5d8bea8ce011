"""Finds engines by name: the built-in ones, and those of other packages from the entry point group `aicf.engines`.

An entry point names a callable without parameters, usually a class, that gives an `Engine`. Nothing is imported before
it is asked for. The built-in ones are found by name too, for AICF's own lies above this package.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, cast

from aicf.errors import BackendUnavailable, PolicyError, quoted

if TYPE_CHECKING:
    from aicf.engines.base import Engine

ENTRY_POINTS = "aicf.engines"
OWN, AUTO = "aicf", "auto"

_BUILT_IN = {
    OWN: ("aicf.inference.own_engine", "OwnEngine"),
    "onnxruntime": ("aicf.engines.onnxruntime.engine", "OnnxRuntimeEngine"),
    "openvino": ("aicf.engines.openvino.engine", "OpenVinoEngine"),
    "tensorrt": ("aicf.engines.tensorrt.engine", "TensorRtEngine"),
    "qnn": ("aicf.engines.qnn.engine", "QnnEngine"),
}
"""In the order in which `auto` asks them; engines of other packages come after these, by name."""


def _plug_ins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def engine_names() -> list[str]:
    """Names of all registered engines, in the order in which `auto` asks them."""
    return list(dict.fromkeys((*_BUILT_IN, *sorted(_plug_ins()))))


@cache
def get_engine(name: str) -> Engine:
    """The engine called `name`. Whether it can run here is for its `availability` to say.

    Raises:
        PolicyError: no engine has that name (the message lists them).
        BackendUnavailable: its package does not import here.
    """
    try:
        if name in _BUILT_IN:
            module, factory = _BUILT_IN[name]
            return cast("Engine", getattr(import_module(module), factory)())
        if (point := _plug_ins().get(name)) is not None:
            return cast("Engine", point.load()())
    except ImportError as error:
        raise BackendUnavailable(
            f"engine '{name}' does not import: {error}; install what it needs"
        ) from error
    raise PolicyError(f"engine: there is no {quoted(name)}; registered: {', '.join([*engine_names(), AUTO])}")
