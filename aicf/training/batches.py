"""Micro-batches: a batch goes through the model in parts, and the gradients of the parts add up.

The model stands in the program once for each part. A part goes forward and back before the next one comes, so that the
memory of one is used again by the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aicf.dialects.step_names import STEP, TARGET
from aicf.dialects.types import TensorInfo
from aicf.errors import InvalidIR
from aicf.frontends.builder import Graph, Value
from aicf.passes.support.identity import part_id
from aicf.training.forward import Forward, shape_of
from aicf.training.losses import Loss

LOSS = "loss"
"""Name of the result."""


@dataclass
class Batches:
    """The parts of a batch in a graph.

    Args:
        graph: Takes the ops.
        forward: The model of one part.
        loss: Applied to the model's output; None if the model has an output `loss`.
        count: Number of parts, 1 for none.
        values: The arguments of the model by name, and the target; inputs are of the whole batch. What the model
            updates is replaced by its new value.
    """

    graph: Graph
    forward: Forward
    loss: Loss | None
    count: int
    values: dict[str, Value]

    def __post_init__(self) -> None:
        self._updated = {result.name for result in self.forward.results if result.is_update}

    def loss_and_gradients(self, by: Sequence[str]) -> tuple[Value, dict[str, Value]]:
        """The loss of the whole batch, and its derivatives by arguments of these names."""
        totals: dict[str, Value] = {}
        for part in range(self.count):
            parameters = {name: self.values[name] for name in by}
            loss = self._forward(part)
            self._add(totals, LOSS, loss, part)
            for name, value in parameters.items():
                gradient = self.graph.gradient(loss, value, name=self._named(f"{name}.grad", part))
                self._add(totals, name, gradient, part)
        loss = self._share(totals.pop(LOSS), LOSS)
        return loss, {name: self._share(total, f"{name}.grad") for name, total in totals.items()}

    def _add(self, totals: dict[str, Value], name: str, value: Value, part: int) -> None:
        """Adds what one part has to the total of the parts before."""
        if name in totals:
            value = self.graph.add(totals[name], value, name=self._named(f"{name}.total", part))
        totals[name] = value

    def _share(self, total: Value, name: str) -> Value:
        """The mean over the parts, of a loss that is a mean itself."""
        adds_up = self.loss is not None and self.loss.reduction == "sum"
        return total if self.count == 1 or adds_up else self.graph.mul(total, 1 / self.count, name=name)

    def _forward(self, part: int) -> Value:
        """The loss of one part."""
        function = self.forward.function if self.count == 1 else self.forward.copy_for(part)
        arguments = [self._argument(a.name, a.role, part) for a in self.forward.arguments]
        outputs: dict[str, Value] = {}
        for result, value in zip(self.forward.results, self.graph.inline(function, arguments), strict=True):
            (self.values if result.is_update else outputs)[result.name] = value
        if self.loss is None:
            return outputs[LOSS]
        (prediction,) = outputs.values()
        target = self._argument(TARGET, "input", part)
        return self.loss.value(self.graph, prediction, target, self._named(LOSS, part))

    def _argument(self, name: str, role: str, part: int) -> Value:
        """What an argument is for one part. What the part before left in a state or meta is a constant to the gradients
        of this one, as both are to a whole batch."""
        value = self.values[name]
        if self.count == 1:
            return value
        if part and name in self._updated:
            return self.graph.detach(value, name=self._named(f"{name}.left", part))
        if name == STEP:  # each part has random numbers of its own
            return self.graph.add(value * self.count, part, name=self._named(STEP, part))
        if role != "input" or not value.rank:
            return value
        rows = value.info.shape[0] // self.count
        starts, sizes = [part * rows, *[0] * (value.rank - 1)], [rows, *[-1] * (value.rank - 1)]
        return self.graph.slice(value, starts, sizes, name=self._named(name, part))

    def _named(self, name: str, part: int) -> str:
        return name if self.count == 1 else part_id(name, part)


def whole_shape(info: TensorInfo, count: int) -> tuple[int | str, ...]:
    """The shape of all parts together: dimension 0 is that of the samples, one number is for all of them.

    Raises:
        InvalidIR: the size of a part is symbolic.
    """
    shape = shape_of(info)
    if count == 1 or not shape:
        return shape
    if not info.is_static:
        raise InvalidIR('micro-batches have a fixed size; give that of one as dims, such as {"N": 16}')
    return (info.shape[0] * count, *shape[1:])


def prediction_of(forward: Forward, loss: Loss | None) -> TensorInfo:
    """What the loss is taken of, or the loss itself if that is None.

    Raises:
        InvalidIR: the model has several outputs, or the loss that it computes is not one number.
    """
    names = ", ".join(result.name for result in forward.outputs) or "none"
    if loss is not None:
        if len(forward.outputs) != 1:
            raise InvalidIR(
                f"the loss is taken of one output, '{forward.name}' has {names}; leave one, or compute the loss in the "
                f"model as its output '{LOSS}' and give loss=None"
            )
        return forward.outputs[0].info
    found: Mapping[str, TensorInfo] = {result.name: result.info for result in forward.outputs}
    if list(found) != [LOSS]:
        raise InvalidIR(f"without a loss, the model's one output is '{LOSS}'; '{forward.name}' has {names}")
    if found[LOSS].rank or not found[LOSS].element.is_float:
        raise InvalidIR(
            f"the loss is {found[LOSS]}; it is one float, such as a reduce_mean of it over all axes"
        )
    return found[LOSS]
