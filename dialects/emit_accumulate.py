"""Sums of columns in a generated kernel whose rows are its points: what is combined over the parallel space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.emit_syntax import parse_attributes, parse_integer, print_attributes
from aicf.dialects.emit_types import scalar_element


@irdl_op_definition
class AccumulateOp(IRDLOperation):
    """Combines a scalar over the whole parallel space of the kernel, for each point of the reduce space, and writes
    what comes of it to output `output`, once.

    So a kernel of rows makes sums of columns of what it has in registers: a layer norm's gradient, beside that of its
    input, those of its scale and shift. The ways to combine are those of `emit.reduce`. The output follows the reduce
    dims and no parallel one. Which partial results are combined, and in which order, is in the kernel record.
    """

    name = "emit.accumulate"

    combine = prop_def(StringAttr)
    value = operand_def()
    output = prop_def(IntegerAttr.constr(i64))

    def __init__(self, combine: str, value: SSAValue, output: int):
        properties = {"combine": StringAttr(combine), "output": IntegerAttr(output, i64)}
        super().__init__(operands=[value], properties=properties)

    @classmethod
    def parse(cls, parser: Parser) -> AccumulateOp:
        combine = parser.parse_str_literal()
        value = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        output = parse_integer(parser)
        parser.parse_punctuation(":")
        op = cls(combine, parser.resolve_operand(value, parser.parse_type()), output)
        op.attributes |= parse_attributes(parser)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.combine.data)
        printer.print_string(" ")
        printer.print_operand(self.value)
        printer.print_string(f", {self.output.value.data} : ")
        printer.print_attribute(self.value.type)
        print_attributes(printer, self)


def accumulates_of(ops: Iterable[Operation]) -> list[AccumulateOp]:
    """The sums of columns among `ops`, in order."""
    return [op for op in ops if isinstance(op, AccumulateOp)]


def verify_accumulate(
    op: AccumulateOp, parallel: int, reduce_sizes: Sequence[int], map_: AffineMap, ways: Sequence[str]
) -> None:
    """Checks a sum of columns against its kernel.

    Args:
        parallel: Parallel dims of the kernel.
        reduce_sizes: Of its reduce dims.
        map_: Of the output that it writes.
        ways: To combine.

    Raises:
        VerifyException: what the docstring of `AccumulateOp` rules out.
    """
    scalar_element(op.value.type)
    if op.combine.data not in ways:
        raise VerifyException(
            f"emit.accumulate combines by one of {', '.join(ways)}, got '{op.combine.data}'"
        )
    if not parallel or not reduce_sizes:
        raise VerifyException("emit.accumulate combines over rows: its kernel has parallel and reduce dims")
    dims = {parallel + dim for dim, size in enumerate(reduce_sizes) if size > 1}
    if map_.used_dims() != dims:
        raise VerifyException(
            f"emit.accumulate: output {op.output.value.data} follows the reduce dims and no other, "
            f"but its map is {map_}"
        )
