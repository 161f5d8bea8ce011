"""A process that compiles kernels: each line of its input is one, each cubin a file named by its symbol.

    python -m aicf.backends.cuda.compiler.worker ARCH FOLDER PROCESSES

`worker_pool.py` starts it; it is no command for people. It imports Numba once and forks the processes that compile.
What one of them learned about the types of a kernel serves its next kernel. Each asks for a kernel when it has none.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.toolchain import KernelError, compile_kernel, lto_ir
from aicf.backends.cuda.compiler.worker_pool import read_task
from aicf.support.files import write_whole

_WARM_UP = KernelCode("warm_up", "def warm_up(x):\n    store_i32(x, i32(cuda.threadIdx.x))\n", ("ptr",), 32)
"""Goes through Numba before all others: what that loads and registers for its first kernel is there for all. It is not
linked: that would start a thread, and a process that forks must have one alone."""

_KERNELS_BETWEEN_COLLECTIONS = 32
"""A kernel leaves some 10 MB in cycles, and collecting them takes a tenth of the time of compiling it."""


def main(arch: str, folder: str, processes: str) -> None:
    """Compiles what the input holds, and ends when all is done."""
    gc.disable()
    lto_ir(_WARM_UP, arch)
    gc.freeze()
    ready, announce = os.pipe()
    children: list[BinaryIO] = []
    for line in sys.stdin.buffer:
        if len(children) < int(processes):
            children.append(_fork(len(children), arch, Path(folder), announce))
            if len(children) == int(processes):
                os.close(announce)  # when no child is left, reading tells
            number = len(children) - 1
        elif asking := os.read(ready, 1):
            number = asking[0]
        else:
            break
        with suppress(BrokenPipeError):  # it was killed: the kernel has no cubin
            children[number].write(line)
            children[number].flush()
    for child in children:
        with suppress(BrokenPipeError):
            child.close()
    for _ in children:
        os.wait()


def _fork(number: int, arch: str, folder: Path, announce: int) -> BinaryIO:
    """Starts a process that compiles, and gives the pipe for its kernels."""
    tasks, give = os.pipe()
    if os.fork() == 0:
        os.close(give)
        with open(tasks, "rb") as lines:
            _compile_and_exit(lines, number, arch, folder, announce)
    os.close(tasks)
    return open(give, "wb")


def _compile_and_exit(
    lines: Iterable[bytes], number: int, arch: str, folder: Path, announce: int
) -> NoReturn:
    """A kernel that does not compile leaves no cubin: `CompilePool` tries it again, and tells the error."""
    try:
        for count, line in enumerate(lines, 1):
            _compile(read_task(line), arch, folder)
            os.write(announce, bytes([number]))
            if count % _KERNELS_BETWEEN_COLLECTIONS == 0:
                gc.collect()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _compile(code: KernelCode, arch: str, folder: Path) -> None:
    try:
        image = compile_kernel(code, arch)
        write_whole(folder / code.symbol, lambda stream: stream.write(image))
    except KernelError:
        traceback.print_exc()


if __name__ == "__main__":
    main(*sys.argv[1:])
