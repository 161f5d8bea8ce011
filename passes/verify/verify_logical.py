"""``verify-logical``: the rules of a logical program that no single op can check.

Functions state a complete interface (a name and a role per argument, a name or an update per result),
symbolic sizes come from the arguments, ids are unique, and nothing mentions a method: kernels, tiles and
streams belong to emit IR.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from aicf.dialects.custom_ops import require_definition
from aicf.dialects.dims import Poly
from aicf.dialects.emit import GroupOp
from aicf.dialects.host_formulas import check_host
from aicf.dialects.logical import (
    COUNTS_ATTR,
    HOST_ATTR,
    NAME_ATTR,
    ROLE_ATTR,
    ROLES,
    START_ATTR,
    UPDATES_ATTR,
    CustomOp,
    DispatchOp,
    LogicalOp,
)
from aicf.dialects.onnx import GraphOp
from aicf.dialects.types import is_tensor, tensor, tensor_info
from aicf.errors import InvalidIR, UnsupportedOp
from aicf.passes.support.identity import invalid, invalid_function, op_id, position_of, sources
from aicf.passes.support.interface import entries_of
from aicf.passes.support.works_on import IS_FINAL, MODELS, is_final

METHOD_WORDS = ("kernel", "grid", "block", "tile", "shared", "stream", "arena", "tensor_core")
"""Words of emit IR; an attribute of a logical program that mentions one decides what a pass should."""

UPDATED_ROLES = ("param", "state", "meta")
_SHARED_ROLES = ("param", "state")


@dataclass(frozen=True)
class VerifyLogicalPass(ModulePass):
    """Changes nothing; raises on the first rule that the program breaks.

    With `groups`, a lowered program may hold groups that were formed by hand: the fusing passes leave them as they are.
    """

    name = "verify-logical"
    works_on = MODELS

    groups: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        functions = [inner for inner in op.body.block.ops if isinstance(inner, FuncOp)]
        if not functions and not any(isinstance(inner, GraphOp) for inner in op.body.block.ops):
            if is_final(op):
                raise InvalidIR(f"{IS_FINAL}; run raise-emit first, which gives back its functions")
            raise InvalidIR("the module has no func.func; a program is at least one function")
        _check_dispatches(op)
        for function in functions:
            _check_function(function, self.groups)
        _check_shared(functions)
        _check_ids(op)


def _check_dispatches(module: ModuleOp) -> None:
    defined = {op.properties.get("sym_name") for op in module.body.block.ops}
    for op in module.body.block.ops:
        if isinstance(op, DispatchOp):
            missing = [program for program in op.table.values() if StringAttr(program) not in defined]
            if missing:
                raise invalid(op, f"there is no @{missing[0]} in the module; define it or drop its row")


def _check_function(function: FuncOp, groups: bool) -> None:
    if len(function.body.blocks) != 1 or not isinstance(function.body.block.last_op, ReturnOp):
        raise invalid_function(function, "a program is one block that ends in func.return")
    _check_words(function, function.attributes)
    _check_types(function)
    arguments = entries_of(function.arg_attrs, len(function.function_type.inputs))
    results = entries_of(function.res_attrs, len(function.function_type.outputs))
    _check_arguments(function, arguments)
    _check_results(function, arguments, results)
    _check_names(function, [*arguments, *results])
    _check_dimensions(function)
    for op in function.body.block.ops:
        if isinstance(op, GroupOp):
            if not groups:
                raise invalid(
                    op, "a program with groups is lowered already; run the pipeline with start=lowered"
                )
        elif not isinstance(op, LogicalOp | ReturnOp):
            raise invalid(op, "is no logical op; a program is made of logical ops and func.return")
        else:
            _check_words(op, op.attributes)
            if isinstance(op, CustomOp):
                _check_defined(op)


def _check_defined(op: CustomOp) -> None:
    """Raises UnsupportedOp for an op of a user that nothing here defines."""
    if op.whole_op is None:
        try:
            require_definition(op.label)
        except UnsupportedOp as error:
            raise UnsupportedOp(error.message, location=position_of(op)) from error


def _check_shared(functions: Iterable[FuncOp]) -> None:
    """Parameters and states are those of the module: where functions name the same, it has one type."""
    known: dict[str, tuple[Attribute, str]] = {}
    for function in functions:
        arguments = entries_of(function.arg_attrs, len(function.function_type.inputs))
        for entry, type_ in zip(arguments, function.function_type.inputs, strict=True):
            role, name = _text(entry, ROLE_ATTR), _text(entry, NAME_ATTR)
            if name is None or role not in _SHARED_ROLES:
                continue
            first, owner = known.setdefault(name, (type_, function.sym_name.data))
            if first != type_:
                raise invalid_function(
                    function,
                    f"{role} '{name}' is a {type_}, and a {first} in @{owner}: functions of a module share what has "
                    "one name; give it another name",
                )


def _check_types(function: FuncOp) -> None:
    for type_ in (*function.function_type.inputs, *function.function_type.outputs):
        try:
            tensor_info(type_)
        except VerifyException as error:
            raise invalid_function(function, str(error)) from error
    returned = function.body.block.last_op
    assert returned is not None
    if tuple(returned.operand_types) != tuple(function.function_type.outputs):
        raise invalid(returned, f"returns other types than @{function.sym_name.data} states")


Entry = Mapping[str, Attribute]


def _text(entry: Entry, name: str) -> str | None:
    attr = entry.get(name)
    return attr.data if isinstance(attr, StringAttr) and attr.data else None


def _check_arguments(function: FuncOp, arguments: Sequence[Entry]) -> None:
    roles = ", ".join(ROLES)
    for index, entry in enumerate(arguments):
        _check_known(function, f"argument {index}", entry, (NAME_ATTR, ROLE_ATTR))
        name = _text(entry, NAME_ATTR)
        if name is None:
            raise invalid_function(function, f'argument {index} has no name; give it {NAME_ATTR} = "..."')
        role = _text(entry, ROLE_ATTR)
        if role not in ROLES:
            found = "has no role" if role is None else f'has the unknown role "{role}"'
            raise invalid_function(function, f'argument "{name}" {found}; {ROLE_ATTR} is one of {roles}')
        _check_meta(function, name, role, entry)


def _check_meta(function: FuncOp, name: str, role: str, entry: Entry) -> None:
    """What a meta starts with, and how the executable computes it; no other argument says so."""
    start, host = entry.get(START_ATTR), entry.get(HOST_ATTR)
    for key, attr in ((START_ATTR, start), (HOST_ATTR, host)):
        if attr is not None and role != "meta":
            raise invalid_function(
                function, f'argument "{name}" has {key}, which is for metas; its role is {role}'
            )
    if start is not None and not isa(start, DenseIntOrFPElementsAttr):
        raise invalid_function(function, f'argument "{name}": {START_ATTR} is a dense tensor, got {start}')
    if host is None:
        return
    if not isinstance(host, DictionaryAttr):
        raise invalid_function(function, f'argument "{name}": {HOST_ATTR} is a dictionary, got {host}')
    try:
        check_host(host)
    except VerifyException as error:
        raise invalid_function(function, f'argument "{name}": {error}') from error


def _check_known(function: FuncOp, what: str, entry: Entry, known: Sequence[str]) -> None:
    _check_words(function, entry)
    for name in entry:
        if name.startswith("logical.") and name not in known:
            raise invalid_function(
                function, f"{what} has the unknown attribute {name}; it takes {', '.join(known)}"
            )


def _check_results(function: FuncOp, arguments: Sequence[Entry], results: Sequence[Entry]) -> None:
    updated: set[str] = set()
    for index, entry in enumerate(results):
        _check_known(function, f"result {index}", entry, (NAME_ATTR, UPDATES_ATTR))
        _check_counts(function, results, index)
        target = _text(entry, UPDATES_ATTR)
        if target is None:
            if _text(entry, NAME_ATTR) is None:
                raise invalid_function(
                    function,
                    f'result {index} has no name; give it {NAME_ATTR} = "..." or {UPDATES_ATTR} = "..."',
                )
            continue
        if target in updated:
            raise invalid_function(
                function, f'"{target}" is updated by two results; return its new value once'
            )
        updated.add(target)
        _check_update(function, arguments, index, target)


def _check_counts(function: FuncOp, results: Sequence[Entry], index: int) -> None:
    """A count is one i64, and says of named results how many slices along one of their dimensions are there."""
    counts = results[index].get(COUNTS_ATTR)
    if counts is None:
        return
    types = function.function_type.outputs.data
    if not isinstance(counts, DictionaryAttr) or types[index] != tensor((), "i64"):
        raise invalid_function(
            function, f"result {index} has {COUNTS_ATTR}; it is one i64, and {COUNTS_ATTR} a dictionary"
        )
    ranks = {
        _text(entry, NAME_ATTR): tensor_info(type_).rank for entry, type_ in zip(results, types, strict=True)
    }
    for name, axis in counts.data.items():
        if not isinstance(axis, IntegerAttr) or not 0 <= axis.value.data < ranks.get(name, 0):
            raise invalid_function(
                function, f'result {index} counts "{name}" along {axis}; no result has that dimension'
            )


def _check_update(function: FuncOp, arguments: Sequence[Entry], index: int, target: str) -> None:
    position = next((i for i, entry in enumerate(arguments) if _text(entry, NAME_ATTR) == target), None)
    if position is None:
        raise invalid_function(function, f'result {index} updates "{target}", which is no argument')
    role = _text(arguments[position], ROLE_ATTR)
    if role not in UPDATED_ROLES:
        raise invalid_function(
            function,
            f'result {index} updates "{target}", whose role is {role}; only param, state and meta change',
        )
    old, new = function.function_type.inputs.data[position], function.function_type.outputs.data[index]
    if old != new:
        raise invalid_function(
            function, f'result {index} updates "{target}" of type {tensor_info(old)} with {tensor_info(new)}'
        )


def _check_names(function: FuncOp, entries: Iterable[Entry]) -> None:
    seen: set[str] = set()
    for entry in entries:
        name = _text(entry, NAME_ATTR)
        if name is not None and name in seen:
            raise invalid_function(
                function, f'the name "{name}" is used twice; arguments and results have names of their own'
            )
        if name is not None:
            seen.add(name)


def _check_dimensions(function: FuncOp) -> None:
    bound = {
        str(size)
        for type_ in function.function_type.inputs
        for size in tensor_info(type_).sizes
        if isinstance(size, Poly)
    }
    values = [*function.body.block.args, *(result for op in function.body.block.ops for result in op.results)]
    for value in values:
        sizes = tensor_info(value.type).sizes if is_tensor(value.type) else ()
        for name in sorted(name for size in sizes if isinstance(size, Poly) for name in size.names):
            if name not in bound:
                raise invalid_function(
                    function,
                    f"no argument has a dimension of size {name} alone, so {name} is unknown at run time",
                )


def _check_words(op: Operation, attributes: Iterable[str]) -> None:
    for name in attributes:
        word = next((word for word in METHOD_WORDS if word in name.lower()), None)
        if word is not None:
            raise invalid(
                op,
                f"attribute {name} mentions '{word}': logical IR says what, not how; leave that to a policy",
            )


def _check_ids(module: ModuleOp) -> None:
    seen: set[str] = set()
    for op in module.walk():
        identity = op_id(op)
        if identity is None:
            continue
        if identity in seen:
            raise invalid(op, "another op has this id too; change one aicf.id or remove it")
        seen.add(identity)
        if not sources(op):
            raise invalid(
                op, "has an id but no aicf.src, the ids it stands for; remove both to let assign-ids set them"
            )
