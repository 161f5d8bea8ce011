"""One LLVM module to one native object, and one native object to callable addresses.

The object has no undefined symbols and depends only on the module's text and the level, so the same program gives the
same bytes in every process. Deciding what goes into the module is not done here.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from aicf.backends.cpu.target import CpuLevel
from aicf.errors import ArtifactError

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


@dataclass(frozen=True)
class LoadedObject:
    """Native code in this process. Addresses stay valid while this object lives."""

    engine: Any
    addresses: dict[str, int]

    def address(self, symbol: str) -> int:
        """Address of the function `symbol`."""
        return self.addresses[symbol]


def load_object(code: bytes, symbols: tuple[str, ...]) -> LoadedObject:
    """Link `code` into this process and find `symbols`.

    Raises:
        ArtifactError: The bytes are no object file for this machine, or a symbol is not in it.
    """
    _initialize()
    try:
        file = llvm.ObjectFileRef.from_data(code)
        # The engine needs a module of its own to exist; ours is empty and all code comes from the object.
        empty = llvm.parse_assembly(f'target triple = "{llvm.get_process_triple()}"')
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        engine = llvm.create_mcjit_compiler(empty, machine, use_lmm=True)
        engine.add_object_file(file)
        engine.finalize_object()
    except RuntimeError as error:
        raise ArtifactError(f"native code cannot be loaded ({error}): compile the program again") from error
    addresses = {symbol: engine.get_function_address(symbol) for symbol in symbols}
    for symbol, address in addresses.items():
        if address == 0:
            raise ArtifactError(f"native code has no function {symbol!r}: compile the program again")
    return LoadedObject(engine, addresses)
