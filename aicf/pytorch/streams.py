"""PyTorch's current stream. Nothing here imports the compiler."""

from __future__ import annotations

import torch


def current_stream(device: torch.device) -> int:
    """The handle of PyTorch's current stream; 0 on the host."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def is_capturing(device: torch.device) -> bool:
    """Whether PyTorch is capturing its current stream."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
