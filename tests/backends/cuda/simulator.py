"""Runs the text of a kernel on the CPU: a generator for each GPU thread, NumPy scalars for registers.

What generated kernels compute is tested without a GPU this way. Every access is checked: inside its buffer, aligned,
read only where something was written. Barriers and shuffles are where a thread gives way until all that take part have
come; between them they run one after the other, in an order drawn anew each time.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import CodeType, SimpleNamespace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.runtime.device_program import Table
from aicf.semantics.random import philox_word

_SPACE = 40
_ARRAY = 20
_WORDS = {
    **{"f32": "<f4", "f64": "<f8", "u8": "<u1", "u16": "<u2", "u32": "<u4", "u64": "<u8"},
    **{"i8": "<i1", "i16": "<i2", "i32": "<i4", "i64": "<i8"},
}
_DTYPES = {kind: np.dtype(name) for kind, name in _WORDS.items()}


def _integer(bits: int, signed: bool) -> Callable[[Any], int]:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def convert(value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value  # nearly always, and simulated threads do it most of their time
        low = int(value) & ((1 << bits) - 1)
        return low - (1 << bits) if signed and low >> (bits - 1) else low

    return convert


INTEGERS = {f"{sign}{bits}": _integer(bits, sign == "i") for sign in "iu" for bits in (8, 16, 32, 64)}


class Memory:
    """The buffers of a program, by the index that addresses name; unwritten bytes are known."""

    def __init__(self, sizes: Sequence[int]):
        self.buffers = [np.full(size, 0xA5, np.uint8) for size in sizes]
        self.written = [np.zeros(size, np.bool_) for size in sizes]

    def fill(self, base: int, values: np.ndarray) -> None:
        """Puts a whole buffer."""
        raw = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
        self.buffers[base][: raw.size] = raw
        self.written[base][: raw.size] = True

    def _resolve(self, address: int, size: int, alignment: int) -> tuple[int, slice]:
        base, offset = (address >> _SPACE) - 1, address & ((1 << _SPACE) - 1)
        assert 0 <= base < len(self.buffers) and offset + size <= self.buffers[base].size, (
            "outside of its buffer"
        )
        assert offset % alignment == 0, f"{size} bytes at {offset} are not aligned"
        return base, slice(offset, offset + size)

    def _read(self, address: int, size: int, alignment: int) -> np.ndarray:
        base, offset = self._resolve(address, size, alignment)
        assert b"\0" not in self.written[base][offset].tobytes(), "read before anything was written"
        return self.buffers[base][offset]

    def load(self, address: int, kind: str, count: int) -> Any:
        """One word or a tuple of them."""
        dtype = _DTYPES[kind]
        size = dtype.itemsize * count
        values = self._read(address, size, size).view(dtype)
        if count == 1:
            return values[0] if kind[0] == "f" else int(values[0])
        return tuple(values if kind[0] == "f" else values.tolist())

    def load_bytes(self, address: int, count: int) -> bytes:
        """Bytes at any address."""
        return self._read(address, count, 1).tobytes() if count else b""

    def store(self, address: int, kind: str, values: Sequence[Any]) -> None:
        """One word or several."""
        dtype = _DTYPES[kind]
        size = dtype.itemsize * len(values)
        base, offset = self._resolve(address, size, size)
        if dtype.kind in "iu":
            values = [INTEGERS[kind](value) for value in values]
        self.buffers[base][offset] = np.array(values, dtype).view(np.uint8)
        self.written[base][offset] = True


class Meeting(NamedTuple):
    """Where a thread waits for others.

    Args:
        threads: All that come, by their numbers in the cluster.
        value: What this one brings.
        answer: What it is told, given what `work` gives.
        work: What all of them need, given what they bring by their numbers in the block: worked out once, by the
            last that comes.
    """

    threads: range
    value: Any = None
    answer: Callable[[Any], Any] = lambda found: None
    work: Callable[[Mapping[int, Any]], Any] = lambda brought: brought


@dataclass(frozen=True)
class Wait:
    """Where a thread waits by itself until `ready`."""

    ready: Callable[[], bool]


BYTE_TYPES: dict[str, Any] = {
    **{"i8": np.int8, "u8": np.uint8},
    **{"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2},
}
"""Types of 8 bits that tensor cores multiply."""
BYTE_PAIRS = [(a, b) for a, b in itertools.product(BYTE_TYPES, repeat=2) if a[0] == b[0] or "f" not in a + b]
"""Those of A and B that go together."""

_MEETINGS = {
    *("syncthreads", "syncwarp", "cluster_wait", "barrier_wait", "named_barrier"),
    *("shfl_xor_sync", "shfl_up_sync", "shfl_sync", "ballot_sync", "match_any_sync"),
    *("load_matrix_x4", "load_matrix_x4_transposed", "load_matrices", "load_matrices_transposed", "product"),
    *("mma_f16", "mma_bf16", "mma_tile_f16", "mma_tile_bf16", "mma_tile_tf32"),
    *(f"wgmma_{n}_{a}_{b}" for n in (64, 128, 192, 256) for a, b in BYTE_PAIRS),
    *(
        f"wgmma_{n}_{halves}_{across}"
        for n in (64, 128, 192, 256)
        for halves in ("f16", "bf16")
        for across in ("01", "11")
    ),
    *(
        f"wgmma_{name}"
        for n in (64, 128)
        for dtype in ("f16", "bf16")
        for name in (f"{n}_{dtype}", f"{n}_{dtype}_11", f"of_ready_{n}_{dtype}")
    ),
    "store_matrix_x4",
    *(f"mma_tile_{a}_{b}" for a, b in BYTE_PAIRS),
}
"""Calls that give a meeting."""


_CALL = re.compile(r"(?<![\w.])(?<!def )(?:\w+\.)*(\w+)\(")
_PARENTHESIS = re.compile(r"[()]")
_ALSO_A_GENERATOR = "\n    if False:\n        yield\n"
"""The end of a function, which may come to no meeting."""


def _giving_way(text: str) -> str:
    """`x = cuda.shfl_sync(...)` becomes `x = (yield cuda.shfl_sync(...))`. A syntax tree takes three times as long."""
    added: list[tuple[int, str]] = []
    for call in _CALL.finditer(text):
        if call[1] in _MEETINGS:
            added += [(call.start(), "(yield "), (_end_of_call(text, call.end()), ")")]
    pieces, done = list[str](), 0
    for at, piece in sorted(added):
        pieces += [text[done:at], piece]
        done = at
    return "".join((*pieces, text[done:]))


def _end_of_call(text: str, at: int) -> int:
    """Where a call ends whose arguments start at `at`."""
    depth = 1
    for found in _PARENTHESIS.finditer(text, at):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return found.end()
    raise AssertionError("a call does not end")


def _function(text: str, name: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """The one function of a text, as a generator of the meetings that a thread comes to."""
    code, function = _generator(text, name)
    exec(code, namespace)
    return namespace[function]


@cache
def _generator(text: str, name: str) -> tuple[CodeType, str]:
    """What defines it, and its name."""
    (function,) = re.findall(r"^def (\w+)", text, re.MULTILINE)
    return compile(_giving_way(text).rstrip() + _ALSO_A_GENERATOR, name, "exec"), function


@dataclass
class _Shared:
    """The shared memory of a block: arrays in the order in which a thread comes to them, and words by address."""

    arrays: dict[int, list[Any]] = field(default_factory=dict)
    words: dict[int, int] = field(default_factory=dict)


@dataclass
class _Thread:
    """A thread of a block, of `threads`, of a cluster; `arrays` numbers those that it comes to."""

    number: int
    threads: int
    shared: _Shared
    rank: int = 0
    block_index: tuple[int, int, int] = (0, 0, 0)
    arrays: Iterator[int] = field(default_factory=itertools.count)
    cluster: Sequence[_Shared] = ()

    @cached_property
    def block(self) -> range:
        """The threads of its block, by their numbers in the cluster."""
        return range(self.rank * self.threads, (self.rank + 1) * self.threads)

    @cached_property
    def warp(self) -> range:
        """Those of its warp."""
        first = self.number // 32 * 32
        return self.block[first : first + 32]


class Here:
    """The thread that runs, and the blocks of its launch."""

    thread: _Thread
    grid: tuple[int, int, int] = (1, 1, 1)


def _run_threads(
    threads: Sequence[_Thread], start: Callable[[_Thread], Generator[Meeting | Wait, Any, None]], here: Here
) -> None:
    """Runs threads to their ends; each stands at its place in the list. Those that have met go on before others start:
    a warp is as far ahead of the next one as it can be."""
    order, code = random.Random(len(threads)), [start(thread) for thread in threads]
    told, waiting = dict[int, Any](), defaultdict[range, dict[int, Meeting]](dict)
    alone = dict[int, Wait]()
    warps = list(dict.fromkeys(thread.warp for thread in threads))
    ready = [own for warp in order.sample(warps, len(warps)) for own in order.sample(warp, len(warp))]
    while ready or any(wait.ready() for wait in alone.values()):
        if not ready:
            ready = [each for each, wait in alone.items() if wait.ready()]
            alone = {each: wait for each, wait in alone.items() if each not in ready}
        own = ready.pop()
        here.thread = threads[own]
        try:
            meeting = code[own].send(told.pop(own, None))
        except StopIteration:
            continue
        if isinstance(meeting, Wait):
            alone[own] = meeting
            continue
        met = waiting[meeting.threads]
        met[own] = meeting
        if len(met) == len(meeting.threads):
            brought = {threads[each].number: other.value for each, other in met.items()}
            found = meeting.work(brought)
            told |= {each: other.answer(found) for each, other in met.items()}
            ready += order.sample(list(met), len(met))
            del waiting[meeting.threads]
    late = [*alone, *(own for met in waiting.values() for own in met)]
    assert not late, f"threads {sorted(late)} wait for others that never come"


def run(
    launches: Sequence[KernelLaunch],
    memory: Memory,
    more: Callable[[Memory, Here], Mapping[str, Any]] = lambda memory, here: {},
) -> None:
    """Runs the launches one after the other, and their blocks; `more` is what their code may use besides."""
    for launch in launches:
        here = Here()
        here.grid = launch.grid
        namespace = {**_namespace(memory, here), **more(memory, here)}
        function = _function(launch.code.source, launch.code.name, namespace)
        arguments = [_argument(each, memory) for each in launch.arguments]
        for blocks in _clusters(launch):
            threads = _threads(blocks, launch.block[0])
            with np.errstate(all="ignore"):
                _run_threads(threads, lambda _: function(*arguments), here)  # noqa: B023
            if "cuda.shared.array(0," in launch.code.source:  # else the compiler knows how much there is
                last = max((max(thread.shared.words, default=-1) for thread in threads), default=-1)
                assert last < launch.shared_bytes, "a block stores past the end of its shared memory"


def _clusters(launch: KernelLaunch) -> Iterator[list[tuple[int, int, int]]]:
    """The indices of the blocks of each cluster, in the order of their ranks."""
    axes = [
        [range(start, start + size) for start in range(0, blocks, size)]
        for blocks, size in zip(launch.grid, launch.cluster, strict=True)
    ]
    for z, y, x in itertools.product(*reversed(axes)):
        yield [(i, j, k) for k, j, i in itertools.product(z, y, x)]


def _threads(blocks: Sequence[tuple[int, int, int]], size: int) -> list[_Thread]:
    """Those of a cluster."""
    shared = [_Shared() for _ in blocks]
    return [
        _Thread(number, size, shared[rank], rank, index, cluster=shared)
        for rank, index in enumerate(blocks)
        for number in range(size)
    ]


def _argument(argument: Any, memory: Memory) -> int:
    """What a kernel is given: an address, of memory of its own for a table."""
    if not isinstance(argument, Table):
        return ((argument.base + 1) << _SPACE) + argument.offset
    words = [*argument.numbers, *(_argument(address, memory) for address in argument.addresses)]
    memory.buffers.append(np.array(words, np.uint64).view(np.uint8))
    memory.written.append(np.ones(8 * len(words), np.bool_))
    return len(memory.buffers) << _SPACE


def run_cluster(
    text: str, blocks: int, threads: int, arguments: Callable[[int, int], Sequence[Any]], **names: Any
) -> None:
    """Runs the function `text` in every thread of a cluster.

    Args:
        arguments: From the rank of a block and the number of a thread to what that thread is given.
        names: What the text may use besides registers, shuffles and the exchange between blocks.
    """
    here = Here()
    namespace = {**_namespace(Memory(()), here), **_cluster_names(here, blocks * threads, blocks), **names}
    function = _function(text, "cluster", namespace)
    shared = [_Shared() for _ in range(blocks)]
    thread_ids = itertools.product(range(blocks), range(threads))
    every = [_Thread(number, threads, shared[rank], rank) for rank, number in thread_ids]
    with np.errstate(all="ignore"):
        _run_threads(every, lambda thread: function(*arguments(thread.rank, thread.number)), here)


def _cluster_names(here: Here, threads: int, blocks: int) -> dict[str, Any]:
    """Shared memory of a cluster in words of f32: own addresses are plain, those of other blocks say the rank."""
    shared: list[dict[int, Any]] = [{} for _ in range(blocks)]

    def store(address: int, *values: Any) -> None:
        rank, offset = divmod(address, 1 << _SPACE)
        assert 1 <= rank <= blocks and offset % 8 == 0, "no address of another block"
        for number, value in enumerate(values):
            shared[rank - 1][offset + 4 * number] = value

    def load(address: int) -> tuple[Any, ...]:
        assert address % 16 == 0, "16 bytes are not aligned"
        # Only what a block of the row has told may be used: the rest of a vector is NaN.
        return tuple(
            shared[here.thread.rank].get(address + 4 * number, np.float32("nan")) for number in range(4)
        )

    return {
        "map_shared": lambda address, rank: address + ((rank + 1) << _SPACE),
        "store_cluster_f32x2": store,
        "load_shared_f32x4": load,
        "cluster_arrive": lambda: None,
        "cluster_wait": lambda: Meeting(range(threads)),
    }


def _array_names(here: Here) -> dict[str, Any]:
    """Shared arrays of the blocks of a cluster: an address says which array, of which block, and where in it. A
    barrier is where the whole cluster meets, when its block has been told as many bytes as it expects."""

    def base(array: list[Any]) -> int:
        arrays = here.thread.shared.arrays
        return next(number for number, other in arrays.items() if other is array) << _ARRAY

    def store(size: int) -> Callable[[int, Any, int], None]:
        def to_other(address: int, value: Any, barrier: int) -> None:
            rank, byte = divmod(address, 1 << _SPACE)
            number, offset = divmod(byte, 1 << _ARRAY)
            other = here.thread.cluster[rank - 1]
            own = here.thread.shared.arrays[number]
            assert offset % size == 0, f"{size} bytes at {offset} are not aligned"
            other.arrays.setdefault(number, [None] * len(own))[offset // size] = value
            expected = divmod(barrier, 1 << _SPACE)
            assert expected[0] == rank, "the barrier of another block"
            other.words[expected[1]] -= size

        return to_other

    def wait(barrier: int, parity: int) -> Meeting:
        shared = here.thread.shared

        def check(brought: Mapping[int, Any]) -> None:
            assert shared.words[barrier] == 0, "a block has been told too little or too much"

        return Meeting(range(len(here.thread.cluster) * here.thread.threads), None, check)

    return {
        "shared_base": base,
        "map_shared": lambda address, rank: address + ((rank + 1) << _SPACE),
        "barrier_init": lambda barrier, count: here.thread.shared.words.update({barrier: 0}),
        "barrier_expect": lambda barrier, size: here.thread.shared.words.update({barrier: size}),
        "barrier_wait": wait,
        **dict.fromkeys(("cluster_arrive_relaxed", "fence_barrier_init"), lambda: None),
        "cluster_wait": lambda: Meeting(range(len(here.thread.cluster) * here.thread.threads)),
        **{f"store_async_{kind}": store(int(kind[1:]) // 8) for kind in ("f32", "f64", "i32", "i64")},
    }


def _product_names(memory: Memory, here: Here) -> dict[str, Any]:
    """What a product of integers in tiles takes beside the rest: dynamic shared memory in words of i32, by address."""
    i32 = INTEGERS["i32"]

    def widen(kind: str) -> Callable[..., None]:
        def rows(
            target: int, source: int, left: int, size: int, count: int, to: int, along: int, step: int
        ) -> None:
            for i in range(count):
                inside = size > 0 and i * step < left
                here.thread.shared.words[target + i * to] = (
                    memory.load(source + i * along, kind, 1) if inside else 0
                )

        return rows

    def load(address: int, groups: int, step: int) -> tuple[int, ...]:
        words = (address + group * step + 4 * i for group in range(groups) for i in range(4))
        return tuple(here.thread.shared.words[own] for own in words)

    def store(address: int, sums: Sequence[int], columns: int, row_bytes: int) -> None:
        for number, value in enumerate(sums):
            row, column = divmod(number, columns)
            own = (row // 4 * 16 + row % 4) * row_bytes + (column // 4 * 32 + column % 4) * 4
            here.thread.shared.words[address + own] = value

    def multiply_add(sums: Sequence[int], a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
        return tuple(i32(total + x * y) for total, (x, y) in zip(sums, itertools.product(a, b), strict=True))

    return {
        "quotient": lambda a, b: a // b,
        "remainder": lambda a, b: a % b,
        "zeros_i32": lambda count: (0,) * count,
        "load_groups_i32": load,
        "store_groups_i32": store,
        "multiply_add": multiply_add,
        "commit_copies": lambda: None,
        "wait_copies": lambda pending: None,
        **{f"widen_rows_{kind}": widen(kind) for kind in ("i16", "i8", "u8")},
    }


def _shuffle(here: Here, value: Any, source: int) -> Meeting:
    """What the thread `source` of the block, one of the same warp, gives at the same time."""
    return Meeting(here.thread.warp, value, lambda brought: brought[source])


def _ballot(here: Here, vote: bool) -> Meeting:
    """The lanes of the warp that vote for it, as bits."""

    def votes(brought: Mapping[int, Any]) -> int:
        return sum(1 << number % 32 for number, v in brought.items() if v)

    return Meeting(here.thread.warp, bool(vote), lambda found: found, votes)


def _match(here: Here, value: int) -> Meeting:
    """The lanes of the warp that give the same value at the same time."""
    return Meeting(
        here.thread.warp,
        value,
        lambda brought: sum(1 << number % 32 for number, v in brought.items() if v == value),
    )


def _add(array: list[Any], offset: int, value: int) -> int:
    old = array[offset]
    array[offset] = old + value
    return old


def _atomic_max(memory: Memory, address: int, value: int) -> None:
    memory.store(address, "i32", [max(memory.load(address, "i32", 1), value)])


def _take_ticket(memory: Memory, address: int, last: int) -> int:
    ticket = memory.load(address, "u32", 1)
    memory.store(address, "u32", [0 if ticket >= last else ticket + 1])
    return ticket


def _shared_array(here: Here, size: int) -> list[Any]:
    return here.thread.shared.arrays.setdefault(next(here.thread.arrays), [None] * size)


def _philox(counter: int, key: int) -> list[int]:
    """The four words of a counter of 64 bits."""
    seed, offset = (np.array([INTEGERS["i64"](value)]) for value in (key, counter))
    return [int(word) for word in philox_word(seed, offset, np.arange(4))]


@cache
def _widened(dtype: Any) -> np.ndarray:
    """The f32 number of each word of a type of 16 bits."""
    return np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)


def _rcp_approx(x: Any) -> Any:
    """As far off as PTX allows; of zeros, infinities and NaN it is exact."""
    exact = np.float32(1) / np.float32(x)
    return np.nextafter(exact, np.float32(0)) if np.isfinite(exact) else exact


def _half(dtype: Any) -> dict[str, Callable[..., Any]]:
    name = "f16" if dtype is np.float16 else "bf16"

    def narrow(x: Any) -> int:
        return int(np.array(x, np.float32).astype(dtype).view(np.uint16))

    wide = _widened(dtype)

    def widen(word: int) -> Any:
        return wide[word]

    def unpack(word: int) -> tuple[Any, Any]:
        return widen(word & 0xFFFF), widen(word >> 16)

    def pack(low: Any, high: Any) -> int:
        return int(np.array((low, high), np.float32).astype(dtype).view(np.uint32)[0])

    return {
        f"f32_to_{name}": narrow,
        f"{name}_to_f32": widen,
        f"pack_{name}": pack,
        f"unpack_{name}": unpack,
        f"max_nan_{name}x2": lambda a, b: pack(*map(np.maximum, unpack(a), unpack(b))),
    }


def _float8(name: str, dtype: Any) -> dict[str, Callable[..., Any]]:
    def narrow(x: Any) -> int:
        return int(np.array(x, np.float32).astype(dtype).view(np.uint8))

    def widen(word: int) -> Any:
        return np.array(word & 0xFF, np.uint8).view(dtype).astype(np.float32)[()]

    return {
        f"f32_to_{name}": narrow,
        f"{name}_to_f32": widen,
        f"pack_{name}": lambda low, high: narrow(low) | narrow(high) << 8,
        f"unpack_{name}": lambda word: (widen(word), widen(word >> 8)),
    }


_FUNCTIONS = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "atan": np.arctan,
    "pow": np.power,
    "fabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
    "fmin": np.fmin,
    "fmax": np.fmax,
}
"""Functions of libdevice by their f64 names, whose f32 ones have an f more."""


def _namespace(memory: Memory, here: Here) -> dict[str, Any]:
    f32, f64 = np.float32, np.float64

    def to_int(x: Any, bits: int) -> int:
        """Truncates and saturates; NaN gives 0."""
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        return 0 if x != x else low if x < low else high if x > high else int(x)

    def toward_zero(x: Any) -> Any:
        near = f32(x)
        return np.nextafter(near, f32(0)) if abs(f64(near)) > abs(x) else near

    libdevice = SimpleNamespace(
        **{f"{name}{suffix}": function for name, function in _FUNCTIONS.items() for suffix in ("", "f")},
        fsqrt_rn=np.sqrt,
        rsqrtf=lambda x: f32(1) / np.sqrt(x),
        rsqrt=lambda x: f64(1) / np.sqrt(x),
        erff=lambda x: f32(math.erf(x)),
        erf=lambda x: f64(math.erf(x)),
        dsqrt_rn=np.sqrt,
        float2int_rz=lambda x: to_int(x, 32),
        float2ll_rz=lambda x: to_int(x, 64),
        double2int_rz=lambda x: to_int(x, 32),
        double2ll_rz=lambda x: to_int(x, 64),
        double2float_rz=toward_zero,
        float_as_int=lambda x: int(np.array(x, f32).view(np.int32)),
        double_as_longlong=lambda x: int(np.array(x, f64).view(np.int64)),
        **{f"{kind}mul_rn": lambda a, b: a * b for kind in "fd"},
        **{f"{kind}div_rn": lambda a, b: a / b for kind in "fd"},
        int_as_float=lambda bits: np.array(bits, np.int32).view(f32)[()],
        longlong_as_double=lambda bits: np.array(bits, np.int64).view(f64)[()],
    )

    class Index:
        def __init__(self, read: Callable[[], tuple[int, int, int]]):
            self.read = read

        x = property(lambda self: self.read()[0])
        y = property(lambda self: self.read()[1])
        z = property(lambda self: self.read()[2])

    cuda = SimpleNamespace(
        threadIdx=Index(lambda: (here.thread.number, 0, 0)),
        blockIdx=Index(lambda: here.thread.block_index),
        gridDim=Index(lambda: here.grid),
        syncthreads=lambda: Meeting(here.thread.block),
        syncwarp=lambda: Meeting(here.thread.warp),
        shfl_xor_sync=lambda mask, value, step: _shuffle(here, value, here.thread.number ^ step),
        shfl_up_sync=lambda mask, value, step: _shuffle(
            here, value, here.thread.number - (step if here.thread.number % 32 >= step else 0)
        ),
        shfl_sync=lambda mask, value, lane: _shuffle(here, value, here.thread.number // 32 * 32 + lane),
        ballot_sync=lambda mask, vote: _ballot(here, vote),
        match_any_sync=lambda mask, value: _match(here, value),
        popc=lambda bits: int(bits).bit_count(),
        ffs=lambda bits: (int(bits) & -int(bits)).bit_length(),
        atomic=SimpleNamespace(add=_add),
        shared=SimpleNamespace(array=lambda size, dtype: _shared_array(here, size)),
        selp=lambda condition, a, b: a if condition else b,
        fma=lambda a, b, c: type(a)(float(a) * float(b) + float(c)),
        libdevice=libdevice,
    )
    names: dict[str, Any] = {
        "cuda": cuda,
        "f32": f32,
        "f64": f64,
        **INTEGERS,
        "take_ticket": lambda address, last: _take_ticket(memory, address, last),
        "atomic_max_i32": lambda address, value: _atomic_max(memory, address, value),
        "philox": _philox,
        "philox_word": lambda number, words: words[int(number)],
        "erf_absolute": lambda x: f32(math.erf(x)),
        "rcp_approx": _rcp_approx,
        "bits_to_f32": lambda word: np.uint32(word).view(f32),
        "f32_to_bits": lambda number: INTEGERS["u32"](int(f32(number).view(np.uint32))),
        "max_nan": np.maximum,
        "min_nan": np.minimum,
        "ALL_LANES": 0xFFFFFFFF,
        "wait_for_predecessors": lambda: None,
        "prefetch_l2": lambda address, count: memory.load(address, "u32", int(count) // 4) and None,
        "launch_dependents": lambda: None,
        "poll_u64": lambda address: memory.load(address, "u64", 1),
        "publish_u64": lambda address, value: memory.store(address, "u64", [value]),
        **_half(np.float16),
        **_half(ml_dtypes.bfloat16),
        **_float8("f8E4M3FN", ml_dtypes.float8_e4m3fn),
        **_float8("f8E5M2", ml_dtypes.float8_e5m2),
        **_product_names(memory, here),
        **_array_names(here),
    }
    for kind, count in itertools.product(_WORDS, (1, 2, 4)):
        suffix = kind if count == 1 else f"{kind}x{count}"
        names[f"load_{suffix}"] = lambda address, k=kind, n=count: memory.load(address, k, n)
        names[f"store_{suffix}"] = lambda address, *values, k=kind: memory.store(address, k, values)
    for suffix in ("u32", "u32x2", "u32x4"):
        names[f"stream_{suffix}"] = names[f"load_{suffix}"]
    return names
