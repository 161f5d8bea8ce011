"""Runs trials that may abort, hang or take all memory, each attributed to its seed, at the price of a pipe message.

A worker is a fork of this process and runs trials one after the other. It says which it begins, so that a death or a
silence belongs to that one; the rest goes on in a fresh worker. What a trial does to the process does not outlast
`Limits.batch` trials. Fork from a process of one thread: load what trials share first, and start no thread team.

    outcomes = isolated(trial, range(1000), Limits(seconds=25))
    raise SystemExit(report(outcomes, good={"right", "refused"}))
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

RAISED, HUNG, EXITED = "raised", "hung", "exited"

_LENGTH = struct.Struct("<I")
_MAX_DETAIL = 2000


@dataclass(frozen=True)
class Verdict:
    """What a trial found.

    Args:
        kind: One word, counted: `right`, `refused`, `wrong`, ...
        detail: What a reader needs to see why.
    """

    kind: str
    detail: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of one trial.

    Args:
        seed: Which.
        kind: That of its verdict; or `raised` (an exception left the trial), `hung`, `aborted(SIGSEGV)` with the
            signal's name, or `exited` (the process ended itself).
        detail: Of the verdict; else the exception with its last frames, or the last lines of standard error.
        seconds: How long it took.
        earlier: Trials that the same worker had run before: 0 if no other can be to blame.
    """

    seed: int
    kind: str
    detail: str
    seconds: float
    earlier: int


@dataclass(frozen=True)
class Limits:
    """What a trial may take.

    Args:
        seconds: Time, after which it is killed and `hung`.
        memory_bytes: Address space beyond what the process has when it forks.
        batch: Trials that one worker runs at most.
    """

    seconds: float = 25.0
    memory_bytes: int = 4 << 30
    batch: int = 200


def isolated(
    trial: Callable[[int], Verdict], seeds: Iterable[int], limits: Limits | None = None
) -> Iterator[Outcome]:
    """Runs `trial` of every seed apart from this process; outcomes come in order, each as soon as it is known."""
    limits = limits or Limits()
    rest = iter(seeds)
    while batch := list(islice(rest, limits.batch)):
        while batch:
            finished = 0
            for outcome in _worker(trial, batch, limits):
                finished += 1
                yield outcome
            batch = batch[finished:]


def report(outcomes: Iterable[Outcome], good: Collection[str], *, show: Callable[[str], None] = print) -> int:
    """Prints every outcome that is not `good`, then counts by kind. Returns 1 if there was one that is not, else 0."""
    counts: Counter[str] = Counter()
    slowest = 0.0
    for outcome in outcomes:
        counts[outcome.kind] += 1
        slowest = max(slowest, outcome.seconds)
        if outcome.kind not in good:
            lines = outcome.detail.strip().replace("\n", "\n    ")
            show(f"seed {outcome.seed}: {outcome.kind} ({outcome.earlier} trials before it)\n    {lines}")
    table = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    show(f"{sum(counts.values())} trials: {table or 'none'}; the slowest took {slowest:.1f} s")
    return int(bool(counts.keys() - set(good)))


def _worker(trial: Callable[[int], Verdict], seeds: Collection[int], limits: Limits) -> Iterator[Outcome]:
    """Outcomes of one worker: of all seeds, or of those up to the first that ends it."""
    with tempfile.TemporaryFile() as errors:
        reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _run_trials(trial, seeds, limits, writing, errors.fileno())
        os.close(writing)
        waited = False
        try:
            for number, seed in enumerate(seeds):
                start = time.monotonic()
                verdict = _next_verdict(reading, start + limits.seconds)
                seconds = time.monotonic() - start
                if verdict is None:
                    kind, waited = _end_of(child, seconds >= limits.seconds), True
                    yield Outcome(seed, kind, _tail(errors.fileno()), seconds, number)
                    return
                yield Outcome(seed, verdict.kind, verdict.detail, seconds, number)
        finally:
            os.close(reading)
            if not waited:
                _end_of(child, is_late=True)


def _run_trials(
    trial: Callable[[int], Verdict], seeds: Collection[int], limits: Limits, pipe: int, errors: int
) -> None:
    """The worker's whole life."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for taken, by in ((0, null), (1, errors), (2, errors)):
            os.dup2(by, taken)
        # Ctrl-C goes to the parent, which ends its worker.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        bound = _address_space() + limits.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for seed in seeds:
            verdict = _verdict(trial, seed)
            message = pickle.dumps((verdict.kind, verdict.detail[:_MAX_DETAIL]))
            os.write(pipe, _LENGTH.pack(len(message)) + message)
    finally:
        os._exit(0)


def _verdict(trial: Callable[[int], Verdict], seed: int) -> Verdict:
    try:
        return trial(seed)
    except Exception as error:
        frames = "".join(traceback.format_tb(error.__traceback__)[-4:])
        return Verdict(RAISED, f"{type(error).__name__}: {str(error)[:300]}\n{frames}")


def _address_space() -> int:
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[0]) * resource.getpagesize()


def _next_verdict(pipe: int, deadline: float) -> Verdict | None:
    """What the worker says next; None if it is dead, or silent up to the deadline."""
    header = _receive(pipe, _LENGTH.size, deadline)
    if header is None:
        return None
    (size,) = _LENGTH.unpack(header)
    body = _receive(pipe, size, deadline)
    return None if body is None else Verdict(*pickle.loads(body))


def _receive(pipe: int, size: int, deadline: float) -> bytes | None:
    data = b""
    while len(data) < size:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not select.select([pipe], [], [], remaining)[0]:
            return None
        chunk = os.read(pipe, size - len(data))
        if not chunk:
            return None
        data += chunk
    return data


def _end_of(child: int, is_late: bool) -> str:
    """Waits for a worker, killed if it is late, and says how it ended."""
    if is_late:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if is_late:
        return HUNG
    if os.WIFSIGNALED(status):
        return f"aborted({signal.Signals(os.WTERMSIG(status)).name})"
    return EXITED


def _tail(errors: int) -> str:
    size = os.fstat(errors).st_size
    return os.pread(errors, _MAX_DETAIL, max(0, size - _MAX_DETAIL)).decode("utf-8", "replace")
