"""What the target `cpu` means on this machine; no xDSL here."""

from __future__ import annotations

from aicf.backends.cpu.runtime.blas import host_libraries
from aicf.backends.cpu.target import host_level


def host_target() -> str:
    """The level, features and libraries of this machine, as `registry.target_spec` writes them."""
    libraries = "".join(f"+{name}={version}" for name, version in sorted(host_libraries().items()))
    return f"cpu:{host_level().name}{libraries}"
