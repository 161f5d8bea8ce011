"""Why ops that a fusing pass would join are no instruction of the kinds it forms: the op that is in the way, by its id,
and what to change. For the ledger alone; no decision follows from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from xdsl.ir import Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.traits import StridedView
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.outlining import Outline, id_of
from aicf.passes.bodies.products import Product, are_alike
from aicf.passes.bodies.views import View, is_view


def why_no_kind(plan: Outline, kinds: Collection[str]) -> str:
    """The first thing in the way that a fused kernel has no code for; at least between which ops it is."""
    wanted = " or ".join(kinds)
    found = next((why for check in _CHECKS if (why := check(plan)) is not None), None)
    if found is not None:
        return f"{found} ({wanted} has no code for it)"
    first, last = plan.members[0], plan.members[-1]
    return f"what is computed from {named(first)} to {named(last)} has not the form of {wanted}"


def named(op: Operation) -> str:
    """An op by its id and what it does."""
    return f"'{id_of(op)}' ({op.name.removeprefix('logical.')})"


def _foreign(plan: Outline) -> str | None:
    """An op that is neither arithmetic, nor a reduction, a product, a view or a constant."""
    known = (logical.MatmulOp, logical.MatmulBlocksOp, logical.ConstantOp, logical.WriteRowOp)
    traits = (logical.Elementwise, logical.Reduction, StridedView)
    for op in plan.members:
        if not isinstance(op, known) and not any(op.has_trait(trait) for trait in traits):
            return f"{named(op)} is neither arithmetic on elements nor a reduction of rows: move it before or after"
    return None


def _view_between(plan: Outline) -> str | None:
    """A view of what one member gives and another one computes with."""
    inside = set(plan.members)
    for op in plan.members:
        if not is_view(op) or isinstance(op, logical.BroadcastOp):
            continue
        readers = {use.operation for use in op.results[0].uses} & inside
        computing = [reader for reader in readers if not is_view(reader)]
        if op.operands[0].owner in inside and computing:
            return f"{named(op)} rearranges what {named(computing[0])} reads: move it before or after both"
    return None


def _reduction_of_columns(plan: Outline) -> str | None:
    """A reduction over another dimension than the last."""
    for op in plan.members:
        if isinstance(op, logical.ReduceOp):
            rank = tensor_info(op.operand.type).rank
            if tuple(op.axes.get_values()) != (rank - 1,):
                return f"{named(op)} reduces not just the last dimension: transpose first, or keep it apart"
    return None


def _unlike_products(plan: Outline) -> str | None:
    """Products side by side that differ, or whose epilogues do."""
    products = [op for op in plan.members if isinstance(op, Product)]
    if len(products) < 2 or any(product.rhs.owner in plan.members for product in products[1:]):
        return None
    if _is_chain(products):
        return None
    for other in products[1:]:
        if not are_alike(products[0], other):
            return (
                f"{named(products[0])} and {named(other)} differ in their left operand, a shape, a type or a "
                "transposition: give them one form"
            )
    tails = [list(_after(product.result, plan.members)) for product in products]
    for own, theirs in ((tails[0], tail) for tail in tails[1:]):
        for one, two in zip(own, theirs, strict=False):
            if one is not two and (one.name, one.properties) != (two.name, two.properties):
                return f"{named(one)} and {named(two)} differ: products side by side have the same ops after them"
        if len(own) != len(theirs):
            longer = max(own, theirs, key=len)
            extra = longer[min(len(own), len(theirs))]
            return f"{named(extra)} is after one of the products alone: all have the same ops after them"
    return None


def _is_chain(products: Sequence[Product]) -> bool:
    """Whether a product is computed from another one."""
    seen: set[SSAValue] = set()
    stack: list[SSAValue] = [operand for product in products for operand in product.operands]
    results = {product.result for product in products}
    while stack:
        value = stack.pop()
        if value in results:
            return True
        if value not in seen and isinstance(value, OpResult) and len(seen) < 64:
            seen.add(value)
            stack.extend(value.op.operands)
    return False


def _after(value: SSAValue, members: Collection[Operation]) -> Iterator[Operation]:
    """The members that compute with a value, one after the other, constants and broadcasts left out."""
    while True:
        readers = [use.operation for use in value.uses if use.operation in members]
        if len(readers) != 1:
            return
        yield readers[0]
        value = readers[0].results[0]


def _inexpressible_view(plan: Outline) -> str | None:
    """A view that feeds a member, or that is the last one, and that strides cannot express."""
    for op in plan.members:
        if isinstance(op, logical.MatmulOp | logical.AddOp | logical.MulOp):
            for operand in op.operands:
                if (view := first_inexpressible(operand)) is not None:
                    return (
                        f"{named(view)}, which {named(op)} reads, needs its elements in row-major order, and strides "
                        "cannot say where they lie: keep the dimensions apart that it joins"
                    )
    return None


def first_inexpressible(value: SSAValue) -> Operation | None:
    """The first op of the views between memory and a value that strides cannot express."""
    chain: list[Operation] = []
    while isinstance(value, OpResult) and is_view(value.op):
        chain.insert(0, value.op)
        value = value.op.operands[0]
    if not chain or not tensor_info(value.type).is_static:
        return None
    view: View | None = View.whole(tensor_info(value.type).shape)
    for op in chain:
        view = view.then(op)
        if view is None:
            return op
    return None


_CHECKS: tuple[Callable[[Outline], str | None], ...] = (
    _foreign,
    _view_between,
    _reduction_of_columns,
    _unlike_products,
    _inexpressible_view,
)
