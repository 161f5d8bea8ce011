"""Descriptor of `cuda.attention_step`, attention of one query a head, which may put the new token into the state on the
way: what it can run, at what predicted cost, with which record. Imports no code generator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import (
    Entry,
    OneOf,
    Record,
    RecordCodec,
    read_integer,
    read_number,
)
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.attention.problem import (
    HALVES,
    KIND,
    AttentionProblem,
    Rows,
    common_reason,
    common_record,
    problem_of_operands,
    rows_of,
)
from aicf.backends.cuda.families.records import CudaKernel, Shape, integers, read_flag
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr

STEP = "attention_step"
CACHED, CACHED_STEP = "cached_attention", "cached_attention_step"
POSITION, NEW_KEY, NEW_VALUE = 3, 4, 5
"""Operands of a step after queries, keys and values; a mask follows, then of a cache how far it is filled."""
SIZES = (32, 64, 128)
_INDEX_TYPES = ("i32", "i64")


@dataclass(frozen=True)
class Writes:
    """The row that a step writes.

    Args:
        position: Element type of its index.
        row_k, row_v: The new key and value, one row for each batch element.
        keys, values: Where the new state lies.
    """

    position: str
    row_k: Rows
    row_v: Rows
    keys: Rows
    values: Rows


@dataclass(frozen=True)
class Filled:
    """How far a cache of keys and values is filled.

    Args:
        position: Strides, over the batch dimensions, and the type of the operand that says how many keys come before
            the query.
        window: Keys that the query sees at most, up to its own; 0 for all of them.
        softcap: What bounds the scores; 0.0 without.
    """

    position: tuple[tuple[int, ...], str]
    window: int
    softcap: float


@dataclass(frozen=True)
class StepProblem:
    """An attention, the row that is written before it, None where keys and values are given, and how far these are
    filled; None where that is known."""

    attention: AttentionProblem
    writes: Writes | None
    filled: Filled | None = None

    @property
    def seen(self) -> int:
        """Keys that the query sees."""
        problem = self.attention
        return problem.n if problem.past is None else min(problem.n, problem.past + 1)


Operands = Sequence[OperandInfo] | Sequence[BufferRef]


def problem_of(work: Workload) -> StepProblem:
    """The problem of a work of kind `attention` or `attention_step`, or of these kinds with a cache."""
    return _problem(work.kind, work.operands, work.results, work.attrs)


def problem_of_launch(launch: Launch) -> StepProblem:
    """The problem of an instruction of these kinds."""
    return _problem(launch.kind, launch.ins, launch.outs, launch.record)


def _problem(kind: str, ins: Operands, outs: Operands, entries: Record) -> StepProblem:
    given: list[OperandInfo | BufferRef] = [*ins]
    filled = None
    if kind in (CACHED, CACHED_STEP) and read_flag(entries, "position"):
        last = given.pop()
        position = (last.strides[:-2], last.dtype)
        filled = Filled(position, read_integer(entries, "window"), read_number(entries, "softcap"))
    mask = given[NEW_VALUE + 1 :] if kind in (STEP, CACHED_STEP) else given[POSITION:]
    attention = problem_of_operands([*given[:POSITION], *mask], outs[0], entries)
    if filled is not None:
        attention = replace(attention, past=None)
    if kind not in (STEP, CACHED_STEP):
        return StepProblem(attention, None, filled)
    rows = (rows_of(each) for each in (ins[NEW_KEY], ins[NEW_VALUE], outs[1], outs[2]))
    return StepProblem(attention, Writes(ins[POSITION].dtype, *rows), filled)


_SPLITS, _WARPS = (1, 2, 4, 8), (2, 4, 8, 16)


@dataclass(frozen=True)
class Spec:
    """One variant of the kernel.

    Args:
        splits: Blocks of a cluster, which share the keys of a head.
        warps: Of a block.
    """

    splits: Annotated[int, Entry(OneOf(_SPLITS))]
    warps: Annotated[int, Entry(OneOf(_WARPS))]

    @property
    def parts(self) -> int:
        """Warps that share the keys of a head."""
        return self.splits * self.warps

    def loads(self, problem: StepProblem) -> int:
        """Keys of a lane; `lines` of them are a warp's at a time."""
        return ceil(problem.seen / (self.parts * lines_of(problem)))

    def registers(self, problem: StepProblem) -> int:
        """Of a thread, about: its keys and values, and the rest."""
        return 9 * self.loads(problem) + 50

    def shared_bytes(self, problem: StepProblem) -> int:
        """Of the block that combines: a maximum, a sum and a result in f32 for each part."""
        return self.parts * (8 + 4 * problem.attention.d)


def pieces_of(problem: StepProblem) -> int:
    """Lanes that share a key, 16 bytes each."""
    return problem.attention.d // 8


def lines_of(problem: StepProblem) -> int:
    """Keys that a warp loads at a time."""
    return 32 // pieces_of(problem)


def spec_reason(problem: StepProblem, spec: Spec, arch: GpuArch) -> str | None:
    """Why `spec` cannot run `problem` on `arch`, None if it can."""
    if spec.splits > 1 and not arch.has_clusters:
        return f"{arch.name} has no clusters, which the {spec.splits} blocks of a head meet in"
    if spec.registers(problem) > min(232, 65536 // (32 * spec.warps)):
        return f"{spec.splits} blocks of {spec.warps} warps do not hold {problem.seen} keys in registers"
    if spec.shared_bytes(problem) > 48 << 10:
        return f"partial results of {spec.parts} warps do not fit in 48 KiB"
    return None


def specs(problem: StepProblem, arch: GpuArch) -> Iterator[Spec]:
    """The variants that make sense: no warp without keys."""
    for splits in _SPLITS:
        for warps in _WARPS:
            spec = Spec(splits, warps)
            empty = spec.parts > 2 and (spec.parts // 2) * lines_of(problem) >= problem.seen
            if not empty and spec_reason(problem, spec, arch) is None:
                yield spec


# Cost prior, fitted to a block of GPT-2 on an H100, between the products of a chain; measurements replace it.

_LATENCY_US, _SM_GBS = 1.5, 100.0
"""Of one kernel that overlaps with its neighbours; what one multiprocessor loads."""
_BLOCK_US, _WARP_US = 0.2, 0.02
_LOADS = 8
"""Of each block that a cluster has beside the first, which all have to find room at once, and of each of its warps.
More than _LOADS keys and values of a lane under way gain nothing."""


def predicted_us(problem: StepProblem, spec: Spec, arch: GpuArch) -> float:
    """Microseconds: the keys and values of the busiest multiprocessor, no less than reading all from memory."""
    attention = problem.attention
    head = 2 * problem.seen * (attention.d + attention.dv)
    rounds = ceil(attention.count * spec.splits / arch.multiprocessors)
    loading = max(head / spec.splits * rounds / _SM_GBS, attention.count * head / arch.bandwidth_gbs)
    cluster = _BLOCK_US * (spec.splits - 1) + _WARP_US * spec.parts if spec.splits > 1 else 0.0
    return _LATENCY_US + loading / 1e3 + cluster


def ranked_specs(problem: StepProblem, arch: GpuArch) -> list[Spec]:
    """All `specs`, by the prior the cheapest first; of equals the one with most warps."""

    def rank(spec: Spec) -> tuple[float, ...]:
        return (
            spec.loads(problem) > _LOADS,
            round(predicted_us(problem, spec, arch), 3),
            -spec.warps,
        )

    return sorted(specs(problem, arch), key=rank)


_CODEC = RecordCodec(Spec)
read_spec = _CODEC.read


class AttentionStepKernel(CudaKernel[Spec]):
    """Attention of one query a head for f16 and bf16, see `decode/template.py`."""

    id = "cuda.attention_step"
    library = "decode"
    version = 3
    kinds = frozenset({KIND, STEP})
    simplicity = 2
    codec = _CODEC

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        problem, arch = problem_of(work), arch_named(target.arch.data)
        reason = common_reason(work, problem.attention) or _problem_reason(problem)
        if reason is None and not ranked_specs(problem, arch):
            return (
                f"{problem.seen} keys do not fit in the registers of {arch.name} at once: use cuda.attention"
            )
        return reason

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        problem, arch = problem_of(work), arch_named(target.arch.data)
        return predicted_us(problem, ranked_specs(problem, arch)[0], arch)

    def schedule(self, work: Workload, target: TargetAttr) -> Spec:
        return ranked_specs(problem_of(work), arch_named(target.arch.data))[0]

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        spec = schedule
        problem, arch = problem_of(work), arch_named(target.arch.data)
        grid = (problem.attention.count * spec.splits, 1, 1)
        shape = Shape(grid, (32 * spec.warps, 1, 1), (spec.splits, 1, 1), spec.shared_bytes(problem))
        order = "keys of a warp by halving; warps in order"
        record = common_record(work, arch, shape, order) | _CODEC.entries(spec)
        if problem.writes is not None:
            record["may_alias"] = ArrayAttr([integers((1, 1)), integers((2, 2))])
        return record

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Spec) -> str | None:
        return spec_reason(problem_of(work), schedule, arch_named(target.arch.data))

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Mapping[str, Attribute]]:
        """The records of all `specs`, the most promising first."""
        problem, arch = problem_of(work), arch_named(target.arch.data)
        return [self.record_of(work, target, spec) for spec in ranked_specs(problem, arch)]


def _problem_reason(problem: StepProblem) -> str | None:
    """Why sizes, types or strides have no code here."""
    attention, writes = problem.attention, problem.writes
    if attention.m != 1:
        return f"there are {attention.m} queries a head, here one: use cuda.attention"
    if attention.dtype not in HALVES:
        return f"16 bytes a lane are f16 or bf16 here, not {attention.dtype}: use cuda.attention_simt or cast"
    if attention.d != attention.dv or attention.d not in SIZES:
        sizes = ", ".join(map(str, SIZES))
        return f"keys and values of {attention.d} and {attention.dv} elements: here both have one of {sizes}"
    if writes is not None and attention.past is not None:
        return "a row is written where all keys are seen; here later ones are not"
    if writes is not None and writes.position not in _INDEX_TYPES:
        return f"the row's index is {writes.position}, not {' or '.join(_INDEX_TYPES)}"
    matrices = [
        ("queries", attention.q, 1),
        ("keys", attention.k, attention.n),
        ("values", attention.v, attention.n),
        ("result", attention.result, 1),
    ]
    if writes is not None:
        matrices += [("new keys", writes.row_k, 1), ("new values", writes.row_v, 1)]
        matrices += [
            ("written keys", writes.keys, attention.n),
            ("written values", writes.values, attention.n),
        ]
    for name, rows, count in matrices:
        if not rows.moves_in_eights(count, attention.batch):
            return (
                f"rows of the {name} are not neighbours that start at multiples of 16 bytes: copy them first"
            )
    return None


class CachedStepKernel(AttentionStepKernel):
    """The same over a cache: keys that the query does not see, by a position that is an operand, are not loaded."""

    id = "cuda.cached_attention_step"
    version = 1
    kinds = frozenset({CACHED, CACHED_STEP})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        filled = problem_of(work).filled
        if filled is None:
            return "the keys that are seen follow from no position here: give attention a position"
        if filled.softcap:
            return "no score is capped here: it runs as products and a softmax"
        if filled.position[1] not in _INDEX_TYPES:
            return f"the position is {filled.position[1]}, not {' or '.join(_INDEX_TYPES)}"
        return super().legal(work, target)

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        named = {name: work.attrs[name] for name in ("position", "window", "softcap")}
        return super().record_of(work, target, schedule) | named


KERNELS = (AttentionStepKernel(), CachedStepKernel())
"""The kernels of this family."""
