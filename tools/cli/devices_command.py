"""`aicf devices`: what programs can run on here."""

from __future__ import annotations

import json
from dataclasses import asdict

from aicf.inspection.explain import format_table
from aicf.tools.cli.arguments import Json


def devices_command(as_json: Json = False) -> None:
    """List the devices that programs can run on here.

    A line for each backend that has none says why. `aicf engines` lists what other engines have, such as an NPU.
    """
    from aicf.runtime.device import Device, devices, unavailable

    found, missing = devices(), unavailable()
    if as_json:
        listed = [{"id": device.id, "target": device.target, **asdict(device)} for device in found]
        print(json.dumps({"devices": listed, "unavailable": dict(missing)}, indent=2))
        return

    def facts(device: Device) -> str:
        return ", ".join(filter(None, (device.memory, device.details, device.driver, device.toolkit)))

    rows = [(device.id, device.target, device.name, facts(device)) for device in found]
    print(format_table(("device", "target", "name", "memory and versions"), rows))
    for backend, reason in missing:
        print(f"{backend}: {reason}")
