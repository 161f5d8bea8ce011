"""Serving compiled models: sessions that pick, make, keep and drop programs by the shapes of their inputs."""

from aicf.inference.binding import Binding
from aicf.inference.placement import Placement
from aicf.inference.report import Event, Report
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
