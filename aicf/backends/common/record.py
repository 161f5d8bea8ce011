"""Kernel records: the decisions of a data class as entries of a record, and back, with the legal values of each.

A data class says of each decision that goes into the record which values are legal:

    @dataclass(frozen=True)
    class Tile:
        problem: Problem                                        # not in the record
        rows: Annotated[int, Entry(Whole(1, 14), "tile_rows")]
        source: Annotated[Source, Entry()]                      # a Literal: its values
        warps_m: Annotated[int, Entry(Whole(1, 8), "warps")]    # the entry is [warps_m, warps_n]
        warps_n: Annotated[int, Entry(Whole(1, 8), "warps")]

`RecordCodec(Tile)` writes the entries and reads them again. A record may have been edited by hand, so reading checks
every value, and `contradiction` compares what was not decided but follows from the decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, DictionaryAttr, FloatAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from aicf.dialects.json_values import json_value
from aicf.errors import PlanError

Record = Mapping[str, Attribute]


class RecordError(PlanError):
    """A kernel record holds no decisions that the kernel can carry out; says which entry, and its legal values."""


IN_THE_PROGRAM = ("may_alias", "layouts")
"""Entries that become constraints of the instruction and types of its operands when it is lowered."""

_NOT_COMPARED = ("version", "determinism", *IN_THE_PROGRAM)
_SHOWN = 60
"""Most characters of a value that a message quotes."""
_MOST_VALUES = 12
"""Most legal values that a message lists."""


@contextmanager
def naming(instruction: str) -> Generator[None]:
    """What is wrong with a record is said of its instruction, by a PlanError with the way out."""
    try:
        yield
    except RecordError as error:
        raise PlanError(
            f"instruction '{instruction}': kernel record: {error.message}: run select-kernels again"
        ) from error


# Legal values


class Legal(Protocol):
    """The legal values of one decision."""

    def holds(self, value: object) -> bool:
        """Whether `value` is one of them."""
        ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Whole(Legal):
    """Whole numbers from `least` in steps up to `most`, both included; no upper bound if `most` is None."""

    least: int
    most: int | None = None
    step: int = 1

    def holds(self, value: object) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        inside = self.least <= value and (self.most is None or value <= self.most)
        return inside and (value - self.least) % self.step == 0

    def __str__(self) -> str:
        bounds = f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"
        return bounds if self.step == 1 else f"{bounds} in steps of {self.step}"


@dataclass(frozen=True)
class OneOf(Legal):
    """A few values."""

    values: tuple[object, ...]

    def holds(self, value: object) -> bool:
        """See `Legal`; true is not 1."""
        return any(type(value) is type(legal) and value == legal for legal in self.values)

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))


@dataclass(frozen=True)
class Each(Legal):
    """Lists of any length whose values are all legal; a field has them as a tuple."""

    legal: Legal

    def holds(self, value: object) -> bool:
        return isinstance(value, list) and all(map(self.legal.holds, cast("list[object]", value)))

    def __str__(self) -> str:
        return f"a list, each value {self.legal}"


@dataclass(frozen=True)
class Text(Legal):
    """Any text; `what` describes it."""

    what: str

    def holds(self, value: object) -> bool:
        return isinstance(value, str)

    def __str__(self) -> str:
        return self.what


def powers_of_two(least: int, most: int) -> OneOf:
    """The powers of two from `least`, one itself, to `most`."""
    return OneOf(tuple(least << shift for shift in range((most // least).bit_length())))


# Entries


def shown(value: object) -> str:
    """A value as a message quotes it, cut where it is long."""
    text = str(json_value(value) if isinstance(value, Attribute) else value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def illegal(key: str, value: object, legal: object) -> str:
    """What is wrong with a value that is not legal."""
    return f"'{key}' is {shown(value)}, legal: {legal}"


def read_entry(record: Record, key: str, legal: Legal) -> Any:
    """The plain value of an entry. Raises RecordError if the record lacks it or its value is not legal."""
    if key not in record:
        raise RecordError(f"it lacks '{key}', legal: {legal}")
    value = json_value(record[key])
    if not legal.holds(value):
        raise RecordError(f"its {illegal(key, value, legal)}")
    return value


def read_list(record: Record, key: str, legal: Sequence[Legal]) -> list[Any]:
    """The plain values of an entry that is a list, for each of them what is legal.

    Raises RecordError if the record lacks the entry, or a value is missing or not legal.
    """
    if key not in record:
        raise RecordError(f"it lacks '{key}', legal: {len(legal)} values")
    found = json_value(record[key])
    values = cast("list[object]", found) if isinstance(found, list) else []
    if len(values) != len(legal):
        raise RecordError(f"its {illegal(key, record[key], f'{len(legal)} values')}")
    for number, (value, each) in enumerate(zip(values, legal, strict=True)):
        if not each.holds(value):
            raise RecordError(f"its {illegal(f'{key}[{number}]', value, each)}")
    return values


@lru_cache(maxsize=4096, typed=True)
def integer(value: int) -> IntegerAttr:
    """An i64 attribute; each is made once."""
    return IntegerAttr(value, i64)


_FLAGS = {value: BoolAttr.from_bool(value) for value in (False, True)}


Value = bool | int | str | Sequence["Value"]


def _attribute(value: Value) -> Attribute:
    match value:
        case bool():
            return _FLAGS[value]
        case int():
            return integer(value)
        case str():
            return StringAttr(value)
        case _:
            return ArrayAttr([_attribute(each) for each in value])


@dataclass(frozen=True)
class Entry:
    """Marks a field of a data class as an entry of the record. Fields of one key are one entry, a list in their order.

    Args:
        legal: Its legal values; None for those of its type, a Literal or bool.
        key: Name of the entry, that of the field if empty.
    """

    legal: Legal | None = None
    key: str = ""


Decisions = TypeVar("Decisions")


class RecordCodec(Generic[Decisions]):
    """Writes the marked fields of a data class as entries of a record, and reads them."""

    def __init__(self, decisions: type[Decisions]):
        hints = get_type_hints(decisions, include_extras=True)
        self._decisions = decisions
        self._entries: dict[str, list[tuple[str, Legal]]] = {}
        for field in fields(cast("Any", decisions)):
            if (entry := _entry(hints[field.name])) is not None:
                legal = cast("Legal", entry.legal)
                self._entries.setdefault(entry.key or field.name, []).append((field.name, legal))

    def entries(self, decisions: Decisions) -> dict[str, Attribute]:
        """The decisions as entries, in the order of the fields."""
        found: dict[str, Attribute] = {}
        for key, marked in self._entries.items():
            values = [getattr(decisions, name) for name, _ in marked]
            found[key] = _attribute(values if len(values) > 1 else values[0])
        return found

    def values(self, record: Record) -> dict[str, Any]:
        """The decisions by the names of the fields. Raises RecordError for an entry that is missing or not legal."""
        found: dict[str, Any] = {}
        for key, marked in self._entries.items():
            if len(marked) > 1:
                values = read_list(record, key, [legal for _, legal in marked])
                found |= {name: value for (name, _), value in zip(marked, values, strict=True)}
            else:
                name, legal = marked[0]
                value = read_entry(record, key, legal)
                found[name] = tuple(value) if isinstance(legal, Each) else value
        return found

    def read(self, record: Record, **others: Any) -> Decisions:
        """The decisions, with the fields that are no entries. Raises RecordError as `values`."""
        return self._decisions(**self.values(record), **others)


def _entry(hint: Any) -> Entry | None:
    """The mark of a field, with its legal values; None if it has none."""
    if get_origin(hint) is not Annotated:
        return None
    inner, *marks = get_args(hint)
    entry = next((mark for mark in marks if isinstance(mark, Entry)), None)
    if entry is None or entry.legal is not None:
        return entry
    if inner is bool:
        return Entry(OneOf((False, True)), entry.key)
    assert get_origin(inner) is Literal, f"{hint}: legal values are given, or those of a Literal or bool"
    return Entry(OneOf(get_args(inner)), entry.key)


ROUNDINGS = OneOf(("fused", "strict"))
"""Where values of f16 and bf16 are rounded, see `Workload`; a record that does not say has none."""


# Parts of records


def read_integer(record: Record, key: str) -> int:
    """An integer entry. Raises RecordError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, IntegerAttr):
        raise RecordError(f"it lacks the integer '{key}'")
    return value.value.data


def read_text(record: Record, key: str) -> str:
    """A string entry. Raises RecordError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, StringAttr):
        raise RecordError(f"it lacks the string '{key}'")
    return value.data


def read_number(record: Record, key: str) -> float:
    """A floating-point entry. Raises RecordError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, FloatAttr):
        raise RecordError(f"it lacks the number '{key}'")
    return value.value.data


def read_part(record: Record, key: str) -> Record:
    """A record in a record. Raises RecordError if there is none of that name."""
    value = record.get(key)
    if not isinstance(value, DictionaryAttr):
        raise RecordError(f"it lacks the record '{key}'")
    return value.data


def read_parts(record: Record, key: str, count: int | None = None) -> list[Record]:
    """An array of records. Raises RecordError if there is none of that name, or it has not `count` of them."""
    value = record.get(key)
    found = cast("ArrayAttr[Attribute]", value).data if isinstance(value, ArrayAttr) else None
    if found is None or not all(isinstance(part, DictionaryAttr) for part in found):
        raise RecordError(f"it lacks the list of records '{key}'")
    if count not in (None, len(found)):
        raise RecordError(f"its '{key}' has {len(found)} records, legal: {count}")
    return [part.data for part in found if isinstance(part, DictionaryAttr)]


# Records that were edited

Tolerates = Callable[[str, Record, Record], bool]
"""Whether an entry (first) of a record (second) may be other than it is in the expected one (third)."""


def contradiction(record: Record, expected: Record, tolerates: Tolerates) -> str | None:
    """The first entry of a record that is not what its decisions ask for, in words; None if there is none.

    Args:
        expected: The record of the same decisions about the same work, as its kernel writes it.
    """
    for key in dict.fromkeys((*expected, *record)):
        if key in _NOT_COMPARED or record.get(key) == expected.get(key):
            continue
        if key not in record:
            return f"it lacks '{key}', legal: {shown(expected[key])}"
        if key not in expected:
            return f"it has an entry '{key}', which means nothing here"
        own, right = _records_in(record[key]), _records_in(expected[key])
        if own and right and len(own) == len(right):
            found = (contradiction(*pair, tolerates) for pair in zip(own, right, strict=True))
            if (inner := next((reason for reason in found if reason is not None), None)) is not None:
                return f"in its '{key}', {inner}"
        elif not tolerates(key, record, expected):
            return f"its {illegal(key, record[key], shown(expected[key]))}, which follows from the rest of it"
    return None


def _records_in(value: Attribute) -> Sequence[Record]:
    """The records that an entry holds, one or an array of them; none if it holds something else."""
    if isinstance(value, DictionaryAttr):
        return [value.data]
    if not isinstance(value, ArrayAttr):
        return []
    found = cast("ArrayAttr[Attribute]", value).data
    records = [entry.data for entry in found if isinstance(entry, DictionaryAttr)]
    return records if len(records) == len(found) else []


def unoffered(record: Record, variants: Sequence[Record]) -> str | None:
    """The first entry of a record whose value none of the offered `variants` has, with the values that these have; else
    the first in which it differs from the nearest of them; None if it is one of them."""
    offers, own = [_flat(variant) for variant in variants], _flat(record)
    for key, value in own.items():
        values = dict.fromkeys(shown(offer[key]) for offer in offers if key in offer)
        if values and shown(value) not in values:
            return f"'{key}' is {shown(value)}, legal: {', '.join(list(values)[:_MOST_VALUES])}"
    other = ([(key, offer[key]) for key in own if offer.get(key, own[key]) != own[key]] for offer in offers)
    for key, value in min(other, key=len) if offers else ():
        return f"{illegal(key, own[key], shown(value))} as in the nearest variant"
    return None


def _flat(record: Record) -> dict[str, Attribute]:
    """The entries of a record and of the records in it, by path."""
    found: dict[str, Attribute] = {}
    for key, value in record.items():
        if key in _NOT_COMPARED:
            continue
        inner = _records_in(value)
        if not inner:
            found[key] = value
        for number, part in enumerate(inner):
            path = key if isinstance(value, DictionaryAttr) else f"{key}[{number}]"
            found |= {f"{path}.{name}": entry for name, entry in _flat(part).items()}
    return found
