"""The tokenizer that a GGUF file holds, made with the package tokenizers: byte-level BPE, as GPT-2's and others are.

Text comes back piece by piece: bytes of one character may be spread over tokens, and wait for each other.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from aicf.arguments import text_from
from aicf.errors import BackendUnavailable, InputMismatch, UnsupportedOp
from aicf.extras import install
from aicf.frontends.gguf.reader import GgufFile

_CONTROL, _USER_DEFINED = 3, 4
"""Types of tokens that are found in a text as they are."""

_SPLITS: dict[str, tuple[str, ...]] = {
    "gpt-2": (),
    "smollm": ("digits",),
}
"""What a file calls how text is split, to what comes before the split of GPT-2."""


class Tokenizer:
    """Text to token ids and back.

    Args:
        file: That has it.

    Raises:
        BackendUnavailable: the package tokenizers is missing.
        InvalidIR: the file has no tokenizer.
        UnsupportedOp: it is of another kind.
    """

    def __init__(self, file: GgufFile) -> None:
        try:
            library: Any = import_module("tokenizers")
        except ImportError:
            raise BackendUnavailable(f"a tokenizer needs the package tokenizers; {install('llm')}") from None
        self.tokens: list[str] = file.field("tokenizer.ggml.tokens", list)
        self._types: list[int] = file.field("tokenizer.ggml.token_type", list)
        self.end: int = file.field("tokenizer.ggml.eos_token_id", int)
        self._impl = _byte_level(library, file, self.tokens)
        special = [
            library.AddedToken(token, normalized=False, special=kind == _CONTROL)
            for token, kind in zip(self.tokens, self._types, strict=True)
            if kind in (_CONTROL, _USER_DEFINED)
        ]
        self._impl.add_tokens(special)
        self._decoder = library.decoders.ByteLevel()
        self._bytes = _bytes_of_characters()

    def encode(self, text: str) -> list[int]:
        """The ids of a text; names of control tokens in it become those tokens."""
        text = text_from(text, InputMismatch, "the text")
        return list(self._impl.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without control tokens; what is no UTF-8 becomes U+FFFD."""
        decoder = StreamDecoder(self)
        return "".join(decoder.push(token) for token in ids) + decoder.finish()

    def raw(self, token: int) -> bytes:
        """The bytes of a token; none of a control token."""
        kind, text = self._types[token], self.tokens[token]
        if kind == _CONTROL:
            return b""
        if kind == _USER_DEFINED:
            return text.encode()
        return bytes(self._bytes[character] for character in text)


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


def _byte_level(library: Any, file: GgufFile, tokens: Sequence[str]) -> Any:
    kind, split = file.field("tokenizer.ggml.model", str), file.fields.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or split not in _SPLITS:
        raise UnsupportedOp(
            f"the tokenizer is of kind {kind} with split {split}; those that are read: gpt2 with {', '.join(_SPLITS)}",
            location=str(file.path),
        )
    merges = [tuple(pair.split(" ", 1)) for pair in file.field("tokenizer.ggml.merges", list)]
    if any(len(pair) != 2 for pair in merges):
        raise file.error("field 'tokenizer.ggml.merges' has an entry that is no pair")
    numbers = {token: number for number, token in enumerate(tokens)}
    made = library.Tokenizer(library.models.BPE(vocab=numbers, merges=merges))
    steps = [library.pre_tokenizers.Digits(individual_digits=True)] if "digits" in _SPLITS[split] else []
    steps.append(library.pre_tokenizers.ByteLevel(add_prefix_space=False))
    made.pre_tokenizer = library.pre_tokenizers.Sequence(steps)
    return made


def _bytes_of_characters() -> dict[str, int]:
    """GPT-2's alphabet: the character of each byte; those that print stand for themselves, the others follow U+00FF."""
    prints = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in prints]
    return {chr(byte): byte for byte in prints} | {
        chr(256 + number): byte for number, byte in enumerate(others)
    }
