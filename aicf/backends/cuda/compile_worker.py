"""A process that compiles kernels: a JSON task on standard input, lengths and cubins on standard output.

`toolchain` starts it; it is no command for people.
"""

from __future__ import annotations

import sys

from aicf.backends.cuda.toolchain import compile_kernel, read_task


def main() -> None:
    """Compiles each kernel of the task, in order, and writes 8 bytes of length and the cubin."""
    arch, codes = read_task(sys.stdin.buffer.read())
    for code in codes:
        image = compile_kernel(code, arch)
        sys.stdout.buffer.write(len(image).to_bytes(8, "little") + image)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
