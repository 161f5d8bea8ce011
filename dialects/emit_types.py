"""Types and attributes of emit IR: buffers, layouts, targets, kernel records and edges.

They carry decisions as data. What is legal to decide is checked by the ops that hold them and by `verify-emit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FixedBitwidthType,
    IntAttr,
    NoneAttr,
    StringAttr,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

SPACES = ("bound", "arena", "const")
"""Where a buffer lives: memory of the caller or of the weights, the executable's arena, constants of the program."""

EDGE_KINDS = ("full", "programmatic")


def _print_named(printer: Printer, names: Sequence[str], entries: DictionaryAttr | None) -> None:
    with printer.in_angle_brackets():
        printer.print_list(names, printer.print_string_literal)
        if entries is not None and entries.data:
            printer.print_string(", ")
            printer.print_attribute(entries)


def _parse_entries(parser: AttrParser) -> DictionaryAttr:
    if parser.parse_optional_punctuation(",") is None:
        return DictionaryAttr({})
    entries = parser.parse_attribute()
    if not isinstance(entries, DictionaryAttr):
        parser.raise_error("expected a dictionary")
    return entries


@irdl_attr_definition
class LayoutAttr(ParametrizedAttribute):
    """A physical layout that a kernel requires of an operand: a name and its parameters.

    `#emit.layout<"packed_b", {nr = 32 : i64}>`. The buffer type that holds it keeps the logical shape; `bytes` in the
    parameters is the physical size.
    """

    name = "emit.layout"

    layout: StringAttr
    parameters_: DictionaryAttr

    def __init__(self, layout: str, parameters: Mapping[str, Attribute] | DictionaryAttr):
        entries = parameters if isinstance(parameters, DictionaryAttr) else DictionaryAttr(parameters)
        super().__init__(StringAttr(layout), entries)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return [StringAttr(parser.parse_str_literal()), _parse_entries(parser)]

    def print_parameters(self, printer: Printer) -> None:
        _print_named(printer, [self.layout.data], self.parameters_)


@irdl_attr_definition
class TargetAttr(ParametrizedAttribute):
    """What the program is compiled for: backend, architecture level, and facts such as threads and library versions.

    `#emit.target<"cpu", "x86-64-v4", {threads = 1 : i64, libraries = {}}>`.
    """

    name = "emit.target"

    backend: StringAttr
    arch: StringAttr
    facts: DictionaryAttr

    def __init__(self, backend: str, arch: str, facts: Mapping[str, Attribute] | DictionaryAttr | None = None):
        entries = facts if isinstance(facts, DictionaryAttr) else DictionaryAttr(facts or {})
        super().__init__(StringAttr(backend), StringAttr(arch), entries)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            backend = parser.parse_str_literal()
            parser.parse_punctuation(",")
            arch = parser.parse_str_literal()
            return [StringAttr(backend), StringAttr(arch), _parse_entries(parser)]

    def print_parameters(self, printer: Printer) -> None:
        _print_named(printer, [self.backend.data, self.arch.data], self.facts)


@irdl_attr_definition
class KernelAttr(ParametrizedAttribute):
    """A kernel record: the kernel's id and everything a launch needs.

    Required entries: `version` (i64) and `determinism` (a class name). The rest is the kernel's own: tile,
    partition, launches, combination order, `layouts` (one per operand that must be prepared), library version.
    """

    name = "emit.kernel_record"

    kernel: StringAttr
    record: DictionaryAttr

    def __init__(self, kernel: str, record: Mapping[str, Attribute] | DictionaryAttr):
        entries = record if isinstance(record, DictionaryAttr) else DictionaryAttr(record)
        super().__init__(StringAttr(kernel), entries)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return [StringAttr(parser.parse_str_literal()), _parse_entries(parser)]

    def print_parameters(self, printer: Printer) -> None:
        _print_named(printer, [self.kernel.data], self.record)

    def verify(self) -> None:
        for entry in ("version", "determinism"):
            if entry not in self.record.data:
                raise VerifyException(f"kernel record of '{self.kernel.data}' lacks '{entry}'")


@irdl_attr_definition
class EdgeAttr(ParametrizedAttribute):
    """Happens-before from the instruction named `source`: `full` (its end) or `programmatic` (its wait)."""

    name = "emit.edge"

    source: StringAttr
    kind: StringAttr

    def __init__(self, source: str, kind: str = "full"):
        super().__init__(StringAttr(source), StringAttr(kind))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            source = parser.parse_str_literal()
            return [StringAttr(source), StringAttr(parser.parse_identifier())]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.source.data)
            printer.print_string(f" {self.kind.data}")

    def verify(self) -> None:
        if self.kind.data not in EDGE_KINDS:
            raise VerifyException(f"edge kind must be one of {', '.join(EDGE_KINDS)}, got '{self.kind.data}'")


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of `shape`, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """A region of memory seen as a tensor: static shape, element type, strides in elements, space, layout.

    `!emit.buffer<64x784xf32, arena, strides [1, 64]>`; no strides = row-major contiguous.
    """

    name = "emit.buffer"

    shape: ArrayAttr[IntAttr]
    element_type: Attribute
    space: StringAttr
    strides: ArrayAttr[IntAttr] | NoneAttr
    layout: LayoutAttr | NoneAttr

    def __init__(
        self,
        shape: Sequence[int],
        element_type: Attribute,
        space: str,
        strides: Sequence[int] | None = None,
        layout: LayoutAttr | None = None,
    ):
        explicit = None if strides is None or tuple(strides) == contiguous_strides(shape) else strides
        super().__init__(
            ArrayAttr([IntAttr(size) for size in shape]),
            element_type,
            StringAttr(space),
            NoneAttr() if explicit is None else ArrayAttr([IntAttr(step) for step in explicit]),
            NoneAttr() if layout is None else layout,
        )

    def get_shape(self) -> tuple[int, ...]:
        """Logical sizes."""
        return tuple(size.data for size in self.shape)

    def get_strides(self) -> tuple[int, ...]:
        """Strides in elements, one per dimension."""
        if isinstance(self.strides, NoneAttr):
            return contiguous_strides(self.get_shape())
        return tuple(step.data for step in self.strides)

    def get_layout(self) -> LayoutAttr | None:
        """The physical layout, None for plain strided memory."""
        return None if isinstance(self.layout, NoneAttr) else self.layout

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie row-major without gaps."""
        return isinstance(self.strides, NoneAttr)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element; i1 takes a whole byte."""
        assert isinstance(self.element_type, FixedBitwidthType)
        return self.element_type.size

    @property
    def span_bytes(self) -> int:
        """Bytes from the first to past the last element (physical size where there is a layout)."""
        if (layout := self.get_layout()) is not None:
            return _int_entry(layout.parameters_, "bytes")
        if 0 in self.get_shape():
            return 0
        reach = sum((size - 1) * abs(step) for size, step in zip(self.get_shape(), self.get_strides(), strict=True))
        return (reach + 1) * self.element_bytes

    @property
    def element_count(self) -> int:
        """Number of logical elements."""
        return prod(self.get_shape())

    def verify(self) -> None:
        if self.space.data not in SPACES:
            raise VerifyException(f"buffer space must be one of {', '.join(SPACES)}, got '{self.space.data}'")
        if not isinstance(self.element_type, FixedBitwidthType):
            raise VerifyException(f"buffer elements need a fixed size, got {self.element_type}")
        if any(size.data < 0 for size in self.shape):
            raise VerifyException("buffer sizes are static and not negative; specialize-shapes binds symbolic sizes")
        if not isinstance(self.strides, NoneAttr) and len(self.strides) != len(self.shape):
            raise VerifyException(f"buffer has {len(self.shape)} sizes but {len(self.strides)} strides")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            sizes, element_type = parser.parse_ranked_shape()
            parser.parse_punctuation(",")
            space = StringAttr(parser.parse_identifier())
            strides: ArrayAttr[IntAttr] | NoneAttr = NoneAttr()
            layout: Attribute = NoneAttr()
            while parser.parse_optional_punctuation(",") is not None:
                if parser.parse_optional_keyword("strides") is not None:
                    steps = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
                    if tuple(steps) != contiguous_strides(sizes):
                        strides = ArrayAttr([IntAttr(step) for step in steps])
                else:
                    parser.parse_keyword("layout")
                    layout = parser.parse_attribute()
            return [ArrayAttr([IntAttr(size) for size in sizes]), element_type, space, strides, layout]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string("".join(f"{size.data}x" for size in self.shape))
            printer.print_attribute(self.element_type)
            printer.print_string(f", {self.space.data}")
            if not isinstance(self.strides, NoneAttr):
                printer.print_string(f", strides [{', '.join(str(step.data) for step in self.strides)}]")
            if not isinstance(self.layout, NoneAttr):
                printer.print_string(", layout ")
                printer.print_attribute(self.layout)


EmitAttribute: TypeAlias = LayoutAttr | TargetAttr | KernelAttr | EdgeAttr


def _int_entry(entries: DictionaryAttr, key: str) -> int:
    from xdsl.dialects.builtin import IntegerAttr

    value = entries.data.get(key)
    if not isinstance(value, IntegerAttr):
        raise VerifyException(f"layout parameter '{key}' must be an integer")
    return value.value.data
