"""Text to token ids and back, on the package tokenizers. Where a vocabulary comes from is told in `sources`.

Text comes back piece by piece: bytes of one character may be spread over tokens, and wait for each other.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from aicf.errors import BackendUnavailable, InputMismatch
from aicf.support.arguments import characters_from
from aicf.support.extras import install

END_NAMES = frozenset({"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>"})
"""Control tokens that end an answer, where a model's files do not list those that do."""


class Tokenizer:
    """Text to token ids and back.

    Args:
        impl: A `tokenizers.Tokenizer`, which knows the control tokens.
        tokens: By id.
        spelled: What makes bytes of a token.
        control: Ids of tokens that are no text.
        verbatim: Ids of tokens whose text is what they are called.
        begin: Token that every text of the model starts with; None if there is none.
        ends: Tokens that end a text or an answer; the first one is that of the training texts.
    """

    def __init__(
        self,
        impl: Any,
        tokens: Sequence[str],
        spelled: Callable[[str], bytes],
        *,
        control: Collection[int] = (),
        verbatim: Collection[int] = (),
        begin: int | None = None,
        ends: Sequence[int] = (),
    ) -> None:
        self.tokens, self.begin, self.ends = tokens, begin, tuple(ends)
        self._impl, self.spelled = impl, spelled
        self._control, self._verbatim = frozenset(control), frozenset(verbatim)

    def encode(self, text: str, *, begin: bool = True) -> list[int]:
        """The ids of a text; names of control tokens in it become those tokens.

        Args:
            text: Any text.
            begin: Whether the token that the model's texts start with comes first, where there is one and the text does
                not start with it.

        Raises InputMismatch: it is no text, or holds half a character.
        """
        text = characters_from(text, InputMismatch, "the text")
        ids = list(self._impl.encode(text, add_special_tokens=False).ids)
        if begin and self.begin is not None and ids[:1] != [self.begin]:
            return [self.begin, *ids]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without control tokens; what is no UTF-8 becomes U+FFFD."""
        decoder = StreamDecoder(self)
        return "".join(decoder.push(token) for token in ids) + decoder.finish()

    @property
    def text_size(self) -> int:
        """One more than the largest id that is no control token's: what the model needs an embedding for."""
        ids = reversed(range(len(self.tokens)))
        return next((token + 1 for token in ids if token not in self._control), 0)

    def raw(self, token: int) -> bytes:
        """The bytes of a token; none of a control token, or of one that only pads the model's vocabulary."""
        if token in self._control or token >= len(self.tokens):
            return b""
        text = self.tokens[token]
        return text.encode() if token in self._verbatim else self.spelled(text)


class StreamDecoder:
    """Text as tokens come: characters that are not whole yet wait.

    Args:
        tokenizer: Of the tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The characters that are whole with this token."""
        return self._utf8.decode(self._tokenizer.raw(token))

    def finish(self) -> str:
        """What waits, as U+FFFD."""
        return self._utf8.decode(b"", final=True)


def library() -> Any:
    """The package tokenizers. Raises BackendUnavailable if it is missing."""
    try:
        return import_module("tokenizers")
    except ImportError:
        raise BackendUnavailable(f"a tokenizer needs the package tokenizers; {install('llm')}") from None


def of_characters(text: str) -> bytes:
    """The bytes of a token of byte-level BPE, a character for each byte. Radford et al., GPT-2, 2019."""
    known = _bytes_of_characters()
    return b"".join(known[character] if character in known else character.encode() for character in text)


@cache
def _bytes_of_characters() -> dict[str, bytes]:
    """Bytes that print stand for themselves, the others follow U+00FF."""
    prints = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in prints]
    found = {chr(byte): byte for byte in prints} | {
        chr(256 + number): byte for number, byte in enumerate(others)
    }
    return {character: bytes([byte]) for character, byte in found.items()}


_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


def of_pieces(text: str) -> bytes:
    """The bytes of a piece of SentencePiece: U+2581 is a space, and `<0x0A>` is a byte. Kudo and Richardson, 2018."""
    if byte := _BYTE.fullmatch(text):
        return bytes.fromhex(byte[1])
    return text.replace("\u2581", " ").encode()
