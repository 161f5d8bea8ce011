"""How attention meets the cache of keys and values: of one text, whose new tokens follow each other, or of a batch,
which has one new token of each of its sequences. No family sees how a cache lies in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aicf.llm.batch_state import NextTokens
from aicf.llm.token_state import NewTokens

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value


@dataclass(frozen=True)
class Cache(ABC):
    """A cache of `capacity` positions for each text."""

    graph: Graph
    capacity: int

    @abstractmethod
    def append(self, name: str, new: Value) -> Value:
        """The state `name` with new rows, for this run and the next, as attention reads it.

        Args:
            name: Of the state.
            new: [T, kv_heads, head_width].
        """

    @abstractmethod
    def queries(self, query: Value) -> Value:
        """[T, heads, head_width] as attention reads it."""

    @abstractmethod
    def joined(self, mixed: Value) -> Value:
        """What attention gives, as [T, heads * head_width]."""


@dataclass(frozen=True)
class TextCache(Cache):
    """Of one text: states are [capacity, kv_heads, head_width]."""

    new: NewTokens

    def append(self, name: str, new: Value) -> Value:
        """See `Cache`: [kv_heads, capacity, head_width]."""
        graph, (_, heads, width) = self.graph, new.shape
        state = graph.state(name, (self.capacity, heads, width), new.dtype)
        updated = graph.scatter(state, self.new.rows, new)
        graph.update(state, updated)
        return graph.transpose(updated, (1, 0, 2))

    def queries(self, query: Value) -> Value:
        """See `Cache`: [heads, T, head_width]."""
        return self.graph.transpose(query, (1, 0, 2))

    def joined(self, mixed: Value) -> Value:
        """See `Cache`, of [heads, T, head_width]."""
        heads, _, width = mixed.shape
        assert isinstance(heads, int) and isinstance(width, int)
        return self.graph.reshape(self.graph.transpose(mixed, (1, 0, 2)), ("T", heads * width))


@dataclass(frozen=True)
class BatchCache(Cache):
    """Of a batch of T sequences: states are [T, capacity, kv_heads, head_width]."""

    new: NextTokens

    def append(self, name: str, new: Value) -> Value:
        """See `Cache`: [T, kv_heads, capacity, head_width]."""
        graph, (_, heads, width) = self.graph, new.shape
        state = graph.state(name, ("T", self.capacity, heads, width), new.dtype)
        one = ("T", 1, heads, width)
        at = graph.broadcast_to(graph.reshape(self.new.written, ("T", 1, 1, 1)), one)
        updated = graph.scatter_elements(state, at, graph.reshape(new, one), 1)
        graph.update(state, updated)
        return graph.transpose(updated, (0, 2, 1, 3))

    def queries(self, query: Value) -> Value:
        """See `Cache`: [T, heads, 1, head_width]."""
        return self.graph.expand_dims(query, 2)

    def joined(self, mixed: Value) -> Value:
        """See `Cache`, of [T, heads, 1, head_width]."""
        _, heads, _, width = mixed.shape
        assert isinstance(heads, int) and isinstance(width, int)
        return self.graph.reshape(mixed, ("T", heads * width))
