"""The architectures of language models, one small file each, on the builder.

A file is found by being here: its subclasses of `Decoder` say which architectures they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from aicf.errors import UnsupportedOp
from aicf.llm.families.decoder import Decoder


def family_of_architecture(name: str, location: str) -> type[Decoder]:
    """The family of a GGUF file's architecture. Raises UnsupportedOp if there is none."""
    return _found(name, {name: family for family in _families() for name in family.ARCHITECTURES}, location)


def family_of_model_type(name: str, location: str) -> type[Decoder]:
    """The family of a folder's `model_type`. Raises UnsupportedOp if there is none."""
    return _found(name, {name: family for family in _families() for name in family.MODEL_TYPES}, location)


def _found(name: str, families: dict[str, type[Decoder]], location: str) -> type[Decoder]:
    if name not in families:
        raise UnsupportedOp(
            f"the architecture is {name}; those that are read: {', '.join(sorted(families))}",
            location=location,
        )
    return families[name]


@cache
def _families() -> tuple[type[Decoder], ...]:
    for module in iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    return tuple(_descendants(Decoder))


def _descendants(family: type[Decoder]) -> Iterator[type[Decoder]]:
    for below in family.__subclasses__():
        if "ARCHITECTURES" in vars(below):
            yield below
        yield from _descendants(below)
