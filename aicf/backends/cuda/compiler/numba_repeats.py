# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Steps of Numba's compiler that have nothing to do in our kernels, or do the same again for each statement.

Kernels have no closures, generators, comprehensions or strings: what looks for them is left out. Liveness is computed
where something reads it, not after each pass. What is decided stays the same, and so do the bytes of a cubin.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import TracebackType
from typing import Any


@cache
def fewer_repeats() -> tuple[tuple[Any, str, Any], ...]:
    """Owner, name and replacement of each step; what they remember holds for all kernels of a process."""
    from numba.core.types.functions import BaseFunction
    from numba.cuda import lowering
    from numba.cuda.core import (
        analysis,
        bytecode,
        errors,
        inline_closurecall,
        interpreter,
        ir,
        postproc,
        typed_passes,
        typeinfer,
    )
    from numba.cuda.target import CUDATypingContext
    from numba.cuda.typing.context import BaseContext

    variables = _Variables()
    return (
        (bytecode, "_patched_opargs", _without_caches(bytecode._patched_opargs)),
        (BaseFunction, "get_call_type", _remembered_call(BaseFunction.get_call_type)),
        (BaseContext, "resolve_function_type", _remembered_call(BaseContext.resolve_function_type)),
        (BaseContext, "resolve_getattr", _remembered_attribute(BaseContext.resolve_getattr)),
        (CUDATypingContext, "resolve_value_type", _remembered_value(CUDATypingContext.resolve_value_type)),
        (errors.WarningsFixer, "catch_warnings", lambda *_, **__: nullcontext()),  # they are not shown
        (typeinfer.CallConstraint, "resolve", _resolve_once(typeinfer.CallConstraint.resolve)),
        (postproc.PostProcessor, "run", _post_process),
        (inline_closurecall.InlineClosureCallPass, "run", _nothing),
        (interpreter, "peep_hole_list_to_tuple", _long_tuples(interpreter.peep_hole_list_to_tuple)),
        (interpreter, "peep_hole_delete_with_exit", _as_it_is),
        (interpreter, "peep_hole_fuse_dict_add_updates", _as_it_is),
        (typed_passes.NopythonRewrites, "run_pass", _changes_nothing),
        (ir.Stmt, "list_vars", lambda statement: variables.of(statement.__dict__)),
        (ir.Expr, "list_vars", lambda expression: variables.of(expression._kws)),
        (analysis, "compute_use_defs", _use_defs),
        (typeinfer, "new_error_context", _ErrorContext),
        (lowering, "new_error_context", _ErrorContext),
    )


_Instruction = tuple[int, int, int | None, int]
"""Offset, opcode and argument, and the offset of the next instruction."""


def _without_caches(decode: Callable[..., Iterable[_Instruction]]) -> Callable[..., Iterator[_Instruction]]:
    """The instructions of a function without the caches of the interpreter between them: they are no instructions, but
    half of what Python 3.11 lists. No jump has one, so that the offsets of jumps hold."""
    cache_opcode = dis.opmap["CACHE"]

    def decoded(stream: Any) -> Iterator[_Instruction]:
        instructions = [each for each in decode(stream) if each[1] != cache_opcode]
        for (offset, opcode, argument, _), after in pairwise(instructions):
            yield offset, opcode, argument, after[0]
        yield instructions[-1]

    return decoded


def _remembered_call(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Resolution of a call by owner, function or context, and types of arguments, each done once. What is not resolved
    is not kept.

    Keys are identities, which the values keep alive: a function notes how it is implemented for the types that it was
    asked for, and types of equal content are one object.
    """
    known: dict[Any, tuple[Any, ...]] = {}

    def resolved(owner: Any, other: Any, args: Any, kws: Any) -> Any:
        if kws:
            return resolve(owner, other, args, kws)
        args = tuple(args)
        key = (id(owner), id(other), *map(id, args))
        if key in known:
            return known[key][0]
        found = resolve(owner, other, args, kws)
        if found is not None:
            known[key] = (found, owner, other, args)
        return found

    return resolved


def _remembered_attribute(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """The type of an attribute by the type that has it, each found once."""
    known: dict[Any, tuple[Any, ...]] = {}

    def resolved(context: Any, type_: Any, attribute: str) -> Any:
        key = (id(context), id(type_), attribute)
        if key in known:
            return known[key][0]
        found = resolve(context, type_, attribute)
        if found is not None:
            known[key] = (found, context, type_)
        return found

    return resolved


def _remembered_value(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """The type of a global: a function or module. Those of numbers are found each time: they are many."""
    known: dict[Any, tuple[Any, ...]] = {}

    def resolved(context: Any, value: Any) -> Any:
        if isinstance(value, (int, float, str, tuple)):
            return resolve(context, value)
        key = (id(context), id(value))
        if key not in known:
            known[key] = (resolve(context, value), context, value)
        return known[key][0]

    return resolved


def _resolve_once(resolve: Callable[..., None]) -> Callable[..., None]:
    """The types of a call follow from its function and arguments: they are resolved again where these changed."""

    def resolved(call: Any, typeinfer: Any, typevars: Any, fnty: Any) -> None:
        read = [typevars[each.name].type for each in call.args]
        before = getattr(call, "_resolved_from", None)
        if (
            before is not None
            and before[0] is fnty
            and all(a is b for a, b in zip(read, before[1], strict=True))
        ):
            return
        resolve(call, typeinfer, typevars, fnty)
        if call.signature is not None and not call.kws and call.vararg is None:
            call._resolved_from = (fnty, read)

    return resolved


def _long_tuples(rewrite_others: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Builds a tuple of many elements, as calls of `wgmma` have it, at once.

    Python makes one of more than 30 by appending each to a list. Numba takes each step for a sum of tuples, of which
    the whole is copied: the square of the length in LLVM IR, which was two thirds of that of a kernel of attention.
    """

    def rewritten(function: Any) -> Any:
        for block in function.blocks.values():
            block.body[:] = _with_long_tuples(block.body, function._definitions)
        return rewrite_others(function)

    return rewritten


def _with_long_tuples(body: Sequence[Any], definitions: dict[str, list[Any]]) -> list[Any]:
    """The statements of a block with each list that is filled one by one and becomes a tuple built where it does."""
    from numba.cuda.core import ir

    lists: dict[str, _Appended] = {}
    methods: dict[str, str] = {}
    dropped: set[int] = set()
    built: dict[int, Any] = {}
    for place, statement in enumerate(body):
        if type(statement) is not ir.Assign:
            continue
        value, name = statement.value, statement.target.name
        operation = value.op if type(value) is ir.Expr else ""
        if operation == "build_list" and not value.items:
            lists[name] = _Appended([], [place])
        elif operation == "getattr" and value.value.name in lists:
            if value.attr == "append":
                methods[name] = value.value.name
                lists[value.value.name].places.append(place)
            else:  # several elements at once: Numba's part
                del lists[value.value.name]
        elif operation == "call" and (of := lists.get(methods.get(value.func.name, ""))) is not None:
            of.elements.extend(
                value.args
            )  # each assignment is of a variable of its own, so they stay as they are
            of.places.append(place)
        elif operation == "list_to_tuple" and (of := lists.pop(value.info[0], None)) is not None:
            dropped.update(of.places)
            tuple_ = ir.Expr.build_tuple(of.elements, value.loc)
            built[place] = ir.Assign(tuple_, statement.target, statement.loc)
    for place in dropped:
        definitions.pop(body[place].target.name, None)
    for statement in built.values():
        definitions[statement.target.name] = [statement.value]
    return [built.get(place, statement) for place, statement in enumerate(body) if place not in dropped]


@dataclass(frozen=True)
class _Appended:
    """What is appended to an empty list, and the places of the statements that do it."""

    elements: list[Any]
    places: list[int]


def _nothing(_: Any) -> None:
    """In place of a pass that inlines closures, reductions and array comprehensions."""


def _as_it_is(function: Any) -> Any:
    """In place of rewrites of `with` and of dictionaries."""
    return function


def _changes_nothing(*_: Any) -> bool:
    """In place of the rewrites of typed IR: of indices into strings and arrays of constants."""
    return False


def _post_process(processor: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """Numba's step after each pass, without the variables at the entry of each block, which only generators need."""
    from numba.cuda.core import transforms
    from numba.cuda.core.postproc import VariableLifetime

    function = processor.func_ir
    function.blocks = transforms.canonicalize_cfg(function.blocks)
    function.variable_lifetime = VariableLifetime(function.blocks)
    function.generator_info = None
    if emit_dels:
        processor._insert_var_dels(extend_lifetimes=extend_lifetimes)


class _Variables:
    """Variables in the fields of statements and expressions, in order."""

    def __init__(self) -> None:
        from numba.cuda.core import ir

        self._var, self._inst = ir.Var, ir.Inst
        self._kinds: dict[type, int] = {}

    def of(self, fields: dict[str, Any]) -> list[Any]:
        """The variables of the fields of a statement or expression."""
        found: list[Any] = []
        self._collect(fields.values(), found)
        return found

    def _collect(self, values: Any, found: list[Any]) -> None:
        kinds = self._kinds
        for value in values:
            kind = kinds.get(type(value))
            if kind is None:
                kind = self._kind(type(value))
            if kind == 1:
                found.append(value)
            elif kind == 2:
                found.extend(value.list_vars())
            elif kind == 3:
                self._collect(value, found)
            elif kind == 4:
                self._collect(value.values(), found)

    def _kind(self, type_: type) -> int:
        ordered = ((self._var, 1), (self._inst, 2), ((list, tuple), 3), (dict, 4), (object, 0))
        kind = next(kind for of, kind in ordered if issubclass(type_, of))
        self._kinds[type_] = kind
        return kind


def _use_defs(blocks: dict[Any, Any]) -> Any:
    """Variables that each block reads before it assigns them, and those that it assigns."""
    from numba.cuda.core import ir
    from numba.cuda.core.analysis import _use_defs_result

    used: dict[Any, set[str]] = {}
    defined: dict[Any, set[str]] = {}
    for label, block in blocks.items():
        uses = used[label] = set()
        defines = defined[label] = set()
        for statement in block.body:
            read = _names_read(statement, ir)
            if type(statement) is ir.Assign and statement.target.name not in read:
                defines.add(statement.target.name)
            uses.update(name for name in read if name not in defines)
    return _use_defs_result(usemap=used, defmap=defined)


def _names_read(statement: Any, ir: Any) -> list[str]:
    """Names of the variables that a statement reads; a deletion counts as one that reads."""
    if type(statement) is ir.Del:
        return [statement.value]
    if type(statement) is not ir.Assign:
        return [variable.name for variable in statement.list_vars()]
    value = statement.value
    if isinstance(value, ir.Var):
        return [value.name]
    return [variable.name for variable in value.list_vars()] if isinstance(value, ir.Inst) else []


class _ErrorContext:
    """Adds to an error what was being done, as Numba's `new_error_context`, which is a generator."""

    __slots__ = ("_args", "_format", "_options")

    def __init__(self, format_: str, *args: Any, **options: Any) -> None:
        self._format, self._args, self._options = format_, args, options

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        from numba.cuda.core.errors import NumbaError

        if isinstance(error, NumbaError):
            error.add_context(self._format.format(*self._args, **self._options))
