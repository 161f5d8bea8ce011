"""`observe-rounding`: the program also gives what rounding takes away from the result of each product, on average."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from aicf.calibration.observed_names import Observed, add_results
from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.logical.precision.eight_bits import EightBitProducts, count_of, rounds
from aicf.passes.logical.precision.products import Product, products_of
from aicf.passes.support.identity import IdTable, name_after
from aicf.passes.support.interface import functions
from aicf.passes.support.policy import PRECISION_ATTR, precision_of
from aicf.policies.precision_policy import PrecisionPolicy

MISSING = "missing"


@dataclass(frozen=True)
class ObserveRoundingPass(ModulePass):
    """Adds a result for each product that the policy of the module makes one of 8 bits: for each output channel, the
    mean over all others of the product less that of rounded factors, f32.

    What reads a product goes on to read the one of f32, so each mean is of the rounding of one op. The program itself
    stays f32: the section `precision` of its policy is taken out.
    """

    name = "observe-rounding"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        policy = replace(precision_of(op), corrections={})
        op.attributes.pop(PRECISION_ATTR, None)
        ids = IdTable(op)
        for function in functions(op):
            add_results(function, dict(_observed(function, policy, ids)))


def _observed(function: FuncOp, policy: PrecisionPolicy, ids: IdTable) -> Iterator[tuple[Observed, SSAValue]]:
    products = EightBitProducts(policy, ids)
    for product in products_of(function):
        if rounds(policy, product) and count_of(product, "corrections") is not None:
            yield Observed(MISSING, 0, 0, 0, product.name), _missing(product, products, ids)


def _missing(product: Product, products: EightBitProducts, ids: IdTable) -> SSAValue:
    """The vector of means. The op itself is rounded, and a copy in f32 takes its place in the program."""
    op, block = product.op, product.op.parent_block()
    assert block is not None
    exact = op.clone()
    assert isinstance(exact, logical.LogicalOp)
    name_after(exact, op, "exact", ids)
    block.insert_op_before(exact, op)
    for use in list(op.result.uses):
        use.operation.operands[use.index] = exact.results[0]
    products.round_factors(product)
    difference = logical.SubOp(exact.results[0], op.result)
    name_after(difference, op, "difference", ids)
    block.insert_op_after(difference, op)
    axes = [axis for axis in range(tensor_info(op.result.type).rank) if axis != product.channels_of_weight]
    if not axes:
        return difference.result
    mean = logical.ReduceMeanOp(difference.result, axes)
    name_after(mean, op, "missing", ids)
    block.insert_op_after(mean, difference)
    return mean.result
