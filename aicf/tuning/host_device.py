"""Timing cases on the processor of this machine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter_ns

import numpy as np

from aicf.backends.host import processor_name
from aicf.backends.native import NativeCode
from aicf.backends.registry import get_backend, load_native
from aicf.errors import BackendUnavailable
from aicf.runtime.memory import allocate
from aicf.runtime.tensors import Array, address, numpy_dtype
from aicf.runtime.threads import bind_entry
from aicf.tuning.cases import Case, Memory, Setting
from aicf.tuning.measure import Runnable, Samples, Variant

_FLUSH_BYTES = 64 << 20
"""Written between cold runs; more than the caches of a core that count."""
_DEVIATION = 0.1
"""Of random floats."""
_RUNS = 30
_ROUNDS = 5
"""Of two programs that are compared, with their share of the runs each."""
_WARM_NS = 50_000
"""A warm sample is as many runs as take about this long, so that the clock does not count."""


class HostDevice:
    """`Device` of backend `cpu`."""

    driver = ""
    lost = False
    shares_cores = True

    def __init__(self, setting: Setting) -> None:
        self._backend, self._threads = setting.backend, setting.threads
        self._listed = setting.libraries
        self._flush = allocate(_FLUSH_BYTES)
        self._flushes = 0

    @property
    def name(self) -> str:
        """The processor."""
        return processor_name()

    @property
    def libraries(self) -> Mapping[str, str]:
        """Those that the target lists, as they are here."""
        here = get_backend(self._backend).libraries()
        return {name: version for name, version in here.items() if name in self._listed}

    def variants(self, case: Case) -> Sequence[Variant]:
        """See `Device`; no kernel of a processor needs the device to complete its record."""
        raise BackendUnavailable(f"'{case.kernel}' asks the device for {', '.join(case.device_fields)}")

    def time(self, case: Case, native: NativeCode) -> Samples:
        """See `Device`."""
        run = _Run(self._backend, self._threads, case, native)
        return Samples([self._cold_us(run) for _ in range(_RUNS)], run.warm_us(_RUNS))

    def rounds(self, first: Runnable, second: Runnable) -> Iterator[tuple[Samples, Samples]]:
        """See `Device`: run by run in turns."""
        runs = [_Run(self._backend, self._threads, case, variant.native) for case, variant in (first, second)]
        for number in range(_ROUNDS):
            cold: tuple[list[float], list[float]] = ([], [])
            for turn in range(_RUNS // _ROUNDS):
                for which in (0, 1) if (number + turn) % 2 == 0 else (1, 0):
                    cold[which].append(self._cold_us(runs[which]))
            warm = [run.warm_us(_RUNS // _ROUNDS) for run in runs]
            yield Samples(cold[0], warm[0]), Samples(cold[1], warm[1])

    def _cold_us(self, run: _Run) -> float:
        self._flushes += 1
        self._flush.fill(self._flushes % 256)
        return _nanoseconds(run.once) / 1e3


class _Run:
    """A program that is loaded, with its operands."""

    def __init__(self, backend: str, threads: int, case: Case, native: NativeCode) -> None:
        loaded = load_native(backend, native)
        self._kept = [_filled(memory, seed) for seed, memory in enumerate(case.memory)], loaded
        pointers = [address(buffer) for buffer in self._kept[0]]
        pointers += loaded.function_addresses()
        self._table = (ctypes.c_void_p * len(pointers))(*pointers)
        self.once = bind_entry(loaded.entry(case.entry), threads, ctypes.addressof(self._table))

    def warm_us(self, count: int) -> list[float]:
        """Microseconds of so many warm samples."""
        single = median(_nanoseconds(self.once) for _ in range(count))
        repeats = max(1, round(_WARM_NS / max(single, 1)))
        return [_nanoseconds(lambda: _repeat(self.once, repeats)) / repeats / 1e3 for _ in range(count)]


def _filled(memory: Memory, seed: int) -> Array:
    """Memory with random data: what numbers are multiplied changes how long it takes on some machines."""
    buffer = allocate(max(memory.nbytes, 1))
    fill(buffer[: memory.nbytes], memory.dtype, memory.numbers, np.random.default_rng(seed))
    return buffer


def fill(buffer: Array, dtype: str, numbers: int, rng: np.random.Generator) -> None:
    """Normal floats, integers below `numbers`; memory that holds no data (`u8`) stays as it is.

    The floats are small, so that sums of many products stay as large as in a trained model: what is not takes the slow
    path of exponentials and divisions.
    """
    if dtype == "u8":
        return
    element = numpy_dtype(dtype)
    values = buffer[: buffer.size // element.itemsize * element.itemsize].view(element)
    if dtype.startswith("i"):
        values[:] = rng.integers(0, numbers, values.size).astype(element)
    else:
        values[:] = (_DEVIATION * rng.standard_normal(values.size, np.float32)).astype(element)


def _nanoseconds(run: Callable[[], None]) -> int:
    start = perf_counter_ns()
    run()
    return perf_counter_ns() - start


def _repeat(run: Callable[[], None], count: int) -> None:
    for _ in range(count):
        run()
