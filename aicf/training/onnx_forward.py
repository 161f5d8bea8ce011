"""An ONNX model as the forward part of a training step: its sizes become numbers, and its weights are told apart.

Trained are its float initializers of rank 1 or more. Those that nothing passes a derivative back to are fixed, and so
are the means and variances of a batch norm; scalars, integers and what Constant nodes hold are constants. The means and
variances of a batch norm in training mode are states, which each step updates.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue
from xdsl.rewriter import Rewriter

from aicf.compilation.sources import Source
from aicf.compilation.stages import read_decisions
from aicf.dialects.logical import NAME_ATTR, ROLE_ATTR, UPDATES_ATTR
from aicf.dialects.onnx import ConstantOp, GraphOp, NodeOp, NoneOp, ValueType, YieldOp
from aicf.dialects.step_names import OWN
from aicf.errors import InvalidIR, UnsupportedOp
from aicf.inspection.explain import warning_of, wrong_declarations
from aicf.passes.bodies.workload import argument_attrs
from aicf.passes.logical.specialize_shapes import SpecializeShapesPass
from aicf.passes.onnx.lower_onnx import LowerOnnxPass
from aicf.passes.onnx.names import node_name
from aicf.passes.onnx.ops.attributes import Attributes
from aicf.passes.support.interface import (
    Result,
    arguments_of,
    functions,
    mark_argument,
    results_of,
    set_results,
)
from aicf.passes.training.differentiate import passes_to

_LOGGER = logging.getLogger("aicf.training")
_STATISTICS, _STATISTICS_OUT = range(3, 5), range(1, 3)
"""Operands of BatchNormalization: mean and variance; and its results: what they are after a step."""
_DROPOUT_MODE = 2
"""Operand of Dropout: whether it is in training mode."""
_DROPOUT_HAS_MODE, _NORM_HAS_MODE = 12, 14
"""The first opsets in which Dropout and BatchNormalization say so themselves."""
_UPDATE = f"{OWN}update."
"""Begins the names of results that are new running statistics."""


def lower_forward(source: Source, dims: str, context: Context, *, strict: bool = False) -> frozenset[str]:
    """Makes a function of the graph of a model that was read for training.

    Args:
        dims: A size for each of its symbolic dimensions.
        strict: Whether a wrong declaration is an error, of which the logger warns else.

    Returns:
        Names of its weights that are fixed.

    Raises:
        PolicyError: sizes are missing, or do not fit.
        InvalidIR, UnsupportedOp: as `lower-onnx`.
    """
    statistics = _statistics(source)
    _warn_of_dropouts(source)
    running = {name for graph in _graphs(source) for name in _keep_statistics(graph)}
    SpecializeShapesPass(dims).apply(context, source.module)
    LowerOnnxPass(strict, training=True).apply(context, source.module)
    _warn_of_declarations(source)
    for function in functions(source.module):
        _take_updates(function, running)
    reached = {name for op in source.module.body.block.ops if isinstance(op, FuncOp) for name in _reached(op)}
    return frozenset(source.weights) - ((source.trainable & reached) - statistics)


def _warn_of_declarations(source: Source) -> None:
    if wrong := wrong_declarations(read_decisions(source.module)):
        _LOGGER.warning("%s: %s", source.name, warning_of(wrong))


def _statistics(source: Source) -> set[str]:
    """Weights that are means and variances of batch norms. They are said, for training elsewhere may update them."""
    found: dict[str, list[str]] = {}
    for graph in _graphs(source):
        for node in _nodes(graph, "BatchNormalization"):
            names = _names_of(node.ins[_STATISTICS.start : _STATISTICS.stop], graph)
            if names and not _is_training(node, graph):
                found[node_name(node)] = names
    if found:
        _LOGGER.warning(
            "%s: the statistics of %s are fixed: its batch norm is trained in its inference form, by scale and shift",
            source.name,
            ", ".join(map(repr, found)),
        )
    return {name for names in found.values() for name in names}


def _warn_of_dropouts(source: Source) -> None:
    """Says which dropouts change nothing because the file has them in their inference form."""
    found = [
        node_name(node)
        for graph in _graphs(source)
        for node in _nodes(graph, "Dropout")
        if not _may_drop(node, graph)
    ]
    if found:
        _LOGGER.warning(
            "%s: %s drops nothing, for it is in its inference form; export the model in training mode to train with it",
            source.name,
            ", ".join(map(repr, found)),
        )


def _may_drop(node: NodeOp, graph: GraphOp) -> bool:
    """Whether a dropout is in training mode, or decides that at run time."""
    if _opset(node, graph) < _DROPOUT_HAS_MODE or len(node.ins) <= _DROPOUT_MODE:
        return False
    mode = node.ins[_DROPOUT_MODE].owner
    return not isinstance(mode, NoneOp) and (not isinstance(mode, ConstantOp) or bool(mode.array.all()))


# Batch norms in training mode


def _is_training(node: NodeOp, graph: GraphOp) -> bool:
    """Whether a batch norm takes the statistics of the batch."""
    if _opset(node, graph) < _NORM_HAS_MODE:
        return any(output.first_use is not None for output in node.outs[1:])
    return bool(Attributes(node.attrs.data).int("training_mode", 0))


def _keep_statistics(graph: GraphOp) -> list[str]:
    """Lets the graph give the running statistics of its batch norms in training mode, as results called `_UPDATE` and
    the name of the weight; gives these names.

    Raises:
        UnsupportedOp: a batch norm in a body cannot keep them.
        InvalidIR: two keep them in one weight.
    """
    kept: dict[str, SSAValue] = {}
    for node in list(_nodes(graph, "BatchNormalization")):
        if not _is_training(node, graph):
            continue
        wide = _with_outputs(node, _STATISTICS_OUT.stop)
        for operand, output in zip(_STATISTICS, _STATISTICS_OUT, strict=True):
            for name in _names_of([wide.ins[operand]], graph):
                what = f"BatchNormalization '{node_name(wide)}'"
                if wide.parent_op() is not graph:
                    raise UnsupportedOp(
                        f"{what} is in training mode in the body of another node, where its running statistics "
                        f"'{name}' cannot be kept; move it out of the body, or export the model in evaluation mode"
                    )
                if name in kept:
                    raise InvalidIR(
                        f"{what} keeps its running statistics in '{name}', where another batch norm has its own; an "
                        f"exporter merged them: give untie=True or untie=[{name!r}]"
                    )
                kept[name] = wide.outs[output]
    block = graph.block
    results = [*graph.terminator.values, *kept.values()]
    Rewriter.erase_op(graph.terminator)
    block.add_op(YieldOp(results))
    names = [*graph.result_names, *(StringAttr(_UPDATE + name) for name in kept)]
    graph.properties["result_names"] = ArrayAttr(names)
    return list(kept)


def _with_outputs(node: NodeOp, count: int) -> NodeOp:
    """The node, or one in its place that has as many outputs."""
    if len(node.outs) >= count:
        return node
    types = [*node.result_types, *[ValueType.unknown()] * (count - len(node.outs))]
    wide = NodeOp.create(
        operands=list(node.operands),
        result_types=types,
        properties=dict(node.properties),
        attributes=dict(node.attributes),
    )
    wide.location = node.location
    Rewriter.replace_op(node, wide, list(wide.outs[: len(node.outs)]))
    return wide


def _take_updates(function: FuncOp, running: Collection[str]) -> None:
    """Makes states of running statistics, and of the results for them their updates."""
    arguments = arguments_of(function)
    for name in running:
        mark_argument(function, arguments[name].index, ROLE_ATTR, StringAttr("state"))
    results: list[Result] = []
    for result in results_of(function):
        name = (result.name or "").removeprefix(_UPDATE)
        is_update = name != result.name and name in running
        results.append(Result(result.value, {UPDATES_ATTR: StringAttr(name)}) if is_update else result)
    set_results(function, results)


# What is in a graph


def _graphs(source: Source) -> list[GraphOp]:
    return [op for op in source.module.body.block.ops if isinstance(op, GraphOp)]


def _nodes(graph: GraphOp, op_type: str) -> Iterator[NodeOp]:
    """The nodes of an op of ONNX's own, those of bodies too."""
    return (
        op
        for op in graph.walk()
        if isinstance(op, NodeOp) and op.op_type.data == op_type and not op.domain_name
    )


def _opset(node: NodeOp, graph: GraphOp) -> int:
    return graph.versions.get("", 0) if node.opset is None else node.opset.value.data


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
            reached.update(operand for index, operand in enumerate(op.operands) if passes_to(op, index))
    return {
        argument_attrs(function, argument.index)[NAME_ATTR].data
        for argument in block.args
        if argument in reached
    }
