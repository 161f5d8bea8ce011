"""Compiles small functions made by the code generator and calls them from tests."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from aicf.backends.cpu.codegen.ir_builder import I64, PTR, VOID, Emitter
from aicf.backends.cpu.compiler.module import compile_module, new_module
from aicf.backends.cpu.runtime.loader import LoadedObject, load_object
from aicf.backends.cpu.target import LEVELS, CpuLevel, check_host
from aicf.dialects.types import ELEMENTS
from aicf.errors import BackendUnavailable

NUMPY = {element.name: element.dtype for element in ELEMENTS}


def runnable_levels() -> list[CpuLevel]:
    """Levels whose code runs on this machine."""
    levels: list[CpuLevel] = []
    for level in LEVELS.values():
        try:
            check_host(level)
        except BackendUnavailable:
            continue
        levels.append(level)
    return levels


class Function:
    """A compiled `void f(ptr..., i64 tid, i64 nthreads)`."""

    @staticmethod
    def compile_only(level: CpuLevel, pointers: int, emit: Callable[..., None]) -> bytes:
        """The object code, for levels that this machine need not run."""
        module = new_module("test", level)
        function = ir.Function(module, ir.FunctionType(VOID, [PTR] * pointers + [I64, I64]), "f")
        em = Emitter(module, level, function)
        emit(em, *function.args)
        em.b.ret_void()
        return compile_module(module, level)

    def __init__(self, level: CpuLevel, pointers: int, emit: Callable[..., None]) -> None:
        self.code = self.compile_only(level, pointers, emit)
        self._loaded: LoadedObject = load_object(self.code)
        kinds = [ctypes.c_void_p] * pointers + [ctypes.c_int64, ctypes.c_int64]
        self._call = ctypes.CFUNCTYPE(None, *kinds)(self._loaded.address("f"))

    def __call__(self, *arrays: NDArray[Any] | int, tid: int = 0, nthreads: int = 1) -> None:
        self._call(*(a if isinstance(a, int) else a.ctypes.data for a in arrays), tid, nthreads)


class Poisoned:
    """An array inside a larger buffer of a byte pattern; `check` fails if anything around it was written."""

    def __init__(self, shape: tuple[int, ...], dtype: str, margin: int = 192) -> None:
        kind = np.dtype(NUMPY[dtype])
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        self.memory = np.full(size + 2 * margin, 0xA5, np.uint8)
        self.margin = margin
        self.size = size
        self.array = self.memory[margin : margin + size].view(kind).reshape(shape)

    def check(self) -> None:
        """Nothing outside the array changed."""
        assert (self.memory[: self.margin] == 0xA5).all(), "written before the buffer"
        assert (self.memory[self.margin + self.size :] == 0xA5).all(), "written past the buffer"


def undefined_symbols(code: bytes) -> list[str]:
    """Names that an ELF64 object expects from elsewhere."""
    assert code[:5] == b"\x7fELF\x02", "only 64-bit ELF objects are examined"
    (sections_at,) = struct.unpack_from("<Q", code, 40)
    entry_size, count = struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQII", code, sections_at + i * entry_size) for i in range(count)]
    names: list[str] = []
    for _, kind, _, _, offset, size, link, _ in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        strings = sections[link][4]
        for at in range(offset, offset + size, 24):
            name, _, _, section = struct.unpack_from("<IBBH", code, at)
            if name and section == 0:
                end = code.index(b"\0", strings + name)
                names.append(code[strings + name : end].decode())
    return names
