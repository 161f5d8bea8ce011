"""Descriptors of the generated kernels: what they can run, what it would cost, and the record of their decisions.

No code generator is imported here; `generated_code.py` and `move_code.py` turn records into code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import OperandInfo, Work
from aicf.backends.common.record import Record, RecordCodec, integer, read_parts
from aicf.backends.cuda.generated_cost import cost_us
from aicf.backends.cuda.generated_spec import GeneratedSpec, choose, partial_bytes
from aicf.backends.cuda.records import (
    CudaKernel,
    Shape,
    integers,
    read_integer,
    read_integers,
    read_shape,
    start_entries,
)
from aicf.backends.cuda.scalar_code import TEXTS
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch, arch_named
from aicf.backends.moves import Move, moves
from aicf.backends.nests import LoopNest, Strided, is_linear, nest_of, overwritable, value_types
from aicf.dialects.emit_kernels import IndexOp, KernelOp, LoadOp, ReduceOp, ScanOp, StoreOp, YieldOp, scans_of
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.emit_updates import is_update

VERSION = 1
DETERMINISM = "bitwise"

_STRUCTURE = (YieldOp, StoreOp, ReduceOp, ScanOp, IndexOp, LoadOp)
_CODEC = RecordCodec(GeneratedSpec)


def operand_reason(work: Work) -> str | None:
    """Why an operand or result is of no use here."""
    for operand in (*work.operands, *work.results):
        if operand.dtype not in ELEMENT_BYTES:
            return _unsupported(operand.dtype)
    if any(0 in result.shape for result in work.results):
        return "a result has no elements, and a launch has at least one block: take it out of the model"
    return None


def _unsupported(dtype: str) -> str:
    return (
        f"element type {dtype} is not supported on cuda, only {', '.join(ELEMENT_BYTES)}: cast to f32 first"
    )


def code_reason(code: KernelOp) -> str | None:
    """Why the scalar program has no code here, in a user's words; None if it has."""
    if not all(is_linear(m) for m in (*code.in_maps, *code.out_maps)):
        return "an operand is not indexed by sums of the loop dims"
    for phase in code.phases:
        for op in phase.body.block.ops:
            if type(op) not in TEXTS and not isinstance(op, _STRUCTURE):
                return f"scalar op {op.name} has no code on cuda"
    unknown = value_types(code) - set(ELEMENT_BYTES)
    return _unsupported(sorted(unknown)[0]) if unknown else _scan_reason(code)


def _scan_reason(code: KernelOp) -> str | None:
    """A kernel that scans does nothing else across points."""
    ops = [op for phase in code.phases for op in phase.body.block.ops]
    if not scans_of(ops):
        return None
    if len(code.phases) > 1 or any(isinstance(op, ReduceOp) for op in ops):
        return "a running sum and a reduction in one kernel have no code on cuda"
    if not all(code.writes_reduce_space(output) for output in range(len(code.out_maps))):
        return "a running sum beside an output of one element a row has no code on cuda"
    return None


@dataclass(frozen=True)
class GeneratedKernel(CudaKernel[GeneratedSpec]):
    """Code from the generated scalar program: pointwise chains, and reductions with what is around them."""

    id: str = "cuda.generated"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 1
    kinds: frozenset[str] = frozenset(
        {"generated", "add", "relu", "bias_add", "reduce_sum", "sgd_step", "layernorm_fwd", "softmax"}
    )

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        if (reason := operand_reason(work)) is not None:
            return reason
        if work.code is None:
            return "it is not one set of loops over all elements"
        if is_update(work.code):
            return "it updates several tensors, each of which has loops of its own"
        return code_reason(work.code)

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`."""
        nest, spec = _decide(work, target)
        return cost_us(nest, spec, arch_named(target.arch.data))

    def schedule(self, work: Work, target: TargetAttr) -> GeneratedSpec:
        """See `Kernel`."""
        return _decide(work, target)[1]

    def record_of(self, work: Work, target: TargetAttr, schedule: GeneratedSpec) -> dict[str, Attribute]:
        """See `Kernel`."""
        assert work.code is not None
        nest = _nest(work)
        entries = loops_record(nest, schedule, work.rounding, arch_named(target.arch.data))
        if workspace := partial_bytes(nest, schedule):
            entries["workspace_bytes"] = integer(workspace)
        if schedule.splits == 1:
            entries["may_alias"] = _may_alias(work, work.code)
        return entries

    def read(self, work: Work, record: Record, target: TargetAttr) -> GeneratedSpec:
        """See `Kernel`."""
        return read_spec(record)

    def schedule_reason(self, work: Work, target: TargetAttr, schedule: GeneratedSpec) -> str | None:
        """See `Kernel`."""
        arch = arch_named(target.arch.data)
        if schedule.cluster > 1 and not arch.has_clusters:
            return f"{arch.name} has no clusters"
        return schedule.problem(_nest(work))

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """See `BatchInvariantKernel`."""
        nest, spec = _decide(work, target)
        return spec.combination_order(nest)


def _nest(work: Work) -> LoopNest:
    assert work.code is not None
    operands = (*work.operands, *work.results)
    return nest_of(work.code, [o.strides for o in operands], [o.dtype for o in operands])


def _decide(work: Work, target: TargetAttr) -> tuple[LoopNest, GeneratedSpec]:
    nest, operands = _nest(work), (*work.operands, *work.results)
    arch, offsets = arch_named(target.arch.data), [o.offset for o in operands]
    return nest, choose(nest, offsets, arch, work.batch_invariant)


def _may_alias(work: Work, code: KernelOp) -> Attribute:
    """Outputs that may lie on an input of their type."""
    found = [
        ArrayAttr([integer(output), integer(place)])
        for output, place in overwritable(code)
        if work.operands[place].dtype == work.results[output].dtype
    ]
    return ArrayAttr(found)


# Moves


@dataclass(frozen=True)
class MoveKernel(CudaKernel[Sequence[GeneratedSpec]]):
    """Moves elements: a strided copy, or operands side by side."""

    id: str
    kinds: frozenset[str]
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 0

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        if (reason := operand_reason(work)) is not None:
            return reason
        if len(work.results) != 1 or self._moves(work) is None:
            return "it does more than move elements to one result"
        return None

    def _moves(self, work: Work) -> list[Move] | None:
        axis = read_integer(work.attrs, "axis") if "axis" in work.attrs else 0
        return moves(
            work.body, [_strided(operand) for operand in work.operands], _strided(work.results[0]), axis
        )

    def _nests(self, work: Work) -> list[LoopNest]:
        found = self._moves(work)
        assert found is not None, "loops are asked for of legal work"
        return [move.nest for move in found]

    def schedule(self, work: Work, target: TargetAttr) -> Sequence[GeneratedSpec]:
        """See `Kernel`."""
        found = self._moves(work)
        assert found is not None, "loops are asked for of legal work"
        arch, start = arch_named(target.arch.data), work.results[0].offset
        decided: list[GeneratedSpec] = []
        for move in found:
            sources = [] if move.operand is None else [work.operands[move.operand].offset]
            decided.append(choose(move.nest, [*sources, start + move.offset], arch))
        return decided

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`."""
        arch = arch_named(target.arch.data)
        decided = zip(self._nests(work), self.schedule(work, target), strict=True)
        return sum(cost_us(nest, spec, arch) for nest, spec in decided)

    def record_of(
        self, work: Work, target: TargetAttr, schedule: Sequence[GeneratedSpec]
    ) -> dict[str, Attribute]:
        """See `Kernel`."""
        decided = zip(self._nests(work), schedule, strict=True)
        return {
            "axis": work.attrs.get("axis", integer(0)),
            "parts": ArrayAttr([DictionaryAttr(spec_record(nest, spec)) for nest, spec in decided]),
            "rounding": StringAttr(work.rounding),
            **start_entries(arch_named(target.arch.data)),
        }

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """See `BatchInvariantKernel`: nothing is combined."""
        return "none"

    def read(self, work: Work, record: Record, target: TargetAttr) -> Sequence[GeneratedSpec]:
        """See `Kernel`."""
        return [read_spec({**record, **part}) for part in read_parts(record, "parts", len(self._nests(work)))]

    def schedule_reason(
        self, work: Work, target: TargetAttr, schedule: Sequence[GeneratedSpec]
    ) -> str | None:
        """See `Kernel`."""
        reasons = (spec.problem(nest) for nest, spec in zip(self._nests(work), schedule, strict=True))
        return next((f"in its 'parts', {reason}" for reason in reasons if reason is not None), None)


def _strided(operand: OperandInfo) -> Strided:
    return Strided(operand.shape, operand.strides, operand.dtype)


# Records


def spec_record(nest: LoopNest, spec: GeneratedSpec) -> dict[str, Attribute]:
    """Every decision about the loops of one kernel, with one grid for each of its launches."""
    return {
        **_CODEC.entries(spec),
        "grids": ArrayAttr([integers(grid) for grid in spec.grids(nest)]),
        "block": integers([spec.threads, 1, 1]),
        "cluster": integers([1, spec.cluster, 1]),
        "shared_bytes": integer(0),
        "combination_order": StringAttr(spec.combination_order(nest)),
    }


def loops_record(nest: LoopNest, spec: GeneratedSpec, rounding: str, arch: GpuArch) -> dict[str, Attribute]:
    """The record of one kernel but for what is allowed to its memory. It waits before it reads anything."""
    return {**spec_record(nest, spec), "rounding": StringAttr(rounding), **start_entries(arch)}


def read_spec(record: Record) -> GeneratedSpec:
    """The decisions of a record. Raises RecordError if it lacks one, or it is not legal."""
    _, cluster, _ = read_integers(record, "cluster", 3)
    return GeneratedSpec(**_CODEC.values(record), cluster=cluster)


def read_shapes(record: Record) -> list[Shape]:
    """The launches of a record, in order. Raises RecordError if it lacks them."""
    grids = record.get("grids")
    entries = cast("ArrayAttr[Attribute]", grids).data if isinstance(grids, ArrayAttr) else ()
    return [read_shape({**record, "grid": grid}) for grid in entries]


def read_moves(record: Record) -> list[Record]:
    """The records of the moves of a copy or concatenation. Raises RecordError if there are none."""
    common = {key: entry for key, entry in record.items() if key != "parts"}
    return [{**common, **part} for part in read_parts(record, "parts")]


KERNELS = (
    GeneratedKernel(),
    MoveKernel("cuda.copy", frozenset({"copy"})),
    MoveKernel("cuda.concat", frozenset({"concat"})),
)
"""The kernels of this family."""
