"""Descriptors of the generated kernels: what they can run, what it would cost, and the record of their decisions.

No code generator is imported here; `generated_code.py` and `move_code.py` turn records into code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from aicf.backends.base import OperandInfo, Work
from aicf.backends.cuda.generated_spec import (
    GeneratedSpec,
    choose,
    cost_us,
    partial_bytes,
)
from aicf.backends.cuda.scalar_code import TEXTS, Rounding
from aicf.backends.cuda.target import ELEMENT_BYTES, arch_named
from aicf.backends.moves import Move, moves
from aicf.backends.nests import LoopNest, Strided, is_linear, nest_of, value_types
from aicf.dialects.emit_kernels import IndexOp, KernelOp, LoadOp, ReduceOp, StoreOp, YieldOp
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.errors import PlanError

VERSION = 1
DETERMINISM = "bitwise"
Record = Mapping[str, Attribute]

_STRUCTURE = (YieldOp, StoreOp, ReduceOp, IndexOp, LoadOp)
_NUMBERS = ("vector", "threads", "lanes", "unroll", "splits")


def dtype_reason(work: Work) -> str | None:
    """Why an operand or result is of no use here."""
    for operand in (*work.operands, *work.results):
        if operand.dtype not in ELEMENT_BYTES:
            return _unsupported(operand.dtype)
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
    return _unsupported(sorted(unknown)[0]) if unknown else None


class PlainOperands:
    """A kernel that asks for no prepared layout."""

    id: str

    def prepare(self, work: Work, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `KernelDescriptor`; never reached by a record of this kernel."""
        raise PlanError(f"kernel '{self.id}' reads plain memory: its record must not ask for a layout")


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
        if (reason := dtype_reason(work)) is not None:
            return reason
        if work.code is None:
            return "it is not one set of loops over all elements"
        return code_reason(work.code)

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`."""
        nest, spec = _decide(work, target)
        return cost_us(nest, spec, arch_named(target.arch.data))

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        assert work.code is not None
        nest, spec = _decide(work, target)
        entries = {**spec_record(nest, spec), **_start_and_rounding(work, target)}
        if workspace := partial_bytes(nest, spec):
            entries["workspace_bytes"] = _integer(workspace)
        if spec.splits == 1:
            entries["may_alias"] = _may_alias(work, work.code)
        return entries


def _decide(work: Work, target: TargetAttr) -> tuple[LoopNest, GeneratedSpec]:
    assert work.code is not None
    operands = (*work.operands, *work.results)
    nest = nest_of(work.code, [o.strides for o in operands], [o.dtype for o in operands])
    return nest, choose(nest, [o.offset for o in operands], arch_named(target.arch.data))


def _may_alias(work: Work, code: KernelOp) -> Attribute:
    """Outputs that may lie on an input: same element at every point, stored in the last phase (nothing reads later).

    An input that is read at computed indices is never one.
    """
    found: list[tuple[int, int]] = []
    for op in code.phases[-1].body.block.ops:
        if not isinstance(op, StoreOp):
            continue
        output = op.output.value.data
        for place, map_ in enumerate(code.in_maps):
            same_type = work.operands[place].dtype == work.results[output].dtype
            if same_type and map_ == code.out_maps[output] and place not in code.indexed:
                found.append((output, place))
    return ArrayAttr([ArrayAttr([_integer(out), _integer(in_)]) for out, in_ in sorted(found)])


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
        if (reason := dtype_reason(work)) is not None:
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
        parts = [DictionaryAttr(spec_record(nest, spec)) for nest, spec in self._decide(work, target)]
        return {
            "axis": work.attrs.get("axis", _integer(0)),
            "parts": ArrayAttr(parts),
            **_start_and_rounding(work, target),
        }


def _strided(operand: OperandInfo) -> Strided:
    return Strided(operand.shape, operand.strides, operand.dtype)


# Records


def _integer(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


def _start_and_rounding(work: Work, target: TargetAttr) -> dict[str, Attribute]:
    """What all kernels here do, where there is programmatic launch: wait before they read anything, and let their
    successors start at once."""
    entries: dict[str, Attribute] = {"rounding": StringAttr(work.rounding)}
    if arch_named(target.arch.data).has_tma:
        entries |= {"early_reads": ArrayAttr([]), "triggers": BoolAttr.from_bool(True)}
    return entries


def spec_record(nest: LoopNest, spec: GeneratedSpec) -> dict[str, Attribute]:
    """Every decision about the loops of one kernel; the grids follow from them and are there to be read."""
    blocks = spec.blocks(nest)
    grids = [[blocks, splits, 1] for _, splits in spec.launches(nest)]
    return {
        "strategy": StringAttr(spec.strategy),
        **{name: _integer(getattr(spec, name)) for name in _NUMBERS},
        "late": BoolAttr.from_bool(spec.late),
        "grids": ArrayAttr([ArrayAttr([_integer(size) for size in grid]) for grid in grids]),
        "block": ArrayAttr([_integer(spec.threads), _integer(1), _integer(1)]),
        "combination_order": StringAttr(spec.combination_order(nest)),
    }


def read_spec(record: Record) -> GeneratedSpec:
    """The decisions of a record. Raises PlanError if it lacks one."""
    strategy, late = record.get("strategy"), record.get("late")
    if not isinstance(strategy, StringAttr) or not isinstance(late, IntegerAttr):
        raise PlanError("kernel record lacks 'strategy' or 'late': run select-kernels again")
    numbers = [read_integer(record, name) for name in _NUMBERS]
    return GeneratedSpec(strategy.data, *numbers, late=bool(late.value.data))


def read_integer(record: Record, key: str) -> int:
    """An integer entry. Raises PlanError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, IntegerAttr):
        raise PlanError(f"kernel record lacks the integer '{key}': run select-kernels again")
    return value.value.data


def read_text(record: Record, key: str) -> str:
    """A string entry. Raises PlanError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, StringAttr):
        raise PlanError(f"kernel record lacks the text '{key}': run select-kernels again")
    return value.data


def read_rounding(record: Record) -> Rounding:
    """Where f16 and bf16 values are rounded. Raises PlanError if the record does not say."""
    value = record.get("rounding")
    if not isinstance(value, StringAttr) or value.data not in ("fused", "strict"):
        raise PlanError("kernel record: 'rounding' must be fused or strict; run select-kernels again")
    return value.data


def read_parts(record: Record) -> Sequence[Record]:
    """The records of the moves of a copy or concatenation. Raises PlanError if there are none."""
    value = record.get("parts")
    if not isinstance(value, ArrayAttr):
        raise PlanError("kernel record lacks the list 'parts': run select-kernels again")
    entries = cast("ArrayAttr[Attribute]", value).data
    return [entry.data for entry in entries if isinstance(entry, DictionaryAttr)]


KERNELS = (
    GeneratedKernel(),
    MoveKernel("cuda.copy", frozenset({"copy"})),
    MoveKernel("cuda.concat", frozenset({"concat"})),
)
"""The kernels of this family."""
