"""A module with its loss as `torch.export` traces it, in a form that says where gradients stop.

`torch.export` traces the forward part alone. What a model says of its gradients by other means than ops is brought into
the graph here, or refused: none of it may be lost in silence.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils.checkpoint import CheckpointFunction

from aicf.errors import InvalidIR, UnsupportedOp
from aicf.frontends.exported_program import ExportedProgram
from aicf.frontends.torch.decompositions import of_export
from aicf.frontends.torch.lowering import STOPS
from aicf.frontends.torch.nodes import base_op

_NO_GRAD = "wrap_with_set_grad_enabled"
"""The op of higher order by which a trace keeps `torch.no_grad()`; its first argument is the mode inside."""
_TRACING = threading.RLock()
"""Of the process: a trace replaces functions of PyTorch, which itself traces in one thread at a time."""


def traced(module: nn.Module, batch: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """The functional program of a module, in which `detach` marks all values that pass no gradient back.

    Raises:
        UnsupportedOp: a gradient is defined or changed by code of the user.
        InvalidIR: PyTorch cannot trace the module.
    """
    with _TRACING, warnings.catch_warnings(), _own_gradients_refused():
        # PyTorch's own copies of its trees, in each export.
        warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")
        try:
            exported = cast(Any, torch.export.export(module, batch, dict(named), strict=False))
        except Exception as error:
            if not type(error).__module__.startswith("torch.") and "exported program" not in str(error):
                raise  # of the user's code, as in eager mode
            reason = str(error).strip().partition("\n")[0]
            raise InvalidIR(
                f"torch.export cannot trace the model: {reason}; leave out what follows from elements of tensors, or "
                "compile the model with torch.compile"
            ) from error
        for graph in [
            each for each in exported.graph_module.modules() if isinstance(each, torch.fx.GraphModule)
        ]:
            _mark_stops(graph)
        return cast(ExportedProgram, exported).run_decompositions(of_export())


def _mark_stops(module: torch.fx.GraphModule) -> None:
    """Detaches the results of each part that ran under `torch.no_grad()`."""
    for node in module.graph.nodes:
        if getattr(node.target, "__name__", "") != _NO_GRAD or node.args[0]:
            continue
        inner = module.get_submodule(str(node.args[1].target))
        assert isinstance(inner, torch.fx.GraphModule)
        _detach_results(inner)


def _detach_results(module: torch.fx.GraphModule) -> None:
    output = module.graph.output_node()
    with module.graph.inserting_before(output):
        output.args = (torch.fx.map_arg(output.args[0], lambda value: _detached(module.graph, value)),)
    module.recompile()


def _detached(graph: torch.fx.Graph, value: torch.fx.Node) -> torch.fx.Node:
    if not isinstance(fake := value.meta.get("val"), Tensor) or not fake.is_floating_point():
        return value
    stop = graph.call_function(torch.ops.aten.detach.default, (value,))
    stop.meta = dict(value.meta)
    return stop


def reached(program: Any, result: int) -> frozenset[int]:
    """The placeholders of a functional program that a result passes gradients back to, by index.

    Args:
        result: Its index among all results, mutations among them.
    """
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    found: set[Any] = set()
    pending: list[Any] = [program.graph.output_node().args[0][result]]
    while pending:
        node = pending.pop()
        if node in found or not _passes_back(node):
            continue
        found.add(node)
        pending.extend(node.all_input_nodes)
    return frozenset(index for index, node in enumerate(nodes) if node in found)


def _passes_back(node: Any) -> bool:
    fakes = node.meta.get("val")
    several: Sequence[Any] = fakes if isinstance(fakes, list | tuple) else [fakes]
    is_float = any(isinstance(fake, Tensor) and fake.is_floating_point() for fake in several)
    return is_float and base_op(node) not in STOPS


@contextmanager
def _own_gradients_refused() -> Generator[None]:
    """Refuses what a trace of the forward part would lose: gradients of the user's own, and hooks on gradients."""
    thread = threading.get_ident()
    apply, hook = vars(Function)["apply"], vars(Tensor)["register_hook"]

    def applied(cls: type[Function], *args: Any, **named: Any) -> Any:
        if threading.get_ident() != thread:
            return apply.__func__(cls, *args, **named)
        if cls is CheckpointFunction:  # its gradient is that of what it runs
            run, _, *given = args
            return run(*given)
        raise UnsupportedOp(
            f"'{cls.__name__}' has a gradient of its own, which train_step does not take; write it with ops of "
            "PyTorch, or compile the model with torch.compile"
        )

    def hooked(tensor: Tensor, function: Any) -> Any:
        if threading.get_ident() != thread:
            return hook(tensor, function)
        raise UnsupportedOp(
            "the model puts a hook on the gradient of a tensor, which train_step does not call; leave it out, or "
            "compile the model with torch.compile"
        )

    Function.apply = classmethod(applied)  # pyright: ignore[reportAttributeAccessIssue]
    Tensor.register_hook = hooked  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        Function.apply = apply
        Tensor.register_hook = hook
