"""Instructions: `emit.resolved`, one call of one kernel with every decision about it, and its Python form."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import cast

from xdsl.builder import Builder
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FlatSymbolRefAttrConstr,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.emit_constraints import constraints_problem
from aicf.dialects.emit_syntax import (
    parse_attributes,
    parse_dictionary,
    parse_in_parens,
    parse_integer_attr,
    parse_microseconds,
    parse_operands,
    parse_string,
    parse_string_attr,
    parse_strings,
    parse_symbol,
    print_attributes,
    print_expected_us,
    print_operands,
    print_strings,
    print_symbol,
)
from aicf.dialects.emit_types import BufferType, EdgeAttr, KernelAttr, parse_record, print_record
from aicf.dialects.kinds import KINDS, number_of, pack, schema_of, schemas_of, unpack
from aicf.errors import did_you_mean

_BLOB = re.compile(r"0x([0-9a-f]{2})*")


@irdl_op_definition
class ResolvedOp(IRDLOperation):
    """One instruction: reads `ins`, defines `outs`, may use `ws`; with every decision about it.

    `body` says what it means, `code` is its generated scalar program if it has one, `prologue` the row program that
    makes the left operand of its product, `kernel` everything a launch needs, `expected_us` its measured or predicted
    microseconds, `constraints` what no pass may undo (`emit_constraints.py`), `hints` comments that no pass reads.
    """

    name = "emit.resolved"

    kind = prop_def(StringAttr)
    kind_id = prop_def(IntegerAttr.constr(i64))
    instruction = prop_def(StringAttr)
    src = prop_def(ArrayAttr[StringAttr])
    attrs = prop_def(DictionaryAttr)
    schema = prop_def(StringAttr)
    blob = prop_def(StringAttr)
    body = opt_prop_def(FlatSymbolRefAttrConstr)
    code = opt_prop_def(FlatSymbolRefAttrConstr)
    prologue = opt_prop_def(FlatSymbolRefAttrConstr)
    kernel = opt_prop_def(KernelAttr)
    expected_us = opt_prop_def(FloatAttr[Float64Type])
    constraints = prop_def(DictionaryAttr)
    hints = prop_def(DictionaryAttr)
    stream = opt_prop_def(IntegerAttr.constr(i64))
    after = prop_def(ArrayAttr[EdgeAttr])
    ins = var_operand_def(BufferType)
    outs = var_operand_def(BufferType)
    ws = var_operand_def(BufferType)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        kind: str,
        instruction: str,
        src: Sequence[str],
        ins: Sequence[SSAValue],
        outs: Sequence[SSAValue],
        *,
        ws: Sequence[SSAValue] = (),
        kind_id: int | None = None,
        attrs: Mapping[str, Attribute] | None = None,
        schema: str | None = None,
        blob: bytes | None = None,
        body: str | None = None,
        code: str | None = None,
        prologue: str | None = None,
        kernel: KernelAttr | None = None,
        expected_us: FloatAttr[Float64Type] | None = None,
        constraints: Mapping[str, Attribute] | None = None,
        hints: Mapping[str, Attribute] | None = None,
        stream: int | None = None,
        after: Sequence[EdgeAttr] = (),
    ):
        attrs = attrs or {}
        schema = schema_of(kind, bare=not attrs) if schema is None else schema
        if blob is None:
            blob = pack(schema, attrs)
        super().__init__(
            operands=[list(ins), list(outs), list(ws)],
            properties={
                "kind": StringAttr(kind),
                "kind_id": IntegerAttr(number_of(kind) if kind_id is None else kind_id, i64),
                "instruction": StringAttr(instruction),
                "src": ArrayAttr([StringAttr(name) for name in src]),
                "attrs": DictionaryAttr(attrs),
                "schema": StringAttr(schema),
                "blob": StringAttr("0x" + blob.hex()),
                "body": None if body is None else SymbolRefAttr(body),
                "code": None if code is None else SymbolRefAttr(code),
                "prologue": None if prologue is None else SymbolRefAttr(prologue),
                "kernel": kernel,
                "expected_us": expected_us,
                "constraints": DictionaryAttr(constraints or {}),
                "hints": DictionaryAttr(hints or {}),
                "stream": None if stream is None else IntegerAttr(stream, i64),
                "after": ArrayAttr(after),
            },
        )

    @property
    def parts(self) -> tuple[Sequence[SSAValue], Sequence[SSAValue], Sequence[SSAValue]]:
        """`ins`, `outs` and `ws`, for readers of all three: each alone takes the operands apart again."""
        sizes, operands = self.properties["operandSegmentSizes"], tuple(self.operands)
        assert isinstance(sizes, DenseArrayBase)
        ins, outs, _ = cast("tuple[int, int, int]", sizes.get_values())
        return operands[:ins], operands[ins : ins + outs], operands[ins + outs :]

    @property
    def fixed_operands(self) -> list[SSAValue]:
        """Operands whose addresses the kernel embeds when it is captured: `fixed_addresses` of its record, which
        counts ins before outs."""
        entry = None if self.kernel is None else self.kernel.record.data.get("fixed_addresses")
        if not isinstance(entry, ArrayAttr):
            return []
        operands = [*self.ins, *self.outs]
        indices = [index.value.data for index in cast("ArrayAttr[IntegerAttr]", entry)]
        return [operands[index] for index in indices if index < len(operands)]

    @property
    def blob_bytes(self) -> bytes:
        """The packed attributes."""
        return bytes.fromhex(self.blob.data.removeprefix("0x"))

    def verify_(self) -> None:
        problem = self._kind_problem() or self._attrs_problem() or self._relations_problem()
        if problem is not None:
            raise VerifyException(f"instruction '{self.instruction.data}': {problem}")

    def _kind_problem(self) -> str | None:
        kind = self.kind.data
        if kind not in KINDS:
            return f"unknown kind '{kind}'; {did_you_mean(kind, KINDS) or 'kinds are words such as gemm or softmax'}"
        if self.kind_id.value.data != KINDS[kind].number:
            return f"kind '{kind}' has id {KINDS[kind].number}, not {self.kind_id.value.data}"
        if not self.src.data:
            return "it names no source op (src)"
        return None if self.outs else "it defines nothing"

    def _attrs_problem(self) -> str | None:
        schema, blob = self.schema.data, self.blob.data
        if schema not in schemas_of(self.kind.data):
            legal = " or ".join(f'"{name}"' for name in schemas_of(self.kind.data))
            return f"kind '{self.kind.data}' has schema {legal}, not \"{schema}\""
        if _BLOB.fullmatch(blob) is None:
            return f"a blob is 0x and pairs of lower-case hexadecimal digits, got '{blob}'"
        try:
            packed = pack(schema, self.attrs.data)
            matches = packed == self.blob_bytes and unpack(schema, packed) == dict(self.attrs.data)
        except ValueError as error:
            return str(error)
        return None if matches else f"blob {blob} is not attrs packed by {schema} (0x{packed.hex()})"

    def _relations_problem(self) -> str | None:
        if self.stream is not None and self.stream.value.data < 0:
            return f"stream is not negative, got {self.stream.value.data}"
        if self.expected_us is not None and not 0 <= self.expected_us.value.data < inf:
            return f"expected_us is a time, got {self.expected_us.value.data}"
        if any(edge.source == self.instruction for edge in self.after):
            return "it cannot come after itself"
        return constraints_problem(self.constraints.data, len(self.ins), len(self.outs))

    @classmethod
    def parse(cls, parser: Parser) -> ResolvedOp:
        kind = parse_string(parser)
        operands: dict[str, list[SSAValue]] = {}
        fields: dict[str, Attribute] = {}
        while (keyword := parser.parse_optional_keyword_in((*_OPERANDS, *_FIELDS))) is not None:
            if keyword in operands or keyword in fields:
                parser.raise_error(f"'{keyword}' is given twice")
            if keyword in _OPERANDS:
                operands[keyword] = parse_operands(parser)
            else:
                fields[keyword] = _FIELDS[keyword](parser)
        for keyword in ("id", "name", "src"):
            if keyword not in fields:
                parser.raise_error(f"emit.resolved needs {keyword}(...)")
        op = cls.build(
            operands=[operands.get(keyword, []) for keyword in _OPERANDS],
            properties={
                "kind": StringAttr(kind),
                "attrs": DictionaryAttr({}),
                "schema": StringAttr(""),
                "blob": StringAttr("0x"),
                "constraints": DictionaryAttr({}),
                "hints": DictionaryAttr({}),
                "after": ArrayAttr([]),
            },
        )
        for keyword, value in fields.items():
            op.properties[_PROPERTY.get(keyword, keyword)] = value
        op.attributes |= parse_attributes(parser)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.kind.data)
        printer.print_string(f" id({self.kind_id.value.data})")
        _print_string_field(printer, "name", self.instruction)
        printer.print_string(" src(")
        print_strings(printer, self.src)
        printer.print_string(")")
        with printer.indented():
            for line in (self._print_operands, self._print_attrs, self._print_symbols):
                line(printer)
            if self.kernel is not None:
                _new_line(printer)
                print_record(printer, self.kernel)
            if self.expected_us is not None:
                _new_line(printer)
                print_expected_us(printer, self.expected_us)
            self._print_relations(printer)
        print_attributes(printer, self)

    def _print_operands(self, printer: Printer) -> None:
        _new_line(printer)
        print_operands(printer, "ins", self.ins)
        printer.print_string(" ")
        print_operands(printer, "outs", self.outs)
        if self.ws:
            printer.print_string(" ")
            print_operands(printer, "ws", self.ws)

    def _print_attrs(self, printer: Printer) -> None:
        if not self.schema.data and not self.attrs.data and self.blob.data == "0x":
            return
        _new_line(printer)
        printer.print_string("attrs ")
        printer.print_attribute(self.attrs)
        _print_string_field(printer, "schema", self.schema)
        _print_string_field(printer, "blob", self.blob)

    def _print_symbols(self, printer: Printer) -> None:
        fields = (("body", self.body), ("code", self.code), ("prologue", self.prologue))
        symbols = [(key, ref) for key, ref in fields if ref is not None]
        if symbols:
            _new_line(printer)
        for index, (key, reference) in enumerate(symbols):
            printer.print_string(" " if index else "")
            print_symbol(printer, key, reference)

    def _print_relations(self, printer: Printer) -> None:
        entries = [
            (key, value)
            for key, value in (("constraints", self.constraints), ("hints", self.hints))
            if value.data
        ]
        if entries:
            _new_line(printer)
        for index, (key, value) in enumerate(entries):
            printer.print_string(f"{' ' if index else ''}{key} ")
            printer.print_attribute(value)
        if self.stream is None and not self.after.data:
            return
        _new_line(printer)
        if self.stream is not None:
            printer.print_string(f"stream({self.stream.value.data}) ")
        printer.print_string("after([")
        for index, edge in enumerate(self.after):
            printer.print_string(", " if index else "")
            printer.print_string_literal(edge.source.data)
            printer.print_string(f" {edge.kind.data}")
        printer.print_string("])")


def _new_line(printer: Printer) -> None:
    printer._print_new_line()  # pyright: ignore[reportPrivateUsage]  # xDSL has no public call for it


def _print_string_field(printer: Printer, keyword: str, text: StringAttr) -> None:
    printer.print_string(f" {keyword}(")
    printer.print_string_literal(text.data)
    printer.print_string(")")


def _parse_edges(parser: Parser) -> ArrayAttr[EdgeAttr]:
    def edge() -> EdgeAttr:
        source, start = parse_string(parser), parser.pos
        try:
            return EdgeAttr(source, parser.parse_identifier())
        except VerifyException as error:
            parser.raise_error(str(error), start, parser.pos)

    return ArrayAttr(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, edge))


_OPERANDS = ("ins", "outs", "ws")
_PROPERTY = {"id": "kind_id", "name": "instruction"}
"""Keywords whose property has another name."""

_FIELDS: dict[str, Callable[[Parser], Attribute]] = {
    "id": lambda parser: parse_in_parens(parser, parse_integer_attr),
    "name": lambda parser: parse_in_parens(parser, parse_string_attr),
    "src": lambda parser: parse_in_parens(parser, parse_strings),
    "attrs": parse_dictionary,
    "schema": lambda parser: parse_in_parens(parser, parse_string_attr),
    "blob": lambda parser: parse_in_parens(parser, parse_string_attr),
    "body": lambda parser: parse_in_parens(parser, parse_symbol),
    "code": lambda parser: parse_in_parens(parser, parse_symbol),
    "prologue": lambda parser: parse_in_parens(parser, parse_symbol),
    "kernel": parse_record,
    "expected_us": lambda parser: parse_in_parens(parser, parse_microseconds),
    "constraints": parse_dictionary,
    "hints": parse_dictionary,
    "stream": lambda parser: parse_in_parens(parser, parse_integer_attr),
    "after": lambda parser: parse_in_parens(parser, _parse_edges),
}
"""Keyword of the text form -> parser of what follows it."""


def emit_resolved(
    b: Builder,
    *,
    kind: str,
    name: str,
    inputs: Sequence[SSAValue],
    outputs: Sequence[SSAValue],
    kind_id: int | None = None,
    attr_schema: str | int | None = None,
    attr_blob: bytes | None = None,
    attrs: Mapping[str, Attribute] | None = None,
    constraints: Mapping[str, Attribute] | None = None,
    hints: Mapping[str, Attribute] | None = None,
    src: Sequence[str] | None = None,
    ws: Sequence[SSAValue] = (),
    kernel: KernelAttr | None = None,
    stream: int | None = None,
    after: Sequence[EdgeAttr] = (),
    body: str | None = None,
    code: str | None = None,
    prologue: str | None = None,
) -> ResolvedOp:
    """Appends exactly one instruction at the builder's insertion point and returns it.

    Args:
        b: Builder positioned inside an `emit.program`.
        kind: Opcode name; `kind_id` defaults to its number.
        name: Unique instruction name; `src` defaults to `[name]`.
        inputs, outputs, ws: Buffers read, defined, and used as workspace.
        attr_schema: Layout of the attributes: a name, the version of the kind's own schema (0 = no attributes), or
            None for the kind's current schema.
        attrs, attr_blob: The attributes, readable and packed; either follows from the other.
        constraints, hints, kernel, stream, after: As in `ResolvedOp`.
        body, code, prologue: Symbols of the meaning and of the generated programs. They stay open if not given: what
            a final program needs of them a pass fills in.

    Raises:
        ValueError: `attrs` or `attr_blob` do not fit the schema.
        VerifyException: kind, id, schema, blob, source or a relation is wrong.
    """
    schema = _schema_name(kind, attr_schema, bare=not (attrs or attr_blob))
    if attrs is None and attr_blob is not None:
        attrs = unpack(schema, attr_blob)
    op = ResolvedOp(
        kind,
        name,
        [name] if src is None else src,
        inputs,
        outputs,
        ws=ws,
        kind_id=kind_id,
        attrs=attrs,
        schema=schema,
        blob=attr_blob,
        body=body,
        code=code,
        prologue=prologue,
        kernel=kernel,
        constraints=constraints,
        hints=hints,
        stream=stream,
        after=after,
    )
    op.verify()
    return b.insert(op)


def _schema_name(kind: str, schema: str | int | None, *, bare: bool) -> str:
    if schema is None:
        return schema_of(kind, bare=bare)
    if isinstance(schema, int):
        return f"{kind}.v{schema}" if schema else ""
    return schema
