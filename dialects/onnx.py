"""The onnx dialect: a model as ONNX has it, before the sizes of its inputs are numbers.

    onnx.graph @mlp opsets {"" = 17} (%x : !onnx.value<f32, ["batch", 4]> {logical.name = "x", logical.role = "input"})
        -> ["y"] {
      %shape = onnx.constant dense<[-1, 2]> : tensor<2xi64>
      %y = onnx.node "Reshape" "a"(%x, %shape) : (!onnx.value<f32, ["batch", 4]>, !onnx.value<i64, [2]>) -> !onnx.value
      onnx.yield %y : !onnx.value
    }

Nodes mean what the ONNX standard says for the opset of their domain. No op of this dialect has a meaning of its own
here: ``lower-onnx`` writes logical ops once ``specialize-shapes`` has bound the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeAlias

from numpy.typing import NDArray
from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    i64,
)
from xdsl.ir import Attribute, Block, Dialect, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.dense_text import print_dense
from aicf.dialects.emit_syntax import (
    parse_attributes,
    parse_optional_dictionary,
    parse_optional_string,
    parse_string,
    parse_strings,
    print_attributes,
    print_strings,
    print_types,
)
from aicf.dialects.logical_ops.constant import parse_literal
from aicf.dialects.onnx_types import ValueType, dense_literal, dense_of, elements_of, type_of
from aicf.dialects.types import TensorInfo

__all__ = [
    "INPUT",
    "PARAM",
    "ConstantOp",
    "GraphOp",
    "NodeOp",
    "NoneOp",
    "Onnx",
    "ValueType",
    "YieldOp",
    "dense_of",
    "elements_of",
]

INPUT, PARAM = "input", "param"
"""Roles of the arguments of a graph."""
CONTRADICTIONS_ATTR = "onnx.contradictions"
"""On a graph, in words: what the model declares of values that are known before it is lowered, and is not so."""

_NAME, _ROLE = "logical.name", "logical.role"

Entry: TypeAlias = Mapping[str, Attribute]


# Operations


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """``onnx.constant dense<[1, 2]> : tensor<2xi64>``: a small tensor; it may be empty.

    With a name, ``onnx.constant "fc1.bias" dense<0.5> : tensor<3xf32>``, it is a weight that may be trained: what reads
    its elements while the graph is lowered reads these, and what computes with it reads a parameter of that name.
    """

    name = "onnx.constant"

    value = prop_def(DenseIntOrFPElementsAttr)
    weight = opt_prop_def(StringAttr)
    result = result_def(ValueType)
    traits = traits_def(Pure())

    def __init__(self, array: NDArray[Any], weight: str = ""):
        value = dense_of(array)
        super().__init__(
            properties={"value": value, "weight": StringAttr(weight) if weight else None},
            result_types=[type_of(value)],
        )

    @property
    def array(self) -> NDArray[Any]:
        """The elements, read-only."""
        return elements_of(self.value)

    def verify_(self) -> None:
        if (wanted := type_of(self.value)) != self.result.type:
            raise VerifyException(f"onnx.constant: the value is {wanted}, the result {self.result.type}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read ``"name" dense<...> {attributes} : tensor<...>``, the name if it has one."""
        weight = parse_optional_string(parser)
        parser.parse_keyword("dense")
        position = parser.pos
        with parser.in_angle_brackets():
            literal = parse_literal(parser)
        end = parser.pos
        attributes = parse_optional_dictionary(parser)
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        try:
            value = dense_literal(literal, type_)
        except (VerifyException, ValueError) as error:
            parser.raise_error(f"onnx.constant: {error}", position, end)
        return cls.create(
            result_types=[type_of(value)],
            properties={"value": value} if weight is None else {"value": value, "weight": StringAttr(weight)},
            attributes={} if attributes is None else dict(attributes.data),
        )

    def print(self, printer: Printer) -> None:
        """Write ``"name" dense<...> {attributes} : tensor<...>``."""
        printer.print_string(" ")
        if self.weight is not None:
            printer.print_string_literal(self.weight.data)
            printer.print_string(" ")
        if 0 in self.value.get_shape():
            printer.print_string("dense<[]>")
        else:
            print_dense(printer, self.value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.value.type)


@irdl_op_definition
class NoneOp(IRDLOperation):
    """``onnx.none``: stands for an optional operand that is not given."""

    name = "onnx.none"

    result = result_def(ValueType)
    traits = traits_def(Pure())

    def __init__(self):
        super().__init__(result_types=[ValueType.unknown()])

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Nothing is left to read."""
        return cls()

    def print(self, printer: Printer) -> None:
        """Its name says all."""

    def verify_(self) -> None:
        if self.result.type != ValueType.unknown():
            raise VerifyException(f"onnx.none: its type is !onnx.value, not {self.result.type}")


@irdl_op_definition
class YieldOp(IRDLOperation):
    """``onnx.yield %a, %b : T, U``: what a graph gives."""

    name = "onnx.yield"

    values = var_operand_def(ValueType)
    traits = traits_def(IsTerminator())
    assembly_format = "($values^ `:` type($values))? attr-dict"

    def __init__(self, values: Sequence[SSAValue]):
        super().__init__(operands=[list(values)])


@irdl_op_definition
class NodeOp(IRDLOperation):
    """``onnx.node "Gemm" "fc1"(%a, %b) {alpha = 0.5 : f32} : (T, U) -> V``: one node, of any op.

    Graphs among the attributes are regions, `bodies {then_branch = {...}}`: their block takes the inputs of the graph
    and reads values around it directly. The name in the second place is the node's; it may be missing. Before the
    operands stand `domain "com.example"` for an op of another domain than ONNX's own, and `opset 18` for one that came
    from a function with other opsets than the graph has.
    """

    name = "onnx.node"

    op_type = prop_def(StringAttr)
    domain = opt_prop_def(StringAttr)
    opset = opt_prop_def(IntegerAttr[I64])
    node_name = opt_prop_def(StringAttr)
    attrs = prop_def(DictionaryAttr)
    body_names = prop_def(ArrayAttr[StringAttr])
    ins = var_operand_def(ValueType)
    outs = var_result_def(ValueType)
    bodies = var_region_def("single_block")

    def __init__(
        self,
        op_type: str,
        ins: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        attrs: Mapping[str, Attribute] | None = None,
        *,
        domain: str = "",
        opset: int | None = None,
        node_name: str = "",
        bodies: Mapping[str, Region] | None = None,
    ):
        bodies = {} if bodies is None else bodies
        super().__init__(
            operands=[list(ins)],
            result_types=[list(result_types)],
            regions=[list(bodies.values())],
            properties={
                "op_type": StringAttr(op_type),
                "domain": StringAttr(domain) if domain else None,
                "opset": None if opset is None else IntegerAttr(opset, i64),
                "node_name": StringAttr(node_name) if node_name else None,
                "attrs": DictionaryAttr({} if attrs is None else dict(attrs)),
                "body_names": ArrayAttr([StringAttr(name) for name in bodies]),
            },
        )

    @property
    def domain_name(self) -> str:
        """The domain of the op, "" for ONNX's own."""
        return "" if self.domain is None else self.domain.data

    @property
    def graphs(self) -> dict[str, Region]:
        """The graphs among the attributes, by name."""
        return {name.data: body for name, body in zip(self.body_names, self.bodies, strict=True)}

    def verify_(self) -> None:
        what = f"onnx.node {self.op_type}"
        if len(self.body_names) != len(self.bodies):
            raise VerifyException(
                f"{what}: it has {len(self.bodies)} graphs and {len(self.body_names)} names of them"
            )
        names = [name.data for name in self.body_names]
        if twice := next((name for name in names if names.count(name) > 1 or name in self.attrs.data), None):
            raise VerifyException(f"{what}: the attribute {twice} is given twice")
        for name, body in zip(names, self.bodies, strict=True):
            if not isinstance(body.block.last_op, YieldOp):
                raise VerifyException(f"{what}: graph {name} must end with onnx.yield")
            if not all(isinstance(type_, ValueType) for type_ in body.block.arg_types):
                raise VerifyException(f"{what}: the inputs of graph {name} are of type !onnx.value")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read the text that the class shows."""
        op_type = parse_string(parser)
        node_name = parse_optional_string(parser)
        domain = parse_string(parser) if parser.parse_optional_keyword("domain") is not None else None
        opset = parser.parse_integer() if parser.parse_optional_keyword("opset") is not None else None
        position = parser.pos
        names = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
        attrs = parse_optional_dictionary(parser)
        bodies = dict(_parse_bodies(parser)) if parser.parse_optional_keyword("bodies") is not None else {}
        identity = parse_attributes(parser)
        parser.parse_punctuation(":")
        types = parser.parse_function_type()
        op = cls(
            op_type,
            parser.resolve_operands(names, types.inputs.data, position),
            types.outputs.data,
            {} if attrs is None else attrs.data,
            domain=domain or "",
            opset=opset,
            node_name=node_name or "",
            bodies=bodies,
        )
        op.attributes |= identity
        return op

    def print(self, printer: Printer) -> None:
        """Write the text that the class shows."""
        printer.print_string(" ")
        printer.print_string_literal(self.op_type.data)
        if self.node_name is not None:
            printer.print_string(" ")
            printer.print_string_literal(self.node_name.data)
        if self.domain is not None:
            printer.print_string(" domain ")
            printer.print_string_literal(self.domain.data)
        if self.opset is not None:
            printer.print_string(f" opset {self.opset.value.data}")
        with printer.in_parens():
            printer.print_list(self.ins, printer.print_ssa_value)
        if self.attrs.data:
            printer.print_string(" ")
            printer.print_attribute(self.attrs)
        if self.bodies:
            _print_bodies(printer, self.graphs)
        print_attributes(printer, self)
        printer.print_string(" : ")
        print_types(printer, self.operand_types)
        printer.print_string(" -> ")
        if len(self.outs) == 1:
            printer.print_attribute(self.outs[0].type)
        else:
            print_types(printer, self.result_types)


def _parse_bodies(parser: Parser) -> list[tuple[str, Region]]:
    def entry() -> tuple[str, Region]:
        name = parser.parse_identifier()
        parser.parse_punctuation("=")
        return name, parser.parse_region()

    return parser.parse_comma_separated_list(parser.Delimiter.BRACES, entry)


def _print_bodies(printer: Printer, bodies: Mapping[str, Region]) -> None:
    printer.print_string(" bodies {")
    for index, (name, body) in enumerate(bodies.items()):
        printer.print_string(", " if index else "")
        printer.print_identifier_or_string_literal(name)
        printer.print_string(" = ")
        printer.print_region(body)
    printer.print_string("}")


@irdl_op_definition
class GraphOp(IRDLOperation):
    """``onnx.graph @name opsets {"" = 17} (%x : T {...}, ...) -> ["y"] { ... }``: a model.

    The arguments are its inputs, then its parameters, whose values are not in the program: each has `logical.name` and
    `logical.role`, `input` or `param`. The list names what `onnx.yield` gives.
    """

    name = "onnx.graph"

    sym_name = prop_def(SymbolNameConstraint())
    opsets = prop_def(DictionaryAttr)
    arg_attrs = prop_def(ArrayAttr[DictionaryAttr])
    result_names = prop_def(ArrayAttr[StringAttr])
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface())

    def __init__(
        self,
        name: str,
        opsets: Mapping[str, int],
        arg_attrs: Sequence[Entry],
        result_names: Sequence[str],
        body: Region,
    ):
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "opsets": DictionaryAttr(
                    {domain: IntegerAttr(version, i64) for domain, version in opsets.items()}
                ),
                "arg_attrs": ArrayAttr([DictionaryAttr(dict(entry)) for entry in arg_attrs]),
                "result_names": ArrayAttr([StringAttr(result) for result in result_names]),
            },
            regions=[body],
        )

    @property
    def versions(self) -> dict[str, int]:
        """The opset of each domain; "" is ONNX's own."""
        return {
            domain: version.value.data
            for domain, version in self.opsets.data.items()
            if isinstance(version, IntegerAttr)
        }

    @property
    def block(self) -> Block:
        """The nodes, in order."""
        return self.body.block

    @property
    def terminator(self) -> YieldOp:
        """What the graph gives."""
        last = self.block.last_op
        assert isinstance(last, YieldOp)
        return last

    def argument_name(self, index: int) -> str:
        """The name of an argument."""
        name = self.arg_attrs.data[index].data[_NAME]
        assert isinstance(name, StringAttr)
        return name.data

    def argument_info(self, index: int) -> TensorInfo:
        """Sizes and element type of an argument."""
        type_ = self.block.args[index].type
        assert isinstance(type_, ValueType) and type_.info is not None
        return type_.info

    def is_input(self, index: int) -> bool:
        """Whether an argument is given at every run."""
        return self.arg_attrs.data[index].data[_ROLE] == StringAttr(INPUT)

    def verify_(self) -> None:
        what = f"onnx.graph @{self.sym_name.data}"
        for domain, version in self.opsets.data.items():
            if not isinstance(version, IntegerAttr):
                raise VerifyException(
                    f'{what}: the opset of domain "{domain}" is {version}; it is an integer'
                )
        if not isinstance(self.block.last_op, YieldOp):
            raise VerifyException(f"{what} must end with onnx.yield")
        if len(self.result_names) != len(self.terminator.values):
            raise VerifyException(
                f"{what}: it yields {len(self.terminator.values)} values and names {len(self.result_names)}"
            )
        self._verify_arguments(what)
        self._verify_names(what)

    def _verify_arguments(self, what: str) -> None:
        if len(self.arg_attrs) != len(self.block.args):
            raise VerifyException(
                f"{what}: it has {len(self.block.args)} arguments and {len(self.arg_attrs)} names"
            )
        for index, (argument, entry) in enumerate(zip(self.block.args, self.arg_attrs, strict=True)):
            name, role = entry.data.get(_NAME), entry.data.get(_ROLE)
            if not isinstance(name, StringAttr) or not name.data:
                raise VerifyException(f'{what}: argument {index} has no name; give it {_NAME} = "..."')
            if role not in (StringAttr(INPUT), StringAttr(PARAM)):
                raise VerifyException(
                    f'{what}: the role of argument "{name.data}" is {role}; it is input or param'
                )
            if not isinstance(argument.type, ValueType) or argument.type.info is None:
                raise VerifyException(
                    f'{what}: the type of argument "{name.data}" is {argument.type}; write !onnx.value<f32, [...]>'
                )

    def _verify_names(self, what: str) -> None:
        arguments = [self.argument_name(index) for index in range(len(self.block.args))]
        for names in (arguments, [name.data for name in self.result_names]):
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise VerifyException(f'{what}: the name "{twice}" is used twice')

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read the text that the class shows."""
        name = parser.parse_symbol_name().data
        parser.parse_keyword("opsets")
        opsets = parse_optional_dictionary(parser)
        pairs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_argument(parser))
        parser.parse_punctuation("->")
        results = parse_strings(parser)
        attributes = parse_attributes(parser)
        body = parser.parse_region([argument for argument, _ in pairs])
        op = cls.create(
            properties={
                "sym_name": StringAttr(name),
                "opsets": DictionaryAttr({}) if opsets is None else opsets,
                "arg_attrs": ArrayAttr([entry for _, entry in pairs]),
                "result_names": results,
            },
            regions=[body],
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        """Write the text that the class shows."""
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" opsets ")
        _print_opsets(printer, self.opsets)
        printer.print_string(" ")
        with printer.in_parens():
            printer.print_list(
                list(zip(self.block.args, self.arg_attrs, strict=True)),
                lambda pair: _print_argument(printer, *pair),
            )
        printer.print_string(" -> ")
        print_strings(printer, self.result_names)
        print_attributes(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)


def _print_opsets(printer: Printer, opsets: DictionaryAttr) -> None:
    with printer.in_braces():
        for index, (domain, version) in enumerate(opsets.data.items()):
            printer.print_string(", " if index else "")
            printer.print_string_literal(domain)
            printer.print_string(" = ")
            if isinstance(version, IntegerAttr):
                printer.print_string(str(version.value.data))
            else:
                printer.print_attribute(version)


def _parse_argument(parser: Parser) -> tuple[Parser.Argument, DictionaryAttr]:
    argument = parser.parse_argument()
    entry = parse_optional_dictionary(parser)
    return argument, DictionaryAttr({}) if entry is None else entry


def _print_argument(printer: Printer, argument: SSAValue, entry: DictionaryAttr) -> None:
    printer.print_ssa_value(argument)
    printer.print_string(" : ")
    printer.print_attribute(argument.type)
    printer.print_string(" ")
    printer.print_attribute(entry)


Onnx = Dialect("onnx", [GraphOp, NodeOp, ConstantOp, NoneOp, YieldOp], [ValueType])
