"""Device functions before and after compilation: plain data, no Numba."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

PARAMETER_TYPES = ("ptr", "i32", "i64", "f32")
"""Kernel parameters: a device address as u64 (also that of a tensor map), or a number by value."""


@dataclass(frozen=True)
class KernelCode:
    """One `__global__` function as the text that Numba compiles.

    Args:
        name: What it is, in letters, digits and `_`; the first part of its symbol.
        source: Python text of one function (see `specializer`); it may use the names of `ptx`.
        params: Type of each parameter, from `PARAMETER_TYPES`.
        threads: Most threads of a block.
        blocks_per_sm: Blocks that must fit on one multiprocessor; bounds the registers of a thread.
        fast_math: Approximate division and square root, flush of denormals. Off where IEEE f32 is promised.
    """

    name: str
    source: str
    params: tuple[str, ...]
    threads: int
    blocks_per_sm: int = 1
    fast_math: bool = False

    @property
    def symbol(self) -> str:
        """Entry symbol: the name and a digest of everything that says what the code is."""
        text = repr((self.source, self.params, self.threads, self.blocks_per_sm, self.fast_math))
        return f"{self.name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class ForeignCode:
    """One `__global__` function that a package brings.

    Args:
        symbol: Its entry; it holds a digest of everything that says what the code is.
        threads: Most threads of a block.
        toolchain: Versions of the packages that compile it, besides those that compile all kernels.
        compile: From an architecture to the cubin.
    """

    symbol: str
    threads: int
    toolchain: Mapping[str, str]
    compile: Callable[[str], bytes] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Cubin:
    """A compiled device function.

    Args:
        symbol: Its entry.
        code: The ELF image, loadable by drivers of the toolkit's CUDA version and later.
        registers: Registers of one thread.
        stack_bytes: Local memory of one thread; spills show here.
        shared_bytes: Static shared memory of a block.
    """

    symbol: str
    code: bytes
    registers: int
    stack_bytes: int
    shared_bytes: int
