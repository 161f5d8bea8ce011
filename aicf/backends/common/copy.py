"""Copies and concatenations as generated kernels: one way to move elements. Imports no code generator.

A source is an operand of the instruction, or a constant of its body that is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AnyFloat,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
)
from xdsl.ir import Block, BlockArgument, OpResult, Region, SSAValue
from xdsl.ir.affine import AffineMap

from aicf.backends.common.loop_nest import LoopNest, Strided, nest_of
from aicf.backends.common.record import read_integer
from aicf.backends.common.workload import Workload
from aicf.dialects.emit_kernels import CastOp, KernelOp, PhaseOp, StoreOp, YieldOp
from aicf.dialects.logical import ConcatOp, ConstantOp
from aicf.dialects.types import element_named, tensor_info

Scalar: TypeAlias = "FloatAttr[AnyFloat] | IntegerAttr[IntegerType | IndexType]"


@dataclass(frozen=True)
class Move:
    """One source and the part of the result it fills.

    Args:
        operand: Number of the operand, None for a constant.
        offset: Where the part starts in the result, in elements.
        nest: The loops; their inputs are the operand if there is one.
    """

    operand: int | None
    offset: int
    nest: LoopNest


def _moved(block: Block) -> Sequence[SSAValue]:
    """What the body moves, in order: the operands of its concatenation, or what it yields."""
    last = block.last_op
    assert isinstance(last, YieldOp)
    first = last.operands[0] if len(last.operands) == 1 else None
    if isinstance(first, OpResult) and isinstance(first.op, ConcatOp):
        return first.op.operands
    return last.operands


def moved_text(block: Block) -> str:
    """What the body moves, as text: instructions with the same text and operands have the same code."""
    return ", ".join(str(_source(value)) for value in _moved(block))


def _source(value: SSAValue) -> int | Scalar | None:
    if isinstance(value, BlockArgument):
        return value.index
    assert isinstance(value, OpResult)
    if not isinstance(value.op, ConstantOp):
        return None
    constant = value.op.value
    element = constant.get_attrs()[0] if constant.is_splat() else None
    return element if isinstance(element, FloatAttr | IntegerAttr) else None


def moves(block: Block, operands: Sequence[Strided], target: Strided, axis: int = 0) -> list[Move] | None:
    """The moves that make `target`, side by side along `axis`; None if the body does more than move elements."""
    found: list[Move] = []
    start = 0
    for value in _moved(block):
        source, shape = _source(value), tensor_info(value.type).shape
        if source is None:
            return None
        part = Strided(shape, target.strides, target.dtype)
        nest = copy_nest(operands[source], part) if isinstance(source, int) else _fill_nest(source, part)
        found.append(
            Move(
                source if isinstance(source, int) else None,
                start * target.strides[axis] if shape else 0,
                nest,
            )
        )
        start += shape[axis] if shape else 1
    return found


def moves_of_work(work: Workload) -> list[Move] | None:
    """The moves of a copy or concatenation; None if its body does more than move elements."""
    axis = read_integer(work.attrs, "axis") if "axis" in work.attrs else 0
    *sources, target = (Strided(o.shape, o.strides, o.dtype) for o in (*work.operands, work.results[0]))
    return moves(work.body, sources, target, axis)


def copy_nest(source: Strided, target: Strided) -> LoopNest:
    """Loops that copy `source` to `target`, of one shape; another element type is cast to."""
    block = Block(arg_types=[element_named(source.dtype).type])
    cast = [] if source.dtype == target.dtype else [CastOp(block.args[0], element_named(target.dtype).type)]
    value = cast[0].result if cast else block.args[0]
    block.add_op(PhaseOp(Region(Block([*cast, StoreOp(value, 0), YieldOp()]))))
    identity = AffineMap.identity(len(source.shape))
    kernel = KernelOp("copy", source.shape, [], [identity], [identity], Region(block))
    return nest_of(kernel, [source.strides, target.strides], [source.dtype, target.dtype])


def _fill_nest(value: Scalar, target: Strided) -> LoopNest:
    constant = arith.ConstantOp(value)
    phase = PhaseOp(Region(Block([constant, StoreOp(constant.result, 0), YieldOp()])))
    identity = AffineMap.identity(len(target.shape))
    kernel = KernelOp("fill", target.shape, [], [], [identity], Region(Block([phase])))
    return nest_of(kernel, [target.strides], [target.dtype])
