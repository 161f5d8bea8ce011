"""`lower-precision`: computes in f16, bf16 or 8 bits what the policy wants, by casts and scales in the model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, ModuleOp, f64
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from aicf.dialects.logical import LogicalOp
from aicf.dialects.traits import TrainingOnly
from aicf.dialects.types import element_named
from aicf.errors import PolicyError
from aicf.passes.bodies.outlining import id_of
from aicf.passes.logical.precision.eight_bits import EightBitProducts, rounds
from aicf.passes.logical.precision.narrow_floats import NarrowFloats
from aicf.passes.logical.precision.products import Product, products_of
from aicf.passes.logical.precision.quantization import Grid
from aicf.passes.support.identity import IdTable
from aicf.passes.support.interface import functions
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import (
    LOWERED_PRECISION_ATTR,
    PRECISION_ATTR,
    asks_for_precision,
    precision_of,
    without_bucket,
)
from aicf.passes.support.works_on import FUNCTIONS
from aicf.policies.precision_policy import EIGHT_BITS, F32, FLOATS, FP8, INT8, PrecisionPolicy

STORED_WEIGHTS = {INT8: "i8", FP8: "f8E4M3FN"}
"""Element types of weights of 8 bits."""
NOT_CONVOLVED = "no kernel convolves floats of 8 bits"
STAYS = "stays f32"
"""What the ledger says of an op that the policy leaves as it is."""
RELATIVE_ERROR = "relative_error"
"""The figure of an op in the ledger: of the outputs, if it alone is rounded."""


@dataclass(frozen=True)
class LowerPrecisionPass(ModulePass):
    """Writes casts and scales into a model, as the section `precision` of the policy says; all else of it stays.

    To `f16` and `bf16`: the operands of an op are cast, and its results are cast back for readers that stay f32. To
    `int8` and `fp8`: the factors of a product are rounded to the multiples of a scale by integers, or floats of 8 bits;
    that is a product of dequantised tensors, and `narrow-products` makes one of what is stored of it where that is
    faster. Scales of weights are computed from the weights, those of other operands from the ranges in the policy. All
    other ops are cast as `rest` says. The ledger has what each op became, and why. What `packed_activations` says is
    left to `read-packed-weights`, which writes the products that it is about.
    """

    name = "lower-precision"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        policy = precision_of(op)
        if not asks_for_precision(op, policy):
            op.attributes.pop(PRECISION_ATTR, None)
            return
        _check(op, policy)
        ids = IdTable(op)
        for function in functions(op):
            lowering = _Lowering(op, policy, ids)
            model = [each for each in function.body.block.ops if isinstance(each, LogicalOp)]
            rounded = lowering.to_eight_bits(function)
            lowering.to_narrow_floats(model, rounded, NarrowFloats(function, ids))
            lowering.record()
        _record_accuracy(op, policy)
        op.attributes[LOWERED_PRECISION_ATTR] = op.attributes.pop(PRECISION_ATTR)


def _check(module: ModuleOp, policy: PrecisionPolicy) -> None:
    """Raises PolicyError for what is no model to be lowered, and for what the policy says of no op of it."""
    if any(op.has_trait(TrainingOnly) for op in module.walk()):
        raise PolicyError(
            "precision: a training step computes as it is written; leave the section out, and lower the trained model "
            "when it is compiled to be run"
        )
    if policy.request is not None:
        raise PolicyError(
            f"{policy.request}: a request to calibration, which needs sample inputs; run aicf calibrate MODEL SAMPLES "
            "with this policy, or give aicf.compile calibration=samples"
        )
    every = {
        without_bucket(id_of(op))
        for function in functions(module)
        for op in function.body.block.ops
        if isinstance(op, LogicalOp)
    }
    products = [product for function in functions(module) for product in products_of(function)]
    names = {each.name for each in products}
    policy.check_ids(every, {INT8: names, FP8: {each.name for each in products if each.takes_float8}})


@dataclass
class _Lowering:
    """What the ledger says of one function.

    Args:
        module: That has the ledger.
        policy: What is wanted.
        ids: In use.
    """

    module: ModuleOp
    policy: PrecisionPolicy
    ids: IdTable
    decisions: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])

    def to_eight_bits(self, function: FuncOp) -> set[LogicalOp]:
        """Rounds the factors of the products that the policy wants in 8 bits; gives those products."""
        products, rounded = EightBitProducts(self.policy, self.ids), set[LogicalOp]()
        for product in products_of(function):
            wanted = self.policy.precision_of(product.name)
            if rounds(self.policy, product):
                self._record_stored(product, wanted, products.round_factors(product))
                rounded.add(product.op)
            elif wanted == FP8 and self.policy.rest == F32:
                self._note(product.op, STAYS, NOT_CONVOLVED)
        return rounded

    def _record_stored(self, product: Product, precision: str, grids: Sequence[Grid]) -> None:
        """Notes that a product is one of 8 bits."""
        error = _measured(self.policy, "ops", product.name)
        wanted, weight = self.policy.ops.get(product.name), STORED_WEIGHTS[precision]
        remaining = iter(grids)
        names = [
            weight if each in product.weights else next(remaining).element.name for each in product.factors
        ]
        record_decision(
            self.module,
            LowerPrecisionPass.name,
            [id_of(product.op)],
            f"{precision}: {' by '.join(names)}",
            "the policy lists it so" if wanted else f"the policy lowers products to {precision}",
            cost={RELATIVE_ERROR: FloatAttr(error, f64)} if isinstance(error, float) else {},
        )

    def to_narrow_floats(
        self, model: Sequence[LogicalOp], rounded: Collection[LogicalOp], floats: NarrowFloats
    ) -> None:
        """Casts around those ops of the model that the policy wants in f16 or bf16, and behind those that are rounded
        to 8 bits, if the rest is.

        What rounds to 8 bits is no part of the model: it needs the digits of f32.
        """
        for op in model:
            name = without_bucket(id_of(op))
            wanted = self.policy.precision_of(name)
            if wanted in EIGHT_BITS:
                wanted = self.policy.rest
            if op in rounded:
                if wanted in FLOATS:
                    floats.round_result(op, element_named(wanted))
                continue
            if wanted == F32 and name in self.policy.ops:
                because = _measured(self.policy, "kept", name)
                self._note(op, STAYS, because if isinstance(because, str) else "the policy lists it so")
            elif wanted in FLOATS:
                reason = floats.against(op)
                if reason is None:
                    reason = floats.rewrite(op, element_named(wanted))
                if reason is None:
                    self._note(op, wanted, f"the policy lowers the model to {wanted}")
                elif reason:
                    self._note(op, STAYS, reason)

    def _note(self, op: LogicalOp, choice: str, because: str) -> None:
        self.decisions.setdefault((choice, because), []).append(id_of(op))

    def record(self) -> None:
        """Writes what became of ops for which one reason holds, as one decision."""
        for (choice, because), subjects in self.decisions.items():
            record_decision(self.module, LowerPrecisionPass.name, subjects, choice, because)


def _measured(policy: PrecisionPolicy, what: str, name: str) -> object:
    """What calibration measured or says of one op; None if it does not."""
    return _entries(policy, what).get(name)


def _entries(policy: PrecisionPolicy, what: str) -> Mapping[str, object]:
    found = policy.accuracy.get(what)
    return cast("Mapping[str, object]", found) if isinstance(found, Mapping) else {}


def _record_accuracy(module: ModuleOp, policy: PrecisionPolicy) -> None:
    """Repeats what calibration measured of the whole model."""
    figures = {
        name: FloatAttr(error, f64)
        for name, error in _entries(policy, "errors").items()
        if isinstance(error, float)
    }
    if figures:
        because = f"calibration compared it with f32 on {policy.accuracy.get('samples')} samples"
        record_decision(
            module, LowerPrecisionPass.name, ["module"], f"model in {policy.to}", because, cost=figures
        )
