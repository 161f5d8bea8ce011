"""A tokenizer of letters: each token is one character, so that texts and ids say the same."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters, digits
from typing import cast

from aicf.llm.tokenizer import Tokenizer

ALPHABET = ascii_letters + digits + " .,:;!?'\"-+*/<>_\n#"
"""Of 80 characters, as the vocabulary of small models."""


class Letters:
    """Tokens of the characters of `ALPHABET`.

    Args:
        end: The token that ends a text; none if negative.
        broken: Tokens that are half of a character.
    """

    def __init__(self, end: int = -1, broken: Sequence[int] = ()) -> None:
        self.ends, self._broken = () if end < 0 else (end,), broken

    def encode(self, text: str) -> list[int]:
        return [ALPHABET.index(character) for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(ALPHABET[token] for token in ids)

    def raw(self, token: int) -> bytes:
        return b"\xc3" if token in self._broken else ALPHABET[token].encode()


def letters(end: int = -1, broken: Sequence[int] = ()) -> Tokenizer:
    """As the tokenizer of a model."""
    return cast(Tokenizer, Letters(end, broken))
