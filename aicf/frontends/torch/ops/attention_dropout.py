"""Dropout of attention weights: the mask, and the state from which the backward op draws the same mask.

The forward and the backward part may be separate programs. So the state of the library's random numbers, which PyTorch
passes from one to the other, is here the seed and the offset of the Philox stream of the mask.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer


@dataclass(frozen=True)
class Dropout:
    """Weights of one attention that are dropped.

    Args:
        rate: The chance of each, above 0 and at most 1.
        seed, offset: Of the stream, i64 of rank 0.
    """

    rate: float
    seed: Value
    offset: Value

    def applied(self, writer: Writer, weights: Value) -> Value:
        """weights / (1 - rate) where they are kept, 0 elsewhere; the gradient is the same function of the gradient."""
        graph = writer.graph
        if self.rate == 1:
            return graph.select(graph.ne(weights, weights), weights, 0.0)
        drawn = graph.philox(self.seed, self.offset, list(writer.sizes(weights)), "uniform", "f32")
        return graph.select(graph.ge(drawn, self.rate), weights * (1 / (1 - self.rate)), 0.0)


def drawn_dropout(writer: Writer, rate: float, shape: Sequence[int]) -> Dropout | None:
    """The dropout of weights of a shape, with random numbers that no other node has; None at a rate of 0."""
    if not _is_dropped(writer, rate):
        return None
    seed, offset = writer.stream(math.prod(shape))
    return Dropout(float(rate), seed, writer.full((), offset, "i64"))


def same_dropout(writer: Writer, rate: float, state: Sequence[object]) -> Dropout | None:
    """The dropout of the forward part, from its state; None at a rate of 0.

    Args:
        state: What PyTorch passes as seed and offset: two numbers, or both in the first tensor.
    """
    if not _is_dropped(writer, rate):
        return None
    seed, offset = state
    if not isinstance(seed, Value):
        writer.unsupported(
            "dropped weights without the state of their random numbers", "set the dropout to 0"
        )
    if seed.rank:
        parts = (writer.drop(writer.part(seed, 0, index, index + 1), 0) for index in range(2))
        return Dropout(float(rate), *parts)
    assert isinstance(offset, Value)
    return Dropout(float(rate), seed, offset)


def state_of(writer: Writer, dropout: Dropout | None, first: int, seed_at: int) -> list[Value | None]:
    """The results from `first` on of an attention: its state for the backward op, and zeros for unused results.

    Args:
        seed_at: The result that has the seed, and the offset too if it has two numbers, else the next result has it.
    """
    state: dict[int, Value] = {}
    if dropout is not None and writer.results[seed_at].shape:
        pair = [writer.insert(one, 0) for one in (dropout.seed, dropout.offset)]
        state = {seed_at: writer.graph.concat(pair, 0)}
    elif dropout is not None:
        state = {seed_at: dropout.seed, seed_at + 1: dropout.offset}
    return [
        None
        if index not in writer.used or not tensor.count
        else state.get(index) or writer.full(tensor.shape, 0, tensor.dtype)
        for index, tensor in list(enumerate(writer.results))[first:]
    ]


def _is_dropped(writer: Writer, rate: float) -> bool:
    if not 0 <= rate <= 1:
        writer.unsupported(f"attention that drops weights at a rate of {rate}", "give a rate from 0 to 1")
    return rate > 0
