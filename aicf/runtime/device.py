"""What programs can run on here, as the registered backends tell it."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.registry import backend_names, get_backend
from aicf.errors import BackendUnavailable


@dataclass(frozen=True)
class Device:
    """One device.

    Args:
        backend: Backend name, as in a target.
        name: What its maker calls it.
        arch: Architecture level, as in a target.
        memory: Its memory in words, empty if the backend cannot tell.
    """

    backend: str
    name: str
    arch: str
    memory: str


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
        found += [
            Device(name, entry.get("name", name), entry.get("arch", ""), entry.get("memory", ""))
            for entry in entries
        ]
    return tuple(found)


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
