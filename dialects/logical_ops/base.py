"""What all logical ops share: traits, the text form, result-type inference and its check.

A logical op is pure, has one result of builtin tensor type, and says what is computed, never how. A concrete
class states its operands and properties, its traits, where its types stand in the text (:class:`TypeText`)
and ``infer``; parsing, printing and verification come from here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from numbers import Integral
from typing import Any, ClassVar, Self, TypeAlias, cast

from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    FunctionType,
    IntegerAttr,
    StringAttr,
    UnitAttr,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from aicf.dialects.logical_ops.properties import (
    Properties,
    check_property,
    int_values,
    ints,
    is_ints,
    properties_of,
)
from aicf.dialects.traits import TakesFloat8
from aicf.dialects.types import ELEMENTS, AnyTensor, TensorInfo, check_filled, element_named, tensor_info


class TypeText(Enum):
    """Where the types stand after the colon of an op's text."""

    SAME = ": T"
    """One type: of every operand and of the result."""
    ARROW = ": T -> R"
    """The type of every operand, then the result's."""
    FUNCTIONAL = ": (A, B) -> R"
    """All operand types in order, then the result's."""


ID_ATTR = "aicf.id"
SRC_ATTR = "aicf.src"

Operand = SSAValue | Operation
OwnKind: TypeAlias = "tuple[str, Mapping[str, Attribute]]"
"""A kind of `kinds.KINDS` and its attributes."""


def _is_strings(attr: Attribute) -> bool:
    if not isinstance(attr, ArrayAttr):
        return False
    return all(isinstance(entry, StringAttr) for entry in cast("ArrayAttr[Attribute]", attr))


def plural(count: int, noun: str) -> str:
    """``1 axis``, ``2 operands``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class LogicalOp(IRDLOperation, ABC):
    """Base of all value-producing logical ops."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.FUNCTIONAL
    HAS_MORE_RESULTS: ClassVar[bool] = False
    MAY_BE_EMPTY: ClassVar[bool] = False

    result = result_def()
    traits = traits_def(Pure())

    def __init__(
        self,
        *operands: Operand | Sequence[Operand] | None,
        result: Attribute | None = None,
        **properties: object,
    ):
        """Constructors of subclasses name operands and properties, with their Python types and defaults.

        Args:
            operands: In the order of the definition; a list for a variadic one.
            result: The result type, of an op that states it instead of inferring it.
            properties: By name, as Python values or attributes; None for what is absent.

        Raises:
            VerifyException: the op is not defined for them.
        """
        given = properties_of(properties)
        types = [SSAValue.get(operand).type for operand in _flattened(operands)]
        if result is None:
            result = self.infer(types, given)
        else:
            self.check_result(types, given, result)
        self.check_float8([*types, result])
        more = self.infer_more(types, given)
        results = [result] if more is None else [result, more]
        super().__init__(operands=operands, result_types=results, properties=given)

    def of_operands(self, *operands: Operand | None, **changed: object) -> Self:
        """The same op of other operands: its properties, but for those `changed`, and the result they give."""
        other = type(self).__new__(type(self))
        properties: dict[str, Any] = {**self.properties, **changed}
        LogicalOp.__init__(other, *operands, **properties)
        return other

    @classmethod
    @abstractmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The result type for operand types and properties.

        Raises:
            VerifyException: the op is not defined for them; the message names sizes, not IR internals.
        """

    @classmethod
    def infer_more(cls, operands: Sequence[Attribute], properties: Properties) -> Sequence[Attribute] | None:
        """The types of the results after the first; None of an op that never has any."""
        return None

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """Check a given result type; classes whose result type is stated, not inferred, override this.

        Raises:
            VerifyException: the result type does not fit.
        """
        inferred = cls.infer(operands, properties)
        if inferred != result:
            raise VerifyException(
                f"result type is {_type_text(result)}, but the operands give {_type_text(inferred)}"
            )

    @classmethod
    def check_float8(cls, types: Sequence[Attribute]) -> None:
        """Refuse floats of 8 bits where the op would compute with them.

        Raises:
            VerifyException: one of `types` has such elements, and the op does not take them.
        """
        for type_ in types:
            element = tensor_info(type_).element
            if element.is_float8 and not cls.has_trait(TakesFloat8):
                raise VerifyException(
                    f"not defined for {element.name}, which is only stored and multiplied; cast to f16 or f32 first"
                )

    @property
    def info(self) -> TensorInfo:
        """Sizes and element type of the result."""
        return tensor_info(self.result.type)

    def kind_alone(self) -> OwnKind | None:
        """Kind of an instruction whose body is this op alone; None where bodies are matched as a whole."""
        return None

    def verify_(self) -> None:
        try:
            tensor_info(self.result.type)
            if not self.MAY_BE_EMPTY:
                for type_ in (*self.operand_types, *self.result_types):
                    check_filled(type_)
            self.check_result(self.operand_types, self.properties, self.result.type)
            self.check_float8([*self.operand_types, self.result.type])
            self._check_more()
        except VerifyException as error:
            raise VerifyException(f"{self.name}: {error}") from error

    def _check_more(self) -> None:
        wanted = self.infer_more(self.operand_types, self.properties) or ()
        if tuple(wanted) != tuple(self.result_types[1:]):
            names = ", ".join(map(_type_text, wanted)) or "none"
            given = ", ".join(map(_type_text, self.result_types[1:])) or "none"
            raise VerifyException(f"further result types are {given}, but the operands give {names}")

    def verify(self, verify_nested_ops: bool = True) -> None:
        # Before the checks of IRDL, whose messages name constraints instead of what to write.
        try:
            self._check_attributes()
            for name, definition in self.get_irdl_definition().properties.items():
                check_property(name, self.properties.get(name), definition)
        except VerifyException as error:
            raise VerifyException(f"{self.name}: {error}") from error
        super().verify(verify_nested_ops)

    def _check_attributes(self) -> None:
        for name, attr in self.attributes.items():
            if "." not in name:
                known = ", ".join(self.get_irdl_definition().properties) or "none"
                raise VerifyException(f"unknown attribute '{name}'; it has: {known}")
            if name == ID_ATTR and not (isinstance(attr, StringAttr) and attr.data):
                raise VerifyException(f"{ID_ATTR} is {attr}; it is a string")
            if name == SRC_ATTR and not _is_strings(attr):
                raise VerifyException(f"{SRC_ATTR} is {attr}; it is a list of strings")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read ``%a, %b {attributes} : types``."""
        properties = cls.parse_leading(parser)
        position = parser.pos
        names = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        attributes = parser.parse_optional_attr_dict()
        for name in cls.get_irdl_definition().properties:
            if name in attributes and (attr := _from_text(attributes.pop(name))) is not None:
                properties[name] = attr
        parser.parse_punctuation(":")
        operand_types, result_types = cls.parse_types(parser, len(names))
        operands = parser.resolve_operands(names, operand_types, position)
        return cls.create(
            operands=operands, result_types=result_types, properties=properties, attributes=attributes
        )

    @classmethod
    def parse_leading(cls, parser: Parser) -> dict[str, Attribute]:
        """Read the properties that stand before the operands."""
        return {}

    @classmethod
    def parse_types(
        cls, parser: Parser, operand_count: int
    ) -> tuple[Sequence[Attribute], Sequence[Attribute]]:
        """Read the types after the colon."""
        if cls.TYPE_TEXT is TypeText.FUNCTIONAL:
            position = parser.pos
            function = parser.parse_function_type()
            if len(function.outputs) != 1 and not cls.HAS_MORE_RESULTS:
                parser.raise_error(f"{cls.name} has one result", position, parser.pos)
            return function.inputs.data, function.outputs.data
        operand_type = parser.parse_type()
        if cls.TYPE_TEXT is TypeText.SAME:
            return [operand_type] * operand_count, [operand_type]
        parser.parse_punctuation("->")
        return [operand_type] * operand_count, [parser.parse_type()]

    def print(self, printer: Printer) -> None:
        """Write ``%a, %b {attributes} : types``."""
        self.print_leading(printer)
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        self.print_dictionary(printer)
        printer.print_string(" : ")
        self.print_types(printer)

    def print_leading(self, printer: Printer) -> None:
        """Write the properties that stand before the operands."""

    def printed_properties(self) -> Sequence[str]:
        """The names of the properties that stand in the attribute dictionary, in order."""
        return tuple(self.get_irdl_definition().properties)

    def print_dictionary(self, printer: Printer) -> None:
        """Write properties and attributes, if there are any."""
        own = [(name, self.properties[name]) for name in self.printed_properties() if name in self.properties]
        if not own and not self.attributes:
            return
        printer.print_string(" ")
        with printer.in_braces():
            printer.print_list(own, lambda item: _print_property(printer, *item))
            if own and self.attributes:
                printer.print_string(", ")
            printer.print_list(self.attributes.items(), lambda item: _print_entry(printer, *item))

    def print_types(self, printer: Printer) -> None:
        """Write the types after the colon."""
        if self.TYPE_TEXT is TypeText.FUNCTIONAL:
            printer.print_attribute(FunctionType.from_lists(self.operand_types, self.result_types))
            return
        if self.TYPE_TEXT is TypeText.ARROW:
            printer.print_attribute(self.operands[0].type)
            printer.print_string(" -> ")
        printer.print_attribute(self.result.type)


class StatedResultOp(LogicalOp, ABC):
    """An op whose result type is stated: operands and properties alone do not give it."""

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """Nothing gives the type."""
        raise VerifyException("the result type is stated, not inferred")

    @classmethod
    @abstractmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """Check the stated type, and all else that makes the op defined."""


def _print_property(printer: Printer, name: str, attr: Attribute) -> None:
    """A property in short form: integers and lists of integers stand without their type."""
    if is_ints(attr):
        printer.print_string(f"{name} = [" + ", ".join(str(value) for value in attr.get_values()) + "]")
    elif isa(attr, IntegerAttr[I64]):
        printer.print_string(f"{name} = {attr.value.data}")
    else:
        _print_entry(printer, name, attr)


def _print_entry(printer: Printer, name: str, attr: Attribute) -> None:
    printer.print_identifier_or_string_literal(name)
    if not isinstance(attr, UnitAttr):
        printer.print_string(" = ")
        printer.print_attribute(attr)


def _from_text(attr: Attribute) -> Attribute | None:
    """The property a parsed attribute means: a dense array for ``[0, 1]``, a unit or nothing for true or false."""
    if attr == IntegerAttr.from_bool(True):
        return UnitAttr()
    if attr == IntegerAttr.from_bool(False):
        return None
    if isa(attr, ArrayAttr[IntegerAttr]):
        return ints([element.value.data for element in attr])
    return attr


def _type_text(type_: Attribute) -> str:
    try:
        return str(tensor_info(type_))
    except VerifyException:
        return str(type_)


def _flattened(operands: Sequence[Operand | Sequence[Operand] | None]) -> Iterator[Operand]:
    for operand in operands:
        if isinstance(operand, SSAValue | Operation):
            yield operand
        elif operand is not None:
            yield from operand


def same_types(operands: Sequence[Attribute], what: str = "operand") -> TensorInfo:
    """The common type of elementwise operands.

    Raises:
        VerifyException: they differ.
    """
    first = tensor_info(operands[0])
    for other in operands[1:]:
        if other != operands[0]:
            raise VerifyException(f"{what} types differ: {first} and {tensor_info(other)}")
    return first


def checked_axis(axis: int, rank: int, name: str = "axis") -> int:
    """An axis in ``0..rank-1``.

    Raises:
        VerifyException: it is not.
    """
    if not 0 <= axis < rank:
        raise VerifyException(f"{name} {axis} is out of range for rank {rank}; write 0 to {rank - 1}")
    return axis


def value_per_dimension(
    name: str, properties: Properties, info: TensorInfo, least: int | None = None, *, leading: int = 0
) -> tuple[int, ...]:
    """A list property of one value, `least` or more, for each dimension after the `leading` ones.

    Raises:
        VerifyException: it has more or fewer, or one below `least`.
    """
    values, count = int_values(properties.get(name)), info.rank - leading
    if len(values) != count:
        wanted = plural(count, "spatial dimension") if leading else f"the {plural(count, 'dimension')}"
        raise VerifyException(
            f"{name} {list(values)} has {plural(len(values), 'value')} for {wanted} of {info.shape_text}"
        )
    if least is not None and any(value < least for value in values):
        raise VerifyException(f"{name} {list(values)} has a value below {least}")
    return values


def counted_axis(axis: int, operand: Operand) -> int:
    """The axis counted from the first dimension of the operand; -1 is the last. What is no axis stays as it is."""
    if not isinstance(axis, Integral) or axis >= 0:
        return axis
    rank = tensor_info(SSAValue.get(operand).type).rank
    return axis + rank if -rank <= axis else axis


def counted_axes(axes: Sequence[int], operand: Operand) -> Sequence[int]:
    """The axes counted from the first dimension of the operand, in rising order."""
    if not all(isinstance(axis, Integral) for axis in axes):
        return axes
    return sorted(counted_axis(axis, operand) for axis in axes)


ElementRule: TypeAlias = Callable[[TensorInfo], None]
"""Refuses the element types that an op is not defined for, with a VerifyException."""


def any_element(info: TensorInfo) -> None:
    """Refuse nothing: the op is defined for every element type."""


def require_numeric(info: TensorInfo, hint: str = "cast to a number first") -> None:
    """Refuse i1.

    Raises:
        VerifyException: the element type is i1.
    """
    if info.element.kind == "bool":
        raise VerifyException(f"not defined for i1; {hint}")


SHORT_INTEGERS = ("i16", "i8", "u8")
"""Element types whose products a widening contraction adds up in i32."""
FLOAT8 = tuple(element.name for element in ELEMENTS if element.is_float8)
"""Those whose products it adds up in f32."""


def check_elements(factors: Mapping[str, TensorInfo], widening: bool) -> None:
    """Refuse factors of a contraction, by name, that are no numbers of one type; where it widens, those that are not
    all short integers or all floats of 8 bits.

    Raises:
        VerifyException: their element types do not go together.
    """
    (first, one), *others = factors.items()
    if widening:
        _check_widening(factors, FLOAT8 if one.element.is_float8 else SHORT_INTEGERS)
        return
    if one.element.is_float8:
        raise VerifyException(
            f"{first} {one} is of {one.element.name}, whose products are added up in f32; add widening"
        )
    for name, info in others:
        if info.element != one.element:
            raise VerifyException(
                f"element types differ: {first} {one.element.name}, {name} {info.element.name}"
            )
    require_numeric(one)


def _check_widening(factors: Mapping[str, TensorInfo], together: Sequence[str]) -> None:
    for name, info in factors.items():
        if info.element.name not in together:
            raise VerifyException(
                f"{name} {info} is of {info.element.name}; a widening product is of {', '.join(SHORT_INTEGERS)}, "
                f"or of {', '.join(FLOAT8)}"
            )


def sums_like(info: TensorInfo, widening: bool) -> TensorInfo:
    """What a contraction with such a factor adds up to."""
    if not widening:
        return info
    return replace(info, element=element_named("f32" if info.element.is_float8 else "i32"))


def require_float(info: TensorInfo) -> None:
    """Refuse integers and i1.

    Raises:
        VerifyException: the element type is no float.
    """
    if not info.element.is_float:
        raise VerifyException(f"not defined for {info.element.name}; cast to a float type first")


def require_bits(info: TensorInfo) -> None:
    """Refuse floats.

    Raises:
        VerifyException: the element type is a float.
    """
    if info.element.is_float:
        raise VerifyException(f"not defined for {info.element.name}; cast to an integer type first")


def require_integer(info: TensorInfo) -> None:
    """Refuse floats and i1.

    Raises:
        VerifyException: the element type is one of them.
    """
    require_bits(info)
    require_numeric(info, "cast to an integer type first")
