"""The forward and the backward part of a step as one graph, traced by AOTAutograd: gradients by PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch._aot_autograd import descriptors
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

from aicf.errors import AicfError, InvalidIR, UnsupportedOp
from aicf.frontends.torch import Computed, Roles, lower_graph
from aicf.frontends.torch.decompositions import of_autograd
from aicf.frontends.torch.nodes import is_getitem
from aicf.frontends.torch.program import Port
from aicf.pytorch.devices import device_of_graph
from aicf.pytorch.training.forward_part import batch_checks, with_tied
from aicf.pytorch.training.module_state import PREFIX, ROOT, step_tensors
from aicf.pytorch.training.program import LOSS, TANGENT, Model


def joint_part(
    module: nn.Module, batch: tuple[Any, ...], named: Mapping[str, Any], name: str, trained: Set[str]
) -> Model:
    """Traces and lowers the forward and the backward part.

    Args:
        module: Returns the loss; its submodule `model` is the trained module.
        batch, named: Its arguments, by position and by name.
        name: Of the program.
        trained: Names of the parameters whose gradients are results.

    Raises:
        UnsupportedOp: an op has no counterpart, or the module changes a tensor that is not one of its buffers.
        InvalidIR: the loss is not a tensor of rank 0, or PyTorch cannot trace the gradients.
    """
    tensors = step_tensors(module)
    trained = with_tied(trained, tensors)
    graph: Any = _joint(module, batch, named)
    graph.eliminate_dead_code()
    inputs = [node.meta["desc"] for node in graph.nodes if node.op == "placeholder"]
    (output,) = (node for node in graph.nodes if node.op == "output")
    results, wanted = output.args[0], output.meta["desc"]
    roles = _roles(inputs, results, wanted, trained, _backward(graph, results, wanted))
    lowered = lower_graph(graph, name, {}, roles)
    assert lowered.module is not None, "a gradient is computed"
    gradients: dict[str, Port] = {}
    for index, output in enumerate(lowered.outputs):
        if isinstance(output, Computed) and isinstance(wanted[index], descriptors.GradAOTOutput):
            gradients[_target(wanted[index].grad_of)] = output.port
    leaves = {
        index: each.idx for index, each in enumerate(inputs) if isinstance(each, descriptors.PlainAOTInput)
    }
    checks = batch_checks(graph, leaves)
    return Model(lowered, tensors, device_of_graph(graph), leaves, frozenset(gradients), gradients, checks)


def _joint(module: nn.Module, batch: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with ExitStack() as stack, torch.enable_grad():
        try:
            joint = aot_export_joint_with_descriptors(
                stack,
                module,
                batch,
                dict(named),
                decompositions=dict(of_autograd()),
                _record_nn_module_stack=True,
            )
        except AicfError:
            raise
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise InvalidIR(
                f"PyTorch cannot trace the gradients: {type(error).__name__}: {reason}; fix it, or train with "
                "torch.compile"
            ) from error
        return joint.graph_module.graph


def _target(tensor: Any) -> str:
    """The name of a parameter or buffer of the trained module."""
    return tensor.target.removeprefix(PREFIX)


def _roles(
    inputs: Sequence[Any],
    results: Sequence[Any],
    wanted: Sequence[Any],
    trained: Set[str],
    backward: frozenset[str],
) -> Roles:
    names: dict[int, str] = {}
    index_of: dict[Any, int] = {}
    for index, descriptor in enumerate(inputs):
        index_of[descriptor] = index
        match descriptor:
            case descriptors.ParamAOTInput() | descriptors.BufferAOTInput():
                names[index] = _target(descriptor)
            case descriptors.TangentAOTInput():
                names[index] = TANGENT
            case descriptors.PlainAOTInput():
                pass
            case _:
                raise UnsupportedOp(
                    f"an argument of the gradients is {descriptor.expr()}; pass each tensor once, and no "
                    "tensor subclasses"
                )
    updates: dict[int, str] = {}
    shown: dict[int, str] = {}
    for index, (node, what) in enumerate(zip(results, wanted, strict=True)):
        match what:
            case descriptors.PlainAOTOutput():
                shown[index] = _checked_loss(node)
            case descriptors.GradAOTOutput(grad_of=descriptors.ParamAOTInput() as parameter):
                if _target(parameter) in trained and node is not None:
                    shown[index] = f"{_target(parameter)}.grad"
            case descriptors.InputMutationAOTOutput(mutated_input=descriptors.BufferAOTInput() as buffer):
                updates[index_of[buffer]] = node.name
            case descriptors.InputMutationAOTOutput():
                changed = what.mutated_input
                name = f"'{_target(changed)}'" if hasattr(changed, "target") else "a tensor of the batch"
                raise UnsupportedOp(f"the model changes {name} in place; return the new value instead")
            case _:
                pass
    params = frozenset(index for index, name in names.items() if name != TANGENT)
    hidden = frozenset(range(len(results))) - shown.keys()
    return Roles(names, params, updates, hidden, shown, root=ROOT, copies=True, backward=backward)


def _checked_loss(node: Any) -> str:
    fake = node.meta["val"]
    if not isinstance(fake, Tensor) or fake.numel() != 1 or fake.dim():
        raise InvalidIR(f"the loss has shape {tuple(fake.shape)}; it must be a tensor of rank 0")
    return LOSS


def _backward(graph: Any, results: Sequence[Any], wanted: Sequence[Any]) -> frozenset[str]:
    """The nodes that neither the loss nor an update of the model depends on."""
    forward: set[Any] = set()
    stack = [
        node
        for node, what in zip(results, wanted, strict=True)
        if isinstance(what, descriptors.PlainAOTOutput | descriptors.InputMutationAOTOutput)
    ]
    while stack:
        node = stack.pop()
        if node not in forward:
            forward.add(node)
            stack.extend(node.all_input_nodes)
    backward: set[str] = set()
    for node in graph.nodes:
        # An item of several results belongs to the node that computes them.
        owner = node.args[0] if is_getitem(node) else node
        if node.op == "call_function" and owner not in forward:
            backward.add(node.name)
    return frozenset(backward)
