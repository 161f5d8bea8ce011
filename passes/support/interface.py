"""Changing what a function takes and gives: arguments and results come and go with their attributes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import func
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    ModuleOp,
    StringAttr,
)
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.utils.hints import isa

from aicf.dialects.logical import COUNTS_ATTR, HOST_ATTR, NAME_ATTR, ROLE_ATTR, START_ATTR, UPDATES_ATTR, Role
from aicf.passes.support.identity import value_hint


def functions(module: ModuleOp) -> list[func.FuncOp]:
    """The functions of a module that have a body, in text order."""
    return [op for op in module.body.block.ops if isinstance(op, func.FuncOp) and op.body.blocks]


@dataclass(frozen=True)
class Result:
    """One result of a function: its value, and the attributes that name it or say what it updates."""

    value: SSAValue
    attrs: Mapping[str, Attribute]

    @property
    def name(self) -> str | None:
        """What callers know it by; None if nobody is given it."""
        return _text(self.attrs.get(NAME_ATTR))

    @property
    def updates(self) -> str | None:
        """The parameter, state or meta that it is the new value of."""
        return _text(self.attrs.get(UPDATES_ATTR))

    def with_value(self, value: SSAValue) -> Result:
        """The same result, computed otherwise."""
        return replace(self, value=value)

    def without_update(self) -> Result:
        """The same result, which updates nothing."""
        return replace(self, attrs={key: attr for key, attr in self.attrs.items() if key != UPDATES_ATTR})


def _text(attr: Attribute | None) -> str | None:
    return attr.data if isinstance(attr, StringAttr) else None


def results_of(function: func.FuncOp) -> list[Result]:
    """What the function gives, in order."""
    returned = function.body.block.last_op
    assert isinstance(returned, func.ReturnOp)
    attrs = entries_of(function.res_attrs, len(returned.operands))
    return [Result(value, entry) for value, entry in zip(returned.operands, attrs, strict=True)]


def set_results(function: func.FuncOp, results: Sequence[Result]) -> None:
    """Lets the function give `results`."""
    returned = function.body.block.last_op
    assert isinstance(returned, func.ReturnOp)
    returned.operands = [result.value for result in results]
    function.res_attrs = ArrayAttr([DictionaryAttr(dict(result.attrs)) for result in results])
    function.update_function_type()


def arguments_of(function: func.FuncOp) -> dict[str, BlockArgument]:
    """The arguments by name."""
    attrs = entries_of(function.arg_attrs, len(function.args))
    return {
        name: argument
        for argument, entry in zip(function.args, attrs, strict=True)
        if (name := _text(entry.get(NAME_ATTR))) is not None
    }


def argument_entry(function: func.FuncOp, index: int) -> Mapping[str, Attribute]:
    """All attributes of one argument."""
    return entries_of(function.arg_attrs, len(function.args))[index]


def meta_attrs(
    entry: Mapping[str, Attribute],
) -> tuple[DictionaryAttr | None, DenseIntOrFPElementsAttr | None]:
    """Of the attributes of an argument: how the executable computes it, and what it starts with."""
    host, start = entry.get(HOST_ATTR), entry.get(START_ATTR)
    assert host is None or isinstance(host, DictionaryAttr)
    assert start is None or isa(start, DenseIntOrFPElementsAttr)
    return host, start


def counts_of(function: func.FuncOp, index: int) -> DictionaryAttr | None:
    """Of which results one result says how many slices are there; None if of none."""
    counts = entries_of(function.res_attrs, len(function.function_type.outputs))[index].get(COUNTS_ATTR)
    assert counts is None or isinstance(counts, DictionaryAttr)
    return counts


def add_argument(
    function: func.FuncOp, name: str, role: Role, type_: Attribute, attrs: Mapping[str, Attribute]
) -> BlockArgument:
    """A new last argument, with `attrs` beside its name and role."""
    entries = entries_of(function.arg_attrs, len(function.args))
    argument = function.body.block.insert_arg(type_, len(function.args))
    argument.name_hint = value_hint(name)
    entry = {NAME_ATTR: StringAttr(name), ROLE_ATTR: StringAttr(role), **attrs}
    function.arg_attrs = ArrayAttr([*map(_dictionary, entries), _dictionary(entry)])
    function.update_function_type()
    return argument


def drop_arguments(function: func.FuncOp, names: Collection[str]) -> None:
    """Takes arguments out that nothing reads."""
    arguments = arguments_of(function)
    dropped = {arguments[name].index for name in names}
    entries = entries_of(function.arg_attrs, len(function.args))
    for index in sorted(dropped, reverse=True):
        function.body.block.erase_arg(function.args[index])
        del entries[index]
    if dropped:
        function.arg_attrs = ArrayAttr(map(_dictionary, entries))
        function.update_function_type()


def mark_argument(function: func.FuncOp, index: int, key: str, attr: Attribute) -> None:
    """Sets one attribute of an argument."""
    entries = entries_of(function.arg_attrs, len(function.args))
    entries[index] = {**entries[index], key: attr}
    function.arg_attrs = ArrayAttr(map(_dictionary, entries))


def _dictionary(entry: Mapping[str, Attribute]) -> DictionaryAttr:
    return DictionaryAttr(dict(entry))


def entries_of(attrs: ArrayAttr[DictionaryAttr] | None, count: int) -> list[Mapping[str, Attribute]]:
    """The attributes of each of `count` arguments or results, which a function without any states as None."""
    return [{} for _ in range(count)] if attrs is None else [entry.data for entry in attrs]
