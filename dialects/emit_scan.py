"""Prefix sums in a generated kernel: what has been combined at a point of the reduce space on the way to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.emit_types import scalar_element

SCANS = ("sum",)
"""How a scan combines: each is one of the ways of `emit.reduce`, and starts where that does."""


@irdl_op_definition
class ScanOp(IRDLOperation):
    """Combines a scalar along the one reduce dim of the kernel, at each point over all points up to and with it.

    With `exclusive` it leaves the point itself out, and the first point gets what the combination starts from; with
    `reverse` the dim is walked from its last point to its first. The result differs from point to point even where the
    operand does not. It is known at a point as soon as the sweep has come there: the same phase computes with it,
    reduces it and stores it; no value computed from it leaves the phase, and no scan of the phase reads it. All scans
    of a phase walk one way. Integer sums wrap around; which partial results are combined is in the kernel record.
    """

    name = "emit.scan"

    T: ClassVar = VarConstraint("T", AnyAttr())

    combine = prop_def(StringAttr)
    exclusive = opt_prop_def(UnitAttr)
    reverse = opt_prop_def(UnitAttr)
    value = operand_def(T)
    result = result_def(T)

    traits = traits_def(Pure())

    assembly_format = (
        "$combine (`exclusive` $exclusive^)? (`reverse` $reverse^)? $value attr-dict `:` type($value)"
    )

    def __init__(self, combine: str, value: SSAValue, *, exclusive: bool = False, reverse: bool = False):
        flags = {"exclusive": exclusive, "reverse": reverse}
        super().__init__(
            operands=[value],
            properties={
                "combine": StringAttr(combine),
                **{name: UnitAttr() for name, given in flags.items() if given},
            },
            result_types=[value.type],
        )

    @property
    def is_exclusive(self) -> bool:
        """Whether a point leaves itself out."""
        return self.exclusive is not None

    @property
    def is_reverse(self) -> bool:
        """Whether the dim is walked from its end."""
        return self.reverse is not None

    def verify_(self) -> None:
        scalar_element(self.value.type)
        if self.combine.data not in SCANS:
            raise VerifyException(
                f"emit.scan combines by one of {', '.join(SCANS)}, got '{self.combine.data}'"
            )


def scans_of(ops: Iterable[Operation]) -> list[ScanOp]:
    """The scans among `ops`, in order."""
    return [op for op in ops if isinstance(op, ScanOp)]


def scanned_values(ops: Iterable[Operation]) -> set[SSAValue]:
    """The results of the scans among the ops of a phase, and what varies because it is computed from them.

    A reduction of such a value is not among them: it is one value for all points.
    """
    found: set[SSAValue] = set()
    for op in ops:
        reduces = op.name == "emit.reduce"
        if isinstance(op, ScanOp) or (not reduces and any(operand in found for operand in op.operands)):
            found.update(op.results)
    return found


def verify_scans(ops: Iterable[Operation], reduce_dims: int) -> None:
    """Checks the scans of a phase against each other and against its kernel.

    Raises:
        VerifyException: what the docstring of `ScanOp` rules out.
    """
    ops = list(ops)
    scans = scans_of(ops)
    if scans and reduce_dims != 1:
        raise VerifyException(f"emit.scan walks the one reduce dim of its kernel, which has {reduce_dims}")
    if len({scan.is_reverse for scan in scans}) > 1:
        raise VerifyException(
            "emit.scan: all scans of a phase walk one way; give the others a phase of their own"
        )
    scanned = scanned_values(ops)
    if any(scan.value in scanned for scan in scans):
        raise VerifyException("emit.scan of what another emit.scan of the phase gives; use a kernel for each")
    if ops and any(operand in scanned for operand in ops[-1].operands):
        raise VerifyException(
            "emit.yield: what emit.scan gives is known in its phase alone; compute it again in the later one"
        )
