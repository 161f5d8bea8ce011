"""The update of many tensors by one launch: what it can run, what it would cost, and the record of its decisions.

A block looks up in a table in device memory which part it has, and which elements of it. No code generator is imported
here; `codegen.py` turns records into code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import le
from typing import Annotated

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import BufferRef
from aicf.backends.common.loop_nest import overwritable
from aicf.backends.common.multi_tensor import (
    Turn,
    numbers_code,
    overwritten,
    same_type,
    turn_of,
    update_of_work,
    update_reason,
)
from aicf.backends.common.record import (
    Each,
    Entry,
    Record,
    RecordCodec,
    Whole,
    illegal,
    powers_of_two,
    read_list,
)
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.loops.kernel import (
    code_reason,
    operand_reason,
)
from aicf.backends.cuda.families.records import BLOCK_THREADS, ONE, CudaKernel, Shape, integers, start_entries
from aicf.backends.cuda.target import ELEMENT_BYTES, PIECE_BYTES, GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.emit_updates import Part, Update
from aicf.dialects.kinds import UPDATES

_TURNED = 2
"""Elements of a part that a thread brings from row-major to channels-last memory together: they lie a window apart, and
a warp that reads more of them reads as many lines for each."""
_WORD = 4
"""Bytes of an element of what is turned: a register each."""
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

    vectors: Annotated[tuple[int, ...], Entry(Each(powers_of_two(1, PIECE_BYTES)))]
    threads: int = 256
    unroll: Annotated[int, Entry(Whole(1, 8))] = 1

    def problem(self, update: Update, limits: Sequence[int]) -> str | None:
        """Why these decisions do not fit an update whose parts have vectors of at most `limits`; None if they do."""
        count = len(update.parts)
        fits = len(self.vectors) == count and all(map(le, self.vectors, limits))
        legal = f"{count} values, at most {list(limits)}, which lie side by side and aligned"
        return None if fits else f"its {illegal('vectors', list(self.vectors), legal)}"

    def blocks(self, part: Part, vector: int) -> int:
        """Blocks that one part takes."""
        return -(-(part.elements // vector) // (self.threads * self.unroll))


def vector_limits(
    update: Update,
    operands: Sequence[tuple[str, int]],
    results: Sequence[tuple[str, int]],
    turns: Sequence[Turn | None],
) -> list[int]:
    """The most elements of each part that one access may take.

    Args:
        operands, results: Element type of each operand and result, and bytes from an aligned address to its start.
        turns: How each part is turned.
    """
    limits: list[int] = []
    for part, turn in zip(update.parts, turns, strict=True):
        own = [*(operands[i] for i in part.operands), *(results[i] for i in part.results)]
        vector = max(PIECE_BYTES // ELEMENT_BYTES[dtype] for dtype, _ in own) if turn is None else _TURNED
        while vector > 1 and (vector > part.elements or not all(_is_aligned(*each, vector) for each in own)):
            vector //= 2
        limits.append(vector)
    return limits


def _is_aligned(dtype: str, offset: int, vector: int) -> bool:
    return offset % min(PIECE_BYTES, vector * ELEMENT_BYTES[dtype]) == 0


class MultiTensorKernel(CudaKernel[UpdateSpec]):
    """All parts in one launch; the last block that has read the numbers of all of them writes their new values.

    Results of a part may lie channels-last, as convolutions want weights: then its elements are read where they lie and
    written in the order of the results."""

    id = "cuda.multi_tensor"
    kinds = UPDATES

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (
            reason := operand_reason(work) or update_reason(work, turns=True) or _turn_reason(work)
        ) is not None:
            return reason
        assert work.code is not None
        return code_reason(work.code)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: every operand is read once and every result written once."""
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

    def schedule(self, work: Workload, target: TargetAttr) -> UpdateSpec:
        return _chosen(work, arch_named(target.arch.data))

    def record_of(self, work: Workload, target: TargetAttr, schedule: UpdateSpec) -> dict[str, Attribute]:
        assert work.code is not None
        arch, update = arch_named(target.arch.data), update_of_work(work)
        blocks = sum(schedule.blocks(part, v) for part, v in zip(update.parts, schedule.vectors, strict=True))
        entries: dict[str, Attribute] = {
            **_CODEC.entries(schedule),
            **Shape((blocks, 1, 1), (schedule.threads, 1, 1)).entries(),
            "rounding": StringAttr(work.rounding),
            **start_entries(arch),
        }
        turned = {
            result
            for part, turn in zip(update.parts, turns_of(update, work.results), strict=True)
            for result in part.results
            if turn is not None
        }
        pairs = [pair for pair in overwritten(work.code, update) if pair[0] not in turned]
        if (numbers := numbers_code(work.code, update)) is not None:
            pairs += [
                (update.scalar_results[output], update.scalars[operand])
                for output, operand in overwritable(numbers)
            ]
        entries["may_alias"] = ArrayAttr([integers(pair) for pair in same_type(pairs, work)])
        return entries

    def read(self, work: Workload, record: Record, target: TargetAttr) -> UpdateSpec:
        return read_spec(record)

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: UpdateSpec) -> str | None:
        return schedule.problem(update_of_work(work), _limits(work))

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: nothing is combined."""
        return "none"


def turns_of(update: Update, results: Sequence[OperandInfo] | Sequence[BufferRef]) -> list[Turn | None]:
    """How each part of an instruction with these results is turned."""
    return [turn_of([results[number] for number in part.results]) for part in update.parts]


def _turn_reason(work: Workload) -> str | None:
    """Why a part is not brought to channels-last memory, None if all that ask for it are."""
    update = update_of_work(work)
    for number, (part, turn) in enumerate(zip(update.parts, turns_of(update, work.results), strict=True)):
        if turn is None:
            continue
        lines = [turn.channels * ELEMENT_BYTES[work.results[i].dtype] for i in part.results]
        if any(line % PIECE_BYTES for line in lines):
            return f"part {number} is turned in lines of whole {PIECE_BYTES} bytes, its channels have {lines}"
        if any(ELEMENT_BYTES[work.operands[i].dtype] != _WORD for i in part.operands):
            return f"part {number} is turned word by word, and its operands have elements of other sizes"
    return None


def _chosen(work: Workload, arch: GpuArch) -> UpdateSpec:
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


def _widest(work: Workload, part: Part) -> int:
    """Bytes of the widest element of a part."""
    own = [*(work.operands[i] for i in part.operands), *(work.results[i] for i in part.results)]
    return max(ELEMENT_BYTES[info.dtype] for info in own)


def _limits(work: Workload) -> list[int]:
    operands, results = (
        [(info.dtype, info.offset * ELEMENT_BYTES[info.dtype]) for info in infos]
        for infos in (work.operands, work.results)
    )
    update = update_of_work(work)
    return vector_limits(update, operands, results, turns_of(update, work.results))


_CODEC = RecordCodec(UpdateSpec)


def read_spec(record: Record) -> UpdateSpec:
    """The decisions of a record. Raises RecordError if it lacks one, or it is not legal."""
    threads, _, _ = read_list(record, "block", (Whole(32, BLOCK_THREADS, 32), ONE, ONE))
    return _CODEC.read(record, threads=threads)


KERNELS = (MultiTensorKernel(),)
"""The kernels of this family."""
