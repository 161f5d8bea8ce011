"""Loads native CPU code into this process: no compiling, no Numba, no IR."""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.cpu.runtime.blas import LIBRARY, function_address
from aicf.backends.cpu.runtime.shared_functions import SHARED, shared_address
from aicf.backends.cpu.target import check_host, level_named
from aicf.backends.machine_code import MachineCode, link
from aicf.backends.native import CEntry, CProfileEntry, NativeCode
from aicf.errors import ArtifactError, PolicyError

LEVEL_FEATURE = "cpu:"
"""Prefix of the entry of `NativeCode.features` that names the CPU level."""
BARRIER = "barrier counter"
"""Not a function: a counter of its own in every table, where threads meet. It starts at 0."""
YIELD = "sched_yield"
PROFILE_SUFFIX = "_profile"


@dataclass(frozen=True)
class LoadedObject:
    """An object file in this process. Addresses stay valid while this object lives."""

    code: MachineCode

    def address(self, symbol: str) -> int:
        """Address of the function `symbol`. Raises ArtifactError if there is none."""
        address = self.code.address(symbol)
        if address == 0:
            raise ArtifactError(f"native code has no function '{symbol}': compile the program again")
        return address


_ELF_MAGIC = b"\x7fELF\x02\x01"
_ELF_RELOCATABLE = 1
_ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
_SECTION_WITHOUT_BYTES = 8


def _check_object(code: bytes) -> None:
    """Refuses bytes that the linker would crash on: it trusts what it is given."""
    if sys.platform != "linux":
        return
    refused = ArtifactError(
        "native code cannot be loaded (it is damaged or no object file): compile the program again"
    )
    if not code.startswith(_ELF_MAGIC) or len(code) < 64:
        raise refused
    kind, machine = struct.unpack_from("<HH", code, 16)
    if kind != _ELF_RELOCATABLE or machine != _ELF_MACHINES.get(platform.machine().lower(), machine):
        raise refused
    (table,) = struct.unpack_from("<Q", code, 40)
    size, count, _ = struct.unpack_from("<HHH", code, 58)
    if size != 64 or table + size * count > len(code):
        raise refused
    for at in range(table, table + size * count, size):
        _, type_, _, _, offset, length = struct.unpack_from("<IIQQQQ", code, at)
        if type_ != _SECTION_WITHOUT_BYTES and offset + length > len(code):
            raise refused


def load_object(code: bytes) -> LoadedObject:
    """Links an object file into this process. Raises ArtifactError if it is none for this machine."""
    _check_object(code)
    try:
        return LoadedObject(link(code))
    except RuntimeError as error:
        raise ArtifactError(f"native code cannot be loaded ({error}): compile the program again") from error


class CpuCode:
    """Loaded code of a module; see `LoadedCode`."""

    def __init__(self, native: NativeCode, loaded: LoadedObject) -> None:
        self._loaded = loaded
        self._functions = [_address_of(name) for name in native.functions]

    def entry(self, symbol: str) -> CEntry:
        """The entry of one program. Raises ArtifactError if there is none."""
        return CEntry(self._loaded.address(symbol))

    def profile_entry(self, symbol: str) -> CProfileEntry:
        """The same program, one instruction at a time."""
        return CProfileEntry(self._loaded.address(symbol + PROFILE_SUFFIX))

    def function_addresses(self) -> Sequence[int]:
        """What follows the data pointers of a table."""
        return self._functions


def _address_of(name: str) -> int:
    if name == BARRIER:
        return 0
    if name == YIELD:
        address = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value
        assert address is not None
        return address
    if name.startswith(LIBRARY):
        return function_address(name)
    if name.startswith(SHARED):
        return shared_address(name)
    raise ArtifactError(f"native code asks for an unknown function '{name}': load it with a newer aicf")


def load_native(native: NativeCode) -> CpuCode:
    """Loads CPU code.

    Raises:
        BackendUnavailable: This machine lacks an instruction set or a library that the code needs.
        ArtifactError: The code is damaged or asks for something unknown.
    """
    levels = [f.removeprefix(LEVEL_FEATURE) for f in native.features if f.startswith(LEVEL_FEATURE)]
    if len(levels) != 1:
        raise ArtifactError("native code does not say which cpu level it needs: compile the program again")
    try:
        level = level_named(levels[0])
    except PolicyError as error:
        raise ArtifactError(f"native code is for an unknown level: {error.message}") from error
    check_host(level)
    return CpuCode(native, load_object(native.code))
