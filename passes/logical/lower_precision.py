"""`lower-precision`: computes in f16, bf16 or integers what the policy wants, by casts and scales in the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, ModuleOp, f64
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import element_named, tensor_info
from aicf.errors import PolicyError
from aicf.passes.bodies.outlining import id_of
from aicf.passes.logical.lowerings.base import Lowering
from aicf.passes.logical.precision.narrow_floats import NarrowFloats
from aicf.passes.logical.precision.products import Product, products_of
from aicf.passes.logical.precision.quantization import Grid, along, rounded_to, rounded_weight
from aicf.passes.support.identity import IdTable, name_after, position_of
from aicf.passes.support.interface import functions
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import precision_of, without_bucket
from aicf.passes.support.works_on import FUNCTIONS
from aicf.policies.precision_policy import F32, FLOATS, INT8, PrecisionPolicy


@dataclass(frozen=True)
class LowerPrecisionPass(ModulePass):
    """Writes casts and scales into a model, as the section `precision` of the policy says; all else of it stays.

    To `f16` and `bf16`: the operands of an op are cast, and its results are cast back for readers that stay f32. To
    `int8`: the factors of a product are rounded to the multiples of a scale; that is a product of dequantised tensors,
    and `narrow-products` makes one of integers of it where that is faster. Scales of weights are computed from the
    weights, those of other operands from the ranges in the policy. The ledger has what each op became, and why.
    """

    name = "lower-precision"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        policy = precision_of(op)
        if policy == PrecisionPolicy():
            return
        _check_names(op, policy)
        if not policy.changes:
            return
        ids = IdTable(op)
        for function in functions(op):
            lowering = _Lowering(op, policy, ids)
            for product in products_of(function):
                if policy.precision_of(product.name) == INT8:
                    lowering.to_integers(product)
            lowering.to_narrow_floats(NarrowFloats(function, ids))
            lowering.record()


def _check_names(module: ModuleOp, policy: PrecisionPolicy) -> None:
    """Raises PolicyError for an id that is none of the model, or of no product where it says something of one."""
    every = {
        without_bucket(id_of(op))
        for function in functions(module)
        for op in function.body.block.ops
        if isinstance(op, LogicalOp)
    }
    products = {product.name for function in functions(module) for product in products_of(function)}
    policy.check_ids(every, products)


@dataclass
class _Lowering:
    """What happens to one function.

    Args:
        module: For the ledger.
        policy: What is wanted.
        ids: In use.
    """

    module: ModuleOp
    policy: PrecisionPolicy
    ids: IdTable
    decisions: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])
    rounded: dict[tuple[SSAValue, Grid], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, Grid], SSAValue]
    )
    """Activations to what they are on a grid: products that read one share its integers."""

    def to_integers(self, product: Product) -> None:
        """Rounds the factors of a product to multiples of their scales."""
        writer = Lowering(PatternRewriter(product.op), product.op, self.ids)
        smoothing = self._numbers("smoothing", product)
        ranges = self._ranges(product)
        grids: list[Grid] = []
        for factor in product.factors:
            value, name = product.value(factor), ("lhs", "rhs")[factor.index]
            smooth = None if smoothing is None else (smoothing, factor.inputs)
            if factor in product.weights:
                new = rounded_weight(writer, value, factor.outputs, name, smooth)
            else:
                grid = Grid.of(*ranges[len(grids)], self.policy.activations)
                grids.append(grid)
                new = self._rounded(writer, value, grid, name, smooth)
            product.op.operands[factor.index] = new
        self._correct(writer, product)
        self._record_integers(product, grids)

    def _rounded(
        self,
        writer: Lowering,
        value: SSAValue,
        grid: Grid,
        name: str,
        smooth: tuple[NDArray[Any], int] | None,
    ) -> SSAValue:
        if smooth is not None:
            return rounded_to(writer, value, grid, name, smooth)
        if (value, grid) not in self.rounded:
            self.rounded[value, grid] = rounded_to(writer, value, grid, name)
        return self.rounded[value, grid]

    def _ranges(self, product: Product) -> Sequence[tuple[float, float]]:
        """Of its activations. Raises PolicyError if the policy has not that many."""
        ranges, needed = self.policy.ranges.get(product.name, ()), len(product.activations)
        if len(ranges) == needed:
            return ranges
        path = f"ranges.{product.name}"
        if not ranges:
            problem = "an integer product needs the range of its operand"
            way_out = "run aicf calibrate with sample inputs"
        else:
            problem = f"{len(ranges)} ranges for {needed} operands that depend on inputs"
            way_out = "give one for each"
        raise PolicyError(
            f"{path}: {problem}; {way_out}, or leave the op f32 (ops: {{{product.name}: f32}})",
            location=position_of(product.op),
        )

    def _numbers(self, name: str, product: Product) -> NDArray[Any] | None:
        """Smoothing factors or corrections of a product, if the policy has some."""
        entries: Mapping[str, Sequence[float]] = getattr(self.policy, name)
        if product.name not in entries:
            return None
        numbers = np.asarray(entries[product.name], np.float64)
        wanted = _count(product, name)
        if wanted is None:
            raise PolicyError(
                f"{name}.{product.name}: the op is no product of a weight and one operand; leave it out",
                location=position_of(product.op),
            )
        if numbers.size != wanted:
            raise PolicyError(
                f"{name}.{product.name}: {numbers.size} numbers for {wanted} channels; calibrate this model again",
                location=position_of(product.op),
            )
        return numbers

    def _correct(self, writer: Lowering, product: Product) -> None:
        """Adds the corrections to the result, before all that reads it."""
        numbers = self._numbers("corrections", product)
        if numbers is None:
            return
        op, block = product.op, product.op.parent_block()
        assert block is not None
        uses = list(op.result.uses)
        vector = along(writer, numbers, op.result, product.channels, "correction")
        added = logical.AddOp(op.result, vector)
        name_after(added, op, "corrected", self.ids)
        block.insert_op_after(added, op)
        for use in uses:
            use.operation.operands[use.index] = added.result

    def _record_integers(self, product: Product, grids: Sequence[Grid]) -> None:
        error = _measured(self.policy, product.name)
        wanted = self.policy.ops.get(product.name)
        names = [grid.element.name for grid in grids] + ["i8"] * len(product.weights)
        record_decision(
            self.module,
            LowerPrecisionPass.name,
            [id_of(product.op)],
            f"integers: {' by '.join(names)}",
            "the policy lists it so" if wanted else f"the policy lowers products to {INT8}",
            cost={} if error is None else {"relative_error": FloatAttr(error, f64)},
        )

    def to_narrow_floats(self, floats: NarrowFloats) -> None:
        """Casts around the ops that the policy wants in f16 or bf16."""
        for op in list(floats.function.body.block.ops):
            if not isinstance(op, LogicalOp):
                continue
            wanted = self.policy.precision_of(without_bucket(id_of(op)))
            if wanted == F32 and without_bucket(id_of(op)) in self.policy.ops:
                self._note(op, "stays f32", "the policy lists it so")
            elif wanted in FLOATS:
                reason = floats.against(op)
                if reason is None:
                    reason = floats.rewrite(op, element_named(wanted))
                if reason is None:
                    self._note(op, wanted, f"the policy lowers the model to {wanted}")
                elif reason:
                    self._note(op, "stays f32", reason)

    def _note(self, op: LogicalOp, choice: str, because: str) -> None:
        self.decisions.setdefault((choice, because), []).append(id_of(op))

    def record(self) -> None:
        """Writes what became of ops for which one reason holds, as one decision."""
        for (choice, because), subjects in self.decisions.items():
            record_decision(self.module, LowerPrecisionPass.name, subjects, choice, because)


def _count(product: Product, name: str) -> int | None:
    """How many numbers smoothing or corrections of a product are; None if it takes none."""
    if len(product.weights) != 1:
        return None
    if name == "corrections":
        return tensor_info(product.op.result.type).shape[product.channels]
    (activation,) = product.activations
    sizes = tensor_info(product.value(activation).type).shape
    weight = tensor_info(product.value(product.weights[0]).type).shape
    inputs = sizes[activation.inputs]
    return inputs if weight[product.weights[0].inputs] == inputs else None


def _measured(policy: PrecisionPolicy, name: str) -> float | None:
    """The error that rounding this op alone made, as calibration measured it."""
    ops = policy.accuracy.get("ops")
    error = ops.get(name) if isinstance(ops, dict) else None  # pyright: ignore
    return float(error) if isinstance(error, int | float) else None  # pyright: ignore
