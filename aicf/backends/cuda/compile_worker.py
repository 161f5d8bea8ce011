"""A process that compiles kernels: a JSON task on standard input, lengths and cubins on standard output.

`toolchain` starts it; it is no command for people.
"""

from __future__ import annotations

import sys
import traceback

from aicf.backends.cuda.code import KernelCode
from aicf.backends.cuda.toolchain import KernelError, compile_kernel, read_task


def main() -> None:
    """Compiles each kernel of the task, in order, then writes for each 8 bytes of length and the cubin.

    Not before: `toolchain` reads when its own share is done, and a pipe holds little.
    """
    arch, codes = read_task(sys.stdin.buffer.read())
    for image in [_image(code, arch) for code in codes]:
        sys.stdout.buffer.write(len(image).to_bytes(8, "little") + image)
    sys.stdout.buffer.flush()


def _image(code: KernelCode, arch: str) -> bytes:
    """The cubin, nothing for a kernel that does not compile: `toolchain` tries that again, and tells the error."""
    try:
        return compile_kernel(code, arch)
    except KernelError:
        traceback.print_exc()
        return b""


if __name__ == "__main__":
    main()
