"""LLVM at run time, safe from signals: machine code that is released exactly once.

llvmlite's wrappers own native objects in Python code: a KeyboardInterrupt between a release and the note of it makes
them release an object twice, and one between the taking of their lock and its use keeps the lock for ever. So all of
llvmlite is called by `uninterrupted`, and what outlives such a call is released by C code.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from aicf.support.uninterrupted import uninterrupted


class _Release(weakref.ref[Any]):
    """Calls a C function with a handle when its object dies, once, and runs no bytecode that a signal could interrupt.

    A weak reference calls its callback once, in C, and a function of ctypes takes `_as_parameter_` for its argument.
    """

    __slots__ = ("_as_parameter_",)
    _as_parameter_: ctypes.c_void_p


_releases: list[_Release] = []
"""Of all objects that are alive: a weak reference that is gone calls nothing. Dead ones go when the next one comes."""
_releases_lock = threading.Lock()


def _forget_after_fork() -> None:
    global _releases_lock
    _releases_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def release_with(owner: object, release: Callable[[Any], object], handle: int) -> None:
    """Has `release`, a function of ctypes with one pointer argument, called with `handle` when `owner` dies."""
    reference = _Release(owner, release)
    reference._as_parameter_ = ctypes.c_void_p(handle)  # pyright: ignore[reportPrivateUsage]
    with _releases_lock:
        _releases[:] = [known for known in _releases if known() is not None]
        _releases.append(reference)


@functools.cache
def _functions() -> tuple[Any, Any]:
    """LLVM's `void dispose(engine)` and `u64 address(engine, name)`, without the lock of llvmlite: both are safe with
    other threads in LLVM, as engines here hold no module of a shared context."""
    import llvmlite.binding.ffi

    library: Any = llvmlite.binding.ffi.lib._lib  # pyright: ignore
    dispose = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(("LLVMPY_DisposeExecutionEngine", library))
    find = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_char_p)(
        ("LLVMPY_GetFunctionAddress", library)
    )
    return dispose, find


class MachineCode:
    """An object file in this process. Addresses stay valid while this object lives; then the code is released."""

    def __init__(self, engine: Any) -> None:
        dispose, self._find = _functions()
        self._handle = ctypes.cast(engine._ptr, ctypes.c_void_p).value or 0
        release_with(self, dispose, self._handle)
        engine.detach()

    def address(self, symbol: str) -> int:
        """Address of the function `symbol`; 0 if there is none."""
        return int(self._find(self._handle, symbol.encode()))


def link(code: bytes) -> MachineCode:
    """Links an object file into this process. Raises RuntimeError if LLVM refuses it."""
    return uninterrupted(functools.partial(_link, code))


def assemble(text: str) -> MachineCode:
    """Compiles LLVM IR for this machine and links it. Raises RuntimeError if LLVM refuses it."""
    return uninterrupted(lambda: _link(_compiled(text)))


def _link(code: bytes) -> MachineCode:
    llvm = llvm_binding()
    file = llvm.ObjectFileRef.from_data(code)
    # An engine needs a module of its own to exist; it is empty, all code comes from the object.
    empty = llvm.parse_assembly(f'target triple = "{llvm.get_process_triple()}"')
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(empty, machine, use_lmm=True)
    engine.add_object_file(file)
    engine.finalize_object()
    engine.remove_module(empty)  # it is of LLVM's global context, which other threads use at any time
    return MachineCode(engine)


def _compiled(text: str) -> bytes:
    llvm = llvm_binding()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic", codemodel="small")
    return machine.emit_object(module)


def llvm_binding() -> Any:
    """llvmlite's binding, which ships no type information, ready to make code for this machine. For use in
    `uninterrupted` alone, its import as well."""
    import llvmlite.binding

    llvm: Any = llvmlite.binding
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm
