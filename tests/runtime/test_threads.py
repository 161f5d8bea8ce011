"""Teams of threads: every thread takes part in every run, errors come back, and who waits sleeps and can be ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.errors import BackendUnavailable
from aicf.runtime.threads import ThreadTeam
from tests.test_concurrency import compiled, images, in_numpy

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=[2, 3, 5])
def team(request: pytest.FixtureRequest) -> Iterator[ThreadTeam]:
    team = ThreadTeam(request.param)
    yield team
    team.release()


def wait_until_asleep(team: ThreadTeam) -> None:
    for _ in range(60_000):
        if team.sleepers == team.size - 1:
            return
        time.sleep(0.001)
    raise AssertionError(f"{team.sleepers} of {team.size - 1} threads sleep")


def test_each_call_is_made_once_in_a_thread_of_its_own(team: ThreadTeam) -> None:
    gate = threading.Barrier(team.size)  # passed only if all are in it at once
    made: list[list[int]] = [[] for _ in range(team.size)]

    def call(tid: int) -> None:
        gate.wait(60)
        made[tid].append(threading.get_ident())

    for _ in range(20):
        team.run([partial(call, tid) for tid in range(team.size)])
    assert [len(threads) for threads in made] == [20] * team.size
    assert made[0] == [threading.get_ident()] * 20
    assert len({thread for threads in made for thread in threads}) == team.size


def test_who_waits_for_long_sleeps_and_wakes_up(team: ThreadTeam) -> None:
    made: list[int] = []
    for count in range(1, 6):
        team.run([partial(made.append, tid) for tid in range(team.size)])
        assert sorted(made) == sorted([*range(team.size)] * count)
        wait_until_asleep(team)


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_any_thread_is_raised(team: ThreadTeam, failing: int) -> None:
    def call(tid: int) -> None:
        if tid == failing:
            raise ValueError(f"of {tid}")

    with pytest.raises(ValueError, match=f"of {failing}"):
        team.run([partial(call, tid) for tid in range(team.size)])
    team.run([lambda: None] * team.size)


def test_callers_take_turns_while_the_team_ends_again_and_again(team: ThreadTeam) -> None:
    """A run of several threads is never mixed with another one, nor lost."""
    runs, callers = 200, 4
    inside: list[int] = []
    made: list[int] = []

    def call(caller: int, gate: threading.Barrier) -> None:
        inside.append(caller)
        gate.wait(60)
        assert set(inside) == {caller}
        gate.wait(60)
        inside.remove(caller)
        made.append(caller)

    def work(caller: int) -> None:
        gate = threading.Barrier(team.size)
        for _ in range(runs):
            team.run([partial(call, caller, gate)] * team.size)

    with ThreadPoolExecutor(callers) as pool:
        working = [pool.submit(work, caller) for caller in range(callers)]
        while not all(each.done() for each in working):
            team.release()
        for each in working:
            each.result()
    assert sorted(made) == sorted([*range(callers)] * runs * team.size)


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("aicf-")]


def test_the_threads_end_at_shutdown_and_start_again() -> None:
    exe = compiled("cpu", threads=3)
    for _ in range(3):
        np.testing.assert_allclose(exe(images(7)), in_numpy(images(7)), rtol=1e-5, atol=1e-6)
        assert {"aicf-1", "aicf-2"} <= set(our_threads())
        aicf.runtime.shutdown()
        assert not our_threads()


def test_a_program_of_two_threads_gives_the_bits_of_one_however_they_are_woken() -> None:
    one, two = compiled("cpu").bind(x=images(7)), compiled("cpu", threads=2).bind(x=images(7))
    name = one.plan.graph.outputs[0].name
    one.replay()
    for pause in (0, 0, 1e-5, 1e-4, 1e-3, 1e-2) * 20:
        time.sleep(pause)
        two[name][...] = 0
        two.replay()
        assert np.array_equal(one[name], two[name])


FORK = """
import os, sys, threading
import numpy as np
from tests.test_concurrency import compiled, images
exe = compiled("cpu", threads=2)
bound = exe.bind(x=images(7))
bound.replay()
(name,) = (spec.name for spec in exe.outputs)
expected, stop = bound[name].copy(), threading.Event()

def work():
    own = exe.instantiate(N=7)
    own.bind({"x": images(7)})
    while not stop.is_set():
        own.replay()

busy = threading.Thread(target=work)  # so that a fork may come in the midst of a run
busy.start()
for number in range(20):
    child = os.fork()
    if child == 0:
        bound[name][...] = 0
        bound.replay(3)
        os._exit(0 if np.array_equal(bound[name], expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    bound.replay()
stop.set()
busy.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    done = subprocess.run(command, cwd=ROOT, timeout=300, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_machine_that_gives_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of those that began stays, and the next run starts with all of them."""
    start, started = threading.Thread.start, 0

    def refuse(thread: threading.Thread) -> None:
        nonlocal started
        if started == 3:
            raise RuntimeError("can't start new thread")
        started += 1
        start(thread)

    team, before = ThreadTeam(9), our_threads()
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(
            BackendUnavailable, match="cannot start 8 more threads, only 3 .*; compile with fewer"
        ):
            team.run([int] * 9)
    assert our_threads() == before
    team.run([int] * 9)
    team.release()
