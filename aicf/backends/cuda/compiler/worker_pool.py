"""Compiling kernels in processes of their own, while the program that needs them is still being made.

Numba is Python and holds the interpreter lock, so side by side means processes. One process imports Numba and forks one
for each core, see `worker.py`. It starts with the second kernel: a single one is compiled where it is needed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import TracebackType

from aicf.backends.cuda.compiler.code import KernelCode
from aicf.errors import CaptureError

WORKER = "aicf.backends.cuda.compiler.worker"

STARTS_WITH = 2
"""The number of the kernel with which the process starts."""

_MOST_PROCESSES = 64
"""The worker tells them apart by a byte, and few programs have more kernels."""


class CompilePool:
    """Kernels being compiled; a context, at whose end nothing runs any more.

    Args:
        arch: What they are compiled for, `sm_90a`.
        compile_here: Compiles one in this process.
    """

    def __init__(self, arch: str, compile_here: Callable[[KernelCode, str], bytes]) -> None:
        self._arch = arch
        self._compile_here = compile_here
        self._codes: list[KernelCode] = []
        self._worker: _Worker | None = None

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None:
            self._worker.end()

    def add(self, code: KernelCode) -> None:
        """Starts to compile a kernel; the first one waits for the second."""
        self._codes.append(code)
        if self._worker is not None:
            self._worker.send(code)
        elif len(self._codes) >= STARTS_WITH:
            self._worker = _Worker(self._arch)
            for each in self._codes:
                self._worker.send(each)

    def images(self) -> dict[str, bytes]:
        """Waits for all kernels and gives their cubins by symbol. What the worker lacks is compiled here, where errors
        are raised, with what the worker said as a note."""
        if self._worker is None:
            return {code.symbol: self._compile_here(code, self._arch) for code in self._codes}
        self._worker.no_more()
        return {code.symbol: self._image(code, self._worker) for code in self._codes}

    def _image(self, code: KernelCode, worker: _Worker) -> bytes:
        image = worker.image(code)
        if image is not None:
            return image
        try:
            return self._compile_here(code, self._arch)
        except CaptureError as error:
            error.add_note(worker.said())
            raise


class _Worker:
    """A process of `worker.py`, the folder in which it leaves cubins, and the file of its standard error."""

    def __init__(self, arch: str) -> None:
        self._folder = TemporaryDirectory(prefix="aicf-cubins-", ignore_cleanup_errors=True)
        self._errors = TemporaryFile()  # noqa: SIM115 - `end` closes it
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                WORKER,
                arch,
                self._folder.name,
                str(min(os.cpu_count() or 1, _MOST_PROCESSES)),
            ],
            stdin=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},  # it forks: no threads
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._tasks = self._process.stdin

    def send(self, code: KernelCode) -> None:
        """Gives it a kernel. A worker that died is no error: it leaves no cubin."""
        with suppress(BrokenPipeError):
            self._tasks.write(task_of(code))
            self._tasks.flush()

    def no_more(self) -> None:
        """Lets it end when all is done."""
        with suppress(BrokenPipeError):
            self._tasks.close()

    def image(self, code: KernelCode) -> bytes | None:
        """The cubin of a kernel, when all are done; None if it made none."""
        self._process.wait()
        path = Path(self._folder.name) / code.symbol
        return path.read_bytes() if path.exists() else None

    def said(self) -> str:
        """What it wrote to standard error, and how it ended, once it has."""
        status = self._process.wait()
        self._errors.seek(0)
        return f"{WORKER} ended with status {status}\n{self._errors.read().decode(errors='replace')}".strip()

    def end(self) -> None:
        """Ends it with the processes that it forked, if it has not ended: then its number may be another's."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self.no_more()
        self._process.wait()
        self._errors.close()
        self._folder.cleanup()


def task_of(code: KernelCode) -> bytes:
    """A kernel as a line of JSON."""
    return json.dumps(dataclasses.astuple(code)).encode() + b"\n"


def read_task(line: bytes) -> KernelCode:
    """The kernel of a line."""
    name, source, params, *rest = json.loads(line)
    return KernelCode(name, source, tuple(params), *rest)
