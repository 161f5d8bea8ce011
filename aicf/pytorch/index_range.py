"""Checks indices on the host before a program reads them, as eager mode does.

A program reads the nearest row for an index that is out of range, and drops such updates; where indices of several
dimensions make one place, that may be the place of another element. No program reads or writes memory outside. On a GPU
eager mode ends the process with an assertion, and nothing is checked here: a check would wait for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aicf.errors import InputMismatch
from aicf.frontends.torch.index_checks import IndexCheck


def check_indices(checks: Sequence[IndexCheck], args: Sequence[Any]) -> None:
    """Checks arguments that are indices.

    Args:
        checks: What to check, by index of the argument.
        args: Tensors on the host are checked, others are not.

    Raises:
        InputMismatch: an index is out of range.
    """
    for check in checks:
        tensor = args[check.argument]
        if isinstance(tensor, Tensor) and tensor.device.type == "cpu" and tensor.numel():
            _check(check, tensor)


def _check(check: IndexCheck, tensor: Tensor) -> None:
    low, high = torch.aminmax(tensor)
    if int(low) >= check.low and int(high) < check.size:
        return
    outside = tensor[(tensor < check.low) | (tensor >= check.size)]
    if check.ignored is not None:
        outside = outside[outside != check.ignored]
    if outside.numel():
        raise InputMismatch(
            f"index {int(outside[0])} is out of range: {check.op} takes {check.low} to {check.size - 1}; give indices "
            "of what is there",
            location=check.location,
        )
