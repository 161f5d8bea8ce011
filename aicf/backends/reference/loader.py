"""Loads reference code, which is the module's IR text, and runs its programs on a pointer table."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin, ModuleOp, StringAttr
from xdsl.dialects.func import Func
from xdsl.dialects.math import Math
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser

from aicf.backends.native import Entry, LoadedCode, NativeCode, ProfileEntry
from aicf.backends.reference.interpreter import Buffers, element_span, run_instructions
from aicf.dialects.emit import Emit, ProgramOp, ResolvedOp, symbols
from aicf.dialects.emit_types import BufferType
from aicf.dialects.logical import Logical
from aicf.dialects.types import element_of
from aicf.errors import ArtifactError
from aicf.semantics import Array

ENTRY_ATTR = "reference.entry"
"""Attribute of a program: the symbol of its entry."""

MODE = "typed"
"""The arithmetic of the reference backend: every value is rounded to its dtype."""


def load_native(native: NativeCode) -> ReferenceCode:
    """Parses the module. Raises ArtifactError if it does not parse and verify."""
    context = Context()
    for dialect in (Builtin, Func, Arith, Math, Logical, Emit):
        context.load_dialect(dialect)
    try:
        module = Parser(context, native.code.decode("utf-8"), "<reference code>").parse_module()
        module.verify()
    except Exception as error:  # xDSL raises many classes on malformed text
        kind = type(error).__name__
        raise ArtifactError(f"reference code is no valid program ({kind}): compile it again") from error
    return ReferenceCode(module)


class ReferenceCode(LoadedCode):
    """A parsed module; its programs by the symbol of their entry."""

    def __init__(self, module: ModuleOp) -> None:
        self._symbols = symbols(module)
        self._programs = {
            name.data: op
            for op in self._symbols.values()
            if isinstance(op, ProgramOp) and isinstance(name := op.attributes.get(ENTRY_ATTR), StringAttr)
        }

    def entry(self, symbol: str) -> ReferenceEntry:
        return ReferenceEntry(self._find(symbol), self._symbols)

    def profile_entry(self, symbol: str) -> ReferenceProfileEntry:
        return ReferenceProfileEntry(self._find(symbol), self._symbols)

    def function_addresses(self) -> Sequence[int]:
        """None: NumPy needs no table."""
        return ()

    def _find(self, symbol: str) -> ProgramOp:
        if symbol not in self._programs:
            raise ArtifactError(f"reference code has no program for entry '{symbol}': compile it again")
        return self._programs[symbol]


@dataclass(frozen=True)
class ReferenceEntry(Entry):
    """`Entry` of one program: thread 0 does everything."""

    program: ProgramOp
    symbols: dict[str, Operation]

    def bind(self, tid: int, nthreads: int, table: int) -> Callable[[], None]:
        return partial(_run, self.program, self.program.instructions if tid == 0 else (), self.symbols, table)


@dataclass(frozen=True)
class ReferenceProfileEntry(ProfileEntry):
    """`ProfileEntry` of one program."""

    program: ProgramOp
    symbols: dict[str, Operation]

    def bind(self, launch: int, tid: int, nthreads: int, table: int) -> Callable[[], None]:
        instructions = self.program.instructions[launch : launch + 1] if tid == 0 and launch >= 0 else ()
        return partial(_run, self.program, instructions, self.symbols, table)


def _run(
    program: ProgramOp, instructions: Sequence[ResolvedOp], bodies: dict[str, Operation], table: int
) -> None:
    """Runs instructions of a program on the memory that the pointer table at `table` names."""
    if instructions:
        run_instructions(instructions, bodies, _buffers(program, table), MODE)


def _buffers(program: ProgramOp, table: int) -> Buffers:
    binds = program.binds
    pointers = (ctypes.c_void_p * (1 + len(binds))).from_address(table)
    buffers = Buffers()
    for index, bind in enumerate(binds, 1):
        buffers.place(bind.buffer, _memory(pointers[index], 0, bind.buffer.type))
    for slot in program.slots:
        assert slot.offset is not None
        buffers.place(slot.buffer, _memory(pointers[0], slot.offset.value.data, slot.buffer.type))
    return buffers


def _memory(base: int | None, offset: int, type_: Attribute) -> Array:
    """The elements of a buffer `offset` bytes past `base`, in memory order."""
    assert isinstance(type_, BufferType) and base is not None
    dtype, count = element_of(type_.element_type).dtype, element_span(type_)
    block = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(base + offset)
    return np.frombuffer(memoryview(block), dtype)
