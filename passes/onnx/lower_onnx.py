"""``lower-onnx``: an ``onnx.graph`` whose sizes are numbers becomes a function of logical ops.

Nodes are lowered in order by the op map (``onnx/ops``). Arithmetic on shapes is done on the way: what it feeds
are sizes, of which nothing stays in the program. Parameters that nothing reads are dropped. Where a node gives another
type than the model declares, what the node gives holds, and the ledger says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from aicf.dialects.onnx import GraphOp
from aicf.passes.support.identity import IdTable, invalid
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import WorksOn


@dataclass(frozen=True)
class LowerOnnxPass(ModulePass):
    """Replaces every ``onnx.graph`` by a ``func.func`` of its name; ops are called as the nodes that they come from.

    Dropouts and batch norms in training mode are taken in evaluation. With `training` they do what they say, and random
    numbers follow from the metas `seed` and `step`.
    """

    name = "lower-onnx"
    works_on = WorksOn(("onnx.graph",))

    strict: bool = False
    """A wrong declaration is an error."""

    training: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        graphs = [inner for inner in op.body.block.ops if isinstance(inner, GraphOp)]
        if not graphs:
            return
        # The op map is a few dozen files, which a model of another kind does not wait for.
        from aicf.passes.onnx.declared import Declarations
        from aicf.passes.onnx.lowering import lower_graph

        declarations = Declarations(op, self.name, is_strict=self.strict)
        ids = IdTable(*(inner for inner in op.body.block.ops if not isinstance(inner, GraphOp)))
        for graph in graphs:
            _check_static(graph)
            function, evaluated = lower_graph(graph, ids, declarations, training=self.training)
            Rewriter.replace_op(graph, function, new_results=[])
            if evaluated:
                record_decision(
                    op,
                    self.name,
                    evaluated,
                    "evaluation: nothing is dropped, statistics are those given",
                    "the training mode of a node is for training",
                    {"training": "option training keeps it"},
                )


def _check_static(graph: GraphOp) -> None:
    for index in range(len(graph.block.args)):
        info = graph.argument_info(index)
        if not info.is_static:
            raise invalid(
                graph,
                f'argument "{graph.argument_name(index)}" is {info}, with symbolic sizes; run specialize-shapes first',
            )
