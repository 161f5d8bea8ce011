"""Descriptors of the generated kernels: what they can run, what it would cost, and the record of their decisions.

No code generator is imported here; `generated_code.py` and `move_code.py` turn records into code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import OperandInfo, Work
from aicf.backends.cuda.generated_cost import cost_us
from aicf.backends.cuda.generated_spec import GeneratedSpec, choose, partial_bytes
from aicf.backends.cuda.records import (
    PlainOperands,
    Record,
    Shape,
    contradiction,
    integer,
    integers,
    read_integer,
    read_integers,
    read_shape,
    read_text,
    start_entries,
)
from aicf.backends.cuda.scalar_code import TEXTS
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch, arch_named
from aicf.backends.moves import Move, moves
from aicf.backends.nests import LoopNest, Strided, is_linear, nest_of, overwritable, value_types
from aicf.dialects.emit_kernels import IndexOp, KernelOp, LoadOp, ReduceOp, ScanOp, StoreOp, YieldOp, scans_of
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.emit_updates import is_update
from aicf.errors import PlanError

VERSION = 1
DETERMINISM = "bitwise"

_STRUCTURE = (YieldOp, StoreOp, ReduceOp, ScanOp, IndexOp, LoadOp)
_NUMBERS = ("vector", "threads", "lanes", "unroll", "splits", "blocks_per_sm")


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
class GeneratedKernel(PlainOperands):
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

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        nest, spec = _decide(work, target)
        return _record_of(work, target, nest, spec)

    def record_reason(self, work: Work, record: Record, target: TargetAttr) -> str | None:
        """See `CheckedKernel`."""
        nest, spec, arch = _nest(work), read_spec(record), arch_named(target.arch.data)
        if (reason := spec.problem(nest)) is not None:
            return reason
        if spec.cluster > 1 and not arch.has_clusters:
            return f"{arch.name} has no clusters"
        return contradiction(record, _record_of(work, target, nest, spec), arch)

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


def _record_of(work: Work, target: TargetAttr, nest: LoopNest, spec: GeneratedSpec) -> dict[str, Attribute]:
    assert work.code is not None
    entries = loops_record(nest, spec, work.rounding, arch_named(target.arch.data))
    if workspace := partial_bytes(nest, spec):
        entries["workspace_bytes"] = integer(workspace)
    if spec.splits == 1:
        entries["may_alias"] = _may_alias(work, work.code)
    return entries


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
class MoveKernel(PlainOperands):
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

    def _decide(self, work: Work, target: TargetAttr) -> list[tuple[LoopNest, GeneratedSpec]]:
        found = self._moves(work)
        assert found is not None
        arch, start = arch_named(target.arch.data), work.results[0].offset
        decided: list[tuple[LoopNest, GeneratedSpec]] = []
        for move in found:
            sources = [] if move.operand is None else [work.operands[move.operand].offset]
            decided.append((move.nest, choose(move.nest, [*sources, start + move.offset], arch)))
        return decided

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`."""
        arch = arch_named(target.arch.data)
        return sum(cost_us(nest, spec, arch) for nest, spec in self._decide(work, target))

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        return self._record_of(work, target, self._decide(work, target))

    def _record_of(
        self, work: Work, target: TargetAttr, decided: Sequence[tuple[LoopNest, GeneratedSpec]]
    ) -> dict[str, Attribute]:
        return {
            "axis": work.attrs.get("axis", integer(0)),
            "parts": ArrayAttr([DictionaryAttr(spec_record(nest, spec)) for nest, spec in decided]),
            "rounding": StringAttr(work.rounding),
            **start_entries(arch_named(target.arch.data)),
        }

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """See `BatchInvariantKernel`: nothing is combined."""
        return "none"

    def record_reason(self, work: Work, record: Record, target: TargetAttr) -> str | None:
        """See `CheckedKernel`."""
        found, parts = self._moves(work), read_parts(record)
        if found is None or len(found) != len(parts):
            return f"it has {len(parts)} parts, {len(found or ())} are moved here"
        decided = [(move.nest, read_spec(part)) for move, part in zip(found, parts, strict=True)]
        for nest, spec in decided:
            if (reason := spec.problem(nest)) is not None:
                return reason
        return contradiction(record, self._record_of(work, target, decided), arch_named(target.arch.data))


def _strided(operand: OperandInfo) -> Strided:
    return Strided(operand.shape, operand.strides, operand.dtype)


# Records


def spec_record(nest: LoopNest, spec: GeneratedSpec) -> dict[str, Attribute]:
    """Every decision about the loops of one kernel, with one grid for each of its launches."""
    return {
        "strategy": StringAttr(spec.strategy),
        **{name: integer(getattr(spec, name)) for name in _NUMBERS},
        "late": BoolAttr.from_bool(spec.late),
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
    """The decisions of a record. Raises PlanError if it lacks one."""
    late = bool(read_integer(record, "late"))
    numbers = {name: read_integer(record, name) for name in _NUMBERS}
    _, cluster, _ = read_integers(record, "cluster", 3)
    return GeneratedSpec(read_text(record, "strategy"), **numbers, late=late, cluster=cluster)


def read_shapes(record: Record) -> list[Shape]:
    """The launches of a record, in order. Raises PlanError if it lacks them."""
    grids = record.get("grids")
    entries = cast("ArrayAttr[Attribute]", grids).data if isinstance(grids, ArrayAttr) else ()
    return [read_shape({**record, "grid": grid}) for grid in entries]


def read_parts(record: Record) -> list[Record]:
    """The records of the moves of a copy or concatenation. Raises PlanError if there are none."""
    value = record.get("parts")
    if not isinstance(value, ArrayAttr):
        raise PlanError("kernel record lacks the list 'parts': run select-kernels again")
    common = {key: entry for key, entry in record.items() if key != "parts"}
    entries = cast("ArrayAttr[Attribute]", value).data
    return [{**common, **entry.data} for entry in entries if isinstance(entry, DictionaryAttr)]


KERNELS = (
    GeneratedKernel(),
    MoveKernel("cuda.copy", frozenset({"copy"})),
    MoveKernel("cuda.concat", frozenset({"concat"})),
)
"""The kernels of this family."""
