"""What attention kernels take beside the rest of the simulated GPU: dynamic shared memory, and products of a warp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from aicf.backends.cuda.compiler.launches import KernelLaunch
from tests.backends.cuda import simulator
from tests.backends.cuda.fragments import held, in_order, operands, transposed
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
    "larger": lambda a, b: np.float32(b if b > a or a != a else a),  # a number, if there is one
    "exp2_approx": lambda x: np.exp2(np.float32(x)),
}


def names(memory: Memory, here: Here) -> Mapping[str, Any]:
    """Arithmetic, shared memory by address, and what the lanes of a warp do together."""
    return {**ARITHMETIC, **_shared_names(memory, here), **_lane_names(here)}


def shared_words(here: Here, address: int) -> tuple[dict[int, int], int]:
    """Shared memory in words of 32 bits, and the place of one."""
    rank, offset = divmod(int(address), 1 << _RANK)
    assert offset % 4 == 0, "4 bytes are not aligned"
    thread = here.thread
    return (thread.cluster[rank - 1] if rank else thread.shared).words, offset


def bits(values: Sequence[Any], dtype: Any = np.float32) -> list[int]:
    """The words of numbers of a type of 4 or 8 bytes."""
    return np.array(values, dtype).view(np.uint32).tolist()


def numbers(words: Sequence[int], dtype: Any = np.float32) -> tuple[Any, ...]:
    """The numbers of such a type that words are."""
    return tuple(np.array(words, np.uint32).view(dtype))


def _integers(words: Sequence[int]) -> list[int]:
    return [int(word) for word in words]


def _shared_names(memory: Memory, here: Here) -> dict[str, Any]:
    def store(convert: Callable[[Sequence[Any]], Sequence[int]]) -> Callable[..., None]:
        def words(address: int, *values: Any) -> None:
            target, offset = shared_words(here, address)
            for number, word in enumerate(convert(values)):
                target[offset + 4 * number] = word

        return words

    def load(convert: Callable[[Sequence[int]], Sequence[Any]], count: int) -> Callable[[int], Any]:
        def words(address: int) -> Any:
            source, offset = shared_words(here, address)
            assert offset % (4 * count) == 0, f"{4 * count} bytes are not aligned"
            # What nothing was written to may be read, but not used: it is NaN.
            found = convert([source.get(offset + 4 * number, _NAN) for number in range(count)])
            return tuple(found) if count > 1 else found[0]

        return words

    def copy(to: int, source: int, size: int = 16) -> None:
        store(_integers)(to, *(memory.load(source, "u32", 4) if size else (0, 0, 0, 0)))

    def load_or_zero(address: int, there: int) -> Any:
        return memory.load(address, "u32", 4) if there else (0, 0, 0, 0)

    return {
        "shared_base": lambda array: 0,
        "map_shared": lambda address, rank: address + ((rank + 1) << _RANK),
        "store_shared_f32": store(bits),
        "store_shared_f32x2": store(bits),
        "store_cluster_f32x2": store(bits),
        "store_shared_u32": store(_integers),
        "store_shared_u32x4": store(_integers),
        "load_shared_f32": load(numbers, 1),
        "load_shared_f32x2": load(numbers, 2),
        "load_shared_f32x4": load(numbers, 4),
        "load_shared_u32x4": load(_integers, 4),
        "load_u32x4_or_zero": load_or_zero,
        "load_u32x2_or_zero": lambda address, there: memory.load(address, "u32", 2) if there else (0, 0),
        "copy_async16": copy,
        "copy_async16_or_zero": copy,
        "wait_copies_0": lambda: None,
        "wait_copies_1": lambda: None,
        "cluster_arrive": lambda: None,
        "cluster_wait": lambda: Meeting(range(len(here.thread.cluster) * here.thread.threads)),
    }


def _lane_names(here: Here) -> dict[str, Any]:
    """Matrices of 8 x 8 halves, and their products (mma.sync.m16n8k16), by the lanes that hold their elements."""

    def load_matrix(address: int) -> Meeting:
        words, _ = shared_words(here, 0)
        row, column = divmod(here.thread.number % 32, 4)

        def answer(rows: Sequence[int]) -> tuple[int, ...]:
            return tuple(words[rows[8 * each + row] + 4 * column] for each in range(4))

        return Meeting(here.thread.warp, address, answer, in_order)

    def load_transposed(address: int) -> Meeting:
        words, _ = shared_words(here, 0)
        lane = here.thread.number % 32

        def of_warp(brought: Mapping[int, int]) -> list[tuple[int, ...]]:
            return transposed([[words[row + byte] for byte in (0, 4, 8, 12)] for row in in_order(brought)], 1)

        return Meeting(here.thread.warp, address, lambda found: found[lane], of_warp)

    def product(dtype: str) -> Callable[..., Meeting]:
        def of_warp(brought: Mapping[int, Any]) -> Array:
            lanes = in_order(brought)
            a, b = ([words[part] for _, words in lanes] for part in (slice(0, 4), slice(4, 6)))
            left, right = operands(a, b, (_TYPES[dtype],) * 2, np.float64)
            return (np.array([sums for sums, _ in lanes]) + held(left @ right)).astype(np.float32)

        def multiply(sums: Sequence[Any], *words: int) -> Meeting:
            lane = here.thread.number % 32
            return Meeting(here.thread.warp, (sums, words), lambda found: tuple(found[lane]), of_warp)

        return multiply

    return {
        "load_matrix_x4": load_matrix,
        "load_matrix_x4_transposed": load_transposed,
        "mma_f16": product("f16"),
        "mma_bf16": product("bf16"),
    }
