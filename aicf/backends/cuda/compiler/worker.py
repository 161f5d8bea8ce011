"""A process that compiles kernels: each line of its input is one, each cubin a file named by its symbol.

    python -m aicf.backends.cuda.compiler.worker ARCH FOLDER PROCESSES

`worker_pool.py` starts it; it is no command for people. It imports Numba once and forks for each kernel. As many as
there are processes work at a time: a pipe holds a byte for each, which a kernel's process takes and gives back.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.toolchain import KernelError, compile_kernel, lto_ir
from aicf.backends.cuda.compiler.worker_pool import read_task
from aicf.files import write_whole

_WARM_UP = KernelCode("warm_up", "def warm_up(x):\n    store_i32(x, i32(cuda.threadIdx.x))\n", ("ptr",), 32)
"""Goes through Numba before all others: what that loads and registers for its first kernel is there for all. It is not
linked: that would start a thread, and a process that forks must have one alone."""


def main(arch: str, folder: str, processes: str) -> None:
    """Compiles what the input holds, and ends when all is done."""
    gc.disable()  # each process ends with its kernel
    lto_ir(_WARM_UP, arch)
    slots, free = os.pipe()
    os.write(free, bytes(int(processes)))
    running = 0
    for line in sys.stdin.buffer:
        if os.fork() == 0:
            os.read(slots, 1)
            _compile_and_exit(read_task(line), arch, Path(folder), free)
        running += 1
    for _ in range(running):
        _, status = os.wait()
        if status:  # it was killed, and its place went with it
            os.write(free, b"\0")


def _compile_and_exit(code: KernelCode, arch: str, folder: Path, free: int) -> NoReturn:
    """A kernel that does not compile leaves no cubin: `CompilePool` tries it again, and tells the error."""
    try:
        image = compile_kernel(code, arch)
        write_whole(folder / code.symbol, lambda stream: stream.write(image))
    except KernelError:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os.write(free, b"\0")
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
