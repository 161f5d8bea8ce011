"""Named ranges in NVIDIA's profilers: replays by program, and with `GraphExec.check` instructions by name."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any

from aicf.errors import BackendUnavailable
from aicf.support.extras import install

Range = Callable[[str], AbstractContextManager[Any]]

_open: Range | None = None
"""Opens a range by name; None while nobody asked for them."""


@contextmanager
def nvtx_ranges() -> Generator[None]:
    """While it is open, every replay and call is an NVTX range with the name of its program.

    Raises BackendUnavailable if the package nvtx is missing.
    """
    global _open
    try:
        annotate: Any = import_module("nvtx").annotate
    except ImportError:
        raise BackendUnavailable(f"NVTX ranges need the package nvtx; {install('cuda')}") from None
    before, _open = _open, partial(annotate, domain="aicf")
    try:
        yield
    finally:
        _open = before


def is_open() -> bool:
    """Whether ranges are wanted."""
    return _open is not None


def named(name: str) -> AbstractContextManager[Any]:
    """A range called `name`, if ranges are wanted."""
    return nullcontext() if _open is None else _open(name)
