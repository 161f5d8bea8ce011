"""A function of a user as LLVM IR that calls nothing of Python: what Numba makes of it, checked."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

from aicf.backends.common.compiler_errors import telling_line
from aicf.errors import CaptureError

_CALLABLE = re.compile(
    r"llvm\.|mem(cpy|move|set)$"
    r"|(a?(sin|cos|tan)h?|exp[2m1]*|log(2|10|1p)?|pow|fmod|erfc?|[lt]gamma|hypot|atan2)f?$"
    r"|(sqrt|cbrt|floor|ceil|trunc|rint|nearbyint|round|fabs|fmin|fmax|copysign|ldexp|frexp)f?$"
)
"""Functions that an object may leave to the process that loads it: intrinsics, and those of the C library."""
_MANGLED = re.compile(r'@"?_ZN[^\s",()]*"?')
"""Names of other functions of Numba, and of their environments."""
_EXCEPTION = ".const.picklebuf"
"""In the names of exceptions, as Numba keeps them in code that raises one."""
_PYTHON = re.compile(r"numba_|NRT_|Py")


def function_ir(function: Any, types: Sequence[str], symbol: str) -> str:
    """LLVM IR that defines `symbol`: a function of two pointers, to room for a result and for an exception that never
    comes, and of parameters of these types.

    Args:
        function: The Python function.
        types: Of its parameters: an element type of Numba, with `*` after it for a pointer.

    Raises CaptureError: it does not compile, or could raise or allocate when it runs.
    """
    compiled = _compiled(function, types)
    wrapper = compiled.native_name
    text = _without(compiled._library.get_llvm_str(), wrapper)
    _check_calls(text, function.__name__)
    # The mangled names hold a count of what this process compiled before. In ours there is no dot: LLVM takes x.1 for
    # another x as it links.
    text = re.sub(rf'"?{re.escape(wrapper.removeprefix("cfunc."))}"?', symbol, text)
    names: dict[str, str] = {}
    text = _MANGLED.sub(lambda found: names.setdefault(found[0], f"@{symbol}_{len(names)}"), text)
    return re.sub(r"^; ModuleID = .*$|^source_filename = .*$", "", text, flags=re.MULTILINE)


def _without(text: str, function: str) -> str:
    """LLVM IR without a function: the one by which C code calls, which tells Python of exceptions."""
    return re.sub(
        rf'^define [^\n]*@"?{re.escape(function)}"?\(.*?^}}$', "", text, flags=re.MULTILINE | re.DOTALL
    )


def _compiled(function: Any, types: Sequence[str]) -> Any:
    import numba
    from numba.core import types as numba_types

    compile_for: Any = numba.cfunc
    parameters = [_numba_type(each) for each in types]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on performance
            # A division by zero gives infinity or NaN, as in NumPy: nothing that is called here could tell of it.
            return compile_for(numba_types.void(*parameters), error_model="numpy")(function)
    except Exception as error:  # Numba has errors of its own, of many lines
        why = telling_line(str(error)) or type(error).__name__
        raise CaptureError(
            f"function '{function.__name__}' does not compile with Numba for ({', '.join(types)}): {why}"
        ) from error


def _numba_type(name: str) -> Any:
    from numba.core import types

    return types.CPointer(getattr(types, name[:-1])) if name.endswith("*") else getattr(types, name)


def _check_calls(text: str, name: str) -> None:
    called = re.findall(r'(?:call|invoke) [^@\n]*@"?([\w.$]+)"?\(', text)
    if _EXCEPTION in text:
        raise CaptureError(
            f"function '{name}' can raise, and a kernel has nobody to raise to: take out raise and assert, and what "
            "checks its arguments"
        )
    if python := [each for each in called if _PYTHON.match(each)]:
        raise CaptureError(
            f"function '{name}' calls {python[0]}: a kernel runs without Python, so it cannot print or allocate; "
            "declare a workspace"
        )
    defined = re.findall(r'^define [^@\n]*@"?([\w.$]+)"?\(', text, re.MULTILINE)
    if unknown := [each for each in called if not _CALLABLE.match(each) and each not in defined]:
        raise CaptureError(f"function '{name}' calls {unknown[0]}, which a program cannot bring along")
