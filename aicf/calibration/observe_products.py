"""`observe-products`: the program also gives what the operands of its products are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.calibration.observed_names import Observed, add_results
from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.logical.lowerings.base import Lowering
from aicf.passes.logical.precision.eight_bits import count_of
from aicf.passes.logical.precision.products import Factor, products_of
from aicf.passes.support.identity import IdTable
from aicf.passes.support.interface import functions

SMALLEST, LARGEST, WEIGHT, VALUE = "smallest", "largest", "weight", "value"


@dataclass(frozen=True)
class ObserveProductsPass(ModulePass):
    """Adds results, all f32: the smallest and the largest number of each operand that depends on inputs.

    With `channels`, these are vectors with a number for each channel that the product adds up over, and there is one
    more for each weight: the largest magnitude of each channel. With `values` the operands themselves are results.
    """

    name = "observe-products"

    channels: bool = False
    values: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ids = IdTable(op)
        for function in functions(op):
            found = dict(self._observed(function, ids))
            add_results(function, found)

    def _observed(self, function: FuncOp, ids: IdTable) -> Iterator[tuple[Observed, SSAValue]]:
        groups: dict[SSAValue, int] = {}
        for product in products_of(function):
            writer = Lowering(PatternRewriter(product.op), product.op, ids)
            for factor in product.factors:
                value = product.value(factor)
                is_new = value not in groups
                where = groups.setdefault(value, len(groups)), factor.inputs, factor.index, product.name
                if factor not in product.weights:
                    yield (
                        Observed(SMALLEST, *where),
                        self._reduced(writer, logical.ReduceMinOp, value, factor),
                    )
                    yield Observed(LARGEST, *where), self._reduced(writer, logical.ReduceMaxOp, value, factor)
                    if self.values and is_new:
                        yield Observed(VALUE, *where), value
                elif self.channels and count_of(product, "smoothing") is not None:
                    magnitude = writer.add(logical.AbsOp(value), "magnitude")
                    largest = self._reduced(writer, logical.ReduceMaxOp, magnitude, factor)
                    yield Observed(WEIGHT, *where), largest

    def _reduced(
        self,
        writer: Lowering,
        reduction: type[logical.ReduceMinOp | logical.ReduceMaxOp],
        value: SSAValue,
        factor: Factor,
    ) -> SSAValue:
        axes = [
            axis
            for axis in range(tensor_info(value.type).rank)
            if not (self.channels and axis == factor.inputs)
        ]
        return writer.add(reduction(value, axes), "observed") if axes else value
