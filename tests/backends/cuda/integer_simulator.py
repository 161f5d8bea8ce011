"""What products of operands of 8 bits on tensor cores take beside the rest of the simulated GPU: sums of i32 or f32,
and copies of any number of bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.dialects.types import element_named
from aicf.runtime.plan_from_ir import code_units, read_module
from tests.backends.cuda import simulator, tile_simulator
from tests.backends.cuda.attention_simulator import shared_words
from tests.backends.cuda.fragments import held, in_order, operands
from tests.backends.cuda.simulator import BYTE_PAIRS, BYTE_TYPES, INTEGERS, Here, Meeting, Memory
from tests.backends.cuda.tile_simulator import copy_piece

Array = NDArray[Any]
_I32 = INTEGERS["i32"]


Run = Callable[[Sequence[KernelLaunch], Memory], None]
"""Runs launches one after the other."""


def run(launches: Sequence[KernelLaunch], memory: Memory) -> None:
    """Runs launches that may hold such products."""
    simulator.run(launches, memory, names)


def simulated(module: ModuleOp, arrays: Mapping[str, Array], run: Run = run) -> dict[str, Array]:
    """The outputs of a final module by name, its `@prepare` run first; every byte of them is written."""
    program, found, derived = read_module(module), dict[str, Array](), dict[str, tuple[Array, Array]]()
    for plan in filter(None, (program.prepare, *program.programs)):
        binds = plan.graph.binds
        memory = Memory([max(16, plan.arena_bytes), *(bind.nbytes for bind in binds)])
        for base, bind in enumerate(binds, 1):
            if bind.value is not None:
                memory.fill(base, np.frombuffer(bytes.fromhex(bind.value), np.uint8))
            elif bind.name in derived:
                memory.buffers[base], memory.written[base] = derived[bind.name]
            elif bind.name in arrays:
                memory.fill(base, arrays[bind.name])
        (unit,) = (unit for unit in code_units(module) if unit.entry == plan.entry)
        for launch in unit.launches:
            made = emitter(launch.kernel)(launch)
            run([each for each in made if isinstance(each, KernelLaunch)], memory)
        for base, bind in enumerate(binds, 1):
            if bind.role == "derived":
                derived[bind.name] = memory.buffers[base], memory.written[base]
            elif bind.role == "output":
                assert memory.written[base].all(), f"all of {bind.name} is written"
                found[bind.name] = (
                    memory.buffers[base].view(element_named(bind.dtype).dtype).reshape(bind.shape)
                )
    return found


def names(memory: Memory, here: Here) -> Mapping[str, Any]:
    """All of it, with what other tiles take."""
    products = {f"mma_tile_{a}_{b}": _product(here, a, b) for a, b in BYTE_PAIRS}
    return {
        **tile_simulator.names(memory, here),
        **products,
        **_sums(here),
        **_copies(memory, here),
        "load_shared_i32x4": lambda address: tuple(map(_I32, _loaded(here, address, 4))),
        "unpack_i8x4": lambda word: tuple(int(each) for each in _bytes(word, np.int8)),
        "unpack_u8x4": lambda word: tuple(int(each) for each in _bytes(word, np.uint8)),
        "load_u8_or_zero": lambda source, there: memory.load(source, "u8", 1) if there else 0,
        "pack_bytes": lambda *values: sum((value & 0xFF) << 8 * i for i, value in enumerate(values)),
    }


def added(sums: Sequence[Sequence[Any]], products: Array) -> Sequence[Sequence[Any]]:
    """Sums of i32 that wrap around, or of f32: [lanes, sums of a lane]."""
    if np.issubdtype(products.dtype, np.floating):
        return list((np.array(sums, np.float64) + products).astype(np.float32))
    return (np.array(sums, np.int64) + products).astype(np.int32).tolist()


def widest(dtype: Any) -> Any:
    """The type in which products of a type are exact."""
    return np.int64 if np.issubdtype(dtype, np.integer) else np.float64


def word_of(value: Any) -> int:
    """The bits of a sum."""
    return int(np.float32(value).view(np.uint32)) if isinstance(value, np.floating) else value & 0xFFFFFFFF


def _bytes(word: int, dtype: Any) -> Array:
    return np.array([word], np.uint32).view(dtype)


def _loaded(here: Here, address: int, count: int) -> list[int]:
    words, place = shared_words(here, address)
    assert place % (4 * count) == 0, f"{4 * count} bytes are not aligned"
    return [words.get(place + 4 * number, 0xA5A5A5A5) for number in range(count)]


def _product(here: Here, a_type: str, b_type: str) -> Callable[..., Meeting]:
    """All products of a warp's tile (mma.sync.m16n8k32), by the lanes that hold their elements."""
    types = (BYTE_TYPES[a_type], BYTE_TYPES[b_type])

    def of_warp(brought: Mapping[int, Any]) -> Sequence[Sequence[Any]]:
        sums, a, b = zip(*in_order(brought), strict=True)
        left, right = operands(a, b, types, widest(types[0]))
        return added(sums, held(left @ right))

    def multiply(sums: Sequence[Any], a: Sequence[int], b: Sequence[int]) -> Meeting:
        lane = here.thread.number % 32
        return Meeting(here.thread.warp, (sums, a, b), lambda found: tuple(found[lane]), of_warp)

    return multiply


def _sums(here: Here) -> dict[str, Any]:
    """Sums of a warp's tile on their way to shared memory, of this block or of others of the cluster."""

    def store(address: int, values: Sequence[int]) -> None:
        words, place = shared_words(here, address)
        for number, value in enumerate(values):
            words[place + 4 * number] = word_of(value)

    def pairs(sums: Sequence[int], wide: int) -> list[tuple[int, int, int, Sequence[int]]]:
        """Of every two neighbours: the tile of 16 rows, that of 8 columns, whether they are of the lower rows."""
        numbers = range(0, len(sums), 2)
        return [
            (each // 4 // wide, each // 4 % wide, each % 4 // 2, sums[each : each + 2]) for each in numbers
        ]

    def store_sums(address: int, sums: Sequence[int], wide: int, step: int) -> None:
        for down, along, lower, two in pairs(sums, wide):
            store(address + (16 * down + 8 * lower) * step + 32 * along, two)

    def push_sums(targets: Sequence[int], sums: Sequence[int], wide: int) -> None:
        for down, along, lower, two in pairs(sums, wide):
            store(targets[2 * down + lower] + 32 * along, two)

    return {"store_sums": store_sums, "push_sums": push_sums}


def _copies(memory: Memory, here: Here) -> dict[str, Any]:
    piece = partial(copy_piece, memory, here)

    def rows(width: int, target: int, source: int, count: int, to: int, along: int) -> None:
        for i in range(count):
            piece(width, target + i * to, source + i * along, width)

    def rows_or_zero(
        width: int, target: int, source: int, left: int, size: int, count: int, to: int, along: int, step: int
    ) -> None:
        for i in range(count):
            piece(width, target + i * to, source + i * along, size if i * step < left else 0)

    def single(width: int) -> Callable[[int, int, int], None]:
        return partial(piece, width)

    return {
        **{f"copy_async{width}_or_zero": single(width) for width in (4, 8, 16)},
        "copy_rows": rows,
        "copy_rows_or_zero": rows_or_zero,
    }
