"""Arithmetic on the sizes of an interface, which are text. It needs xDSL, which serving an artifact does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aicf.dialects.dims import Poly, parse_size, substitute
from aicf.engines.interface import UNKNOWN, Linear
from aicf.runtime.executable import TensorSpec


def symbols_of(specs: Iterable[TensorSpec]) -> list[str]:
    """The names in the sizes of inputs, in order of first mention."""
    names: dict[str, None] = {}
    for text in _texts(specs):
        size = parse_size(text)
        names.update(dict.fromkeys(sorted(size.names) if isinstance(size, Poly) else ()))
    return list(names)


def linear_sizes(specs: Iterable[TensorSpec]) -> dict[str, Linear]:
    """Those sizes of inputs that follow from one dimension, by their text."""
    found: dict[str, Linear] = {}
    for text in _texts(specs):
        size = parse_size(text)
        if not isinstance(size, Poly) or len(size.names) != 1:
            continue
        (name,) = size.names
        terms = dict(size.terms)
        factor, offset = terms.pop((name,), 0), terms.pop((), 0)
        if factor and not terms:
            found[text] = Linear(name, factor, offset)
    return found


def shape_at(shape: Sequence[int | str], sizes: Mapping[str, int]) -> tuple[int | None, ...]:
    """A shape for sizes of the dimensions; None where they do not tell."""
    return tuple(size if isinstance(size, int) else _size_at(size, sizes) for size in shape)


def _size_at(text: str, sizes: Mapping[str, int]) -> int | None:
    if text == UNKNOWN:
        return None
    found = substitute(parse_size(text), sizes)
    return found if isinstance(found, int) else None


def _texts(specs: Iterable[TensorSpec]) -> list[str]:
    return [size for spec in specs for size in spec.shape if isinstance(size, str) and size != UNKNOWN]
