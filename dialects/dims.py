"""Symbolic dimension sizes: integer polynomials over names, kept in one normal form.

A size is an ``int`` (static) or a :class:`Poly` (symbolic: ``N``, ``4*N``, ``N + M``). Equal sizes are equal
Python values, so the shape arithmetic of the logical dialect (reshape legality, concatenation, flattening) is
plain ``==``. The same name means the same size everywhere in a program. :class:`DimsAttr` is the
``#logical.dims`` encoding of a tensor type.

This file knows no tensor type and no op; ``types.py`` joins sizes to tensors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product as cartesian
from typing import TypeAlias

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

Monomial: TypeAlias = tuple[str, ...]
"""A product of names, sorted, a repeated name meaning a power; the empty product is the constant term."""

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Poly:
    """A non-constant polynomial with integer coefficients, made by :func:`add`, :func:`multiply` and the like.

    Terms are sorted by falling degree, then by name, and none has coefficient zero.
    """

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        text = ""
        for names, coefficient in self.terms:
            size = abs(coefficient)
            factors = ([] if size == 1 and names else [str(size)]) + list(names)
            sign = "-" if coefficient < 0 else "+"
            joined = "*".join(factors)
            text += f" {sign} {joined}" if text else (f"-{joined}" if sign == "-" else joined)
        return text

    @property
    def names(self) -> frozenset[str]:
        """The dimension names the polynomial mentions."""
        return frozenset(name for monomial, _ in self.terms for name in monomial)


Size: TypeAlias = int | Poly


def symbol(name: str) -> Poly:
    """The size that is just the name."""
    return Poly((((name,), 1),))


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(size, Poly):
        return size.terms
    return (((), size),)


def _normalise(counts: Mapping[Monomial, int]) -> Size:
    terms = [(names, coefficient) for names, coefficient in counts.items() if coefficient]
    if not terms:
        return 0
    if len(terms) == 1 and not terms[0][0]:
        return terms[0][1]
    return Poly(tuple(sorted(terms, key=lambda term: (-len(term[0]), term[0]))))


def add(*sizes: Size) -> Size:
    """The sum of the sizes."""
    if all(isinstance(size, int) for size in sizes):
        return sum(size for size in sizes if isinstance(size, int))
    counts: Counter[Monomial] = Counter()
    for size in sizes:
        for names, coefficient in _terms(size):
            counts[names] += coefficient
    return _normalise(counts)


def multiply(*sizes: Size) -> Size:
    """The product of the sizes (1 for none): an element count, when given a shape."""
    static = 1
    symbolic: list[Poly] = []
    for size in sizes:
        if isinstance(size, int):
            static *= size
        else:
            symbolic.append(size)
    result: Size = static
    for poly in symbolic:
        counts: Counter[Monomial] = Counter()
        for (left, a), (right, b) in cartesian(_terms(result), poly.terms):
            counts[tuple(sorted(left + right))] += a * b
        result = _normalise(counts)
    return result


def substitute(size: Size, bindings: Mapping[str, int]) -> Size:
    """Replace the names that ``bindings`` gives; other names stay."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for names, coefficient in size.terms:
        factors = [bindings.get(name, symbol(name)) for name in names]
        total = add(total, multiply(coefficient, *factors))
    return total


def names_of(sizes: Sequence[Size]) -> frozenset[str]:
    """All names that any of the sizes mentions."""
    return frozenset(name for size in sizes if isinstance(size, Poly) for name in size.names)


@lru_cache(maxsize=1024)
def parse_size(text: str) -> Size:
    """Read a polynomial such as ``4*N``, ``N + M`` or ``2*M*N - 1`` (sums of products of names and integers).

    Raises:
        ValueError: the text is no such polynomial.
    """
    total: Size = 0
    for sign, body in _signed_products(text):
        factors: list[Size] = []
        for factor in body.split("*"):
            word = factor.strip()
            if NAME_PATTERN.fullmatch(word):
                factors.append(symbol(word))
            elif word.isascii() and word.isdigit():
                factors.append(int(word))
            else:
                raise ValueError(
                    f"'{text}' is no dimension size: write sums of products, such as 4*N or N + M"
                )
        total = add(total, multiply(sign, *factors))
    return total


def _signed_products(text: str) -> list[tuple[int, str]]:
    pieces = re.split(r"([+-])", text.strip())
    leading_sign = pieces[0].strip() == "" and len(pieces) > 1
    pieces = pieces[1:] if leading_sign else ["+", *pieces]
    return [(-1 if sign == "-" else 1, body) for sign, body in zip(pieces[::2], pieces[1::2], strict=True)]


@irdl_attr_definition
class DimsAttr(ParametrizedAttribute):
    """``#logical.dims<["N", ""]>``: per dimension its symbolic size, or "" where the shape itself is static."""

    name = "logical.dims"

    entries: ArrayAttr[StringAttr] = param_def()

    @classmethod
    def get(cls, sizes: Sequence[Size]) -> DimsAttr:
        """The encoding of a shape that has at least one symbolic size."""
        return cls(ArrayAttr(StringAttr("" if isinstance(size, int) else str(size)) for size in sizes))

    @property
    def sizes(self) -> tuple[Poly | None, ...]:
        """Per dimension the polynomial, or None where the entry is ""."""
        return tuple(_parse_entry(entry.data) for entry in self.entries)

    def verify(self) -> None:
        for entry in self.entries:
            size = _parse_entry(entry.data)
            if size is not None and str(size) != entry.data:
                raise VerifyException(f"#logical.dims: write '{entry.data}' in normal form: '{size}'")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Read ``<["N", ""]>``, bringing each entry to normal form."""
        with parser.in_angle_brackets():
            position = parser.pos
            texts = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_str_literal)
            try:
                sizes = [_parse_entry(text) for text in texts]
            except VerifyException as error:
                parser.raise_error(str(error), position, parser.pos)
        return [ArrayAttr(StringAttr("" if size is None else str(size)) for size in sizes)]

    def print_parameters(self, printer: Printer) -> None:
        """Write ``<["N", ""]>``."""
        with printer.in_angle_brackets():
            printer.print_attribute(self.entries)


def _parse_entry(text: str) -> Poly | None:
    if text == "":
        return None
    try:
        size = parse_size(text)
    except ValueError as error:
        raise VerifyException(f"#logical.dims: {error}") from error
    if isinstance(size, int):
        raise VerifyException(
            f"#logical.dims: '{text}' is the constant {size}; write it in the shape and leave the entry empty"
        )
    return size
