# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Numba -> LTO-IR -> cubin, with no GPU present, and a cache on disk by content.

The bytes depend on the kernel text, the PTX layer and the versions of the toolchain alone: what was compiled before in
the process leaves no trace.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import IO, Any

from aicf.backends.cuda.code import Cubin, KernelCode
from aicf.backends.cuda.numba_passes import linear_passes
from aicf.errors import BackendUnavailable, CaptureError
from aicf.extras import install
from aicf.files import write_whole

PACKAGES = ("numba-cuda", "llvmlite", "cuda-core", "nvidia-nvvm", "nvidia-nvjitlink")
"""What the bytes of a cubin depend on."""

CUDA_LINE = "13.0"
"""CUDA version of the toolkit wheels: cubins of this line load with driver 580 and later."""

MINIMUM_DRIVER = 13000

_DIGEST_BYTES = 32

WORKER = "aicf.backends.cuda.compile_worker"


class KernelError(CaptureError):
    """A kernel does not compile; the toolchain's own error, of many lines, is the cause.

    Args:
        symbol: Of the kernel.
        error: What the toolchain raised.
    """

    def __init__(self, symbol: str, error: Exception) -> None:
        self.symbol = symbol
        self.reason = f"{type(error).__name__}: {_telling(str(error))}"
        super().__init__(f"kernel '{symbol}' does not compile: {self.reason}")


_PREAMBLES = ("Failed in ", "ERROR_")
"""Starts of lines in which Numba and nvJitLink say where they failed, before they say why."""


def _telling(message: str) -> str:
    """The first line of an error that says why."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith(_PREAMBLES)), lines[0] if lines else "")


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
                f"compiling for cuda needs the package {package}; {install('cuda')}"
            ) from None
    for package in ("nvidia-nvvm", "nvidia-nvjitlink"):
        if not versions[package].startswith(CUDA_LINE + "."):
            raise BackendUnavailable(
                f"{package} {versions[package]} is not of the CUDA {CUDA_LINE} line, whose code driver 580 loads; "
                f"{install('cuda')}"
            )
    return versions


def compile_kernels(codes: Iterable[KernelCode], arch: str) -> dict[str, Cubin]:
    """Cubins of kernels by symbol, each compiled once, side by side in processes of their own.

    Raises BackendUnavailable if the toolchain is missing, KernelError if a kernel does not compile.
    """
    lock = toolchain_lock()
    distinct = {code.symbol: code for code in codes}
    paths = {symbol: _cache_path(code, arch, lock) for symbol, code in distinct.items()}
    images = {symbol: image for symbol, path in paths.items() if (image := _kept(path)) is not None}
    missing = [code for symbol, code in distinct.items() if symbol not in images]
    for symbol, image in compile_side_by_side(missing, arch).items():
        _keep(paths[symbol], image)
        images[symbol] = image
    return {symbol: described(symbol, images[symbol]) for symbol in distinct}


def cache_directory() -> Path:
    """Where cubins are kept: `$AICF_CACHE_DIR`, else the user's cache directory."""
    chosen = os.environ.get("AICF_CACHE_DIR")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "aicf"
    return base / "cubin"


def _cache_path(code: KernelCode, arch: str, lock: Mapping[str, str]) -> Path:
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
    for name in ("ptx.py", "toolchain.py", "numba_passes.py"):
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()


def compile_side_by_side(codes: Sequence[KernelCode], arch: str) -> dict[str, bytes]:
    """Cubins by symbol. Numba is Python and holds the interpreter lock, so every share gets a process; one share
    stays here."""
    shares = _shares(codes, os.cpu_count() or 1)
    if not shares:
        return {}
    with ExitStack() as cleanup:
        workers = [_start(share, arch, cleanup) for share in shares[1:]]
        images = {code.symbol: compile_kernel(code, arch) for code in shares[0]}
        for share, worker in zip(shares[1:], workers, strict=True):
            images |= _collect(share, worker, arch)
    return images


def _shares(codes: Sequence[KernelCode], count: int) -> list[list[KernelCode]]:
    """At most `count` shares of about equal text, the longest kernels first."""
    shares: list[list[KernelCode]] = [[] for _ in range(min(count, len(codes)))]
    sizes = [0] * len(shares)
    for code in sorted(codes, key=lambda code: (-len(code.source), code.symbol)):
        least = sizes.index(min(sizes))
        shares[least].append(code)
        sizes[least] += len(code.source)
    return shares


@dataclasses.dataclass(frozen=True)
class _Worker:
    """A process of `compile_worker`, and the file that its standard error goes to."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    def said(self) -> str:
        """What it wrote to standard error, and how it ended, once it has."""
        status = self.process.wait()
        self.errors.seek(0)
        return f"{WORKER} ended with status {status}\n{self.errors.read().decode(errors='replace')}".strip()


def _start(share: Sequence[KernelCode], arch: str, cleanup: ExitStack) -> _Worker:
    """A process at work on a share; it is ended by `cleanup`."""
    errors = cleanup.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    process = subprocess.Popen(
        [sys.executable, "-m", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    cleanup.enter_context(process)  # which closes its pipes and waits
    cleanup.callback(process.kill)
    assert process.stdin is not None
    # A worker that died is no error: what it lacks is compiled here, see `_collect`.
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(_task(arch, share))
    return _Worker(process, errors)


def _task(arch: str, share: Sequence[KernelCode]) -> bytes:
    return json.dumps([arch, [dataclasses.astuple(code) for code in share]]).encode()


def read_task(task: bytes) -> tuple[str, list[KernelCode]]:
    """Architecture and kernels that a worker was given."""
    arch, codes = json.loads(task)
    return arch, [KernelCode(name, source, tuple(params), *rest) for name, source, params, *rest in codes]


def _collect(share: Sequence[KernelCode], worker: _Worker, arch: str) -> dict[str, bytes]:
    """What a process made: for each kernel its length and its bytes. What it lacks is compiled here, so that an error
    is raised where it can be read, with what the process said as a note."""
    assert worker.process.stdout is not None
    output, images, start = worker.process.stdout.read(), dict[str, bytes](), 0
    for code in share:
        size = int.from_bytes(output[start : start + 8], "little")
        image = output[start + 8 : start + 8 + size]
        start += 8 + size
        is_whole = size and len(image) == size
        try:
            images[code.symbol] = image if is_whole else compile_kernel(code, arch)
        except KernelError as error:
            error.add_note(worker.said())
            raise
    return images


_ONE_AT_A_TIME = Lock()
"""Parts of Numba are replaced while it compiles; threads take turns, as Numba makes them anyway."""


def compile_kernel(code: KernelCode, arch: str) -> bytes:
    """The cubin of one kernel, whose entry is `code.symbol`. Raises KernelError."""
    try:
        return _compiled(code, arch)
    except Exception as error:  # each package of the toolchain has errors of its own
        raise KernelError(code.symbol, error) from error


def _compiled(code: KernelCode, arch: str) -> bytes:
    from cuda.core import Linker, LinkerOptions, ObjectCode
    from numba import cuda

    major, minor, suffix = _capability(arch)
    with _ONE_AT_A_TIME, _numbered_from_one(), linear_passes(), warnings.catch_warnings():
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
