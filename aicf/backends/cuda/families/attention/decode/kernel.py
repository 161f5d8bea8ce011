"""Descriptor of `cuda.attention_step`, attention of one query a head, which may put the new token into the state on the
way: what it can run, at what predicted cost, with which record. Imports no code generator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import Entry, OneOf, RecordCodec
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.decode.problem import (
    CACHED_STEP,
    STEP,
    StepProblem,
    as_attention,
    problem_of,
)
from aicf.backends.cuda.families.attention.problem import (
    CACHED,
    HALVES,
    INDEX_TYPES,
    KIND,
    common_reason,
    common_record,
)
from aicf.backends.cuda.families.records import CudaKernel, Shape, integers
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr

SIZES = (32, 64, 128)
_MOST_GROUP = 8
"""Queries of a cluster, whose running results are registers."""
_MOST_LOADS = (8, 8, 4, 4, 2, 2, 2, 2)
"""Keys and values of a lane under way at once, by the queries of a cluster, from one on."""

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
        """Keys of a lane in a turn; `lines` of them are a warp's at a time."""
        needed = ceil(problem.seen / (self.parts * lines_of(problem)))
        return min(needed, _MOST_LOADS[group_of(problem) - 1])

    def turn(self, problem: StepProblem) -> int:
        """Keys of all warps that are under way at once."""
        return self.parts * self.loads(problem) * lines_of(problem)

    def turns(self, problem: StepProblem) -> int:
        """How often a warp loads keys, if all are seen."""
        return ceil(problem.seen / self.turn(problem))

    def registers(self, problem: StepProblem) -> int:
        """Of a thread, about: keys and values, queries and results, what passes from turn to turn, and the rest."""
        turning = 12 if self.turns(problem) > 1 else 0
        return 9 * self.loads(problem) + 14 * group_of(problem) + turning + 36

    def slots(self, problem: StepProblem) -> int:
        """Queries that a block combines."""
        return ceil(group_of(problem) / self.splits)

    def slot_bytes(self, problem: StepProblem) -> int:
        """Of a query: a maximum, a sum and a result in f32 for each part."""
        return self.parts * (8 + 4 * problem.attention.d)

    def shared_bytes(self, problem: StepProblem) -> int:
        """Of a block."""
        return self.slots(problem) * self.slot_bytes(problem)


def group_of(problem: StepProblem) -> int:
    """Queries of a cluster: as many of those that share keys and values as fit, in equal groups."""
    sharing = problem.sharing
    return max(size for size in range(1, min(sharing, _MOST_GROUP) + 1) if sharing % size == 0)


def clusters_of(problem: StepProblem) -> int:
    """Clusters of blocks, one for each group."""
    return problem.attention.count // group_of(problem)


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
        return f"{spec.warps} warps do not hold the keys of {group_of(problem)} queries in registers"
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
_BLOCK_US, _WARP_US, _TURN_US = 0.2, 0.02, 0.3
"""Of each block that a cluster has beside the first, which all have to find room at once, of each of its warps, and of
each turn after the first, which waits for memory."""


def predicted_us(problem: StepProblem, spec: Spec, arch: GpuArch) -> float:
    """Microseconds: the keys and values of the busiest multiprocessor, no less than reading all from memory."""
    attention, clusters = problem.attention, clusters_of(problem)
    head = 2 * problem.seen * (attention.d + attention.dv)
    rounds = ceil(clusters * spec.splits / arch.multiprocessors)
    loading = max(head / spec.splits * rounds / _SM_GBS, clusters * head / arch.bandwidth_gbs) / 1e3
    turning = _TURN_US * (spec.turns(problem) - 1) * rounds
    cluster = _BLOCK_US * (spec.splits - 1) + _WARP_US * spec.parts if spec.splits > 1 else 0.0
    return _LATENCY_US + loading + turning + cluster


def ranked_specs(problem: StepProblem, arch: GpuArch) -> list[Spec]:
    """All `specs`, by the prior the cheapest first; of equals the one with most warps."""

    def rank(spec: Spec) -> tuple[float, ...]:
        return round(predicted_us(problem, spec, arch), 3), -spec.warps

    return sorted(specs(problem, arch), key=rank)


_CODEC = RecordCodec(Spec)
read_spec = _CODEC.read


class AttentionStepKernel(CudaKernel[Spec]):
    """Attention of one query a head for f16 and bf16, see `decode/template.py`."""

    id = "cuda.attention_step"
    library = "decode"
    version = 4
    kinds = frozenset({KIND, STEP})
    simplicity = 2
    codec = _CODEC

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        problem, arch = problem_of(work), arch_named(target.arch.data)
        whole = replace(
            work, operands=tuple(as_attention(work.kind, work.operands, work.results, work.attrs))
        )
        reason = common_reason(whole, problem.attention) or _problem_reason(problem)
        if reason is None and not ranked_specs(problem, arch):
            return (
                f"no variant fits in the registers and the shared memory of {arch.name}: use cuda.attention"
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
        grid = (clusters_of(problem) * spec.splits, 1, 1)
        shape = Shape(grid, (32 * spec.warps, 1, 1), (spec.splits, 1, 1), spec.shared_bytes(problem))
        order = "turns of a warp in order, its lanes by halving; warps in order"
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
    if writes is not None and not writes.is_one:
        return "each batch element writes a row of its own, here all write the same one: write the rows apart"
    if writes is not None and writes.position not in INDEX_TYPES:
        return f"the row's index is {writes.position}, not {' or '.join(INDEX_TYPES)}"
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
    turns = problem.turns
    if turns is not None and any(each.dtype != "f32" for each in (*turns.query, *turns.key)):
        return "cosines and sines that turn pairs are f32 here: cast them"
    return None


class CachedStepKernel(AttentionStepKernel):
    """The same over a cache: keys that the query does not see, by a position that is an operand, are not loaded."""

    id = "cuda.cached_attention_step"
    version = 2
    kinds = frozenset({CACHED, CACHED_STEP})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        filled = problem_of(work).filled
        if filled is None:
            return "the keys that are seen follow from no position here: give attention a position"
        if filled.softcap:
            return "no score is capped here: it runs as products and a softmax"
        if filled.position[1] not in INDEX_TYPES:
            return f"the position is {filled.position[1]}, not {' or '.join(INDEX_TYPES)}"
        return super().legal(work, target)

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        names = ("position", "window", "softcap", "rotation")
        named = {name: work.attrs[name] for name in names if name in work.attrs}
        return super().record_of(work, target, schedule) | named


KERNELS = (AttentionStepKernel(), CachedStepKernel())
"""The kernels of this family."""
