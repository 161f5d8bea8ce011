"""Buffers of a program: binds at its boundary, slots in its arena, views into both.

Each gives one value of `!emit.buffer` type; none launches anything.
"""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import (
    AnyDenseElement,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    UnitAttr,
    i64,
)
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.dense_text import print_dense
from aicf.dialects.emit_syntax import (
    in_parens,
    parse_attributes,
    parse_dictionary,
    parse_in_parens,
    parse_integer,
    parse_string,
    print_attributes,
)
from aicf.dialects.emit_types import BufferType, parse_buffer_type, scalar_element
from aicf.dialects.host_formulas import check_host, is_computed
from aicf.dialects.logical_ops.constant import Literal, parse_literal, typed_literal
from aicf.dialects.types import TensorInfo, tensor, tensor_info

BIND_ROLES = ("input", "output", "param", "state", "meta", "const", "derived")
BINDINGS = ("direct", "staged")

_CONST_ROLES = ("const", "derived")
"""Roles in space `const`; the others are memory of the caller or of the weights, `bound`."""

_UPDATED_ROLES = ("param", "state", "meta")

HOST_ELEMENTS = ("i64", "f32", "f64")
"""Types of the metas that the executable computes."""


def buffer_of(value: SSAValue) -> BufferType:
    """The type of a buffer value."""
    assert isinstance(value.type, BufferType)
    return value.type


@irdl_op_definition
class BindOp(IRDLOperation):
    """A buffer from outside: an input, output, parameter, state, meta scalar, constant or prepared weight.

    `binding`: `direct` uses the caller's address, which is a multiple of `align` bytes where that is given; `staged` an
    address of ours, with a copy at the boundary. `updated` marks a parameter, state or meta scalar that the program
    overwrites. A
    `const` carries its value: a tensor of the buffer's shape, or one element (rank 0) that stands everywhere; the
    `value` of a meta is what it starts with unless the weights have another. `host` says how the executable computes a
    meta before each run, or what it keeps for the next one, see `host_formulas`. A `derived` is what `@prepare`
    makes of parameters: computed, packed in a layout, or both. `counts` says of an output of one i64 for which outputs
    it tells how many slices are there, and along which dimension of each.
    """

    name = "emit.bind"

    role = prop_def(StringAttr)
    bind_name = prop_def(StringAttr)
    binding = opt_prop_def(StringAttr)
    align = opt_prop_def(IntegerAttr.constr(i64))
    updated = opt_prop_def(UnitAttr)
    value = opt_prop_def(DenseIntOrFPElementsAttr)
    host = opt_prop_def(DictionaryAttr)
    counts = opt_prop_def(DictionaryAttr)
    buffer = result_def(BufferType)

    def __init__(
        self,
        role: str,
        bind_name: str,
        type_: BufferType,
        *,
        binding: str | None = None,
        align: int | None = None,
        updated: bool = False,
        value: DenseIntOrFPElementsAttr | None = None,
        host: DictionaryAttr | None = None,
        counts: DictionaryAttr | None = None,
    ):
        super().__init__(
            result_types=[type_],
            properties={
                "role": StringAttr(role),
                "bind_name": StringAttr(bind_name),
                "binding": None if binding is None else StringAttr(binding),
                "align": None if align is None else IntegerAttr(align, i64),
                "updated": UnitAttr() if updated else None,
                "value": None if value is None else _canonical(value),
                "host": host,
                "counts": counts,
            },
        )

    def verify_(self) -> None:
        role, name, type_ = self.role.data, self.bind_name.data, buffer_of(self.buffer)
        if role not in BIND_ROLES:
            raise VerifyException(f"emit.bind role must be one of {', '.join(BIND_ROLES)}, got '{role}'")
        if self.binding is not None and self.binding.data not in BINDINGS:
            raise VerifyException(f"binding must be one of {', '.join(BINDINGS)}, got '{self.binding.data}'")
        self._verify_align()
        if self.updated is not None and role not in _UPDATED_ROLES:
            raise VerifyException(f"only a param, state or meta can be updated, '{name}' is {role}")
        space = "const" if role in _CONST_ROLES else "bound"
        if type_.space.data != space:
            raise VerifyException(f"{role} '{name}' is a buffer in space '{space}', got '{type_.space.data}'")
        if type_.get_layout() is not None and role != "derived":
            raise VerifyException(f"only a derived bind has a layout; '{name}' is {role}")
        _verify_starts_at_zero(self, type_)
        self._verify_value(type_)
        self._verify_host(type_)
        self._verify_counts(type_)

    def _verify_align(self) -> None:
        if self.align is None:
            return
        name, align = self.bind_name.data, self.align.value.data
        if self.role.data not in ("input", "output") or self.binding != StringAttr("direct"):
            raise VerifyException(f"only a direct input or output states an alignment, '{name}' is neither")
        if align < 1 or align & (align - 1):
            raise VerifyException(f"the alignment of '{name}' must be a power of two, got {align}")

    def _verify_value(self, type_: BufferType) -> None:
        name = self.bind_name.data
        if (self.value is not None) != (self.role.data == "const") and self.role.data != "meta":
            raise VerifyException("a const bind carries a value, and a meta may; no other does")
        if self.value is None:
            return
        info = tensor_info(self.value.type)
        if info.element.type != type_.element_type:
            raise VerifyException(f"const '{name}' holds {type_.element_type}, its value {info.element.name}")
        if info.sizes not in ((), type_.get_shape()):
            raise VerifyException(f"const '{name}' has shape {type_.get_shape()}, its value {info.sizes}")
        if not type_.is_contiguous:
            raise VerifyException(
                f"const '{name}' is contiguous; see it with other strides through emit.view"
            )

    def _verify_host(self, type_: BufferType) -> None:
        if self.host is None:
            return
        name = self.bind_name.data
        if self.role.data != "meta" or type_.get_shape():
            raise VerifyException(f"the executable computes metas of one element, '{name}' is none")
        if (element := scalar_element(type_.element_type).name) not in HOST_ELEMENTS:
            raise VerifyException(
                f"the executable computes {', '.join(HOST_ELEMENTS)}; '{name}' is {element}"
            )
        if is_computed(self.host) and (self.updated is not None or self.value is not None):
            raise VerifyException(f"'{name}' is computed before each run: nothing updates or starts it")
        check_host(self.host)

    def _verify_counts(self, type_: BufferType) -> None:
        if self.counts is None:
            return
        name = self.bind_name.data
        if self.role.data != "output" or type_.get_shape() or type_.element_type != i64:
            raise VerifyException(f"only an output of one i64 counts slices of others, '{name}' is none")
        if not all(isinstance(axis, IntegerAttr) for axis in self.counts.data.values()):
            raise VerifyException(f"the counts of '{name}' are dimensions by the names of outputs")

    @classmethod
    def parse(cls, parser: Parser) -> BindOp:
        role = parser.parse_identifier()
        name = parse_string(parser)
        binding: str | None = None
        align: int | None = None
        literal: Literal | None = None
        host: DictionaryAttr | None = None
        counts: DictionaryAttr | None = None
        start = end = parser.pos
        seen: set[str] = set()
        while parser.parse_optional_punctuation(":") is None:
            keyword = parser.parse_keyword_in(("binding", "align", "updated", "value", "host", "counts"))
            if keyword in seen:
                parser.raise_error(f"'{keyword}' is given twice")
            seen.add(keyword)
            if keyword == "binding":
                binding = parse_in_parens(parser, lambda parser: parser.parse_identifier())
            elif keyword == "align":
                align = parse_in_parens(parser, parse_integer)
            elif keyword == "value":
                start = parser.pos
                literal = parse_in_parens(parser, _parse_dense)
                end = parser.pos
            elif keyword == "host":
                host = parse_in_parens(parser, parse_dictionary)
            elif keyword == "counts":
                counts = parse_in_parens(parser, parse_dictionary)
        type_ = parse_buffer_type(parser, cls.name)
        value: DenseIntOrFPElementsAttr | None = None
        if literal is not None:
            try:
                value = typed_literal(
                    literal, TensorInfo(type_.get_shape(), scalar_element(type_.element_type))
                )
            except VerifyException as error:
                parser.raise_error(f"{cls.name}: {error}", start, end)
        updated = "updated" in seen
        op = cls(
            role,
            name,
            type_,
            binding=binding,
            align=align,
            updated=updated,
            value=value,
            host=host,
            counts=counts,
        )
        op.attributes |= parse_attributes(parser)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.role.data} ")
        printer.print_string_literal(self.bind_name.data)
        if self.binding is not None:
            printer.print_string(f" binding({self.binding.data})")
        if self.align is not None:
            printer.print_string(f" align({self.align.value.data})")
        if self.updated is not None:
            printer.print_string(" updated")
        if self.value is not None:
            printer.print_string(" value(")
            print_dense(printer, _canonical(self.value))
            printer.print_string(")")
        for keyword, entries in (("host", self.host), ("counts", self.counts)):
            if entries is not None:
                printer.print_string(f" {keyword}(")
                printer.print_attribute(entries)
                printer.print_string(")")
        printer.print_string(" : ")
        printer.print_attribute(self.buffer.type)
        print_attributes(printer, self)


def _canonical(value: DenseIntOrFPElementsAttr) -> DenseIntOrFPElementsAttr:
    """`value` with equal elements, bit by bit, as one element of rank 0."""
    info = tensor_info(value.type)
    one = value.data.data[: info.element.bytes]
    if not info.rank or value.data.data != one * (len(value.data.data) // info.element.bytes):
        return value
    type_ = cast(TensorType[AnyDenseElement], tensor((), info.element))
    return DenseIntOrFPElementsAttr(type_, BytesAttr(one))


def _parse_dense(parser: Parser) -> Literal:
    parser.parse_keyword("dense")
    with parser.in_angle_brackets():
        return parse_literal(parser)


def _verify_starts_at_zero(op: Operation, type_: BufferType) -> None:
    if type_.reach[0] < 0:
        raise VerifyException(
            f"{op.name}: a buffer starts at its first element; see it backwards through emit.view"
        )


@irdl_op_definition
class SlotOp(IRDLOperation):
    """A buffer in the arena. From phase `planned` on it has `offset`, `size` and `align`, in bytes."""

    name = "emit.slot"

    offset = opt_prop_def(IntegerAttr.constr(i64))
    size = opt_prop_def(IntegerAttr.constr(i64))
    align = opt_prop_def(IntegerAttr.constr(i64))
    buffer = result_def(BufferType)

    def __init__(
        self, type_: BufferType, offset: int | None = None, size: int | None = None, align: int | None = None
    ):
        fields = {"offset": offset, "size": size, "align": align}
        properties = {
            key: None if value is None else IntegerAttr(value, i64) for key, value in fields.items()
        }
        super().__init__(result_types=[type_], properties=properties)

    def verify_(self) -> None:
        type_ = buffer_of(self.buffer)
        if type_.space.data != "arena" or type_.get_layout() is not None:
            raise VerifyException(
                "emit.slot is a plain buffer in space 'arena'; other memory is bound by emit.bind"
            )
        _verify_starts_at_zero(self, type_)
        for name, value in (("offset", self.offset), ("size", self.size)):
            if value is not None and value.value.data < 0:
                raise VerifyException(f"emit.slot: {name} is not negative, got {value.value.data}")
        align = 1 if self.align is None else self.align.value.data
        if align < 1 or align & (align - 1):
            raise VerifyException(f"emit.slot: align is a power of two, got {align}")

    @classmethod
    def parse(cls, parser: Parser) -> SlotOp:
        fields: dict[str, int] = {}
        while parser.parse_optional_punctuation(":") is None:
            keyword = parser.parse_keyword_in(("offset", "size", "align"))
            if keyword in fields:
                parser.raise_error(f"'{keyword}' is given twice")
            fields[keyword] = parse_in_parens(parser, parse_integer)
        type_ = parse_buffer_type(parser, cls.name)
        op = cls(type_, fields.get("offset"), fields.get("size"), fields.get("align"))
        op.attributes |= parse_attributes(parser)
        return op

    def print(self, printer: Printer) -> None:
        for keyword, value in (("offset", self.offset), ("size", self.size), ("align", self.align)):
            if value is not None:
                printer.print_string(f" {keyword}({value.value.data})")
        printer.print_string(" : ")
        printer.print_attribute(self.buffer.type)
        print_attributes(printer, self)


@irdl_op_definition
class ViewOp(IRDLOperation):
    """The same bytes seen with another shape and strides; launches nothing.

    Its first element is `offset` elements after the source's first (before it, if negative: the source is a view
    with a negative stride); all its elements lie between the lowest and the highest of the source.
    """

    name = "emit.view"

    source = operand_def(BufferType)
    offset = prop_def(IntegerAttr.constr(i64))
    buffer = result_def(BufferType)

    traits = traits_def(Pure())

    def __init__(self, source: SSAValue, offset: int, type_: BufferType):
        properties = {"offset": IntegerAttr(offset, i64)}
        super().__init__(operands=[source], properties=properties, result_types=[type_])

    def verify_(self) -> None:
        source, result, offset = buffer_of(self.source), buffer_of(self.buffer), self.offset.value.data
        if source.element_type != result.element_type or source.space != result.space:
            raise VerifyException("emit.view keeps the element type and the space")
        if source.get_layout() is not None or result.get_layout() is not None:
            raise VerifyException("emit.view cannot look into a prepared layout")
        first, last = source.reach
        low, high = (offset + end for end in result.reach)
        if low < first or high > last:
            raise VerifyException(
                f"emit.view reaches elements {low} to {high} of a buffer that has {first} to {last}, ends not included"
            )

    @classmethod
    def parse(cls, parser: Parser) -> ViewOp:
        source = parser.parse_unresolved_operand()
        parser.parse_keyword("offset")
        with in_parens(parser):
            offset = parse_integer(parser)
        parser.parse_punctuation(":")
        source_type = parser.parse_type()
        parser.parse_keyword("to")
        type_ = parse_buffer_type(parser, cls.name)
        op = cls(parser.resolve_operand(source, source_type), offset, type_)
        op.attributes |= parse_attributes(parser)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.source)
        printer.print_string(f" offset({self.offset.value.data}) : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" to ")
        printer.print_attribute(self.buffer.type)
        print_attributes(printer, self)


def root_buffer(value: SSAValue) -> Operation | None:
    """The bind or slot that `value` is part of, through views; None if there is none (a malformed program)."""
    seen: set[SSAValue] = set()
    while value not in seen and isinstance(view := value.owner, ViewOp):
        seen.add(value)
        value = view.source
    return value.owner if isinstance(value.owner, BindOp | SlotOp) else None
