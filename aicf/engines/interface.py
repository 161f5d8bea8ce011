"""What a model takes and gives, with the names of its sizes, and the reading of a call's inputs by it.

Here a call is told what is wrong with it before a program is made for it: names, element types, ranks, fixed sizes, and
sizes that contradict each other. Where there is one already it checks element types itself, for it knows its ports.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

from aicf.errors import InputMismatch, quoted
from aicf.runtime.executable import TensorSpec
from aicf.runtime.on_device.array import tensor_of
from aicf.runtime.ports import as_array, reject_unknown
from aicf.runtime.tensors import Array, describe, numpy_dtype

Feeds: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""Inputs by name, or in order."""

UNKNOWN = "?"
"""Element type, and only size, of an output about which the model says nothing."""

MOST_ELEMENTS = 64
"""Of an input whose values a program may be made for."""


class Bucket(NamedTuple):
    """What one program is made for.

    Args:
        sizes: Of the symbolic dimensions, in the order of their names.
        values: Of the inputs that programs are made for the values of: their indices, in order, and values as JSON.
    """

    sizes: tuple[int, ...]
    values: tuple[tuple[int, str], ...] = ()

    @property
    def followed(self) -> set[int]:
        """The indices of those inputs."""
        return {index for index, _ in self.values}


class Linear(NamedTuple):
    """A size that follows from one dimension: `factor * name + offset`."""

    name: str
    factor: int
    offset: int


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
        values: Inputs whose values are known: calls need not give them.
        linear: Of sizes in text that are no name alone, those that follow from one dimension.

    Attributes:
        known: Those values, by name.
        given: Sizes of dimensions that the shapes of inputs do not tell.
        followed: Indices of the inputs that programs are made for the values of, in order.
    """

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        dims: Sequence[str],
        values: Mapping[str, Array] | None = None,
        linear: Mapping[str, Linear] | None = None,
    ) -> None:
        self.inputs, self.outputs, self.dims = tuple(inputs), tuple(outputs), tuple(dims)
        self.input_names = [spec.name for spec in inputs]
        self.output_names = [spec.name for spec in outputs]
        self._inputs = tuple(_Input(spec.name, spec.shape, spec.dtype) for spec in inputs)
        self._linear = dict(linear or {})
        self.known = dict(values or {})
        self.given: Mapping[str, int] = {}
        self.followed: tuple[int, ...] = ()
        self.follow(self.known)

    # Names

    def arguments(self, feeds: Feeds) -> tuple[Any, ...]:
        """The inputs in order. Raises InputMismatch for a name or a number of inputs that is wrong."""
        if isinstance(feeds, Mapping):
            given = feeds if not self.known else {**self.known, **feeds}
            try:
                arguments = tuple([given[name] for name in self.input_names])
            except KeyError:
                raise self._missing(given) from None
            if len(given) != len(arguments):
                reject_unknown(feeds, self.input_names, "input")
            return arguments
        if not isinstance(feeds, list | tuple):
            raise InputMismatch(
                f"inputs are a dict by name or a list in order, got {type(feeds).__name__}; it takes {self._wanted()}"
            )
        if self.known and len(feeds) == len(self.inputs) - len(self.known):
            rest = iter(feeds)
            return tuple(self.known[name] if name in self.known else next(rest) for name in self.input_names)
        if len(feeds) != len(self.inputs):
            raise InputMismatch(
                f"expected {len(self.inputs)} inputs, got {len(feeds)}; it takes {self._wanted()}"
            )
        return tuple(feeds)

    def check_outputs(self, names: Sequence[str]) -> None:
        """Raises InputMismatch for a name that is no output."""
        if isinstance(names, Mapping):
            raise InputMismatch(
                "output names are a list of names, got a dict; inputs come first, as in "
                f"session.run(feeds, {list(self.output_names)})"
            )
        if isinstance(names, str):
            raise InputMismatch(
                f"output names are a list of names, got the string '{names}'; write ['{names}']"
            )
        _check_iterable(names)
        reject_unknown(names, self.output_names, "output")

    def _missing(self, given: Mapping[str, Any]) -> InputMismatch:
        reject_unknown(given, self.input_names, "input")
        missing = [name for name in self.input_names if name not in given]
        plural = "s" if len(missing) > 1 else ""
        return InputMismatch(f"missing input{plural} {', '.join(missing)}; it takes {self._wanted()}")

    def _wanted(self) -> str:
        return ", ".join(f"{spec.name}: {spec}" for spec in self.inputs) or "none"

    # Sizes and values

    def bucket_of(self, arguments: Sequence[Any]) -> Bucket:
        """What the program of a call with these inputs is made for.

        Raises:
            InputMismatch: an input is no array, or has another element type, another rank, another fixed size, or a
                size that contradicts that of another input.
        """
        bound: dict[str, tuple[int, str]] = {}
        for spec, value in zip(self._inputs, arguments, strict=True):
            shape, dtype = tensor_of(value, spec)
            _check_fixed(spec, shape, dtype)
            _check_type(spec, shape, dtype)
            for wanted, size in zip(spec.shape, shape, strict=True):
                if isinstance(wanted, str):
                    self._bind(wanted, size, spec, bound)
        for name in self.dims:
            if name not in bound and name not in self.given:
                raise InputMismatch(f"no input has the dimension {name}; give one size of it in dims=")
        values = tuple((index, _value_text(self._inputs[index], arguments[index])) for index in self.followed)
        sizes = tuple(bound[name][0] if name in bound else self.given[name] for name in self.dims)
        return Bucket(sizes, values)

    def follow(self, names: Iterable[str]) -> None:
        """From now on programs are made for the values of these inputs too."""
        indices = {self.input_names.index(name) for name in names}
        self.followed = tuple(sorted({*self.followed, *indices}))

    def may_follow(self, names: Sequence[str]) -> bool:
        """Whether these inputs may be few enough numbers; a size that is not fixed may be 1."""
        shapes = [self._inputs[self.input_names.index(name)].shape for name in names]
        fixed = [math.prod(size for size in shape if isinstance(size, int)) for shape in shapes]
        return max(fixed, default=0) <= MOST_ELEMENTS

    def can_follow(self, names: Sequence[str], bucket: Bucket, arguments: Sequence[Any]) -> bool:
        """Whether these inputs are few enough numbers, and not all in the bucket already."""
        indices = {self.input_names.index(name) for name in names}
        sizes = [math.prod(tensor_of(arguments[index], self._inputs[index])[0]) for index in indices]
        return not indices <= bucket.followed and max(sizes, default=0) <= MOST_ELEMENTS

    def values_of(self, bucket: Bucket) -> dict[str, object]:
        """The values in a bucket, by name."""
        return {self.input_names[index]: json.loads(text) for index, text in bucket.values}

    def _bind(self, wanted: str, size: int, spec: _Input, bound: dict[str, tuple[int, str]]) -> None:
        """Notes what a size says of a dimension: it is that dimension, or follows from it."""
        if wanted in self.dims:
            name, own = wanted, size
        elif wanted in self._linear:
            name, factor, offset = self._linear[wanted]
            own, rest = divmod(size - offset, factor)
            if rest:
                raise InputMismatch(
                    f"input '{spec.name}': {size} is no {wanted}, for any {name}; expected "
                    f"{describe(spec.shape, spec.dtype)}"
                )
        else:
            return
        known, first = bound.setdefault(name, (own, spec.name))
        if known != own:
            raise InputMismatch(
                f"{name} is {known} in input '{first}', {own} in '{spec.name}'; it is one size for the whole model"
            )

    def bucket_named(self, dims: Mapping[str, int]) -> Bucket:
        """The bucket of these sizes, and of the values that are known.

        Raises:
            InputMismatch: a dimension is unknown or missing, or an input must have a value and has none.
        """
        reject_unknown(dims, self.dims, "dimension")
        for name, size in dims.items():
            _check_size(name, size)
        sizes = {**self._settled(), **dims}
        if missing := [name for name in self.dims if name not in sizes]:
            listed = ", ".join(self.dims)
            raise InputMismatch(f"no size is given for {', '.join(missing)}; its dimensions are {listed}")
        names = {index: self.input_names[index] for index in self.followed}
        if unknown := [name for name in names.values() if name not in self.known]:
            raise InputMismatch(
                f"programs are made for the values of '{unknown[0]}'; give inputs, as in feeds="
            )
        values = tuple((index, json.dumps(self.known[name].tolist())) for index, name in names.items())
        return Bucket(tuple(sizes[name] for name in self.dims), values)

    def _settled(self) -> dict[str, int]:
        """Sizes that follow from the shapes of known values."""
        pairs = [
            pair
            for spec in self.inputs
            if spec.name in self.known
            for pair in zip(spec.shape, self.known[spec.name].shape, strict=False)
        ]
        return {wanted: size for wanted, size in pairs if isinstance(wanted, str) and wanted in self.dims}

    @property
    def open_dims(self) -> list[str]:
        """The dimensions whose sizes do not follow from known values."""
        settled = self._settled()
        return [name for name in self.dims if name not in settled]

    def label(self, bucket: Bucket) -> str:
        """Sizes and values in words: `batch=8, length=128, rate=16000`."""
        pairs = [*zip(self.dims, bucket.sizes, strict=True), *self.values_of(bucket).items()]
        return ", ".join(f"{name}={json.dumps(value)}" for name, value in pairs) or "fixed sizes"


def _check_iterable(names: object) -> None:
    if not isinstance(names, Iterable):
        raise InputMismatch(f"output names are a list of names, got {type(names).__name__}")


def _check_size(name: str, size: object) -> None:
    if isinstance(size, bool) or not isinstance(size, Integral) or size < 0:
        raise InputMismatch(
            f"dimension {name} has one size, 0 or more, got {quoted(size)}; write {{'{name}': 8}}"
        )


def _value_text(spec: _Input, value: object) -> str:
    """The elements of an input as JSON. Raises InputMismatch if they are too many to make a program for."""
    array = as_array(value, spec)
    if array.size > MOST_ELEMENTS:
        raise InputMismatch(
            f"input '{spec.name}' has {array.size} elements, and programs are made for its value: at most "
            f"{MOST_ELEMENTS} are followed; make it a constant of the model"
        )
    return json.dumps(array.tolist())


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


def _check_type(spec: _Input, shape: tuple[int, ...], dtype: str) -> None:
    if dtype != spec.dtype:
        raise InputMismatch(
            f"input '{spec.name}': expected {describe(shape, spec.dtype)}, got {describe(shape, dtype)}; convert it, "
            f"as in array.astype('{numpy_dtype(spec.dtype)}')"
        )
