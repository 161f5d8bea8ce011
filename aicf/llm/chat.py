"""A conversation with a language model: messages, and the answers that it makes to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aicf.errors import InputMismatch
from aicf.llm.chat_template import ChatTemplate
from aicf.support.arguments import characters_from
from aicf.support.whole_numbers import is_whole

if TYPE_CHECKING:
    from aicf.llm.model import LanguageModel


class Chat:
    """A conversation; `aicf.llm.LanguageModel.chat` begins one.

    Args:
        model: That answers.
        template: That makes prompts of messages.
        system: What the model is told about its part, if anything.
        settings: Of `generate`. An answer may fill the cache, unless `max_tokens` is less.
    """

    def __init__(
        self, model: LanguageModel, template: ChatTemplate, system: str | None, settings: Mapping[str, Any]
    ) -> None:
        self.messages: list[dict[str, str]] = []
        self._model, self._template, self._settings = model, template, settings
        self.system = system

    @property
    def system(self) -> str | None:
        """What the model is told about its part. Setting it begins the conversation anew."""
        return self._system

    @system.setter
    def system(self, text: str | None) -> None:
        self._system = None if text is None else characters_from(text, InputMismatch, "the system's message")
        self.reset()

    def reset(self) -> None:
        """Begins anew."""
        self.messages = [] if self._system is None else [{"role": "system", "content": self._system}]

    def say(self, text: str) -> Iterator[str]:
        """The answer, in pieces as it is made. What was made of an answer that the caller leaves is kept.

        Raises:
            InputMismatch: the conversation does not fit the cache, or the template refuses it. After an error before
                the first piece the conversation is as it was.
        """
        asked = {"role": "user", "content": characters_from(text, InputMismatch, "the message")}
        prompt = self._template.prompt([*self.messages, asked])
        room = self._room(prompt)
        most = self._settings.get("max_tokens", room)
        if is_whole(most, least=0):  # what is none is told by `generate`
            most = min(most, room)
        settings: dict[str, Any] = {**self._settings, "max_tokens": most}
        pieces = self._model.generate(prompt, **settings)
        return self._kept(asked, pieces)

    def _kept(self, asked: dict[str, str], pieces: Iterator[str]) -> Iterator[str]:
        answer = [next(pieces, "")]
        try:
            if answer[0]:
                yield answer[0]
            for piece in pieces:
                answer.append(piece)
                yield piece
        finally:
            self.messages += [asked, {"role": "assistant", "content": "".join(answer)}]

    def _room(self, prompt: str) -> int:
        """Tokens that fit the cache after a prompt."""
        asked, capacity = len(self._model.tokenizer.encode(prompt)), self._model.capacity
        if asked >= capacity:
            raise InputMismatch(
                f"the conversation has {asked:,} tokens and the cache {capacity:,} positions; shorten it, begin "
                "anew, or load the model with a larger context"
            )
        return capacity - asked
