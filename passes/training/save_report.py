"""The choices about the saved values of a function as ledger and policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, f64, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import byte_count
from aicf.passes.bodies.outlining import is_rematerializable
from aicf.passes.bodies.workload import argument_attrs
from aicf.passes.fusion.op_prices import OpPrices
from aicf.passes.logical.saved_values import computing, is_always_in_memory, root_of, saves_in
from aicf.passes.support.identity import op_id
from aicf.passes.support.ledger import record_decision
from aicf.passes.training.save_choice import Choice
from aicf.policies.execution_policy import KEEP, RECOMPUTE

KEPT = "computing it again takes time, and memory is not short"


@dataclass(frozen=True)
class SaveReport:
    """Writes the table of choices of one function; its saves are still there."""

    module: ModuleOp
    pass_name: str
    function: FuncOp
    choice: Choice
    prices: OpPrices

    def write(self) -> dict[str, str]:
        """Records every choice; gives them as the policy says them, by the id of the save."""
        chosen: dict[str, str] = {}
        for save in saves_in(self.function.body.block):
            if (identity := op_id(save)) is not None:
                chosen[identity] = self._write(save, identity)
        if self.choice.after < self.choice.before:
            self._write_peak()
        return chosen

    def _write(self, save: logical.SaveOp, identity: str) -> str:
        root = root_of(save.operand)
        if (other := self._alias(save, root)) is not None:
            record_decision(
                self.module, self.pass_name, [identity], "alias", f"it lies in {other}, which is there anyway"
            )
            return KEEP
        because = self.choice.because.get(root, KEPT)
        way, other_way = (KEEP, RECOMPUTE) if root in self.choice.held else (RECOMPUTE, KEEP)
        against = {other_way: self._takes(root, other_way)}
        record_decision(self.module, self.pass_name, [identity], way, because, against, self._cost(root))
        return way

    def _alias(self, save: logical.SaveOp, root: SSAValue) -> str | None:
        """What the memory that a save needs is there for, if not for the save."""
        if isinstance(root, BlockArgument):
            name = argument_attrs(self.function, root.index).get(logical.NAME_ATTR)
            return f"argument {root.index}" if name is None else f"argument '{name.data}'"
        if is_always_in_memory(root):
            assert isinstance(root, OpResult)
            return f"'{op_id(root.op)}', a constant or a result"
        first = next(each.saves[0] for each in self.choice.memory if each.root is root)
        return None if save is first or root not in self.choice.held else f"what '{op_id(first)}' keeps"

    def _takes(self, root: SSAValue, way: str) -> str:
        """What either way takes."""
        if way == KEEP:
            return f"{byte_count(root.type)} bytes until it is read"
        count = sum(not is_rematerializable(op) for op in computing(root, self.choice.held - {root}))
        return f"{count} {'op' if count == 1 else 'ops'} again"

    def _cost(self, root: SSAValue) -> Mapping[str, Attribute]:
        """The bytes, and the price of computing it again unless an op of it runs as part of another alone."""
        price = sum(self.prices([op]) for op in computing(root, self.choice.held - {root}))
        figures: dict[str, Attribute] = {"bytes": IntegerAttr(byte_count(root.type), i64)}
        if isfinite(price):
            figures[f"recompute_{self.prices.unit}"] = FloatAttr(round(price, 3), f64)
        return figures

    def _write_peak(self) -> None:
        choice = self.choice
        count = sum(each.root not in choice.held for each in choice.memory)
        because = f"{choice.after} bytes alive at most, {choice.before} before, as estimated without groups"
        text = f"{count} of {len(choice.memory)} saved values computed again"
        record_decision(self.module, self.pass_name, [self.function.sym_name.data], text, because)
