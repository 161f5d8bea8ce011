"""Reading the sample inputs of a model: one call of it each, checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from aicf.engines.interface import Feeds, Interface
from aicf.errors import InputMismatch, quoted
from aicf.passes.logical.specialize_shapes import parse_dims
from aicf.runtime.tensors import Array
from aicf.support.arguments import mapping_from

Samples: TypeAlias = "Mapping[str, Any] | Iterable[Any] | str | Path"
"""Stacked arrays by name of the input (the samples along the first dimension), an `.npz` file of such, or calls one
after the other: each a dict by name, a list or tuple in order, or one array."""

_BATCH = 32
"""Rows of a call where the model leaves the number open."""
_MOST_BUCKETS = 16
"""Programs that are compiled for the sizes of samples, unless sizes are given."""
_FORMS = "give stacked arrays by name of the input, or an iterable of dicts, tuples or arrays"


@dataclass(frozen=True)
class SampleSet:
    """Samples that fit the model.

    Args:
        calls: The inputs of each call, by name.
        count: How many samples these are: rows of stacked arrays, else calls.
        dims: The sizes of symbolic dimensions that programs are made for, as in `N=1,32`.
    """

    calls: tuple[Mapping[str, Array], ...]
    count: int
    dims: str


def read_samples(samples: Samples, interface: Interface, dims: str) -> SampleSet:
    """Reads samples.

    Args:
        interface: Of the model.
        dims: Sizes that were given; empty takes those of the samples.

    Raises:
        InputMismatch: there is none, or one does not fit the model or has a NaN; the message names sample and input.
    """
    stacked = _stacked(samples, interface)
    if stacked is not None:
        calls, count = _split(stacked, interface, parse_dims(dims) if dims else {})
        _check_finite(stacked, None)
    else:
        given = _listed(samples)
        calls, count = [_call(number, each, interface) for number, each in enumerate(given)], len(given)
        for number, call in enumerate(calls):
            _check_finite(call, number)
    if not calls:
        raise InputMismatch(f"samples: there are none; {_FORMS}")
    sizes = [_sizes(number, call, interface) for number, call in enumerate(calls)]
    if not dims:
        return SampleSet(tuple(calls), count, _dims(sizes, interface))
    _check_given(sizes, interface, parse_dims(dims))
    return SampleSet(tuple(calls), count, dims)


def _stacked(samples: Samples, interface: Interface) -> Mapping[str, Array] | None:
    """Arrays with all samples; None if they come one by one."""
    if isinstance(samples, str | Path):
        return _read_file(Path(samples))
    if isinstance(samples, np.ndarray):
        return {_only_input(interface): cast("Array", samples)}
    if isinstance(samples, Mapping):
        arrays = mapping_from(cast(object, samples), InputMismatch, "samples")
        return {name: _array(f"samples: input '{name}'", array) for name, array in arrays.items()}
    return None


def _only_input(interface: Interface) -> str:
    if len(interface.inputs) != 1:
        raise InputMismatch(
            f"samples: one array, but the model has {len(interface.inputs)} inputs; give arrays by name: "
            f"{', '.join(interface.input_names)}"
        )
    return interface.input_names[0]


def _read_file(path: Path) -> Mapping[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("it has one array without a name")
            found: dict[str, Array] = {name: file[name] for name in file.files}
            return found
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise InputMismatch(
            f"cannot read the samples: {str(error).splitlines()[0]}; write them with numpy.savez(path, **arrays)",
            location=str(path),
        ) from error


def _listed(samples: object) -> list[Any]:
    if isinstance(samples, Iterable) and not isinstance(samples, bytes):
        return list(cast("Iterable[Any]", samples))
    raise InputMismatch(f"samples: {quoted(samples)} are none; {_FORMS}")


def _call(number: int, given: object, interface: Interface) -> dict[str, Array]:
    feeds = cast("Feeds", given if isinstance(given, Mapping | list | tuple) else [given])
    try:
        arguments = interface.arguments(feeds)
    except InputMismatch as error:
        raise InputMismatch(f"sample {number}: {error.message}") from None
    named = zip(interface.input_names, arguments, strict=True)
    return {name: _array(f"sample {number}: input '{name}'", each) for name, each in named}


def _array(what: str, given: object) -> Array:
    try:
        return np.asarray(given)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise InputMismatch(f"{what} is {quoted(given)}; give an array") from None


# Stacked arrays


def _split(
    stacked: Mapping[str, Array], interface: Interface, dims: Mapping[str, Sequence[int]]
) -> tuple[list[dict[str, Array]], int]:
    """The calls of stacked arrays, and the number of their rows."""
    try:
        arrays = dict(zip(interface.input_names, map(np.asarray, interface.arguments(stacked)), strict=True))
    except InputMismatch as error:
        raise InputMismatch(f"samples: {error.message}") from None
    counts = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise InputMismatch(f"samples: the first dimension is that of the samples, and {listed}")
    count = next(iter(counts.values()), 0)
    steps = _steps(arrays, interface, dims, count)
    calls: list[dict[str, Array]] = []
    start = 0
    for step in steps:
        calls.append(
            {spec.name: _part(arrays[spec.name], start, step, len(spec.shape)) for spec in interface.inputs}
        )
        start += step
    return calls, count


def _part(array: Array, start: int, step: int, rank: int) -> Array:
    return array[start : start + step] if array.ndim == rank else array[start]


def _steps(
    arrays: Mapping[str, Array], interface: Interface, dims: Mapping[str, Sequence[int]], count: int
) -> list[int]:
    """How many rows each call takes."""
    wanted: dict[int, str] = {}
    sizes: list[int] = []
    for spec in interface.inputs:
        rank = arrays[spec.name].ndim
        if rank == len(spec.shape) + 1:
            wanted[1] = spec.name
        elif rank != len(spec.shape) or not rank:
            raise InputMismatch(
                f"samples: input '{spec.name}' is {spec}; stacked it has rank {len(spec.shape)} or "
                f"{len(spec.shape) + 1}, got {rank}"
            )
        elif isinstance(first := spec.shape[0], int):
            wanted[first] = spec.name
        else:
            sizes = sorted(dims.get(first, ()), reverse=True) or sizes
    if len(wanted) > 1:
        listed = ", ".join(f"{step} of '{name}'" for step, name in wanted.items())
        raise InputMismatch(
            f"samples: one call takes {listed}; stacked arrays need one number, give an iterable of dicts"
        )
    if wanted:
        sizes = list(wanted)
    return _divided(count, sizes or [_BATCH, *(size for size in [count % _BATCH] if size)])


def _divided(count: int, sizes: Sequence[int]) -> list[int]:
    """`count` rows as calls of these sizes, the largest first."""
    steps: list[int] = []
    left = count
    for size in sizes:
        steps += [size] * (left // size if size else 0)
        left %= size or count + 1
    if left:
        listed = " or ".join(map(str, sizes))
        raise InputMismatch(
            f"samples: {count} rows, and the model takes {listed} at a time; {left} are left over, leave them out"
        )
    return steps


# Checks


def _sizes(number: int, call: Mapping[str, Array], interface: Interface) -> tuple[int, ...]:
    """The sizes of the symbolic dimensions of a call."""
    try:
        bucket = interface.bucket_of([call[name] for name in interface.input_names])
    except InputMismatch as error:
        raise InputMismatch(f"sample {number}: {error.message}") from None
    return bucket.sizes


def _check_finite(arrays: Mapping[str, Array], number: int | None) -> None:
    """Raises InputMismatch for a NaN or an infinity; without a number the samples lie along the first dimension."""
    for name, array in arrays.items():
        if array.dtype.kind not in "fV" or (finite := np.isfinite(array.astype(np.float64))).all():
            continue
        place = [int(index) for index in np.argwhere(~finite)[0]]
        found = array[tuple(place)]
        if number is None:
            number, place = place[0], place[1:]
        raise InputMismatch(
            f"sample {number}: input '{name}' has {found} at {place}; expected finite numbers, leave the sample out"
        )


def _dims(sizes: Sequence[tuple[int, ...]], interface: Interface) -> str:
    entries: list[str] = []
    for name, column in zip(interface.dims, zip(*sizes, strict=True), strict=False):
        found = sorted(set(column))
        if len(found) > _MOST_BUCKETS:
            raise InputMismatch(
                f"samples: they have {len(found)} sizes of {name}, each of which is a program; pad them to at "
                f"most {_MOST_BUCKETS}"
            )
        entries.append(f"{name}={','.join(map(str, found))}")
    return ";".join(entries)


def _check_given(
    sizes: Sequence[tuple[int, ...]], interface: Interface, dims: Mapping[str, Sequence[int]]
) -> None:
    """Raises InputMismatch for a sample of a size that no program is made for."""
    for number, own in enumerate(sizes):
        for name, size in zip(interface.dims, own, strict=True):
            if name in dims and size not in dims[name]:
                listed = ", ".join(map(str, dims[name]))
                raise InputMismatch(
                    f"sample {number}: {name} is {size}; expected one of dims={name}={listed}"
                )
