"""Checks of what a training step can train: errors of one line, before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from aicf.errors import CaptureError, InvalidIR
from aicf.frontends.torch.layouts import memory_order
from aicf.pytorch.module_tensors import named_modules
from aicf.pytorch.training.module_state import ROOT, step_tensors
from aicf.pytorch.training.optimizers import Group

_INSTEAD = "compile the model with torch.compile"
_buffers = attrgetter("_buffers")
_backward_hooks = attrgetter("_backward_hooks", "_backward_pre_hooks")
_forward_hooks = attrgetter("_forward_hooks", "_forward_pre_hooks")

_KINDS: Sequence[tuple[Callable[[Tensor], bool], str, str]] = (
    (attrgetter("is_nested"), "is nested", "pad it with .to_padded_tensor(0.0)"),
    (lambda tensor: tensor.layout is not torch.strided, "is sparse", "make it dense with .to_dense()"),
    (attrgetter("is_quantized"), "is quantized", "give it as .dequantize()"),
    (torch.is_complex, "is complex", "give its parts as torch.view_as_real(x)"),
    (
        attrgetter("requires_grad"),
        "requires a gradient, which a step does not compute",
        "pass it as x.detach()",
    ),
)


def check_batch(values: Iterable[Any]) -> None:
    """Raises InvalidIR for a value of a batch that no step can take."""
    for number, value in enumerate(values):
        if not isinstance(value, Tensor):
            if not isinstance(value, Hashable):
                raise InvalidIR(
                    f"value {number} of the batch is a {type(value).__name__}; give a tensor, as torch.as_tensor(x), "
                    "or a number"
                )
            continue
        for is_so, what, way_out in _KINDS:
            if is_so(value):
                raise InvalidIR(f"tensor {number} of the batch {what}; {way_out}")


def check_captured(groups: Iterable[Group], is_compiled: bool) -> None:
    """Raises CaptureError for a step that a graph of the caller's cannot repeat.

    Args:
        groups: Of the optimizer.
        is_compiled: Whether the last step was one of the same program.
    """
    if not is_compiled:
        raise CaptureError("make one step with such a batch before capturing it, which compiles it")
    for index, group in enumerate(groups):
        if group.is_scheduled:
            raise CaptureError(
                f"options of the optimizer's group {index} change from step to step, and a captured step would repeat "
                "those of now; keep them as they are, or do not capture the step"
            )


@contextmanager
def refused_assignments(model: nn.Module) -> Generator[None]:
    """Raises InvalidIR if the model assigns to one of its buffers inside, which `torch.export` would drop."""
    names = {id(module): name for name, module in named_modules(model)}
    assign = nn.Module.__setattr__

    def checked(self: nn.Module, name: str, value: Any) -> None:
        if id(self) in names and isinstance(_buffers(self).get(name), Tensor):
            path = f"{names[id(self)]}.{name}".lstrip(".")
            raise InvalidIR(
                f"the model assigns to its buffer '{path}' when it runs; write into it, as in "
                f"self.{name}.copy_(value)"
            )
        assign(self, name, value)

    nn.Module.__setattr__ = checked
    try:
        yield
    finally:
        nn.Module.__setattr__ = assign


def check_model(model: nn.Module) -> None:
    """Raises InvalidIR for hooks, and for parameters and buffers that a step cannot update in place.

    Args:
        model: The trained module with its loss, see `step_tensors`.
    """
    for path, module in named_modules(model):
        name = path.removeprefix(ROOT).lstrip(".")
        if isinstance(module, DistributedDataParallel):
            raise InvalidIR(
                "DistributedDataParallel sums gradients by hooks, which train_step does not call; pass the wrapped "
                f"module, or {_INSTEAD}"
            )
        if any(_backward_hooks(module)):
            raise InvalidIR(
                f"module '{name}' has backward hooks, which train_step does not call; remove them, or {_INSTEAD}"
            )
        for hook in chain.from_iterable(hooks.values() for hooks in _forward_hooks(module)):
            origin = getattr(hook, "__module__", None) or type(hook).__module__
            if not origin.startswith("torch."):
                raise InvalidIR(
                    f"module '{name}' has a forward hook, which would run only while the step is traced; remove it, "
                    f"or {_INSTEAD}"
                )
    tensors = step_tensors(model)
    for name, tensor in tensors.items():
        _check_tensor(name, tensor)
    _check_overlap(tensors)


def _check_tensor(name: str, tensor: Tensor) -> None:
    if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
        raise InvalidIR(
            f"parameter '{name}' has a hook on its gradient, which train_step does not call; remove it, or {_INSTEAD}"
        )
    if is_traceable_wrapper_subclass(tensor):
        raise InvalidIR(
            f"'{name}' is a {type(tensor).__name__}, which has no memory of its own; {_INSTEAD}, which traces its parts"
        )
    if tensor.layout is not torch.strided or tensor.is_quantized or not _is_dense(tensor):
        raise InvalidIR(
            f"'{name}' is not dense in memory; make it so, as in p.data = p.data.contiguous(), before the optimizer is "
            "made"
        )


def _is_dense(tensor: Tensor) -> bool:
    """Whether the tensor fills its memory without gaps, in any order of dimensions."""
    order = memory_order(tensor.shape, tensor.stride())
    return tensor.permute(order).is_contiguous()


def _check_overlap(tensors: Mapping[str, Tensor]) -> None:
    """Raises InvalidIR if two tensors share some of their memory; a tied one is one tensor."""
    by_id = {id(tensor): (name, tensor) for name, tensor in tensors.items()}
    spans = sorted(
        (tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, name)
        for name, tensor in by_id.values()
        if tensor.device.type != "meta" and tensor.numel()
    )
    for (_, end, name), (start, _, other) in pairwise(spans):
        if start < end:
            raise InvalidIR(
                f"'{other}' and '{name}' are two tensors that share memory; tie them as one parameter, or clone one"
            )


def check_devices(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    """Raises InvalidIR if a parameter, a buffer or a state, by name, is not on the device of the step."""
    for name, tensor in tensors.items():
        if tensor.device != device:
            raise InvalidIR(
                f"'{name}' is on {tensor.device}, and the step runs on {device}; move the module with .to('{device}') "
                "before the optimizer is made"
            )


def check_trained(groups: Sequence[Group], trained: Iterable[Tensor]) -> None:
    """Raises InvalidIR if no parameter of the optimizer gets a gradient."""
    passed = set(map(id, trained))
    if not any(id(parameter) in passed for group in groups for parameter in group.parameters):
        raise InvalidIR(
            "the loss passes no gradient to any parameter of the optimizer; give a loss that depends on them, and "
            "parameters that require gradients"
        )


def check_counts(optimizer: torch.optim.Optimizer, trained: Iterable[Tensor], steps: int) -> None:
    """Raises InvalidIR if parameters have different step counts, as a program has one count."""
    counts = [
        count for each in trained if isinstance(count := optimizer.state.get(each, {}).get("step"), Tensor)
    ]
    if other := [int(count) for count in counts if int(count) != steps]:
        raise InvalidIR(
            f"some parameters have made {other[0]} steps of the optimizer, others {steps}, as after being frozen; "
            "make a new optimizer for train_step, or keep using optimizer.step()"
        )


@contextmanager
def in_one_line() -> Generator[None]:
    """Shortens errors of PyTorch's tracers to one line; errors of the user's code stay as in eager mode."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("torch.") and "exported program" not in str(error):
            raise
        reason = str(error).strip().partition("\n")[0]
        raise InvalidIR(
            f"PyTorch cannot trace the model: {type(error).__name__}: {reason}; remove "
            f"data-dependent control flow or sizes, or {_INSTEAD}"
        ) from error


@contextmanager
def restored(optimizer: torch.optim.Optimizer) -> Generator[None]:
    """Restores the optimizer's states if something fails inside."""
    before = {parameter: dict(state) for parameter, state in optimizer.state.items()}
    try:
        yield
    except BaseException:
        optimizer.state.clear()
        optimizer.state.update(before)
        raise
