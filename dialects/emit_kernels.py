"""Generated kernels as IR: an iteration space, one affine map per operand, and ordered phases of scalar ops.

The description says what is computed at each point and in which phases; how it is tiled, vectorised and combined is in
the kernel record of the instruction that uses it. CPU and GPU code come from the same description.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloatConstr,
    ArrayAttr,
    IntAttr,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    i64,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, NoTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

REDUCTIONS = ("sum", "max", "min")


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends a group, a body or a phase and names its results."""

    name = "emit.yield"

    values = var_operand_def()

    traits = traits_def(IsTerminator(), Pure())

    assembly_format = "attr-dict ($values^ `:` type($values))?"

    def __init__(self, values: Sequence[SSAValue] = ()):
        super().__init__(operands=[list(values)])


@irdl_op_definition
class ReduceOp(IRDLOperation):
    """Combines a scalar over the whole reduce space of the kernel, in the order that the kernel record fixes.

    `sum` starts at 0; `max` and `min` propagate NaN. Only `emit.yield` of its phase may use the result.
    """

    name = "emit.reduce"

    T: ClassVar = VarConstraint("T", AnyAttr())

    combine = prop_def(StringAttr)
    value = operand_def(T)
    result = result_def(T)

    traits = traits_def(Pure())

    assembly_format = "$combine $value attr-dict `:` type($value)"

    def __init__(self, combine: str, value: SSAValue):
        super().__init__(operands=[value], properties={"combine": StringAttr(combine)}, result_types=[value.type])

    def verify_(self) -> None:
        if self.combine.data not in REDUCTIONS:
            raise VerifyException(f"emit.reduce combines by one of {', '.join(REDUCTIONS)}, got '{self.combine.data}'")
        if any(not isinstance(use.operation, YieldOp) for use in self.result.uses):
            raise VerifyException("emit.reduce: its result is only known after the phase; yield it and use that")


@irdl_op_definition
class StoreOp(IRDLOperation):
    """Writes a scalar to output `output` of the kernel at the iteration point."""

    name = "emit.store"

    value = operand_def()
    output = prop_def(IntegerAttr)

    def __init__(self, value: SSAValue, output: int):
        super().__init__(operands=[value], properties={"output": IntegerAttr(output, i64)})

    @classmethod
    def parse(cls, parser: Parser) -> StoreOp:
        value = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        output = parser.parse_integer()
        parser.parse_punctuation(":")
        return cls(parser.resolve_operand(value, parser.parse_type()), output)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.value)
        printer.print_string(f", {self.output.value.data} : ")
        printer.print_attribute(self.value.type)


@irdl_op_definition
class SigmoidOp(IRDLOperation):
    """1 / (1 + exp(-x)), without overflow for any x."""

    name = "emit.sigmoid"

    T: ClassVar = VarConstraint("T", AnyFloatConstr)

    operand = operand_def(T)
    result = result_def(T)

    traits = traits_def(Pure())

    assembly_format = "$operand attr-dict `:` type($operand)"

    def __init__(self, operand: SSAValue):
        super().__init__(operands=[operand], result_types=[operand.type])


@irdl_op_definition
class DivIntOp(IRDLOperation):
    """Integer quotient truncated toward zero; x / 0 is 0 and overflow wraps, so that every input is defined."""

    name = "emit.div_int"

    T: ClassVar = VarConstraint("T", AnyAttr())

    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(T)

    traits = traits_def(Pure())

    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs)"

    def __init__(self, lhs: SSAValue, rhs: SSAValue):
        super().__init__(operands=[lhs, rhs], result_types=[lhs.type])


@irdl_op_definition
class CastOp(IRDLOperation):
    """Converts a scalar as `logical.cast` does: float to int truncates, saturates, NaN gives 0; to i1 is `x != 0`."""

    name = "emit.cast"

    operand = operand_def()
    result = result_def()

    traits = traits_def(Pure())

    assembly_format = "$operand attr-dict `:` type($operand) `to` type($result)"

    def __init__(self, operand: SSAValue, result_type: Attribute):
        super().__init__(operands=[operand], result_types=[result_type])


@irdl_op_definition
class PhaseOp(IRDLOperation):
    """One sweep of the iteration space; its results are one scalar per parallel point, visible to later phases."""

    name = "emit.phase"

    values = var_result_def()
    body = region_def("single_block")

    def __init__(self, body: Region, result_types: Sequence[Attribute] = ()):
        super().__init__(regions=[body], result_types=[list(result_types)])

    @property
    def terminator(self) -> YieldOp:
        """The yield that ends the phase."""
        last = self.body.block.last_op
        assert isinstance(last, YieldOp)
        return last

    def verify_(self) -> None:
        if not isinstance(self.body.block.last_op, YieldOp):
            raise VerifyException("emit.phase must end with emit.yield")
        if tuple(self.terminator.operand_types) != tuple(self.result_types):
            raise VerifyException("emit.phase: emit.yield does not give the types of its results")

    @classmethod
    def parse(cls, parser: Parser) -> PhaseOp:
        types: list[Attribute] = []
        if parser.parse_optional_punctuation("->") is not None:
            types = list(parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type))
        return cls(parser.parse_region(), types)

    def print(self, printer: Printer) -> None:
        if self.values:
            printer.print_string(" -> ")
            printer.print_list(self.result_types, printer.print_attribute)
        printer.print_string(" ")
        printer.print_region(self.body)


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A generated kernel: what is computed at each point of `parallel` x `reduce`.

    Block argument i is the element of operand i at the iteration point (`ins[i]` maps the point to its index);
    `emit.store v, o` writes output o at the index that `outs[o]` gives. For a GEMM epilogue operand 0 is the
    accumulator. Every output is stored exactly once per point of its map.
    """

    name = "emit.kernel"

    sym_name = prop_def(SymbolNameConstraint())
    parallel = prop_def(ArrayAttr[IntAttr])
    reduce = prop_def(ArrayAttr[IntAttr])
    ins = prop_def(ArrayAttr[AffineMapAttr])
    outs = prop_def(ArrayAttr[AffineMapAttr])
    body = region_def("single_block")

    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface(), NoTerminator())

    def __init__(
        self,
        sym_name: str,
        parallel: Sequence[int],
        reduce: Sequence[int],
        ins: Sequence[AffineMap],
        outs: Sequence[AffineMap],
        body: Region,
    ):
        super().__init__(
            properties={
                "sym_name": StringAttr(sym_name),
                "parallel": ArrayAttr([IntAttr(size) for size in parallel]),
                "reduce": ArrayAttr([IntAttr(size) for size in reduce]),
                "ins": ArrayAttr([AffineMapAttr(m) for m in ins]),
                "outs": ArrayAttr([AffineMapAttr(m) for m in outs]),
            },
            regions=[body],
        )

    @property
    def parallel_sizes(self) -> tuple[int, ...]:
        """Sizes of dims d0 .. of the iteration space that are independent of each other."""
        return tuple(size.data for size in self.parallel)

    @property
    def reduce_sizes(self) -> tuple[int, ...]:
        """Sizes of the dims, after the parallel ones, that `emit.reduce` combines over."""
        return tuple(size.data for size in self.reduce)

    @property
    def in_maps(self) -> tuple[AffineMap, ...]:
        """Iteration point -> element index, one per operand."""
        return tuple(m.data for m in self.ins)

    @property
    def out_maps(self) -> tuple[AffineMap, ...]:
        """Iteration point -> element index, one per output."""
        return tuple(m.data for m in self.outs)

    @property
    def phases(self) -> tuple[PhaseOp, ...]:
        """The sweeps in order."""
        return tuple(op for op in self.body.block.ops if isinstance(op, PhaseOp))

    def reads_reduce_space(self, argument: BlockArgument) -> bool:
        """Whether the element of `argument` differs over the reduce dims."""
        first = len(self.parallel)
        return any(dim >= first for dim in self.in_maps[argument.index].used_dims())

    def writes_reduce_space(self, output: int) -> bool:
        """Whether output `output` has one element per point of the reduce dims."""
        return any(dim >= len(self.parallel) for dim in self.out_maps[output].used_dims())

    def sweeps_reduce_space(self, phase: PhaseOp) -> bool:
        """Whether `phase` visits every reduce point (it reduces, or stores an output that has the reduce dims)."""
        return any(
            isinstance(op, ReduceOp) or (isinstance(op, StoreOp) and self.writes_reduce_space(op.output.value.data))
            for op in phase.body.block.ops
        )

    def verify_(self) -> None:
        rank = len(self.parallel) + len(self.reduce)
        for m in (*self.in_maps, *self.out_maps):
            if m.num_dims != rank or m.num_symbols:
                raise VerifyException(f"emit.kernel: map {m} must take the {rank} dims of the iteration space")
        if len(self.body.block.args) != len(self.ins):
            raise VerifyException(f"emit.kernel: {len(self.ins)} operand maps for {len(self.body.block.args)} elements")
        self._verify_phases()

    def _verify_phases(self) -> None:
        stored: list[int] = []
        for op in self.body.block.ops:
            if not isinstance(op, PhaseOp):
                raise VerifyException(f"emit.kernel holds phases, found {op.name}")
            for inner in op.body.block.ops:
                self._verify_scalar(op, inner)
                if isinstance(inner, StoreOp):
                    stored.append(inner.output.value.data)
        if sorted(stored) != list(range(len(self.outs))):
            raise VerifyException(f"emit.kernel: outputs 0..{len(self.outs) - 1} are stored once each, got {sorted(stored)}")

    def _verify_scalar(self, phase: PhaseOp, op: Operation) -> None:
        if op.regions:
            raise VerifyException(f"emit.phase holds scalar ops, found {op.name}")
        if isinstance(op, ReduceOp) and not self.reduce:
            raise VerifyException("emit.reduce in a kernel without reduce dims")
        if self.sweeps_reduce_space(phase):
            return
        for operand in op.operands:
            if isinstance(operand, BlockArgument) and operand.block is self.body.block and self.reads_reduce_space(operand):
                raise VerifyException(f"operand {operand.index} has the reduce dims, but its phase does not sweep them")

    @classmethod
    def parse(cls, parser: Parser) -> KernelOp:
        sym_name = parser.parse_symbol_name().data
        sizes: list[list[int]] = []
        for keyword in ("parallel", "reduce"):
            parser.parse_keyword(keyword)
            sizes.append(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer))
        maps: list[list[AffineMap]] = []
        for keyword in ("ins", "outs"):
            parser.parse_keyword(keyword)
            maps.append(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_map(parser)))
        attributes = parser.parse_optional_attr_dict_with_keyword()
        body = parser.parse_region()
        if not body.blocks:
            body.add_block(Block())
        op = cls(sym_name, sizes[0], sizes[1], maps[0], maps[1], body)
        if attributes is not None:
            op.attributes |= attributes.data
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(f" parallel {list(self.parallel_sizes)} reduce {list(self.reduce_sizes)} ins ")
        with printer.in_square_brackets():
            printer.print_list(self.ins, printer.print_attribute)
        printer.print_string(" outs ")
        with printer.in_square_brackets():
            printer.print_list(self.outs, printer.print_attribute)
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body)


def _parse_map(parser: Parser) -> AffineMap:
    attribute = parser.parse_attribute()
    if not isinstance(attribute, AffineMapAttr):
        parser.raise_error("expected an affine_map")
    return attribute.data
