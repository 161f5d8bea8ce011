"""Dataclasses as plain values: a field of several types keeps the one it has."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aicf.errors import ArtifactError
from aicf.support.dataclass_json import from_json_value, to_json_value


@dataclass(frozen=True)
class Number:
    value: int | float
    name: str | None = None


@pytest.mark.parametrize("number", [Number(3), Number(2.5), Number(0, "zero")])
def test_unions_give_the_same_value_back(number: Number):
    read = from_json_value(Number, to_json_value(number), "number")
    assert read == number and type(read.value) is type(number.value)


@pytest.mark.parametrize("value", ["3", None, True, [1]])
def test_what_no_member_of_a_union_is_is_refused(value: object):
    with pytest.raises(ArtifactError, match="number.value must be"):
        from_json_value(Number, {"value": value, "name": None}, "number")


@dataclass(frozen=True)
class Box:
    numbers: tuple[Number, ...]
    pair: tuple[int, str]
    more: dict[str, object]
    inner: Box | None = None


def box() -> Box:
    return Box((Number(1), Number(2.5, "half")), (3, "c"), {"any": [1, None]}, Box((), (0, ""), {}))


def test_a_type_may_hold_itself():
    assert from_json_value(Box, to_json_value(box()), "box") == box()


WRONG: list[tuple[dict[str, object], str]] = [
    ({"numbers": [{"value": 1, "name": 2}]}, "box.numbers[0].name must be str, got int"),
    ({"numbers": [{"value": 1}]}, "box.numbers[0] lacks field 'name'"),
    ({"numbers": {}}, "box.numbers must be a list, got dict"),
    ({"pair": [1]}, "box.pair must be 2 values, got list"),
    ({"pair": [1, 2]}, "box.pair[1] must be str, got int"),
    ({"pair": [True, "c"]}, "box.pair[0] must be int, got bool"),
    ({"more": []}, "box.more must be an object, got list"),
    ({"inner": {}}, "box.inner lacks field 'inner'"),
    ({"size": 1}, "box has an unknown field 'size'"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_messages_name_the_path(change: dict[str, object], message: str):
    with pytest.raises(ArtifactError) as error:
        from_json_value(Box, {**to_json_value(box()), **change}, "box")
    assert error.value.message == f"{message}; the file is corrupt or of another version"
