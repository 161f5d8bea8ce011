"""The optional library BLAS, scipy-openblas64: its version as a target fact, and its functions at run time.

Native code reaches it only through the pointer table, and names the version and core it was compiled for; another one
is refused at load. Imports neither xDSL nor a code generator.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from pathlib import Path
from typing import Any

from aicf.errors import BackendUnavailable

LIBRARY = "scipy-openblas64"

FUNCTIONS = {"f32": "scipy_cblas_sgemm64_", "f64": "scipy_cblas_dgemm64_"}
"""Element type -> GEMM with the C interface and 64-bit integers."""


@functools.cache
def _library() -> tuple[Any, str] | None:
    """The loaded library and its version with the core it chose; None if it is not installed."""
    try:
        package = importlib.import_module("scipy_openblas64")
    except ImportError:
        return None
    library = ctypes.CDLL(str(Path(package.get_lib_dir()) / package.get_library(fullname=True)))
    core = library.scipy_openblas_get_corename64_
    core.restype = ctypes.c_char_p
    # Our threads are ours to split; the library's own would make results depend on the machine.
    library.scipy_openblas_set_num_threads64_(1)
    return library, f"{package.__version__} {core().decode()}"


def host_libraries() -> dict[str, str]:
    """Libraries of this machine that a target may list, with version and core: empty without scipy-openblas64."""
    found = _library()
    return {} if found is None else {LIBRARY: found[1]}


def table_name(function: str, version: str) -> str:
    """How native code names a library function that it expects in the pointer table."""
    return f"{LIBRARY} {version}:{function}"


def function_address(name: str) -> int:
    """Address of a function named by `table_name`.

    Raises:
        BackendUnavailable: The library is missing here, or another version or core than the code was compiled for.
    """
    wanted, _, function = name.partition(":")
    found = _library()
    if found is None:
        raise BackendUnavailable(
            f"the program calls {wanted}, which is not installed: pip install scipy-openblas64, or compile without it"
        )
    library, version = found
    if wanted != f"{LIBRARY} {version}":
        raise BackendUnavailable(
            f"the program was compiled for {wanted}, here is {LIBRARY} {version}: compile it again on this machine"
        )
    address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
    assert address is not None
    return address
