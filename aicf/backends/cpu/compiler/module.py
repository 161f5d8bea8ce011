"""One LLVM module to one native object.

The object has no undefined symbols and depends only on the module's text and the level, so the same program gives the
same bytes in every process. Deciding what goes into the module is not done here.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from aicf.backends.cpu.target import CpuLevel
from aicf.backends.machine_code import llvm_binding
from aicf.support.uninterrupted import uninterrupted


@functools.cache
def _initialize() -> None:
    llvm_binding().initialize_all_targets()
    llvm_binding().initialize_all_asmprinters()


def _triple(level: CpuLevel) -> str:
    host = llvm_binding().get_process_triple()
    if level.architecture in ("", host.split("-", 1)[0]):
        return host
    return f"{level.architecture}-unknown-linux-gnu"


@functools.cache
def _target_machine(level: CpuLevel) -> Any:
    """The LLVM target machine of `level` (position independent, small code model)."""
    _initialize()
    target = llvm_binding().Target.from_triple(_triple(level))
    return target.create_target_machine(
        cpu=level.llvm_cpu, features=level.llvm_features, opt=2, reloc="pic", codemodel="small"
    )


@functools.cache
def _triple_and_layout(level: CpuLevel) -> tuple[str, str]:
    """Target triple and data layout of `level`, as modules name them."""
    return uninterrupted(lambda: (_triple(level), str(_target_machine(level).target_data)))


class LinkedModule(ir.Module):
    """A module with code that is LLVM IR already, such as functions of users: text by the symbol that it defines."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.linked: dict[str, str] = {}


def new_module(name: str, level: CpuLevel) -> Any:
    """An empty module for code of `level`."""
    module = LinkedModule(name)
    module.triple, module.data_layout = _triple_and_layout(level)
    return module


def compile_module(module: Any, level: CpuLevel) -> bytes:
    """Native object code of `module`."""
    linked = [module.linked[symbol] for symbol in sorted(module.linked)]
    return uninterrupted(functools.partial(_compile, str(module), linked, level))


def _compile(text: str, linked: Sequence[str], level: CpuLevel) -> bytes:
    machine = _target_machine(level)
    module = llvm_binding().parse_assembly(text)
    for each in linked:
        module.link_in(llvm_binding().parse_assembly(each))
    return machine.emit_object(module)
