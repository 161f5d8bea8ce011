"""A random logical program under construction: an op whose values are wild is dropped as soon as it is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.ir import Block, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import TensorInfo, tensor, tensor_info
from aicf.semantics import evaluate

Array = NDArray

SIZES = (1, 1, 2, 3, 4, 5, 8)
MAX_ELEMENTS = 256
MAX_MAGNITUDE = 32.0
MAGNITUDES = {"f64": MAX_MAGNITUDE, "f32": MAX_MAGNITUDE, "f16": 8.0, "bf16": 4.0}
"""Largest values of a program by its float type."""
MARGINS = {"f64": 1e-2, "f32": 1e-2, "f16": 5e-2, "bf16": 0.25}
"""Distance kept from discontinuities and poles: more than what rounding moves a value."""


@dataclass
class Generator:
    random: np.random.Generator
    float_type: str
    integers: tuple[str, ...] = ("i32", "i64")
    block: Block = field(default_factory=Block)
    inputs: dict[str, Array] = field(default_factory=dict)
    arrays: dict[SSAValue, Array] = field(default_factory=dict)
    interface: list[DictionaryAttr] = field(default_factory=list)

    def choice(self, items: Sequence):
        return items[int(self.random.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        rank = int(self.random.integers(1, 5)) if rank is None else rank
        shape = [int(self.choice(SIZES)) for _ in range(rank)]
        while np.prod(shape) > MAX_ELEMENTS:
            shape[int(np.argmax(shape))] = 2
        return tuple(shape)

    def argument(self, shape: Sequence[int], role: str, element: str | None = None) -> SSAValue:
        element = element or self.float_type
        info = tensor_info(tensor(shape, element))
        value = self.block.insert_arg(info.with_sizes(info.sizes), len(self.block.args))
        name = f"{role}{len(self.inputs)}"
        value.name_hint = name
        if info.element.is_float:
            array = self.random.uniform(-1.5, 1.5, shape).astype(info.element.dtype)
        else:
            array = self.random.integers(-4, 5, shape).astype(info.element.dtype)
        self.inputs[name] = array
        self.arrays[value] = array.astype(np.float64) if info.element.is_float else array
        attributes = {"logical.name": StringAttr(name), "logical.role": StringAttr(role)}
        self.interface.append(DictionaryAttr(attributes))
        return value

    def values(self, test: Callable[[TensorInfo], bool]) -> list[SSAValue]:
        return [value for value in self.arrays if test(tensor_info(value.type))]

    def float_value(self, min_rank: int = 0) -> SSAValue:
        found = self.values(lambda info: info.element.name == self.float_type and info.rank >= min_rank)
        found = [value for value in found if not (value.name_hint or "").startswith("param")]
        # Mostly recent values, so that programs grow deep; old ones too, so that values are shared.
        return found[-1] if self.chance(0.7) else self.choice(found)

    def add(self, op: LogicalOp) -> SSAValue | None:
        """Evaluate an op and append it if its values are tame."""
        operands = [self.arrays[operand] for operand in op.operands]
        (result,) = evaluate(op, operands, "exact")
        margin, largest = MARGINS[self.float_type], MAGNITUDES[self.float_type]
        if not _is_tame(op, operands, margin) or not _is_bounded(result, largest):
            op.erase()
            return None
        self.block.add_op(op)
        self.arrays[op.result] = result
        return op.result

    def add_tamed(self, op: LogicalOp, tame: Callable[[SSAValue], LogicalOp]) -> SSAValue | None:
        """Append an op whatever its values are, for the op that makes them tame: no other one reads it."""
        (self.arrays[op.result],) = evaluate(op, [self.arrays[operand] for operand in op.operands], "exact")
        self.block.add_op(op)
        result = self.add(tame(op.result))
        del self.arrays[op.result]
        return result

    def require(self, op: LogicalOp) -> SSAValue:
        result = self.add(op)
        if result is None:
            raise VerifyException("not tame")
        return result

    def like(self, value: SSAValue) -> SSAValue:
        """Another value of the same type: an old one, or one broadcast to it, a constant or a new parameter."""
        info = tensor_info(value.type)
        same = [other for other in self.values(lambda other: other == info) if other is not value]
        if same and self.chance(0.5):
            return self.choice(same)
        if self.chance(0.3):
            number = (
                self.choice((0.0, 1.0, 0.5, -2.0, 0.3)) if info.element.is_float else self.choice((0, 1, 3))
            )
            return self.require(logical.ConstantOp(number, value.type))
        if info.rank and self.chance(0.6):
            return self.broadcast_parameter(info)
        return self.argument(info.shape, "param", info.element.name)

    def broadcast_parameter(self, info: TensorInfo) -> SSAValue:
        kept = sorted(
            self.random.permutation(info.rank)[: int(self.random.integers(0, info.rank + 1))].tolist()
        )
        shape = [1 if self.chance(0.3) else info.shape[axis] for axis in kept]
        small = self.argument(shape, "param", info.element.name)
        return self.require(logical.BroadcastOp(small, kept, info.sizes))


def _is_bounded(result: Array, largest: float) -> bool:
    small = result.size <= 4 * MAX_ELEMENTS and bool(np.all(np.isfinite(result)))
    return small and (result.dtype.kind == "b" or bool(np.max(np.abs(result)) <= largest))


def _is_tame(op: LogicalOp, operands: Sequence[Array], margin: float) -> bool:
    match op:
        case logical.LogOp() | logical.SqrtOp() | logical.RsqrtOp():
            return bool(np.min(operands[0]) > 10 * margin)
        case logical.Log1pOp():
            return bool(np.min(operands[0]) > 10 * margin - 1)
        case logical.ReciprocalOp() | logical.PowOp():
            return bool(np.min(np.abs(operands[0])) > 10 * margin)
        case logical.SignOp() if operands[0].dtype.kind == "f":
            return bool(np.min(np.abs(operands[0])) > margin)
        case logical.FloorOp() | logical.CeilOp():
            return _is_far_from_whole(operands[0], margin)
        case logical.RoundOp():
            return _is_far_from_whole(operands[0] + 0.5, margin)
        case logical.DivOp():
            return bool(np.min(np.abs(operands[1])) > 10 * margin)
        case logical.CompareOp() if operands[0].dtype.kind == "f":
            return bool(np.min(np.abs(operands[0] - operands[1])) > margin)
        case logical.CastOp() if operands[0].dtype.kind == "f" and op.info.element.kind == "int":
            return _is_far_from_whole(operands[0], margin)
        case logical.CastOp() if operands[0].dtype.kind == "f" and op.info.element.kind == "bool":
            return bool(np.min(np.abs(operands[0])) > margin)
        case logical.LayerNormOp():
            spread = np.var(operands[0], axis=logical.normalized_axes(op))
            return bool(np.min(spread) > 10 * margin)
        case logical.RmsNormOp():
            square = np.mean(operands[0] ** 2, axis=logical.normalized_axes(op))
            return bool(np.min(square) > 10 * margin)
        case logical.GroupNormOp():
            groups = operands[0].reshape(len(operands[0]), op.groups.value.data, -1)
            return bool(np.min(np.var(groups, axis=-1)) > 10 * margin)
        case logical.ArgOp() if operands[0].shape[axis := op.axis.value.data] > 1:
            ranked = np.sort(operands[0], axis=axis)
            return bool(np.min(np.diff(ranked, axis=axis)) > margin)
        case logical.ReduceL2Op():
            return bool(np.min(np.max(np.abs(operands[0]), axis=logical.int_values(op.axes))) > 10 * margin)
        case _:
            return True


def _is_far_from_whole(x: Array, margin: float) -> bool:
    return bool(np.min(np.abs(x - np.rint(x))) > margin)
