"""Entries that the kernel records of this backend share: descriptors write them here, emitters read them here.

A record is the decision, not a description of it: how a kernel is launched (`grid`, `block`, `cluster`,
`shared_bytes`) and how it starts (`early_reads`, `triggers`) is read back from it, and worked out nowhere else. One
that was edited by hand may disagree with itself: `contradiction` compares it with what its decisions ask for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from aicf.backends.base import EARLY_READS, TRIGGERS, OperandInfo, Work
from aicf.backends.cuda.code import KernelCode
from aicf.backends.cuda.device_program import Address, Scalar, Table, TensorMap
from aicf.backends.cuda.launches import KernelLaunch, Triple
from aicf.backends.cuda.scalar_code import Rounding
from aicf.backends.cuda.target import GpuArch
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.dialects.plain_values import plain_value
from aicf.errors import PlanError

Record = Mapping[str, Attribute]
_AGAIN = "run select-kernels again"


# Values


@cache
def integer(value: int) -> IntegerAttr:
    """An i64 attribute; each is made and verified once, for the many variants that a kernel offers."""
    return IntegerAttr(value, i64)


def integers(values: Iterable[int]) -> ArrayAttr[IntegerAttr]:
    """An array of i64 attributes."""
    return ArrayAttr([integer(value) for value in values])


def read_integer(record: Record, key: str) -> int:
    """An integer entry. Raises PlanError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, IntegerAttr):
        raise PlanError(f"kernel record lacks the integer '{key}': {_AGAIN}")
    return value.value.data


def read_flag(record: Record, key: str) -> bool:
    """A bool entry. Raises PlanError if the record lacks it."""
    value = record.get(key)
    if value not in (BoolAttr.from_bool(True), BoolAttr.from_bool(False)):
        raise PlanError(f"kernel record lacks '{key}', true or false: {_AGAIN}")
    return value == BoolAttr.from_bool(True)


def read_integers(record: Record, key: str, count: int | None = None) -> tuple[int, ...]:
    """An array of integers, `count` of them if that is given. Raises PlanError if the record lacks it."""
    value = record.get(key)
    entries = cast("ArrayAttr[Attribute]", value).data if isinstance(value, ArrayAttr) else (None,)
    found = tuple(entry.value.data for entry in entries if isinstance(entry, IntegerAttr))
    if len(found) != len(entries) or count not in (None, len(found)):
        raise PlanError(f"kernel record lacks '{key}', {count or 'an array of'} integers: {_AGAIN}")
    return found


def read_text(record: Record, key: str) -> str:
    """A string entry. Raises PlanError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, StringAttr):
        raise PlanError(f"kernel record lacks the string '{key}': {_AGAIN}")
    return value.data


def read_rounding(record: Record) -> Rounding:
    """Where f16 and bf16 values are rounded. Raises PlanError if the record does not say."""
    value = read_text(record, "rounding")
    if value not in ("fused", "strict"):
        raise PlanError(f"kernel record: 'rounding' must be fused or strict, not '{value}': {_AGAIN}")
    return value


# How a kernel is launched


@dataclass(frozen=True)
class Shape:
    """The sizes of one launch.

    Args:
        grid, block, cluster: In blocks, threads and blocks.
        shared_bytes: Dynamic shared memory of a block.
    """

    grid: Triple
    block: Triple
    cluster: Triple = (1, 1, 1)
    shared_bytes: int = 0

    def entries(self) -> dict[str, Attribute]:
        """As a record states it."""
        return {
            "grid": integers(self.grid),
            "block": integers(self.block),
            "cluster": integers(self.cluster),
            "shared_bytes": integer(self.shared_bytes),
        }

    def launch(
        self, code: KernelCode, arguments: tuple[Address | TensorMap | Table | Scalar, ...]
    ) -> KernelLaunch:
        """The launch of `code` in this shape."""
        return KernelLaunch(code, arguments, self.grid, self.block, self.cluster, self.shared_bytes)


def read_triple(record: Record, key: str) -> Triple:
    """Three integers. Raises PlanError if the record lacks them."""
    x, y, z = read_integers(record, key, 3)
    return x, y, z


def read_shape(record: Record) -> Shape:
    """The launch that a record states. Raises PlanError if it lacks a part of it."""
    grid, block, cluster = (read_triple(record, key) for key in ("grid", "block", "cluster"))
    return Shape(grid, block, cluster, read_integer(record, "shared_bytes"))


# How a kernel starts

_NEVER_WRITTEN = frozenset({"param", "const", "derived"})


def is_never_written(operand: OperandInfo) -> bool:
    """Whether nothing writes an operand while the program runs: it may be read before the kernels in front are done."""
    return operand.role in _NEVER_WRITTEN and not operand.updated


def start_entries(arch: GpuArch, early_reads: Iterable[int] = ()) -> dict[str, Attribute]:
    """What a kernel says about its start where there is programmatic launch: it waits for the kernels in front after
    the reads of `early_reads`, and lets its successors start at once. Elsewhere nothing."""
    if not arch.has_programmatic_launch:
        return {}
    return {EARLY_READS: integers(early_reads), TRIGGERS: BoolAttr.from_bool(True)}


def is_programmatic(record: Record) -> bool:
    """Whether the kernel waits for the kernels in front and lets its successors start early: always both or neither.

    Raises PlanError if the record says one without the other.
    """
    triggers = record.get(TRIGGERS) == BoolAttr.from_bool(True)
    if triggers != (EARLY_READS in record):
        raise PlanError(f"kernel record: '{EARLY_READS}' and '{TRIGGERS}' go together: {_AGAIN}")
    return triggers


def read_early(record: Record) -> tuple[int, ...]:
    """Numbers of the operands that are read before the wait."""
    return read_integers(record, EARLY_READS) if is_programmatic(record) else ()


class PlainOperands:
    """A kernel whose records ask for no prepared layout."""

    id: str

    def prepare(self, work: Work, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `KernelDescriptor`; never reached by a record of this kernel."""
        raise PlanError(f"kernel '{self.id}' reads plain memory: its record must not ask for a layout")


# Records that were edited

_OF_EVERY_RECORD = ("version", "determinism")
_IN_THE_PROGRAM = ("may_alias", "layouts")
"""Entries that the program around an instruction holds once it is lowered."""


def size_reason(spec: object) -> str | None:
    """Why the numbers of a spec, a data class, can be none; None if they can. Stages are buffers that are filled while
    others are read: two at least."""
    for name, value in vars(spec).items():
        least = 2 if name == "stages" else 1
        if isinstance(value, int) and not isinstance(value, bool) and value < least:
            return f"{name} is {value}, it must be {least} or more"
    return None


def contradiction(record: Record, expected: Record, arch: GpuArch) -> str | None:
    """The first entry of a record that is not as its decisions ask for, in words; None if there is none.

    Args:
        expected: The record of the same decisions about the same work, as its descriptor writes it. The record may
            only give a block more shared memory, up to what `arch` has, and fewer blocks to a multiprocessor.

    Raises PlanError if its rounding is none.
    """
    read_rounding(record)
    for key in dict.fromkeys((*expected, *record)):
        if key in _OF_EVERY_RECORD or key in _IN_THE_PROGRAM or record.get(key) == expected.get(key):
            continue
        if key not in record:
            return f"it lacks '{key}', here {plain_value(expected[key])}"
        if key not in expected:
            return f"it has an entry '{key}', which means nothing here"
        if (
            key == "shared_bytes"
            and read_integer(expected, key) <= read_integer(record, key) <= arch.shared_bytes
        ):
            continue
        if key == "blocks_per_sm" and 1 <= read_integer(record, key) <= read_integer(expected, key):
            continue
        return (
            f"its '{key}' is {plain_value(record[key])}, the rest of it asks for {plain_value(expected[key])}"
        )
    return None
