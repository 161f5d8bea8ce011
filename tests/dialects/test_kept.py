"""What is kept with an attribute: made once for each, errors never, and equal attributes stay equal."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Attribute

from aicf.dialects.emit_types import BufferType
from aicf.dialects.kept import kept
from aicf.dialects.types import element_named

MADE: list[Attribute] = []


@kept
def made(attribute: Attribute) -> list[int] | None:
    MADE.append(attribute)
    if attribute == IntAttr(3):
        raise ValueError
    return None


def test_each_attribute_is_asked_once_and_errors_are_raised_again() -> None:
    one, equal, wrong = IntAttr(1), IntAttr(1), IntAttr(3)
    for attribute in (one, one, equal, equal):
        assert made(attribute) is None
    for _ in range(2):
        with pytest.raises(ValueError):
            made(wrong)
    assert [id(attribute) for attribute in MADE] == [id(one), id(equal), id(wrong), id(wrong)]


def test_what_is_kept_is_no_part_of_a_type() -> None:
    f32 = element_named("f32").type
    asked, fresh = (BufferType((2, 3), f32, "arena", (8, 1)) for _ in range(2))
    assert (asked.span_bytes, asked.reach, asked.get_shape()) == (44, (0, 11), (2, 3))
    assert asked == fresh and hash(asked) == hash(fresh) and str(asked) == str(fresh)
