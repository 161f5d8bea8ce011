"""Splits a training graph into its forward and its backward part, as `eliminate-saves` decides.

PyTorch's own partitioner makes the two graphs. Nodes of the forward part are marked for it as saved or recomputed, with
the marks of `torch.utils.checkpoint`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch._functorch import config
from torch._functorch.compile_utils import fx_graph_cse  # pyright: ignore[reportUnknownVariableType]  # untyped
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from aicf.dialects.emit import DecisionOp
from aicf.errors import UnsupportedOp
from aicf.frontends.torch import lower_graph
from aicf.frontends.torch.layouts import is_view
from aicf.frontends.torch.nodes import base_op, forget_sums, is_exact_attention, is_getitem, is_tensor, items
from aicf.passes.training.save_choice import Pin
from aicf.pytorch.compiling import options_for
from aicf.pytorch.devices import device_of_graph
from aicf.pytorch.options import TorchOptions
from aicf.pytorch.programs import bindings_of
from aicf.pytorch.saves import SavePlan, plan_saves

LOGGER = logging.getLogger("aicf.pytorch")
RECOMPUTE = "recompute"
"""The entry of a node's metadata that has PyTorch's mark."""
_CHECKPOINT = "marked by torch.utils.checkpoint"
_RANDOM = "random numbers are not drawn a second time"


@dataclass
class Partition:
    """How one training graph was split.

    Args:
        decisions: Entries for the ledger of both parts.
        by_pytorch: Why PyTorch's partitioner chose what to save, if it did.
    """

    decisions: list[DecisionOp] = field(default_factory=list[DecisionOp])
    by_pytorch: str | None = None


def partition(
    options: TorchOptions,
    partition_info: Partition,
    joint: GraphModule,
    inputs: Any,
    *,
    num_fwd_outputs: int,
    **named: Any,
) -> tuple[GraphModule, GraphModule]:
    """Splits a training graph into its forward and its backward part.

    Args:
        options: `memory_budget` is the fraction of bytes to save.
        partition_info: Filled in here.
        joint, inputs, num_fwd_outputs, named: The arguments that AOTAutograd passes to a partitioner.

    Raises:
        UnsupportedOp: an op has no counterpart, and the option `fallback` is `error`.
    """
    if options.fallback != "eager":  # eager mode reads all arguments
        forget_sums(joint.graph)
    joint.graph.eliminate_dead_code()
    joint.graph = fx_graph_cse(
        joint.graph
    )  # PyTorch's partitioner does this first; the plan is about its nodes
    forward = _forward_nodes(joint, num_fwd_outputs)
    budget = 1.0
    try:
        plan = _planned(joint, forward, options)
    except UnsupportedOp as error:
        if options.fallback != "eager":
            raise
        partition_info.by_pytorch, budget = str(error), options.memory_budget
        LOGGER.info("PyTorch chooses what the forward part saves: %s", error)
    else:
        partition_info.decisions += plan.decisions
        _mark(forward, plan.kept)
    with cast(Any, config).patch(activation_memory_budget=budget):
        return min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **named)


def _forward_nodes(joint: GraphModule, count: int) -> dict[str, Node]:
    """The nodes that results or updates of the forward part depend on, by name, in the order of the graph."""
    (results,) = joint.graph.output_node().args
    stack = [node for node in items(results)[:count] if isinstance(node, Node)]
    stack += [
        node
        for node in joint.graph.nodes
        if base_op(node) == "copy_" and node.meta.get("partitioner_tag") != "is_backward"
    ]
    found: set[Node] = set()
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    # Other results of these nodes, such as the mask of a dropout, are computed in the forward part too.
    return {
        node.name: node
        for node in joint.graph.nodes
        if node in found or (is_getitem(node) and node.args[0] in found)
    }


def _planned(joint: GraphModule, forward: Mapping[str, Node], options: TorchOptions) -> SavePlan:
    placeholders = joint.graph.find_nodes(op="placeholder")
    examples = [node.meta.get("val") for node in placeholders]
    # Constants of the graph are real tensors, and PyTorch is still tracing with fake ones.
    with unset_fake_temporarily():
        lowered = lower_graph(joint.graph, "training", bindings_of(placeholders, examples))
    requested = options_for(options, device_of_graph(joint.graph))
    pins = _pins(forward)
    return plan_saves(lowered, forward, pins.get, requested, options.memory_budget)


def _pins(forward: Mapping[str, Node]) -> dict[str, Pin]:
    """The marks of `torch.utils.checkpoint`. Tensors that depend on random numbers are saved too, unless they can be
    computed from other saved tensors."""
    pins: dict[str, Pin] = {}
    random: set[Node] = set()
    for name, node in forward.items():
        checkpoint_policy = node.meta.get(RECOMPUTE)
        if _is_random(node) or any(each in random for each in node.all_input_nodes):
            if any(user.name not in forward for user in node.users) and _is_one_tensor(node):
                pins[name] = Pin(True, _RANDOM)
            else:
                random.add(node)
            node.meta.pop(RECOMPUTE, None)
        elif checkpoint_policy in (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE):
            pins[name] = Pin(False, _CHECKPOINT)
        elif checkpoint_policy is not None:
            pins[name] = Pin(True, _CHECKPOINT)
    return pins


def _is_random(node: Node) -> bool:
    is_tagged = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return is_tagged and not is_exact_attention(node)


def _is_one_tensor(node: Node) -> bool:
    return is_tensor(node.meta.get("val"))


def _mark(forward: Mapping[str, Node], kept: Mapping[str, bool]) -> None:
    """Marks each tensor for PyTorch's partitioner as saved or recomputed."""
    held = {_base(forward[name], forward) for name, is_kept in kept.items() if is_kept}
    for node in held:
        if node.op == "call_function":
            node.meta[RECOMPUTE] = CheckpointPolicy.MUST_SAVE
    for name, is_kept in kept.items():
        if not is_kept:
            for node in _computing(forward[name], held):
                node.meta[RECOMPUTE] = CheckpointPolicy.MUST_RECOMPUTE


def _base(node: Node, forward: Collection[str]) -> Node:
    """The node whose memory a view shares."""
    while is_view(node) and (source := node.all_input_nodes[0]).name in forward:
        node = source
    return node


def _computing(node: Node, held: Collection[Node]) -> Iterator[Node]:
    """The nodes that recompute a node from saved ones and from arguments; without views, which cost nothing."""
    stack, seen = [node], set[Node]()
    while stack:
        node = stack.pop()
        if node in held or node in seen or node.op != "call_function" or not _gives_tensor(node):
            continue
        seen.add(node)
        stack.extend(node.all_input_nodes)
        if not is_view(node):
            yield node


def _gives_tensor(node: Node) -> bool:
    values: Sequence[Any] = items(node.meta.get("val"))
    return any(map(is_tensor, values))
