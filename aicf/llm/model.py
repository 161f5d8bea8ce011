"""A language model that is loaded: it makes text, token by token, from compiled programs that share one state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aicf.compiled import CompiledModel
from aicf.errors import InputMismatch
from aicf.llm.families.common import LAST, POSITION, TOKENS
from aicf.llm.tokenizer import StreamDecoder, Tokenizer
from aicf.runtime.graph_exec import GraphExec
from aicf.runtime.tensors import Array
from aicf.whole_numbers import is_whole


class LanguageModel:
    """A decoder, its tokenizer, and the tokens that its cache holds. For one thread at a time.

    Args:
        executable: Its programs, for one token and for `prefill` tokens.
        tokenizer: Of its text.
        capacity: Positions of its cache.
        prefill: Tokens that the larger program takes.
    """

    def __init__(self, executable: CompiledModel, tokenizer: Tokenizer, capacity: int, prefill: int) -> None:
        self.executable, self.tokenizer, self.capacity = executable, tokenizer, capacity
        self._prefill = prefill
        self._known: list[int] = []
        self._steps: dict[int, GraphExec] = {}

    def generate(self, prompt: str, *, max_tokens: int = 128) -> Iterator[str]:
        """The text that follows a prompt, in pieces as it is made: at each step the likeliest token, until the model
        ends it.

        Args:
            prompt: Text; names of control tokens in it become those tokens.
            max_tokens: Most tokens that are made.

        Raises:
            InputMismatch: the prompt is empty, or the cache has no room for it and the tokens.
        """
        decoder = StreamDecoder(self.tokenizer)
        for token in self.tokens(self.tokenizer.encode(prompt), max_tokens=max_tokens):
            if piece := decoder.push(token):
                yield piece
        if rest := decoder.finish():
            yield rest

    def tokens(self, prompt: Sequence[int], *, max_tokens: int = 128) -> Iterator[int]:
        """As `generate`, of token ids; the token that ends a text is not among them."""
        self._check(prompt, max_tokens)
        logits = self.logits(prompt)
        for number in range(max_tokens):
            token = int(np.argmax(logits))
            if token == self.tokenizer.end:
                return
            yield token
            if number + 1 < max_tokens:
                logits = self._run([token])

    def logits(self, tokens: Sequence[int]) -> Array:
        """f32[vocabulary]: what may follow these tokens. What the cache has of them already is not computed again."""
        shared = 0
        while shared < min(len(tokens) - 1, len(self._known)) and tokens[shared] == self._known[shared]:
            shared += 1
        self._known = self._known[:shared]
        logits: Array | None = None
        for start in range(shared, len(tokens), self._prefill):
            logits = self._run(tokens[start : start + self._prefill])
        assert logits is not None
        return logits

    def _run(self, tokens: Sequence[int]) -> Array:
        """Puts at most `prefill` tokens after those that the cache holds; the logits after the last one."""
        size = 1 if len(tokens) == 1 else self._prefill
        start = len(self._known)
        if start + size > self.capacity:  # padding must not run over the end, where it would be clamped
            for token in tokens[:-1]:
                self._run([token])
            return self._run(tokens[-1:])
        step = self._step(size)
        padded = np.zeros(size, np.int64)
        padded[: len(tokens)] = tokens
        numbers = np.array([start], np.int64), np.array([len(tokens) - 1], np.int64)
        step.fill({TOKENS: padded, POSITION: numbers[0], LAST: numbers[1]})
        step.replay()
        step.synchronize()
        self._known = [*self._known, *tokens]
        return np.array(step["logits"])

    def _step(self, size: int) -> GraphExec:
        if size not in self._steps:
            self._steps[size] = self.executable.attach(T=size)
        return self._steps[size]

    def _check(self, prompt: Sequence[Any], max_tokens: object) -> None:
        if not is_whole(max_tokens, least=0):
            raise InputMismatch(f"max_tokens is {max_tokens}; it is a whole number, 0 or more")
        assert isinstance(max_tokens, int)
        if not len(prompt):
            raise InputMismatch("the prompt is empty; give at least one token")
        if len(prompt) + max_tokens > self.capacity:
            raise InputMismatch(
                f"the prompt has {len(prompt):,} tokens and {max_tokens:,} may follow; the cache has {self.capacity:,} "
                "positions: load the model with a larger context"
            )
