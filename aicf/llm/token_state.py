"""Tokens that stay on the device: a program takes the token that its last run chose, and chooses the next one.

A decoder keeps two states besides its keys and values: `history`, i64[capacity + 1], the token of each position, and
`length`, i64[1], how many positions its cache holds. A run takes `count` tokens of its input from position `start` on.
With `count` 0 it takes the token that is next in the history, and with `start` -1 it goes on where the last run
stopped: so replays that follow each other need nothing of the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aicf.llm.sampling import SETTINGS
from aicf.runtime.tensors import Array

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value

TOKENS, START, COUNT = "tokens", "start", "count"
"""Inputs of a decoder, besides the settings of `aicf.llm.sampling`."""
HISTORY, LENGTH = "history", "length"
"""States."""
LOGITS, TOKEN = "logits", "token"
"""Outputs: f32[vocabulary], and i64[1], which is -1 if a logit is not a number."""

COLDEST = 1e-30
"""In place of a temperature of 0: only the largest logit keeps a weight."""
WHOLE = float(1 << 30)
"""The weight of the likeliest token. Weights are whole numbers, which all backends add up to the same sum."""


def token_states(capacity: int) -> dict[str, Array]:
    """The states of a decoder that has run nothing yet."""
    return {HISTORY: np.zeros(capacity + 1, np.int64), LENGTH: np.zeros(1, np.int64)}


@dataclass(frozen=True)
class NewTokens:
    """The tokens of a run.

    Args:
        graph: Of the decoder.
        tokens: i64[T].
        rows: i64[T], their positions.
        first: i64[1], the first of these.
        used: i64[1], how many of them count; those after them only fill the program's size.
        length: i64[1], how many positions the cache holds after the run.
        history: i64[capacity + 1], with these tokens.
        states: `history` and `length` as they were before.
    """

    graph: Graph
    tokens: Value
    rows: Value
    first: Value
    used: Value
    length: Value
    history: Value
    states: tuple[Value, Value]

    @staticmethod
    def of(graph: Graph, capacity: int) -> NewTokens:
        """Adds the inputs `tokens`, i64[T], `start` and `count`, i64[1], and the two states."""
        given, start, count = (
            graph.input(name, shape, "i64")
            for name, shape in ((TOKENS, ("T",)), (START, (1,)), (COUNT, (1,)))
        )
        before, length = graph.state(HISTORY, (capacity + 1,), "i64"), graph.state(LENGTH, (1,), "i64")
        first = graph.where(start < 0, length, start)
        index = graph.iota(("T",), 0, "i64")
        rows, used = index + first, graph.max(count, 1)
        tokens = graph.where(index < count, given, graph.gather(before, rows))
        history = graph.scatter(before, rows, tokens)
        return NewTokens(graph, tokens, rows, first, used, first + used, history, (before, length))

    def last(self, x: Value) -> Value:
        """f32[1, width]: the row of x[T, width] of the last token that counts."""
        return self.graph.gather(x, self.used - 1, name="last")

    def choose(self, logits: Value) -> None:
        """Chooses the token that comes next, puts it into the history, and makes it and the logits the outputs.

        Args:
            logits: f32[vocabulary].
        """
        graph = self.graph
        settings = {name: graph.input(name, (1,), dtype) for name, dtype in SETTINGS.items()}
        penalised = self._penalised(logits, settings["repetition_penalty"])
        token = self._drawn(penalised, settings)
        history, length = self.states
        graph.update(history, graph.scatter(self.history, self.length, token))
        graph.update(length, self.length)
        graph.output(logits, LOGITS)
        graph.output(token, TOKEN)

    def _penalised(self, logits: Value, penalty: Value) -> Value:
        """The logits, with those of all tokens of the history made less likely."""
        graph, (vocabulary,) = self.graph, logits.shape
        positions = graph.iota(self.history.shape, 0, "i64")
        # What is out of range is dropped.
        seen = graph.where(positions < self.length, self.history, graph.constant(vocabulary, (), "i64"))
        none, known = (graph.constant(what, x.shape, "i1") for what, x in ((False, logits), (True, seen)))
        changed = graph.where(logits > 0, logits / penalty, logits * penalty)
        return graph.where(graph.scatter(none, seen, known), changed, logits)

    def _drawn(self, logits: Value, settings: dict[str, Value]) -> Value:
        from aicf.llm.draw import DRAW

        graph, temperature = self.graph, settings["temperature"]
        below = logits - graph.reduce_max(logits, axes=(0,), keepdims=True)
        shares = graph.exp(below / graph.max(temperature, COLDEST))
        weights = graph.cast(shares * WHOLE, "i32", name="weights")
        seed, position = (graph.reshape(value, ()) for value in (settings["seed"], self.length))
        number = graph.philox(seed, position, (1,), "uniform", "f64")
        # Of several largest logits the first one is the likeliest token.
        number = graph.where(temperature > 0, number, graph.cast(temperature, "f64"))
        filters = [settings[name] for name in ("top_k", "top_p", "min_p")]
        return graph.op(DRAW, weights, number, *filters, name="draw")
