"""`separate-meta`: who computes the counters, rates and corrections of a training step, the program or the executable.

These scalars follow from the number of the step alone. As part of the program they cost a small instruction; as metas
that the executable sets before each run they cost a copy to the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, StringAttr, f64, i64
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from aicf.dialects import logical
from aicf.dialects.emit_buffers import HOST_ELEMENTS
from aicf.dialects.host_formulas import SIGNATURES, formula, kept
from aicf.dialects.logical import HOST_ATTR, LogicalOp
from aicf.dialects.step_names import BAD_STEP
from aicf.dialects.types import dense_array, tensor_info
from aicf.errors import PolicyError
from aicf.passes.bodies.workload import argument_attrs
from aicf.passes.support.identity import derived_id, invalid, op_id
from aicf.passes.support.interface import (
    Result,
    add_argument,
    arguments_of,
    functions,
    mark_argument,
    results_of,
    set_results,
)
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS

MANAGERS = ("device", "host")


@dataclass(frozen=True)
class SeparateMetaPass(ModulePass):
    """Decides where scalars are computed that follow from metas alone: counters, rates, corrections, random offsets.

    `meta=device` leaves them in the program. `meta=host` makes each a meta of the name of its op, with the formula by
    which the executable sets it before each run, also of each of `replay(n)`; a counter is no result any more but
    kept by the executable. What depends on data stays in the program. A counter that `check-finite` holds back stays a
    result too, and the executable takes it as it is whenever it reads the state.
    """

    name = "separate-meta"
    works_on = FUNCTIONS

    meta: str = "device"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.meta not in MANAGERS:
            raise PolicyError(f"meta: '{self.meta}' is not known; legal: {', '.join(MANAGERS)}")
        for function in functions(op):
            metas = _Metas.of(function)
            if self.meta == "host":
                _separate(op, metas)
            else:
                _note_device(op, metas)


@dataclass
class _Metas:
    """The metas of one function, and what follows from them alone.

    Args:
        follows: The ops that the executable could compute.
        next: The new value of each meta that such an op updates.
        held: Metas among them whose update is held back by a flag, and stays a result.
        reasons: Why a meta that is updated stays in the program.
        meta_of: The meta that has become of each op.
    """

    function: func.FuncOp
    follows: list[LogicalOp] = field(default_factory=list[LogicalOp])
    next: dict[str, OpResult] = field(default_factory=dict[str, OpResult])
    held: set[str] = field(default_factory=set[str])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    meta_of: dict[SSAValue, BlockArgument] = field(default_factory=dict[SSAValue, BlockArgument])

    @staticmethod
    def of(function: func.FuncOp) -> _Metas:
        """Finds them: all metas of one number may be known, until an update says otherwise."""
        metas = _Metas(function)
        known = {name: a for name, a in arguments_of(function).items() if _is_scalar_meta(function, a)}
        while True:
            metas.follows = list(_following(function, set(known.values())))
            unknown = metas._sort_updates(known)
            if not unknown:
                return metas
            for name in unknown:
                del known[name]

    def _sort_updates(self, known: Mapping[str, BlockArgument]) -> list[str]:
        """Finds the new values of `known` metas; gives the names of those that have one from the program."""
        self.next, self.held = {}, set()
        computed = {op.result for op in self.follows}
        results = results_of(self.function)
        unknown: list[str] = []
        for result in results:
            if (name := result.updates) is None or name not in known:
                continue
            value = _guarded(result.value, known[name], results)
            if isinstance(value, OpResult) and value in computed:
                self.next[name] = value
                if value is not result.value:
                    self.held.add(name)
            else:
                self.reasons[name] = "its new value depends on data"
                unknown.append(name)
        return unknown


def _is_scalar_meta(function: func.FuncOp, argument: BlockArgument) -> bool:
    role = argument_attrs(function, argument.index).get(logical.ROLE_ATTR)
    return role == StringAttr("meta") and _is_scalar(argument)


def _is_scalar(value: SSAValue) -> bool:
    info = tensor_info(value.type)
    return not info.rank and info.element.name in HOST_ELEMENTS


def _following(function: func.FuncOp, metas: set[BlockArgument]) -> Iterator[LogicalOp]:
    """The ops that have formulas for the executable, of `metas` and numbers, in order."""
    known: set[SSAValue] = set(metas)
    for op in function.body.block.ops:
        if not isinstance(op, LogicalOp) or _formula_of(op) not in SIGNATURES or not _is_scalar(op.result):
            continue
        operands = [operand for operand in op.operands if _number(operand) is None]
        if operands and all(operand in known for operand in operands):
            known.add(op.result)
            yield op


def _formula_of(op: LogicalOp) -> str:
    return op.name.removeprefix("logical.")


def _number(value: SSAValue) -> Attribute | None:
    """The value of a constant, as an attribute."""
    if not isinstance(value.owner, logical.ConstantOp):
        return None
    if not _is_scalar(value):
        return None
    number = dense_array(value.owner.value).item()
    return IntegerAttr(number, i64) if isinstance(number, int) else FloatAttr(number, f64)


def _guarded(value: SSAValue, old: SSAValue, results: Sequence[Result]) -> SSAValue:
    """The new value that lets through the flag of `check-finite`, where that holds back all that is updated.

    Once it does, nothing that the executable computes has an effect any more, so it may go on counting.
    """
    if (guard := _guard_of(value, old)) is None or not _is_flag(guard, results):
        return value
    assert isinstance(value.owner, logical.SelectOp)
    return value.owner.on_true


def _guard_of(value: SSAValue, old: SSAValue) -> SSAValue | None:
    """The scalar that chooses between a new value and the old one."""
    if not isinstance(value.owner, logical.SelectOp):
        return None
    condition = value.owner.condition
    if isinstance(condition.owner, logical.BroadcastOp):
        condition = condition.owner.operand
    return condition if value.owner.on_false is old else None


def _is_flag(guard: SSAValue, results: Sequence[Result]) -> bool:
    """Whether a guard says that the flag is not set, and every update of `results` has it."""
    flag = next((result.value for result in results if result.updates == BAD_STEP), None)
    if not isinstance(guard.owner, logical.CompareOp):
        return False
    function = guard.owner.parent_op()
    assert isinstance(function, func.FuncOp)
    arguments = arguments_of(function)
    updates = [
        (r.value, arguments[r.updates]) for r in results if r.updates is not None and r.value is not flag
    ]
    return guard.owner.operands[0] is flag and all(_guard_of(*update) is guard for update in updates)


# What becomes of them


def _note_device(module: ModuleOp, metas: _Metas) -> None:
    if ids := [identity for op in metas.follows if (identity := op_id(op)) is not None]:
        record_decision(
            module,
            SeparateMetaPass.name,
            ids,
            "device: computed in the program",
            "option meta=device",
            {"host": "a copy to the device before each run"},
        )


def _separate(module: ModuleOp, metas: _Metas) -> None:
    function, names = metas.function, _Names(metas.function)
    made: dict[tuple[Attribute, Attribute], BlockArgument] = {}
    for op in _needed(metas):
        entry = formula(_formula_of(op), [names.operand(value) for value in op.operands], op.properties)
        if (meta := made.get((entry, op.result.type))) is None:
            name = names.fresh(op)
            meta = add_argument(function, name, "meta", op.result.type, {HOST_ATTR: entry})
            made[entry, op.result.type] = meta
            _note_host(module, op, name)
        names.of[meta] = names.of[op.result] = _name(function, meta)
        metas.meta_of[op.result] = meta
    _keep(metas, names)
    for op in reversed(metas.follows):
        if (meta := metas.meta_of.get(op.result)) is not None:
            op.result.replace_all_uses_with(meta)
            Rewriter.erase_op(op)
    for name, reason in metas.reasons.items():
        record_decision(module, SeparateMetaPass.name, [name], "device: computed in the program", reason)


def _note_host(module: ModuleOp, op: LogicalOp, name: str) -> None:
    record_decision(
        module,
        SeparateMetaPass.name,
        [name],
        "host: set before each run",
        f"{_formula_of(op)} of metas and numbers; option meta=host",
        {"device": "an instruction that computes it in each run"},
    )


def _needed(metas: _Metas) -> list[LogicalOp]:
    """Those of the ops whose value the program reads, or the next run, and what these are computed of; in order."""
    wanted: set[SSAValue] = set(metas.next.values())
    following = set[Operation](metas.follows)
    needed: list[LogicalOp] = []
    for op in reversed(metas.follows):
        if op.result in wanted or any(use.operation not in following for use in op.result.uses):
            needed.append(op)
            wanted.update(op.operands)
    return needed[::-1]


def _keep(metas: _Metas, names: _Names) -> None:
    """Marks the metas that the executable keeps; they are results only where the program holds them back."""
    function = metas.function
    for argument in [a for name, a in arguments_of(function).items() if name in metas.next]:
        value = metas.next[_name(function, argument)]
        mark_argument(function, argument.index, HOST_ATTR, kept(names.of[value]))
    results: list[Result] = []
    for result in results_of(function):
        if result.updates not in metas.next or result.updates in metas.held:
            results.append(result)
        elif result.name is not None:
            results.append(result.without_update())
    set_results(function, results)


class _Names:
    """What the formulas call metas: by their names."""

    def __init__(self, function: func.FuncOp) -> None:
        arguments, results = arguments_of(function), results_of(function)
        self.of: dict[SSAValue, str] = {argument: name for name, argument in arguments.items()}
        self._taken = {*arguments, *(result.name for result in results if result.name is not None)}

    def operand(self, value: SSAValue) -> Attribute:
        """An operand of a formula: the name of a meta, or a number."""
        return _number(value) or StringAttr(self.of[value])

    def fresh(self, op: LogicalOp) -> str:
        """The name of a computed meta: the id of its op, with a suffix where that is taken."""
        if (name := op_id(op)) is None:
            raise invalid(op, "has no id to call a meta by; run assign-ids first")
        while name in self._taken:
            name = derived_id(name, "meta")
        self._taken.add(name)
        return name


def _name(function: func.FuncOp, argument: BlockArgument) -> str:
    return argument_attrs(function, argument.index)[logical.NAME_ATTR].data
