"""Entries that the kernel records of this backend share: descriptors write them here, emitters read them here.

A record is the decision, not a description of it: how a kernel is launched (`grid`, `block`, `cluster`,
`shared_bytes`) and how it starts (`early_reads`, `triggers`) is read back from it, and worked out nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntegerAttr
from xdsl.ir import Attribute

from aicf.backends.common.kernel import EARLY_READS, TRIGGERS, Kernel, Schedule
from aicf.backends.common.record import (
    ROUNDINGS,
    Record,
    RecordError,
    Whole,
    integer,
    read_entry,
    read_integer,
)
from aicf.backends.common.workload import OperandInfo
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.json_values import json_value

Triple = tuple[int, int, int]
Rounding = Literal["fused", "strict"]
"""Whether f16 and bf16 values are rounded where they are stored and cast, or after every op."""

# Legal values

BLOCK_THREADS = 1024
"""Most threads of a block."""
CLUSTER_BLOCKS = 8
"""Of the largest cluster that every GPU with clusters runs."""
STAGES = Whole(2, 8)
"""Buffers in shared memory: one is filled while others are read."""
BAND = Whole(1, 1024)
"""Tiles below each other before the next column of tiles."""
ONE = Whole(1, 1)

# Values


def integers(values: Iterable[int]) -> ArrayAttr[IntegerAttr]:
    """An array of i64 attributes."""
    return ArrayAttr([integer(value) for value in values])


def read_flag(record: Record, key: str) -> bool:
    """A bool entry. Raises RecordError if the record lacks it."""
    value = record.get(key)
    if value not in (BoolAttr.from_bool(True), BoolAttr.from_bool(False)):
        raise RecordError(f"it lacks '{key}', true or false")
    return value == BoolAttr.from_bool(True)


def read_integers(record: Record, key: str, count: int | None = None) -> tuple[int, ...]:
    """An array of integers, `count` of them if that is given. Raises RecordError if the record lacks it."""
    value = record.get(key)
    entries = cast("ArrayAttr[Attribute]", value).data if isinstance(value, ArrayAttr) else (None,)
    found = tuple(entry.value.data for entry in entries if isinstance(entry, IntegerAttr))
    if len(found) != len(entries) or count not in (None, len(found)):
        raise RecordError(f"it lacks '{key}', {count or 'an array of'} integers")
    return found


def read_rounding(record: Record) -> Rounding:
    """Where f16 and bf16 values are rounded. Raises RecordError if the record does not say."""
    return read_entry(record, "rounding", ROUNDINGS)


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


def read_triple(record: Record, key: str) -> Triple:
    """Three integers. Raises RecordError if the record lacks them."""
    x, y, z = read_integers(record, key, 3)
    return x, y, z


def read_shape(record: Record) -> Shape:
    """The launch that a record states. Raises RecordError if it lacks a part of it."""
    grid, block, cluster = (read_triple(record, key) for key in ("grid", "block", "cluster"))
    return Shape(grid, block, cluster, read_integer(record, "shared_bytes"))


# How a kernel starts

_NEVER_WRITTEN = frozenset({"param", "const", "derived"})


def is_never_written(operand: OperandInfo) -> bool:
    """Whether nothing writes an operand while the program runs: it may be read before earlier kernels are done."""
    return operand.role in _NEVER_WRITTEN and not operand.updated


def start_entries(arch: GpuArch, early_reads: Iterable[int] = ()) -> dict[str, Attribute]:
    """What a kernel says about its start where there is programmatic launch: it waits for its predecessors
    after the reads of `early_reads`, and lets its successors start at once. Elsewhere nothing."""
    if not arch.has_programmatic_launch:
        return {}
    return {EARLY_READS: integers(early_reads), TRIGGERS: BoolAttr.from_bool(True)}


def is_programmatic(record: Record) -> bool:
    """Whether the kernel waits for its predecessors and lets its successors start early: always both or neither.

    Raises RecordError if the record says one without the other.
    """
    triggers = record.get(TRIGGERS) == BoolAttr.from_bool(True)
    if triggers != (EARLY_READS in record):
        raise RecordError(f"its '{EARLY_READS}' and '{TRIGGERS}' go together")
    return triggers


def read_early(record: Record) -> tuple[int, ...]:
    """Numbers of the operands that are read before the wait."""
    return read_integers(record, EARLY_READS) if is_programmatic(record) else ()


# Records that were edited


class CudaKernel(Kernel[Schedule]):
    """A kernel of this backend: a record may give a block more shared memory, up to what the device has, and a
    multiprocessor fewer blocks."""

    def tolerates(self, target: TargetAttr, key: str, record: Record, expected: Record) -> bool:
        if key == "shared_bytes":
            legal = Whole(read_integer(expected, key), arch_named(target.arch.data).shared_bytes)
        elif key == "blocks_per_sm":
            legal = Whole(1, read_integer(expected, key))
        else:
            return False
        return legal.holds(json_value(record[key]))
