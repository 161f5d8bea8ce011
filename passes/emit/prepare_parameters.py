"""`prepare-parameters`: what is computed of parameters alone goes to `@prepare`, which runs once for all programs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import prod

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    i64,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.dialects.emit import PREPARE, GroupOp, symbols
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.matching import computed_from
from aicf.passes.bodies.outlining import id_of, name_of, outline
from aicf.passes.bodies.structure import structure_of_body
from aicf.passes.bodies.views import is_view
from aicf.passes.bodies.workload import target_of, updated_names
from aicf.passes.emit.parameters import ParameterValues, Stays, ids_of
from aicf.passes.fusion.forming import FusionContext, form_group
from aicf.passes.layout.materialize_views import break_chains, without_feeder
from aicf.passes.support.identity import (
    IdTable,
    merge_sources,
    op_id,
    set_identity,
    sources,
    unused,
    value_hint,
)
from aicf.passes.support.interface import (
    add_argument,
    arguments_of,
    functions,
    mark_argument,
    results_of,
)
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import execution_of, policy_of, without_bucket
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class PrepareParametersPass(ModulePass):
    """Moves what follows from parameters that no program updates into the function `@prepare`.

    Each function gets an argument of role `derived` for every value that crosses, named after the first parameter that
    it follows from and the op that makes it: `fc1.weight:dequantize`. Equal values of several functions are one. Views
    stay with their readers, where they are strides. An elementwise result that is much larger than its parameters stays
    where it is computed and read in one kernel, and so does what the policy groups with other ops. A policy without
    prepared weights moves nothing.
    """

    name = "prepare-parameters"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if PREPARE in symbols(op) or not execution_of(op).prepared_weights:
            return
        every = functions(op)
        updated = frozenset[str]().union(*map(updated_names, every), _of_two_types(every))
        prepared = _Prepared(op)
        for function in every:
            values = ParameterValues(function, updated)
            if policy_of(op).groups:
                wanted = frozenset(_wanted(values, policy_of(op).groups))
                values = ParameterValues(function, updated, wanted)
            prepared.take(values)
            for stays in values.stays.values():
                _record_stay(op, stays, is_wanted=not values.wanted.isdisjoint(ids_of(stays.op)))
        prepared.finish()


def _of_two_types(every: Iterable[func.FuncOp]) -> Iterator[str]:
    """Names under which functions take tensors of different types: those are no programs of one model."""
    types: dict[str, Attribute] = {}
    for function in every:
        for name, argument in arguments_of(function).items():
            if types.setdefault(name, argument.type) != argument.type:
                yield name


def _wanted(values: ParameterValues, groups: Iterable[Iterable[str]]) -> Iterator[str]:
    """Ids of ops of parameters alone that the policy groups with others."""
    alone: dict[str, bool] = {}
    for op in values.function.body.block.ops:
        if not (is_view(op) or isinstance(op, logical.ConstantOp)):
            is_alone = any(result in values.fixed for result in op.results)
            alone |= {name: is_alone for id_ in ids_of(op) for name in (id_, without_bucket(id_))}
    for group in groups:
        members = [id_ for id_ in group if id_ in alone]
        if not all(alone[id_] for id_ in members):
            for id_ in members:
                yield from (id_, *(full for full in alone if without_bucket(full) == id_))


def _record_stay(module: ModuleOp, stays: Stays, *, is_wanted: bool) -> None:
    names = [name for name in (name_of(stays.op), *ids_of(stays.op)) if name is not None]
    because = (
        "the policy lists it in one group with its consumers"
        if is_wanted
        else f"it has {stays.nbytes} bytes and follows from {stays.made_of} bytes of parameters, which are less to read"
    )
    record_decision(
        module, PrepareParametersPass.name, names, "at every call", because, cost=_bytes(stays.nbytes)
    )


def _bytes(count: int) -> dict[str, IntegerAttr]:
    return {"bytes": IntegerAttr(count, i64)}


@dataclass(frozen=True)
class _Crossing:
    """A value that a function reads and `@prepare` makes.

    Args:
        argument: What the function reads it as.
        made: It, in `@prepare`.
        src: Names of the op that made it, in the function.
        params: Names of the parameters that it follows from.
    """

    function: func.FuncOp
    argument: BlockArgument
    made: OpResult
    src: tuple[str, ...]
    params: tuple[str, ...]


@dataclass
class _Prepared:
    """The function `@prepare` while it is made.

    Args:
        params: Its arguments.
        known: What was moved already, by what it computes.
        crossings: What functions read of it, by function and value: equal values of one function are one argument.
    """

    module: ModuleOp
    block: Block = field(default_factory=Block)
    params: dict[str, BlockArgument] = field(default_factory=dict[str, BlockArgument])
    known: dict[Hashable, Operation] = field(default_factory=dict[Hashable, Operation])
    crossings: dict[tuple[func.FuncOp, OpResult], _Crossing] = field(
        default_factory=dict[tuple[func.FuncOp, OpResult], _Crossing]
    )

    def take(self, values: ParameterValues) -> None:
        """Moves the values of one function that are to be computed once."""
        names = {argument: name for name, argument in arguments_of(values.function).items()}
        # By their ids, so that the order of what reads them says nothing: a schedule may change it.
        crossing = sorted(values.crossing, key=lambda value: (_stem(value.op), value.index))
        block = values.function.body.block
        params = {value: _params_of(value) for value in crossing}
        here: dict[SSAValue, SSAValue] = {}
        for argument in dict.fromkeys(chain(*params.values())):
            here[argument] = self._param(names[argument], argument)
        moved: dict[Operation, None] = {}
        for value in crossing:
            for op in computed_from([value], here, block.ops):
                self._move(op, here)
                moved[op] = None
        for value in crossing:
            self._cross(values.function, value, here[value], [names[each] for each in params[value]])
        for op in reversed(moved):
            if not any(result.uses for result in op.results):
                block.erase_op(op)

    def _param(self, name: str, argument: BlockArgument) -> BlockArgument:
        if name not in self.params:
            self.params[name] = self.block.insert_arg(argument.type, len(self.block.args))
            self.params[name].name_hint = argument.name_hint
        return self.params[name]

    def _move(self, op: Operation, here: dict[SSAValue, SSAValue]) -> None:
        """Notes in `here` what `op` gives in `@prepare`: of an op that is there, or of a copy."""
        key = _computes(op, here)
        if (made := self.known.get(key)) is None:
            made = self.known[key] = op.clone(here)
            self.block.add_op(made)
        elif not isinstance(made, GroupOp):
            merge_sources(made, op)
        here.update(zip(op.results, made.results, strict=True))

    def _cross(self, function: func.FuncOp, value: OpResult, made: SSAValue, params: Sequence[str]) -> None:
        """Lets `function` read a new argument in place of `value`; what it is called is settled in the end."""
        assert isinstance(made, OpResult)
        src = tuple(name for name in (name_of(value.op), *ids_of(value.op)) if name is not None)
        if (known := self.crossings.get((function, made))) is None:
            argument = add_argument(function, "", "derived", value.type, {})
            crossing = _Crossing(function, argument, made, src, tuple(params))
        else:
            crossing = replace(known, src=tuple(dict.fromkeys((*known.src, *src))))
        value.replace_all_uses_with(crossing.argument)
        self.crossings[function, made] = crossing

    def finish(self) -> None:
        """Adds `@prepare` to the module, before the functions, if it computes anything. Views that cross are copied
        there."""
        if not self.crossings:
            return
        ids, crossing = IdTable(self.module), {made.op for _, made in self.crossings}
        for op in self.block.walk():
            if isinstance(op, GroupOp):
                op.id = StringAttr(without_bucket(op.id.data))
            if (id_ := op_id(op)) is not None:
                wanted = _stem(op) if op in crossing else without_bucket(id_)
                set_identity(op, ids.fresh(wanted), sources(op))
        results = self._results()
        self.block.add_op(func.ReturnOp(*results))
        inputs, outputs = self.block.arg_types, [value.type for value in results]
        function = func.FuncOp(
            PREPARE,
            FunctionType.from_lists(inputs, outputs),
            Region(self.block),
            arg_attrs=ArrayAttr(_entry(name, role="param") for name in self.params),
            res_attrs=ArrayAttr(_entry(name) for name in results.values()),
        )
        self.module.body.block.insert_op_before(function, functions(self.module)[0])
        self._copy_views(function)

    def _copy_views(self, function: func.FuncOp) -> None:
        """Copies the views that cross. Of a chain that strides cannot express, the earlier parts are copied too."""
        if any(is_view(result.value.owner) for result in results_of(function)):
            context = FusionContext(self.module, function, target_of(self.module), policy_of(self.module))
            break_chains(context)
            for result in results_of(function):
                if is_view(view := result.value.owner):
                    form_group(outline([view], id_of(view), view.results), context)

    def _results(self) -> dict[SSAValue, str]:
        """Calls what crosses by its first parameter and the op that makes it, and records it."""
        taken = {name for function in functions(self.module) for name in arguments_of(function)}
        results: dict[SSAValue, str] = {}
        for each in self.crossings.values():
            is_new = each.made not in results
            if is_new:
                results[each.made] = unused(f"{each.params[0]}:{_name_of_result(each.made)}", taken)
            name = results[each.made]
            mark_argument(each.function, each.argument.index, logical.NAME_ATTR, StringAttr(name))
            each.argument.name_hint = value_hint(name) or each.made.name_hint
            self._record(each, name, is_new=is_new)
        return results

    def _record(self, crossing: _Crossing, name: str, *, is_new: bool) -> None:
        info = tensor_info(crossing.made.type)
        record_decision(
            self.module,
            PrepareParametersPass.name,
            [name, *crossing.src],
            "computed once" if is_new else "computed once, as for another program",
            f"it follows from {', '.join(crossing.params)}, which no program updates",
            {"at every call": "it would be the same each time"},
            _bytes(prod(info.shape) * info.element.bytes),
        )


def _params_of(value: SSAValue) -> list[BlockArgument]:
    """The parameters that a value follows from, in the order in which its operands name them."""
    found: list[BlockArgument] = []
    stack, seen = [value], set[SSAValue]()
    while stack:
        here = stack.pop()
        if here in seen:
            continue
        seen.add(here)
        if isinstance(here, BlockArgument):
            found.append(here)
        elif isinstance(here, OpResult):
            stack += reversed(here.op.operands)
    return found


def _stem(op: Operation) -> str:
    """What an op whose result crosses is called in `@prepare`: by its id without the bucket, which others may share. A
    view that feeds an instruction of a raised program has that one's name."""
    name = without_bucket(name_of(op) or "")
    return without_feeder(name) if is_view(op) else name


def _name_of_result(value: OpResult) -> str:
    return f"{name_of(value.op)}.{value.index}" if value.index else f"{name_of(value.op)}"


def _computes(op: Operation, here: dict[SSAValue, SSAValue]) -> Hashable:
    """What an op computes of the values of `@prepare`: equal ops give equal values. Constants of two names are two."""
    body = structure_of_body(op.body.block) if isinstance(op, GroupOp) else None
    said = {} if isinstance(op, GroupOp) else op.properties
    attributes = (
        item for item in op.attributes.items() if item[0] not in (logical.ID_ATTR, logical.SRC_ATTR)
    )
    types = tuple(result.type for result in op.results)
    operands = tuple(id(here[operand]) for operand in op.operands)
    name = without_bucket(name_of(op) or "") if isinstance(op, logical.ConstantOp) else None
    return op.name, name, operands, frozenset(said.items()), frozenset(attributes), types, body


def _entry(name: str, role: str | None = None) -> DictionaryAttr:
    """Attributes of an argument of a role, or of a result."""
    given = {} if role is None else {logical.ROLE_ATTR: StringAttr(role)}
    return DictionaryAttr({logical.NAME_ATTR: StringAttr(name), **given})
