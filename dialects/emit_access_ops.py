"""What a phase of a generated kernel reads besides the elements of its point: the point's own coordinates."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, i32, i64
from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.emit_syntax import parse_attributes, parse_integer, print_attributes


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
