"""Machine code of a cubin as text, by NVIDIA's disassembler (package nvidia-cuda-nvdisasm).

The dev extra installs it: where it is missing, tests fail instead of passing over what they are for.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import files
from itertools import accumulate
from pathlib import Path

from aicf.backends.cuda.compiler.code import Cubin
from aicf.backends.cuda.compiler.elf import _sections

SPILLS = ("LDL", "STL")
"""Starts of the names of instructions on memory of a thread, which holds what registers do not."""

ATOMICS = ("ATOM", "RED.", "REDG", "REDS")
"""Starts of the names of atomics, with and without a result. (REDUX stays in a warp: it is none.)"""


def disassembler() -> Path:
    """Where the package has put `nvdisasm`; PackageNotFoundError if the dev extra is not installed."""
    found = [file for file in files("nvidia-cuda-nvdisasm") or () if Path(str(file)).stem == "nvdisasm"]
    return Path(str(found[0].locate()))


def listing(cubin: Cubin) -> list[str]:
    """All instructions with predicate, modifiers and operands, `@P0 LDG.E.128 R4, desc[UR4][R2.64]`, in order."""
    return list(_listing(cubin.code))


@cache
def _listing(image: bytes) -> tuple[str, ...]:
    # Without the analysis of branches that names their targets: a fifth of the time, and nobody reads the names.
    return tuple(line for _, line in _disassembled(image, "-c", "-ndf"))


def listings(cubins: Sequence[Cubin], arch: str) -> list[list[str]]:
    """`listing` of each, with addresses in place of the names of targets. Their code is put one after the other and
    disassembled at once: most of the time of a small kernel is the start of the disassembler."""
    codes = [
        b"".join(
            cubin.code[part.start : part.start + part.size]
            for part in _sections(cubin.code)
            if part.name.startswith(".text.")
        )
        for cubin in cubins
    ]
    ends = list(accumulate(map(len, codes)))
    found: list[list[str]] = [[] for _ in cubins]
    for address, line in _disassembled(b"".join(codes), "--binary", arch.replace("sm_", "SM"), "-ndf"):
        found[bisect_right(ends, address)].append(line)
    return found


def _disassembled(image: bytes, *options: str) -> Iterator[tuple[int, str]]:
    """Each instruction with its address."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        command = [disassembler(), *options, file.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Addresses have four digits in the first 64 KiB, and more after.
    for address, line in re.findall(r"/\*([0-9a-f]{4,})\*/\s+([^;]*);", text):
        yield int(address, 16), line.strip()


def instructions(cubin: Cubin) -> list[str]:
    """Names of all instructions with their modifiers, `LDG.E.128`, in order."""
    return names_of(listing(cubin))


def names_of(lines: Iterable[str]) -> list[str]:
    """The names in lines of a listing."""
    names = (re.match(r"(?:@!?U?P\w+\s+)?([A-Z][A-Za-z0-9_.]*)", line) for line in lines)
    return [name[1] for name in names if name is not None]


def opcodes(cubin: Cubin) -> Counter[str]:
    """How often each instruction occurs, its name without modifiers."""
    return Counter(name.partition(".")[0] for name in instructions(cubin))


def starting(names: Iterable[str], starts: tuple[str, ...]) -> list[str]:
    """Those of `names` that start with one of `starts`, each once."""
    return sorted({name for name in names if name.startswith(starts)})
