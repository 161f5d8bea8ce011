"""The step count of an optimizer of PyTorch, which keeps it in a tensor for each parameter.

A training step counts in one number; filling hundreds of tensors in each step would take longer than some steps. So
they are written when they are read: by `state_dict()`, by copies and `pickle`, by the optimizer's own `step()`, and by
`optimizer.state[parameter]`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_values


class StepCounts:
    """The count of one optimizer, for all training steps that use it.

    Attributes:
        trained: The parameters that the last program updated: theirs are the counts that `write` fills.
        generation: How often a checkpoint has put other states in place.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._state = _CountedStates(self, optimizer.state)
        optimizer.state = self._state
        self.trained: Sequence[Tensor] = ()
        self._steps = self._written = _most_steps(self._state)
        self.generation = 0
        self._tensors: dict[torch.device, Tensor] = {}
        self._is_replayed = False

        def write(*_: object) -> None:
            self.write()

        def read(*_: object) -> None:
            self._read()

        before = optimizer.register_step_pre_hook(write)
        after = optimizer.register_step_post_hook(read)
        optimizer.register_load_state_dict_post_hook(self._take_states)
        self._own = (before.id, after.id)

    @staticmethod
    def of(optimizer: torch.optim.Optimizer) -> StepCounts:
        """The count of an optimizer."""
        if (counts := _COUNTS.get(optimizer)) is None:
            counts = _COUNTS[optimizer] = StepCounts(optimizer)
        return counts

    @property
    def steps(self) -> int:
        """Steps so far. Once a step has been captured in a graph of the caller's, only the device knows."""
        if self._is_replayed:
            self._steps = max(int(tensor) for tensor in self._tensors.values())
        return self._steps

    def add_step(self, *, is_captured: bool) -> None:
        """Counts a call, which makes its step at once or, captured in a graph of the caller's, in each replay."""
        if is_captured:
            self._is_replayed = True
        else:
            self._steps += 1

    def tensor(self, device: torch.device) -> Tensor:
        """The count as the programs read and write it, an i64 of rank 0."""
        if device not in self._tensors:
            self._tensors[device] = torch.full((), self._steps, dtype=torch.int64, device=device)
        return self._tensors[device]

    def call_hooks(self, optimizer: torch.optim.Optimizer, *, is_before: bool) -> None:
        """Calls the hooks that the user has registered around the optimizer's steps."""
        name = "pre" if is_before else "post"
        hooks: dict[int, Any] = getattr(optimizer, f"_optimizer_step_{name}_hooks")
        for key, hook in list(hooks.items()):
            if key not in self._own:
                hook(optimizer, (), {})

    def write(self) -> None:
        """Writes the count into the states of the parameters."""
        steps = self.steps
        if self._written == steps:
            return
        self._written = steps
        for parameter in self.trained:
            if isinstance(count := self._state.get(parameter, {}).get("step"), Tensor):
                count.fill_(steps)

    def _read(self) -> None:
        """Takes the count that the optimizer's own step, or a checkpoint, has left."""
        self._steps = self._written = _most_steps(self._state)
        self.trained = ()
        for tensor in self._tensors.values():
            tensor.fill_(self._steps)

    def _take_states(self, optimizer: torch.optim.Optimizer) -> None:
        """Counts in the states that a checkpoint has put in place of the former ones."""
        self._state = _CountedStates(self, optimizer.state)
        optimizer.state = self._state
        self.generation += 1
        self._read()


class _CountedStates(defaultdict[Tensor, Any]):
    """The states of an optimizer, with counts that are right whenever they are read."""

    def __init__(self, counts: StepCounts, states: defaultdict[Tensor, Any]) -> None:
        super().__init__(dict, states)
        self._counts = counts

    def __getitem__(self, key: Tensor) -> Any:
        self._counts.write()
        return super().__getitem__(key)

    def items(self) -> dict_items[Tensor, Any]:
        """See `dict.items`."""
        self._counts.write()
        return super().items()

    def values(self) -> dict_values[Tensor, Any]:
        """See `dict.values`."""
        self._counts.write()
        return super().values()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is a plain dictionary: whoever trains with it counts anew."""
        pairs: Iterator[tuple[Tensor, Any]] = iter(self.items())
        return defaultdict, (dict,), None, None, pairs


_COUNTS: WeakKeyDictionary[torch.optim.Optimizer, StepCounts] = WeakKeyDictionary()


def _most_steps(states: defaultdict[Tensor, Any]) -> int:
    """The step count in an optimizer's states; SGD with momentum has none: 1 if it has made any step."""
    steps = 0
    for state in dict[Tensor, Any].values(states):
        if isinstance(count := state.get("step"), Tensor):
            steps = max(steps, int(count))
        elif isinstance(state.get("momentum_buffer"), Tensor):
            steps = max(steps, 1)
    return steps
