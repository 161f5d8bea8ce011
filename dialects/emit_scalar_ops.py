"""Scalar ops of generated kernels: the list of those a phase may hold, and the ones that arith and math lack.

Every op of the list is defined for every input; a conversion or division that arith leaves undefined somewhere is
an op of this dialect instead.
"""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloatConstr, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.emit_types import scalar_element


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


class _IntegerOp(IRDLOperation, ABC):
    """An operation on two integers of one type, defined for all of them."""

    T: ClassVar = VarConstraint("T", AnyAttr())

    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(T)

    traits = traits_def(Pure())

    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs)"

    def __init__(self, lhs: SSAValue, rhs: SSAValue):
        super().__init__(operands=[lhs, rhs], result_types=[lhs.type])


@irdl_op_definition
class DivIntOp(_IntegerOp):
    """Integer quotient truncated toward zero; x / 0 is 0 and overflow wraps, so that every input is defined."""

    name = "emit.div_int"

    def verify_(self) -> None:
        if scalar_element(self.lhs.type).is_float:
            raise VerifyException(f"emit.div_int divides integers, got {self.lhs.type}")


class _ShiftOp(_IntegerOp, ABC):
    """A shift of an integer, defined for every amount."""

    def verify_(self) -> None:
        if scalar_element(self.lhs.type).kind != "int":
            raise VerifyException(f"{self.name} shifts integers, got {self.lhs.type}")


@irdl_op_definition
class ShiftLeftOp(_ShiftOp):
    """lhs * 2^rhs mod 2^bits; 0 where rhs is no number of bits."""

    name = "emit.shift_left"


@irdl_op_definition
class ShiftRightOp(_ShiftOp):
    """lhs / 2^rhs rounded down; 0, and -1 of a negative number, where rhs is no number of bits."""

    name = "emit.shift_right"


class _ConversionOp(IRDLOperation, ABC):
    """A scalar of one type as one of another, which is stated."""

    operand = operand_def()
    result = result_def()

    traits = traits_def(Pure())

    assembly_format = "$operand attr-dict `:` type($operand) `to` type($result)"

    def __init__(self, operand: SSAValue, result_type: Attribute):
        super().__init__(operands=[operand], result_types=[result_type])


@irdl_op_definition
class BitcastOp(_ConversionOp):
    """The bits of a scalar as one of another type of as many bytes, as `logical.bitcast` does it."""

    name = "emit.bitcast"

    def verify_(self) -> None:
        source, target = scalar_element(self.operand.type), scalar_element(self.result.type)
        if source.bytes != target.bytes:
            raise VerifyException(
                f"{self.name}: {source.name} has {source.bytes} bytes, {target.name} {target.bytes}"
            )


@irdl_op_definition
class CastOp(_ConversionOp):
    """Converts a scalar as `logical.cast` does: float to int truncates, saturates, NaN gives 0; to i1 is `x != 0`."""

    name = "emit.cast"


@irdl_op_definition
class PhiloxOp(IRDLOperation):
    """Word `index mod 4` of Philox4x32-10 with the key `seed` and the counter `offset + index/4` mod 2^64, unsigned."""

    name = "emit.philox"

    seed = operand_def(i64)
    offset = operand_def(i64)
    index = operand_def(i64)
    result = result_def(i32)

    traits = traits_def(Pure())

    assembly_format = "$seed `,` $offset `,` $index attr-dict"

    def __init__(self, seed: SSAValue, offset: SSAValue, index: SSAValue):
        super().__init__(operands=[seed, offset, index], result_types=[i32])


SCALAR_OPS: frozenset[type[Operation]] = frozenset(
    {
        arith.ConstantOp,
        arith.AddfOp,
        arith.SubfOp,
        arith.MulfOp,
        arith.DivfOp,
        arith.NegfOp,
        arith.MaximumfOp,
        arith.MinimumfOp,
        arith.AddiOp,
        arith.SubiOp,
        arith.MuliOp,
        arith.AndIOp,
        arith.OrIOp,
        arith.XOrIOp,
        arith.MaxSIOp,
        arith.MinSIOp,
        arith.MaxUIOp,
        arith.MinUIOp,
        arith.CmpfOp,
        arith.CmpiOp,
        arith.SelectOp,
        arith.ExtFOp,
        arith.TruncFOp,
        arith.ExtSIOp,
        arith.TruncIOp,
        arith.SIToFPOp,
        math.ExpOp,
        math.LogOp,
        math.SqrtOp,
        math.RsqrtOp,
        math.TanhOp,
        math.ErfOp,
        math.ExpM1Op,
        math.Log1pOp,
        math.SinOp,
        math.CosOp,
        math.AtanOp,
        math.PowFOp,
        math.AbsFOp,
        math.FloorOp,
        math.CeilOp,
        math.RoundEvenOp,
        SigmoidOp,
        DivIntOp,
        ShiftLeftOp,
        ShiftRightOp,
        BitcastOp,
        CastOp,
        PhiloxOp,
    }
)
"""What a phase computes with, besides `emit.reduce` and `emit.store`."""

_RELAXATIONS = (arith.FastMathFlagsAttr, arith.IntegerOverflowAttr)


def verify_scalar_op(op: Operation) -> None:
    """Checks that `op` is of `SCALAR_OPS`, on element types of the table, with exact arithmetic.

    Raises:
        VerifyException: another op, another type, or flags that allow other results or leave some undefined.
    """
    if type(op) not in SCALAR_OPS:
        raise VerifyException(f"emit.phase holds scalar ops, found {op.name}")
    for attribute in (*op.properties.values(), *op.attributes.values()):
        if isinstance(attribute, _RELAXATIONS) and attribute.data:
            raise VerifyException(f"{op.name}: generated kernels are exact; drop {attribute}")
    for value in (*op.operands, *op.results):
        scalar_element(value.type)
