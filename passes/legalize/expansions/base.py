"""A row of the table: an op, the kinds of instruction it may be, and the formula that replaces it otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aicf.dialects.logical import LogicalOp
from aicf.passes.logical.lowerings.base import Formula


@dataclass(frozen=True)
class OpExpansion:
    """What becomes of an op that no kernel of the target runs as an instruction of its own.

    Args:
        op: The class of the op.
        kinds: The kinds of instruction that it may be. A target with no kernel for any of them gets the formula of
            `lower-logical` from the start.
        formula: What replaces it. It writes no op that its own row would expand again.
        choice: What the ledger calls the result.
        is_requested: Which ops of the class are checked; the others stay as they are.
        kept: What `lower-logical` writes of the op where the target has kernels of `kinds`; None leaves it as it is.
        copied: The operands that are copied where they are views, if a kernel then runs the op; None for all of them.
        has_formula: Which ops of the class the formula replaces; of the others `fuse-elementwise` says why no kernel
            runs them.
    """

    op: type[LogicalOp]
    kinds: tuple[str, ...]
    formula: Formula
    choice: str
    is_requested: Callable[[Any], bool] = lambda _: True
    kept: Formula | None = None
    copied: tuple[int, ...] | None = ()
    has_formula: Callable[[Any], bool] = lambda _: True


EXPANSIONS: dict[type[LogicalOp], OpExpansion] = {}
"""Op class to its expansion."""


def register(*expansions: OpExpansion) -> None:
    """Adds rows to the table. Raises ValueError for an op that has one."""
    for each in expansions:
        if each.op in EXPANSIONS:
            raise ValueError(f"{each.op.name} has an expansion already: keep one of the two")
        EXPANSIONS[each.op] = each
