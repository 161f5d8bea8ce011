"""Symbolic sizes obey the laws of polynomials and have one text each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicf.dialects.dims import Poly, Size, add, multiply, names_of, parse_size, substitute, symbol

atoms = st.one_of(st.integers(-4, 6), st.sampled_from(["N", "M", "K2", "_batch"]).map(symbol))
sizes = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: add(*pair)),
        st.tuples(inner, inner).map(lambda pair: multiply(*pair)),
    ),
    max_leaves=6,
)
BINDING = {"N": 3, "M": 5, "K2": 7, "_batch": 2}


def value(size: Size) -> int:
    result = substitute(size, BINDING)
    assert isinstance(result, int)
    return result


@given(sizes, sizes, sizes)
def test_ring_laws(a: Size, b: Size, c: Size) -> None:
    assert add(a, b) == add(b, a)
    assert multiply(a, b) == multiply(b, a)
    assert add(add(a, b), c) == add(a, b, c)
    assert multiply(multiply(a, b), c) == multiply(a, b, c)
    assert multiply(a, add(b, c)) == add(multiply(a, b), multiply(a, c))
    assert add(a, multiply(-1, a)) == 0


@given(sizes, sizes)
def test_arithmetic_agrees_with_numbers(a: Size, b: Size) -> None:
    assert value(add(a, b)) == value(a) + value(b)
    assert value(multiply(a, b)) == value(a) * value(b)


@given(sizes)
def test_text_reads_back(size: Size) -> None:
    assert parse_size(str(size)) == size


@given(sizes)
def test_a_constant_is_an_integer(size: Size) -> None:
    assert isinstance(size, Poly) == bool(names_of([size]))


def test_partial_substitution_keeps_the_other_names() -> None:
    assert str(substitute(parse_size("2*N*M + M"), {"N": 4})) == "9*M"


@pytest.mark.parametrize("text", ["", "N/2", "N**2", "2N", "N +", "* N", "(N)", "N M", "é", "²"])
def test_malformed(text: str) -> None:
    with pytest.raises(ValueError, match="is no dimension size"):
        parse_size(text)
