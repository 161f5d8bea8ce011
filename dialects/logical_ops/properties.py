"""The properties of logical ops: what a name stands for, how a Python value becomes one, how it is read back.

A name means the same in every op: ``axis`` is an integer wherever it occurs. What it is, and what a verifier says of
anything else, is a row of ``_FORMS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex, cast

from typing_extensions import TypeIs
from xdsl.dialects.builtin import (
    I64,
    AnyFloat,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    UnitAttr,
    f64,
    i64,
)
from xdsl.ir import Attribute
from xdsl.irdl import OptPropertyDef, PropertyDef
from xdsl.utils.exceptions import VerifyException

from aicf.errors import quoted

Properties = Mapping[str, Attribute]
Ints = DenseArrayBase[I64]


# Reading


def float_value(attr: Attribute | None) -> float:
    """The value of a float property.

    Raises:
        VerifyException: not a float.
    """
    if not isinstance(attr, FloatAttr):
        raise VerifyException(f"expected a number such as 0.5, got {attr}")
    return attr.value.data


def int_values(attr: Attribute | None) -> tuple[int, ...]:
    """The integers of a list property.

    Raises:
        VerifyException: not a list of integers.
    """
    if attr is None or not is_ints(attr):
        raise VerifyException(f"expected a list of integers such as [0, 1], got {attr}")
    return attr.get_values()


def int_value(attr: Attribute | None) -> int:
    """The value of an integer property.

    Raises:
        VerifyException: not an integer.
    """
    if not isinstance(attr, IntegerAttr):
        raise VerifyException(f"expected an integer, got {attr}")
    return attr.value.data


def word_value(name: str, properties: Properties, legal: Sequence[str]) -> str:
    """The value of a string property that is one of some words.

    Raises:
        VerifyException: it is missing, or none of them.
    """
    attr = properties.get(name)
    if not isinstance(attr, StringAttr) or attr.data not in legal:
        raise VerifyException(f"{name} is {attr}; use one of {', '.join(legal)}")
    return attr.data


# Testing


def is_ints(attr: Attribute) -> TypeIs[Ints]:
    """Narrow an attribute to the property form of a list of integers."""
    return isinstance(attr, DenseArrayBase) and cast(DenseArrayBase[IntegerType], attr).elt_type == i64


def _is_i64(attr: Attribute) -> bool:
    return isinstance(attr, IntegerAttr) and cast("IntegerAttr[IntegerType]", attr).type == i64


def _is_f64(attr: Attribute) -> bool:
    return isinstance(attr, FloatAttr) and cast("FloatAttr[AnyFloat]", attr).type == f64


def _is_number(attr: Attribute) -> bool:
    return _is_f64(attr) or _is_i64(attr)


def _is_a(kind: type[Attribute]) -> Callable[[Attribute], bool]:
    return lambda attr: isinstance(attr, kind)


# Making: TypeError, ValueError or OverflowError for a Python value that is something else


def ints(values: Sequence[SupportsIndex]) -> Ints:
    """The property form of a list of integers, such as ``axes``."""
    return DenseArrayBase.from_list(i64, [index(value) for value in values])


def _i64(value: SupportsIndex) -> Attribute:
    return IntegerAttr(index(value), i64)


def _f64(value: Any) -> Attribute:
    if isinstance(value, str):
        raise TypeError
    return FloatAttr(float(value), f64)


def _number(value: Any) -> Attribute:
    return _i64(value) if hasattr(value, "__index__") else _f64(value)


def _flag(value: object) -> Attribute | None:
    if value not in (True, False):
        raise TypeError
    return UnitAttr() if value else None


def _dictionary(value: object) -> Attribute:
    raise TypeError  # attributes of an op of a package are made where the op is: `custom.py`


def _string(value: object) -> Attribute:
    if not isinstance(value, str):
        raise TypeError
    return StringAttr(value)


def _dense(value: object) -> Attribute:
    raise TypeError  # its type decides what it holds: `constant.py` makes it


@dataclass(frozen=True)
class _Form:
    """What a property of some name is.

    Args:
        words: As a user of the text is told.
        holds: Whether an attribute is one.
        make: The attribute of a Python value; None for a flag that is not set.
        in_python: As a user of Python is told, if that is something else.
    """

    words: str
    holds: Callable[[Attribute], bool]
    make: Callable[[Any], Attribute | None]
    in_python: str = ""


def _float(example: str) -> _Form:
    return _Form(f"a number of type f64, such as {example}", _is_f64, _f64)


_LIST = _Form("a list of integers, such as [0, 1]", is_ints, ints)
_FLAG = _Form("a flag: write its name alone", _is_a(UnitAttr), _flag, "True or False")
_INTEGER = _Form("an integer", _is_i64, _i64)
_STRING = _Form("a string", _is_a(StringAttr), _string)

_LISTS = (
    *("axes", "permutation", "dimensions", "starts", "sizes", "strides"),
    *("low", "high", "repeats", "dilations", "extra", "milestones", "whole"),
)
_FLAGS = (
    "keepdims",
    "transpose_a",
    "transpose_b",
    "widening",
    "smallest",
    "exclusive",
    "reverse",
    "causal",
    "empty_as_zero",
    "nesterov",
    "amsgrad",
    "ceil_mode",
    "count_include_pad",
    "centred",
)
_INTEGERS = (
    "version",
    "axis",
    "depth",
    "groups",
    "k",
    "limit",
    "p",
    "rows",
    "past",
    "window",
    "ignore_index",
    "padding_value",
    "warmup",
    "total",
    "period",
)
_STRINGS = ("mode", "scheme", "form", "approximate", "predicate", "reduction", "schedule", "anneal", "op")
_RATES = (
    "momentum",
    "dampening",
    "weight_decay",
    "beta1",
    "beta2",
    "base",
    "final",
    "max_norm",
    "factor",
    "peak",
    "rise",
)
_FORMS: Mapping[str, _Form] = {
    **dict.fromkeys(_LISTS, _LIST),
    **dict.fromkeys(_FLAGS, _FLAG),
    **dict.fromkeys(_INTEGERS, _INTEGER),
    **dict.fromkeys(_STRINGS, _STRING),
    "scale": _float("0.125"),
    "softcap": _float("50.0"),
    **dict.fromkeys(("delta", "label_smoothing", "rate", *_RATES), _float("0.1")),
    "epsilon": _float("1.0e-05"),
    **dict.fromkeys(("negative_slope", "alpha", "beta"), _float("0.5")),
    **dict.fromkeys(("min", "max"), _Form("a number, such as 0.5, or 1 for integers", _is_number, _number)),
    "parameters": _Form("a dictionary of attributes", _is_a(DictionaryAttr), _dictionary),
    "value": _Form("a dense literal", _is_a(DenseIntOrFPElementsAttr), _dense),
}


def properties_of(values: Mapping[str, object]) -> dict[str, Attribute]:
    """Properties by name, each of a Python value or already an attribute; without those that are None or unset flags.

    Raises:
        VerifyException: a value is not what its name stands for.
    """
    found = {name: _property(name, value) for name, value in values.items() if value is not None}
    return {name: attr for name, attr in found.items() if attr is not None}


def _property(name: str, value: object) -> Attribute | None:
    if isinstance(value, Attribute):
        return value
    form = _FORMS[name]
    try:
        return form.make(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise VerifyException(f"{name} is {quoted(value)}; it is {form.in_python or form.words}") from error


def check_property(name: str, attr: Attribute | None, definition: PropertyDef) -> None:
    """Checks that a property is what its name stands for; of a name without a row IRDL's own check speaks.

    Raises:
        VerifyException: it is something else, or missing where the definition wants it.
    """
    form = _FORMS.get(name)
    if form is None:
        return
    if attr is not None and not form.holds(attr):
        raise VerifyException(f"{name} is {attr}; it is {form.words}")
    if attr is None and not isinstance(definition, OptPropertyDef):
        raise VerifyException(f"{name} is missing; it is {form.words}")
