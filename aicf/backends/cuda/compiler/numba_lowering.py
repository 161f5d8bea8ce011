# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Numba's lowering of typed statements to LLVM IR, without what it does for debug information that nobody asked for.

It formats each statement and signature for messages that are not printed, and looks up the implementation of the same
function again at each call. The instructions that come out are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def terse_lowering() -> tuple[tuple[Any, str, Any], ...]:
    """Owner, name and replacement of each step; what they remember holds for all kernels of a process."""
    from numba.cuda import lowering
    from numba.cuda.core.base import BaseContext
    from numba.cuda.lowering import Lower

    return (
        (Lower, "lower_inst", _lower_statement(Lower.lower_inst)),
        (Lower, "lower_call", _lower_call(Lower.lower_call)),
        (Lower, "_disable_sroa_like_opt", False),  # a property that tells whether there is debug information
        (BaseContext, "get_function", _remembered_implementation(BaseContext.get_function)),
        (lowering, "_lit_or_omitted", _remembered_literal(lowering._lit_or_omitted)),
    )


def _lower_statement(lower_other: Callable[..., None]) -> Callable[..., None]:
    """Lowers an assignment or the end of a variable's life here, and all else as Numba does."""
    from numba.cuda.core import ir

    def lowered(lower: Any, statement: Any) -> None:
        if type(statement) is ir.Assign and type(statement.value) is not ir.Arg:
            name = statement.target.name
            lower.storevar(lower.lower_assign(lower.typeof(name), statement), name)
        elif type(statement) is ir.Del:
            lower.delvar(statement.value)
        else:
            lower_other(lower, statement)

    return lowered


def _lower_call(lower_other: Callable[..., Any]) -> Callable[..., Any]:
    """Lowers a call of an ordinary function here: neither a method nor one that returns no value."""
    from numba.core import types

    def lowered(lower: Any, result: Any, call: Any) -> Any:
        signature = lower.fndesc.calltypes[call]
        function = lower.typeof(call.func.name)
        is_ordinary = type(function) in (types.Function, types.NumberClass) and call.target is None
        gives_value = signature.return_type is not types.void and not isinstance(
            signature.return_type, types.Phantom
        )
        if not is_ordinary or signature.recvr or not gives_value:
            return lower_other(lower, result, call)
        arguments = lower.fold_call_args(function, signature, call.args, call.vararg, call.kws)
        implementation = lower.context.get_function(function, signature)
        value = implementation(lower.builder, arguments, lower.loc)
        return lower.context.cast(lower.builder, value, signature.return_type, result)

    return lowered


def _remembered_implementation(find: Callable[..., Any]) -> Callable[..., Any]:
    """The implementation of a function for a signature, each found once. Keys are identities, which the values keep
    alive; a signature that is resolved once is one object."""
    known: dict[Any, tuple[Any, ...]] = {}

    def found(context: Any, function: Any, signature: Any, _firstcall: bool = True) -> Any:
        key = (id(context), id(function), id(signature))
        if key not in known:
            known[key] = (find(context, function, signature, _firstcall), context, function, signature)
        return known[key][0]

    return found


def _remembered_literal(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The type of a constant operand of an operator, each made once: that of an integer, or of one that is unknown."""
    from numba.cuda.core.ir import UNDEFINED

    known: dict[Any, Any] = {}

    def made(value: Any) -> Any:
        if type(value) is not int and value is not UNDEFINED:
            return make(value)
        if value not in known:
            known[value] = make(value)
        return known[value]

    return made
