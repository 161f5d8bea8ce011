"""What the methods share: settings and tensors that are checked as they are read, and matrices in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np

from aicf.dialects.block_schemes import Scheme
from aicf.errors import InvalidIR, UnsupportedOp, quoted
from aicf.llm.sources.quantised.blocks import BlockLayout
from aicf.runtime.tensors import Array

FLOATS = ("float32", "float16", "bfloat16")
"""Types that scales are stored in."""


@dataclass(frozen=True)
class Settings:
    """An object of `config.json`.

    Args:
        values: Its entries.
        name: What messages call it.
        location: Of the folder.
    """

    values: Mapping[str, Any]
    name: str
    location: str

    def one_of(self, key: str, legal: Sequence[Any], default: Any = None) -> Any:
        """A setting that is one of a few values. Raises UnsupportedOp for another one."""
        value = self.values.get(key, default)
        if not any(value == each and type(value) is type(each) for each in legal):
            raise self.unsupported(key, value, f"what is read: {' or '.join(map(str, legal))}")
        return value

    def section(self, key: str) -> Settings:
        """An object among the settings, empty if there is none. Raises InvalidIR if it is no object."""
        value: object = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise InvalidIR(
                f"'{self.name}.{key}' of config.json is {quoted(value)}; it is an object",
                location=self.location,
            )
        return Settings(cast("Mapping[str, Any]", value or {}), f"{self.name}.{key}", self.location)

    def group(self, key: str) -> int | None:
        """Columns that share a scale; None if all of a row do, which is -1. Raises InvalidIR for another number."""
        value = self.values.get(key, -1)
        if value in (-1, None):
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidIR(
                f"'{self.name}.{key}' of config.json is {quoted(value)}; it is -1, or 1 or more",
                location=self.location,
            )
        return value

    def unsupported(self, key: str, value: object, instead: str) -> UnsupportedOp:
        """An error about a setting that is not read."""
        return UnsupportedOp(
            f"'{self.name}.{key}' of config.json is {quoted(value)}; {instead}", location=self.location
        )


@dataclass(frozen=True)
class Module:
    """The tensors that are stored for one matrix.

    Args:
        name: What they are called before the last dot.
        tensors: Of the folder.
        location: Of the folder, for messages.
    """

    name: str
    tensors: Mapping[str, Array]
    location: str

    def has(self, kind: str) -> bool:
        """Whether there is a tensor."""
        return f"{self.name}.{kind}" in self.tensors

    def tensor(self, kind: str, types: Sequence[str], shape: Sequence[int | None]) -> Array:
        """A tensor.

        Args:
            kind: Its name after the last dot.
            types: NumPy names of the types it may have.
            shape: Its sizes; None stands for any.

        Raises InvalidIR: it is missing or empty, or is of another type or shape.
        """
        if not self.has(kind):
            raise self.error(f"it has no tensor '{self.name}.{kind}'; fetch the model again")
        found = self.tensors[f"{self.name}.{kind}"]
        if str(found.dtype) not in types:
            raise self.error(
                f"tensor '{self.name}.{kind}' is of {found.dtype}; it is of {' or '.join(types)}"
            )
        if not found.size:
            raise self.error(f"tensor '{self.name}.{kind}' has no elements; fetch the model again")
        if len(found.shape) != len(shape) or any(
            size not in (None, own) for size, own in zip(shape, found.shape, strict=True)
        ):
            asked = ", ".join("any" if size is None else str(size) for size in shape)
            raise self.error(
                f"tensor '{self.name}.{kind}' has shape {list(found.shape)}; its settings and the others ask for "
                f"[{asked}]"
            )
        return found

    def grid(self, kind: str, types: Sequence[str], sizes: tuple[int, int]) -> Array:
        """A tensor of two dims, of which those of 1 may be left out. Raises as `tensor`."""
        stored = self.tensors.get(f"{self.name}.{kind}")
        if stored is None or 1 not in sizes or stored.size != prod(sizes):
            return self.tensor(kind, types, sizes)
        return self.tensor(kind, types, stored.shape).reshape(sizes)

    def groups(self, columns: int, group: int | None) -> int:
        """Groups in a row of so many columns. Raises InvalidIR if groups do not make up a row."""
        if group is None:
            return 1
        if columns % group:
            raise self.error(
                f"'{self.name}' has rows of {columns} columns, which are no whole groups of {group}"
            )
        return columns // group

    def check_order(self, kind: str, columns: int, group: int | None) -> None:
        """Checks that the groups of columns, where they are stored, are one after the other.

        Raises:
            InvalidIR: groups do not make up a row.
            UnsupportedOp: they are in another order.
        """
        if not self.has(kind):
            return
        groups = self.groups(columns, group)
        stored = self.tensor(kind, ("int32", "int64"), (columns,))
        if not np.array_equal(stored, np.arange(columns) // (columns // groups)):
            raise UnsupportedOp(
                f"'{self.name}.{kind}' reorders the columns (act-order); quantise with desc_act=False, or actorder "
                "weight",
                location=self.location,
            )

    def empty_bias(self) -> tuple[str, ...]:
        """The kind of a bias of zeros, which AutoGPTQ and AutoAWQ add to modules that have none; nothing for others."""
        bias = self.tensors.get(f"{self.name}.bias")
        return () if bias is None or bias.any() else ("bias",)

    def stored(self, *kinds: str) -> tuple[str, ...]:
        """Names of those tensors that are there."""
        return tuple(f"{self.name}.{kind}" for kind in kinds if self.has(kind))

    def error(self, message: str) -> InvalidIR:
        """An error about the folder."""
        return InvalidIR(message, location=self.location)

    def layout(self, codes: str, group: int, columns: int) -> BlockLayout:
        """How rows of blocks hold the module's matrix, see `BlockLayout.of`. Raises UnsupportedOp if none do."""
        found = BlockLayout.of(codes, group, columns)
        if found is None:
            raise UnsupportedOp(
                f"'{self.name}' has rows of {columns} columns in groups of {group}; what is read: multiples of 32, and "
                "groups of 16 of whole numbers",
                location=self.location,
            )
        return found


@dataclass(frozen=True)
class PackedMatrix:
    """A matrix in blocks.

    Args:
        shape: Rows and columns.
        scheme: Of its blocks.
        stored: Names of all tensors that belong to it.
        rows: Lays it out: u8[rows, bytes of a row].
    """

    shape: tuple[int, int]
    scheme: Scheme
    stored: tuple[str, ...]
    rows: Callable[[], Array]


class Method(ABC):
    """A method of `quantization_config`.

    Args:
        settings: The section.

    Raises:
        InvalidIR: a setting has no legal value.
        UnsupportedOp: a setting asks for what is not read.
    """

    @abstractmethod
    def __init__(self, settings: Settings) -> None: ...

    @abstractmethod
    def marks(self, name: str, array: Array) -> bool:
        """Whether a stored tensor says that its module is quantised."""

    @abstractmethod
    def matrix(self, module: Module) -> PackedMatrix:
        """The matrix of a module. Raises as `packed_matrices`."""
