# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Code of users -> cubin, with no GPU present: functions by Numba, CUDA C++ by NVRTC."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from aicf.backends.common.user_code import CudaSource
from aicf.backends.cuda.compiler.toolchain import KernelError, capability, linked, one_at_a_time, with_entry
from aicf.errors import BackendUnavailable
from aicf.support.extras import install

NVRTC = "nvidia-cuda-nvrtc"
"""The package that compiles CUDA C++."""

ArrayType = tuple[str, int, bool]
"""Element type of an array in Numba, its rank, and whether it is row-major and dense."""


def nvrtc_version() -> str:
    """The version of the compiler. Raises BackendUnavailable if it is missing."""
    try:
        return version(NVRTC)
    except PackageNotFoundError:
        raise BackendUnavailable(f"compiling CUDA C++ needs the package {NVRTC}; {install('cuda')}") from None


def compile_source(code: CudaSource, symbol: str, arch: str) -> bytes:
    """The cubin of CUDA C++, whose kernel is then called `symbol`. Raises KernelError."""
    from cuda.core import Program, ProgramOptions

    def build() -> bytes:
        options = ProgramOptions(arch=arch, name=f"{code.entry}.cu", **_options(code, symbol))
        image = bytes(Program(code.text, "c++", options).compile("cubin").code)
        if f".text.{symbol}\0".encode() not in image:
            raise ValueError(f'it defines no kernel {code.entry} that is extern "C"')
        return image

    return _tried(build, symbol)


def _options(code: CudaSource, symbol: str) -> dict[str, Any]:
    """Options of NVRTC as `cuda.core` takes them. Raises ValueError for one that is not passed on."""
    from cuda.pathfinder import find_nvidia_header_directory

    macros: list[Any] = [(code.entry, symbol)]
    found: dict[str, Any] = {"define_macro": macros}
    if (headers := find_nvidia_header_directory("cudart")) is not None:
        found["include_path"] = headers  # of the toolkit, such as cuda_fp16.h
    for option in code.options:
        if option == "--use_fast_math":
            found["use_fast_math"] = True
        elif option.startswith("--std="):
            found["std"] = option.removeprefix("--std=")
        elif option.startswith("-D"):
            name, equals, value = option[2:].partition("=")
            macros.append((name, value) if equals else name)
        else:
            raise ValueError(f"option {option} is not passed on; use --use_fast_math, --std= and -D")
    return found


def compile_function(
    function: Callable[..., None],
    arrays: Sequence[ArrayType],
    scalars: Sequence[str],
    threads: int,
    symbol: str,
    arch: str,
) -> bytes:
    """The cubin of a function of Numba that takes arrays and then numbers. Raises KernelError."""

    def build() -> bytes:
        from numba import cuda
        from numba.cuda import types

        parameters = [
            types.Array(getattr(types, name), rank, "C" if dense else "A") for name, rank, dense in arrays
        ]
        parameters += [getattr(types, name) for name in scalars]
        major, minor, suffix = capability(arch)
        with one_at_a_time(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on performance
            image, _ = cuda.compile(
                function,
                types.void(*parameters),
                device=False,
                abi="numba",
                cc=(major, minor, suffix) if suffix else (major, minor),
                output="ltoir",
                launch_bounds=(threads, 1),
            )
        return with_entry(linked(bytes(image), arch), symbol)

    return _tried(build, symbol)


def _tried(build: Callable[[], bytes], symbol: str) -> bytes:
    try:
        return build()
    except Exception as error:  # each package of the toolchain has errors of its own
        raise KernelError(symbol, error) from error
