"""Distributes files of tests over processes; a process that crashes takes no more with it than one test.

`--dist loadfile` of pytest-xdist 3.8 hangs after a crash: it puts the files of the lost worker back, with those whose
tests have all run. A worker that is given such a file has nothing to run, so that it reports nothing, and only a report
makes the scheduler act. It also gives the crashed test to the next worker, which crashes as well, and ends with an
error of its own where a worker is gone before that is known.
"""

from __future__ import annotations

from contextlib import suppress

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_AHEAD = 2
"""A worker starts a test when it knows the one after it."""


class FileScheduling(LoadFileScheduling):
    """`loadfile` that outlives crashes: the test that crashed has failed, and all others run."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Put back what a worker has not run.

        Returns:
            The test that crashed; None where the worker had none, as at its end or while tests are collected.
        """
        left = {
            file: {test: False for test, is_done in tests.items() if not is_done}
            for file, tests in self.assigned_work.pop(node).items()
        }
        crashed = next((test for tests in left.values() for test in tests), None)
        if crashed is None:
            return None
        del left[self._split_scope(crashed)][crashed]
        self.workqueue.update({file: tests for file, tests in left.items() if tests})
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a worker a file. One that has crashed meanwhile is not told; `remove_node` puts the file back."""
        with suppress(OSError):
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker files until it can start, also one that has just replaced another."""
        while (
            self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) <= _AHEAD
        ):
            if node not in self.registered_collections:
                return  # it still collects, and asks again
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()
