"""Chooses what the forward part of a training graph saves for the backward part, on the logical program of both.

`eliminate-saves` decides, as in a training step of one program. Here the two parts become separate programs, so the
choice is mapped back to the nodes of the graph, which `partition` then cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf.compilation.compiling import resolve_options
from aicf.compilation.record import Options
from aicf.compilation.sources import Source
from aicf.dialects import logical
from aicf.dialects.emit import DecisionOp, find_ledger
from aicf.frontends.text import make_context
from aicf.frontends.torch import Lowered
from aicf.passes.bodies.views import is_view
from aicf.passes.fusion.op_prices import OpPrices
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.logical.saved_values import root_of, saves_in
from aicf.passes.pipelines.aicf_inference import front_passes, lowering_passes, run
from aicf.passes.support.identity import IdTable, name_after, op_id
from aicf.passes.support.interface import functions
from aicf.passes.support.policy import execution_of
from aicf.passes.training.eliminate_saves import EliminateSavesPass, requested_pin
from aicf.passes.training.gradients.base import is_widening
from aicf.passes.training.save_choice import Pin, choose
from aicf.passes.training.save_report import SaveReport


@dataclass(frozen=True)
class SavePlan:
    """What the forward part saves for the backward part.

    Args:
        kept: By name of a node, whether its tensor is saved; else it is recomputed.
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
    """Chooses what is saved.

    Args:
        lowered: The whole training graph, with the results of both parts; its program is modified.
        forward: The names of nodes of the forward part.
        pin: The choice that is already fixed for the tensor of a node, if any.
        options: Of the compile: target, policy and threads.
        share: The fraction of saved bytes to keep, 0 to 1.
    """
    module = lowered.module
    if module is None:
        return SavePlan({}, [])
    context = make_context()
    AssignIdsPass().apply(context, module)
    marking = _Marking(module, lowered, forward)
    marking.run()
    if not (nodes := marking.nodes):
        return SavePlan({}, [])
    _lower(module, resolve_options(Source(module, "training"), options), context)
    (function,) = functions(module)
    block, prices = function.body.block, OpPrices(module, function)
    saves = saves_in(block)
    requests = execution_of(module).saves
    execution_of(module).check_saves([op_id(save) or "" for save in saves])
    pins = {
        save: fixed
        for save in saves
        if (fixed := requested_pin(save, requests) or pin(nodes[op_id(save) or ""])) is not None
    }
    choice = choose(block, pins, 0, prices, kept=share)
    report = SaveReport(module, EliminateSavesPass.name, function, choice, prices)
    report.write()
    free = {id(each.root) for each in choice.memory}
    kept = {
        nodes[op_id(save) or ""]: id(root) not in free or root in choice.held
        for save in saves
        for root in (root_of(save.operand),)
    }
    return SavePlan(kept | dict.fromkeys(marking.cast_again, False), _decisions(module))


class _Marking:
    """Marks values of the forward part that ops of the backward part read.

    A widening cast, or a view of one, is cast again in the backward part: its operand may be saved instead.

    Args:
        module: Of both parts, with ids.
        lowered: The lowered graph.
        forward: The names of nodes of the forward part.
    """

    def __init__(self, module: ModuleOp, lowered: Lowered, forward: Collection[str]) -> None:
        (function,) = functions(module)
        self._ops, self._ids = list(function.body.block.ops), IdTable(module)
        table = lowered.provenance
        self._writers = dict(zip(self._ops, table.writers, strict=True))
        self._forward = forward
        self._owners: dict[Operation, str] = {}
        for name, index in table.values.items():
            if name in forward:
                self._owners.setdefault(self._ops[index], name)
        self._marks: dict[Operation, SSAValue] = {}
        self._again: dict[Operation, SSAValue] = {}
        self.nodes: dict[str, str] = {}
        """By id of a mark, the node of its value."""
        self.cast_again: set[str] = set()
        """Nodes that are widening casts, which the backward part repeats."""

    def run(self) -> None:
        """Marks every value once; readers read the mark, or a cast of it."""
        for op in self._ops:
            if not self._is_backward(op):
                continue
            for index, operand in enumerate(op.operands):
                if isinstance(operand, OpResult) and self._is_saved(operand.op):
                    op.operands[index] = self._read(operand.op, op)

    def _is_backward(self, op: Operation) -> bool:
        """Ops that are written only for results belong to neither part."""
        name = self._writers[op]
        return bool(name) and name not in self._forward

    def _is_saved(self, op: Operation) -> bool:
        is_forward = op in self._owners and not self._is_backward(op)
        return is_forward and not isinstance(op, logical.ConstantOp)

    def _read(self, op: Operation, reader: Operation) -> SSAValue:
        """The value that a reader gets for the result of a forward op."""
        source, chain = self._narrow(op)
        if not chain:
            return self._mark(op)
        for each in reversed(chain):
            if each not in self._again:
                before = each.operands[0].owner
                value = self._mark(source) if before is source else self._again[cast(Operation, before)]
                copy = each.clone({each.operands[0]: value})
                name_after(copy, each, "again", self._ids)
                Rewriter.insert_op(copy, InsertPoint.before(reader))
                self._again[each] = copy.results[0]
                if is_widening(each):
                    self.cast_again.add(self._writers[each])
        return self._again[op]

    def _narrow(self, op: Operation) -> tuple[Operation, list[Operation]]:
        """The op at the start of a chain of views and widening casts that ends at an op, and the chain, from its end;
        empty if it has no such cast."""
        passed: list[Operation] = []
        source, chain, current = op, list[Operation](), op
        while is_view(current) or is_widening(current):
            before = current.operands[0].owner
            if not isinstance(before, Operation) or not self._is_saved(before):
                break
            passed.append(current)
            if is_widening(current):
                source, chain = before, list(passed)
            current = before
        return source, chain

    def _mark(self, op: Operation) -> SSAValue:
        if op not in self._marks:
            mark = logical.SaveOp(op.results[0])
            name_after(mark, op, "save", self._ids)
            Rewriter.insert_op(mark, InsertPoint.after(op))
            self._marks[op] = mark.result
            self.nodes[op_id(mark) or ""] = self._owners[op]
        return self._marks[op]


def _lower(module: ModuleOp, options: Options, context: Context) -> None:
    front = front_passes(options.target, options.policy, "", options.threads, training=True)
    run((*front, *lowering_passes()), context, module)


def _decisions(module: ModuleOp) -> list[DecisionOp]:
    ledger = find_ledger(module)
    every = () if ledger is None else ledger.decisions
    return [decision for decision in every if decision.pass_name.data == EliminateSavesPass.name]
