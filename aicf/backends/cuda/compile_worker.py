"""A process that compiles kernels: a JSON task on standard input, lengths and cubins on standard output.

`toolchain` starts it; it is no command for people.
"""

from __future__ import annotations

import sys

from aicf.backends.cuda.toolchain import compile_kernel, read_task


def main() -> None:
    """Compiles each kernel of the task, in order, then writes for each 8 bytes of length and the cubin.

    Not before: `toolchain` reads when its own share is done, and a pipe holds little.
    """
    arch, codes = read_task(sys.stdin.buffer.read())
    for image in [compile_kernel(code, arch) for code in codes]:
        sys.stdout.buffer.write(len(image).to_bytes(8, "little") + image)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
