"""What a model takes and gives, with the names of its sizes, and the reading of a call's inputs by it.

Here a call is told what is wrong with it before a program is looked for: names, ranks, fixed sizes, and sizes that
contradict each other. Element types are the program's to check, which knows its ports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aicf.errors import InputMismatch
from aicf.runtime.device_array import tensor_of
from aicf.runtime.executable import TensorSpec
from aicf.runtime.ports import reject_unknown
from aicf.runtime.tensors import describe

Feeds: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""Inputs by name, or in order."""

UNKNOWN = "?"
"""Element type, and only size, of an output about which the model says nothing."""

Sizes: TypeAlias = tuple[int, ...]
"""Sizes of the symbolic dimensions, in the order of their names."""


@dataclass(frozen=True)
class _Input:
    """An input as messages speak of it."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    role: str = "input"


class Interface:
    """The inputs, outputs and symbolic dimensions of a model.

    Args:
        inputs, outputs: In order.
        dims: Names of the symbolic dimensions.
    """

    def __init__(
        self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], dims: Sequence[str]
    ) -> None:
        self.inputs, self.outputs, self.dims = tuple(inputs), tuple(outputs), tuple(dims)
        self.input_names = [spec.name for spec in inputs]
        self.output_names = [spec.name for spec in outputs]
        self._inputs = tuple(_Input(spec.name, spec.shape, spec.dtype) for spec in inputs)

    # Names

    def arguments(self, feeds: Feeds) -> tuple[Any, ...]:
        """The inputs in order. Raises InputMismatch for a name or a number of inputs that is wrong."""
        if isinstance(feeds, Mapping):
            try:
                arguments = tuple([feeds[name] for name in self.input_names])
            except KeyError:
                raise self._missing(feeds) from None
            if len(feeds) != len(arguments):
                reject_unknown(feeds, self.input_names, "input")
            return arguments
        if not isinstance(feeds, list | tuple):
            raise InputMismatch(
                f"inputs are a dict by name or a list in order, got {type(feeds).__name__}; it takes {self._wanted()}"
            )
        if len(feeds) != len(self.inputs):
            raise InputMismatch(
                f"expected {len(self.inputs)} inputs, got {len(feeds)}; it takes {self._wanted()}"
            )
        return tuple(feeds)

    def check_outputs(self, names: Sequence[str]) -> None:
        """Raises InputMismatch for a name that is no output."""
        if isinstance(names, str):
            raise InputMismatch(
                f"output names are a list of names, got the string '{names}'; write ['{names}']"
            )
        reject_unknown(names, self.output_names, "output")

    def _missing(self, given: Mapping[str, Any]) -> InputMismatch:
        reject_unknown(given, self.input_names, "input")
        missing = [name for name in self.input_names if name not in given]
        plural = "s" if len(missing) > 1 else ""
        return InputMismatch(f"missing input{plural} {', '.join(missing)}; it takes {self._wanted()}")

    def _wanted(self) -> str:
        return ", ".join(f"{spec.name}: {spec}" for spec in self.inputs) or "none"

    # Sizes

    def sizes_of(self, arguments: Sequence[Any]) -> Sizes:
        """The sizes of the symbolic dimensions in a call with these inputs.

        Raises:
            InputMismatch: an input is no array, or has another rank, another fixed size, or a size that contradicts
                that of another input.
        """
        bound: dict[str, tuple[int, str]] = {}
        for spec, value in zip(self._inputs, arguments, strict=True):
            shape, dtype = tensor_of(value, spec)
            _check_fixed(spec, shape, dtype)
            for wanted, size in zip(spec.shape, shape, strict=True):
                if isinstance(wanted, str) and wanted in self.dims:
                    self._bind(wanted, size, spec.name, bound)
        if unknown := [name for name in self.dims if name not in bound]:
            raise InputMismatch(f"no input has the dimension {unknown[0]}; give its size in dims=")
        return tuple(bound[name][0] for name in self.dims)

    def _bind(self, name: str, size: int, where: str, bound: dict[str, tuple[int, str]]) -> None:
        known, first = bound.setdefault(name, (size, where))
        if known != size:
            raise InputMismatch(
                f"{name} is {known} in input '{first}', {size} in '{where}'; it is one size for the whole model"
            )

    def sizes_named(self, dims: Mapping[str, int]) -> Sizes:
        """The sizes of `dims`, which must name all dimensions. Raises InputMismatch."""
        reject_unknown(dims, self.dims, "dimension")
        if missing := [name for name in self.dims if name not in dims]:
            raise InputMismatch(
                f"no size is given for {', '.join(missing)}; its dimensions are {', '.join(self.dims)}"
            )
        return tuple(dims[name] for name in self.dims)

    def label(self, sizes: Sizes) -> str:
        """Sizes in words: `batch=8, length=128`."""
        return (
            ", ".join(f"{name}={size}" for name, size in zip(self.dims, sizes, strict=True)) or "fixed sizes"
        )


def _check_fixed(spec: _Input, shape: tuple[int, ...], dtype: str) -> None:
    """Raises InputMismatch for another rank, or another size where the model names a number."""
    if len(shape) != len(spec.shape):
        way_out = f"rank must be {len(spec.shape)}, is {len(shape)}"
    else:
        axes = range(len(shape))
        wrong = [
            axis for axis in axes if isinstance(spec.shape[axis], int) and spec.shape[axis] != shape[axis]
        ]
        if not wrong:
            return
        way_out = f"the model fixes dimension {wrong[0]} to {spec.shape[wrong[0]]}"
    wanted = describe(spec.shape, spec.dtype)
    raise InputMismatch(f"input '{spec.name}': expected {wanted}, got {describe(shape, dtype)}; {way_out}")
