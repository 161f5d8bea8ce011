"""`RecordCodec`: fields to entries and back, and what is said of an entry that has no legal value."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from aicf.backends.common.record import (
    Each,
    Entry,
    OneOf,
    RecordCodec,
    RecordError,
    Text,
    Whole,
    powers_of_two,
    unoffered,
)
from aicf.dialects.json_values import attribute_of, json_value


@dataclass(frozen=True)
class Schedule:
    """Fields of every kind; `rows` and `columns` are one entry."""

    size: int
    rows: Annotated[int, Entry(Whole(16, 64, 16), "tile")]
    source: Annotated[Literal["packed", "direct"], Entry()]
    columns: Annotated[int, Entry(powers_of_two(8, 32), "tile")]
    vectors: Annotated[tuple[int, ...], Entry(Each(powers_of_two(1, 4)))]
    name: Annotated[str, Entry(Text("any name"))]
    turns: Annotated[int, Entry(OneOf((0, 1)))] = 0
    late: Annotated[bool, Entry()] = False


CODEC = RecordCodec(Schedule)
RECORD = CODEC.entries(Schedule(5, 32, "direct", 16, (1, 4), "x"))


def test_what_is_written_is_read() -> None:
    """Random decisions: the entries are plain values in the order of the fields, and they come back as they were."""
    draw = random.Random(3)
    for _ in range(50):
        vectors = tuple(draw.choices((1, 2, 4), k=draw.randrange(4)))
        source: Literal["packed", "direct"] = draw.choice(("packed", "direct"))
        tile = draw.choice((16, 32, 48, 64)), draw.choice((8, 16, 32))
        turns, late = draw.randrange(2), draw.random() < 0.5
        schedule = Schedule(7, tile[0], source, tile[1], vectors, "n", turns, late)
        record = CODEC.entries(schedule)
        assert CODEC.read(record, size=7) == schedule
        expected = {"tile": [*tile], "source": source, "vectors": [*vectors], "name": "n"}
        json_record = {key: json_value(value) for key, value in record.items()}
        assert json_record == {**expected, "turns": turns, "late": late}
        assert [*record] == ["tile", "source", "vectors", "name", "turns", "late"]
        assert type(json_record["turns"]) is int and type(json_record["late"]) is bool


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("tile", [40, 16], "its 'tile[0]' is 40, legal: 16 to 64 in steps of 16"),
        ("tile", [0, 16], "its 'tile[0]' is 0, legal: 16 to 64 in steps of 16"),
        ("tile", [80, 16], "its 'tile[0]' is 80, legal: 16 to 64 in steps of 16"),
        ("tile", [32, 24], "its 'tile[1]' is 24, legal: 8, 16, 32"),
        ("tile", [32, True], "its 'tile[1]' is True, legal: 8, 16, 32"),
        ("tile", [32], "its 'tile' is [32], legal: 2 values"),
        ("tile", 32, "its 'tile' is 32, legal: 2 values"),
        ("source", "flat", "its 'source' is flat, legal: packed, direct"),
        ("vectors", [1, 3], "its 'vectors' is [1, 3], legal: a list, each value 1, 2, 4"),
        ("vectors", 1, "its 'vectors' is 1, legal: a list, each value 1, 2, 4"),
        ("name", 5, "its 'name' is 5, legal: any name"),
        ("turns", True, "its 'turns' is True, legal: 0, 1"),
        ("late", 1, "its 'late' is 1, legal: False, True"),
    ],
)
def test_a_value_that_is_not_legal_is_told(key: str, value: object, said: str) -> None:
    with pytest.raises(RecordError) as found:
        CODEC.read({**RECORD, key: attribute_of(value)}, size=5)
    assert found.value.message == said


@pytest.mark.parametrize(("key", "legal"), [("tile", "2 values"), ("source", "packed, direct")])
def test_an_entry_that_is_missing_is_told(key: str, legal: str) -> None:
    with pytest.raises(RecordError) as found:
        CODEC.read({name: value for name, value in RECORD.items() if name != key}, size=5)
    assert found.value.message == f"it lacks '{key}', legal: {legal}"


def test_a_record_is_compared_with_the_variants_on_offer() -> None:
    """A value that none has is told with those that they have; else the nearest of them says what differs."""
    offered = [
        {"split": attribute_of(split), "through": attribute_of(through), "stages": attribute_of(stages)}
        for split, through in ((1, "none"), (2, "cluster"), (2, "workspace"))
        for stages in (3, 4)
    ]
    assert unoffered(offered[3], offered) is None and unoffered(offered[3], []) is None
    assert unoffered({**offered[3], "split": attribute_of(8)}, offered) == "'split' is 8, legal: 1, 2"
    edited = {**offered[0], "split": attribute_of(2)}
    assert unoffered(edited, offered) == "'split' is 2, legal: 1 as in the nearest variant"
