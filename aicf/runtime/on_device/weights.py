"""Weights on a device that several executables of one model read: each is uploaded once, and given back with the last
executable that uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

from aicf.runtime.capture_plan import ModulePlan
from aicf.runtime.on_device.memory import Block
from aicf.runtime.store import CommonKey
from aicf.runtime.tensors import Array


@dataclass(eq=False)
class Resident:
    """Bytes on the device, there as long as somebody refers to this.

    Args:
        block: The allocation that they are a part of.
        address: Where they are.
        source: The host's array that they are a copy of, None if they were made on the device. While it is kept, no
            other array has its address.
    """

    block: Block
    address: int
    source: Array | None


class DeviceWeights:
    """What is on one device for the executables of one model, by what tells that two are the same.

    Args:
        packing_keys: By derived bind of a plan, what its bytes follow from beside the values of the weights, which are
            those of the model. Without it every executable packs its own.
    """

    def __init__(self, packing_keys: Callable[[ModulePlan], Mapping[str, str]] | None = None) -> None:
        self.lock = threading.RLock()
        """Held while somebody looks what is there, and makes what is not."""
        self._packing_keys = packing_keys
        self._residents: WeakValueDictionary[CommonKey, Resident] = WeakValueDictionary()

    def packing_keys(self, plan: ModulePlan) -> Mapping[str, str]:
        """See the argument; nothing if executables share nothing that is packed."""
        return {} if self._packing_keys is None else self._packing_keys(plan)

    def find(self, key: CommonKey) -> Resident | None:
        """What is there under a key."""
        return self._residents.get(key)

    def keep(self, key: CommonKey, resident: Resident) -> None:
        """Offers it to others, as long as somebody refers to it."""
        self._residents[key] = resident
