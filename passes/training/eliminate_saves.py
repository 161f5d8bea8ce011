"""`eliminate-saves`: whether each forward value that the backward part reads is kept, aliased or recomputed.

The choice itself is in `save_choice.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.dialects.emit_types import TargetAttr
from aicf.errors import PolicyError
from aicf.passes.bodies.workload import TARGET_ATTR
from aicf.passes.fusion.op_prices import OpPrices
from aicf.passes.logical.recompute import eliminate
from aicf.passes.logical.saved_values import saves_in
from aicf.passes.support.identity import IdTable, op_id
from aicf.passes.support.interface import functions
from aicf.passes.support.policy import EXECUTION_ATTR, execution_of, with_stems, without_bucket
from aicf.passes.support.works_on import WorksOn
from aicf.passes.training.attention_saves import attention_pins
from aicf.passes.training.save_choice import Pin, choose
from aicf.passes.training.save_report import SaveReport
from aicf.policies.execution_policy import KEEP
from aicf.policies.fields import suggest


@dataclass(frozen=True)
class EliminateSavesPass(ModulePass):
    """Replaces every `logical.save`. A saved value is one of three:

    - kept: its buffer lives until its last reader;
    - an alias: it lies in memory that is there anyway, an argument's, a result's or another kept value's;
    - recomputed: the ops that give it are repeated, as `<id>.again`, before its first reader in the backward part.

    A value is kept unless the policy says otherwise (`saves: {a.save: recompute}`), computing it again costs nothing,
    or it is the weights of an attention whose backward part can be one kernel, which computes them itself.
    `less` (bytes of each function, or `step=4096,other=512`) recomputes values until the peak of live bytes is about
    that much lower, beginning with those that free the most bytes for their predicted time. The instructions then stay
    in text order, on one stream unless the policy says more, so that a value is recomputed just before it is read.
    `share`, below 1, is the share of the saved bytes that may stay: 0.25 frees three quarters of them. The choice is
    written into `aicf.execution`, as the policy that gives this program again.

    Raises PolicyError for a policy or an option that names no save or function, and for a share that is none.
    """

    name = "eliminate-saves"
    works_on = WorksOn(("logical.save",))

    less: int | str = 0
    share: float = 1.0

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not 0 <= self.share <= 1:
            raise PolicyError(f"share is {self.share}; give a number from 0 to 1")
        every = functions(op)
        names = [identity for f in every for save in saves_in(f.body.block) if (identity := op_id(save))]
        requests = execution_of(op).saves
        execution_of(op).check_saves(list(with_stems(names)))
        less = read_less(str(self.less), [function.sym_name.data for function in every])
        ids, target = IdTable(op), op.attributes.get(TARGET_ATTR)
        chosen: dict[str, str] = {}
        for function in every:
            saves = saves_in(function.body.block)
            if saves:
                prices = OpPrices(op, function)
                pins = (
                    dict(attention_pins(op, function, target, saves))
                    if isinstance(target, TargetAttr)
                    else {}
                )
                pins |= {save: pin for save in saves if (pin := requested_pin(save, requests)) is not None}
                choice = choose(
                    function.body.block, pins, less.get(function.sym_name.data, 0), prices, share=self.share
                )
                chosen |= SaveReport(op, self.name, function, choice, prices).write()
                eliminate(function.body.block, choice.held, ids)
        if chosen:
            execution = replace(execution_of(op), saves=chosen)
            if any(less.values()) or self.share < 1:
                execution = replace(execution, order="text", streams=execution.streams or 1)
            op.attributes[EXECUTION_ATTR] = execution.to_attr()


def requested_pin(save: logical.SaveOp, requests: Mapping[str, str]) -> Pin | None:
    """What the policy says of a save, by its entries for saves."""
    identity = op_id(save) or ""
    requested = requests.get(identity, requests.get(without_bucket(identity)))
    return None if requested is None else Pin(requested == KEEP)


def read_less(text: str, functions: Sequence[str]) -> dict[str, int]:
    """Bytes by function, of `4096` or `step=4096,other=512`.

    Raises:
        PolicyError: it is neither, or names no function.
    """
    if text.isdecimal():
        return dict.fromkeys(functions, int(text))
    found: dict[str, int] = {}
    for entry in text.split(","):
        name, _, number = entry.rpartition("=")
        if name not in functions or not number.isdecimal():
            raise PolicyError(
                f"less: '{entry}' is no number of bytes of a function; {suggest(name, functions, 'it has')}"
            )
        found[name] = int(number)
    return found


def write_less(less: Mapping[str, int]) -> str:
    """The text that `read_less` reads."""
    return ",".join(f"{name}={number}" for name, number in less.items())
