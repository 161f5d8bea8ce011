"""Emit IR: how a program runs, completely.

`emit.group` outlines logical ops while kernels are chosen; `emit.program` is the buffer program that the runtime
captures; `emit.body` keeps what an instruction means; `emit.ledger` keeps why. One `emit.resolved` is one instruction.
Rules that need more than one op (overlap, happens-before, phases) live in the `verify-emit` and `verify-order` passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from xdsl.builder import Builder
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure, SymbolOpInterface, SymbolTable
from xdsl.utils.exceptions import VerifyException

from .emit_kernels import (
    CastOp,
    DivIntOp,
    KernelOp,
    PhaseOp,
    ReduceOp,
    SigmoidOp,
    StoreOp,
    YieldOp,
)
from .emit_types import BufferType, EdgeAttr, KernelAttr, LayoutAttr, TargetAttr
from .kinds import KIND_IDS, pack, schema_of, unpack

PHASES = ("bufferized", "scheduled", "inplace", "planned", "final")
"""Phases of an `emit.program`, in order; each fixes which fields are decided."""

BIND_ROLES = ("input", "output", "param", "state", "meta", "const", "derived")
BINDINGS = ("direct", "staged")
WRITTEN_ROLES = ("output", "derived")

PREPARE = "prepare"
"""Symbol of the program that fills `derived` binds, run once when weights are bound."""


# Printing and parsing helpers


def _print_strings(printer: Printer, strings: ArrayAttr[StringAttr]) -> None:
    with printer.in_square_brackets():
        printer.print_list(strings, lambda s: printer.print_string_literal(s.data))


def _parse_strings(parser: Parser) -> ArrayAttr[StringAttr]:
    names = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_str_literal)
    return ArrayAttr([StringAttr(name) for name in names])


@contextmanager
def _in_parens(parser: Parser) -> Iterator[None]:
    parser.parse_punctuation("(")
    yield
    parser.parse_punctuation(")")


def _parse_dictionary(parser: Parser) -> DictionaryAttr:
    entries = parser.parse_attribute()
    if not isinstance(entries, DictionaryAttr):
        parser.raise_error("expected a dictionary")
    return entries


def _print_record(printer: Printer, record: KernelAttr) -> None:
    printer.print_string("kernel(")
    printer.print_string_literal(record.kernel.data)
    printer.print_string(", ")
    printer.print_attribute(record.record)
    printer.print_string(")")


def _parse_record(parser: Parser) -> KernelAttr:
    with _in_parens(parser):
        kernel = parser.parse_str_literal()
        parser.parse_punctuation(",")
        return KernelAttr(kernel, _parse_dictionary(parser))


def _print_types(printer: Printer, types: Sequence[Attribute]) -> None:
    with printer.in_parens():
        printer.print_list(types, printer.print_attribute)


def _parse_types(parser: Parser) -> list[Attribute]:
    return list(parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type))


def _print_operands(printer: Printer, keyword: str, operands: Sequence[SSAValue]) -> None:
    printer.print_string(f"{keyword}(")
    if operands:
        printer.print_list(operands, printer.print_operand)
        printer.print_string(" : ")
        printer.print_list([operand.type for operand in operands], printer.print_attribute)
    printer.print_string(")")


def _parse_operands(parser: Parser) -> list[SSAValue]:
    with _in_parens(parser):
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


# The ledger


@irdl_op_definition
class DecisionOp(IRDLOperation):
    """One decision of a pass: about which ids, what was chosen, why, and what was rejected for which reason."""

    name = "emit.decision"

    pass_name = prop_def(StringAttr)
    subjects = prop_def(ArrayAttr[StringAttr])
    choice = prop_def(StringAttr)
    because = prop_def(StringAttr)
    rejected = prop_def(DictionaryAttr)
    cost = prop_def(DictionaryAttr)

    def __init__(
        self,
        pass_name: str,
        subjects: Sequence[str],
        choice: str,
        because: str,
        rejected: Mapping[str, str] | None = None,
        cost: Mapping[str, Attribute] | None = None,
    ):
        super().__init__(
            properties={
                "pass_name": StringAttr(pass_name),
                "subjects": ArrayAttr([StringAttr(subject) for subject in subjects]),
                "choice": StringAttr(choice),
                "because": StringAttr(because),
                "rejected": DictionaryAttr({name: StringAttr(why) for name, why in (rejected or {}).items()}),
                "cost": DictionaryAttr(cost or {}),
            }
        )

    @classmethod
    def parse(cls, parser: Parser) -> DecisionOp:
        pass_name = parser.parse_str_literal()
        subjects = [subject.data for subject in _parse_strings(parser)]
        parser.parse_keyword("choice")
        choice = parser.parse_str_literal()
        parser.parse_keyword("because")
        because = parser.parse_str_literal()
        op = cls(pass_name, subjects, choice, because)
        for keyword in ("rejected", "cost"):
            if parser.parse_optional_keyword(keyword) is not None:
                op.properties[keyword] = _parse_dictionary(parser)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.pass_name.data)
        printer.print_string(" ")
        _print_strings(printer, self.subjects)
        for keyword, text in (("choice", self.choice), ("because", self.because)):
            printer.print_string(f" {keyword} ")
            printer.print_string_literal(text.data)
        for keyword, entries in (("rejected", self.rejected), ("cost", self.cost)):
            if entries.data:
                printer.print_string(f" {keyword} ")
                printer.print_attribute(entries)

    def verify_(self) -> None:
        if not all(isinstance(reason, StringAttr) for reason in self.rejected.data.values()):
            raise VerifyException("emit.decision: every rejected alternative needs its reason, a string")


@irdl_op_definition
class LedgerOp(IRDLOperation):
    """The append-only list of decisions of a module. Removing it never changes what runs."""

    name = "emit.ledger"

    body = region_def("single_block")

    traits = traits_def(NoTerminator())

    assembly_format = "attr-dict-with-keyword $body"

    def __init__(self, decisions: Sequence[Operation] = ()):
        super().__init__(regions=[Region(Block(decisions))])

    @property
    def decisions(self) -> tuple[DecisionOp, ...]:
        """All entries, oldest first."""
        return tuple(op for op in self.body.block.ops if isinstance(op, DecisionOp))

    def verify_(self) -> None:
        if any(not isinstance(op, DecisionOp) for op in self.body.block.ops):
            raise VerifyException("emit.ledger holds emit.decision only")


# Groups and bodies: value semantics


@irdl_op_definition
class GroupOp(IRDLOperation):
    """Logical ops that will run as one instruction; isolated, with value semantics.

    `id` names it for ever, `src` lists the source ops it stands for. `kernel` is the record of the chosen kernel and
    `code` the generated scalar program, once `select-kernels` and `generate-kernels` have run.
    """

    name = "emit.group"

    id = prop_def(StringAttr)
    src = prop_def(ArrayAttr[StringAttr])
    kernel = opt_prop_def(KernelAttr)
    code = opt_prop_def(SymbolRefAttr)
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
    ):
        super().__init__(
            operands=[list(ins)],
            result_types=[list(result_types)],
            properties={
                "id": StringAttr(id),
                "src": ArrayAttr([StringAttr(name) for name in src]),
                "kernel": kernel,
                "code": None if code is None else SymbolRefAttr(code),
            },
            regions=[body],
        )

    def verify_(self) -> None:
        if not self.src.data:
            raise VerifyException(f"emit.group '{self.id.data}' names no source op")
        _verify_signature(self.body, self.operand_types, self.result_types, f"emit.group '{self.id.data}'")

    @classmethod
    def parse(cls, parser: Parser) -> GroupOp:
        id = parser.parse_str_literal()
        parser.parse_keyword("from")
        src = [name.data for name in _parse_strings(parser)]
        parser.parse_keyword("ins")
        pairs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_group_operand(parser))
        parser.parse_punctuation("->")
        results = _parse_types(parser)
        kernel = _parse_record(parser) if parser.parse_optional_keyword("kernel") is not None else None
        code = None
        if parser.parse_optional_keyword("code") is not None:
            with _in_parens(parser):
                code = parser.parse_symbol_name().data
        attributes = parser.parse_optional_attr_dict_with_keyword()
        body = parser.parse_region([argument for argument, _ in pairs])
        op = cls(id, src, [operand for _, operand in pairs], body, results, kernel, code)
        if attributes is not None:
            op.attributes |= attributes.data
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.id.data)
        printer.print_string(" from ")
        _print_strings(printer, self.src)
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
        _print_types(printer, self.result_types)
        if self.kernel is not None:
            printer.print_string(" ")
            _print_record(printer, self.kernel)
        if self.code is not None:
            printer.print_string(" code(")
            printer.print_symbol_name(self.code.root_reference.data)
            printer.print_string(")")
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)


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

    assembly_format = "$sym_name attr-dict-with-keyword $body"

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


def _verify_signature(body: Region, ins: Sequence[Attribute], outs: Sequence[Attribute], what: str) -> None:
    if tuple(body.block.arg_types) != tuple(ins):
        raise VerifyException(f"{what}: its body takes other types than its operands have")
    last = body.block.last_op
    if not isinstance(last, YieldOp) or tuple(last.operand_types) != tuple(outs):
        raise VerifyException(f"{what}: its body must end with emit.yield of its result types")


# Programs: buffers and instructions


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """A program over buffers. `phase` says which decisions are made; only `final` runs."""

    name = "emit.program"

    sym_name = prop_def(SymbolNameConstraint())
    phase = prop_def(StringAttr)
    arena_bytes = opt_prop_def(IntegerAttr)
    graphs = opt_prop_def(ArrayAttr)
    body = region_def("single_block")

    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface(), NoTerminator())

    def __init__(self, sym_name: str, phase: str = "bufferized", body: Region | None = None):
        super().__init__(
            properties={"sym_name": StringAttr(sym_name), "phase": StringAttr(phase)},
            regions=[Region(Block()) if body is None else body],
        )

    @property
    def phase_index(self) -> int:
        """Position of the phase in `PHASES`."""
        return PHASES.index(self.phase.data)

    @property
    def binds(self) -> tuple[BindOp, ...]:
        """The program's boundary, in order."""
        return tuple(op for op in self.body.block.ops if isinstance(op, BindOp))

    @property
    def slots(self) -> tuple[SlotOp, ...]:
        """Arena buffers."""
        return tuple(op for op in self.body.block.ops if isinstance(op, SlotOp))

    @property
    def instructions(self) -> tuple[ResolvedOp, ...]:
        """Instructions in text order."""
        return tuple(op for op in self.body.block.ops if isinstance(op, ResolvedOp))

    def verify_(self) -> None:
        if self.phase.data not in PHASES:
            raise VerifyException(f"program phase must be one of {', '.join(PHASES)}, got '{self.phase.data}'")
        names: set[str] = set()
        for op in self.body.block.ops:
            if not isinstance(op, BindOp | SlotOp | ViewOp | ResolvedOp):
                raise VerifyException(f"emit.program holds binds, slots, views and instructions, found {op.name}")
            if isinstance(op, ResolvedOp):
                if op.instruction.data in names:
                    raise VerifyException(f"two instructions are named '{op.instruction.data}'")
                names.add(op.instruction.data)

    @classmethod
    def parse(cls, parser: Parser) -> ProgramOp:
        sym_name = parser.parse_symbol_name().data
        attributes = parser.parse_optional_attr_dict_with_keyword()
        entries = dict(attributes.data) if attributes is not None else {}
        phase = entries.pop("phase", None)
        if not isinstance(phase, StringAttr):
            parser.raise_error("emit.program needs a phase, one of " + ", ".join(PHASES))
        body = parser.parse_region()
        if not body.blocks:
            body.add_block(Block())
        op = cls(sym_name, phase.data, body)
        for key in ("arena_bytes", "graphs"):
            if key in entries:
                op.properties[key] = entries.pop(key)
        op.attributes |= entries
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        entries = {key: value for key, value in self.properties.items() if key != "sym_name"}
        printer.print_op_attributes({**entries, **self.attributes}, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body)


@irdl_op_definition
class BindOp(IRDLOperation):
    """A buffer from outside: an input, output, parameter, state, meta scalar, constant or prepared weight.

    `binding`: `direct` uses the caller's address, `staged` an address of ours with a copy in the program. `updated`
    marks a parameter or state that the program overwrites. A `const` carries its value.
    """

    name = "emit.bind"

    role = prop_def(StringAttr)
    bind_name = prop_def(StringAttr)
    binding = opt_prop_def(StringAttr)
    updated = opt_prop_def(UnitAttr)
    value = opt_prop_def(DenseIntOrFPElementsAttr)
    buffer = result_def(BufferType)

    def __init__(
        self,
        role: str,
        bind_name: str,
        type_: BufferType,
        *,
        binding: str | None = None,
        updated: bool = False,
        value: DenseIntOrFPElementsAttr | None = None,
    ):
        super().__init__(
            result_types=[type_],
            properties={
                "role": StringAttr(role),
                "bind_name": StringAttr(bind_name),
                "binding": None if binding is None else StringAttr(binding),
                "updated": UnitAttr() if updated else None,
                "value": value,
            },
        )

    def verify_(self) -> None:
        if self.role.data not in BIND_ROLES:
            raise VerifyException(f"emit.bind role must be one of {', '.join(BIND_ROLES)}, got '{self.role.data}'")
        if self.binding is not None and self.binding.data not in BINDINGS:
            raise VerifyException(f"binding must be one of {', '.join(BINDINGS)}, got '{self.binding.data}'")
        if self.updated is not None and self.role.data not in ("param", "state"):
            raise VerifyException(f"only a param or state can be updated, '{self.bind_name.data}' is {self.role.data}")
        if (self.value is not None) != (self.role.data == "const"):
            raise VerifyException("a const bind, and only that, carries a value")

    @classmethod
    def parse(cls, parser: Parser) -> BindOp:
        role = parser.parse_identifier()
        name = parser.parse_str_literal()
        binding: str | None = None
        updated = False
        value: Attribute | None = None
        while parser.parse_optional_punctuation(":") is None:
            keyword = parser.parse_keyword_in(("binding", "updated", "value"))
            if keyword == "updated":
                updated = True
                continue
            with _in_parens(parser):
                if keyword == "binding":
                    binding = parser.parse_identifier()
                else:
                    value = parser.parse_attribute()
        type_ = parser.parse_type()
        if not isinstance(type_, BufferType):
            parser.raise_error("emit.bind gives a !emit.buffer")
        if value is not None and not isinstance(value, DenseIntOrFPElementsAttr):
            parser.raise_error("the value of a const bind is dense<...>")
        return cls(role, name, type_, binding=binding, updated=updated, value=value)

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.role.data} ")
        printer.print_string_literal(self.bind_name.data)
        if self.binding is not None:
            printer.print_string(f" binding({self.binding.data})")
        if self.updated is not None:
            printer.print_string(" updated")
        if self.value is not None:
            printer.print_string(" value(")
            printer.print_attribute(self.value)
            printer.print_string(")")
        printer.print_string(" : ")
        printer.print_attribute(self.buffer.type)


@irdl_op_definition
class SlotOp(IRDLOperation):
    """A buffer in the arena. From phase `planned` on it has `offset`, `size` and `align`, in bytes."""

    name = "emit.slot"

    offset = opt_prop_def(IntegerAttr)
    size = opt_prop_def(IntegerAttr)
    align = opt_prop_def(IntegerAttr)
    buffer = result_def(BufferType)

    def __init__(self, type_: BufferType, offset: int | None = None, size: int | None = None, align: int | None = None):
        places = {"offset": offset, "size": size, "align": align}
        super().__init__(
            result_types=[type_],
            properties={key: None if value is None else IntegerAttr(value, i64) for key, value in places.items()},
        )

    @classmethod
    def parse(cls, parser: Parser) -> SlotOp:
        places: dict[str, int] = {}
        while parser.parse_optional_punctuation(":") is None:
            keyword = parser.parse_keyword_in(("offset", "size", "align"))
            with _in_parens(parser):
                places[keyword] = parser.parse_integer()
        type_ = parser.parse_type()
        if not isinstance(type_, BufferType):
            parser.raise_error("emit.slot gives a !emit.buffer")
        return cls(type_, places.get("offset"), places.get("size"), places.get("align"))

    def print(self, printer: Printer) -> None:
        for keyword, place in (("offset", self.offset), ("size", self.size), ("align", self.align)):
            if place is not None:
                printer.print_string(f" {keyword}({place.value.data})")
        printer.print_string(" : ")
        printer.print_attribute(self.buffer.type)


@irdl_op_definition
class ViewOp(IRDLOperation):
    """The same bytes seen with another shape and strides, `offset` elements further on. Launches nothing."""

    name = "emit.view"

    source = operand_def(BufferType)
    offset = prop_def(IntegerAttr)
    buffer = result_def(BufferType)

    traits = traits_def(Pure())

    def __init__(self, source: SSAValue, offset: int, type_: BufferType):
        super().__init__(
            operands=[source], properties={"offset": IntegerAttr(offset, i64)}, result_types=[type_]
        )

    def verify_(self) -> None:
        source, result = self.source.type, self.buffer.type
        assert isinstance(source, BufferType) and isinstance(result, BufferType)
        if source.element_type != result.element_type or source.space != result.space:
            raise VerifyException("emit.view keeps the element type and the space")
        if source.get_layout() is not None or result.get_layout() is not None:
            raise VerifyException("emit.view cannot look into a prepared layout")
        last = self.offset.value.data * source.element_bytes + result.span_bytes
        if self.offset.value.data < 0 or (result.span_bytes and last > source.span_bytes):
            raise VerifyException(f"emit.view reaches byte {last} of a buffer of {source.span_bytes}")

    @classmethod
    def parse(cls, parser: Parser) -> ViewOp:
        source = parser.parse_unresolved_operand()
        parser.parse_keyword("offset")
        with _in_parens(parser):
            offset = parser.parse_integer()
        parser.parse_punctuation(":")
        source_type = parser.parse_type()
        parser.parse_keyword("to")
        type_ = parser.parse_type()
        if not isinstance(type_, BufferType):
            parser.raise_error("emit.view gives a !emit.buffer")
        return cls(parser.resolve_operand(source, source_type), offset, type_)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.source)
        printer.print_string(f" offset({self.offset.value.data}) : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" to ")
        printer.print_attribute(self.buffer.type)


@irdl_op_definition
class ResolvedOp(IRDLOperation):
    """One instruction: reads `ins`, defines `outs`, may use `ws`; with every decision about it.

    `body` says what it means, `code` is its generated scalar program if it has one, `kernel` everything a launch
    needs, `constraints` what the kernel permits (`may_alias = [[out, in], ...]`), `hints` guidance without meaning.
    """

    name = "emit.resolved"

    kind = prop_def(StringAttr)
    kind_id = prop_def(IntegerAttr)
    instruction = prop_def(StringAttr)
    src = prop_def(ArrayAttr[StringAttr])
    attrs = prop_def(DictionaryAttr)
    schema = prop_def(StringAttr)
    blob = prop_def(StringAttr)
    body = opt_prop_def(SymbolRefAttr)
    code = opt_prop_def(SymbolRefAttr)
    kernel = opt_prop_def(KernelAttr)
    constraints = prop_def(DictionaryAttr)
    hints = prop_def(DictionaryAttr)
    stream = opt_prop_def(IntegerAttr)
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
        kernel: KernelAttr | None = None,
        constraints: Mapping[str, Attribute] | None = None,
        hints: Mapping[str, Attribute] | None = None,
        stream: int | None = None,
        after: Sequence[EdgeAttr] = (),
    ):
        schema = schema_of(kind) if schema is None else schema
        attrs = attrs or {}
        if blob is None:
            blob = pack(schema, attrs)
        super().__init__(
            operands=[list(ins), list(outs), list(ws)],
            properties={
                "kind": StringAttr(kind),
                "kind_id": IntegerAttr(KIND_IDS.get(kind, -1) if kind_id is None else kind_id, i64),
                "instruction": StringAttr(instruction),
                "src": ArrayAttr([StringAttr(name) for name in src]),
                "attrs": DictionaryAttr(attrs),
                "schema": StringAttr(schema),
                "blob": StringAttr("0x" + blob.hex()),
                "body": None if body is None else SymbolRefAttr(body),
                "code": None if code is None else SymbolRefAttr(code),
                "kernel": kernel,
                "constraints": DictionaryAttr(constraints or {}),
                "hints": DictionaryAttr(hints or {}),
                "stream": None if stream is None else IntegerAttr(stream, i64),
                "after": ArrayAttr(after),
            },
        )

    @property
    def blob_bytes(self) -> bytes:
        """The packed attributes."""
        return bytes.fromhex(self.blob.data.removeprefix("0x"))

    def verify_(self) -> None:
        kind, name = self.kind.data, self.instruction.data
        if kind not in KIND_IDS:
            raise VerifyException(f"instruction '{name}': unknown kind '{kind}'; known: {', '.join(KIND_IDS)}")
        if self.kind_id.value.data != KIND_IDS[kind]:
            raise VerifyException(f"instruction '{name}': kind '{kind}' has id {KIND_IDS[kind]}, not {self.kind_id.value.data}")
        if not self.src.data:
            raise VerifyException(f"instruction '{name}' names no source op (src)")
        if not self.outs:
            raise VerifyException(f"instruction '{name}' defines nothing")
        try:
            packed = pack(self.schema.data, self.attrs.data)
            matches = packed == self.blob_bytes and unpack(self.schema.data, packed) == dict(self.attrs.data)
        except ValueError as error:
            raise VerifyException(f"instruction '{name}': {error}") from error
        if not matches:
            raise VerifyException(f"instruction '{name}': blob {self.blob.data} is not attrs packed by {self.schema.data} (0x{packed.hex()})")

    @classmethod
    def parse(cls, parser: Parser) -> ResolvedOp:
        kind = parser.parse_str_literal()
        fields: dict[str, object] = {}
        operands: dict[str, list[SSAValue]] = {"ins": [], "outs": [], "ws": []}
        while (keyword := parser.parse_optional_keyword_in(tuple(_RESOLVED_PARSERS))) is not None:
            if keyword in fields:
                parser.raise_error(f"'{keyword}' is given twice")
            fields[keyword] = _RESOLVED_PARSERS[keyword](parser)
        for keyword in operands:
            if keyword in fields:
                operands[keyword] = fields.pop(keyword)  # pyright: ignore[reportArgumentType]
        for keyword in ("id", "name", "src"):
            if keyword not in fields:
                parser.raise_error(f"emit.resolved needs {keyword}(...)")
        attributes = parser.parse_optional_attr_dict_with_keyword()
        op = cls.build(
            operands=[operands["ins"], operands["outs"], operands["ws"]],
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
            assert isinstance(value, Attribute)
            op.properties[_RESOLVED_PROPERTY.get(keyword, keyword)] = value
        if attributes is not None:
            op.attributes |= attributes.data
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.kind.data)
        printer.print_string(f" id({self.kind_id.value.data}) name(")
        printer.print_string_literal(self.instruction.data)
        printer.print_string(") src(")
        _print_strings(printer, self.src)
        printer.print_string(")")
        with printer.indented():
            self._print_lines(printer)
        printer.print_op_attributes(self.attributes, print_keyword=True)

    def _print_lines(self, printer: Printer) -> None:
        _new_line(printer)
        _print_operands(printer, "ins", self.ins)
        printer.print_string(" ")
        _print_operands(printer, "outs", self.outs)
        if self.ws:
            printer.print_string(" ")
            _print_operands(printer, "ws", self.ws)
        if self.schema.data:
            _new_line(printer)
            printer.print_string("attrs ")
            printer.print_attribute(self.attrs)
            printer.print_string(f' schema("{self.schema.data}") blob("{self.blob.data}")')
        symbols = [(key, ref) for key, ref in (("body", self.body), ("code", self.code)) if ref is not None]
        if symbols:
            _new_line(printer)
        for index, (key, reference) in enumerate(symbols):
            printer.print_string(f"{' ' if index else ''}{key}(")
            printer.print_symbol_name(reference.root_reference.data)
            printer.print_string(")")
        if self.kernel is not None:
            _new_line(printer)
            _print_record(printer, self.kernel)
        self._print_relations(printer)

    def _print_relations(self, printer: Printer) -> None:
        entries = [(key, value) for key, value in (("constraints", self.constraints), ("hints", self.hints)) if value.data]
        if entries:
            _new_line(printer)
        for index, (key, value) in enumerate(entries):
            printer.print_string(f"{' ' if index else ''}{key} ")
            printer.print_attribute(value)
        if self.stream is None:
            return
        _new_line(printer)
        printer.print_string(f"stream({self.stream.value.data}) after([")
        for index, edge in enumerate(self.after):
            printer.print_string(", " if index else "")
            printer.print_string_literal(edge.source.data)
            printer.print_string(f" {edge.kind.data}")
        printer.print_string("])")


def _new_line(printer: Printer) -> None:
    printer._print_new_line()  # pyright: ignore[reportPrivateUsage]  # xDSL has no public call for it


def _in_parens_of(parse: object):
    def parenthesised(parser: Parser) -> object:
        with _in_parens(parser):
            return parse(parser)  # pyright: ignore[reportCallIssue]

    return parenthesised


def _parse_integer(parser: Parser) -> IntegerAttr:
    return IntegerAttr(parser.parse_integer(), i64)


def _parse_string(parser: Parser) -> StringAttr:
    return StringAttr(parser.parse_str_literal())


def _parse_symbol(parser: Parser) -> SymbolRefAttr:
    return SymbolRefAttr(parser.parse_symbol_name())


def _parse_edges(parser: Parser) -> ArrayAttr[EdgeAttr]:
    def edge() -> EdgeAttr:
        return EdgeAttr(parser.parse_str_literal(), parser.parse_identifier())

    return ArrayAttr(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, edge))


_RESOLVED_PROPERTY = {"id": "kind_id", "name": "instruction"}
_RESOLVED_PARSERS = {
    "id": _in_parens_of(_parse_integer),
    "name": _in_parens_of(_parse_string),
    "src": _in_parens_of(_parse_strings),
    "ins": _parse_operands,
    "outs": _parse_operands,
    "ws": _parse_operands,
    "attrs": _parse_dictionary,
    "schema": _in_parens_of(_parse_string),
    "blob": _in_parens_of(_parse_string),
    "body": _in_parens_of(_parse_symbol),
    "code": _in_parens_of(_parse_symbol),
    "kernel": _parse_record,
    "constraints": _parse_dictionary,
    "hints": _parse_dictionary,
    "stream": _in_parens_of(_parse_integer),
    "after": _in_parens_of(_parse_edges),
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
    attr_schema: str = "",
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
) -> ResolvedOp:
    """Appends exactly one instruction at the builder's insertion point and returns it.

    Args:
        b: Builder positioned inside an `emit.program`.
        kind: Opcode name; `kind_id` defaults to its number.
        name: Unique instruction name; `src` defaults to `[name]`.
        inputs, outputs, ws: Buffers read, defined, and used as workspace.
        attr_schema, attrs, attr_blob: Attributes and their layout; the blob defaults to the packed attributes.

    Raises:
        ValueError: `attrs` do not fit the schema.
        VerifyException: kind, id, blob or source are wrong.
    """
    op = ResolvedOp(
        kind,
        name,
        [name] if src is None else src,
        inputs,
        outputs,
        ws=ws,
        kind_id=kind_id,
        attrs=attrs,
        schema=attr_schema,
        blob=attr_blob,
        body=body,
        kernel=kernel,
        constraints=constraints,
        hints=hints,
        stream=stream,
        after=after,
    )
    op.verify()
    return b.insert(op)


def find_ledger(module: ModuleOp) -> LedgerOp | None:
    """The ledger of `module`, if it has one."""
    return next((op for op in module.body.block.ops if isinstance(op, LedgerOp)), None)


def symbols(module: ModuleOp) -> dict[str, Operation]:
    """All symbols of `module` by name."""
    table: dict[str, Operation] = {}
    for op in module.body.block.ops:
        name = op.properties.get("sym_name")
        if isinstance(name, StringAttr):
            table[name.data] = op
    return table


Emit = Dialect(
    "emit",
    [
        DecisionOp,
        LedgerOp,
        GroupOp,
        BodyOp,
        YieldOp,
        ProgramOp,
        BindOp,
        SlotOp,
        ViewOp,
        ResolvedOp,
        KernelOp,
        PhaseOp,
        ReduceOp,
        StoreOp,
        SigmoidOp,
        DivIntOp,
        CastOp,
    ],
    [BufferType, LayoutAttr, TargetAttr, KernelAttr, EdgeAttr],
)
