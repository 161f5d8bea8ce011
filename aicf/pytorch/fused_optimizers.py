"""Counts what fused optimizers write: PyTorch's do not, so nothing could tell that weights have changed.

`AdamW(..., fused=True)` and its like change parameters in one kernel that leaves their version counters as they are.
What is packed of parameters is made again when those counters say so (`launcher.Launcher`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.optim.optimizer import register_optimizer_step_post_hook


def _count(optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:
    """After each step of any optimizer."""
    if torch.compiler.is_compiling():  # what is compiled counts its writes
        return
    written = [
        parameter
        for group in optimizer.param_groups
        if group.get("fused")
        for parameter in group["params"]
        if parameter.grad is not None
    ]
    if written:
        increment_version(written)


def watch_fused_optimizers() -> None:
    """Counts their writes from now on, in the whole process."""
    register_optimizer_step_post_hook(_count)
