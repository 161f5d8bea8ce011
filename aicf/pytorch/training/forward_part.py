"""The forward part of a step, traced by `torch.export`, for gradients by AICF.

An exported graph has the ops, but not what else PyTorch's autograd knows. Results computed under `torch.no_grad` are
detached here. An op whose gradient in PyTorch is not the derivative of its formula is an error, on which the caller may
switch to PyTorch's gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from aicf.errors import InvalidIR
from aicf.frontends.exported_program import ExportedProgram
from aicf.frontends.torch import lower_graph
from aicf.frontends.torch.decompositions import of_export
from aicf.frontends.torch.exported import quiet_export, roles_of
from aicf.frontends.torch.gradients import find_other_gradient, placeholders_with_gradient
from aicf.frontends.torch.index_checks import IndexCheck, index_checks
from aicf.frontends.torch.locations import line_of, text_of
from aicf.passes.training.differentiate import NoRule
from aicf.pytorch.devices import device_of_graph
from aicf.pytorch.training.custom_gradients import WAY_OUT, check_custom_gradients
from aicf.pytorch.training.module_state import PREFIX, ROOT, step_tensors, tensors_of
from aicf.pytorch.training.program import LOSS, Model


@dataclass(frozen=True)
class ForwardCall:
    """A call of a module.

    Args:
        module: Returns the loss; its submodule `model` is the trained module.
        batch, named: Its arguments, by position and by name.
        trained: Names of the parameters to train.
    """

    module: nn.Module
    batch: tuple[Any, ...]
    named: Mapping[str, Any]
    trained: Set[str]

    def leaves(self) -> tuple[list[Any], Any]:
        """The values of the flattened batch, and how they are flattened."""
        return tree_flatten((self.batch, dict(self.named)))


def traced_part(call: ForwardCall, dynamic_shapes: Any = None) -> Any:
    """The functional `torch.export.ExportedProgram` of a forward part.

    Args:
        dynamic_shapes: As in `torch.export.export`.

    Raises:
        NoRule: the module has gradients of its own between a parameter to train and the loss.
    """
    trained = with_tied(call.trained, step_tensors(call.module))
    own = {each for each in tensors_of(call.module) if each.removeprefix(PREFIX) in trained}
    check_custom_gradients(call.module, call.batch, call.named, own)
    return _exported(call, dynamic_shapes)


def lowered_part(call: ForwardCall, name: str, functional: Any, bindings: Mapping[str, int]) -> Model:
    """Lowers a forward part.

    Args:
        call: What was traced.
        name: Of the program.
        functional: What `traced_part` gave.
        bindings: The value of each symbolic size.

    Raises:
        NoRule: between a parameter and the loss, PyTorch's gradient is not the derivative of the ops.
        UnsupportedOp, InvalidIR: as in `lower_graph`.
    """
    tensors = step_tensors(call.module)
    trained = with_tied(call.trained, tensors)
    roles = roles_of(functional, PREFIX)
    loss = len(functional.graph_signature.output_specs) - 1
    indices = {index for index, each in roles.names.items() if index in roles.params and each in trained}
    if (found := find_other_gradient(functional.graph, indices, loss)) is not None:
        node, what = found
        raise NoRule(f"{what}; {WAY_OUT}", location=text_of(line_of(node.meta)))
    roles = replace(roles, results={loss: LOSS}, root=ROOT, is_alone=False, is_differentiated=True)
    lowered = lower_graph(functional.graph, name, bindings, roles)
    if lowered.module is None:
        raise InvalidIR("the loss depends on nothing; the loss must depend on the module's output")
    device = device_of_graph(functional.graph)
    constants = {
        name.removeprefix(PREFIX): value.to(device)
        for name, value in functional.constants.items()
        if isinstance(value, Tensor)
    }
    trained = {roles.names[index] for index in placeholders_with_gradient(functional.graph, indices, loss)}
    leaves = {index: number for number, index in enumerate(batch_inputs(functional))}
    checks = batch_checks(functional.graph, leaves, bindings)
    return Model(lowered, tensors | constants, device, leaves, trained, checks=checks)


def batch_inputs(program: Any) -> list[int]:
    """The placeholders that are the values of the flattened batch, by index."""
    specs = program.graph_signature.input_specs
    return [index for index, spec in enumerate(specs) if spec.kind.name == "USER_INPUT"]


def batch_checks(
    graph: Any, leaves: Mapping[int, int], bindings: Mapping[str, int] | None = None
) -> list[IndexCheck]:
    """The indices among the values of a batch.

    Args:
        graph: Of the forward part.
        leaves: By placeholder, the index of its value in the flattened batch.
        bindings: The value of each symbolic size.
    """
    return [
        replace(check, argument=leaves[check.argument])
        for check in index_checks(graph, bindings)
        if check.argument in leaves
    ]


def with_tied(names: Set[str], tensors: Mapping[str, Tensor]) -> set[str]:
    """The names, with all other names of the same tensors."""
    own = {id(tensors[name]) for name in names}
    return {name for name, tensor in tensors.items() if id(tensor) in own}


def _exported(call: ForwardCall, dynamic_shapes: Any) -> ExportedProgram:
    with quiet_export():
        exported = torch.export.export(
            call.module, call.batch, dict(call.named), dynamic_shapes=dynamic_shapes, strict=False
        )
        _detach(exported.graph_module)
        return cast(ExportedProgram, exported).run_decompositions(of_export())


def _detach(module: torch.fx.GraphModule) -> None:
    """Detaches the results of regions under `torch.no_grad`, which are graphs of their own until decomposition."""
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not (parts := _parts(node)):
            continue
        if _is_without_gradients(node):
            if any(map(_has_gradients, parts)):
                where = text_of(line_of(node.meta))
                raise NoRule(f"torch.enable_grad inside torch.no_grad; {WAY_OUT}", location=where)
            _detach_results(module.graph, node)
        else:
            for part in parts:
                _detach(part)
    module.recompile()


def _parts(node: torch.fx.Node) -> list[torch.fx.GraphModule]:
    """The graphs that a node runs."""
    owner = node.graph.owning_module
    names = [each.target for each in node.all_input_nodes if each.op == "get_attr"]
    held = [getattr(owner, str(name), None) for name in names]
    return [each for each in held if isinstance(each, torch.fx.GraphModule)]


def _is_without_gradients(node: torch.fx.Node) -> bool:
    return str(node.target) == "wrap_with_set_grad_enabled" and node.args[0] is False


def _has_gradients(module: torch.fx.GraphModule) -> bool:
    for node in module.graph.nodes:
        if str(node.target) == "wrap_with_set_grad_enabled" and node.args[0] is True:
            return True
        if node.op == "call_function" and any(map(_has_gradients, _parts(node))):
            return True
    return False


def _detach_results(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    for result in list(node.users):
        fake = result.meta.get("val")
        if isinstance(fake, Tensor) and fake.is_floating_point():
            with graph.inserting_after(result):
                detached = graph.call_function(torch.ops.aten.detach.default, (result,))
            detached.meta = dict(result.meta)
            result.replace_all_uses_with(detached, delete_user_cb=lambda user, own=detached: user is not own)
