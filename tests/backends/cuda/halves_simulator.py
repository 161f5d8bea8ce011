"""What attention takes of Hopper beside the rest of the simulated GPU: products of warpgroups of f16 and bf16, out of
swizzled lines in shared memory or with the left operand in registers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.runtime.device_program import TensorMap
from tests.backends.cuda import attention_simulator, wgmma_simulator
from tests.backends.cuda.fragments import in_order
from tests.backends.cuda.simulator import Here, Meeting, Memory
from tests.backends.cuda.wgmma_simulator import swizzled

Array = NDArray[Any]
_TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
_LINE, _DEPTH = 128, 16
"""Bytes of a line in shared memory; elements along K of one product."""


def run(launches: Sequence[KernelLaunch], memory: Memory) -> None:
    """Runs launches that may hold such products."""
    wgmma_simulator.run_with(_names, launches, memory)


def _names(maps: Mapping[int, TensorMap], memory: Memory, here: Here) -> Mapping[str, Any]:
    products: dict[str, Any] = {}
    for n, (name, dtype) in itertools.product((64, 128), _TYPES.items()):
        products[f"wgmma_{n}_{name}"] = _of_shared(here, n, dtype, along_k)
        products[f"wgmma_{n}_{name}_11"] = _of_shared(here, n, dtype, along_n)
        products[f"wgmma_of_ready_{n}_{name}"] = _of_registers(here, n, dtype)
        products |= {f"wgmma_{step}_{n}": lambda held: held for step in ("start", "older", "result", "ready")}
    return {
        **attention_simulator.names(memory, here),
        **products,
        **wgmma_simulator.REGISTERS,
        **dict.fromkeys(("wgmma_commit", "fence_async_proxy", "fence_barrier_init"), lambda: None),
        "store_matrix_x4": lambda address, *values: wgmma_simulator.store_matrices(here, address, *values),
        **wgmma_simulator.copies(maps, memory, here),
    }


# Operands in shared memory, [lines along M or N, 16 along K]


def along_k(words: Mapping[int, int], descriptor: int, lines: int, dtype: Any) -> Array:
    """32 bytes of each line."""
    start = _start(descriptor)
    return _halves([_bytes(words, start + line * _LINE, 32) for line in range(lines)], dtype)


def along_n(words: Mapping[int, int], descriptor: int, lines: int, dtype: Any) -> Array:
    """16 lines of each panel of 64 elements along N."""
    start, leading = _start(descriptor), (descriptor >> 16 & 0x3FFF) << 4
    panels = [
        _halves([_bytes(words, start + panel * leading + k * _LINE, _LINE) for k in range(_DEPTH)], dtype)
        for panel in range(lines // 64)
    ]
    return np.concatenate(panels, axis=1).T


def _start(descriptor: int) -> int:
    assert descriptor >> 62 == 1 and descriptor >> 32 & 0x3FFF == 1024 >> 4, "no 128-byte swizzle"
    return (descriptor & 0x3FFF) << 4


def _bytes(words: Mapping[int, int], start: int, count: int) -> list[int]:
    return [words[swizzled(start + byte)] for byte in range(0, count, 4)]


def _halves(words: Sequence[Sequence[int]], dtype: Any) -> Array:
    return np.array(words, np.uint32).view(dtype).astype(np.float64)


# Products


@cache
def _places(n: int) -> tuple[Array, Array]:
    """Row and column of each sum that the threads of a warpgroup hold, [threads, sums of a thread]."""
    number, index = np.arange(128)[:, None], np.arange(n // 2)
    rows = number // 32 * 16 + number % 32 // 4 + 8 * (index % 4 // 2)
    columns = index // 4 * 8 + number % 4 * 2 + index % 2
    return rows, columns


def _of_shared(here: Here, n: int, dtype: Any, lies: Callable[..., Array]) -> Callable[..., Meeting]:
    def multiply(sums: Sequence[Any], a: int, b: int, keep: int) -> Meeting:
        words = here.thread.shared.words

        def of_group(brought: Mapping[int, Any]) -> Array:
            tile = lies(words, a, 64, dtype) @ lies(words, b, n, dtype).T
            return _added(in_order(brought), tile, n)

        return _met(here, sums if keep else (0.0,) * len(sums), of_group)

    return multiply


def _of_registers(here: Here, n: int, dtype: Any) -> Callable[..., Meeting]:
    def multiply(sums: Sequence[Any], w0: int, w1: int, w2: int, w3: int, b: int) -> Meeting:
        words = here.thread.shared.words

        def of_group(brought: Mapping[int, Any]) -> Array:
            before, left = zip(*in_order(brought), strict=True)
            return _added(before, _left(left, dtype) @ along_n(words, b, n, dtype).T, n)

        return _met(here, (sums, (w0, w1, w2, w3)), of_group)

    return multiply


def _met(here: Here, brought: Any, of_group: Callable[[Mapping[int, Any]], Array]) -> Meeting:
    """The threads of a warpgroup, each of which is told its own sums."""
    thread, first = here.thread, here.thread.number // 128 * 128
    own = thread.number - first
    return Meeting(thread.block[first : first + 128], brought, lambda found: tuple(found[own]), of_group)


def _added(sums: Sequence[Sequence[Any]], tile: Array, n: int) -> Array:
    """The sums of each thread with its part of a tile [64, n]."""
    return (np.array(sums, np.float64) + tile[_places(n)]).astype(np.float32)


def _left(words: Sequence[Sequence[int]], dtype: Any) -> Array:
    """The left operand [64, 16] of what 128 threads hold: pairs of two rows, then those 8 further along K."""
    pairs = np.array(words, np.uint32).view(dtype).astype(np.float64).reshape(128, 4, 2)
    number = np.arange(128)[:, None]
    rows = number // 32 * 16 + number % 32 // 4 + np.array([0, 8, 0, 8])
    depths = number % 4 * 2 + np.array([0, 0, 8, 8])
    left = np.empty((64, _DEPTH))
    for each in range(2):
        left[rows, depths + each] = pairs[:, :, each]
    return left
