"""`Kernel`: what every kernel of every backend says of itself, with defaults for what few of them need to say.

A kernel is stateless, and importing it imports no code generator. It decides (`schedule`), writes its decisions into
a record (`record_of`), and reads them from a record (`read`), which may have been edited by hand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Generic, TypeVar

from xdsl.ir import Attribute

from aicf.backends.base import TunableKernel, Work
from aicf.backends.common.record import ROUNDINGS, Record, RecordError, contradiction, read_entry, unoffered
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.errors import PlanError

Schedule = TypeVar("Schedule")
"""The decisions of a kernel about one piece of work, a data class; None where nothing is decided."""


class Kernel(ABC, Generic[Schedule]):
    """One kernel of a backend; a subclass is a frozen data class with these fields."""

    id: str
    """Unique, `backend.name`."""
    version: int
    """Raised whenever the code or the meaning of the record changes."""
    kinds: frozenset[str]
    """Opcodes that it may run."""
    simplicity: int
    """Rank that breaks ties: lower is simpler."""
    determinism: str
    """`bitwise` (the same bits always) or `unordered`."""

    @abstractmethod
    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """None if it can run `work` on `target`, else the reason in a user's words."""

    @abstractmethod
    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """Predicted microseconds on `target`, of the record that `record` gives. Only for legal work."""

    @abstractmethod
    def schedule(self, work: Work, target: TargetAttr) -> Schedule:
        """The decisions that are predicted to take least. Only for legal work."""

    @abstractmethod
    def record_of(self, work: Work, target: TargetAttr, schedule: Schedule) -> dict[str, Attribute]:
        """The record of decisions, without `version` and `determinism`: all that a launch needs.

        May hold `layouts`: an array with one entry an operand, `unit` for plain memory or the `LayoutAttr` it needs
        prepared; `workspace_bytes` (i64); and `may_alias`, an array of [result, operand] pairs that may share bytes.
        """

    @abstractmethod
    def read(self, work: Work, record: Record, target: TargetAttr) -> Schedule:
        """The decisions of a record. Raises RecordError that names the entry and its legal values if it holds none."""

    def schedule_reason(self, work: Work, target: TargetAttr, schedule: Schedule) -> str | None:
        """Why decisions that were read cannot be carried out for `work` on `target`; None if they can."""
        return None

    def tolerates(self, target: TargetAttr, key: str, record: Record, expected: Record) -> bool:
        """Whether entry `key` of a record, which follows from its decisions, may be other than it is in `expected`."""
        return False

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """The record of the decisions that are predicted to take least."""
        return self.record_of(work, target, self.schedule(work, target))

    def checked_record(self, work: Work, record: Record, target: TargetAttr) -> dict[str, Attribute]:
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

    def variants(self, work: Work, target: TargetAttr) -> Sequence[Record]:
        """The records that it offers for `work`, the most promising first. Only for legal work."""
        if isinstance(self, TunableKernel):
            return self.candidates(work, target)
        return [self.record(work, target)]

    def prepare(self, work: Work, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """The record of the instruction that packs `operand` into `layout`, in `@prepare`.

        Raises PlanError: this kernel reads plain memory.
        """
        raise PlanError(f"kernel '{self.id}' reads plain memory: its record must not ask for a layout")
