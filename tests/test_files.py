"""Files that are written whole or not at all: what killed writers leave goes, what others still write stays."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import aicf
from aicf.support.files import remove_abandoned, write_whole
from aicf.training.checkpoint import write_checkpoint
from tests.inference.models import WEIGHTS, classifier

ROOT = Path(__file__).parents[1]

WRITING = """
import sys
from pathlib import Path
from aicf.support.files import write_whole

def write(stream):
    stream.write(b"half")
    stream.flush()
    print("half", flush=True)
    sys.stdin.readline()
    stream.write(b"whole")

write_whole(Path(sys.argv[1]), write)
"""

SAVING = """
import os, sys
from pathlib import Path
from aicf import InferenceSession
from tests.inference.models import WEIGHTS, classifier, rows

def wait(descriptor):
    print("half", flush=True)
    sys.stdin.readline()

os.fsync = wait
InferenceSession(classifier(), WEIGHTS, cache_dir=sys.argv[1]).run([rows(2, 24)])
"""


@contextmanager
def writer(path: Path, code: str = WRITING) -> Iterator[subprocess.Popen[str]]:
    """A process in the midst of writing `path`; a line of input lets it go on."""
    command = [sys.executable, "-c", code, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        assert process.stdout is not None and process.stdout.readline() == "half\n"
        try:
            yield process
        finally:
            process.kill()


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def save(path: Path) -> None:
    write_whole(path, lambda stream: stream.write(b"new"))


def save_checkpoint(path: Path) -> None:
    write_checkpoint(path, {}, [])


def save_artifact(path: Path) -> None:
    graph = aicf.Graph("twice")
    x = graph.input("x", (2, 3))
    graph.output(graph.add(x, x), "y")
    aicf.compile(graph, {}, "reference").save(path)


@pytest.mark.parametrize("save", [save, save_checkpoint, save_artifact])
def test_what_killed_writers_leave_goes_with_the_next_save(
    tmp_path: Path, save: Callable[[Path], None]
) -> None:
    """Also of files of other names, as a training gives its checkpoints."""
    with ExitStack() as writers:
        killed = [writers.enter_context(writer(tmp_path / f"step-{number}.ckpt")) for number in range(3)]
        assert len(names(tmp_path)) == 3
        for process in killed:
            kill(process)
    save(tmp_path / "step-3.ckpt")
    assert names(tmp_path) == {"step-3.ckpt"}


def test_what_others_still_write_stays(tmp_path: Path) -> None:
    with writer(tmp_path / "theirs") as process, writer(tmp_path / "killed") as killed:
        kill(killed)
        for _ in range(3):
            save(tmp_path / "ours")
            remove_abandoned(tmp_path)
        assert len(names(tmp_path)) == 2
        process.communicate("go on\n")
        assert process.returncode == 0
    assert names(tmp_path) == {"ours", "theirs"}
    assert (tmp_path / "theirs").read_bytes() == b"halfwhole"


def test_what_a_thread_of_ours_still_writes_stays(tmp_path: Path) -> None:
    def write(stream: object) -> None:
        save(tmp_path / "inner")
        remove_abandoned(tmp_path)
        assert len(names(tmp_path)) == 2

    write_whole(tmp_path / "outer", write)
    assert names(tmp_path) == {"inner", "outer"}


def of_another_machine(folder: Path) -> Path:
    """What is there of a writer, named as one on another machine names it."""
    (ours,) = folder.iterdir()
    prefix, _, token = ours.name.rpartition("-")
    other = ours.with_name(f"{prefix[:-8]}{'0' * 8}-{token}")
    return ours.rename(other)


def make_old(path: Path) -> None:
    then = time.time() - 25 * 60 * 60
    os.utime(path, (then, then))


def test_a_file_of_another_machine_goes_after_a_day(tmp_path: Path) -> None:
    with writer(tmp_path / "theirs") as process:
        kill(process)
    theirs = of_another_machine(tmp_path)
    save(tmp_path / "ours")
    assert names(tmp_path) == {"ours", theirs.name}
    make_old(theirs)
    save(tmp_path / "ours")
    assert names(tmp_path) == {"ours"}


def test_a_file_of_another_machine_stays_while_its_lock_is_seen(tmp_path: Path) -> None:
    with writer(tmp_path / "theirs"):
        theirs = of_another_machine(tmp_path)
        make_old(theirs)
        save(tmp_path / "ours")
        assert names(tmp_path) == {"ours", theirs.name}


@pytest.mark.parametrize(
    "name", [".aicf-notes.tmp", ".a.tmp", "a.tmp", ".aicf-0123abcd-0123456789ab.tmp.kept"]
)
def test_files_of_others_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    make_old(tmp_path / name)
    save(tmp_path / "ours")
    assert names(tmp_path) == {"ours", name}


def test_where_nothing_can_be_locked_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with writer(tmp_path / "theirs") as process:
        kill(process)
    monkeypatch.setattr(fcntl, "flock", refuse)
    save(tmp_path / "ours")
    assert len(names(tmp_path)) == 2 and (tmp_path / "ours").read_bytes() == b"new"


def test_a_writer_whose_file_is_taken_for_abandoned_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may find a file before its writer has locked it: it has the lock then, or the file is gone."""
    lock, calls = fcntl.flock, 0

    def late(stream: object, how: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise BlockingIOError
        if calls == 2:
            (path,) = tmp_path.iterdir()
            path.unlink()
        lock(stream, how)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(fcntl, "flock", late)
    save(tmp_path / "ours")
    assert names(tmp_path) == {"ours"} and (tmp_path / "ours").read_bytes() == b"new" and calls == 3


MANY = """
import sys
from pathlib import Path
from aicf.support.files import remove_abandoned, write_whole
folder, who = Path(sys.argv[1]), sys.argv[2]
for number in range(300):
    data = f"{who} {number}".encode()
    write_whole(folder / "shared", lambda stream: stream.write(data))
    write_whole(folder / who, lambda stream: stream.write(data))
    remove_abandoned(folder)
    assert (folder / who).read_bytes() == data
"""


def test_writers_side_by_side_remove_nothing_of_each_other(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", MANY, str(tmp_path), str(who)] for who in range(4)]
    processes = [subprocess.Popen(command, cwd=ROOT) for command in commands]
    assert [process.wait() for process in processes] == [0] * 4
    assert names(tmp_path) == {"shared", *map(str, range(4))}


def test_what_a_killed_session_leaves_in_its_cache_goes_when_the_cache_is_opened(tmp_path: Path) -> None:
    with writer(tmp_path, SAVING) as process:
        kill(process)
    left = [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]
    assert len(left) == 1
    aicf.InferenceSession(classifier(), WEIGHTS, cache_dir=tmp_path).close()
    assert not left[0].exists()
