"""`LibraryKernel`: a kernel whose record is the whole call of a library, but for what only the device knows.

A library's algorithms are valid for one version of it, and only a device can list them: such a kernel is legal where a
tuning table has measured some, or where a policy asks for it on the machine itself, by the library's heuristic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from xdsl.ir import Attribute

from aicf.backends.common.record import (
    Entry,
    Record,
    RecordCodec,
    Text,
    Whole,
    read_entry,
    read_integer,
)
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.library.call import WORKSPACE, LibraryFunction
from aicf.backends.cuda.families.records import CudaKernel
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.json_values import attribute_of

_MEASURED = Text("text that aicf tune reads from the device")


@dataclass(frozen=True)
class Algorithm:
    """What only the device knows.

    Args:
        algorithm: The text by which the library finds it.
        library: The version of the library.
        workspace_bytes: What the algorithm asks for at most.
    """

    algorithm: Annotated[str, Entry(_MEASURED)]
    library: Annotated[str, Entry(_MEASURED)]
    workspace_bytes: Annotated[int, Entry(Whole(0))]


CODEC = RecordCodec(Algorithm)


def unmeasured(most_workspace_bytes: int) -> dict[str, Attribute]:
    """`Kernel.device_fields` of a kernel whose algorithms may ask for so much workspace."""
    return CODEC.entries(Algorithm("", "", most_workspace_bytes))


class LibraryKernel(CudaKernel[Algorithm | None]):
    """A kernel that is one call. A subclass adds `library`, `kinds`, `device_fields` as `unmeasured` gives them, what
    is legal and costs, and its record."""

    function: ClassVar[LibraryFunction]
    """What it calls."""
    result: ClassVar[str]
    """What the call names its result; the record's entry `operands` has the others."""

    def schedule(self, work: Workload, target: TargetAttr) -> None:
        """See `Kernel`: only the device knows the values of `device_fields`."""

    def propose_on_device(self, work: Workload, target: TargetAttr) -> Record:
        """See `Kernel`: the first algorithm that the library's heuristic offers on this machine."""
        from aicf.backends.cuda.families.library.heuristic import proposal

        record = {**self.record(work, target), **self.device_fields}
        found = proposal(record, target, self.function, self.result)
        return {name: attribute_of(value) for name, value in found.items()}

    def read(self, work: Workload, record: Record, target: TargetAttr) -> Algorithm:
        """See `Kernel`: what the device gave."""
        most = read_integer(self.device_fields, WORKSPACE)
        read_entry(record, WORKSPACE, Whole(0, most))
        return CODEC.read(record)


def device_entries(schedule: Algorithm | None) -> dict[str, Attribute]:
    """The entries of a record that the device gave; none if it was not asked."""
    return {} if schedule is None else CODEC.entries(schedule)
