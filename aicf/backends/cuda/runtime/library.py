"""NVIDIA's libraries that programs call: which there are, and what a run, a compile and `aicf tune` ask of each.

A library has a module of its own (`cublaslt`, `cudnn`), which turns the plain values of a `LibraryNode` into one call
on a stream. It is imported where a program calls it. No IR and no decisions here.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from aicf.backends.cuda.runtime.device_program import LibraryNode
from aicf.errors import AicfError, ArtifactError, BackendUnavailable
from aicf.support.extras import install

if TYPE_CHECKING:
    from aicf.backends.cuda.runtime.device import CudaDevice


@dataclass(frozen=True)
class Offer:
    """One way in which a library would do a call.

    Args:
        algorithm: The text by which the library, in the same version, finds it again: what `call` of the node lacks.
        workspace_bytes: Device memory that it needs beside its operands.
        label: A short name for tables of measurements.
    """

    algorithm: str
    workspace_bytes: int
    label: str

    @property
    def values(self) -> dict[str, object]:
        """The entries of `LibraryNode.call` that it fills in."""
        return {"algorithm": self.algorithm, "workspace_bytes": self.workspace_bytes}


class LibraryModule(Protocol):
    """What the module of a library has. A handle belongs to the context that was current when it was opened."""

    def version(self) -> str:
        """Of the library that loads here, as 13.0.2. Raises BackendUnavailable if there is none."""
        ...

    def open_handle(self) -> Any:
        """A handle on the GPU of the current context; not while a stream is being captured."""
        ...

    def close_handle(self, handle: Any) -> None:
        """Gives a handle back, with what was prepared by it."""
        ...

    def prepare(self, handle: Any, node: LibraryNode) -> None:
        """Does for a call what cannot be done while a stream is being captured, and checks its values.

        Raises:
            ArtifactError: the call is not one of this release.
            BackendUnavailable: the library refuses it.
        """
        ...

    def call(self, handle: Any, node: LibraryNode, addresses: tuple[int, ...], stream: int) -> None:
        """Queues a call that was prepared; takes no device memory and waits for nothing. Raises as `prepare`."""
        ...

    def offers(self, handle: Any, node: LibraryNode, count: int) -> list[Offer]:
        """At most `count` ways to do a call, the most promising first; its algorithm is empty, its `workspace_bytes`
        the most that it may need."""
        ...


@dataclass(frozen=True)
class Library:
    """Where a library comes from.

    Args:
        module: The module that calls it, see `LibraryModule`.
        package: The package that brings it, whose version has one number more.
        extra: The extra of this package that installs what is needed to call it.
    """

    module: str
    package: str
    extra: str


LIBRARIES: Mapping[str, Library] = {
    "cublasLt": Library("aicf.backends.cuda.runtime.cublaslt", "nvidia-cublas", "cuda"),
    "cudnn": Library("aicf.backends.cuda.runtime.cudnn.calls", "nvidia-cudnn-cu13", "cudnn"),
}
"""By name, which the names of its functions start with."""


def library_of(function: str) -> str:
    """The name of the library that has a function, such as `cublasLt.matmul`."""
    return function.partition(".")[0]


def module_of(name: str) -> LibraryModule:
    """The module of a library of `LIBRARIES`. Raises ImportError."""
    module: Any = import_module(LIBRARIES[name].module)
    return module


def installed() -> dict[str, str]:
    """The libraries that load here, with their versions."""
    found: dict[str, str] = {}
    for name in LIBRARIES:
        try:
            found[name] = module_of(name).version()
        except BackendUnavailable:
            continue
    return found


def open_library(node: LibraryNode) -> tuple[LibraryModule, Any]:
    """The module of the library that a node calls, and a new handle of it.

    Raises:
        ArtifactError: this release knows no such library.
        BackendUnavailable: it is missing.
    """
    name = library_of(node.function)
    if name not in LIBRARIES:
        raise ArtifactError(f"instruction '{node.name}' calls the unknown library {name}; use a newer aicf")
    try:
        module = module_of(name)
        return module, module.open_handle()
    except ImportError as error:
        raise BackendUnavailable(
            f"instruction '{node.name}' needs the library {name} ({error}); {install(LIBRARIES[name].extra)}"
        ) from error


def check_version(node: LibraryNode, found: str) -> None:
    """Raises BackendUnavailable if the library here is not the one that a node was made for."""
    if found != node.version:
        name = library_of(node.function)
        raise BackendUnavailable(
            f"instruction '{node.name}' was compiled for {name} {node.version}, here is {found}: algorithms are "
            f"valid for one version; pip install '{LIBRARIES[name].package}=={node.version}.*', or run aicf tune here "
            "and compile again"
        )


def offered(device: CudaDevice, node: LibraryNode, count: int) -> list[Offer]:
    """What the library here offers for a call, see `LibraryModule.offers`."""
    device.enter()
    module, handle = open_library(node)
    try:
        return module.offers(handle, node, count)
    finally:
        module.close_handle(handle)


@contextmanager
def refusing(name: str, what: str) -> Generator[None]:
    """Turns an error of a library, or of its loading, into one of ours."""
    try:
        yield
    except AicfError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise BackendUnavailable(
            f"{name}: {what} failed: {reason}; {install(LIBRARIES[name].extra)}, or run aicf tune again"
        ) from error
