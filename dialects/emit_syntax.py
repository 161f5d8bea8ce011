"""Pieces of text that the custom formats of emit ops share: strings, integers, dictionaries, symbols, operands.

xDSL prints a string with bytes past ASCII as escapes and reads those back as bytes, not as a string; here every
string of an emit op, keys and nested values of its dictionaries included, reads back as what was printed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TypeVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    BytesAttr,
    DictionaryAttr,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    f64,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer

T = TypeVar("T")

_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1


@contextmanager
def in_parens(parser: Parser) -> Generator[None]:
    """Reads `(`, what the caller reads, and `)`."""
    parser.parse_punctuation("(")
    yield
    parser.parse_punctuation(")")


def parse_in_parens(parser: Parser, parse: Callable[[Parser], T]) -> T:
    """What `parse` reads between parentheses."""
    with in_parens(parser):
        return parse(parser)


def parse_integer(parser: Parser) -> int:
    """A decimal or hexadecimal integer that fits i64; `true` and `false` are none."""
    start = parser.pos
    number = parser.parse_integer(allow_boolean=False)
    if not _I64_MIN <= number <= _I64_MAX:
        parser.raise_error(f"{number} does not fit i64", start, parser.pos)
    return number


def parse_integers(parser: Parser) -> list[int]:
    """`[1, 2]`."""
    return parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_integer(parser))


def parse_integer_attr(parser: Parser) -> IntegerAttr[IntegerType]:
    """An integer as an i64 attribute."""
    return IntegerAttr(parse_integer(parser), i64)


def parse_microseconds(parser: Parser) -> FloatAttr[Float64Type]:
    """A time as an f64 attribute."""
    return FloatAttr(parser.parse_number(allow_boolean=False), f64)


def print_expected_us(printer: Printer, time: FloatAttr[Float64Type]) -> None:
    """``expected_us(4.2)``, with all digits and no exponent."""
    printer.print_string(f"expected_us({Decimal(repr(time.value.data)):f})")


# Strings


def parse_optional_string(parser: AttrParser) -> str | None:
    """A string literal, escaped UTF-8 bytes decoded; None if the next token is no string."""
    if (text := parser.parse_optional_str_literal()) is not None:
        return text
    start = parser.pos
    if (raw := parser.parse_optional_bytes_literal()) is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        parser.raise_error("the string is not UTF-8", start, parser.pos)


def parse_string(parser: AttrParser) -> str:
    """A string literal, escaped UTF-8 bytes decoded."""
    return parser.expect(lambda: parse_optional_string(parser), "string literal expected")


def parse_string_attr(parser: AttrParser) -> StringAttr:
    """A string literal as an attribute."""
    return StringAttr(parse_string(parser))


def print_strings(printer: Printer, strings: ArrayAttr[StringAttr]) -> None:
    """`["a", "b"]`."""
    with printer.in_square_brackets():
        printer.print_list(strings, lambda s: printer.print_string_literal(s.data))


def parse_strings(parser: Parser) -> ArrayAttr[StringAttr]:
    """`["a", "b"]`."""
    names = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_string(parser))
    return ArrayAttr([StringAttr(name) for name in names])


# Dictionaries


def parse_attribute(parser: AttrParser) -> Attribute:
    """Any attribute; string literals in it, at any depth of arrays and dictionaries, become strings."""
    if (entries := parse_optional_dictionary(parser)) is not None:
        return entries
    items = parser.parse_optional_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parse_attribute(parser)
    )
    if items is not None:
        return ArrayAttr(items)
    attribute = parser.parse_attribute()
    return _as_text(attribute) if isinstance(attribute, BytesAttr) else attribute


def _as_text(attribute: BytesAttr) -> Attribute:
    try:
        return StringAttr(attribute.data.decode())
    except UnicodeDecodeError:
        return attribute


def parse_optional_dictionary(parser: AttrParser) -> DictionaryAttr | None:
    """`{key = value, unit}`, if the next token is a brace. A key stands once."""
    entries = parser.parse_optional_comma_separated_list(
        parser.Delimiter.BRACES, lambda: _parse_entry(parser)
    )
    if entries is None:
        return None
    result: dict[str, Attribute] = {}
    for key, value in entries:
        if key in result:
            parser.raise_error(f"key '{key}' stands twice in one dictionary")
        result[key] = value
    return DictionaryAttr(result)


def _parse_entry(parser: AttrParser) -> tuple[str, Attribute]:
    key = parser.parse_optional_identifier()
    if key is None:
        key = parse_string(parser)
    if parser.parse_optional_punctuation("=") is None:
        return key, UnitAttr()
    return key, parse_attribute(parser)


def parse_dictionary(parser: AttrParser) -> DictionaryAttr:
    """`{key = value, unit}`."""
    return parser.expect(lambda: parse_optional_dictionary(parser), "dictionary expected")


def parse_attributes(parser: Parser, reserved: Sequence[str] = ()) -> dict[str, Attribute]:
    """`attributes {...}` if present: the discardable attributes of an op. `reserved` names are refused."""
    if parser.parse_optional_keyword("attributes") is None:
        return {}
    entries = dict(parse_dictionary(parser).data)
    for name in reserved:
        if name in entries:
            parser.raise_error(f"'{name}' is a field of the op and cannot be an attribute")
    return entries


def print_attributes(printer: Printer, op: Operation) -> None:
    """` attributes {...}` if `op` has discardable attributes."""
    printer.print_op_attributes(op.attributes, print_keyword=True)


# Symbols


def print_symbol(printer: Printer, keyword: str, symbol: SymbolRefAttr) -> None:
    """`keyword(@symbol)`."""
    printer.print_string(f"{keyword}(")
    printer.print_symbol_name(symbol.root_reference.data)
    printer.print_string(")")


def parse_symbol(parser: Parser) -> SymbolRefAttr:
    """`@symbol`."""
    return SymbolRefAttr(parser.parse_symbol_name())


# Operands and types


def print_types(printer: Printer, types: Sequence[Attribute]) -> None:
    """`(T, U)`."""
    with printer.in_parens():
        printer.print_list(types, printer.print_attribute)


def parse_types(parser: Parser) -> list[Attribute]:
    """`(T, U)`."""
    return list(parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type))


def print_operands(printer: Printer, keyword: str, operands: Sequence[SSAValue]) -> None:
    """`keyword(%a, %b : T, U)`."""
    printer.print_string(f"{keyword}(")
    if operands:
        printer.print_list(operands, printer.print_operand)
        printer.print_string(" : ")
        printer.print_list([operand.type for operand in operands], printer.print_attribute)
    printer.print_string(")")


def parse_operands(parser: Parser) -> list[SSAValue]:
    """`(%a, %b : T, U)`."""
    with in_parens(parser):
        names: list[UnresolvedOperand] = []
        if (first := parser.parse_optional_unresolved_operand()) is None:
            return []
        names.append(first)
        while parser.parse_optional_punctuation(",") is not None:
            names.append(parser.parse_unresolved_operand())
        position = parser.pos
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        return list(parser.resolve_operands(names, types, position))
