"""``logical.dispatch``: the table from sizes of symbolic dimensions to specialised programs.

``specialize-shapes`` writes it; the lookup is exact, so no rounding to a bucket is hidden in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, StringAttr, SymbolNameConstraint, SymbolRefAttr
from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.properties import int_values, ints

__all__ = ["DispatchOp"]


@irdl_op_definition
class DispatchOp(IRDLOperation):
    """``logical.dispatch @mlp dims ["N"] [[1] = @"mlp@N=1", [540] = @"mlp@N=540"]``: one program per row."""

    name = "logical.dispatch"
    sym_name = prop_def(SymbolNameConstraint())
    dim_names = prop_def(ArrayAttr[StringAttr])
    keys = prop_def(ArrayAttr[DenseArrayBase])
    programs = prop_def(ArrayAttr[SymbolRefAttr])
    traits = traits_def(SymbolOpInterface())

    def __init__(self, name: str, dim_names: Sequence[str], rows: Sequence[tuple[Sequence[int], str]]):
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(name),
            "dim_names": ArrayAttr(StringAttr(dim) for dim in dim_names),
            "keys": ArrayAttr(ints(sizes) for sizes, _ in rows),
            "programs": ArrayAttr(SymbolRefAttr(program) for _, program in rows),
        }
        super().__init__(properties=properties)

    @property
    def names(self) -> tuple[str, ...]:
        """The symbolic dimensions, in the order of the keys."""
        return tuple(name.data for name in self.dim_names)

    @property
    def table(self) -> dict[tuple[int, ...], str]:
        """From the sizes of the dimensions to the symbol of the program."""
        return {
            int_values(key): program.string_value()
            for key, program in zip(self.keys, self.programs, strict=True)
        }

    def verify_(self) -> None:
        if len(self.keys) != len(self.programs) or not self.programs:
            raise VerifyException("logical.dispatch: give at least one row, each with a program")
        if len(set(self.names)) != len(self.names):
            raise VerifyException(f"logical.dispatch: a dimension name is repeated in {list(self.names)}")
        for key in self.keys:
            sizes = int_values(key)
            if len(sizes) != len(self.names) or any(size < 0 for size in sizes):
                raise VerifyException(
                    f"logical.dispatch: row {list(sizes)} needs one size of at least 0 for each of "
                    f"{list(self.names)}"
                )
        if len(self.table) != len(self.keys):
            raise VerifyException("logical.dispatch: two rows have the same sizes")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read ``@name dims ["N"] [[1] = @program, ...] attributes {...}``."""
        name = parser.parse_symbol_name().data
        parser.parse_keyword("dims")
        dim_names = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_str_literal)
        rows = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_row(parser))
        op = cls(name, dim_names, rows)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        if attributes is not None:
            op.attributes.update(attributes.data)
        return op

    def print(self, printer: Printer) -> None:
        """Write ``@name dims ["N"] [[1] = @program, ...] attributes {...}``."""
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" dims ")
        printer.print_attribute(self.dim_names)
        printer.print_string(" ")
        with printer.in_square_brackets():
            printer.print_list(self.table.items(), lambda row: _print_row(printer, *row))
        printer.print_op_attributes(self.attributes, print_keyword=True)


def _parse_row(parser: Parser) -> tuple[list[int], str]:
    sizes = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
    parser.parse_punctuation("=")
    return sizes, parser.parse_symbol_name().data


def _print_row(printer: Printer, sizes: Sequence[int], program: str) -> None:
    printer.print_string("[" + ", ".join(str(size) for size in sizes) + "] = ")
    printer.print_symbol_name(program)
