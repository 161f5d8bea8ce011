# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Numba -> LTO-IR -> cubin, with no GPU present, and a cache on disk by content.

The bytes depend on the kernel text, the PTX layer and the versions of the toolchain alone: what was compiled before in
the process leaves no trace.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from threading import Lock
from typing import Any

from aicf.backends.common.compiler_errors import telling_line
from aicf.backends.cuda.compiler.code import Cubin, ForeignCode, KernelCode
from aicf.backends.cuda.compiler.numba_passes import linear_passes
from aicf.backends.cuda.compiler.worker_pool import CompilePool
from aicf.errors import BackendUnavailable, CaptureError
from aicf.support.extras import install
from aicf.support.files import write_whole
from aicf.support.installed import installed_version

PACKAGES = ("numba-cuda", "llvmlite", "cuda-core", "nvidia-nvvm", "nvidia-nvjitlink")
"""What the bytes of a cubin depend on."""

CUDA_LINE = "13.0"
"""CUDA version of the toolkit wheels: cubins of this line load with driver 580 and later."""

MINIMUM_DRIVER = 13000

_DIGEST_BYTES = 32


class KernelError(CaptureError):
    """A kernel does not compile; the toolchain's own error, of many lines, is the cause.

    Args:
        symbol: Of the kernel.
        error: What the toolchain raised.
    """

    def __init__(self, symbol: str, error: Exception) -> None:
        self.symbol = symbol
        self.reason = f"{type(error).__name__}: {telling_line(str(error))}"
        super().__init__(f"kernel '{symbol}' does not compile: {self.reason}")


def toolchain_lock() -> dict[str, str]:
    """Versions of the packages that compile, by name.

    Raises BackendUnavailable if one is missing or the toolkit is of another CUDA line.
    """
    versions: dict[str, str] = {}
    for package in PACKAGES:
        try:
            versions[package] = installed_version(package)
        except PackageNotFoundError:
            raise BackendUnavailable(
                f"compiling for cuda needs the package {package}; {install('cuda')}"
            ) from None
    for package in ("nvidia-nvvm", "nvidia-nvjitlink"):
        if not versions[package].startswith(CUDA_LINE + "."):
            raise BackendUnavailable(
                f"{package} {versions[package]} is not of the CUDA {CUDA_LINE} line, whose code driver 580 loads; "
                f"{install('cuda')}"
            )
    return versions


def compile_kernels(codes: Iterable[KernelCode | ForeignCode], arch: str) -> dict[str, Cubin]:
    """Cubins of kernels by symbol, each compiled once, side by side in processes of their own, from the moment that
    `codes` gives it.

    Raises BackendUnavailable if the toolchain is missing, KernelError if a kernel does not compile.
    """
    lock = toolchain_lock()
    paths: dict[str, Path] = {}
    images: dict[str, bytes] = {}
    foreign: list[ForeignCode] = []
    with CompilePool(arch, compile_kernel) as pool:
        for code in codes:
            if code.symbol in paths:
                continue
            path = paths[code.symbol] = _cache_path(code, arch, lock)
            image = _kept(path)
            if image is not None:
                images[code.symbol] = image
            elif isinstance(code, ForeignCode):
                foreign.append(code)
            else:
                pool.add(code)
        compiled = {code.symbol: code.compile(arch) for code in foreign}
        for symbol, image in (*compiled.items(), *pool.images().items()):
            _keep(paths[symbol], image)
            images[symbol] = image
    return {symbol: described(symbol, images[symbol]) for symbol in paths}


def cache_directory() -> Path:
    """Where cubins are kept: `$AICF_CACHE_DIR`, else the user's cache directory."""
    chosen = os.environ.get("AICF_CACHE_DIR")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "aicf"
    return base / "cubin"


def _cache_path(code: KernelCode | ForeignCode, arch: str, lock: Mapping[str, str]) -> Path:
    text = repr((code, arch, sorted(lock.items()), _layer_digest()))
    return cache_directory() / f"{hashlib.sha256(text.encode()).hexdigest()}.cubin"


def _kept(path: Path) -> bytes | None:
    """The cubin of a cache entry; None if there is none, or if it is damaged: then the kernel is compiled again."""
    try:
        entry = path.read_bytes()
    except OSError:
        return None
    digest, image = entry[:_DIGEST_BYTES], entry[_DIGEST_BYTES:]
    return image if hashlib.sha256(image).digest() == digest else None


def _keep(path: Path, image: bytes) -> None:
    """Writes a cache entry, a digest and the cubin; a cache that cannot be written only costs time."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda stream: stream.write(hashlib.sha256(image).digest() + image))


@cache
def _layer_digest() -> str:
    """Digest of the PTX layer, of these files and of Python: they are part of every kernel."""
    digest = hashlib.sha256()
    digest.update(sys.version.encode())  # Numba reads bytecode
    here = Path(__file__).parent
    for path in (
        *sorted((here / "ptx").glob("*.py")),
        here / "toolchain.py",
        *sorted(here.glob("numba_*.py")),
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()


_ONE_AT_A_TIME = Lock()
"""Parts of Numba are replaced while it compiles; threads take turns, as Numba makes them anyway."""


def compile_kernel(code: KernelCode, arch: str) -> bytes:
    """The cubin of one kernel, whose entry is `code.symbol`. Raises KernelError."""
    try:
        return _compiled(code, arch)
    except Exception as error:  # each package of the toolchain has errors of its own
        raise KernelError(code.symbol, error) from error


def _compiled(code: KernelCode, arch: str) -> bytes:
    return with_entry(linked(lto_ir(code, arch), arch), code.symbol)


def linked(image: bytes, arch: str) -> bytes:
    """The cubin of LTO-IR."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    options = LinkerOptions(arch=arch, link_time_optimization=True)
    return bytes(Linker(ObjectCode.from_ltoir(image), options=options).link("cubin").code)


def lto_ir(code: KernelCode, arch: str) -> bytes:
    """What Numba makes of one kernel. Starts no thread and no driver, as linking does."""
    from numba import cuda

    major, minor, suffix = capability(arch)
    with one_at_a_time(), linear_passes(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Numba's advice on performance; ours is checked in SASS
        image, _ = cuda.compile(
            _function(code, 10 * major + minor),
            _signature(code),
            device=False,
            abi="numba",
            cc=(major, minor, suffix) if suffix else (major, minor),
            output="ltoir",
            fastmath=code.fast_math,
            launch_bounds=(code.threads, code.blocks_per_sm),
        )
    return bytes(image)


def capability(arch: str) -> tuple[int, int, str]:
    """Major and minor number of an architecture, and the letter after them."""
    match = re.fullmatch(r"sm_(\d+)(\d)(a?)", arch)
    assert match is not None  # the target was checked when it was resolved
    return int(match[1]), int(match[2]), match[3]


def _function(code: KernelCode, capability: int) -> Any:
    from aicf.backends.cuda.compiler import ptx

    namespace = {**vars(ptx), **ptx.float8_intrinsics(capability)}
    exec(compile(code.source, f"<{code.name}>", "exec"), namespace)
    return next(namespace[name] for name in re.findall(r"^def (\w+)", code.source, re.MULTILINE))


def _signature(code: KernelCode) -> Any:
    from numba.cuda import types

    by_name = {"ptr": types.uint64, "i32": types.int32, "i64": types.int64, "f32": types.float32}
    return types.void(*[by_name[name] for name in code.params])


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """For calls of Numba's compiler: threads take turns, and what was compiled before leaves no trace in names."""
    with _ONE_AT_A_TIME, _numbered_from_one():
        yield


@contextmanager
def _numbered_from_one() -> Iterator[None]:
    """Numba numbers the functions it compiles, and the number is in the mangled name and so in the bytes."""
    from numba.cuda.core.bytecode import FunctionIdentity

    identity: Any = FunctionIdentity
    ids = identity._unique_ids
    identity._unique_ids = itertools.count(1)
    try:
        yield
    finally:
        identity._unique_ids = ids


def with_entry(cubin: bytes, symbol: str) -> bytes:
    """The cubin with its mangled entry name replaced in place; the rest of each name's room is zeros."""
    match = re.search(rb"\.text\.(_Z\w+)\x00", cubin)
    assert match is not None
    name = match[1]
    wanted = symbol.encode()
    if len(wanted) > len(name):
        raise ValueError(f"entry symbol '{symbol}' is longer than the {len(name)} bytes there is room for")
    return cubin.replace(name + b"\x00", wanted + b"\x00" * (len(name) - len(wanted) + 1))


def described(symbol: str, image: bytes) -> Cubin:
    """A cubin with the resources that its notes tell."""
    from aicf.backends.cuda.compiler.elf import kernel_resources

    resources = kernel_resources(image, symbol)
    return Cubin(symbol, image, resources.registers, resources.stack_bytes, resources.shared_bytes)
