"""Loads cuda code onto this machine's GPU: no compiling, no Numba, no IR, no decisions.

Everything that can be wrong between the code and this machine is told here, before anything is launched: GPU, driver,
architecture, library versions.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from aicf.backends.cuda.runtime.device import CudaDevice
from aicf.backends.cuda.runtime.device_program import DeviceModule, DeviceProgram, LibraryNode
from aicf.backends.cuda.runtime.driver import DeviceFacts, DriverError, capability_text, version_text
from aicf.backends.cuda.runtime.graph import CapturedProgram, LibraryCaller, descriptor_bytes
from aicf.backends.cuda.runtime.library import LibraryModule, check_version, library_of, open_library
from aicf.backends.cuda.runtime.module_check import check_module
from aicf.backends.cuda.runtime.storage import read
from aicf.backends.cuda.target import runs_on
from aicf.backends.native import DeviceCode, NativeCode
from aicf.errors import ArtifactError, BackendUnavailable, CaptureError


def load_native(native: NativeCode, ordinal: int = 0) -> CudaCode:
    """Loads cuda code onto GPU number `ordinal`.

    Raises:
        ArtifactError: the code is damaged or contradicts itself.
        BackendUnavailable: this machine has no GPU, no driver or too old a one, a GPU of another architecture, or
            another version of a library than the code was made for.
    """
    module, cubins = read(native.code)
    check_module(module, cubins.keys())
    return CudaCode(module, cubins, CudaDevice(ordinal))


def reserves(module: DeviceModule) -> dict[str, int]:
    """Device memory that each program needs for its tensor maps, by entry."""
    return {program.entry: descriptor_bytes(program) for program in module.programs}


def _check_machine(module: DeviceModule, device: CudaDevice) -> None:
    facts = device.facts
    if facts.driver < module.minimum_driver:
        raise BackendUnavailable(
            f"the NVIDIA driver supports CUDA {version_text(facts.driver)}, the code needs "
            f"{version_text(module.minimum_driver)}; install a newer driver"
        )
    if not runs_on(module.arch, facts.capability):
        raise BackendUnavailable(f"the code is for {module.arch}, and {_other_gpu(facts)}")


def _other_gpu(facts: DeviceFacts) -> str:
    """What the GPU is instead, and the way out."""
    if facts.arch:
        return f"{facts.name} is {facts.arch}; compile with --target cuda:{facts.arch}"
    return f"{facts.name} has {capability_text(facts)}, for which this release makes no code; use target cpu"


class CudaCode(DeviceCode):
    """Loaded code of a module.

    Args:
        module: Its programs.
        cubins: Their code by symbol.
        device: The GPU.
    """

    def __init__(self, module: DeviceModule, cubins: Mapping[str, bytes], device: CudaDevice) -> None:
        self._programs = {program.entry: program for program in module.programs}
        self._device = device
        self._functions: dict[str, int] = {}
        with ExitStack() as cleanup:
            _check_machine(module, device)
            device.enter()
            self._libraries = _open_libraries(module, device, cleanup)
            for symbol, image in cubins.items():
                self._functions[symbol] = _load(device, symbol, image, cleanup)
            for program in module.programs:
                self._allow_shared(program)
            close = weakref.finalize(self, cleanup.pop_all().close)
        close.atexit = False  # the driver gives everything back by itself, and may be gone by then

    def _allow_shared(self, program: DeviceProgram) -> None:
        driver = self._device.enter()
        for node in program.kernels:
            try:
                driver.allow_shared(self._functions[node.symbol], node.shared_bytes)
            except DriverError as error:
                raise CaptureError(
                    f"instruction '{node.name}' needs {node.shared_bytes:,} bytes of shared memory: {error.message}"
                ) from error

    @property
    def memory(self) -> CudaDevice:
        return self._device

    def instructions(self, symbol: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node.name for node in self._program(symbol).nodes()))

    def capture(self, symbol: str, table: Sequence[int], descriptors: int, stream: int) -> CapturedProgram:
        program = self._program(symbol)
        if len(table) != program.table_size:
            raise ArtifactError(f"entry '{symbol}' takes another pointer table; compile the program again")
        code = self._functions, self._libraries, self
        return CapturedProgram(self._device, program, *code, table, descriptors, stream)

    def _program(self, symbol: str) -> DeviceProgram:
        if symbol not in self._programs:
            raise ArtifactError(f"the cuda code has no program for entry '{symbol}'; compile it again")
        return self._programs[symbol]


def _load(device: CudaDevice, symbol: str, image: bytes, cleanup: ExitStack) -> int:
    driver = device.enter()
    try:
        module = driver.load(image)
        cleanup.callback(device.close, driver.unload, module)
        return driver.function(module, symbol)
    except DriverError as error:
        raise ArtifactError(f"the code of kernel '{symbol}' does not load: {error.message}") from error


@dataclass(frozen=True)
class _Library(LibraryCaller):
    """An open library, by the module that calls it."""

    module: LibraryModule
    handle: Any

    def prepare(self, node: LibraryNode) -> None:
        """See `LibraryModule`."""
        self.module.prepare(self.handle, node)

    def call(self, node: LibraryNode, addresses: tuple[int, ...], stream: int) -> None:
        self.module.call(self.handle, node, addresses, stream)


def _open_libraries(module: DeviceModule, device: CudaDevice, cleanup: ExitStack) -> dict[str, LibraryCaller]:
    """The library of each function that the module calls.

    Raises:
        BackendUnavailable: one is missing, or of another version than the calls were made for.
    """
    nodes = [node for program in module.programs for node in program.libraries]
    opened: dict[str, _Library] = {}
    for node in nodes:
        name = library_of(node.function)
        if name not in opened:
            opened[name] = _open_library(node, device, cleanup)
        check_version(node, opened[name].module.version())
        opened[name].prepare(node)
    return {node.function: opened[library_of(node.function)] for node in nodes}


def _open_library(node: LibraryNode, device: CudaDevice, cleanup: ExitStack) -> _Library:
    module, handle = open_library(node)
    cleanup.callback(device.close, partial(_close_library, device, module), handle)
    return _Library(module, handle)


def _close_library(device: CudaDevice, module: LibraryModule, handle: Any) -> None:
    """Gives a handle back. The garbage collector may do so while this thread captures, and a library frees memory."""
    with device.beside_capture():
        module.close_handle(handle)
