"""Rounding the factors of products to integers or floats of 8 bits with a scale, as the policy says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.errors import PolicyError
from aicf.passes.logical.lowerings.base import Lowering
from aicf.passes.logical.precision.products import Product
from aicf.passes.logical.precision.quantization import F8, I8, Grid, along, rounded_to, rounded_weight
from aicf.passes.support.identity import IdTable, name_after, position_of
from aicf.passes.support.writing import Writer
from aicf.policies.precision_policy import FP8, INT8, PrecisionPolicy

Choose: TypeAlias = Callable[[Writer, SSAValue, SSAValue, str], SSAValue]
"""What an op reads in place of a value, from a writer, the value, the rounded one and the name of the operand."""

OPERANDS = ("lhs", "rhs")
"""Names of the factors of a product."""

_Key: TypeAlias = tuple[SSAValue, Grid, bytes]
"""A value, its grid, and the numbers that it is divided by before."""


def always_rounded(writer: Writer, value: SSAValue, rounded: SSAValue, name: str) -> SSAValue:
    """The rounded value, whatever it was."""
    return rounded


@dataclass
class EightBitProducts:
    """Rounds factors of the products of one function.

    Args:
        policy: Ranges, smoothing and corrections.
        ids: In use in the module.
        rounded: Activations to what they are on a grid: products that read one share what is stored.
    """

    policy: PrecisionPolicy
    ids: IdTable
    rounded: dict[_Key, SSAValue] = field(default_factory=dict[_Key, SSAValue])

    def round_factors(self, product: Product, choose: Choose = always_rounded) -> tuple[Grid, ...]:
        """Rounds the factors of a product to multiples of their scales, and corrects its result.

        Returns:
            The grids of the factors that depend on inputs.

        Raises:
            PolicyError: the policy has not what the product needs, or something for another product.
        """
        writer = Lowering(PatternRewriter(product.op), product.op, self.ids)
        smoothing, ranges = self._numbers("smoothing", product), self._ranges(product)
        is_float = self.policy.precision_of(product.name) == FP8
        grids = [
            Grid.of_float8(*each) if is_float else Grid.of(*each, self.policy.activations) for each in ranges
        ]
        remaining = iter(grids)
        for factor in product.factors:
            value, name = product.value(factor), OPERANDS[factor.index]
            smooth = None if smoothing is None else (smoothing, factor.inputs)
            if factor in product.weights:
                new = rounded_weight(writer, value, factor.outputs, name, smooth, F8 if is_float else I8)
            else:
                new = self._rounded(writer, value, next(remaining), name, smooth)
            product.op.operands[factor.index] = choose(writer, value, new, name)
        self._correct(writer, product, choose)
        return tuple(grids)

    def _rounded(
        self,
        writer: Writer,
        value: SSAValue,
        grid: Grid,
        name: str,
        smooth: tuple[NDArray[Any], int] | None,
    ) -> SSAValue:
        key = value, grid, b"" if smooth is None else smooth[0].tobytes()
        if key not in self.rounded:
            self.rounded[key] = rounded_to(writer, value, grid, name, smooth)
        return self.rounded[key]

    def _ranges(self, product: Product) -> Sequence[tuple[float, float]]:
        ranges, needed = self.policy.ranges.get(product.name, ()), len(product.activations)
        if len(ranges) == needed:
            return ranges
        path = f"ranges.{product.name}"
        if not ranges:
            problem = "a product of 8 bits needs the range of its operand"
            way_out = "run aicf calibrate with sample inputs (in Python, calibration= of aicf.compile)"
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
        wanted = count_of(product, name)
        if wanted is None:
            raise PolicyError(
                f"{name}.{product.name}: the op is no product of a weight and one operand whose channels it all adds "
                "up; leave it out",
                location=position_of(product.op),
            )
        if numbers.size != wanted:
            raise PolicyError(
                f"{name}.{product.name}: {numbers.size} numbers for {wanted} channels; calibrate this model again",
                location=position_of(product.op),
            )
        return numbers

    def _correct(self, writer: Lowering, product: Product, choose: Choose) -> None:
        """Adds the corrections to the result, before all that reads it."""
        numbers = self._numbers("corrections", product)
        if numbers is None:
            return
        op, block = product.op, product.op.parent_block()
        assert block is not None
        uses = list(op.result.uses)
        vector = along(writer, numbers, op.result, product.channels_of_weight, "correction")
        nothing = writer.splat(0.0, op.result, "uncorrected") if choose is not always_rounded else vector
        added = logical.AddOp(op.result, choose(writer, nothing, vector, "correction"))
        name_after(added, op, "corrected", self.ids)
        block.insert_op_after(added, op)
        for use in uses:
            use.operation.operands[use.index] = added.result


def rounds(policy: PrecisionPolicy, product: Product) -> bool:
    """Whether a policy makes a product one of 8 bits."""
    wanted = policy.precision_of(product.name)
    return wanted == INT8 or (wanted == FP8 and product.takes_float8)


def count_of(product: Product, name: str) -> int | None:
    """How many numbers `smoothing` or `corrections` of a product are; None if it takes none."""
    if len(product.weights) != 1:
        return None
    if name == "corrections":
        return tensor_info(product.op.result.type).shape[product.channels_of_weight]
    (activation,), (weight,) = product.activations, product.weights
    inputs = tensor_info(product.value(activation).type).shape[activation.inputs]
    return inputs if tensor_info(product.value(weight).type).shape[weight.inputs] == inputs else None
