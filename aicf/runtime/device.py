"""The devices that programs can run on here, as the registered backends tell it, and their memory and queues."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aicf.backends.native import DeviceMemory
from aicf.backends.registry import backend_names, get_backend, open_device
from aicf.errors import BackendUnavailable, PolicyError
from aicf.runtime.on_device.pool import DevicePool, pool_of
from aicf.support.arguments import text_from

_ORDINAL = re.compile(r"(.+):(\d+)")


@dataclass(frozen=True)
class Device:
    """One device.

    Args:
        backend: Backend name, as in a target.
        index: Its number among those of the backend, from 0.
        kind: `cpu`, `gpu` or `npu`.
        name: What its maker calls it.
        arch: Architecture level, as in a target.
        capability: Its features as its maker numbers them: the compute capability of a GPU. Empty if it has none.
        memory_bytes: Its memory; None if the backend cannot tell.
        driver, toolkit: Versions of the driver, and of the compiler's libraries; empty where there are none.
        details: More, in words.
    """

    backend: str
    index: int
    kind: str
    name: str
    arch: str
    capability: str
    memory_bytes: int | None
    driver: str
    toolkit: str
    details: str

    @property
    def id(self) -> str:
        """What `device=` takes, `cuda:1`; the backend's name if it runs programs on the processor."""
        return self.backend if self.kind == "cpu" else f"{self.backend}:{self.index}"

    @property
    def target(self) -> str:
        """The target of programs for it, `cuda:sm_90a`."""
        return f"{self.backend}:{self.arch}"

    @property
    def memory(self) -> str:
        """Its memory in words, empty if the backend cannot tell."""
        return "" if self.memory_bytes is None else f"{self.memory_bytes / 2**30:.1f} GiB"


def devices(backend: str | None = None) -> tuple[Device, ...]:
    """The devices of one backend, or of all that import here.

    Raises:
        PolicyError: no backend has that name.
        BackendUnavailable: the named backend does not import here.
    """
    found: list[Device] = []
    for name in backend_names() if backend is None else [backend]:
        try:
            entries = get_backend(name).devices()
        except BackendUnavailable:
            if backend is not None:
                raise
            continue
        found += [_device(name, index, entry) for index, entry in enumerate(entries)]
    return tuple(found)


def _device(backend: str, index: int, entry: Mapping[str, str]) -> Device:
    nbytes = entry.get("memory_bytes", "")
    return Device(
        backend,
        index,
        entry.get("kind", "cpu"),
        entry.get("name", backend),
        entry.get("arch", ""),
        entry.get("capability", ""),
        int(nbytes) if nbytes else None,
        entry.get("driver", ""),
        entry.get("toolkit", ""),
        entry.get("details", ""),
    )


def unavailable() -> tuple[tuple[str, str], ...]:
    """The registered backends that have no device here, each with the reason."""
    reasons: list[tuple[str, str]] = []
    for name in backend_names():
        try:
            found = get_backend(name).devices()
        except BackendUnavailable as error:
            reasons.append((name, error.message))
            continue
        if not found:
            reasons.append((name, "it finds no device"))
    return tuple(reasons)


def split_device(device: str) -> tuple[str, int]:
    """Name and number of a device: `cuda:1` is number 1, `cuda` number 0. Raises PolicyError for what is no text."""
    found = _ORDINAL.fullmatch(text_from(device, PolicyError, "the device"))
    return (device, 0) if found is None else (found[1], int(found[2]))


def memory_of(device: str) -> DeviceMemory:
    """The memory and queues of a device, `cuda` or `cuda:1`.

    Raises:
        PolicyError: there is no such backend.
        BackendUnavailable: there is no such device here, or it has no memory of its own.
    """
    return open_device(*split_device(device))


def pool(device: str = "cuda") -> DevicePool:
    """The memory that programs have on a device: statistics, limits, and who holds it. Raises as `memory_of`."""
    return pool_of(memory_of(device))
