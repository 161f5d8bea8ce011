"""Groups and bodies: the part of emit IR with value semantics, before and beside the buffers.

A group is what one instruction will do; a body is what an instruction means.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from xdsl.dialects.builtin import (
    ArrayAttr,
    FlatSymbolRefAttrConstr,
    Float64Type,
    FloatAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
)
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.emit_kernels import YieldOp
from aicf.dialects.emit_syntax import (
    parse_attributes,
    parse_in_parens,
    parse_microseconds,
    parse_string,
    parse_strings,
    parse_symbol,
    parse_types,
    print_attributes,
    print_expected_us,
    print_strings,
    print_symbol,
    print_types,
)
from aicf.dialects.emit_types import KernelAttr, parse_record, print_record


@irdl_op_definition
class GroupOp(IRDLOperation):
    """Logical ops that will run as one instruction; isolated, with value semantics.

    `id` names it for ever, `src` lists the source ops it stands for. `kernel` is the record of the chosen kernel,
    `expected_us` its measured or predicted microseconds, `code` the generated scalar program and `prologue` the row
    program before its product, once `select-kernels` and `generate-kernels` have run.
    """

    name = "emit.group"

    id = prop_def(StringAttr)
    src = prop_def(ArrayAttr[StringAttr])
    kernel = opt_prop_def(KernelAttr)
    expected_us = opt_prop_def(FloatAttr[Float64Type])
    code = opt_prop_def(FlatSymbolRefAttrConstr)
    prologue = opt_prop_def(FlatSymbolRefAttrConstr)
    ins = var_operand_def()
    outs = var_result_def()
    body = region_def("single_block")

    traits = traits_def(IsolatedFromAbove(), Pure())

    def __init__(
        self,
        id: str,
        src: Sequence[str],
        ins: Sequence[SSAValue],
        body: Region,
        result_types: Sequence[Attribute],
        kernel: KernelAttr | None = None,
        code: str | None = None,
        prologue: str | None = None,
        expected_us: FloatAttr[Float64Type] | None = None,
    ):
        super().__init__(
            operands=[list(ins)],
            result_types=[list(result_types)],
            properties={
                "id": StringAttr(id),
                "src": ArrayAttr([StringAttr(name) for name in src]),
                "kernel": kernel,
                "expected_us": expected_us,
                "code": None if code is None else SymbolRefAttr(code),
                "prologue": None if prologue is None else SymbolRefAttr(prologue),
            },
            regions=[body],
        )

    def verify_(self) -> None:
        what = f"emit.group '{self.id.data}'"
        if not self.src.data:
            raise VerifyException(f"{what} names no source op")
        if self.expected_us is not None and not 0 <= self.expected_us.value.data < inf:
            raise VerifyException(f"{what}: expected_us is a time, got {self.expected_us.value.data}")
        block = self.body.block
        if tuple(block.arg_types) != tuple(self.operand_types):
            raise VerifyException(f"{what}: its body takes other types than its operands have")
        if not isinstance(block.last_op, YieldOp) or tuple(block.last_op.operand_types) != tuple(
            self.result_types
        ):
            raise VerifyException(f"{what}: its body must end with emit.yield of its result types")

    @classmethod
    def parse(cls, parser: Parser) -> GroupOp:
        id = parse_string(parser)
        parser.parse_keyword("from")
        src = [name.data for name in parse_strings(parser)]
        parser.parse_keyword("ins")
        pairs = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: _parse_group_operand(parser)
        )
        parser.parse_punctuation("->")
        results = parse_types(parser)
        kernel = parse_record(parser) if parser.parse_optional_keyword("kernel") is not None else None
        expected = None
        if parser.parse_optional_keyword("expected_us") is not None:
            expected = parse_in_parens(parser, parse_microseconds)
        code = _parse_optional_symbol(parser, "code")
        prologue = _parse_optional_symbol(parser, "prologue")
        attributes = parse_attributes(parser)
        body = parser.parse_region([argument for argument, _ in pairs])
        op = cls(id, src, [operand for _, operand in pairs], body, results, kernel, code, prologue, expected)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.id.data)
        printer.print_string(" from ")
        print_strings(printer, self.src)
        printer.print_string(" ins(")
        pairs = list(zip(self.body.block.args, self.ins, strict=True))
        for index, (argument, operand) in enumerate(pairs):
            printer.print_string(", " if index else "")
            printer.print_ssa_value(argument)
            printer.print_string(" = ")
            printer.print_operand(operand)
            printer.print_string(" : ")
            printer.print_attribute(operand.type)
        printer.print_string(") -> ")
        print_types(printer, self.result_types)
        if self.kernel is not None:
            printer.print_string(" ")
            print_record(printer, self.kernel)
        if self.expected_us is not None:
            printer.print_string(" ")
            print_expected_us(printer, self.expected_us)
        for key, symbol in (("code", self.code), ("prologue", self.prologue)):
            if symbol is not None:
                printer.print_string(" ")
                print_symbol(printer, key, symbol)
        print_attributes(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)


def _parse_optional_symbol(parser: Parser, keyword: str) -> str | None:
    if parser.parse_optional_keyword(keyword) is None:
        return None
    return parse_in_parens(parser, parse_symbol).root_reference.data


def _parse_group_operand(parser: Parser) -> tuple[Parser.Argument, SSAValue]:
    argument = parser.parse_argument(expect_type=False)
    parser.parse_punctuation("=")
    operand = parser.parse_unresolved_operand()
    parser.parse_punctuation(":")
    type_ = parser.parse_type()
    return argument.resolve(type_), parser.resolve_operand(operand, type_)


@irdl_op_definition
class BodyOp(IRDLOperation):
    """What an instruction means: logical ops from its `ins` to its `outs`, in order."""

    name = "emit.body"

    sym_name = prop_def(SymbolNameConstraint())
    body = region_def("single_block")

    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface())

    def __init__(self, sym_name: str, body: Region):
        super().__init__(properties={"sym_name": StringAttr(sym_name)}, regions=[body])

    @property
    def terminator(self) -> YieldOp:
        """The yield that names the results."""
        last = self.body.block.last_op
        assert isinstance(last, YieldOp)
        return last

    def verify_(self) -> None:
        if not isinstance(self.body.block.last_op, YieldOp):
            raise VerifyException(f"emit.body @{self.sym_name.data} must end with emit.yield")

    @classmethod
    def parse(cls, parser: Parser) -> BodyOp:
        sym_name = parser.parse_symbol_name().data
        attributes = parse_attributes(parser)
        op = cls(sym_name, parser.parse_region())
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        print_attributes(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body)
