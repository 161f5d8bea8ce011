"""Runs a program on PyTorch's current stream, after packing again those weights that have changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from aicf.errors import CaptureError
from aicf.pytorch.fused_optimizers import watch_fused_optimizers
from aicf.pytorch.streams import current_stream
from aicf.runtime.addressed import Addressed

Stamp: TypeAlias = tuple[int, int, object]
"""Which memory a tensor has, and its version by PyTorch's counter."""
_version = attrgetter("_version")
_identity = attrgetter("_cdata")
_reference = attrgetter("cdata")
_storage: Any = torch.UntypedStorage
_is_freed: Callable[[int], bool] = _storage._expired
"""What `StorageWeakRef.expired` calls: a quarter of its time, which counts for each packed weight of each call."""


def _versions(tensors: Sequence[Tensor]) -> list[object]:
    """The version of each tensor; always a new one for inference tensors, whose changes PyTorch does not count."""
    try:
        return list(map(_version, tensors))
    except RuntimeError:
        return [object() if tensor.is_inference() else tensor._version for tensor in tensors]


class PackedCopies:
    """Tracks which weights the packed copies of one graph hold; the programs of the graph share the copies.

    A graph is called with the weights of several modules if these are alike. One program then overwrites the copies of
    another.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while weights are packed, and while a program runs on packed copies."""
        self.generation = 0
        self._stamps: dict[object, Stamp] = {}

    def note(self, stamps: Mapping[object, Stamp]) -> int:
        """Notes what a program packs; returns the generation of the copies from now on."""
        if any(self._stamps.get(key, stamp) != stamp for key, stamp in stamps.items()):
            self.generation += 1
        self._stamps.update(stamps)
        return self.generation


class Launcher:
    """Runs a program on PyTorch's current stream.

    Weights are packed again if their version or their address has changed. PyTorch does not count writes through
    `parameter.data`: `parameter.data.mul_(2)` goes unseen, by autograd too. Write under `torch.no_grad()` instead, or
    call `torch.autograd.graph.increment_version(parameter)` afterwards.

    Args:
        addressed: The program.
        keys: Of the weights that it packs, among all programs of the graph.
        copies: Shared by the programs of the graph.
    """

    def __init__(self, addressed: Addressed, keys: Sequence[object], copies: PackedCopies) -> None:
        self._addressed, self._keys, self._copies = addressed, keys, copies
        self.packed_names = tuple(addressed.packs)
        self._addresses: tuple[int, ...] = ()
        self._versions: list[object] = []
        self._generation = -1
        self._storages: list[StorageWeakRef] = []
        self._references: list[int] = []

    def launch(
        self,
        addresses: Sequence[int],
        device: torch.device,
        packed: Sequence[Tensor] = (),
        packed_addresses: Sequence[int] | None = None,
    ) -> None:
        """Packs weights if need be, then runs the program; while PyTorch captures the stream, it is only queued.

        Args:
            addresses: What the program reads and writes, in the order of its names.
            device: Of its tensors.
            packed: The weights that it packs, in the order of `packed_names`.
            packed_addresses: Their addresses, if the caller has them.

        Raises:
            CaptureError: there is something to pack while PyTorch captures the stream.
        """
        current = current_stream(device)
        stream, is_capturing = current.handle(), current.is_capturing()
        if packed:
            found = packed_addresses if packed_addresses is not None else map(Tensor.data_ptr, packed)
            self._pack(packed, tuple(found), stream, is_capturing)
        run = self._addressed.queue if is_capturing else self._addressed.run
        run(addresses, stream)

    def _pack(
        self, tensors: Sequence[Tensor], addresses: tuple[int, ...], stream: int, is_capturing: bool
    ) -> None:
        versions = _versions(tensors)
        if (
            addresses == self._addresses
            and versions == self._versions
            and self._generation == self._copies.generation
            and not any(map(_is_freed, self._references))
        ):
            return
        if is_capturing:
            raise CaptureError(
                "parameters have changed since they were packed; call the model once before capturing it"
            )
        self._generation = -1
        storages = [tensor.untyped_storage() for tensor in tensors]
        stamps = zip(map(_identity, storages), addresses, versions, strict=True)
        generation = self._copies.note(dict(zip(self._keys, stamps, strict=True)))
        self._addressed.prepare(dict(zip(self.packed_names, addresses, strict=True)), stream)
        # While these references are there, no other storage has the identity of one that was freed.
        self._storages = [StorageWeakRef(storage) for storage in storages]
        self._references = list(map(_reference, self._storages))
        self._addresses, self._versions, self._generation = addresses, versions, generation


watch_fused_optimizers()  # else packed copies of their parameters would go stale
