"""The code of a user's kernel by name: what it is written in, and the digest that says which code it is.

Nothing is compiled here, and no compiler is imported: a digest is of what a compiler would read, so that it is the same
on every machine.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, cast

from aicf.errors import BackendUnavailable, PolicyError, quoted


class UserCode(ABC):
    """Code that a package brings."""

    backend: str
    """The backend that can run it."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of all that says what the code is, as hexadecimal text."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What it is, in a few words."""


@dataclass(frozen=True)
class _NumbaFunction(UserCode):
    """A Python function that Numba compiles."""

    function: Callable[..., None]

    @cached_property
    def python(self) -> FunctionType:
        """The Python function itself. Raises PolicyError for what is none."""
        return _python_function(self.function)

    @property
    def digest(self) -> str:
        return function_digest(self.python)


@dataclass(frozen=True)
class CpuFunction(_NumbaFunction):
    """A Python function that Numba compiles for processors; it becomes a part of the program's own object code.

    It takes a pointer for each operand, result and workspace, in this order, which it indexes as `x[i]`, and then the
    numbers that `arguments` gives. It cannot raise and calls nothing of Python: a division by zero gives infinity or
    NaN. A Numba `cfunc` or `njit` function stands for the Python function that it was made from.
    """

    backend = "cpu"

    @property
    def description(self) -> str:
        return f"Numba function {self.python.__name__}"


@dataclass(frozen=True)
class SharedFunction(UserCode):
    """A C function of a shared library: pointers of operands, results and workspace, and then the numbers that
    `arguments` gives, as int64_t and double. Programs name the library, the function and a digest of the library's
    file; loading refuses another one.

    Args:
        library: As the loader of the system finds it, `libtop_p.so`, or a path.
        symbol: The function.
    """

    library: str
    symbol: str
    backend = "cpu"

    @property
    def digest(self) -> str:
        return hashlib.sha256(
            f"{library_digest(self.library, self.symbol)} {self.symbol}".encode()
        ).hexdigest()

    @property
    def description(self) -> str:
        return f"C function {self.symbol} of {self.library}"


@dataclass(frozen=True)
class CudaFunction(_NumbaFunction):
    """A Python function that Numba compiles for GPUs, as `numba.cuda.jit` does, or such a kernel.

    It takes an array for each operand and result, row-major and of their shapes, an array of bytes for a workspace, and
    then the numbers that `arguments` gives, as int64 and float64.
    """

    backend = "cuda"

    @property
    def description(self) -> str:
        return f"Numba CUDA kernel {self.python.__name__}"


@dataclass(frozen=True)
class CudaSource(UserCode):
    """CUDA C++, compiled by NVRTC: pointers of operands, results and workspace, then the numbers that `arguments`
    gives, as `long long` and `double`.

    Args:
        text: With one kernel `extern "C" __global__ void entry(...)`.
        entry: Its name.
        options: Of NVRTC, besides the architecture.
    """

    text: str
    entry: str
    options: tuple[str, ...] = ()
    backend = "cuda"

    def __post_init__(self) -> None:
        if f"{self.entry}(" not in self.text.replace(" ", ""):
            raise PolicyError(f"the CUDA source has no kernel '{self.entry}'; declare it as extern \"C\"")

    @property
    def digest(self) -> str:
        return _digest_of([self.text, self.entry, *self.options])

    @property
    def description(self) -> str:
        return f"CUDA C++ kernel {self.entry}"


def _digest_of(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _python_function(given: object) -> FunctionType:
    for name in ("py_func", "_pyfunc"):  # of dispatchers of Numba, and of its C functions
        given = getattr(given, name, given)
    if not isinstance(given, FunctionType):
        raise PolicyError(
            f"the code of a kernel is {quoted(given)}; give a Python function or one of Numba's"
        )
    return given


def function_digest(function: FunctionType) -> str:
    """SHA-256 of what a function was compiled to, which is what Numba reads, of the numbers and text that it takes from
    outside, and of the functions that it calls there. Another version of Python compiles it to something else."""
    parts: list[str] = [f"{sys.version_info.major}.{sys.version_info.minor}"]
    _add_function(function, parts, set())
    return _digest_of(parts)


def _add_function(function: FunctionType, parts: list[str], seen: set[CodeType]) -> None:
    if function.__code__ in seen:
        return
    seen.add(function.__code__)
    _add_code(function.__code__, parts)
    for name, value in sorted(_read_from_outside(function).items()):
        value = getattr(value, "py_func", value)
        if isinstance(value, FunctionType):
            _add_function(value, parts, seen)
        elif isinstance(value, bool | int | float | str | tuple):
            parts.append(f"{name} = {cast('object', value)!r}")


def _read_from_outside(function: FunctionType) -> dict[str, object]:
    """What a function, and the functions inside of it, may name of its module and of the functions around it."""
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    own = function.__globals__
    return {name: own[name] for name in names if name in own} | {
        name: cell.cell_contents for name, cell in cells
    }


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _add_code(code: CodeType, parts: list[str]) -> None:
    parts += [code.co_code.hex(), repr((code.co_argcount, code.co_names, code.co_varnames))]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(constant, parts)
        elif isinstance(constant, frozenset):  # whose order is another in each process
            parts += sorted(map(repr, cast("frozenset[object]", constant)))
        else:
            parts.append(repr(constant))


# Shared libraries


class _SymbolInfo(ctypes.Structure):
    """`Dl_info` of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def shared_function(library: str, symbol: str) -> int:
    """The address of a function of a shared library. Raises BackendUnavailable if there is none."""
    try:
        loaded = ctypes.CDLL(library)
    except OSError as error:
        raise BackendUnavailable(
            f"the shared library '{library}' of a kernel does not load: {error}; install it, or put it on the path"
        ) from error
    function: Any = getattr(loaded, symbol, None)
    if function is None:
        raise BackendUnavailable(
            f"the shared library '{library}' has no function '{symbol}'; install its version"
        )
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def library_digest(library: str, symbol: str) -> str:
    """SHA-256 of the file that a function of a shared library was loaded from. Raises BackendUnavailable as above."""
    address = shared_function(library, symbol)
    info = _SymbolInfo()
    described = ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info))
    if not described or not info.file:
        raise BackendUnavailable(f"the file of shared library '{library}' is not known; give its path")
    return hashlib.sha256(Path(info.file.decode()).read_bytes()).hexdigest()
