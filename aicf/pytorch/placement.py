"""Which GPU a program runs on. Nothing here imports the compiler."""

from __future__ import annotations

import torch

from aicf.compilation.compiled import CompiledModel


def placed(executable: CompiledModel, device: torch.device | None) -> CompiledModel:
    """The executable on a device: itself on the CPU and on the first GPU, else the same on the GPU of that number."""
    if device is None or device.type != "cuda" or not device.index:
        return executable
    return executable.to(f"{executable.plan.backend}:{device.index}")
