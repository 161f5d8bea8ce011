"""A message is one line that fits a screen, whatever it quotes."""

from __future__ import annotations

import pytest

from aicf.errors import AicfError, InvalidIR, quoted

LONG = "A" * 200_000


class Sulky:
    """Has no repr."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one  two\n\tthree", "one two three"),
        ("bell \a, nul \0, escape \x1b[2J", r"bell \x07, nul \x00, escape \x1b[2J"),
        ("lone \ud800", r"lone \ud800"),
        ("turned \u202e", r"turned \u202e"),
        ("lines\u2028apart\x85and\x1cmore", "lines apart and more"),
        ("größer, 日本, 🙂", "größer, 日本, 🙂"),
    ],
)
def test_messages_are_one_line(text: str, shown: str):
    assert AicfError(text).message == shown


@pytest.mark.parametrize(
    "piece",
    [LONG, f"'{LONG}'", f'"{"a b " * 50_000}"', "x, " * 60_000, "\0" * 100_000, "\n" * 9],
    ids=["word", "quoted", "words in quotes", "list", "control characters", "line breaks"],
)
def test_what_a_message_quotes_is_cut(piece: str):
    error = InvalidIR(f"dims: {piece} is no size; write N=1", location="m.mlir:3:1")
    assert error.message.startswith("dims: ") and error.message.endswith(" is no size; write N=1")
    assert len(error.message) <= 700 and str(error) == f"m.mlir:3:1: {error.message}"


def test_a_cut_says_how_long_it_was():
    message = AicfError(f"'{LONG}' and '{LONG}': give names").message
    assert message.count("... (200002 characters) ...") == 2
    assert len(message) == 2 * 200 + len(" and : give names")


def test_what_fits_is_left_alone():
    message = "legal: " + ", ".join(f"kernel_{number}" for number in range(60))
    assert AicfError(message).message == message


def test_locations_are_one_line_too():
    error = AicfError("broken", location=f"/tmp/{LONG}/a\nb.mlir:3:14")
    assert (
        error.location is not None and error.location.endswith("b.mlir:3:14") and len(error.location) <= 400
    )
    assert "\n" not in str(error)
    error.locate("here")
    assert (error.location, str(error)) == ("here", "here: broken")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        ("a'b", '"a\'b"'),
        (Sulky(), "<Sulky>"),
        (nested(100_000), "<list>"),
        (10**5000, "<int>"),
    ],
    ids=["None", "text", "no repr", "deep", "digits"],
)
def test_anything_can_be_quoted(value: object, shown: str):
    assert quoted(value) == shown


def test_long_values_are_cut():
    assert len(quoted(LONG)) == len(quoted(list(range(10_000)))) == len(quoted(LONG.encode())) == 200
