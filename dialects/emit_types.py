"""Types and attributes of emit IR: buffers, layouts, targets, kernel records and edges.

They carry decisions as data. What is legal to decide is checked by the ops that hold them and by `verify-emit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    NoneAttr,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from aicf.dialects.emit_syntax import in_parens, parse_dictionary, parse_string
from aicf.dialects.kept import kept
from aicf.dialects.types import MAX_TENSOR_BYTES, ElementType, element_of, is_tensor

SPACES = ("bound", "arena", "const")
"""Where a buffer lives: memory of the caller or of the weights, the executable's arena, constants of the program."""

EDGE_KINDS = ("full", "programmatic")

MAX_THREADS = 1024
"""Most threads that run a program together."""
DETERMINISM = ("bitwise", "unordered")
"""Classes of a kernel: the same bits always, or bits that depend on the order in which threads arrive."""


def scalar_element(type_: Attribute) -> ElementType:
    """The row of the element table of a scalar type. Raises VerifyException for any other type."""
    if is_tensor(type_):
        raise VerifyException(f"expected an element type, got {type_}")
    return element_of(type_)


def _print_named(printer: Printer, names: Sequence[str], entries: DictionaryAttr | None) -> None:
    with printer.in_angle_brackets():
        printer.print_list(names, printer.print_string_literal)
        if entries is not None and entries.data:
            printer.print_string(", ")
            printer.print_attribute(entries)


def _parse_entries(parser: AttrParser) -> DictionaryAttr:
    if parser.parse_optional_punctuation(",") is None:
        return DictionaryAttr({})
    return parse_dictionary(parser)


@irdl_attr_definition
class LayoutAttr(ParametrizedAttribute):
    """A physical layout that a kernel requires of an operand: a name and its parameters.

    `#emit.layout<"packed_b", {nr = 32 : i64, bytes = 8192 : i64}>`. The buffer type that holds it keeps the logical
    shape; `bytes` in the parameters is the physical size.
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
            return [StringAttr(parse_string(parser)), _parse_entries(parser)]

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

    def __init__(
        self, backend: str, arch: str, facts: Mapping[str, Attribute] | DictionaryAttr | None = None
    ):
        entries = facts if isinstance(facts, DictionaryAttr) else DictionaryAttr(facts or {})
        super().__init__(StringAttr(backend), StringAttr(arch), entries)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            backend = parse_string(parser)
            parser.parse_punctuation(",")
            return [StringAttr(backend), StringAttr(parse_string(parser)), _parse_entries(parser)]

    def print_parameters(self, printer: Printer) -> None:
        _print_named(printer, [self.backend.data, self.arch.data], self.facts)

    @property
    def threads(self) -> int:
        """The threads that run programs of the target together."""
        stated = self.facts.data.get("threads")
        return stated.value.data if isinstance(stated, IntegerAttr) else 1

    def verify(self) -> None:
        threads = self.facts.data.get("threads")
        if threads is not None and not 1 <= (i64_value(threads) or 0) <= MAX_THREADS:
            raise VerifyException(f"a target's 'threads' is an i64 from 1 to {MAX_THREADS}, got {threads}")


# Kernel records


def i64_value(value: Attribute) -> int | None:
    """The number of an i64 attribute, None for any other attribute."""
    if not isinstance(value, IntegerAttr):
        return None
    number = cast("IntegerAttr[IntegerType]", value)
    return number.value.data if number.type == i64 else None


def _is_i64_from(least: int) -> Callable[[Attribute], bool]:
    return lambda value: (number := i64_value(value)) is not None and number >= least


def _is_layouts(value: Attribute) -> bool:
    return isa(value, ArrayAttr) and all(isinstance(entry, UnitAttr | LayoutAttr) for entry in value)


def i64_pairs(value: Attribute | None) -> tuple[tuple[int, int], ...] | None:
    """`[[a, b], ...]` of i64, none negative, as numbers; () for no attribute, None for an attribute of another form."""
    if value is None:
        return ()
    if not isinstance(value, ArrayAttr):
        return None
    pairs: list[tuple[int, int]] = []
    for pair in cast("ArrayAttr[Attribute]", value):
        if not isinstance(pair, ArrayAttr):
            return None
        match [i64_value(entry) for entry in cast("ArrayAttr[Attribute]", pair)]:
            case [int(first), int(second)] if first >= 0 and second >= 0:
                pairs.append((first, second))
            case _:
                return None
    return tuple(pairs)


_REQUIRED_ENTRIES = ("version", "determinism")
_RECORD_ENTRIES: dict[str, tuple[Callable[[Attribute], bool], str]] = {
    "version": (_is_i64_from(0), "an i64, 0 or more"),
    "determinism": (
        lambda value: isinstance(value, StringAttr) and value.data in DETERMINISM,
        f"one of {', '.join(DETERMINISM)}",
    ),
    "layouts": (_is_layouts, "an array of unit or #emit.layout"),
    "workspace_bytes": (_is_i64_from(0), "an i64, 0 or more"),
    "threads": (_is_i64_from(1), "an i64, 1 or more"),
    "may_alias": (lambda value: i64_pairs(value) is not None, "an array of [out, in] pairs of i64"),
}
"""Entries that the compiler itself reads: what each must be, as a test and in words."""


@irdl_attr_definition
class KernelAttr(ParametrizedAttribute):
    """A kernel record: the kernel's id and everything a launch needs.

    Required entries: `version` (i64) and `determinism` (a class name). The rest is the kernel's own: tile,
    partition, launches, combination order, library version. Entries with one meaning for all kernels are typed:
    `layouts` (per operand `unit` or the layout it must be prepared in), `workspace_bytes`, `threads`, `may_alias`.
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
            return [StringAttr(parse_string(parser)), _parse_entries(parser)]

    def print_parameters(self, printer: Printer) -> None:
        _print_named(printer, [self.kernel.data], self.record)

    def verify(self) -> None:
        for entry in _REQUIRED_ENTRIES:
            if entry not in self.record.data:
                raise VerifyException(f"kernel record of '{self.kernel.data}' lacks '{entry}'")
        for entry, (is_legal, words) in _RECORD_ENTRIES.items():
            value = self.record.data.get(entry)
            if value is not None and not is_legal(value):
                raise VerifyException(
                    f"kernel record of '{self.kernel.data}': '{entry}' must be {words}, got {value}"
                )


def print_record(printer: Printer, record: KernelAttr) -> None:
    """`kernel("id", {...})`."""
    printer.print_string("kernel(")
    printer.print_string_literal(record.kernel.data)
    printer.print_string(", ")
    printer.print_attribute(record.record)
    printer.print_string(")")


def parse_record(parser: Parser) -> KernelAttr:
    """What follows the keyword `kernel`: `("id", {...})`."""
    with in_parens(parser):
        kernel = parse_string(parser)
        parser.parse_punctuation(",")
        start = parser.pos
        entries = parse_dictionary(parser)
        try:
            return KernelAttr(kernel, entries)
        except VerifyException as error:
            parser.raise_error(str(error), start, parser.pos)


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
            source = parse_string(parser)
            return [StringAttr(source), StringAttr(parser.parse_identifier())]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.source.data)
            printer.print_string(f" {self.kind.data}")

    def verify(self) -> None:
        if self.kind.data not in EDGE_KINDS:
            raise VerifyException(f"edge kind must be one of {', '.join(EDGE_KINDS)}, got '{self.kind.data}'")


# Buffers


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of `shape`, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def canonical_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The one form of an element-to-address map: a dim that is never stepped over has its contiguous stride."""
    contiguous = contiguous_strides(shape)
    if 0 in shape:
        return contiguous
    if len(strides) != len(shape):
        return tuple(strides)
    return tuple(c if size == 1 else s for size, s, c in zip(shape, strides, contiguous, strict=True))


def _stored_strides(shape: Sequence[int], strides: Sequence[int] | None) -> ArrayAttr[IntAttr] | NoneAttr:
    if strides is None:
        return NoneAttr()
    steps = canonical_strides(shape, strides)
    return NoneAttr() if steps == contiguous_strides(shape) else ArrayAttr([IntAttr(step) for step in steps])


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """A region of memory seen as a tensor: static shape, element type, strides in elements, space, layout.

    `!emit.buffer<64x784xf32, arena, strides [1, 64]>`; no strides = row-major contiguous. Equal maps from elements
    to addresses are equal types: the stride of a dim of size 1 is its contiguous one, whatever was given.
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
        super().__init__(
            ArrayAttr([IntAttr(size) for size in shape]),
            element_type,
            StringAttr(space),
            _stored_strides(shape, strides),
            NoneAttr() if layout is None else layout,
        )

    @kept
    def get_shape(self) -> tuple[int, ...]:
        """Logical sizes."""
        return tuple(size.data for size in self.shape)

    @kept
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
    @kept
    def element_bytes(self) -> int:
        """Bytes of one element; i1 takes a whole byte."""
        return scalar_element(self.element_type).bytes

    @property
    @kept
    def reach(self) -> tuple[int, int]:
        """Lowest and past-the-highest element address, in elements from the first element; (0, 0) if empty.

        The lowest is negative where a stride is.
        """
        shape = self.get_shape()
        if 0 in shape:
            return 0, 0
        steps = [(size - 1) * step for size, step in zip(shape, self.get_strides(), strict=True)]
        return sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps) + 1

    @property
    @kept
    def span_bytes(self) -> int:
        """Bytes from the lowest to past the highest element (physical size where there is a layout)."""
        if (layout := self.get_layout()) is not None:
            return _bytes_entry(layout)
        low, high = self.reach
        return (high - low) * self.element_bytes

    @property
    def element_count(self) -> int:
        """Number of logical elements."""
        return prod(self.get_shape())

    def verify(self) -> None:
        if self.space.data not in SPACES:
            raise VerifyException(f"buffer space must be one of {', '.join(SPACES)}, got '{self.space.data}'")
        if any(size.data < 0 for size in self.shape):
            raise VerifyException(
                "buffer sizes are static and not negative; specialize-shapes binds symbolic sizes"
            )
        self._verify_strides()
        size = max(self.element_count * self.element_bytes, self.span_bytes)
        if size > MAX_TENSOR_BYTES:
            raise VerifyException(
                f"the buffer takes {size} bytes; the largest takes {MAX_TENSOR_BYTES} (2^47)"
            )

    def _verify_strides(self) -> None:
        if isinstance(self.strides, NoneAttr):
            return
        if self.get_layout() is not None:
            raise VerifyException("a buffer has strides or a layout, not both")
        if len(self.strides) != len(self.shape):
            raise VerifyException(f"buffer has {len(self.shape)} sizes but {len(self.strides)} strides")
        if _stored_strides(self.get_shape(), self.get_strides()) != self.strides:
            raise VerifyException(
                "buffer strides are not in canonical form; make the type from its shape and strides"
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            sizes, element_type = parser.parse_ranked_shape()
            parser.parse_punctuation(",")
            space = StringAttr(parser.parse_identifier())
            steps: list[int] | None = None
            layout: Attribute = NoneAttr()
            while parser.parse_optional_punctuation(",") is not None:
                if parser.parse_optional_keyword("strides") is not None:
                    if steps is not None:
                        parser.raise_error("'strides' is given twice")
                    steps = parser.parse_comma_separated_list(
                        parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_boolean=False)
                    )
                    continue
                parser.parse_keyword("layout")
                if not isinstance(layout, NoneAttr):
                    parser.raise_error("'layout' is given twice")
                layout = parser.parse_attribute()
                if not isinstance(layout, LayoutAttr):
                    parser.raise_error("expected #emit.layout<...>")
            shape = ArrayAttr([IntAttr(size) for size in sizes])
            return [shape, element_type, space, _stored_strides(sizes, steps), layout]

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


def _bytes_entry(layout: LayoutAttr) -> int:
    """Physical size of a prepared buffer."""
    value = layout.parameters_.data.get("bytes")
    size = None if value is None else i64_value(value)
    if size is None or size < 0:
        raise VerifyException(f"layout '{layout.layout.data}' needs its size, bytes = n : i64")
    return size


def parse_buffer_type(parser: Parser, what: str) -> BufferType:
    """A `!emit.buffer`; `what` names the op in the error."""
    type_ = parser.parse_type()
    if not isinstance(type_, BufferType):
        parser.raise_error(f"{what} gives a !emit.buffer")
    return type_
