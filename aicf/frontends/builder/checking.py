"""Arguments of the builder's methods, checked by the types that their signatures state.

Shapes, lists of integers and operands with a meaning of their own are checked where they are read.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from operator import index
from typing import Any, SupportsIndex, cast

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


_NAMES = (
    "str",
    "Anneal",
    "Approximation",
    "LossReduction",
    "PadMode",
    "PhiloxForm",
    "Predicate",
    "ScatterMode",
    "Schedule",
)
CHECKS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    **dict.fromkeys(_NAMES, (_is_text, "a string")),
    "bool": (lambda value: isinstance(value, bool | np.bool_), "True or False"),
    "float": (_is_number, "a number"),
    "int": (_is_whole, "an integer of 64 bits"),
    "Sequence[int]": (_are_whole, "a list of integers, such as [0, 1]"),
    "FuncOp": (lambda value: isinstance(value, FuncOp), "a function"),
}
"""By the text of an annotation: what holds of such an argument, and what it is called."""
_OR_NONE = " | None"


def checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that refuses arguments of other types than it states: its object has `refuse` and `check_value`."""
    signature = inspect.signature(method)
    values = {
        name: str(parameter.annotation).endswith(_OR_NONE)
        for name, parameter in signature.parameters.items()
        if str(parameter.annotation).removesuffix(_OR_NONE) == "Value"
    }
    checks = {
        name: (*CHECKS[stated], str(parameter.annotation).endswith(_OR_NONE))
        for name, parameter in signature.parameters.items()
        if (stated := str(parameter.annotation).removesuffix(_OR_NONE)) in CHECKS
    }

    @functools.wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        try:
            arguments = signature.bind(self, *given, **named).arguments
        except TypeError:
            return method(self, *given, **named)  # which says it in Python's own words
        for name, value in arguments.items():
            if name in values and not (values[name] and value is None):
                self.check_value(value)
            if name in checks:
                holds, what, may_be_none = checks[name]
                if not (holds(value) or (may_be_none and value is None)):
                    self.refuse(f"{method.__name__}: {name} is {quoted(value)}; it is {what}")
        return method(self, *given, **named)

    return call
