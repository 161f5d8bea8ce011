"""Compiled language models on disk, so that the next process has its first token at once.

An entry is an artifact without weights and a file of the arrays that its programs read: prepared weights, and weights
that are not in the model's file in that form. It is found by what the model was made of, without building the graph, so
that neither the compiler nor xDSL is imported. What the programs never read stays in the model's file, unread.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from aicf.backends.registry import target_text
from aicf.compilation.compiled import CompiledModel, SharedWeights
from aicf.compilation.reading import load_program
from aicf.errors import AicfError, ArtifactError
from aicf.llm.array_file import map_arrays, write_arrays
from aicf.runtime.capture_plan import ModulePlan
from aicf.runtime.deferred_weights import DeferredWeights
from aicf.runtime.on_device.weights import DeviceWeights
from aicf.runtime.tensors import Array
from aicf.saving.cache_folder import CacheFolder, compiler_stamp
from aicf.support.arguments import path_from
from aicf.support.files import reason_of

LOGGER = logging.getLogger("aicf.llm")
_LAYOUT = 1
"""Of an entry; another one finds none of the entries of this."""
_ARRAYS = ".arrays"
KERNEL_PACKAGES = "aicf.kernels"
"""As `custom_ops.ENTRY_POINTS`, whose module imports xDSL."""
_USER_KERNELS = "aicf.backends.common.user_kernel"


def load_or_compile(
    cache_dir: str | Path | None,
    made_of: Mapping[str, object],
    target: str,
    threads: int,
    weights: DeferredWeights,
    compiled: Callable[[], CompiledModel],
    shared: SharedWeights | None = None,
) -> CompiledModel:
    """The programs of a language model: out of a folder, or else compiled, alone among all processes, and put there.

    Args:
        cache_dir: The folder, shared by processes; None keeps nothing.
        made_of: What else the programs follow from, as JSON values: the identity of the model's files, and sizes.
        target, threads: Of the programs.
        weights: All that the model's files have.
        compiled: Makes the programs.
        shared: What other programs of the model in this process have of its weights; an entry of theirs has no arrays.

    Raises:
        ArtifactError: the folder cannot be made or used.
        PolicyError: the target is not legal.
    """
    if cache_dir is None:
        return compiled()
    files = CacheFolder(path_from(cache_dir, ArtifactError, "cache_dir"))
    has_arrays = shared is None
    key = _key({**made_of, "target": target_text(target, threads), "threads": threads, "arrays": has_arrays})
    if (found := _loaded(files, key, weights, shared)) is not None:
        return found
    with files.alone(
        key,
        waits=lambda: LOGGER.info("another process is compiling the model; waiting for it"),
        refused=lambda reason: LOGGER.warning("%s", reason),
    ):
        if (found := _loaded(files, key, weights, shared, tells=True)) is not None:
            return found
        executable = compiled()
        _save(files, key, executable, with_arrays=has_arrays)
        return executable


def _key(made_of: Mapping[str, object]) -> str:
    stamps = {"definitions": _definitions(), **compiler_stamp()}
    text = json.dumps({"layout": _LAYOUT, **made_of, **stamps}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _definitions() -> list[str]:
    """The ops and kernels of users, with their code. Where nobody can have defined any, nothing is imported."""
    if _USER_KERNELS not in sys.modules and not entry_points(group=KERNEL_PACKAGES):
        return []
    found: list[str] = import_module(_USER_KERNELS).definitions_stamp()
    return found


class _StoredWeights:
    """Weights of an entry; see `SharedWeights`."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.on_device = DeviceWeights()
        self._arrays = arrays

    def packed(self, plan: ModulePlan) -> Mapping[str, Array] | None:
        """All prepared weights of a plan, if the entry has them."""
        names = [bind.name for bind in plan.derived]
        if not names or not all(name in self._arrays for name in names):
            return None
        return {name: self._arrays[name] for name in names}


def _loaded(
    files: CacheFolder,
    key: str,
    weights: DeferredWeights,
    shared: SharedWeights | None,
    *,
    tells: bool = False,
) -> CompiledModel | None:
    """The entry of a key; None if there is none that can be used, which is told if `tells`."""
    if not files.path(key).exists():
        return None
    try:
        if shared is not None:
            return load_program(files.path(key), weights, shared)
        arrays = map_arrays(files.path(key, _ARRAYS))
        offered = DeferredWeights(
            weights, lambda name, dtype: arrays[name] if name in arrays else weights.read(name, dtype)
        )
        return load_program(files.path(key), offered, _StoredWeights(arrays))
    except AicfError as error:
        if tells:
            LOGGER.warning("the cached model cannot be used and is compiled again: %s", error)
        return None


def _save(files: CacheFolder, key: str, executable: CompiledModel, *, with_arrays: bool) -> None:
    """Puts an entry there; the artifact comes last, for it is what an entry is found by. A folder that cannot be
    written costs only time."""
    try:
        if with_arrays:
            write_arrays(files.path(key, _ARRAYS), dict(_read_by_programs(executable)))
        executable.save(files.path(key), weights=False)
    except (ArtifactError, OSError) as error:
        reason = error if isinstance(error, ArtifactError) else reason_of(error)
        LOGGER.warning("the cache cannot keep the compiled model: %s", reason)


def _read_by_programs(executable: CompiledModel) -> Iterator[tuple[str, Array]]:
    """The arrays that an entry keeps: on a device nothing is read where it lies on the host."""
    if executable.native.memory != "host":
        return
    yield from executable.prepared().items()
    read = {bind.name for program in executable.plan.programs for bind in program.graph.weights}
    for name in sorted(read - set(executable.plan.mutable) & executable.weights.keys()):
        if not _is_mapped(executable.weights[name]):
            yield name, executable.weights[name]


def _is_mapped(array: Array) -> bool:
    """Whether an array is a view of a file, as the tensors of a model's file are that need no widening."""
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return base is not None
