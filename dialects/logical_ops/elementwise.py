"""Elementwise ops: arithmetic, transcendental functions, comparison, selection and casts.

Operands have equal types: broadcasting is an op of its own (``data_movement.py``). Integers wrap around;
integer division truncates toward zero and gives 0 for a zero divisor; ``max``, ``min`` and ``relu`` propagate
NaN.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar, Literal

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Commutative, Pure
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import (
    Composite,
    Elementwise,
    LogicalOp,
    Properties,
    TypeText,
    operand_types,
    operand_values,
    require_float,
    require_numeric,
    same_types,
)
from aicf.dialects.types import AnyTensor, ElementType, tensor, tensor_info

Predicate = Literal["eq", "ne", "lt", "le", "gt", "ge"]
PREDICATES: tuple[Predicate, ...] = ("eq", "ne", "lt", "le", "gt", "ge")

Approximation = Literal["none", "tanh"]
APPROXIMATIONS: tuple[Approximation, ...] = ("none", "tanh")


class BinaryOp(LogicalOp, ABC):
    """``(T, T) -> T`` elementwise; ints and floats."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME

    lhs = operand_def()
    rhs = operand_def()

    def __init__(self, lhs: SSAValue | Operation, rhs: SSAValue | Operation):
        values = operand_values(lhs, rhs)
        super().__init__(operands=values, result_types=[self.infer(operand_types(values), {})])

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' common type."""
        info = same_types(operands)
        require_numeric(info, "use logical.max for or, logical.min for and, or cast to a number")
        return info.with_sizes(info.sizes)


@irdl_op_definition
class AddOp(BinaryOp):
    """``lhs + rhs``."""

    name = "logical.add"
    traits = traits_def(Pure(), Elementwise(), Commutative())


@irdl_op_definition
class SubOp(BinaryOp):
    """``lhs - rhs``."""

    name = "logical.sub"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class MulOp(BinaryOp):
    """``lhs * rhs``."""

    name = "logical.mul"
    traits = traits_def(Pure(), Elementwise(), Commutative())


@irdl_op_definition
class DivOp(BinaryOp):
    """``lhs / rhs``; integers truncate toward zero, and x / 0 is 0."""

    name = "logical.div"
    traits = traits_def(Pure(), Elementwise())


class ExtremumOp(BinaryOp, ABC):
    """``max`` and ``min``, which are also or and and of i1."""

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' common type."""
        info = same_types(operands)
        return info.with_sizes(info.sizes)


@irdl_op_definition
class MaxOp(ExtremumOp):
    """The larger of the two; NaN if either is NaN."""

    name = "logical.max"
    traits = traits_def(Pure(), Elementwise(), Commutative())


@irdl_op_definition
class MinOp(ExtremumOp):
    """The smaller of the two; NaN if either is NaN."""

    name = "logical.min"
    traits = traits_def(Pure(), Elementwise(), Commutative())


class UnaryOp(LogicalOp, ABC):
    """``T -> T`` elementwise; floats, and ints where a subclass says so."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME
    TAKES_INTS: ClassVar[bool] = False

    operand = operand_def()

    def __init__(self, operand: SSAValue | Operation):
        value = SSAValue.get(operand)
        super().__init__(operands=[value], result_types=[self.infer([value.type], {})])

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        if cls.TAKES_INTS:
            require_numeric(info, "cast to a number first")
        else:
            require_float(info)
        return info.with_sizes(info.sizes)


@irdl_op_definition
class NegOp(UnaryOp):
    """``-x``."""

    name = "logical.neg"
    TAKES_INTS: ClassVar[bool] = True
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class ExpOp(UnaryOp):
    """``e ** x``."""

    name = "logical.exp"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class LogOp(UnaryOp):
    """The natural logarithm; -inf at 0, NaN below."""

    name = "logical.log"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class SqrtOp(UnaryOp):
    """The square root; NaN below 0."""

    name = "logical.sqrt"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class RsqrtOp(UnaryOp):
    """``1 / sqrt(x)``."""

    name = "logical.rsqrt"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class TanhOp(UnaryOp):
    """The hyperbolic tangent."""

    name = "logical.tanh"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class ErfOp(UnaryOp):
    """The error function."""

    name = "logical.erf"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class ReluOp(UnaryOp):
    """``max(x, 0)``; NaN stays NaN."""

    name = "logical.relu"
    TAKES_INTS: ClassVar[bool] = True
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class SigmoidOp(UnaryOp):
    """``1 / (1 + exp(-x))``."""

    name = "logical.sigmoid"
    traits = traits_def(Pure(), Elementwise())


@irdl_op_definition
class SiluOp(UnaryOp):
    """``x * sigmoid(x)``, also called swish.

    Elfwing, Uchibe and Doya, Sigmoid-Weighted Linear Units, 2018.
    """

    name = "logical.silu"
    traits = traits_def(Pure(), Elementwise(), Composite())


@irdl_op_definition
class GeluOp(UnaryOp):
    """``x * Phi(x)``, Phi the normal distribution's; ``approximate = "tanh"`` takes Phi from a tanh of a cubic.

    Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.
    """

    name = "logical.gelu"
    approximate = prop_def(StringAttr, default_value=StringAttr("none"))
    traits = traits_def(Pure(), Elementwise(), Composite())

    def __init__(self, operand: SSAValue | Operation, approximate: Approximation = "none"):
        value = SSAValue.get(operand)
        properties: dict[str, Attribute] = {"approximate": StringAttr(approximate)}
        LogicalOp.__init__(
            self, operands=[value], result_types=[self.infer([value.type], properties)], properties=properties
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        approximate = properties.get("approximate")
        if isinstance(approximate, StringAttr) and approximate.data not in APPROXIMATIONS:
            legal = ", ".join(f'"{name}"' for name in APPROXIMATIONS)
            raise VerifyException(f'approximate is "{approximate.data}"; use one of {legal}')
        return super().infer(operands, properties)


@irdl_op_definition
class CompareOp(LogicalOp):
    """Compares as ``predicate`` says, to i1; comparisons with NaN are false, ``ne`` true."""

    name = "logical.compare"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW

    predicate = prop_def(StringAttr)
    lhs = operand_def()
    rhs = operand_def()
    traits = traits_def(Pure(), Elementwise())

    def __init__(self, predicate: Predicate, lhs: SSAValue | Operation, rhs: SSAValue | Operation):
        values = operand_values(lhs, rhs)
        properties: dict[str, Attribute] = {"predicate": StringAttr(predicate)}
        super().__init__(
            operands=values,
            result_types=[self.infer(operand_types(values), properties)],
            properties=properties,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' shape with element type i1."""
        predicate = properties.get("predicate")
        if not isinstance(predicate, StringAttr) or predicate.data not in PREDICATES:
            raise VerifyException(f"predicate is {predicate}; use one of {', '.join(PREDICATES)}")
        return tensor(same_types(operands).sizes, "i1")

    @classmethod
    def parse_leading(cls, parser: Parser) -> dict[str, Attribute]:
        """Read the predicate."""
        return {"predicate": StringAttr(parser.parse_str_literal(" for the predicate"))}

    def print_leading(self, printer: Printer) -> None:
        """Write the predicate."""
        printer.print_string(" ")
        printer.print_attribute(self.predicate)

    def printed_properties(self) -> Sequence[str]:
        """None: the predicate leads."""
        return ()


@irdl_op_definition
class SelectOp(LogicalOp):
    """``condition ? on_true : on_false`` per element; the branch not taken has no influence."""

    name = "logical.select"
    condition = operand_def()
    on_true = operand_def()
    on_false = operand_def()
    traits = traits_def(Pure(), Elementwise())

    def __init__(
        self, condition: SSAValue | Operation, on_true: SSAValue | Operation, on_false: SSAValue | Operation
    ):
        values = operand_values(condition, on_true, on_false)
        super().__init__(operands=values, result_types=[self.infer(operand_types(values), {})])

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The type of the two branches."""
        condition = tensor_info(operands[0])
        branches = same_types(operands[1:], "branch")
        if condition.element.kind != "bool":
            raise VerifyException(
                f"condition has element type {condition.element.name}, not i1; compare it with something"
            )
        if condition.sizes != branches.sizes:
            raise VerifyException(
                f"condition has shape {condition.shape_text}, the branches {branches.shape_text}; "
                "broadcast one of them"
            )
        return branches.with_sizes(branches.sizes)

    @classmethod
    def parse_types(cls, parser: Parser, operand_count: int) -> tuple[Sequence[Attribute], Attribute]:
        """Read ``C, T``."""
        condition = parser.parse_type()
        parser.parse_punctuation(",")
        branch = parser.parse_type()
        return [condition, branch, branch], branch

    def print_types(self, printer: Printer) -> None:
        """Write ``C, T``."""
        printer.print_list((self.condition.type, self.result.type), printer.print_attribute)


@irdl_op_definition
class CastOp(LogicalOp):
    """Changes the element type.

    Between floats: rounds to nearest even. Float to integer: truncates toward zero, saturates, NaN gives 0.
    Integer to integer: wraps. To i1: ``x != 0``. From i1: 0 or 1.
    """

    name = "logical.cast"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW

    operand = operand_def()
    traits = traits_def(Pure(), Elementwise())

    def __init__(self, operand: SSAValue | Operation, element: ElementType | str):
        value = SSAValue.get(operand)
        super().__init__(operands=[value], result_types=[tensor(tensor_info(value.type).sizes, element)])

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type: the cast that changes nothing; the real target is the stated result type."""
        info = tensor_info(operands[0])
        return info.with_sizes(info.sizes)

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """Equal shapes."""
        source, target = tensor_info(operands[0]), tensor_info(result)
        if source.sizes != target.sizes:
            raise VerifyException(
                f"shape changes from {source.shape_text} to {target.shape_text}; a cast keeps it"
            )
