"""`aicf devices`: what programs can run on here."""

from __future__ import annotations

from aicf.explain import format_table


def devices_command() -> None:
    """List the devices that programs can run on here.

    A line for each backend that has none says why.
    """
    from aicf.runtime.device import devices, unavailable

    rows = [(f"{device.backend}:{device.arch}", device.name, device.memory) for device in devices()]
    print(format_table(("target", "device", "memory"), rows))
    for backend, reason in unavailable():
        print(f"{backend}: {reason}")
