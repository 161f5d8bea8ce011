"""Generated kernels as IR: an iteration space, one affine map per operand, and ordered phases of scalar ops.

The description says what is computed at each point and in which phases; how it is tiled, vectorised and combined is in
the kernel record of the instruction that uses it. CPU and GPU code come from the same description.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    IntAttr,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
)
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

from aicf.dialects.emit_access_ops import IndexOp, LoadOp, is_memory, memory_of
from aicf.dialects.emit_accumulate import AccumulateOp, accumulates_of, verify_accumulate
from aicf.dialects.emit_scalar_ops import (
    SCALAR_OPS,
    BitcastOp,
    CastOp,
    DivIntOp,
    PhiloxOp,
    ShiftLeftOp,
    ShiftRightOp,
    SigmoidOp,
    verify_scalar_op,
)
from aicf.dialects.emit_scan import ScanOp, scans_of, verify_scans
from aicf.dialects.emit_syntax import parse_attributes, parse_integer, parse_integers, print_attributes
from aicf.dialects.emit_types import scalar_element
from aicf.dialects.traits import StridedOperands

__all__ = [
    "REDUCTIONS",
    "SCALAR_OPS",
    "AccumulateOp",
    "BitcastOp",
    "CastOp",
    "DivIntOp",
    "IndexOp",
    "KernelOp",
    "LoadOp",
    "PhaseOp",
    "PhiloxOp",
    "ReduceOp",
    "ScanOp",
    "ShiftLeftOp",
    "ShiftRightOp",
    "SigmoidOp",
    "StoreOp",
    "YieldOp",
    "accumulates_of",
    "memory_of",
    "scans_of",
]

REDUCTIONS = ("sum", "max", "min", "prod")


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends a group, a body or a phase and names its results."""

    name = "emit.yield"

    values = var_operand_def()

    traits = traits_def(IsTerminator(), Pure(), StridedOperands())

    assembly_format = "attr-dict ($values^ `:` type($values))?"

    def __init__(self, values: Sequence[SSAValue] = ()):
        super().__init__(operands=[list(values)])


@irdl_op_definition
class ReduceOp(IRDLOperation):
    """Combines a scalar over the whole reduce space of the kernel, in the order that the kernel record fixes.

    `sum` starts at 0, `prod` at 1; `max` and `min` propagate NaN. Only `emit.yield` of its phase may use the result.
    """

    name = "emit.reduce"

    T: ClassVar = VarConstraint("T", AnyAttr())

    combine = prop_def(StringAttr)
    value = operand_def(T)
    result = result_def(T)

    traits = traits_def(Pure())

    assembly_format = "$combine $value attr-dict `:` type($value)"

    def __init__(self, combine: str, value: SSAValue):
        properties = {"combine": StringAttr(combine)}
        super().__init__(operands=[value], properties=properties, result_types=[value.type])

    def verify_(self) -> None:
        scalar_element(self.value.type)
        if self.combine.data not in REDUCTIONS:
            legal = ", ".join(REDUCTIONS)
            raise VerifyException(f"emit.reduce combines by one of {legal}, got '{self.combine.data}'")
        if any(not isinstance(use.operation, YieldOp) for use in self.result.uses):
            raise VerifyException(
                "emit.reduce: its result is only known after the phase; yield it and use that"
            )


@irdl_op_definition
class StoreOp(IRDLOperation):
    """Writes a scalar to output `output` of the kernel at the iteration point."""

    name = "emit.store"

    value = operand_def()
    output = prop_def(IntegerAttr.constr(i64))

    def __init__(self, value: SSAValue, output: int):
        super().__init__(operands=[value], properties={"output": IntegerAttr(output, i64)})

    @classmethod
    def parse(cls, parser: Parser) -> StoreOp:
        value = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        output = parse_integer(parser)
        parser.parse_punctuation(":")
        op = cls(parser.resolve_operand(value, parser.parse_type()), output)
        op.attributes |= parse_attributes(parser)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.value)
        printer.print_string(f", {self.output.value.data} : ")
        printer.print_attribute(self.value.type)
        print_attributes(printer, self)


@irdl_op_definition
class PhaseOp(IRDLOperation):
    """One sweep of the iteration space; later phases see its results.

    A result is known after the sweep. One that comes from `emit.reduce`, or from values that do not vary over the
    reduce space, is one scalar per parallel point. One that varies (the exponential of softmax, which a later phase
    divides) is *kept*: the backend keeps it per reduce point, and the later phase sees the value of its own point.
    """

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
        if self.body.block.args:
            raise VerifyException("emit.phase has no block arguments; the elements are those of its kernel")
        if not isinstance(self.body.block.last_op, YieldOp):
            raise VerifyException("emit.phase must end with emit.yield")
        if tuple(self.terminator.operand_types) != tuple(self.result_types):
            raise VerifyException("emit.phase: emit.yield does not give the types of its results")

    @classmethod
    def parse(cls, parser: Parser) -> PhaseOp:
        types: list[Attribute] = []
        if parser.parse_optional_punctuation("->") is not None:
            types = list(parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type))
        attributes = parse_attributes(parser)
        op = cls(parser.parse_region(), types)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        if self.values:
            printer.print_string(" -> ")
            printer.print_list(self.result_types, printer.print_attribute)
        print_attributes(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body)


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A generated kernel: what is computed at each point of `parallel` x `reduce`.

    Block argument i is the element of operand i at the iteration point (`ins[i]` maps the point to its index);
    `emit.store v, o` writes output o at the index that `outs[o]` gives. For a GEMM epilogue operand 0 is the
    accumulator. Every output is stored exactly once per point of its map, or made by `emit.accumulate`.

    An operand that is read at computed indices is `indexed` in the list of maps and a memref among the arguments: it
    has no element at the point, only `emit.load` reads it, and no output may overwrite it.

    A value *varies* if it differs over the reduce space: the element of an operand whose map uses a reduce dim, the
    coordinate along one (`emit.index`), what `emit.scan` gives, what is computed from those, and a phase result that
    varies (kept per reduce point); `emit.reduce` gives a value that does not. A phase that handles a varying value
    sweeps the reduce space, and an output without reduce dims takes only values that do not vary.
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
    def indexed(self) -> frozenset[int]:
        """Operands that are read at computed indices only; their maps are empty."""
        return frozenset(arg.index for arg in self.body.block.args if is_memory(arg.type))

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

    def varies(self, value: SSAValue) -> bool:
        """Whether `value`, an argument or a value of a phase, differs over the reduce dims."""
        return value in self.varying_values()

    def varying_values(self) -> set[SSAValue]:
        """All values that vary."""
        varying: set[SSAValue] = {arg for arg in self.body.block.args if self.reads_reduce_space(arg)}
        for phase in self.phases:
            for op in phase.body.block.ops:
                if self._makes_varying(op, varying):
                    varying.update(op.results)
            pairs = zip(phase.results, phase.terminator.operands, strict=True)
            varying.update(result for result, value in pairs if value in varying)
        return varying

    def _makes_varying(self, op: Operation, varying: set[SSAValue]) -> bool:
        if isinstance(op, IndexOp):
            return op.number >= len(self.parallel)
        if isinstance(op, ScanOp):
            return True
        return not isinstance(op, ReduceOp) and any(operand in varying for operand in op.operands)

    def sweeps_reduce_space(self, phase: PhaseOp) -> bool:
        """Whether `phase` visits every reduce point.

        It does if it reduces or accumulates, stores an output that has the reduce dims, or yields a value that varies
        over them.
        """
        return self._sweeps(phase, self.varying_values())

    def _sweeps(self, phase: PhaseOp, varying: set[SSAValue]) -> bool:
        return any(
            isinstance(op, ReduceOp | AccumulateOp)
            or (isinstance(op, StoreOp) and self.writes_reduce_space(op.output.value.data))
            or (isinstance(op, YieldOp) and any(value in varying for value in op.operands))
            for op in phase.body.block.ops
        )

    def verify_(self) -> None:
        sizes = (*self.parallel_sizes, *self.reduce_sizes)
        if any(size < 0 for size in self.parallel_sizes) or any(size < 1 for size in self.reduce_sizes):
            raise VerifyException(
                f"emit.kernel: parallel dims have 0 points or more, reduce dims 1 or more, got {sizes}"
            )
        for m in (*self.in_maps, *self.out_maps):
            _verify_map(m, len(sizes))
        if len(self.body.block.args) != len(self.ins):
            found = len(self.body.block.args)
            raise VerifyException(f"emit.kernel: {len(self.ins)} operand maps for {found} elements")
        for arg, m in zip(self.body.block.args, self.in_maps, strict=True):
            if not is_memory(arg.type):
                scalar_element(arg.type)
            elif m.results:
                raise VerifyException(
                    f"emit.kernel: operand {arg.index} is a memref, which is indexed, and has map {m}"
                )
        self._verify_phases()

    def _verify_phases(self) -> None:
        for op in self.body.block.ops:
            if not isinstance(op, PhaseOp):
                raise VerifyException(f"emit.kernel holds phases, found {op.name}")
            op.verify_()
            for inner in op.body.block.ops:
                self._verify_op(inner)
            verify_scans(op.body.block.ops, len(self.reduce))
        stores = [op for phase in self.phases for op in phase.body.block.ops if isinstance(op, StoreOp)]
        sums = [op for phase in self.phases for op in accumulates_of(phase.body.block.ops)]
        stored = sorted(op.output.value.data for op in (*stores, *sums))
        if not self.outs:
            raise VerifyException("emit.kernel has no outputs")
        if stored != list(range(len(self.outs))):
            raise VerifyException(
                f"emit.kernel: outputs 0..{len(self.outs) - 1} are stored once each, but emit.store names {stored}"
            )
        for op in sums:
            out_map = self.out_maps[op.output.value.data]
            verify_accumulate(op, len(self.parallel), self.reduce_sizes, out_map, REDUCTIONS)
        self._verify_sweeps(stores)

    def _verify_op(self, op: Operation) -> None:
        match op:
            case ReduceOp():
                if not self.reduce:
                    raise VerifyException("emit.reduce in a kernel without reduce dims")
            case StoreOp():
                scalar_element(op.value.type)
            case AccumulateOp():
                pass  # checked with its output
            case IndexOp():
                self._verify_index(op)
            case ScanOp():
                op.verify_()
            case LoadOp():
                if not isinstance(op.memory, BlockArgument):
                    raise VerifyException("emit.load reads an operand of its kernel")
            case YieldOp():
                return
            case _:
                verify_scalar_op(op)

    def _verify_index(self, op: IndexOp) -> None:
        sizes = (*self.parallel_sizes, *self.reduce_sizes)
        if not 0 <= op.number < len(sizes):
            raise VerifyException(
                f"emit.index {op.number}: the iteration space has {len(sizes)} dims, counted from 0"
            )
        if op.result.type == i32 and sizes[op.number] > 1 << 31:
            raise VerifyException(f"emit.index {op.number}: {sizes[op.number]} coordinates do not fit i32")

    def _verify_sweeps(self, stores: Sequence[StoreOp]) -> None:
        varying = self.varying_values()
        for op in stores:
            output = op.output.value.data
            if op.value in varying and not self.writes_reduce_space(output):
                raise VerifyException(
                    f"emit.store: output {output} has no reduce dims, but the stored value varies over them; reduce it"
                )
        for phase in self.phases:
            if self._sweeps(phase, varying):
                continue
            for op in phase.body.block.ops:
                if any(operand in varying for operand in op.operands):
                    raise VerifyException(
                        f"{op.name} uses a value that varies over the reduce dims, but its phase does not sweep them"
                    )

    @classmethod
    def parse(cls, parser: Parser) -> KernelOp:
        sym_name = parser.parse_symbol_name().data
        sizes: list[list[int]] = []
        for keyword in ("parallel", "reduce"):
            parser.parse_keyword(keyword)
            sizes.append(parse_integers(parser))
        rank = len(sizes[0]) + len(sizes[1])
        maps: list[list[AffineMap]] = []
        for keyword in ("ins", "outs"):
            parser.parse_keyword(keyword)
            maps.append(
                parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_map(parser, rank))
            )
        attributes = parse_attributes(parser)
        body = parser.parse_region()
        if not body.blocks:
            body.add_block(Block())
        op = cls(sym_name, sizes[0], sizes[1], maps[0], maps[1], body)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(f" parallel {list(self.parallel_sizes)} reduce {list(self.reduce_sizes)} ins ")
        with printer.in_square_brackets():
            printer.print_list(enumerate(self.ins), lambda entry: self._print_in(printer, *entry))
        printer.print_string(" outs ")
        with printer.in_square_brackets():
            printer.print_list(self.outs, printer.print_attribute)
        print_attributes(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body)

    def _print_in(self, printer: Printer, operand: int, map_: AffineMapAttr) -> None:
        if operand in self.indexed:
            printer.print_string("indexed")
        else:
            printer.print_attribute(map_)


def _parse_map(parser: Parser, rank: int) -> AffineMap:
    """A map, or the word `indexed` for the empty one of an operand without an element at the point."""
    start = parser.pos
    if parser.parse_optional_keyword("indexed") is not None:
        return AffineMap(rank, 0, ())
    try:
        attribute = parser.parse_attribute()
    except ZeroDivisionError:  # xDSL folds constants while it reads
        parser.raise_error("affine_map divides by zero", start, parser.pos)
    except NotImplementedError:
        parser.raise_error("affine_map multiplies dims or divides by one", start, parser.pos)
    if not isinstance(attribute, AffineMapAttr):
        parser.raise_error("expected an affine_map", start, parser.pos)
    return attribute.data


def _verify_map(m: AffineMap, rank: int) -> None:
    if m.num_dims != rank or m.num_symbols:
        raise VerifyException(f"emit.kernel: map {m} must take the {rank} dims of the iteration space")
    for expr in m.results:
        _verify_affine(expr, m)


def _verify_affine(expr: AffineExpr, m: AffineMap) -> None:
    match expr:
        case AffineConstantExpr():
            return
        case AffineDimExpr(position) if position < m.num_dims:
            return
        case AffineBinaryOpExpr(kind, lhs, rhs):
            _verify_affine(lhs, m)
            _verify_affine(rhs, m)
            if kind is AffineBinaryOpKind.Add:
                return
            if kind is AffineBinaryOpKind.Mul:
                if not isinstance(lhs, AffineConstantExpr) and not isinstance(rhs, AffineConstantExpr):
                    raise VerifyException(f"emit.kernel: map {m} multiplies dims")
                return
            if not isinstance(rhs, AffineConstantExpr) or rhs.value < 1:
                raise VerifyException(
                    f"emit.kernel: map {m} divides by something else than a positive constant"
                )
        case _:
            raise VerifyException(f"emit.kernel: map {m} has {expr}, which is no dim of the iteration space")
