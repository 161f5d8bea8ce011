"""The scalar ops that have code on this backend, and what each costs. Imports no code generator.

A row here says that `codegen/scalar/ops.py` has one as well; a test compares the two tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith, math
from xdsl.ir import Operation

from aicf.dialects.emit_kernels import (
    BitcastOp,
    CastOp,
    DivIntOp,
    PhiloxOp,
    ShiftLeftOp,
    ShiftRightOp,
    SigmoidOp,
)

SCALAR_CYCLES: Mapping[type[Operation], float] = {
    arith.ConstantOp: 0,
    arith.AddfOp: 0.5,
    arith.SubfOp: 0.5,
    arith.MulfOp: 0.5,
    arith.DivfOp: 9,
    arith.NegfOp: 0.5,
    arith.MaximumfOp: 1.5,
    arith.MinimumfOp: 1.5,
    arith.AddiOp: 0.5,
    arith.SubiOp: 0.5,
    arith.MuliOp: 0.5,
    arith.AndIOp: 0.5,
    arith.OrIOp: 0.5,
    arith.XOrIOp: 0.5,
    arith.MaxSIOp: 0.5,
    arith.MinSIOp: 0.5,
    arith.MaxUIOp: 0.5,
    arith.MinUIOp: 0.5,
    arith.CmpfOp: 0.5,
    arith.CmpiOp: 0.5,
    arith.SelectOp: 0.5,
    arith.ExtFOp: 0.5,
    arith.TruncFOp: 0.5,
    arith.SIToFPOp: 0.5,
    arith.ExtSIOp: 0.5,
    arith.TruncIOp: 0.5,
    math.ExpOp: 11,
    math.LogOp: 20,
    math.SqrtOp: 14,
    math.RsqrtOp: 22,
    math.TanhOp: 16,
    math.ErfOp: 20,
    math.ExpM1Op: 13,
    math.Log1pOp: 25,
    math.SinOp: 21,
    math.CosOp: 21,
    math.AtanOp: 20,
    math.PowFOp: 140,
    math.AbsFOp: 0.5,
    math.FloorOp: 3,
    math.CeilOp: 3,
    math.RoundEvenOp: 2,
    SigmoidOp: 20,
    DivIntOp: 60,
    ShiftLeftOp: 2,
    ShiftRightOp: 2,
    BitcastOp: 0.5,
    CastOp: 2,
    PhiloxOp: 46,
}
"""Op class to cycles for one vector of f32."""

_DIVIDER, _POLYNOMIAL = 0.25, 2.5
POINT_FACTORS: Mapping[type[Operation], float] = {
    arith.DivfOp: _DIVIDER,
    math.SqrtOp: _DIVIDER,
    math.RsqrtOp: _DIVIDER,
    math.ExpOp: _POLYNOMIAL,
    math.LogOp: _POLYNOMIAL,
    math.TanhOp: _POLYNOMIAL,
    math.ErfOp: _POLYNOMIAL,
    math.ExpM1Op: _POLYNOMIAL,
    math.Log1pOp: _POLYNOMIAL,
    math.SinOp: _POLYNOMIAL,
    math.CosOp: _POLYNOMIAL,
    math.AtanOp: _POLYNOMIAL,
    SigmoidOp: _POLYNOMIAL,
}
"""What one number takes in place of a vector, once a row, as a factor of the vector's cycles; 1 for all others.

The divider takes a vector in parts. A polynomial has as many instructions for one number as for a vector, each of which
waits for the one before: next to the rest of a row, they do not all hide."""
