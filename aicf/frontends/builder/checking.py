"""Arguments of the builder's methods, checked by the types that their signatures state.

Shapes, lists of integers and operands with a meaning of their own are checked where they are read.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from operator import index
from typing import Any, Literal, SupportsIndex, cast, get_origin

import numpy as np
from xdsl.dialects.func import FuncOp

from aicf.errors import quoted


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, Real) and isinstance(float(value), float)
    except OverflowError:
        return False


def _is_whole(value: object) -> bool:
    try:
        return -(1 << 63) <= index(cast("SupportsIndex", value)) < 1 << 63
    except TypeError:
        return False


def _are_whole(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and all(map(_is_whole, cast("Sequence[object]", value)))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_TEXT = (_is_text, "a string")
CHECKS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "str": _TEXT,
    "bool": (lambda value: isinstance(value, bool | np.bool_), "True or False"),
    "float": (_is_number, "a number"),
    "int": (_is_whole, "an integer of 64 bits"),
    "Sequence[int]": (_are_whole, "a list of integers, such as [0, 1]"),
    "FuncOp": (lambda value: isinstance(value, FuncOp), "a function"),
}
"""By the text of an annotation: what holds of such an argument, and what it is called."""
_OR_NONE = " | None"


def argument_check(
    method: str, signature: inspect.Signature, names: Mapping[str, object]
) -> Callable[[Any, Mapping[str, object]], None]:
    """What refuses arguments of other types than the signature of a method states, by `refuse` and `check_value`.

    Args:
        names: What the annotations may name: one that is a `Literal` is of strings.
    """
    stated = {name: str(parameter.annotation) for name, parameter in signature.parameters.items()}
    required = {name: text.removesuffix(_OR_NONE) for name, text in stated.items()}
    values = {name for name, text in required.items() if text == "Value"}
    checks = {
        name: _TEXT if get_origin(names.get(text)) is Literal else CHECKS[text]
        for name, text in required.items()
        if text in CHECKS or get_origin(names.get(text)) is Literal
    }

    def check(graph: Any, arguments: Mapping[str, object]) -> None:
        for name, value in arguments.items():
            if value is None and stated[name].endswith(_OR_NONE):
                continue
            if name in values:
                graph.check_value(value)
            if name in checks:
                holds, what = checks[name]
                if not holds(value):
                    graph.refuse(f"{method}: {name} is {quoted(value)}; it is {what}")

    return check


def checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that refuses arguments of other types than it states: its object has `refuse` and `check_value`."""
    signature = inspect.signature(method)
    check = argument_check(method.__name__, signature, method.__globals__)

    @functools.wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        try:
            arguments = signature.bind(self, *given, **named).arguments
        except TypeError:
            return method(self, *given, **named)  # which says it in Python's own words
        check(self, arguments)
        return method(self, *given, **named)

    return call
