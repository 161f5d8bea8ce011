"""Losses that a training step applies to a model's output: descriptions named as the classes of `torch.nn`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from numbers import Real
from typing import TypeAlias

from aicf.dialects.logical import IGNORE_INDEX, LossReduction
from aicf.dialects.types import TensorInfo, element_named
from aicf.errors import InvalidIR, quoted
from aicf.frontends.builder import Graph, Value

__all__ = [
    "BY_NAME",
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "HuberLoss",
    "Loss",
    "LossLike",
    "MSELoss",
    "resolve_loss",
]


@dataclass(frozen=True)
class Loss(ABC):
    """One number for how far a prediction is from its target.

    Args:
        reduction: `mean` over all samples, or their `sum`.

    Raises:
        InvalidIR: the reduction gives more than one number.
    """

    reduction: LossReduction = "mean"

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            if isinstance(field.default, int | float) and not isinstance(value, int | float | Real):
                raise InvalidIR(f"loss: {field.name} is {quoted(value)}; give a number")
        if not isinstance(self.reduction, str) or self.reduction not in ("mean", "sum"):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidIR(
                f"loss: reduction is {quoted(self.reduction)}; a step goes down one number, so it is mean or sum"
            )

    def target(self, prediction: TensorInfo) -> TensorInfo:
        """The target of a prediction."""
        return prediction

    @property
    def has_classes(self) -> bool:
        """Whether dimension 1 of a prediction is that of classes."""
        return False

    @abstractmethod
    def value(self, graph: Graph, prediction: Value, target: Value, name: str) -> Value:
        """The loss of a prediction as an op called `name`, of rank 0."""


@dataclass(frozen=True)
class MSELoss(Loss):
    """The squared error."""

    def value(self, graph: Graph, prediction: Value, target: Value, name: str) -> Value:
        """See `Loss.value`."""
        return graph.mse_loss(prediction, target, self.reduction, name=name)


@dataclass(frozen=True)
class HuberLoss(Loss):
    """Half the squared error up to the distance `delta`, then a line."""

    delta: float = 1.0

    def value(self, graph: Graph, prediction: Value, target: Value, name: str) -> Value:
        """See `Loss.value`."""
        return graph.huber_loss(prediction, target, self.reduction, self.delta, name=name)


@dataclass(frozen=True)
class BCEWithLogitsLoss(Loss):
    """The cross-entropy of the sigmoid of a prediction and a target from 0 to 1."""

    def value(self, graph: Graph, prediction: Value, target: Value, name: str) -> Value:
        """See `Loss.value`."""
        return graph.bce_with_logits(prediction, target, self.reduction, name=name)


@dataclass(frozen=True)
class CrossEntropyLoss(Loss):
    """The cross-entropy of the softmax of a prediction [N, C, ...] and labels i64 [N, ...].

    Samples with the label `ignore_index` do not count; `label_smoothing` spreads that much weight over all classes.
    """

    ignore_index: int = IGNORE_INDEX
    label_smoothing: float = 0.0

    @property
    def has_classes(self) -> bool:
        """See `Loss.has_classes`."""
        return True

    def target(self, prediction: TensorInfo) -> TensorInfo:
        """See `Loss.target`."""
        classes = min(1, prediction.rank - 1)
        sizes = (*prediction.sizes[:classes], *prediction.sizes[classes + 1 :])
        return TensorInfo(sizes, element_named("i64"))

    def value(self, graph: Graph, prediction: Value, target: Value, name: str) -> Value:
        """See `Loss.value`."""
        return graph.cross_entropy(
            prediction, target, None, self.reduction, self.ignore_index, self.label_smoothing, name=name
        )


BY_NAME: dict[str, type[Loss]] = {
    "bce_with_logits": BCEWithLogitsLoss,
    "cross_entropy": CrossEntropyLoss,
    "huber": HuberLoss,
    "mse": MSELoss,
}
"""The names that stand for a loss with its defaults."""

LossLike: TypeAlias = Loss | str | None
"""A loss, its name, or None where the model computes it as an output called `loss`."""


def resolve_loss(loss: LossLike) -> Loss | None:
    """The loss meant. Raises InvalidIR for an unknown name, and for what is no loss."""
    if loss is None or isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidIR(
            f"the loss is {quoted(loss)}; it is a name ({', '.join(BY_NAME)}), None, or one made as in "
            "aicf.losses.CrossEntropyLoss()"
        )
    if loss not in BY_NAME:
        raise InvalidIR(f"there is no loss '{loss}'; legal: {', '.join(BY_NAME)}")
    return BY_NAME[loss]()
