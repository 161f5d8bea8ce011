"""Finds gradients that a module defines in Python: functions with their own backward, and hooks on gradients.

A traced forward part does not have them. They are found by running the module on fake tensors and walking the graph
that autograd records.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.function import BackwardCFunction
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from aicf.frontends.torch.locations import line_of, text_of
from aicf.passes.training.differentiate import NoRule

WAY_OUT = "train with options={'gradients': 'pytorch'}"


def check_custom_gradients(
    module: nn.Module, batch: Sequence[Any], named: Mapping[str, Any], trained: Set[str]
) -> None:
    """Raises NoRule for a `torch.autograd.Function` or a hook between a trained parameter and the loss.

    Args:
        module: Returns the loss.
        batch, named: Its arguments, by position and by name.
        trained: Names of parameters.
    """
    # The environment gives symbols to data-dependent numbers, which fake tensors cannot compute.
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
    watch = _Watch()
    tensors = {**dict(_all(module.named_parameters)), **dict(_all(module.named_buffers))}
    fakes: dict[str, Tensor] = {name: mode.from_tensor(tensor) for name, tensor in tensors.items()}
    arguments, more = tree_map_only(Tensor, mode.from_tensor, (tuple(batch), dict(named)))
    # Anomaly mode records Python's stack with each node; nothing runs backward here.
    lines = torch.autograd.set_detect_anomaly(True, check_nan=False)
    with mode, watch, torch.enable_grad(), lines:
        loss = torch.func.functional_call(module, fakes, arguments, more)
    if watch.found is not None:
        what, line = watch.found
        raise NoRule(f"{what}, which is not traced; {WAY_OUT}", location=line)
    leaves = {id(fakes[name]) for name in trained}
    for node in _autograd_nodes_between(getattr(loss, "grad_fn", None), leaves):
        if isinstance(node, BackwardCFunction):
            name = type(node).__name__.removesuffix("Backward")
            trace = "".join(cast(Any, node).metadata.get("traceback_", ()))
            raise NoRule(
                f"torch.autograd.Function '{name}' has its own backward; {WAY_OUT}",
                location=text_of(line_of({"stack_trace": trace})),
            )


def _all(named: Callable[..., Iterator[tuple[str, Tensor]]]) -> Iterator[tuple[str, Tensor]]:
    return named(remove_duplicate=False)


_DATA: Any = cast(Any, Tensor).data.__get__
_REGISTER_HOOK: Any = cast(Any, Tensor).register_hook


class _Watch(TorchFunctionMode):
    """Notes the first use of what PyTorch does not trace: a hook on the gradient of a tensor, or its `.data`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: tuple[str, str] | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called for every function of PyTorch."""
        if self.found is None and (func is _REGISTER_HOOK or func == _DATA) and args[0].requires_grad:
            what = "a hook on a gradient" if func is _REGISTER_HOOK else "the .data of a tensor"
            self.found = what, _caller()
        return func(*args, **(kwargs or {}))


def _caller() -> str:
    """The innermost line that is not PyTorch's."""
    lines = traceback.format_stack()[:-2]
    return text_of(line_of({"stack_trace": "".join(lines)})) or "a module"


def _autograd_nodes_between(loss: Any, leaves: Set[int]) -> list[Any]:
    """Autograd's nodes between the loss and a leaf, from the loss on."""
    order: list[Any] = []
    reaches: dict[Any, bool] = {}
    stack = [(loss, False)] if loss is not None else []
    while stack:
        node, is_done = stack.pop()
        following = [each for each, _ in node.next_functions if each is not None]
        if is_done:
            is_leaf = id(getattr(node, "variable", None)) in leaves
            reaches[node] = is_leaf or any(reaches[each] for each in following)
            order.append(node)
        elif node not in reaches:
            reaches[node] = False
            stack.append((node, True))
            stack.extend((each, False) for each in following)
    return [node for node in reversed(order) if reaches[node]]
