"""`merge-products`: products of one operand become one: with weights of unequal widths, or packed (q, k and v)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import BlockArgument, SSAValue
from xdsl.passes import ModulePass

from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.dialects.emit import PREPARE, symbols
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.kinds import PACKED_PRODUCTS
from aicf.dialects.types import byte_count, element_of
from aicf.passes.bodies.dependents import Dependents
from aicf.passes.bodies.matching import without_casts
from aicf.passes.bodies.outlining import id_of
from aicf.passes.bodies.workload import TARGET_ATTR, updated_names
from aicf.passes.logical.weighted_products import (
    WeightedProduct,
    gated,
    merge_side_by_side,
    pointwise_reader,
    product_of,
)
from aicf.passes.support.identity import IdTable, sources
from aicf.passes.support.interface import argument_entry, arguments_of, functions
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import execution_of, policy_of, with_stems
from aicf.passes.support.works_on import FUNCTIONS

ROW_BYTES = 16
"""Kernels read rows in pieces that begin at multiples of it, so the slices of a result do."""


@dataclass(frozen=True)
class MergeProductsPass(ModulePass):
    """Puts the weights of products that read one operand side by side, and gives each reader its slice of the result.

    `@prepare` copies the weights once, so every kernel of products runs them, and consumers read the slices through
    strides. Weights are parameters that no program updates, or casts of such, or packed in blocks of one scheme; biases
    are put side by side as well. Some products stay as they are for kernels that are better for them; packed ones only
    where the target has kernels that fuse such products:

    - all that read an operand, where none is packed and the weights have one shape: the kernels that `fuse-gated` and
      `fuse-horizontal` choose read the weights where they lie;
    - a product whose result a pointwise op reads alone, element by element: that becomes its epilogue;
    - a gate and what it gates, with packed weights of one shape.
    """

    name = "merge-products"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if PREPARE in symbols(op):
            return
        every = functions(op)
        updated = frozenset[str]().union(*map(updated_names, every))
        for function in every:
            _Function(op, function, updated).merge()


@dataclass
class _Set:
    """Products that may be one, in text order, and what depends on the first of them."""

    products: list[WeightedProduct]
    follows: Dependents

    @property
    def first(self) -> WeightedProduct:
        return self.products[0]

    def obstacle(self, product: WeightedProduct, pinned: Collection[str]) -> str | None:
        """Why a product stays apart from them; None if it need not.

        Args:
            pinned: Names to which the policy gives kernels. The merged product has that of the first.
        """
        if not self.first.is_like(product):
            return "they read one operand, but their weights differ in type, transposition or scheme"
        if (self.first.bias is None) != (product.bias is None):
            return "one has a bias and the other has none; give both one to merge them"
        named = {name for op in product.ops for name in (id_of(op), *sources(op))}
        if not set(pinned).isdisjoint(with_stems(named)):
            return "the policy gives the second one a kernel of its own"
        between = self.follows.contraction_before(product.op)
        if between is not None:
            return (
                f"'{id_of(between)}', a product between them, follows from the first: the second one's result would be "
                f"kept in memory while it runs; compute '{id_of(product.op)}' before '{id_of(between)}' to merge them"
            )
        return None


@dataclass
class _Function:
    """The products of one function.

    Args:
        updated: Parameters that any program updates.
    """

    module: ModuleOp
    function: func.FuncOp
    updated: Collection[str]
    listed: Collection[str] = field(init=False)
    """Ids that the policy lists in its groups."""
    pinned: Collection[str] = field(init=False)
    """Names to which it gives kernels."""
    has_packed_kernels: bool = field(init=False)
    """Whether the target has kernels that fuse products of packed weights with others, and with pointwise ops."""

    def __post_init__(self) -> None:
        policy = policy_of(self.module)
        self.listed = {id_ for ids in policy.groups for id_ in ids}
        self.pinned = {*policy.kernels, *policy.records}
        target = self.module.attributes.get(TARGET_ATTR)
        kernels = get_kernels(target.backend.data).values() if isinstance(target, TargetAttr) else ()
        self.has_packed_kernels = any(PACKED_PRODUCTS in kernel.kinds for kernel in kernels)

    def merge(self) -> None:
        """Merges what may be merged; the ledger has each decision."""
        every = [found for found in self._of_one_operand() if len(found) > 1 and not _are_for_kernels(found)]
        if not every:
            return
        ids, off = IdTable(self.module), self._why_off()
        for products in every:
            if off is not None:
                self._keep(products, off)
                continue
            for found in self._sets(products):
                if len(found) > 1 and not _are_for_kernels(found):
                    self._merge(found, ids)

    def _why_off(self) -> str | None:
        if (setting := policy_of(self.module).forbids_fusion("horizontal")) is not None:
            return f"products side by side are off by policy ({setting})"
        if not execution_of(self.module).prepared_weights:
            return (
                "prepared weights are off by policy, and weights side by side would be copied at every call"
            )
        return None

    def _of_one_operand(self) -> Iterator[Sequence[WeightedProduct]]:
        """The products that read an operand, operand by operand, without packed ones that are fused as gates."""
        by_operand: dict[SSAValue, list[WeightedProduct]] = {}
        fixed = {value for name, value in arguments_of(self.function).items() if self._is_fixed(name, value)}
        for op in self.function.body.block.ops:
            product = product_of(op)
            if product is not None and all(without_casts(value) in fixed for value in product.values):
                by_operand.setdefault(product.operand, []).append(product)
        for products in by_operand.values():
            gates = gated(product for product in products if self._fuses(product))
            yield [product for product in products if product.op not in gates]

    def _fuses(self, product: WeightedProduct) -> bool:
        """Whether the product has a packed weight, and the target kernels that fuse such products."""
        return self.has_packed_kernels and isinstance(product.op, logical.MatmulBlocksOp)

    def _is_fixed(self, name: str, value: BlockArgument) -> bool:
        role = argument_entry(self.function, value.index).get(logical.ROLE_ATTR)
        return name not in self.updated and role == StringAttr("param")

    def _sets(self, products: Sequence[WeightedProduct]) -> list[list[WeightedProduct]]:
        """Those that may be one; each that stays apart is recorded."""
        sets: list[_Set] = []
        for product in products:
            if (reason := self._own_reason(product)) is not None:
                self._keep([product], reason)
                continue
            obstacles = [each.obstacle(product, self.pinned) for each in sets]
            if None in obstacles:
                sets[obstacles.index(None)].products.append(product)
                continue
            if obstacles:
                self._keep([sets[0].first, product], obstacles[0] or "")
            sets.append(_Set([product], Dependents(product.op)))
        return [each.products for each in sets]

    def _own_reason(self, product: WeightedProduct) -> str | None:
        """Why a product stays apart from whatever else reads its operand; None if it need not."""
        checks: Sequence[Callable[[WeightedProduct], str | None]] = (
            self._why_listed,
            _why_returned,
            _why_unaligned,
            self._why_fused_alone,
        )
        return next((reason for check in checks if (reason := check(product)) is not None), None)

    def _why_listed(self, product: WeightedProduct) -> str | None:
        if not set(self.listed).isdisjoint(with_stems(map(id_of, product.ops))):
            return "the policy lists it in its groups"
        return None

    def _why_fused_alone(self, product: WeightedProduct) -> str | None:
        fuses = isinstance(product.op, logical.MatmulOp) or self._fuses(product)
        if not fuses or (reader := pointwise_reader(product)) is None:
            return None
        return f"'{id_of(reader)}' reads it alone, and is fused with the product alone"

    def _keep(self, products: Sequence[WeightedProduct], because: str) -> None:
        subjects = [id_of(product.op) for product in products]
        record_decision(self.module, MergeProductsPass.name, subjects, "not merged", because)

    def _merge(self, products: Sequence[WeightedProduct], ids: IdTable) -> None:
        subjects = [id_of(product.op) for product in products]
        nbytes = sum(byte_count(product.weight.type) for product in products)
        merged = merge_side_by_side(products, ids)
        record_decision(
            self.module,
            MergeProductsPass.name,
            [id_of(merged), *subjects],
            f"one product for {len(products)}",
            "weights side by side are one weight for every kernel, the operand is read once, and consumers read slices "
            "through strides",
            {"one kernel for weights where they lie": "it would need them all of one width"},
            {"copied_bytes": IntegerAttr(nbytes, i64)},
        )


def _are_for_kernels(products: Sequence[WeightedProduct]) -> bool:
    """Whether kernels of several products read the weights where they lie."""
    return all(
        isinstance(each.op, logical.MatmulOp) and each.weight.type == products[0].weight.type
        for each in products
    )


def _why_returned(product: WeightedProduct) -> str | None:
    if any(isinstance(use.operation, func.ReturnOp) for use in product.result.uses):
        return "the program returns its result, which has memory of its own"
    return None


def _why_unaligned(product: WeightedProduct) -> str | None:
    row = product.width * element_of(product.result.type).bytes
    if row % ROW_BYTES == 0:
        return None
    return (
        f"a row of its {product.width} outputs takes {row} bytes, and kernels read rows that begin at multiples of "
        f"{ROW_BYTES}"
    )
