"""Writing decisions into the module's ledger.

Only adds: what a pass once wrote stays. What the entries mean to a reader is in `aicf explain`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import Float64Type, FloatAttr, ModuleOp, f64
from xdsl.ir import Attribute

from aicf.dialects.emit import DecisionOp, LedgerOp, find_ledger


def record_decision(
    module: ModuleOp,
    pass_name: str,
    subjects: Sequence[str],
    choice: str,
    because: str,
    rejected: Mapping[str, str] | None = None,
    cost: Mapping[str, Attribute] | None = None,
) -> DecisionOp:
    """Appends one decision; creates the ledger as the module's first op if there is none.

    Args:
        subjects: Ids of the ops (or the program's symbol) it is about; repeated ones are left out.
        choice: What was decided, in a few words.
        because: Why.
        rejected: Alternative -> reason against it.
        cost: Figures it was based on, with the unit in the key (`expected_us`, `bytes`).
    """
    decision = DecisionOp(pass_name, list(dict.fromkeys(subjects)), choice, because, rejected, cost)
    _ledger(module).body.block.add_op(decision)
    return decision


def copy_decisions(decisions: Sequence[DecisionOp], module: ModuleOp) -> None:
    """Appends decisions that were made about a larger program, which `module` is a part of."""
    for decision in decisions:
        _ledger(module).body.block.add_op(decision.clone())


def _ledger(module: ModuleOp) -> LedgerOp:
    ledger = find_ledger(module)
    if ledger is None:
        ledger = LedgerOp()
        block = module.body.block
        if block.first_op is None:
            block.add_op(ledger)
        else:
            block.insert_op_before(ledger, block.first_op)
    return ledger


def microseconds(value: float) -> FloatAttr[Float64Type]:
    """A time in microseconds as ledger and program have it: to three places."""
    return FloatAttr(round(value, 3), f64)
