"""What this machine is called and how much memory it has, for lists of devices and for tables of measured times."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path


def processor_name() -> str:
    """What the maker calls this machine's processor; its architecture if the system does not tell."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def memory_bytes_text() -> str:
    """Bytes of this machine's memory as a decimal number, empty if the system does not tell."""
    if not hasattr(os, "sysconf"):
        return ""
    return str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def processor_facts(arch: str) -> Mapping[str, str]:
    """This machine's processor as `Backend.devices` tells of a device.

    Args:
        arch: What the backend calls its level.
    """
    return {"kind": "cpu", "name": processor_name(), "arch": arch, "memory_bytes": memory_bytes_text()}
