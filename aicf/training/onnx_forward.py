"""An ONNX model as the forward part of a training step: its sizes become numbers, and its weights are told apart.

Trained are its float initializers of rank 1 or more. Those that nothing passes a derivative back to are fixed, and so
are the means and variances of a batch norm; scalars, integers and what Constant nodes hold are constants.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence

from xdsl.context import Context
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue

from aicf.compiler import read_decisions
from aicf.dialects.logical import NAME_ATTR
from aicf.dialects.onnx import ConstantOp, GraphOp, NodeOp
from aicf.explain import warning_of, wrong_declarations
from aicf.passes.differentiate import passes_to
from aicf.passes.lower_onnx import LowerOnnxPass
from aicf.passes.specialize_shapes import SpecializeShapesPass
from aicf.passes.support.onnx_names import node_name
from aicf.passes.support.work import argument_attrs
from aicf.sources import Source

_LOGGER = logging.getLogger("aicf.training")
_STATISTICS = range(3, 5)
"""Operands of BatchNormalization: mean and variance."""


def lower_forward(source: Source, dims: str, context: Context) -> frozenset[str]:
    """Makes a function of the graph of a model that was read for training.

    Args:
        dims: A size for each of its symbolic dimensions.

    Returns:
        Names of its weights that are fixed.

    Raises:
        PolicyError: sizes are missing, or do not fit.
        InvalidIR, UnsupportedOp: as `lower-onnx`.
    """
    statistics = _statistics(source)
    SpecializeShapesPass(dims).apply(context, source.module)
    LowerOnnxPass().apply(context, source.module)
    _warn_of_declarations(source)
    reached = {name for op in source.module.body.block.ops if isinstance(op, FuncOp) for name in _reached(op)}
    return frozenset(source.weights) - ((source.trainable & reached) - statistics)


def _warn_of_declarations(source: Source) -> None:
    if wrong := wrong_declarations(read_decisions(source.module)):
        _LOGGER.warning("%s: %s", source.name, warning_of(wrong))


def _statistics(source: Source) -> set[str]:
    """Weights that are means and variances of batch norms. They are said, for training elsewhere may update them."""
    found: dict[str, list[str]] = {}
    for graph in source.module.body.block.ops:
        if isinstance(graph, GraphOp):
            for node in _batch_norms(graph):
                names = _names_of(node.ins[_STATISTICS.start : _STATISTICS.stop], graph)
                if names:
                    found[node_name(node)] = names
    if found:
        _LOGGER.warning(
            "%s: the statistics of %s are fixed: its batch norm is trained in its inference form, by scale and shift",
            source.name,
            ", ".join(map(repr, found)),
        )
    return {name for names in found.values() for name in names}


def _batch_norms(graph: GraphOp) -> Iterator[NodeOp]:
    return (
        op
        for op in graph.walk()
        if isinstance(op, NodeOp) and op.op_type.data == "BatchNormalization" and not op.domain_name
    )


def _names_of(values: Sequence[SSAValue], graph: GraphOp) -> list[str]:
    names: list[str] = []
    for value in values:
        if isinstance(value, BlockArgument):
            names.append(graph.argument_name(value.index))
        elif isinstance(value.owner, ConstantOp) and value.owner.weight is not None:
            names.append(value.owner.weight.data)
    return names


def _reached(function: FuncOp) -> Collection[str]:
    """The arguments that the results pass something back to."""
    block = function.body.block
    assert block.last_op is not None
    reached = set(block.last_op.operands)
    for op in reversed(list(block.ops)[:-1]):
        if any(result in reached for result in op.results):
            reached.update(operand for place, operand in enumerate(op.operands) if passes_to(op, place))
    return {
        argument_attrs(function, argument.index)[NAME_ATTR].data
        for argument in block.args
        if argument in reached
    }
