"""What the forward part of a training graph keeps for the backward part, decided on the logical program of both.

It is `eliminate-saves` that decides, as in a training step of one program. Here the two parts are programs of their
own, so the choice goes back to the nodes of the graph, which `partition` then cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult
from xdsl.rewriter import InsertPoint, Rewriter

from aicf.compiled import Options
from aicf.compiler import resolve_options
from aicf.dialects import logical
from aicf.dialects.emit import DecisionOp, find_ledger
from aicf.frontends.text import make_context
from aicf.frontends.torch import Lowered
from aicf.passes.fusion.op_prices import OpPrices
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.logical.saved_values import root_of, saves_in
from aicf.passes.pipelines.aicf_inference import front_passes, lowering_passes, run
from aicf.passes.support.identity import IdTable, name_after, op_id
from aicf.passes.support.interface import functions
from aicf.passes.support.policy import execution_of
from aicf.passes.training.eliminate_saves import EliminateSavesPass, wish_of
from aicf.passes.training.save_choice import Pin, choose
from aicf.passes.training.save_report import SaveReport
from aicf.sources import Source


@dataclass(frozen=True)
class SavePlan:
    """Where the backward part takes what it reads of the forward part from.

    Args:
        kept: By name of the node that has the tensor, whether it is kept; else it is computed again.
        decisions: The same for the ledger, with the reasons.
    """

    kept: Mapping[str, bool]
    decisions: Sequence[DecisionOp]


def plan_saves(
    lowered: Lowered,
    forward: Collection[str],
    pin: Callable[[str], Pin | None],
    options: Options,
    share: float,
) -> SavePlan:
    """Chooses what is kept.

    Args:
        lowered: The whole training graph, with the results of both parts; its program is used up.
        forward: The names of nodes of the forward part.
        pin: What was said of the tensor of a node already.
        options: Of the compile: target, policy and threads.
        share: How many of the bytes that would be kept may be, 0 to 1.
    """
    module = lowered.module
    if module is None:
        return SavePlan({}, [])
    context = make_context()
    AssignIdsPass().apply(context, module)
    nodes = _write_saves(module, lowered, forward)
    if not nodes:
        return SavePlan({}, [])
    _lower(module, resolve_options(Source(module, "training"), options), context)
    (function,) = functions(module)
    block, prices = function.body.block, OpPrices(module, function)
    saves = saves_in(block)
    wishes = execution_of(module).saves
    execution_of(module).check_saves([op_id(save) or "" for save in saves])
    pins = {
        save: said
        for save in saves
        if (said := wish_of(save, wishes) or pin(nodes[op_id(save) or ""])) is not None
    }
    choice = choose(block, pins, 0, prices, kept=share)
    told = SaveReport(module, EliminateSavesPass.name, function, choice, prices)
    told.write()
    free = {id(each.root) for each in choice.memory}
    kept = {
        nodes[op_id(save) or ""]: id(root) not in free or root in choice.held
        for save in saves
        for root in (root_of(save.operand),)
    }
    return SavePlan(kept, _decisions(module))


def _write_saves(module: ModuleOp, lowered: Lowered, forward: Collection[str]) -> dict[str, str]:
    """Marks what ops of the backward part read of the forward part; by id of the mark, the node that it is about."""
    (function,) = functions(module)
    ops = list(function.body.block.ops)
    table = lowered.provenance
    # What is written for results alone reads in neither part.
    written_forward = {op: not name or name in forward for op, name in zip(ops, table.writers, strict=True)}
    owners: dict[Operation, str] = {}
    for name, index in table.values.items():
        if name in forward:
            owners.setdefault(ops[index], name)
    ids, marks, nodes = IdTable(module), dict[Operation, logical.SaveOp](), dict[str, str]()
    for op in ops:
        if written_forward[op]:
            continue
        for index, operand in enumerate(op.operands):
            if (
                not isinstance(operand, OpResult)
                or not written_forward[operand.op]
                or operand.op not in owners
            ):
                continue
            if isinstance(operand.op, logical.ConstantOp):
                continue
            if operand.op not in marks:
                mark = marks[operand.op] = logical.SaveOp(operand)
                name_after(mark, operand.op, "save", ids)
                Rewriter.insert_op(mark, InsertPoint.after(operand.op))
                nodes[op_id(mark) or ""] = owners[operand.op]
            op.operands[index] = marks[operand.op].result
    return nodes


def _lower(module: ModuleOp, options: Options, context: Context) -> None:
    front = front_passes(options.target, options.policy, "", options.threads, training=True)
    run((*front, *lowering_passes()), context, module)


def _decisions(module: ModuleOp) -> list[DecisionOp]:
    ledger = find_ledger(module)
    every = () if ledger is None else ledger.decisions
    return [decision for decision in every if decision.pass_name.data == EliminateSavesPass.name]
