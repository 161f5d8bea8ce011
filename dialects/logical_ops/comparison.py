"""Comparison and selection, elementwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import LogicalOp, Operand, TypeText, require_float, same_types
from aicf.dialects.logical_ops.elementwise import UnaryOp
from aicf.dialects.logical_ops.properties import Properties, word_value
from aicf.dialects.traits import Composite, Elementwise, TakesFloat8
from aicf.dialects.types import AnyTensor, tensor, tensor_info

__all__ = ["PREDICATES", "CompareOp", "IsNanOp", "Predicate", "SelectOp"]


Predicate = Literal["eq", "ne", "lt", "le", "gt", "ge"]
PREDICATES: tuple[Predicate, ...] = ("eq", "ne", "lt", "le", "gt", "ge")


@irdl_op_definition
class CompareOp(LogicalOp):
    """Compares as ``predicate`` says, to i1; comparisons with NaN are false, ``ne`` true."""

    name = "logical.compare"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW

    predicate = prop_def(StringAttr)
    lhs = operand_def()
    rhs = operand_def()
    traits = traits_def(Elementwise())

    def __init__(self, predicate: Predicate, lhs: Operand, rhs: Operand):
        super().__init__(lhs, rhs, predicate=predicate)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' shape with element type i1."""
        word_value("predicate", properties, PREDICATES)
        return tensor(same_types(operands).sizes, "i1")

    @classmethod
    def parse_leading(cls, parser: Parser) -> dict[str, Attribute]:
        """Read the predicate."""
        return {"predicate": StringAttr(parser.parse_str_literal(" for the predicate"))}

    def print_leading(self, printer: Printer) -> None:
        """Write the predicate."""
        printer.print_string(" ")
        printer.print_attribute(self.predicate)

    def printed_properties(self) -> Sequence[str]:
        """None: the predicate leads."""
        return ()


@irdl_op_definition
class IsNanOp(UnaryOp):
    """Whether a float is NaN, as i1."""

    name = "logical.is_nan"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW
    traits = traits_def(Composite())

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's shape with element type i1."""
        info = tensor_info(operands[0])
        require_float(info)
        return tensor(info.sizes, "i1")


@irdl_op_definition
class SelectOp(LogicalOp):
    """``condition ? on_true : on_false`` per element; the branch not taken has no influence."""

    name = "logical.select"
    condition = operand_def()
    on_true = operand_def()
    on_false = operand_def()
    traits = traits_def(Elementwise(), TakesFloat8())

    def __init__(self, condition: Operand, on_true: Operand, on_false: Operand):
        super().__init__(condition, on_true, on_false)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The type of the two branches."""
        condition = tensor_info(operands[0])
        branches = same_types(operands[1:], "branch")
        if condition.element.kind != "bool":
            raise VerifyException(
                f"condition has element type {condition.element.name}, not i1; compare it with something"
            )
        if condition.sizes != branches.sizes:
            raise VerifyException(
                f"condition has shape {condition.shape_text}, the branches {branches.shape_text}; "
                "broadcast one of them"
            )
        return branches.with_sizes(branches.sizes)

    @classmethod
    def parse_types(
        cls, parser: Parser, operand_count: int
    ) -> tuple[Sequence[Attribute], Sequence[Attribute]]:
        """Read ``C, T``."""
        condition = parser.parse_type()
        parser.parse_punctuation(",")
        branch = parser.parse_type()
        return [condition, branch, branch], [branch]

    def print_types(self, printer: Printer) -> None:
        """Write ``C, T``."""
        printer.print_list((self.condition.type, self.result.type), printer.print_attribute)
