"""Computing ops in f16 or bf16: their operands are cast, and so are their results back to f32 for who reads them there.

A product takes narrow operands. Another op does if all its operands of f32 are narrow already, or follow from
parameters alone. Kernels add up in f32 whatever their operands are; what stays f32 is what would leave the range of a
narrow type, or its precision, where it is stored: sums along axes, exponentials, powers, losses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.logical_ops.base import StatedResultOp
from aicf.dialects.traits import Contraction, Expensive, IndexedRead, RandomNumbers, Reduction, Scan
from aicf.dialects.types import ElementType, element_named, element_of, tensor, tensor_info
from aicf.passes.logical.precision.products import is_packed, parameter_values
from aicf.passes.support.identity import IdTable, name_after

F32 = element_named("f32")
_WIDE = (Reduction, Scan, Expensive, RandomNumbers)
"""What is said of ops whose results are stored as f32; reads at computed places are also `Expensive`, and copy."""

_PACKED = "its weight is packed, and kernels widen it where they read it"


@dataclass
class NarrowFloats:
    """Rewrites ops of one function, in text order.

    Args:
        function: It.
        ids: Of the module.
        narrow: Values of f32 that are narrow numbers, to those.
    """

    function: FuncOp
    ids: IdTable
    narrow: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def __post_init__(self) -> None:
        self.fixed = parameter_values(self.function)

    def against(self, op: LogicalOp) -> str | None:
        """Why an op stays as it is; None if it is to be narrow, and "" if it has nothing to do with floats."""
        floats = [value for value in op.operands if element_of(value.type) == F32]
        if not floats or isinstance(op, logical.CastOp) or self.fixed.issuperset(floats):
            return ""
        if op.has_trait(Contraction):
            return _PACKED if any(map(is_packed, floats)) else None
        if any(op.has_trait(trait) for trait in _WIDE) and not op.has_trait(IndexedRead):
            return "its results need the range or the precision of f32"
        if any(value not in self.narrow and value not in self.fixed for value in floats):
            return "it reads results that are f32"
        return None

    def rewrite(self, op: LogicalOp, element: ElementType) -> str | None:
        """Computes an op in `element`. Gives the reason if it has no such form, and changes nothing then."""
        types = [
            element_type(value, element) if element_of(value.type) == F32 else value.type
            for value in op.operands
        ]
        try:
            results = _results(op, types, element)
        except VerifyException as error:
            return f"it is not defined for {element.name}: {error}"
        for index, value in enumerate(op.operands):
            if element_of(value.type) == F32:
                op.operands[index] = self._narrowed(op, index, element)
        for result, type_ in zip(op.results, results, strict=True):
            if result.type != type_:
                self._widened(op, Rewriter.replace_value_with_new_type(result, type_))
        return None

    def round_result(self, op: LogicalOp, element: ElementType) -> None:
        """Rounds the result of an op that computes in f32, so that who reads it takes narrow operands."""
        uses = list(op.result.uses)
        cast = logical.CastOp(op.result, element)
        name_after(cast, op, element.name, self.ids)
        wide = logical.CastOp(cast.result, F32)
        name_after(wide, op, "f32", self.ids)
        self.function.body.block.insert_op_after(cast, op)
        self.function.body.block.insert_op_after(wide, cast)
        for use in uses:
            use.operation.operands[use.index] = wide.result
        self.narrow[wide.result] = cast.result

    def _narrowed(self, op: LogicalOp, index: int, element: ElementType) -> SSAValue:
        value = op.operands[index]
        known = self.narrow.get(value)
        if known is not None and element_of(known.type) == element:
            return known
        cast = logical.CastOp(value, element)
        # A name of its own for each operand: a number to tell two apart would end up behind the bucket.
        name_after(cast, op, f"operand{index}.{element.name}", self.ids)
        self._insert(cast, value)
        if known is None and value not in self.fixed:
            self.narrow[value] = cast.result
        return cast.result

    def _insert(self, cast: LogicalOp, value: SSAValue) -> None:
        """Right after the value, so that all that read it may share the cast."""
        block = self.function.body.block
        if isinstance(value.owner, LogicalOp):
            block.insert_op_after(cast, value.owner)
        elif (first := block.first_op) is not None:
            block.insert_op_before(cast, first)

    def _widened(self, op: LogicalOp, result: SSAValue) -> None:
        uses = list(result.uses)
        wide = logical.CastOp(result, F32)
        name_after(wide, op, "f32", self.ids)
        self.function.body.block.insert_op_after(wide, op)
        for use in uses:
            use.operation.operands[use.index] = wide.result
        self.narrow[wide.result] = result


def _results(op: LogicalOp, types: list[Attribute], element: ElementType) -> list[Attribute]:
    """The types of the results of operands of other types. Raises VerifyException if the op is not defined for them."""
    if not isinstance(op, StatedResultOp):
        return [op.infer(types, op.properties), *(op.infer_more(types, op.properties) or ())]
    stated = element_type(op.result, element) if element_of(op.result.type) == F32 else op.result.type
    op.check_result(types, op.properties, stated)
    return [stated]


def element_type(value: SSAValue, element: ElementType) -> Attribute:
    """The type of a value with other elements."""
    return tensor(tensor_info(value.type).sizes, element)
