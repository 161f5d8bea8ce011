"""The update of many tensors by one launch: what it can run, what it would cost, and the record of its decisions.

A block looks up in a table in device memory which part it has, and which elements of it. No code generator is imported
here; `update_code.py` turns records into code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import Work
from aicf.backends.common.record import Record, integer
from aicf.backends.cuda.generated_kernels import (
    DETERMINISM,
    VERSION,
    code_reason,
    operand_reason,
)
from aicf.backends.cuda.records import CudaKernel, Shape, integers, read_integer, read_integers, start_entries
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch, arch_named
from aicf.backends.cuda.vector_access import PIECE_BYTES
from aicf.backends.nests import overwritable
from aicf.backends.updates import (
    KINDS,
    numbers_code,
    overwritten,
    same_type,
    update_of_work,
    update_reason,
)
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.emit_updates import Part, Update

_LATENCY_US = 2.2
"""Of one launch with its look-up: by itself a small update takes as long on an H100."""


@dataclass(frozen=True)
class UpdateSpec:
    """The decisions about an update.

    Args:
        vectors: Elements that a thread handles as one, of each part.
        threads: Of a block.
        unroll: Vectors of a thread.
    """

    vectors: tuple[int, ...]
    threads: int = 256
    unroll: int = 1

    def problem(self, update: Update, limits: Sequence[int]) -> str | None:
        """Why these decisions do not fit an update whose parts have vectors of at most `limits`; None if they do."""
        if len(self.vectors) != len(update.parts):
            return f"it has vectors for {len(self.vectors)} parts, the body has {len(update.parts)}"
        for vector, limit in zip(self.vectors, limits, strict=True):
            if vector < 1 or vector & (vector - 1) or vector > limit:
                return f"a vector of {vector} elements where at most {limit} lie side by side and aligned"
        if self.threads % 32 or not 32 <= self.threads <= 1024 or not 1 <= self.unroll <= 8:
            return "a size is out of range"
        return None

    def blocks(self, part: Part, vector: int) -> int:
        """Blocks that one part takes."""
        return -(-(part.elements // vector) // (self.threads * self.unroll))


def vector_limits(
    update: Update,
    places: Sequence[tuple[str, int]],
    results: Sequence[tuple[str, int]],
) -> list[int]:
    """The most elements of each part that one access may take.

    Args:
        places, results: Element type of each operand and result, and bytes from an aligned address to its start.
    """
    limits: list[int] = []
    for part in update.parts:
        own = [*(places[i] for i in part.operands), *(results[i] for i in part.results)]
        vector = max(PIECE_BYTES // ELEMENT_BYTES[dtype] for dtype, _ in own)
        while vector > 1 and (vector > part.elements or not all(_is_aligned(*each, vector) for each in own)):
            vector //= 2
        limits.append(vector)
    return limits


def _is_aligned(dtype: str, offset: int, vector: int) -> bool:
    return offset % min(PIECE_BYTES, vector * ELEMENT_BYTES[dtype]) == 0


@dataclass(frozen=True)
class MultiTensorKernel(CudaKernel[UpdateSpec]):
    """All parts in one launch; the last block that has read the numbers of all of them writes their new values."""

    id: str = "cuda.multi_tensor"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 0
    kinds: frozenset[str] = KINDS

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        if (reason := operand_reason(work) or update_reason(work)) is not None:
            return reason
        assert work.code is not None
        return code_reason(work.code)

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`: every operand is read once and every result written once."""
        arch, update = arch_named(target.arch.data), update_of_work(work)
        parts = [[work.operands[i] for i in part.operands] for part in update.parts]
        parts += [[work.results[i] for i in part.results] for part in update.parts]
        sizes = [part.elements for part in update.parts] * 2
        moved = sum(
            size * ELEMENT_BYTES[info.dtype]
            for size, infos in zip(sizes, parts, strict=True)
            for info in infos
        )
        return _LATENCY_US + moved / arch.bandwidth_gbs / 1e3

    def schedule(self, work: Work, target: TargetAttr) -> UpdateSpec:
        """See `Kernel`."""
        return _chosen(work, arch_named(target.arch.data))

    def record_of(self, work: Work, target: TargetAttr, schedule: UpdateSpec) -> dict[str, Attribute]:
        """See `Kernel`."""
        assert work.code is not None
        arch, update = arch_named(target.arch.data), update_of_work(work)
        blocks = sum(schedule.blocks(part, v) for part, v in zip(update.parts, schedule.vectors, strict=True))
        entries: dict[str, Attribute] = {
            "vectors": integers(schedule.vectors),
            "unroll": integer(schedule.unroll),
            **Shape((blocks, 1, 1), (schedule.threads, 1, 1)).entries(),
            "rounding": StringAttr(work.rounding),
            **start_entries(arch),
        }
        pairs = overwritten(work.code, update)
        if (numbers := numbers_code(work.code, update)) is not None:
            pairs += [
                (update.scalar_results[output], update.scalars[place])
                for output, place in overwritable(numbers)
            ]
        entries["may_alias"] = ArrayAttr([integers(pair) for pair in same_type(pairs, work)])
        return entries

    def read(self, work: Work, record: Record, target: TargetAttr) -> UpdateSpec:
        """See `Kernel`."""
        return read_spec(record)

    def schedule_reason(self, work: Work, target: TargetAttr, schedule: UpdateSpec) -> str | None:
        """See `Kernel`."""
        return schedule.problem(update_of_work(work), _limits(work))

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """See `BatchInvariantKernel`: nothing is combined."""
        return "none"


def _chosen(work: Work, arch: GpuArch) -> UpdateSpec:
    """Vectors of 16 bytes of the widest operand of a part, two for each thread where that leaves every multiprocessor
    two blocks: fewer blocks then look up their part and compute the numbers."""
    update, limits = update_of_work(work), _limits(work)
    vectors = tuple(
        min(limit, PIECE_BYTES // _widest(work, part))
        for part, limit in zip(update.parts, limits, strict=True)
    )
    two = UpdateSpec(vectors, unroll=2)
    blocks = sum(two.blocks(part, vector) for part, vector in zip(update.parts, vectors, strict=True))
    return two if blocks >= 2 * arch.multiprocessors else UpdateSpec(vectors)


def _widest(work: Work, part: Part) -> int:
    """Bytes of the widest element of a part."""
    own = [*(work.operands[i] for i in part.operands), *(work.results[i] for i in part.results)]
    return max(ELEMENT_BYTES[info.dtype] for info in own)


def _limits(work: Work) -> list[int]:
    operands, results = (
        [(info.dtype, info.offset * ELEMENT_BYTES[info.dtype]) for info in infos]
        for infos in (work.operands, work.results)
    )
    return vector_limits(update_of_work(work), operands, results)


def read_spec(record: Record) -> UpdateSpec:
    """The decisions of a record. Raises RecordError if it lacks one."""
    threads, _, _ = read_integers(record, "block", 3)
    return UpdateSpec(read_integers(record, "vectors"), threads, read_integer(record, "unroll"))


KERNELS = (MultiTensorKernel(),)
"""The kernels of this family."""
