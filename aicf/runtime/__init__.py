"""The runtime: capture plans, executables and their replay. It decides nothing.

`init()` is implicit. `shutdown()` releases arenas, threads, streams and loaded code; the next call works
again.
"""

from __future__ import annotations

from aicf.runtime.capture_plan import CapturePlan, ModulePlan
from aicf.runtime.device import Device, devices, pool
from aicf.runtime.executable import Executable, TensorSpec
from aicf.runtime.graph import Graph
from aicf.runtime.graph_exec import GraphExec
from aicf.runtime.lifecycle import init, is_initialized, shutdown
from aicf.runtime.memory import MemoryStatistics, reset_peak, statistics
from aicf.runtime.on_device.array import DeviceArray
from aicf.runtime.on_device.pool import Allocator, DevicePool, PoolStatistics
from aicf.runtime.on_device.stream import DeviceEvent
from aicf.runtime.pinned import pinned
from aicf.runtime.profiler import Profile, Profiler
from aicf.runtime.ranges import nvtx_ranges
from aicf.runtime.state import State, StatePart
from aicf.runtime.stream import Event, Stream

__all__ = [
    "Allocator",
    "CapturePlan",
    "Device",
    "DeviceArray",
    "DeviceEvent",
    "DevicePool",
    "Event",
    "Executable",
    "Graph",
    "GraphExec",
    "MemoryStatistics",
    "ModulePlan",
    "PoolStatistics",
    "Profile",
    "Profiler",
    "State",
    "StatePart",
    "Stream",
    "TensorSpec",
    "devices",
    "init",
    "is_initialized",
    "nvtx_ranges",
    "pinned",
    "pool",
    "reset_peak",
    "shutdown",
    "statistics",
]
