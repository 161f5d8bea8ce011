"""Where a program runs: device, driver, processor and versions."""

from __future__ import annotations

import platform

from aicf.backends.host import processor_name
from aicf.certificates.certificate import Environment
from aicf.runtime.capture_plan import ModulePlan
from aicf.runtime.device import devices
from aicf.saving.artifact import toolchain_lock


def environment_of(plan: ModulePlan) -> Environment:
    """This machine, for a program. Raises BackendUnavailable if the backend finds no device here."""
    device = devices(plan.backend)[0]
    return Environment(
        device.name,
        device.capability,
        device.driver,
        f"{platform.system()} {platform.release()} {platform.machine()}",
        processor_name(),
        _cpu_features(),
        dict(toolchain_lock()),
    )


def _cpu_features() -> tuple[str, ...]:
    """The features of the host that code may use, as LLVM calls them."""
    from aicf.backends.cpu.target import host_features

    return tuple(sorted(name for name, here in host_features().items() if here))
