"""Dataclasses as plain values: a field of several types keeps the one it has."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aicf.errors import ArtifactError
from aicf.plain import from_plain, to_plain


@dataclass(frozen=True)
class Number:
    value: int | float
    name: str | None = None


@pytest.mark.parametrize("number", [Number(3), Number(2.5), Number(0, "zero")])
def test_unions_give_the_same_value_back(number: Number):
    read = from_plain(Number, to_plain(number), "number")
    assert read == number and type(read.value) is type(number.value)


@pytest.mark.parametrize("value", ["3", None, True, [1]])
def test_what_no_member_of_a_union_is_is_refused(value: object):
    with pytest.raises(ArtifactError, match="number.value must be"):
        from_plain(Number, {"value": value, "name": None}, "number")
