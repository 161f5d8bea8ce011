"""The texts that a batch is asked for: prompts with settings of their own, and their pieces as they are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aicf.errors import InputMismatch
from aicf.llm.batch_runs import Text
from aicf.llm.sampling import sampling_of
from aicf.llm.stopping import StopFilter, stop_strings
from aicf.llm.tokenizer import StreamDecoder

if TYPE_CHECKING:
    from aicf.llm.model import LanguageModel


class Request:
    """A prompt with what is asked of its text, and the text as far as it is made.

    Args:
        model: That makes it.
        number: In the list of prompts.
        asked: The prompt, or a dictionary with `prompt` and settings.
        common: Settings of all.

    Raises InputMismatch that names the prompt: see `LanguageModel.generate`.
    """

    def __init__(
        self,
        model: LanguageModel,
        number: int,
        asked: str | Mapping[str, Any],
        common: Mapping[str, Any],
    ) -> None:
        self.number, self._made = number, 0
        try:
            own = {"prompt": asked} if isinstance(asked, str) else asked
            if not isinstance(own, Mapping) or not isinstance(own.get("prompt"), str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InputMismatch("it is neither a text nor a dictionary with a text 'prompt'")
            settings = {**common, **own}
            tokens = model.tokenizer.encode(settings.pop("prompt"))
            most, self._filter = settings.pop("max_tokens"), StopFilter(stop_strings(settings.pop("stop")))
            self.text = Text(tokens, model.checked(tokens, most), sampling_of(settings))
        except InputMismatch as error:
            raise InputMismatch(f"prompt {number}: {error.message}") from None
        self._decoder = StreamDecoder(model.tokenizer)

    @property
    def is_over(self) -> bool:
        """Whether no token follows."""
        return self.text.is_over or self._made == self.text.most

    def push(self, token: int) -> str:
        """What is certain of the text with a token more."""
        self._made += 1
        piece = self._filter.push(self._decoder.push(token))
        self.text.is_over |= self._filter.is_over
        return piece

    def finish(self) -> str:
        """What still waited when the text ended."""
        if self._filter.is_over:
            return ""
        return self._filter.push(self._decoder.finish()) + self._filter.finish()


def pieces(requests: Sequence[Request], tokens: Iterator[tuple[Text, int]]) -> Iterator[tuple[int, str]]:
    """Numbers of prompts, and pieces of their texts as they are made."""
    running = {request.text: request for request in requests}
    for text, token in tokens:
        request = running[text]
        if piece := request.push(token):
            yield request.number, piece
        for ended in [each for each in running.values() if each.is_over]:
            del running[ended.text]
            if rest := ended.finish():
                yield ended.number, rest
    for request in running.values():
        if rest := request.finish():
            yield request.number, rest
