"""A language model that is loaded: it makes text, token by token, from compiled programs that share one state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from aicf.compilation.compiled import CompiledModel
from aicf.errors import CaptureError, InputMismatch, quoted
from aicf.llm.chat import Chat
from aicf.llm.chat_template import ChatTemplate
from aicf.llm.sampling import Sampling
from aicf.llm.stats import Pace, Stats
from aicf.llm.stopping import stop_strings, until_stop
from aicf.llm.token_state import COUNT, HISTORY, LOGITS, START, TOKENS
from aicf.llm.tokenizer import StreamDecoder, Tokenizer
from aicf.runtime.graph_exec import GraphExec
from aicf.runtime.tensors import Array
from aicf.support.whole_numbers import is_whole

_GREEDY = Sampling()
_AHEAD = 16
"""Most tokens that a device makes while the host reads those before them."""


class LanguageModel:
    """A decoder, its tokenizer, and the tokens that its cache holds. For one thread and one text at a time: whoever
    begins another text, or asks for logits, ends the one before, whose iterator then raises InputMismatch.

    Args:
        executable: Its programs, for one token and for `prefill` tokens.
        tokenizer: Of its text.
        capacity: Positions of its cache.
        prefill: Tokens that the larger program takes.
        template: Of its conversations; None if it has none.
        named_tokens: Texts of the tokens `bos_token` and `eos_token`, for templates of others.
    """

    def __init__(
        self,
        executable: CompiledModel,
        tokenizer: Tokenizer,
        capacity: int,
        prefill: int,
        template: ChatTemplate | None = None,
        named_tokens: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.executable, self.tokenizer, self.capacity = executable, tokenizer, capacity
        self.template, self.named_tokens = template, named_tokens
        self._prefill = prefill
        self._known: list[int] = []
        self._texts = 0
        self._steps: dict[int, GraphExec] = {}
        self._sampling = _GREEDY
        self._is_device = executable.native.memory == "device"
        outputs = executable.plan.programs[0].graph.with_role("output")
        (self.vocabulary,) = next(bind.shape for bind in outputs if bind.name == LOGITS)
        self._prompt, self._answer, self._reused = Pace(), Pace(), 0

    # Text

    def generate(
        self, prompt: str, *, max_tokens: int = 128, stop: str | Sequence[str] = (), **settings: Any
    ) -> Iterator[str]:
        """The text that follows a prompt, in pieces as it is made, until the model ends it.

        Args:
            prompt: Text; names of control tokens in it become those tokens.
            max_tokens: Most tokens that are made.
            stop: Text, or several, before which the answer ends.
            settings: Those of `Sampling`: temperature, top_k, top_p, min_p, repetition_penalty and seed; without any,
                the likeliest token at each step.

        Raises:
            InputMismatch: the prompt is empty, the cache has no room for it and the tokens, or a setting is out of its
                range; while the text is read: another one was begun on this model.
        """
        stops, sampling = stop_strings(stop), sampling_of(settings)
        tokens = self.tokens(self.tokenizer.encode(prompt), max_tokens=max_tokens, sampling=sampling)
        return until_stop(self._pieces(tokens), stops)

    def chat(
        self, system: str | None = None, *, template: ChatTemplate | None = None, **settings: Any
    ) -> Chat:
        """A conversation.

        Args:
            system: What the model is told about its part; None for what the template says itself.
            template: In place of the model's own.
            settings: As of `generate`, `max_tokens` and `stop` among them.

        Raises:
            InputMismatch: the model has no chat template, or a setting is out of its range.
        """
        template = self.template if template is None else template.with_tokens(self.named_tokens)
        if template is None:
            raise InputMismatch("the model has no chat template; give one, or use generate")
        sampling_of({name: value for name, value in settings.items() if name not in ("max_tokens", "stop")})
        return Chat(self, template, system, settings)

    def _pieces(self, tokens: Iterator[int]) -> Iterator[str]:
        decoder = StreamDecoder(self.tokenizer)
        for token in tokens:
            if piece := decoder.push(token):
                yield piece
        if rest := decoder.finish():
            yield rest

    # Tokens

    def tokens(
        self, prompt: Sequence[int], *, max_tokens: int = 128, sampling: Sampling = _GREEDY
    ) -> Iterator[int]:
        """As `generate`, of token ids; a token that ends a text is not among them."""
        self._check(prompt, max_tokens)
        return self._of_one_text(prompt, max_tokens, sampling)

    def logits(self, tokens: Sequence[int]) -> Array:
        """f32[vocabulary]: what may follow these tokens. What the cache has of them already is not computed again."""
        self._check(tokens, 0)
        self._texts += 1
        return np.array(self._read(tokens)[LOGITS])

    @property
    def stats(self) -> Stats:
        """Tokens a second of the last generation, and the memory of the model."""
        memory = self.executable.memory()
        work = sum(size for use, size in memory.items() if use.startswith("instance@"))
        weights = memory.get("weights", 0) + memory.get("derived", 0)
        return Stats(self._prompt, self._reused, self._answer, weights, memory.get("state", 0), work)

    def _of_one_text(self, prompt: Sequence[int], max_tokens: int, sampling: Sampling) -> Iterator[int]:
        """The tokens that follow a prompt, as long as nobody begins another text."""
        if not max_tokens:
            return
        self._texts += 1
        number = self._texts
        for token in self._tokens(prompt, max_tokens, sampling):
            yield token
            if self._texts != number:
                raise InputMismatch(
                    "another text was begun on this model; finish one before the next, or load the model twice"
                )

    def _tokens(self, prompt: Sequence[int], max_tokens: int, sampling: Sampling) -> Iterator[int]:
        self._set(sampling)
        self._answer = Pace()
        step = self._read(prompt)
        step.synchronize()
        yield from self._following(max_tokens)

    def _following(self, count: int) -> Iterator[int]:
        """At most `count` tokens, of which the program has chosen the first. A device makes the next ones while the
        caller uses these."""
        chosen = self._history(len(self._known), 1)
        count -= 1
        step = self._step(1)
        step.fill({START: np.array([-1]), COUNT: np.array([0])})
        ahead = 1
        while True:
            queued = min(ahead, count)
            if queued and self._is_device:
                step.replay(queued)
            for token in chosen:
                if token < 0:
                    raise CaptureError("a logit is not a number; check the model's weights")
                if token in self.tokenizer.ends:
                    return
                yield token
            if not queued:
                return
            with self._answer.timed(queued):
                if not self._is_device:
                    step.replay(queued)
                first = len(self._known) + 1
                made = self._history(first, queued)
            self._known += [*chosen[-1:], *made[:-1]]
            chosen, count = made, count - queued
            if self._is_device:
                ahead = min(2 * ahead, _AHEAD)

    def _history(self, first: int, count: int) -> list[int]:
        """The tokens at `count` positions from `first` on, after all replays."""
        return self.executable.state(HISTORY)[HISTORY][first : first + count].tolist()

    def _set(self, sampling: Sampling) -> None:
        self._sampling = sampling
        for step in self._steps.values():
            step.fill(sampling.feeds())

    def _read(self, tokens: Sequence[int]) -> GraphExec:
        """Puts tokens into the cache that it does not have; the program that has run last, of the last of them."""
        shared, most = 0, min(len(tokens) - 1, len(self._known))
        while shared < most and tokens[shared] == self._known[shared]:
            shared += 1
        self._known = self._known[:shared]
        self._reused, self._prompt = shared, Pace()
        step = self._step(1)
        for start in range(shared, len(tokens), self._prefill):
            part = tokens[start : start + self._prefill]
            with self._prompt.timed(len(part)):
                step = self._run(part)
        return step

    def _run(self, tokens: Sequence[int]) -> GraphExec:
        """Puts at most `prefill` tokens after those that the cache holds."""
        size = 1 if len(tokens) == 1 else self._prefill
        start = len(self._known)
        if start + size > self.capacity:  # padding must not run over the end
            for token in tokens[:-1]:
                self._run([token])
            return self._run(tokens[-1:])
        step = self._step(size)
        padded = np.zeros(size, np.int64)
        padded[: len(tokens)] = tokens
        step.fill({TOKENS: padded, START: np.array([start]), COUNT: np.array([len(tokens)])})
        step.replay()
        step.synchronize()
        self._known = [*self._known, *tokens]
        return step

    def _step(self, size: int) -> GraphExec:
        if size not in self._steps:
            step = self._steps[size] = self.executable.attach(T=size)
            step.fill(self._sampling.feeds())
            step.fill({TOKENS: np.zeros(size, np.int64)})
        return self._steps[size]

    def _check(self, prompt: Sequence[Any], max_tokens: object) -> None:
        if not is_whole(max_tokens, least=0):
            raise InputMismatch(f"max_tokens is {quoted(max_tokens)}; it is a whole number, 0 or more")
        assert isinstance(max_tokens, int)
        if not len(prompt):
            raise InputMismatch("the prompt is empty; give at least one token")
        for token in prompt:
            if not is_whole(token, least=0) or token >= self.vocabulary:
                raise InputMismatch(
                    f"token {quoted(token)} is not in the vocabulary; ids are 0 to {self.vocabulary - 1:,}"
                )
        if len(prompt) + max_tokens > self.capacity:
            raise InputMismatch(
                f"the prompt has {len(prompt):,} tokens and {max_tokens:,} may follow; the cache has {self.capacity:,} "
                "positions; ask for fewer tokens, or load the model with a larger context"
            )


def sampling_of(settings: Mapping[str, Any]) -> Sampling:
    """Settings by name. Raises InputMismatch for one that there is none of, or that is out of its range."""
    try:
        return Sampling(**settings)
    except TypeError:
        unknown = next(name for name in settings if name not in Sampling.__dataclass_fields__)
        known = ", ".join(Sampling.__dataclass_fields__)
        raise InputMismatch(f"there is no setting {quoted(unknown)}; there are {known}") from None
