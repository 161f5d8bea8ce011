"""A process of tests that crashes fails the run, and costs no more than the test that it ran."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

REPOSITORY = Path(__file__).parents[1]
CONFTEST = "from tests.conftest import pytest_xdist_make_scheduler\n"
PASSES = "def test_{name}(): pass\n"
CRASHES = "import os\n\ndef test_{name}(): os._exit(3)\n"


def distributed(folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the tests of a folder in two processes."""
    options = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-p", "no:cacheprovider", "-q"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        env={
            "PYTHONPATH": str(REPOSITORY),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "xdist.plugin",
        },
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_crash_fails_the_run_and_all_other_tests_run(tmp_path: Path) -> None:
    """Files before the crash have run as a whole, and those after it hold one test: with either, `loadfile` hangs."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(12):
        text = CRASHES if number in (5, 8) else PASSES
        tests = [text.format(name="only")] if number > 4 else [PASSES.format(name=name) for name in "abc"]
        (tmp_path / f"test_{number:02}.py").write_text("\n".join(tests))
    ran = distributed(tmp_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert re.search(r"2 failed, 20 passed", ran.stdout), ran.stdout
    for number in (5, 8):
        assert f"crashed while running 'test_{number:02}.py::test_only'" in ran.stdout


class Worker:
    """A process of tests that has nothing yet, and may be told to stop."""

    shutting_down = False

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_crash_while_tests_are_collected_stops_no_other_process() -> None:
    """No file is waiting then, which is also how a run ends."""
    from tests.file_scheduling import FileScheduling

    scheduler: Any = FileScheduling(cast(Any, SimpleNamespace(getvalue=lambda name: ["popen", "popen"])))
    crashed, other = Worker(), Worker()
    scheduler.add_node(crashed)
    scheduler.add_node(other)
    assert scheduler.remove_node(crashed) is None
    assert scheduler.nodes == [other] and not other.shutting_down
