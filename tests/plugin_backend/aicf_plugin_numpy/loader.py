"""Runs the JSON that `backend` writes: operands become strided arrays on the pointer table, launches run in order."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from aicf.errors import ArtifactError
from aicf_plugin_numpy.scalars import SCALARS, Array, compare

_DTYPES = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "i1": np.dtype(np.bool_)}


class NumpyCode:
    """See `aicf.backends.native.LoadedCode`."""

    def __init__(self, code: bytes) -> None:
        try:
            self._programs: dict[str, list[Any]] = json.loads(code)
        except ValueError as error:
            raise ArtifactError("the code is no program of backend 'numpy'; compile it again") from error

    def entry(self, symbol: str) -> NumpyEntry:
        """See `LoadedCode`."""
        if symbol not in self._programs:
            raise ArtifactError(f"the code has no program for entry '{symbol}'; compile it again")
        return NumpyEntry(self._programs[symbol])

    def profile_entry(self, symbol: str) -> None:
        """There is none."""

    def function_addresses(self) -> Sequence[int]:
        """None."""
        return ()


class NumpyEntry:
    """See `aicf.backends.native.Entry`; thread 0 runs everything."""

    def __init__(self, launches: list[Any]) -> None:
        self._launches = launches

    def bind(self, tid: int, nthreads: int, table: int) -> Callable[[], None]:
        """See `Entry`."""
        return partial(_run, self._launches if tid == 0 else [], table)


def _run(launches: list[Any], table: int) -> None:
    for launch in launches:
        ins = [_array(ref, table) for ref in launch["ins"]]
        outs = [_array(ref, table) for ref in launch["outs"]]
        with np.errstate(all="ignore"):
            _KERNELS[launch["kernel"]](launch, ins, outs)


def _array(ref: Any, table: int) -> Array:
    """An operand: its memory from the lowest to the highest element, and the view on that."""
    dtype, shape, strides = _DTYPES[ref["dtype"]], ref["shape"], ref["strides"]
    steps = [(size - 1) * step for size, step in zip(shape, strides, strict=True)]
    low, high = sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps) + 1
    base = ctypes.c_void_p.from_address(table + ref["base"] * ctypes.sizeof(ctypes.c_void_p)).value
    address = (base or 0) + ref["offset"] + low * dtype.itemsize
    memory = (ctypes.c_uint8 * ((high - low) * dtype.itemsize)).from_address(address)
    size = dtype.itemsize
    return np.ndarray(shape, dtype, memory, -low * size, [step * size for step in strides])


def _matmul(launch: Any, ins: list[Array], outs: list[Array]) -> None:
    outs[0][...] = _product(launch, ins)


def _product(launch: Any, ins: list[Array]) -> Array:
    a, b = ins[:2]
    a = np.swapaxes(a, -1, -2) if launch["flags"]["transpose_a"] else a
    b = np.swapaxes(b, -1, -2) if launch["flags"]["transpose_b"] else b
    return a @ b


def _matmul_epilogue(launch: Any, ins: list[Array], outs: list[Array]) -> None:
    _evaluate(launch["code"], [_product(launch, ins), *ins[2:]], outs)


def _generated(launch: Any, ins: list[Array], outs: list[Array]) -> None:
    _evaluate(launch["code"], ins, outs)


def _copy(launch: Any, ins: list[Array], outs: list[Array]) -> None:
    outs[0][...] = ins[0].copy()


_KERNELS: dict[str, Callable[[Any, list[Array], list[Array]], None]] = {
    "numpy.matmul": _matmul,
    "numpy.matmul_epilogue": _matmul_epilogue,
    "numpy.generated": _generated,
    "numpy.copy": _copy,
}


def _evaluate(code: Any, ins: list[Array], outs: list[Array]) -> None:
    """Runs the phases on arrays over the whole iteration space; a dim that a value does not follow has size 1."""
    values = {
        number: _spread(array.copy(), index, len(code["sizes"]))
        for number, (array, index) in enumerate(zip(ins, code["ins"], strict=True))
    }
    for phase in code["phases"]:
        for step in phase:
            _step(step, code, values, outs)


def _step(step: Any, code: Any, values: dict[int, Array], outs: list[Array]) -> None:
    name, args = step["op"], [values[number] for number in step["args"]]
    match name:
        case "emit.yield":
            pass
        case "emit.store":
            _store(args[0], code, step["output"], outs)
        case "emit.reduce":
            values[step["result"]] = _reduce(args[0], code, step["combine"])
        case "arith.constant":
            dtype = _DTYPES[step["dtype"]]
            values[step["result"]] = np.full([1] * len(code["sizes"]), step["value"], dtype)
        case "arith.cmpf":
            values[step["result"]] = compare(step["predicate"], args[0], args[1])
        case _:
            function = SCALARS[name]
            assert function is not None
            values[step["result"]] = function(*args)


def _spread(array: Array, index: list[int], rank: int) -> Array:
    """An operand with the dims of the iteration space in order."""
    array = array[tuple(0 if dim < 0 else slice(None) for dim in index)]
    dims = [dim for dim in index if dim >= 0]
    array = array.transpose([dims.index(dim) for dim in sorted(dims)])
    return array.reshape([array.shape[sorted(dims).index(dim)] if dim in dims else 1 for dim in range(rank)])


def _reduce(array: Array, code: Any, combine: str) -> Array:
    sizes, count = code["sizes"], code["reduced"]
    axes = tuple(range(len(sizes) - count, len(sizes)))
    full = np.broadcast_to(array, [*array.shape[: len(sizes) - count], *sizes[len(sizes) - count :]])
    function = {"sum": np.add, "max": np.maximum, "min": np.minimum}[combine]
    return function.reduce(full, axis=axes, keepdims=True)


def _store(array: Array, code: Any, output: int, outs: list[Array]) -> None:
    index, sizes = code["outs"][output], code["sizes"]
    full = np.broadcast_to(array, [sizes[d] if d in index else array.shape[d] for d in range(len(sizes))])
    kept = full[tuple(slice(None) if dim in index else 0 for dim in range(len(sizes)))]
    order = [sorted(d for d in index if d >= 0).index(dim) for dim in index if dim >= 0]
    target = outs[output]
    target[...] = kept.transpose(order).reshape(target.shape)
