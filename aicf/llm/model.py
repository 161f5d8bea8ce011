"""A language model that is loaded: it makes text, token by token, from compiled programs that share one state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from aicf.compilation.compiled import CompiledModel
from aicf.errors import InputMismatch, quoted
from aicf.llm.batch_runs import Text, batch_tokens
from aicf.llm.chat import Chat
from aicf.llm.chat_template import ChatTemplate
from aicf.llm.programs import MOST_SEQUENCES, Programs
from aicf.llm.requests import Request, pieces
from aicf.llm.sampling import Sampling, sampling_of
from aicf.llm.stats import Stats
from aicf.llm.stopping import stop_strings, until_stop
from aicf.llm.text_runs import TextRuns
from aicf.llm.token_state import LOGITS
from aicf.llm.tokenizer import StreamDecoder, Tokenizer
from aicf.runtime.tensors import Array
from aicf.support.whole_numbers import is_whole

T = TypeVar("T")
_GREEDY = Sampling()


class LanguageModel:
    """A decoder, its tokenizer, and the tokens that its cache holds. For one thread and one text at a time: whoever
    begins another text, or asks for logits, ends the one before, whose iterator then raises InputMismatch.

    Args:
        executable: Its programs, for one token and for `prefill` tokens.
        tokenizer: Of its text.
        capacity: Positions that its cache has, or grows to.
        prefill: Tokens that the larger program takes.
        template: Of its conversations; None if it has none.
        named_tokens: Texts of the tokens `bos_token` and `eos_token`, for templates of others.
        programs: Makes programs for a larger cache and for batches; None makes none.
    """

    def __init__(
        self,
        executable: CompiledModel,
        tokenizer: Tokenizer,
        capacity: int,
        prefill: int,
        template: ChatTemplate | None = None,
        named_tokens: Mapping[str, str] = MappingProxyType({}),
        programs: Programs | None = None,
    ) -> None:
        self.runs = TextRuns(executable, capacity, prefill, programs)
        self.tokenizer, self.capacity = tokenizer, capacity
        self.template, self.named_tokens = template, named_tokens
        self._programs, self._begun = programs, 0
        outputs = executable.plan.programs[0].graph.with_role("output")
        (self.vocabulary,) = next(bind.shape for bind in outputs if bind.name == LOGITS)

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

    def generate_batch(
        self,
        prompts: Sequence[str | Mapping[str, Any]],
        *,
        batch: int = MOST_SEQUENCES,
        max_tokens: int = 128,
        stop: str | Sequence[str] = (),
        **settings: Any,
    ) -> Iterator[tuple[int, str]]:
        """The texts that follow several prompts, in pieces as they are made: pairs of the number of a prompt, from 0,
        and a piece of its text.

        Prompts that follow each other in the list are a batch, whose sequences make a token each in a run; one that has
        ended idles until all have. A batch runs in programs for 2, 4, 8, 16 or 32 sequences, compiled when such a one
        is first needed.

        Args:
            prompts: Texts, or for one with settings of its own a dictionary: `{"prompt": "Once", "seed": 3, "stop":
                "."}`.
            batch: Most sequences of a batch, 1 to 32.
            max_tokens, stop, settings: As of `generate`, for prompts that say nothing else.

        Raises:
            InputMismatch: as of `generate`, with the number of the prompt; or `batch` is out of its range.
        """
        if isinstance(prompts, str):
            raise InputMismatch("the prompts are one text; give a list of texts, or use generate")
        if not isinstance(prompts, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputMismatch(f"the prompts are {quoted(prompts)}; give a list of texts or dictionaries")
        common = {"max_tokens": max_tokens, "stop": stop, **settings}
        requests = [Request(self, number, prompt, common) for number, prompt in enumerate(prompts)]
        return pieces(requests, self._begin([request.text for request in requests], batch))

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
        most = self.checked(prompt, max_tokens)
        return self._alone(self._tokens(prompt, sampling, most)) if most else iter(())

    def tokens_batch(
        self, texts: Sequence[Text], *, batch: int = MOST_SEQUENCES
    ) -> Iterator[tuple[Text, int]]:
        """As `generate_batch`, of token ids: pairs of a text and a token of it."""
        for text in texts:
            text.most = self.checked(text.prompt, text.most)
        return self._begin(texts, batch)

    def logits(self, tokens: Sequence[int]) -> Array:
        """f32[vocabulary]: what may follow these tokens. What the cache has of them already is not computed again."""
        self.checked(tokens, 0)
        self._begun += 1
        return np.array(self.runs.read(tokens)[LOGITS])

    @property
    def executable(self) -> CompiledModel:
        """The programs of one text, for the cache as it is now."""
        return self.runs.executable

    @property
    def stats(self) -> Stats:
        """Tokens a second of the last generation, and the memory of the model; that of batches is not counted."""
        memory, runs = self.executable.memory(), self.runs
        work = sum(size for use, size in memory.items() if use.startswith("instance@"))
        weights = memory.get("weights", 0) + memory.get("derived", 0)
        return Stats(runs.prompt, runs.reused, runs.answer, weights, memory.get("state", 0), work)

    def checked(self, prompt: Sequence[Any], max_tokens: Any) -> int:
        """`max_tokens` as Python's int. Raises InputMismatch if a prompt, or what may follow it, is not possible."""
        if not is_whole(max_tokens, least=0):
            raise InputMismatch(f"max_tokens is {quoted(max_tokens)}; it is a whole number, 0 or more")
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
        return int(max_tokens)

    def _begin(self, texts: Sequence[Text], batch: int) -> Iterator[tuple[Text, int]]:
        """The tokens of texts that were checked."""
        if not is_whole(batch, least=1) or batch > MOST_SEQUENCES:
            raise InputMismatch(f"batch is {quoted(batch)}; it is a whole number, 1 to {MOST_SEQUENCES}")
        return self._alone(self._batches([text for text in texts if text.most], int(batch)))

    def _alone(self, made: Iterator[T]) -> Iterator[T]:
        """What is made as long as nobody begins another text."""
        self._begun += 1
        number = self._begun
        for each in made:
            yield each
            if self._begun != number:
                raise InputMismatch(
                    "another text was begun on this model; finish one before the next, or load the model twice"
                )

    def _tokens(self, prompt: Sequence[int], sampling: Sampling, most: int) -> Iterator[int]:
        self.runs.set(sampling)
        self.runs.read(prompt).synchronize()
        for token in self.runs.following(most):
            if token in self.tokenizer.ends:
                return
            yield token

    def _batches(self, texts: Sequence[Text], size: int) -> Iterator[tuple[Text, int]]:
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            if len(part) > 1:
                if self._programs is None:
                    raise InputMismatch(
                        "the model was not loaded with programs for batches; use aicf.llm.load"
                    )
                yield from batch_tokens(part, self.runs, self._programs, self.tokenizer.ends)
                continue
            (text,) = part
            text.is_over = False
            for token in self._tokens(text.prompt, text.sampling, text.most):
                yield text, token
                if text.is_over:
                    break
            text.is_over = True
