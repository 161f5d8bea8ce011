"""What AICF offers to every xDSL tool: its dialects and passes, through the entry point ``xdsl.universe``.

Every xDSL command loads this module, so it imports no dialect, no pass, no NumPy and no Numba: each entry is
a factory that imports its module when the dialect or pass is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from xdsl.ir import Dialect
from xdsl.passes import ModulePass
from xdsl.universe import Universe

from aicf.pass_files import pass_modules

DIALECTS = {
    "logical": ("aicf.dialects.logical", "Logical"),
    "emit": ("aicf.dialects.emit", "Emit"),
    "onnx": ("aicf.dialects.onnx", "Onnx"),
}
"""Dialect name to the module and the variable that hold it."""


def _dialect_factory(module_name: str, variable: str) -> Callable[[], Dialect]:
    def load() -> Dialect:
        return getattr(import_module(module_name), variable)

    return load


def _pass_factory(module_name: str) -> Callable[[], type[ModulePass]]:
    def load() -> type[ModulePass]:
        members: list[object] = list(vars(import_module(module_name)).values())
        for member in members:
            if (
                isinstance(member, type)
                and issubclass(member, ModulePass)
                and member.__module__ == module_name
            ):
                return member
        raise ImportError(f"{module_name} defines no ModulePass")

    return load


AICF_UNIVERSE = Universe(
    all_dialects={name: _dialect_factory(*path) for name, path in DIALECTS.items()},
    all_passes={name: _pass_factory(module) for name, module in sorted(pass_modules().items())},
)
