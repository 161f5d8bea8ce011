"""Ops of object detectors: which boxes are kept."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import I64, IntegerAttr, UnitAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, opt_prop_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.kinds import FLAGS
from aicf.dialects.logical_ops.base import LogicalOp, Operand, OwnKind, require_float
from aicf.dialects.logical_ops.properties import Properties, int_value
from aicf.dialects.traits import PositionalOperands
from aicf.dialects.types import AnyTensor, TensorInfo, tensor, tensor_info

__all__ = ["NonMaxSuppressionOp"]


@irdl_op_definition
class NonMaxSuppressionOp(LogicalOp):
    """The boxes that are kept of each class, best first, as numbers (i64); -1 after the last one.

    boxes: ``[B, N, 4]``, two opposite corners of each; with ``centred`` its centre and its size. scores:
    ``[B, C, N]``, in the type of the boxes, f32 or f64. The result is ``[B, C, min(N, limit)]``: again and again the
    box of the highest score that is left is kept, and every box that it overlaps by more than ``overlap`` (of rank 0)
    goes. Of equal scores the box at the lower index comes first. A box whose score is NaN is never kept, nor one whose
    score is not above ``floor`` (of rank 0), if that is given.

    The overlap of two boxes is the area that they share over the area that they cover together. Boxes that share no
    area do not overlap, nor does a box with a NaN in it, nor, with ``centred``, one of negative size.
    """

    name = "logical.non_max_suppression"
    boxes = operand_def()
    scores = operand_def()
    overlap = operand_def()
    floor = opt_operand_def()
    limit = prop_def(IntegerAttr[I64])
    centred = opt_prop_def(UnitAttr)
    traits = traits_def(PositionalOperands())

    def __init__(
        self,
        boxes: Operand,
        scores: Operand,
        overlap: Operand,
        floor: Operand | None = None,
        *,
        limit: int,
        centred: bool = False,
    ):
        super().__init__(boxes, scores, overlap, floor, limit=limit, centred=centred)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """``[B, C, min(N, limit)]`` in i64."""
        boxes, scores, *numbers = (tensor_info(operand) for operand in operands)
        require_float(boxes)
        if boxes.element.bytes < 4:
            raise VerifyException(f"not defined for {boxes.element.name}; cast to f32 first")
        if boxes.rank != 3 or boxes.sizes[2] != 4:
            raise VerifyException(
                f"boxes are {boxes}; they are [B, N, 4]: samples, boxes, and four numbers each"
            )
        batch, count, _ = boxes.sizes
        wanted = (batch, scores.sizes[1], count) if scores.rank == 3 else ()
        if scores.sizes != wanted or scores.element != boxes.element:
            raise VerifyException(
                f"scores are {scores}; for boxes {boxes} they are [{batch}, C, {count}] of the same type"
            )
        for name, number in zip(("overlap", "floor"), numbers, strict=False):
            _check_number(name, number, boxes)
        if not isinstance(count, int):
            raise VerifyException(
                f"the number of boxes is symbolic in {boxes.shape_text}; its size must be known"
            )
        limit = int_value(properties.get("limit"))
        if limit < 1:
            raise VerifyException(f"limit is {limit}; it is at least 1")
        return tensor([batch, scores.sizes[1], min(count, limit)], "i64")

    def kind_alone(self) -> OwnKind | None:
        """`non_max_suppression`, with the form of its boxes."""
        return "non_max_suppression", {"centred": FLAGS[self.centred is not None]}


def _check_number(name: str, number: TensorInfo, boxes: TensorInfo) -> None:
    if number.rank or number.element != boxes.element:
        raise VerifyException(f"{name} is {number}; it is one {boxes.element.name} of rank 0")
