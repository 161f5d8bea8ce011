"""Where policies are checked against models. The compiler does that, and is named here as text: it imports policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TypeAlias

Dims: TypeAlias = str | Mapping[str, int | Sequence[int]]
"""As `aicf.compile` takes them."""

VALIDATOR = "aicf.compilation.validating"
"""The module with the function `validate`."""


def validator() -> Callable[..., None]:
    """The function behind `validate` of policies."""
    return import_module(VALIDATOR).validate
