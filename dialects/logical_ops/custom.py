"""Ops that a user defined, and ops of this dialect that stay whole for a kernel of a user."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import I64, DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, prop_def, traits_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.custom_ops import BUILT_IN, OpDefinition, definition_of, plain_values
from aicf.dialects.logical_ops.base import LogicalOp, Operand, OwnKind, StatedResultOp
from aicf.dialects.logical_ops.properties import Properties
from aicf.dialects.traits import Expensive, Internal, PositionalOperands
from aicf.dialects.types import AnyTensor

__all__ = ["CustomOp"]


@irdl_op_definition
class CustomOp(StatedResultOp):
    """An op of a package by its name, such as ``"acme.top_p"``, or one of this dialect that stays whole.

    The latter is written ``"logical.rms_norm"``, with that op's own properties as ``parameters``: a kernel of a package
    runs it in one piece. The definition of the former (`aicf.custom_op`) says what it computes in NumPy, of which type
    its result is, and which version of its meaning that is. Where the definition is not imported, the text still
    parses; a compile needs it.
    """

    name = "logical.custom"
    arguments = var_operand_def()
    op = prop_def(StringAttr)
    version = prop_def(IntegerAttr[I64])
    parameters = prop_def(DictionaryAttr)
    traits = traits_def(PositionalOperands(), Expensive(), Internal())

    def __init__(
        self,
        op: str,
        arguments: Sequence[Operand],
        parameters: DictionaryAttr,
        result: Attribute,
        version: int = 1,
    ):
        super().__init__(
            arguments,
            op=StringAttr(op),
            version=IntegerAttr(version, i64),
            parameters=parameters,
            result=result,
        )

    @property
    def label(self) -> str:
        """The name of the op that it stands for."""
        return self.op.data

    @property
    def definition(self) -> OpDefinition | None:
        """What a user said of it; None of an op of this dialect, and where nothing defines it."""
        return None if self.label.startswith(BUILT_IN) else definition_of(self.label)

    @property
    def whole_op(self) -> type[LogicalOp] | None:
        """The class of the op of this dialect that it stands for; None for an op of a user."""
        return _built_in(self.label)

    @classmethod
    def of_whole(cls, op: LogicalOp) -> CustomOp:
        """The same as an op of this dialect, in one piece."""
        return cls(op.name, op.operands, DictionaryAttr(dict(op.properties)), op.results[0].type)

    def unwrapped(self) -> LogicalOp:
        """The op of this dialect that it stands for, of the same operands."""
        whole = self.whole_op
        assert whole is not None, "of an op of this dialect"
        return whole.create(
            operands=self.operands, properties=dict(self.parameters.data), result_types=[self.result.type]
        )

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """Check the stated type, the attributes and the version against the definition, where there is one."""
        name, parameters, version = (properties.get(key) for key in ("op", "parameters", "version"))
        assert isinstance(name, StringAttr) and isinstance(parameters, DictionaryAttr)
        if name.data.startswith(BUILT_IN):
            if (whole := _built_in(name.data)) is None:
                raise VerifyException(f"'{name.data}' is no op of the logical dialect")
            whole.check_result(operands, parameters.data, result)
        elif (definition := definition_of(name.data)) is not None:
            assert isinstance(version, IntegerAttr)
            _check_definition(definition, operands, parameters, version.value.data, result)

    @classmethod
    def parse_leading(cls, parser: Parser) -> dict[str, Attribute]:
        """Read the name of the op."""
        return {"op": StringAttr(parser.parse_str_literal("the name of the op"))}

    def print_leading(self, printer: Printer) -> None:
        """Write the name of the op."""
        printer.print_string(" ")
        printer.print_string_literal(self.label)

    def printed_properties(self) -> Sequence[str]:
        """All but the name."""
        return ("version", "parameters")

    def kind_alone(self) -> OwnKind | None:
        """`custom`; what it is stands in the body."""
        return "custom", {}


def _built_in(name: str) -> type[LogicalOp] | None:
    """The class of the op of this dialect that has this name."""
    pending: list[type[LogicalOp]] = [LogicalOp]
    while pending:
        if vars(found := pending.pop()).get("name") == name:
            return None if found is CustomOp else found
        pending += found.__subclasses__()
    return None


def _check_definition(
    definition: OpDefinition,
    operands: Sequence[Attribute],
    parameters: DictionaryAttr,
    version: int,
    result: Attribute,
) -> None:
    if version != definition.version:
        raise VerifyException(
            f"'{definition.name}' is of version {definition.version} here ({definition.module}), the program was "
            f"written for version {version}: install that version, or write the program again"
        )
    try:
        canonical = definition.attributes(plain_values(parameters))
        if canonical != parameters:
            raise VerifyException(f"parameters are {parameters}; written out they are {canonical}")
        wanted: AnyTensor = definition.result_type(operands, parameters)
    except ValueError as error:
        raise VerifyException(str(error)) from error
    if wanted != result:
        raise VerifyException(f"result type is {result}, but '{definition.name}' gives {wanted}")
