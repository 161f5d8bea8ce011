"""Finds backends by name: the built-in ones, and plug-ins from the entry point group `aicf.backends`.

A plug-in names a callable (usually a class) without parameters that gives a `Backend`. Nothing is imported
before it is asked for; `load_native` of a built-in backend imports no xDSL, since artifacts are loaded
through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, cast

from aicf.backends.native import DeviceCode, DeviceMemory, LoadedCode, NativeCode
from aicf.errors import BackendUnavailable, PolicyError, quoted
from aicf.support.arguments import text_from

if TYPE_CHECKING:
    from xdsl.ir import Attribute

    from aicf.backends.base import Backend
    from aicf.backends.common.kernel import AnyKernel
    from aicf.dialects.emit_types import TargetAttr

MAX_THREADS = 1024
"""More than a machine has: what a program is split for is decided thread by thread when it is compiled."""

ENTRY_POINTS = "aicf.backends"

_BUILT_IN = {
    "cpu": ("aicf.backends.cpu.backend", "CpuBackend"),
    "cuda": ("aicf.backends.cuda.backend", "CudaBackend"),
    "reference": ("aicf.backends.reference.backend", "ReferenceBackend"),
}

_LOADERS = {
    "cpu": "aicf.backends.cpu.runtime.loader",
    "cuda": "aicf.backends.cuda.runtime.loader",
    "reference": "aicf.backends.reference.loader",
}
"""Modules of built-in backends with a function `load_native(NativeCode)`: their `Backend.load` without xDSL."""

_HOSTS = {"cpu": "aicf.backends.cpu.runtime.host"}
"""Modules of built-in backends with a function `host_target()`: what their bare name means on this machine."""

_DEVICES = {"cuda": "aicf.backends.cuda.runtime.device"}
"""Modules of built-in backends with a function `open_device(ordinal)`; their `load_native` takes that number, too."""


def _plug_ins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def backend_names() -> list[str]:
    """Names of all registered backends, sorted."""
    return sorted({*_BUILT_IN, *_plug_ins()})


@cache
def get_backend(name: str) -> Backend:
    """The backend called `name`.

    Raises:
        PolicyError: no backend has that name (the message lists them).
        BackendUnavailable: its package does not import here.
    """
    try:
        if name in _BUILT_IN:
            module, factory = _BUILT_IN[name]
            return cast("Backend", getattr(import_module(module), factory)())
        if (point := _plug_ins().get(name)) is not None:
            return cast("Backend", point.load()())
    except ImportError as error:
        raise BackendUnavailable(
            f"backend '{name}' does not import: {error}; install what it needs"
        ) from error
    raise PolicyError(f"unknown backend '{name}'; registered: {', '.join(backend_names())}")


@cache
def get_kernels(backend: str) -> dict[str, AnyKernel]:
    """The kernels of a backend by id, in its order, and those that packages define for it (`aicf.kernel`).

    Raises PolicyError for a kernel of a package that has the id of one of the backend's, or that this backend cannot
    run.
    """
    from aicf.backends.base import UserKernelBackend
    from aicf.backends.common.user_kernel import defined_kernels
    from aicf.dialects.custom_ops import import_packages

    import_packages()
    own = get_backend(backend)
    kernels = {kernel.id: kernel for kernel in own.kernels()}
    for spec in defined_kernels(backend):
        if spec.id in kernels:
            raise PolicyError(
                f"kernel '{spec.id}' of {spec.module} has the id of one of '{backend}': rename it"
            )
        if not isinstance(own, UserKernelBackend):
            raise PolicyError(f"kernel '{spec.id}' of {spec.module}: '{backend}' runs no kernels of users")
        kernels[spec.id] = own.user_kernel(spec)
    return kernels


def why_no_kernel(backend: str, kernel: str) -> str:
    """Says that a backend has no kernel of an id: which ones it has, or whose package is missing here."""
    known = get_kernels(backend)
    package = kernel.partition(".")[0]
    if package not in backend_names() and not any(each.startswith(f"{package}.") for each in known):
        return (
            f"{backend} has no kernel '{kernel}': import or install the package '{package}' that defines it"
        )
    return f"{backend} has no kernel '{kernel}'; it has {', '.join(known)}"


def forget_kernels() -> None:
    """Reads the kernels of all backends again when they are asked for: a package defined one."""
    get_kernels.cache_clear()
    libraries_by_family.cache_clear()


@cache
def libraries_by_family(backend: str) -> dict[str, tuple[str, ...]]:
    """For each family of kinds, the names that a policy may ask for: of libraries, and of algorithms."""
    from aicf.dialects.kinds import FAMILIES, family_of

    names: dict[str, dict[str, None]] = {family: {} for family in FAMILIES}
    for kernel in get_kernels(backend).values():
        for family in {family_of(kind) for kind in kernel.kinds} & names.keys():
            names[family] |= dict.fromkeys(filter(None, (kernel.library, *kernel.algorithms)))
    return {family: tuple(found) for family, found in names.items()}


def load_native(backend: str, native: NativeCode) -> LoadedCode:
    """Loads native code of the backend called `backend` into this process.

    Raises:
        PolicyError, BackendUnavailable: as `get_backend`; or the machine lacks a feature that the code needs.
        ArtifactError: the bytes are no code of that backend.
    """
    return cast("LoadedCode", _load(backend, native))


def load_device(backend: str, native: NativeCode, ordinal: int = 0) -> DeviceCode:
    """Loads code that runs on a device (`NativeCode.memory`), onto device number `ordinal`.

    Raises as `load_native`; BackendUnavailable also if there is no such device.
    """
    if not ordinal:
        return cast("DeviceCode", _load(backend, native))
    if backend not in _DEVICES:
        raise BackendUnavailable(
            f"there is no device {backend}:{ordinal}; {_how_to_choose(backend, ordinal)}"
        )
    return _runtime_module(backend, _LOADERS).load_native(native, ordinal)


def runs_on_any_device(backend: str) -> bool:
    """Whether programs of a backend run on the device of any number, not on the first one alone."""
    return backend in _DEVICES


def open_device(backend: str, ordinal: int) -> DeviceMemory:
    """The memory and queues of device number `ordinal` of a backend.

    Raises:
        PolicyError: no backend has that name.
        BackendUnavailable: its programs run on the processor, or there is no such device here.
    """
    if backend not in _DEVICES:
        raise BackendUnavailable(
            f"device {backend}:{ordinal} has no streams and no memory of its own; {_how_to_choose(backend, ordinal)}"
        )
    return _runtime_module(backend, _DEVICES).open_device(ordinal)


def _how_to_choose(backend: str, ordinal: int) -> str:
    from aicf.backends.base import DeviceBackend

    found = get_backend(backend)
    if isinstance(found, DeviceBackend):
        return found.how_to_choose(ordinal)
    return "programs of this backend run on the processor"


def _load(backend: str, native: NativeCode) -> LoadedCode | DeviceCode:
    if backend not in _LOADERS:
        return get_backend(backend).load(native)
    return _runtime_module(backend, _LOADERS).load_native(native)


def _runtime_module(backend: str, modules: Mapping[str, str]) -> Any:
    try:
        return import_module(modules[backend])
    except ImportError as error:
        raise BackendUnavailable(
            f"backend '{backend}' does not import: {error}; install what it needs"
        ) from error


def check_threads(threads: object) -> None:
    """Raises PolicyError for what is no number of threads."""
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise PolicyError(f"threads is a whole number, got {quoted(threads)}")
    if threads < 1:
        raise PolicyError(f"threads must be at least 1, got {quoted(threads)}")
    if threads > MAX_THREADS:
        raise PolicyError(f"threads must be at most {MAX_THREADS}, got {quoted(threads)}")


def resolve_target(spec: str, threads: int = 1) -> TargetAttr:
    """The target that `spec` names: `backend:level`, `+feature` for each feature of the level, and `+library=version`
    for each library it may call.

    A bare `backend` means this machine: its level, its features and its libraries.

    Raises PolicyError for an unknown backend, level, feature or library, a malformed library, or a number of threads
    that is none from 1 to MAX_THREADS.
    """
    from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, i64

    from aicf.backends.base import FeaturedBackend
    from aicf.dialects.emit_types import TargetAttr

    name, _, rest = text_from(spec, PolicyError, "the target").partition(":")
    check_threads(threads)
    backend = get_backend(name)
    level, *more = rest.split("+")
    names = backend.feature_names if isinstance(backend, FeaturedBackend) else ()
    features = [entry for entry in more if entry in names]
    listed = [entry for entry in more if entry not in names]
    arch = backend.resolve_arch("+".join((level, *features)) if level else None)
    libraries = (
        dict(_library(entry, spec, backend) for entry in listed) if level else dict(backend.libraries())
    )
    facts: dict[str, Attribute] = {"threads": IntegerAttr(threads, i64)}
    if libraries:
        facts["libraries"] = DictionaryAttr({key: StringAttr(libraries[key]) for key in sorted(libraries)})
    return TargetAttr(name, arch, facts)


def target_text(spec: str, threads: int = 1) -> str:
    """`target_spec` of `resolve_target`, without xDSL where that is possible: for a built-in backend of this machine's
    processor. Raises as `resolve_target`."""
    check_threads(threads)
    if text_from(spec, PolicyError, "the target") in _HOSTS:
        return _runtime_module(spec, _HOSTS).host_target()
    return target_spec(resolve_target(spec, threads))


def _library(entry: str, spec: str, backend: Backend) -> tuple[str, str]:
    from aicf.backends.base import FeaturedBackend, LibraryBackend

    name, equals, version = entry.partition("=")
    if not (name and equals and version):
        features = backend.feature_names if isinstance(backend, FeaturedBackend) else ()
        wanted = f", or + and one of {', '.join(features)}" if features else ""
        raise PolicyError(f"target '{spec}': '{entry}' names no library; write +library=version{wanted}")
    known = backend.library_names if isinstance(backend, LibraryBackend) else ()
    if name not in known:
        legal = f"legal: {', '.join(known)}" if known else "it calls none"
        raise PolicyError(f"target '{spec}': '{name}' is no library of backend '{backend.name}'; {legal}")
    return name, version


def target_spec(target: TargetAttr) -> str:
    """The text from which `resolve_target` makes the same backend, level and libraries on any machine."""
    from xdsl.dialects.builtin import DictionaryAttr, StringAttr

    libraries = target.facts.data.get("libraries")
    listed = ""
    if isinstance(libraries, DictionaryAttr):
        for key, value in libraries.data.items():
            listed += f"+{key}={value.data}" if isinstance(value, StringAttr) else ""
    return f"{target.backend.data}:{target.arch.data}{listed}"
