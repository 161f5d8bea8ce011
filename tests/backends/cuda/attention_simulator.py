"""What attention kernels take beside the rest of the simulated GPU: dynamic shared memory, and products of a warp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from aicf.backends.cuda.compiler.launches import KernelLaunch
from tests.backends.cuda import simulator
from tests.backends.cuda.simulator import Here, Meeting, Memory

Array = NDArray[Any]
_RANK = 24
"""A shared address of another block of the cluster has its rank, from 1 on, from this bit on."""
_NAN = 0x7FC07FC0
"""Of f32, and twice of bf16."""
_TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def run_attention(launch: KernelLaunch, ins: Sequence[Array], out: Array) -> Array:
    """The result of a launch of which operand i is buffer i and the result the next one, of the type of `out`."""
    memory = Memory([*(each.nbytes for each in ins), out.nbytes])
    for base, each in enumerate(ins):
        memory.fill(base, each)
    simulator.run([launch], memory, names)
    assert memory.written[-1].all()
    return memory.buffers[-1].view(out.dtype).reshape(out.shape)


ARITHMETIC: Mapping[str, Any] = {
    "INFINITY": np.float32("inf"),
    "NEGATIVE_INFINITY": np.float32("-inf"),
    "larger": lambda a, b: np.fmax(np.float32(a), np.float32(b)),
    "exp2_approx": lambda x: np.exp2(np.float32(x)),
    "rcp_approx": lambda x: np.float32(1) / np.float32(x),
}


def names(memory: Memory, here: Here) -> Mapping[str, Any]:
    """Arithmetic, shared memory by address, and what the lanes of a warp do together."""
    return {**ARITHMETIC, **_shared_names(memory, here), **_lane_names(here)}


def _words(here: Here, address: int) -> tuple[dict[int, int], int]:
    """Shared memory in words of 32 bits, and the place of one."""
    rank, offset = divmod(int(address), 1 << _RANK)
    assert offset % 4 == 0, "4 bytes are not aligned"
    thread = here.thread
    return (thread.cluster[rank - 1] if rank else thread.shared).words, offset


def _bits(value: Any) -> int:
    return int(np.array(value, np.float32).view(np.uint32))


def _float(word: int) -> Any:
    return np.array(word, np.uint32).view(np.float32)[()]


def _shared_names(memory: Memory, here: Here) -> dict[str, Any]:
    def store(convert: Callable[[Any], int]) -> Callable[..., None]:
        def words(address: int, *values: Any) -> None:
            target, offset = _words(here, address)
            for number, value in enumerate(values):
                target[offset + 4 * number] = convert(value)

        return words

    def load(convert: Callable[[int], Any], count: int) -> Callable[[int], Any]:
        def words(address: int) -> Any:
            source, offset = _words(here, address)
            assert offset % (4 * count) == 0, f"{4 * count} bytes are not aligned"
            # What nothing was written to may be read, but not used: it is NaN.
            found = tuple(convert(source.get(offset + 4 * number, _NAN)) for number in range(count))
            return found if count > 1 else found[0]

        return words

    def copy(to: int, source: int, size: int = 16) -> None:
        store(int)(to, *(memory.load(source, "u32", 4) if size else (0, 0, 0, 0)))

    def load_or_zero(address: int, there: int) -> Any:
        return memory.load(address, "u32", 4) if there else (0, 0, 0, 0)

    f32, u32 = _bits, int
    return {
        "shared_base": lambda array: 0,
        "map_shared": lambda address, rank: address + ((rank + 1) << _RANK),
        "store_shared_f32": store(f32),
        "store_shared_f32x2": store(f32),
        "store_cluster_f32x2": store(f32),
        "store_shared_u32": store(u32),
        "load_shared_f32": load(_float, 1),
        "load_shared_f32x2": load(_float, 2),
        "load_shared_f32x4": load(_float, 4),
        "load_shared_u32x4": load(int, 4),
        "load_u32x4_or_zero": load_or_zero,
        "copy_async16": copy,
        "copy_async16_or_zero": copy,
        "wait_copies_0": lambda: None,
        "wait_copies_1": lambda: None,
        "cluster_arrive": lambda: None,
        "cluster_wait": lambda: Meeting(range(len(here.thread.cluster) * here.thread.threads)),
    }


def _lane_names(here: Here) -> dict[str, Any]:
    """Matrices of 8 x 8 halves, and their products (mma.sync.m16n8k16), by the lanes that hold their elements."""

    def matrices(transposed: bool) -> Callable[[int], Meeting]:
        def load(address: int) -> Meeting:
            words, _ = _words(here, 0)
            lane = here.thread.number % 32

            def answer(brought: Mapping[int, int]) -> tuple[int, ...]:
                rows = [brought[number] for number in sorted(brought)]
                return tuple(pair(words, rows[8 * each : 8 * each + 8], lane) for each in range(4))

            return Meeting(here.thread.warp, address, answer)

        def pair(words: Mapping[int, int], rows: Sequence[int], lane: int) -> int:
            if not transposed:
                return words[rows[lane // 4] + 4 * (lane % 4)]
            column, first = lane // 4, 2 * (lane % 4)
            low, high = (
                words[rows[row] + column // 2 * 4] >> 16 * (column % 2) & 0xFFFF for row in (first, first + 1)
            )
            return low | high << 16

        return load

    def product(dtype: str) -> Callable[..., Meeting]:
        last: tuple[Mapping[int, Any] | None, Array] = None, np.empty(0)

        def of_warp(brought: Mapping[int, Any]) -> Array:
            """The product of what a warp brought, which all of its lanes ask for one after the other."""
            nonlocal last
            if last[0] is not brought:
                a, b = _operands([brought[number][1] for number in sorted(brought)], dtype)
                last = brought, a @ b
            return last[1]

        def multiply(sums: Sequence[Any], *words: int) -> Meeting:
            group, pair = here.thread.number % 32 // 4, 2 * (here.thread.number % 4)

            def answer(brought: Mapping[int, Any]) -> tuple[Any, ...]:
                found = of_warp(brought)
                coordinates = ((group, pair), (group, pair + 1), (group + 8, pair), (group + 8, pair + 1))
                return tuple(
                    np.float32(value + found[at]) for value, at in zip(sums, coordinates, strict=True)
                )

            return Meeting(here.thread.warp, (sums, words), answer)

        return multiply

    return {
        "load_matrix_x4": matrices(False),
        "load_matrix_x4_transposed": matrices(True),
        "mma_f16": product("f16"),
        "mma_bf16": product("bf16"),
    }


_GROUPS, _PAIRS = np.arange(32)[:, None] // 4, np.arange(32)[:, None] % 4 * 2
_ROWS, _COLUMNS = _GROUPS + np.array([0, 8, 0, 8]), _PAIRS + np.array([0, 0, 8, 8])
_DEPTHS = _PAIRS + np.array([0, 8])
"""Where the first of each pair of elements that a lane holds lies in the left operand, and in the right one."""


def _operands(words: Sequence[Sequence[int]], dtype: str) -> tuple[Array, Array]:
    """The left operand [16, 16] and the right one [16, 8] of what the 32 lanes hold."""
    pairs = np.array(words, np.uint32).view(_TYPES[dtype]).astype(np.float64).reshape(32, 6, 2)
    a, b = np.empty((16, 16)), np.empty((16, 8))
    for number in range(2):
        a[_ROWS, _COLUMNS + number] = pairs[:, :4, number]
        b[_DEPTHS + number, _GROUPS] = pairs[:, 4:, number]
    return a, b
