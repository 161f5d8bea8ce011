"""The tokens of a batch that stay on the device: one token of each sequence a run, each at a position of its own.

As `aicf.llm.token_state`, of several sequences: `history`, i64[T, capacity + 1], and `length`, i64[T]. A run takes the
token that is next in the history of each sequence and chooses the one after it, and needs nothing of the host. A
sequence whose length has reached its `limit` is idle: it reads the first position of its cache and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aicf.llm.sampling import SETTINGS
from aicf.llm.token_state import COLDEST, HISTORY, LENGTH, LOGITS, TOKEN, WHOLE
from aicf.runtime.tensors import Array

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value

LIMIT = "limit"
"""Input of a program of a batch, i64[T], besides the settings of `aicf.llm.sampling`."""


def batch_states(states: Mapping[str, Array], sequences: int) -> dict[str, Array]:
    """The states of a batch: those of one sequence so many times; `length` i64[sequences]."""
    one = {name: array if name == LENGTH else array[None] for name, array in states.items()}
    return {name: np.zeros((sequences, *array.shape[1:]), array.dtype) for name, array in one.items()}


@dataclass(frozen=True)
class NextTokens:
    """The token of each sequence of a batch, and what becomes of the next one.

    Args:
        graph: Of the decoder.
        tokens: i64[T].
        rows: i64[T], their positions; 0 of an idle sequence.
        written: i64[T], the positions that are written; past the cache of an idle sequence.
        length: i64[T], how many positions the cache of each holds after the run.
        is_live: i1[T], whether a sequence is not idle.
        after: i64[T], the position of the token that is chosen; past the history of an idle sequence.
        states: `history` and `length` as they were before.
    """

    graph: Graph
    tokens: Value
    rows: Value
    written: Value
    length: Value
    is_live: Value
    after: Value
    states: tuple[Value, Value]

    @staticmethod
    def of(graph: Graph, capacity: int) -> NextTokens:
        """Adds the input `limit`, i64[T], and the two states."""
        limit = graph.input(LIMIT, ("T",), "i64")
        history, length = graph.state(HISTORY, ("T", capacity + 1), "i64"), graph.state(LENGTH, ("T",), "i64")
        is_live = length < limit
        tokens = graph.gather_elements(history, graph.expand_dims(length, 1), 1)
        return NextTokens(
            graph,
            graph.reshape(tokens, ("T",)),
            graph.where(is_live, length, 0),
            graph.where(is_live, length, capacity),
            graph.where(is_live, length + 1, length),
            is_live,
            graph.where(is_live, length + 1, capacity + 1),
            (history, length),
        )

    def last(self, x: Value) -> Value:
        """x[T, width]: the row of each sequence, of an idle one any.

        The rows are gathered, as the program of one text gathers its last one: what follows is then fused with nothing
        before it in either, and sums in the same order.
        """
        numbers = self.graph.iota(("T",), 0, "i64")
        return self.graph.gather(x, self.graph.where(self.is_live, numbers, 0), name="last")

    def choose(self, logits: Value) -> None:
        """Chooses the token of each sequence that comes next, puts it into the history, and makes them and the logits
        the outputs.

        Args:
            logits: f32[T, vocabulary].
        """
        graph = self.graph
        settings = {name: graph.input(name, ("T",), dtype) for name, dtype in SETTINGS.items()}
        token = self._drawn(self._penalised(logits, settings["repetition_penalty"]), settings)
        history, length = self.states
        at, chosen = (graph.expand_dims(value, 1) for value in (self.after, token))
        graph.update(history, graph.scatter_elements(history, at, chosen, 1))
        graph.update(length, self.length)
        graph.output(logits, LOGITS)
        graph.output(token, TOKEN)

    def _penalised(self, logits: Value, penalty: Value) -> Value:
        """See `NewTokens`, for each sequence."""
        graph, (_, vocabulary) = self.graph, logits.shape
        history, _ = self.states
        positions = graph.iota(history.shape, 1, "i64")
        # The token of this run is in the history already.
        is_known = positions <= graph.expand_dims(self.rows, 1)
        seen = graph.where(is_known, history, graph.constant(vocabulary, (), "i64"))
        found = graph.gather_elements(logits, seen, 1)
        factor = graph.expand_dims(penalty, 1)
        changed = graph.where(found > 0, found / factor, found * factor)
        return graph.scatter_elements(logits, seen, changed, 1)

    def _drawn(self, logits: Value, settings: dict[str, Value]) -> Value:
        from aicf.llm.draw import DRAW

        graph, temperature = self.graph, settings["temperature"]
        below = logits - graph.reduce_max(logits, axes=(1,), keepdims=True)
        shares = graph.exp(below / graph.expand_dims(graph.max(temperature, COLDEST), 1))
        weights = graph.cast(shares * WHOLE, "i32", name="weights")
        word = graph.philox_word(settings["seed"], self.length, graph.constant(0, ("T",), "i64"))
        number = graph.cast(word, "f64") * 2.0**-32 + 0.5  # as `philox` makes a uniform f64 of a word
        number = graph.where(temperature > 0, number, graph.cast(temperature, "f64"))
        filters = [settings[name] for name in ("top_k", "top_p", "min_p")]
        return graph.op(DRAW, weights, number, *filters, name="draw")
