"""Which ops of PyTorch are decomposed before they are lowered: those without a row, by PyTorch's own formulas.

Ops with a row stay whole: a decomposed attention or norm cannot be fused well. PyTorch is imported only here, for its
formulas, when there is a model of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from aicf.frontends.torch.ops import ROWS

Formulas = Mapping[Any, "Callable[..., Any]"]
"""Overloads of PyTorch's ops to functions that compute them from other ops."""


def is_kept(op: object) -> bool:
    """Whether an overload of PyTorch has a row."""
    return str(op).removeprefix("aten.") in ROWS


@cache
def of_autograd() -> Formulas:
    """For graphs that AOTAutograd traces.

    Dropout is decomposed, so that the mask is a tensor that can be saved while tensors computed from it are not.
    """
    decomp: Any = import_module("torch._decomp")
    table: Mapping[Any, Any] = decomp.core_aten_decompositions()
    dropout: Mapping[Any, Any] = decomp.get_decompositions([import_module("torch").ops.aten.native_dropout])
    return {op: table[op] for op in table if not is_kept(op)} | dict(dropout)


def of_export() -> Formulas:
    """For programs of `torch.export`, whose table also lists the composite ops to decompose."""
    torch: Any = import_module("torch")
    return _of_export(tuple(torch._C._dispatch_get_registrations_for_dispatch_key(_COMPOSITE)))


_COMPOSITE = "CompositeImplicitAutograd"
"""PyTorch's key of ops that are made of others."""


@lru_cache(maxsize=1)
def _of_export(composite: tuple[str, ...]) -> Formulas:
    """The table while `composite` are all composite ops: users may register more. PyTorch takes a tenth of a second to
    make it, for which it looks up each of these ops once per namespace."""
    table: Mapping[Any, Any] = import_module("torch.export").default_decompositions()
    return {op: formula for op, formula in table.items() if not is_kept(op)}
