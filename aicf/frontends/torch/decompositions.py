"""Which ops of PyTorch are taken apart before they are read: those that no row writes, by PyTorch's own formulas.

What a row writes whole is kept whole: an attention or a norm that is taken apart cannot be fused well. PyTorch is
imported only here, for its formulas, by who has a model of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from aicf.frontends.torch.ops import ROWS

Formulas = Mapping[Any, "Callable[..., Any]"]
"""Overloads of PyTorch's ops to what computes them from other ops."""


def is_kept(op: object) -> bool:
    """Whether a row writes an overload of PyTorch."""
    return str(op).removeprefix("aten.") in ROWS


@cache
def of_autograd() -> Formulas:
    """For graphs that AOTAutograd traces.

    A dropout is taken apart, so that a mask is a tensor that can be kept where what follows from it is not.
    """
    decomp: Any = import_module("torch._decomp")
    table: Mapping[Any, Any] = decomp.core_aten_decompositions()
    dropout: Mapping[Any, Any] = decomp.get_decompositions([import_module("torch").ops.aten.native_dropout])
    return {op: table[op] for op in table if not is_kept(op)} | dict(dropout)


def of_export() -> Formulas:
    """For programs of `torch.export`, whose table also says which composite ops are taken apart."""
    table: dict[Any, Any] = import_module("torch.export").default_decompositions()
    for op in list(table.keys()):
        if is_kept(op):
            del table[op]
    return table
