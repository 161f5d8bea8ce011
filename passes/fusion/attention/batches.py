"""Batch dimensions of an attention that were joined from others, such as `[B * H, T, S]`, taken apart in its body.

Where a program joins batch and heads, or repeats heads of keys and values for groups of queries, no stride says where
the elements of the joined dimension lie. Attention has as many batch dimensions as are asked for: with one for each
part strides say it, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import Block, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.bodies import factored_views
from aicf.passes.bodies.factored_views import FactoredView
from aicf.passes.bodies.matching import only_reader
from aicf.passes.bodies.view_folding import yielded
from aicf.passes.bodies.views import is_rearrangement, is_view
from aicf.passes.fusion.attention.split_dims import DimSplitter, drop_unread, split_before_views


def split_batches(body: Block) -> None:
    """Splits each batch dimension of the products of a body so that strides express what they read and give."""
    products = [op for op in body.ops if isinstance(op, logical.MatmulOp)]
    if len(products) != 2 or len(yielded(body)) != 1:
        return
    split_before_views(body)
    rank = tensor_info(products[1].result.type).rank
    for dim in range(rank - 3, -1, -1):
        output = [op for op in body.ops if isinstance(op, logical.MatmulOp)][1].result
        size = tensor_info(output.type).shape[dim]
        views = [view for view in _views(body, output) if len(view) == rank]
        sizes = factored_views.common_factors((view[dim] for view in views), size)
        if sizes is not None and len(sizes) > 1:
            DimSplitter(body, sizes).join_after(output, dim)
            drop_unread(body)
            rank += len(sizes) - 1


def is_written_by_strides(chain: Sequence[Operation]) -> bool:
    """Whether strides express where the source of a chain of reshapes and transpositions lies, if the dimensions of the
    source may be split, and the chain's result is contiguous."""
    return not chain or _before(chain, tensor_info(chain[-1].results[0].type).shape) is not None


def chains_after(product: logical.MatmulOp) -> Iterator[list[Operation]]:
    """The reshapes and transposes after a product that strides of its result express, longest chain first."""
    chain: list[Operation] = []
    value = product.result
    while (reader := only_reader(value)) is not None and is_rearrangement(reader):
        chain.append(reader)
        value = reader.results[0]
    for length in range(len(chain), -1, -1):
        if is_written_by_strides(chain[:length]):
            yield chain[:length]


def _views(body: Block, output: SSAValue) -> Iterator[FactoredView]:
    """Of what arithmetic and products read of arguments, and of the output; what factors cannot say is left out."""
    known: dict[SSAValue, FactoredView] = {
        argument: factored_views.whole(tensor_info(argument.type).shape) for argument in body.args
    }
    for op in body.ops:
        if is_view(op):
            source = known.get(op.operands[0])
            if source is not None and (view := factored_views.view_through(op, source)) is not None:
                known[op.results[0]] = view
        else:
            yield from (known[operand] for operand in op.operands if operand in known)
    chain: list[Operation] = []
    value = yielded(body)[0]
    while value is not output and isinstance(value, OpResult) and is_view(value.op):
        chain.insert(0, value.op)
        value = value.op.operands[0]
    if chain and (view := _before(chain, tensor_info(chain[-1].results[0].type).shape)) is not None:
        yield view


def _before(chain: Sequence[Operation], shape: Sequence[int]) -> FactoredView | None:
    view: FactoredView | None = factored_views.whole(shape)
    for op in reversed(chain):
        if view is not None:
            view = factored_views.view_before(op, view)
    return view
