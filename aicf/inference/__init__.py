"""Serving: sessions that find, compile, keep and evict programs by the shapes of inputs."""

from aicf.engines.placement import Placement
from aicf.engines.report import Event, Report
from aicf.inference.binding import Binding
from aicf.inference.session import InferenceSession
from aicf.inference.usage import MemoryUse, ProgramMemory

__all__ = [
    "Binding",
    "Event",
    "InferenceSession",
    "MemoryUse",
    "Placement",
    "ProgramMemory",
    "Report",
]
