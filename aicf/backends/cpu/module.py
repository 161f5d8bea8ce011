"""One LLVM module to one native object.

The object has no undefined symbols and depends only on the module's text and the level, so the same program gives the
same bytes in every process. Deciding what goes into the module is not done here.
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding
from llvmlite import ir

from aicf.backends.cpu.target import CpuLevel

llvm: Any = llvmlite.binding
"""llvmlite ships no type information."""


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _triple(level: CpuLevel) -> str:
    host = llvm.get_process_triple()
    if level.architecture in ("", host.split("-", 1)[0]):
        return host
    return f"{level.architecture}-unknown-linux-gnu"


@functools.cache
def target_machine(level: CpuLevel) -> Any:
    """The LLVM target machine of `level` (position independent, small code model)."""
    _initialize()
    target = llvm.Target.from_triple(_triple(level))
    return target.create_target_machine(
        cpu=level.llvm_cpu, features=level.llvm_features, opt=2, reloc="pic", codemodel="small"
    )


def new_module(name: str, level: CpuLevel) -> Any:
    """An empty module for code of `level`."""
    module = ir.Module(name=name)
    module.triple = _triple(level)
    module.data_layout = str(target_machine(level).target_data)
    return module


def compile_module(module: Any, level: CpuLevel) -> bytes:
    """Native object code of `module`."""
    machine = target_machine(level)
    parsed = llvm.parse_assembly(str(module))
    return machine.emit_object(parsed)
