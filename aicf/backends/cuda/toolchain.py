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
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from aicf.backends.cuda.code import Cubin, KernelCode
from aicf.errors import BackendUnavailable

PACKAGES = ("numba-cuda", "llvmlite", "cuda-core", "nvidia-nvvm", "nvidia-nvjitlink")
"""What the bytes of a cubin depend on."""

CUDA_LINE = "13.0"
"""CUDA version of the toolkit wheels: cubins of this line load with driver 580 and later."""

MINIMUM_DRIVER = 13000


def toolchain_lock() -> dict[str, str]:
    """Versions of the packages that compile, by name.

    Raises BackendUnavailable if one is missing or the toolkit is of another CUDA line.
    """
    versions: dict[str, str] = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            raise BackendUnavailable(
                f"compiling for cuda needs the package {package}; install aicf[cuda]"
            ) from None
    for package in ("nvidia-nvvm", "nvidia-nvjitlink"):
        if not versions[package].startswith(CUDA_LINE + "."):
            raise BackendUnavailable(
                f"{package} {versions[package]} is not of the CUDA {CUDA_LINE} line, whose code driver 580 loads; "
                "install aicf[cuda]"
            )
    return versions


def compile_kernels(codes: Iterable[KernelCode], arch: str) -> dict[str, Cubin]:
    """Cubins of kernels by symbol, each compiled once.

    Raises BackendUnavailable if the toolchain is missing.
    """
    lock = toolchain_lock()
    found: dict[str, Cubin] = {}
    for code in codes:
        if code.symbol not in found:
            found[code.symbol] = _compiled(code, arch, lock)
    return found


def cache_directory() -> Path:
    """Where cubins are kept: `$AICF_CACHE_DIR`, else the user's cache directory."""
    chosen = os.environ.get("AICF_CACHE_DIR")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "aicf"
    return base / "cubin"


def _compiled(code: KernelCode, arch: str, lock: Mapping[str, str]) -> Cubin:
    text = repr((code, arch, sorted(lock.items()), _layer_digest()))
    path = cache_directory() / f"{hashlib.sha256(text.encode()).hexdigest()}.cubin"
    try:
        image = path.read_bytes()
    except OSError:
        image = compile_kernel(code, arch)
        _keep(path, image)
    return described(code.symbol, image)


def _keep(path: Path, image: bytes) -> None:
    """Writes a cache entry; a cache that cannot be written only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(image)
        partial.replace(path)
    except OSError:
        return


@cache
def _layer_digest() -> str:
    """Digest of the PTX layer and of this file: their text is part of every kernel."""
    digest = hashlib.sha256()
    for name in ("ptx.py", "toolchain.py"):
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()


def compile_kernel(code: KernelCode, arch: str) -> bytes:
    """The cubin of one kernel, whose entry is `code.symbol`."""
    from cuda.core import Linker, LinkerOptions, ObjectCode
    from numba import cuda

    major, minor, suffix = _capability(arch)
    with _numbered_from_one(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Numba's advice on performance; ours is checked in SASS
        image, _ = cuda.compile(
            _function(code),
            _signature(code),
            device=False,
            abi="numba",
            cc=(major, minor, suffix) if suffix else (major, minor),
            output="ltoir",
            fastmath=code.fast_math,
            launch_bounds=(code.threads, code.blocks_per_sm),
        )
    options = LinkerOptions(arch=arch, link_time_optimization=True)
    cubin = bytes(Linker(ObjectCode.from_ltoir(bytes(image)), options=options).link("cubin").code)
    return _with_entry(cubin, code.symbol)


def _capability(arch: str) -> tuple[int, int, str]:
    match = re.fullmatch(r"sm_(\d+)(\d)(a?)", arch)
    assert match is not None  # the target was checked when it was resolved
    return int(match[1]), int(match[2]), match[3]


def _function(code: KernelCode) -> Any:
    from aicf.backends.cuda import ptx

    namespace = dict(vars(ptx))
    exec(compile(code.source, f"<{code.name}>", "exec"), namespace)
    return next(namespace[name] for name in re.findall(r"^def (\w+)", code.source, re.MULTILINE))


def _signature(code: KernelCode) -> Any:
    from numba.cuda import types

    by_name = {"ptr": types.uint64, "i32": types.int32, "i64": types.int64, "f32": types.float32}
    return types.void(*[by_name[name] for name in code.params])


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


def _with_entry(cubin: bytes, symbol: str) -> bytes:
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
    from aicf.backends.cuda.elf import kernel_resources

    resources = kernel_resources(image, symbol)
    return Cubin(symbol, image, resources.registers, resources.stack_bytes, resources.shared_bytes)
