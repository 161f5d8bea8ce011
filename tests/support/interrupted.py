"""Work of a process that gets SIGINT at random moments: each is sent while the work runs, and only then.

`python -m tests.support.interrupted JOB COUNT SEED FOLDER` prints what became of them; its exit status is 0 if every
result was right, nothing but KeyboardInterrupt was raised, and nothing is held that was not held before.
"""

from __future__ import annotations

import gc
import itertools
import math
import os
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any

import numpy as np

import aicf
from aicf.backends import machine_code
from tests.inference.models import WEIGHTS, classified, classifier, rows
from tests.test_concurrency import compiled, images, in_numpy

_FOLDER = Path(sys.argv[4])
_X = images(7)
_WANTED = in_numpy(_X)


def _check(result: Any, wanted: Any = _WANTED) -> None:
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def load() -> Callable[[], None]:
    """Loads an artifact, runs it and drops it."""
    path = _FOLDER / "mlp.aicf"
    compiled("cpu").save(path)
    return lambda: _check(aicf.load(path)(_X))


def use() -> Callable[[], None]:
    """Calls, writes into given memory, binds, replays and gives everything back, on one thread and on two."""
    executables = [compiled("cpu", threads=threads) for threads in (1, 2)]
    name = executables[0].outputs[0].name
    kept = [exe.bind(x=_X.copy()) for exe in executables]

    def work() -> None:
        for exe, bound in zip(executables, kept, strict=True):
            _check(exe(_X))
            out = np.empty(_WANTED.shape, np.float32)
            exe.run({"x": _X}, out=out)
            _check(out)
            _check(exe(_X))
            x, y = _X.copy(), np.full(_WANTED.shape, np.nan, np.float32)
            bound.bind({"x": x, name: y})
            for _ in range(3):
                bound.replay(2)
            _check(y)
            own = exe.instantiate(N=7)
            own.bind({"x": x})
            own.replay()
            _check(own[name])
        aicf.runtime.shutdown()

    return work


def compile_model() -> Callable[[], None]:
    """Compiles a model, runs it and drops it."""
    graph = aicf.Graph("sums")
    x = graph.input("x", (7, 64))
    graph.output(graph.softmax(graph.gelu(x), name="y"), "y")
    exact = _X.astype(np.float64)
    gelu = exact * 0.5 * (1 + np.vectorize(math.erf)(exact / np.sqrt(2)))
    exponentials = np.exp(gelu - gelu.max(1, keepdims=True))
    wanted = exponentials / exponentials.sum(1, keepdims=True)
    return lambda: _check(aicf.compile(graph, {}, "cpu")(_X), wanted)


def session() -> Callable[[], None]:
    """Opens a session, finds programs in its cache or makes them, one more than it keeps, and closes it."""
    wanted = {count: classified(rows(count, 24))[0] for count in (1, 2, 3)}
    runs = itertools.count()

    def work() -> None:
        if next(runs) % 4 == 3:
            for path in sorted((_FOLDER / "cache").glob("*.aicf"))[:1]:
                path.unlink()
        options: dict[str, Any] = {"cache_dir": _FOLDER / "cache", "exec_policy": {"max_programs": 2}}
        with aicf.InferenceSession(classifier(), WEIGHTS, **options) as session:
            for count in (1, 2, 3, 1):
                _check(session.run([rows(count, 24)])["logits"], wanted[count])

    return work


JOBS: dict[str, Callable[[], Callable[[], None]]] = {
    "load": load,
    "use": use,
    "compile": compile_model,
    "session": session,
}


class _Sender:
    """Sends this process at most one SIGINT for each time it is armed."""

    def __init__(self) -> None:
        self._armed: list[bool] = []
        self._delays: queue.SimpleQueue[float] = queue.SimpleQueue()
        threading.Thread(target=self._send, daemon=True).start()

    def arm(self, delay: float) -> None:
        """Has a signal sent after `delay` seconds."""
        self._armed.append(True)
        self._delays.put(delay)

    def disarm(self) -> bool:
        """Whether no signal came, nor will."""
        try:
            return self._armed.pop()
        except IndexError:
            return False

    def _send(self) -> None:
        while True:
            time.sleep(self._delays.get())
            if self.disarm():
                os.kill(os.getpid(), signal.SIGINT)


def _held() -> tuple[int, int, int, list[str]]:
    """Buffers and their bytes, pieces of machine code, and what the open file descriptors stand for."""
    gc.collect()
    memory = aicf.runtime.statistics()
    code = sum(known() is not None for known in machine_code._releases)  # pyright: ignore[reportPrivateUsage]
    files = sorted(str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
    return memory.buffers, memory.live_bytes, code, files


def _interrupt(work: Callable[[], None], count: int, rng: random.Random) -> tuple[int, int]:
    """Interrupts `work` `count` times, anywhere; how often it raised KeyboardInterrupt and how often it came to its end
    although a signal was sent."""
    started = time.perf_counter()
    work()
    span, sender = time.perf_counter() - started, _Sender()
    raised = lost = 0
    while raised + lost < count:
        try:
            sender.arm(rng.random() * span)
            work()
            if not sender.disarm():
                time.sleep(
                    1
                )  # it is on its way, or was lost where Python drops exceptions, as in weak references
                lost += 1
        except KeyboardInterrupt:
            raised += 1
    return raised, lost


def _raised_in(traceback: TracebackType | None) -> str:
    """The file of the innermost frame, below the folder of its package."""
    frames = list(walk_tb(traceback))
    return "/".join(Path(frames[-1][0].f_code.co_filename).parts[-3:]) if frames else ""


def main() -> None:
    job, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dropped: list[tuple[str, str]] = []
    sys.unraisablehook = lambda args: dropped.append((args.exc_type.__name__, _raised_in(args.exc_traceback)))
    work = JOBS[job]()
    work()
    before = _held()
    raised, lost = _interrupt(work, count, random.Random(seed))
    work()
    after = _held()
    print(f"{raised} raised, {lost} lost, held {before} before and {after} after, dropped {dropped}")
    # Python drops what a callback of a weak reference raises. The standard library has such callbacks, AICF has none.
    assert all(kind == "KeyboardInterrupt" and "aicf" not in file for kind, file in dropped), dropped
    assert lost <= len(dropped), (lost, dropped)
    assert after == before, (before, after)


if __name__ == "__main__":
    main()
