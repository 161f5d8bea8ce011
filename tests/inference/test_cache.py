"""The cache of compiled programs: what is found, what is not, damage, and several processes at once."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicf import InferenceSession
from aicf.errors import ArtifactError
from aicf.saving import artifact
from tests.inference.models import WEIGHTS, classified, classifier, rows

ROOT = Path(__file__).parents[2]


def served(folder: Path, count: int = 2, **options: Any) -> list[tuple[str, str]]:
    """Serves one call from a session on `folder`; what it reported but the opening and the picking."""
    with InferenceSession(classifier(), WEIGHTS, cache_dir=folder, **options) as session:
        x = rows(count, 24)
        np.testing.assert_allclose(session.run([x])["logits"], classified(x)[0], rtol=1e-4, atol=1e-5)
        events = [event for event in session.report.events if event.what not in ("opened", "picked")]
        return [(event.what, event.program) for event in events]


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.aicf"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the program for two rows."""
    folder = tmp_path_factory.mktemp("filled") / "cache"
    assert served(folder) == [("compiled", "N=2")]
    assert len(entries(folder)) == 1
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    """A copy of it, for the test alone."""
    return Path(shutil.copytree(filled, tmp_path / "cache"))


def test_what_was_compiled_is_found_again(folder: Path) -> None:
    assert served(folder) == [("loaded", "N=2")]
    assert len(entries(folder)) == 1


def test_sizes_given_ahead_are_kept_too(tmp_path: Path) -> None:
    for said in ("cached as ", "from "):
        with InferenceSession(classifier(), WEIGHTS, cache_dir=tmp_path, dims="N=1,4") as session:
            (opened,) = session.report.of("opened")
            assert said in opened.detail
            assert session.run([rows(4, 24)])["logits"].shape == (4, 10)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 3),
        ({"target": "reference"}, 2),
        ({"kernel_policy": {"rounding": "strict"}}, 2),
        ({"exec_policy": {"prepared_weights": False}}, 2),
        ({"threads": 2}, 2),
        ({"dims": "N=2"}, 2),
    ],
)
def test_what_is_compiled_otherwise_is_another_entry(
    folder: Path, options: dict[str, Any], count: int
) -> None:
    with InferenceSession(classifier(), WEIGHTS, cache_dir=folder, **options) as session:
        session.run([rows(count, 24)])
        assert not session.report.of("loaded")
    assert len(entries(folder)) == (1 if "dims" in options else 2)


def test_limits_of_the_session_are_no_part_of_the_key(folder: Path) -> None:
    assert served(folder, exec_policy={"max_programs": 3, "new_shapes": "compile"}) == [("loaded", "N=2")]


def test_other_weights_are_the_same_program(folder: Path) -> None:
    """Programs hold no weights: those of the session are what counts."""
    weights = {name: array * np.float32(2) for name, array in WEIGHTS.items()}
    with InferenceSession(classifier(), weights, cache_dir=folder) as session:
        x = rows(2, 24)
        np.testing.assert_allclose(session.run([x])["logits"], 2 * classified(x)[0], rtol=1e-4, atol=1e-5)
        assert session.report.of("loaded")


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize(
    "damage", [flip, lambda data: data[:-40], lambda data: b"", lambda data: b"PK\x03\x04" + data[:9]]
)
def test_a_damaged_entry_is_made_anew(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    """It is never run, and the next session finds a good one."""
    (path,) = entries(folder)
    path.write_bytes(damage(path.read_bytes()))
    assert served(folder) == [("rebuilt", "N=2"), ("compiled", "N=2")]
    assert served(folder) == [("loaded", "N=2")]


def test_an_entry_of_another_program_is_made_anew(folder: Path) -> None:
    """A whole and sound artifact, under a key that is not its own."""
    (ours,) = entries(folder)
    served(folder, 3)
    (other,) = set(entries(folder)) - {ours}
    shutil.copy(other, ours)
    assert served(folder)[-1] == ("compiled", "N=2")


def test_entries_hold_no_weights(folder: Path) -> None:
    names = set(artifact.read(entries(folder)[0]).entries)
    assert not names & {"weights.safetensors", "prepared.safetensors"}


def test_a_folder_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(
        ArtifactError, match="file/cache: cannot use the cache folder: Not a directory; choose one"
    ):
        InferenceSession(classifier(), WEIGHTS, cache_dir=tmp_path / "file" / "cache")


def test_a_cache_that_cannot_be_written_costs_only_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert served(folder, 3) == [("unsaved", "N=3"), ("compiled", "N=3")]
    assert len(entries(folder)) == 1


SERVE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.inference.test_cache import served
print(served(Path(sys.argv[2])))
"""


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    """One makes the program; the other waits for it, and finds it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SERVE, str(ROOT), str(tmp_path)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert sum("compiled" in out for out, _ in said) == 1, said
    assert sum("loaded" in out for out, _ in said) == 1, said
    assert len(entries(tmp_path)) == 1 and not list(tmp_path.glob("*.tmp"))


def hold(path: str, ready: Any, go: Any) -> None:
    """Holds the lock of an entry until it is told to let go."""
    import fcntl

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ready.set()
        go.wait(60)


def test_waiting_for_another_process_is_reported(folder: Path) -> None:
    (path,) = entries(folder)
    path.unlink()
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(str(path.with_suffix(".lock")), ready, go))
    holder.start()
    assert ready.wait(60)
    with InferenceSession(classifier(), WEIGHTS, cache_dir=folder) as session:
        add = session.report.add

        def let_go(level: int, what: str, *rest: Any) -> None:
            add(level, what, *rest)
            if what == "waited":
                go.set()

        session.report.add = let_go  # pyright: ignore[reportAttributeAccessIssue]
        session.run([rows(2, 24)])
        assert [event.what for event in session.report.of("waited", "compiled")] == ["waited", "compiled"]
    holder.join(60)
    assert holder.exitcode == 0
