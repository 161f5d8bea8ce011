"""What a phase of a generated kernel reads besides the elements of its point: coordinates, and elements at indices."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerAttr, MemRefType, i1, i32, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from aicf.dialects.emit_syntax import parse_attributes, parse_integer, print_attributes
from aicf.dialects.emit_types import scalar_element


@irdl_op_definition
class IndexOp(IRDLOperation):
    """The coordinate of the iteration point along dim `dim` of its kernel, from 0: parallel dims, then reduce dims."""

    name = "emit.index"

    dim = prop_def(IntegerAttr.constr(i64))
    result = result_def()

    traits = traits_def(Pure())

    def __init__(self, dim: int, type_: Attribute = i64):
        super().__init__(properties={"dim": IntegerAttr(dim, i64)}, result_types=[type_])

    @property
    def number(self) -> int:
        """Which dim."""
        return self.dim.value.data

    def verify_(self) -> None:
        if self.result.type not in (i32, i64):
            raise VerifyException(f"emit.index gives i32 or i64, got {self.result.type}")

    @classmethod
    def parse(cls, parser: Parser) -> IndexOp:
        dim = parse_integer(parser)
        parser.parse_punctuation(":")
        op = cls(dim, parser.parse_type())
        op.attributes |= parse_attributes(parser)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.number} : ")
        printer.print_attribute(self.result.type)
        print_attributes(printer, self)


def is_memory(type_: Attribute) -> bool:
    """Whether a kernel's argument of the type is an operand as a whole, to be read at indices."""
    return isinstance(type_, MemRefType)


def memory_of(type_: Attribute) -> MemRefType[Attribute]:
    """The type of an operand that is read at indices. Raises VerifyException for another one."""
    if not isa(type_, MemRefType):
        raise VerifyException(f"emit.load reads a memref, got {type_}")
    return type_


@irdl_op_definition
class LoadOp(IRDLOperation):
    """The element of an operand at computed indices, all i32 or all i64, one for each of its dims.

    Indices are in range wherever the load happens: with `if %condition else %other` only where the condition holds;
    elsewhere memory is not touched, and the result is the other value.
    """

    name = "emit.load"

    memory = operand_def()
    indices = var_operand_def()
    condition = opt_operand_def()
    otherwise = opt_operand_def()
    result = result_def()

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())

    def __init__(
        self,
        memory: SSAValue,
        indices: Sequence[SSAValue],
        condition: SSAValue | None = None,
        otherwise: SSAValue | None = None,
    ):
        super().__init__(
            operands=[memory, list(indices), condition, otherwise],
            result_types=[memory_of(memory.type).element_type],
        )

    def verify_(self) -> None:
        memory = memory_of(self.memory.type)
        scalar_element(memory.element_type)
        if len(self.indices) != memory.get_num_dims():
            raise VerifyException(f"emit.load: {len(self.indices)} indices for the dims of {memory}")
        if {index.type for index in self.indices} not in (set[Attribute](), {i32}, {i64}):
            given = ", ".join(str(index.type) for index in self.indices)
            raise VerifyException(f"emit.load: indices are all i32 or all i64, got {given}")
        if (self.condition is None) != (self.otherwise is None):
            raise VerifyException("emit.load: a condition and the value where it does not hold come together")
        if self.condition is not None and self.condition.type != i1:
            raise VerifyException(f"emit.load: the condition is i1, got {self.condition.type}")
        for value in (self.result, self.otherwise):
            if value is not None and value.type != memory.element_type:
                raise VerifyException(f"emit.load: elements of {memory} are no {value.type}")

    @classmethod
    def parse(cls, parser: Parser) -> LoadOp:
        memory = parser.parse_unresolved_operand()
        indices = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        guard: tuple[UnresolvedOperand, UnresolvedOperand] | None = None
        if parser.parse_optional_keyword("if") is not None:
            condition = parser.parse_unresolved_operand()
            parser.parse_keyword("else")
            guard = condition, parser.parse_unresolved_operand()
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        try:
            element = memory_of(type_).element_type
        except VerifyException as error:
            parser.raise_error(str(error))
        index_type = i64
        if indices:
            parser.parse_punctuation(",")
            index_type = parser.parse_type()
        op = cls(
            parser.resolve_operand(memory, type_),
            [parser.resolve_operand(index, index_type) for index in indices],
            None if guard is None else parser.resolve_operand(guard[0], i1),
            None if guard is None else parser.resolve_operand(guard[1], element),
        )
        op.attributes |= parse_attributes(parser)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.memory)
        with printer.in_square_brackets():
            printer.print_list(self.indices, printer.print_operand)
        if self.condition is not None and self.otherwise is not None:
            printer.print_string(" if ")
            printer.print_operand(self.condition)
            printer.print_string(" else ")
            printer.print_operand(self.otherwise)
        printer.print_string(" : ")
        printer.print_attribute(self.memory.type)
        if self.indices:
            printer.print_string(", ")
            printer.print_attribute(self.indices[0].type)
        print_attributes(printer, self)
