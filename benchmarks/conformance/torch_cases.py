"""Sample calls of an overload of ATen, from PyTorch's OpInfo database.

The samples of an OpInfo are run in eager mode, with or without gradients, and the calls of the overload that they make
are recorded. Where they make none, the overload is called with the sample's own arguments, if it takes them: no
function of Python calls `add.Scalar`.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch_table import ADAPTERS, GRADIENTS, OWN, OWN_DTYPES, Call, base_name, opinfos_of

DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f64": torch.float64,
    "i64": torch.int64,
    "bool": torch.bool,
}
_FEW, _MOST = 8, 400
"""Of fewer samples the reference inputs are taken, which many elementwise functions need: they have one sample, and
many shapes, layouts and extreme values among those. Of more, only so many are looked at."""


@dataclass(frozen=True)
class Case:
    """One call of an overload.

    Args:
        op: The overload.
        dtype: Of the samples that it comes from, by our name.
        number: Among the cases of this op and dtype.
        leaves: The arguments, flattened.
        spec: How they were nested.
    """

    op: Any
    dtype: str
    number: int
    leaves: Sequence[Any]
    spec: Any

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Fresh copies of the tensors among the arguments."""
        return [leaf.clone() for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def on_host(self) -> Case:
        """The same call with its tensors on the host."""
        leaves = [leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        return replace(self, leaves=leaves)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by their names in the schema; what is not given has its default."""
        return self._named(self.leaves)

    def _named(self, leaves: Sequence[Any]) -> dict[str, Any]:
        args, named = pytree.tree_unflatten(list(leaves), self.spec)
        schema = self.op._schema.arguments
        defaults = {each.name: each.default_value for each in schema if each.has_default_value()}
        given = {each.name: value for each, value in zip(schema, args, strict=False)}
        return defaults | given | named

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """The tensors among the results, for other tensors in place of the arguments."""
        left = iter(tensors)
        leaves = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, named = pytree.tree_unflatten(leaves, self.spec)
        if self.op._schema.is_mutable:  # the caller's tensor is not the subject
            args = [args[0].clone(), *args[1:]]
        found = self.op(*args, **named)
        return [each for each in pytree.tree_leaves(found) if isinstance(each, torch.Tensor)]


def cases_of(op: Any, dtype: str, count: int, device: str = "cpu") -> list[Case]:
    """At most `count` cases, evenly spread over all that the samples of this dtype on a device give."""
    seed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = list(_calls(op, DTYPES[dtype], device))
    return [
        Case(op, dtype, number, *pytree.tree_flatten(call))
        for number, call in enumerate(_spread(calls, count))
    ]


def seed() -> None:
    """Makes what is drawn from here on the same in every run."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def _spread(values: Sequence[Any], count: int) -> list[Any]:
    if len(values) <= count:
        return list(values)
    return [values[number * len(values) // count] for number in range(count)]


def _calls(op: Any, dtype: torch.dtype, device: str) -> Iterator[Call]:
    base = base_name(op)
    if base in OWN:
        if dtype in OWN_DTYPES[base]:
            yield from OWN[base](dtype, device)
        return
    for info in opinfos_of(op):
        if dtype not in info.supported_dtypes(device) or (base in GRADIENTS and not dtype.is_floating_point):
            continue
        seed()
        for sample in _spread(_samples(info, dtype, device, base in GRADIENTS), _MOST):
            call = _recorded(op, info, sample)
            if call is None and base not in GRADIENTS:
                call = _direct(op, sample)
            if call is not None:
                yield call


def _samples(info: Any, dtype: torch.dtype, device: str, has_gradients: bool) -> list[Any]:
    try:
        found = list(info.sample_inputs(device, dtype, requires_grad=has_gradients))
    except (RuntimeError, TypeError, ValueError, NotImplementedError):  # the database has none that work
        return []
    if len(found) >= _FEW or has_gradients:
        return found
    try:
        return list(info.reference_inputs(device, dtype)) or found
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return found


class _Recorder(TorchDispatchMode):
    """Records the first call of an overload."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self._op, self.call = op, None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is self._op and self.call is None and _has_tensors(func, (args, kwargs)):
            self.call = _copied((list(args), kwargs or {}))
        return func(*args, **(kwargs or {}))


def _has_tensors(op: Any, call: Any) -> bool:
    """Whether a call has a tensor, unless the op takes none: no graph has arithmetic of numbers alone."""
    takes = any("Tensor" in str(argument.type) for argument in op._schema.arguments)
    return not takes or any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(call))


def _copied(call: Call) -> Call:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), call)


def _recorded(op: Any, info: Any, sample: Any) -> Call | None:
    """The call that a sample makes, in its gradient if it has one."""
    recorder = _Recorder(op)
    try:
        with recorder:
            found = info.op(sample.input, *sample.args, **sample.kwargs)
            results = [each for each in pytree.tree_leaves(found) if isinstance(each, torch.Tensor)]
            for each in results:
                if each.requires_grad:
                    torch.autograd.backward(each, torch.randn_like(each), retain_graph=True)
    except Exception:  # eager mode refuses the sample, which then says nothing about us
        return None
    return recorder.call


def _direct(op: Any, sample: Any) -> Call | None:
    """The arguments of a sample as those of the overload, if it takes them."""
    args, named = [sample.input, *sample.args], dict(sample.kwargs)
    if adapter := ADAPTERS.get(base_name(op)):
        args, named = adapter(args, named)
    call = _as_numbers(op, *_copied((args, named)))
    if not _fits(op, *call) or not _has_tensors(op, call):
        return None
    try:
        op(*_copied(call)[0], **call[1])
    except Exception:
        return None
    return call


def _as_numbers(op: Any, args: list[Any], named: dict[str, Any]) -> Call:
    """The first element of a tensor where the overload has a number: few samples have one there."""
    kinds = {argument.name: str(argument.type) for argument in op._schema.arguments}

    def number(name: str, value: Any) -> Any:
        is_number = kinds.get(name) in ("number", "Optional[number]")
        if is_number and isinstance(value, torch.Tensor) and value.numel():
            return value.flatten()[0].item()
        return value

    # Arguments that the overload does not have stay, and are refused.
    positional = [number(name, value) for name, value in zip(kinds, args, strict=False)] + args[len(kinds) :]
    return positional, {name: number(name, value) for name, value in named.items()}


def _fits(op: Any, args: list[Any], named: dict[str, Any]) -> bool:
    """Whether numbers are where the schema has numbers and tensors where it has tensors: an overload also takes one
    for the other, which would be a call of its sibling."""
    kinds = {argument.name: str(argument.type) for argument in op._schema.arguments}
    given = dict(zip(kinds, args, strict=False)) | named
    for name, value in given.items():
        kind = kinds.get(name, "")
        if "Tensor" in kind and isinstance(value, Number):
            return False
        if "Tensor" not in kind and isinstance(value, torch.Tensor):
            return False
    return len(args) <= len(kinds)
