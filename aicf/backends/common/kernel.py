"""`Kernel`: what every kernel of every backend says of itself, with defaults for what few of them need to say.

A kernel is stateless, and importing it imports no code generator. It decides (`schedule`), writes its decisions into
a record (`record_of`), and reads them from a record (`read`), which may have been edited by hand.
"""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

from xdsl.ir import Attribute

from aicf.backends.common.record import (
    ROUNDINGS,
    Record,
    RecordCodec,
    RecordError,
    contradiction,
    read_entry,
    unoffered,
)
from aicf.backends.common.workload import Workload
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.errors import BackendUnavailable, PlanError

Schedule = TypeVar("Schedule")
"""The decisions of a kernel about one piece of work, a data class; None where nothing is decided."""


class Kernel(ABC, Generic[Schedule]):
    """One kernel of a backend; a subclass sets these attributes. One that is several kernels is a frozen data class."""

    id: str
    """Unique, `backend.name`."""
    version: int = 1
    """Raised whenever the code or the meaning of the record changes."""
    kinds: frozenset[str]
    """Opcodes that it may run."""
    library: str = ""
    """What a kernel policy calls it where it names kernels by family, as in `matmul: cublasLt`: the library that it
    calls, or how it computes. Kernels may share a name; one without a name is chosen by `kernels` alone."""
    algorithms: tuple[str, ...] = ()
    """Names that such a policy may give instead, for one way that it has: values of the entry `algorithm` of its
    record."""
    simplicity: int = 0
    """Rank that breaks ties: lower is simpler."""
    determinism: str = "bitwise"
    """`bitwise` (the same bits always) or `unordered`."""
    row_bytes: int = 1
    """What it copies at once: it runs, or runs best, where every row of a matrix begins at a multiple of so many bytes.
    A power of 2, of at least the bytes of an element if it is not 1."""
    codec: RecordCodec[Schedule]
    """Of its decisions, where all of them are entries of the record; others override `read`."""
    device_fields: Mapping[str, Attribute] = MappingProxyType({})
    """The entries of its record that only a device can give, by measuring, such as the bytes of a library's algorithm;
    each with what stands in its place until then (for `workspace_bytes` the most it may be). A kernel with such entries
    is not legal without a measurement, or what `propose_on_device` gives. `record` gives the other entries."""

    @property
    def code_generator(self) -> str:
        """The module that turns its record into code, `codegen` beside it; loaded when code is made."""
        return f"{type(self).__module__.rpartition('.')[0]}.codegen"

    def is_for(self, work: Workload) -> bool:
        """Whether it is of the kind of `work`; others are not asked, and nothing is said against them."""
        return work.kind in self.kinds

    @abstractmethod
    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """None if it can run `work` on `target`, else the reason in a user's words."""

    @abstractmethod
    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """Predicted microseconds on `target`, of the record that `record` gives. Only for legal work."""

    @abstractmethod
    def schedule(self, work: Workload, target: TargetAttr) -> Schedule:
        """The decisions that are predicted to take least. Only for legal work."""

    @abstractmethod
    def record_of(self, work: Workload, target: TargetAttr, schedule: Schedule) -> dict[str, Attribute]:
        """The record of decisions, without `version` and `determinism`: all that a launch needs.

        May hold `layouts`: an array with one entry an operand, `unit` for plain memory or the `LayoutAttr` it needs
        prepared; `workspace_bytes` (i64); and `may_alias`, an array of [result, operand] pairs that may share bytes.
        """

    def read(self, work: Workload, record: Record, target: TargetAttr) -> Schedule:
        """The decisions of a record. Raises RecordError that names the entry and its legal values if it holds none."""
        return self.codec.read(record)

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Schedule) -> str | None:
        """Why decisions that were read cannot be carried out for `work` on `target`; None if they can."""
        return None

    def tolerates(self, target: TargetAttr, key: str, record: Record, expected: Record) -> bool:
        """Whether entry `key` of a record, which follows from its decisions, may be other than it is in `expected`."""
        return False

    def record(self, work: Workload, target: TargetAttr) -> dict[str, Attribute]:
        """The record of the decisions that are predicted to take least."""
        return self.record_of(work, target, self.schedule(work, target))

    def checked_record(self, work: Workload, record: Record, target: TargetAttr) -> dict[str, Attribute]:
        """The record of the decisions that `record` holds, as this kernel writes it.

        Operands that the record reads early have the role `const`; which of them may be is not asked here.

        Raises:
            RecordError: the record cannot run `work` on `target`; the message names the entry and its legal values.
        """
        try:
            if "rounding" in record:
                read_entry(record, "rounding", ROUNDINGS)
            schedule = self.read(work, record, target)
            if (reason := self.schedule_reason(work, target, schedule)) is not None:
                raise RecordError(reason)
        except RecordError as error:
            offered = unoffered(record, self.variants(work, target))
            if offered is None or "legal: " in error.message:
                raise
            raise RecordError(f"{error.message}; {offered}") from error
        expected = self.record_of(work, target, schedule)
        wrong = contradiction(record, expected, partial(self.tolerates, target))
        if wrong is not None:
            raise RecordError(wrong)
        return expected

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Record]:
        """The records that it offers for `work`, the most promising first: the first is what `record` gives.

        All have the same entries. A measurement finds its variant by the entries whose values differ, so the records
        may only depend on `work` and `target`, and other variants mean another `version`. Only for legal work.
        """
        return [self.record(work, target)]

    def threads_us(self, work: Workload, target: TargetAttr) -> Mapping[int, float]:
        """Predicted microseconds by number of threads, for each number that was weighed; `record` has the best. Empty
        if threads do not share its work. Only for legal work."""
        return {}

    def other_algorithms(self, work: Workload, record: Record, target: TargetAttr) -> Mapping[str, str]:
        """The reason against each algorithm but that of `record`, one of those it gives; empty if it knows one alone.
        Only for legal work."""
        return {}

    def unfused_us(self, work: Workload, target: TargetAttr) -> float | None:
        """Predicted microseconds of `work` as instructions of their own, infinite where it is always fused.

        A fusion is formed if it is predicted to take no longer than its parts. None is for kernels of which every
        fusion is formed. Only for legal work.
        """
        return None

    def fixed_order(self, work: Workload, target: TargetAttr) -> str | None:
        """In which order it combines the terms of a result element, whatever the batch; None if that may vary.

        For work that is `batch_invariant` every record of a kernel that gives an order combines terms in it: it follows
        from their number, their types and the target, never from the sizes over which nothing is summed, nor from
        strides that change with them. Two kernels with the same order give the same bits. Whether a kernel is legal may
        not depend on these sizes either, unless whatever it runs is legal for another one with the same order, to which
        they do not matter. Only for legal work.
        """
        return None

    def propose_on_device(self, work: Workload, target: TargetAttr) -> Record:
        """The `device_fields` as the device of this machine proposes them, without a measurement. Only for legal work.

        Raises BackendUnavailable: this machine is not the target, or has no such device or library.
        """
        raise BackendUnavailable(f"kernel '{self.id}' has to be measured; run aicf tune on the device")

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """The record of the instruction that packs `operand` into `layout`, in `@prepare`.

        Raises PlanError: this kernel reads plain memory.
        """
        raise PlanError(f"kernel '{self.id}' reads plain memory: its record must not ask for a layout")


class UndecidedKernel(Kernel[None]):
    """A kernel that decides nothing: its record follows from the work and the target."""

    def schedule(self, work: Workload, target: TargetAttr) -> None:
        """See `Kernel`: there is nothing to decide."""

    def read(self, work: Workload, record: Record, target: TargetAttr) -> None:
        """See `Kernel`: there is nothing to read."""


AnyKernel: TypeAlias = Kernel[Any]
"""A kernel whatever its decisions are."""

EARLY_READS = "early_reads"
"""Entry of the record of a kernel that waits for its predecessors itself: the operands it reads before it does."""
TRIGGERS = "triggers"
"""Entry of a record: whether the kernel lets its successors start before it ends."""


def kernels_below(package: str) -> tuple[AnyKernel, ...]:
    """The kernels of a backend: those in `KERNELS` of every module named `kernel` below a package, the most special
    first."""
    found: list[AnyKernel] = []
    for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
        if module.name.endswith(".kernel"):
            found += import_module(module.name).KERNELS
    return tuple(sorted(found, key=lambda kernel: (-kernel.simplicity, kernel.id)))
