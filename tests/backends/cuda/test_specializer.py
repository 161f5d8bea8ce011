"""Specialized templates, run as plain Python: loops, registers, branches, snippets, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aicf.backends.cuda.compiler import specializer
from aicf.backends.cuda.compiler.specializer import (
    Snippet,
    SpecializationError,
    part,
    registers,
    splice,
    stage,
    unrolled,
)

COUNT = FLAG = OTHER = SIZES = FINISH = 0


def run(template: Callable[..., Any], constants: Mapping[str, Any], *arguments: Any) -> Any:
    """The specialized template's result, with nothing but what it was given."""
    namespace: dict[str, Any] = {"__builtins__": {}}
    exec(stage(template, constants), namespace)
    return namespace[template.__name__](*arguments)


def weighted(x):
    """Sum of x times 1, 2, ..., COUNT, through registers."""
    acc = registers(COUNT, 0)
    total = 0
    for i in unrolled(COUNT):
        acc[i] = x * (i + 1)
    for i in unrolled(0, COUNT, 2):
        acc[i], acc[i + 1] = acc[i + 1], acc[i]
    for i in unrolled(COUNT):
        total = total * 10 + acc[i]
    return total


def test_loops_unroll_and_registers_are_locals() -> None:
    assert run(weighted, {"COUNT": 4}, 1) == 2143
    text = stage(weighted, {"COUNT": 4})
    assert "for " not in text and "[" not in text and "acc_3" in text and "acc_4" not in text


def chosen(x):
    """Branches on constants, on values, and on both."""
    y = 1 if FLAG else OTHER
    if FLAG or x > 3:
        y = y + 10
    if OTHER and x > 3:
        y = y + 100
    if not FLAG and x > 3:
        y = y + 1000
    return y + SIZES[1]


@pytest.mark.parametrize(
    ("flag", "other", "x", "wanted"),
    [
        (True, 0, 0, 11),
        (False, 0, 0, 0),
        (False, 0, 4, 1010),
        (False, 7, 4, 1117),
        (True, 7, 4, 111),
    ],
)
def test_constant_branches_are_taken(flag: bool, other: int, x: int, wanted: int) -> None:
    assert run(chosen, {"FLAG": flag, "OTHER": other, "SIZES": (5, 6)}, x) == wanted + 6


@pytest.mark.parametrize(
    ("flag", "other", "branches"), [(True, 0, 0), (False, 0, 2), (False, 7, 3), (True, 7, 1)]
)
def test_a_leading_constant_decides_or_is_dropped(flag: bool, other: int, branches: int) -> None:
    text = stage(chosen, {"FLAG": flag, "OTHER": other, "SIZES": (5, 6)})
    assert text.count("if ") == branches and " or " not in text and " and " not in text


def finished(x):
    y = splice(FINISH, x, 3)
    z = splice(FINISH, y, x)
    return y, z


def test_snippets_have_names_of_their_own() -> None:
    """Spliced twice, with a constant and with a value; its local hides none of the template's."""
    snippet = Snippet(("a", "b"), ("x = a * 2", "for i in unrolled(2):", "    x = x + b"), "x + 1")
    assert run(finished, {"FINISH": snippet}, 5) == (17, 45)


def added(a, b):
    doubled = a + a
    return doubled + b


def test_a_function_is_a_snippet() -> None:
    assert run(finished, {"FINISH": part(added)}, 5) == (13, 31)


def literal(x):
    return (x, FLAG)


def test_equal_constants_of_other_types_are_other_kernels() -> None:
    """1, 1.0 and True are equal; each must come out as what it is, in any order."""
    for value in (1, True, 1.0, 1):
        assert repr(run(literal, {"FLAG": value}, 0)[1]) == repr(value)


def test_a_text_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = stage(weighted, {"COUNT": 6})

    def none(*_: object) -> None:
        raise AssertionError("specialized again")

    monkeypatch.setattr(specializer, "_Specializer", none)
    assert stage(weighted, {"COUNT": 6}) is first


def unknown_index(x):
    acc = registers(2, 0)
    return acc[x]


def unknown_bounds(x):
    for _ in unrolled(x):
        x = x + 1
    return x


def mark_inside(x):
    return 1 + splice(FINISH, x)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (unknown_index, "register index of 'acc' is not a constant below 2"),
        (unknown_bounds, "the bounds of an unrolled loop are not constant"),
        (mark_inside, "splice stands alone or right of one '='"),
    ],
)
def test_what_cannot_be_staged_is_refused(template: Callable[..., Any], message: str) -> None:
    with pytest.raises(SpecializationError, match=message):
        stage(template, {"FINISH": Snippet(("a",), (), "a")})
