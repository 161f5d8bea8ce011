"""The tokenizer of a Hugging Face folder as fields of a GGUF file: byte-level BPE.

A file names the way in which text is split by one word. It is found by trying: the first one of those that are read
whose tokens of a text with all kinds of characters are those of the folder's own tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from aicf.errors import UnsupportedOp, quoted
from aicf.frontends.gguf.reader import GgufFile
from aicf.llm.chat_template import folder_tokens
from aicf.llm.quantizing.folder_settings import Stated, values_of
from aicf.llm.sources.gguf_tokenizer import SPLITS, gguf_tokenizer
from aicf.llm.sources.shards import read_object
from aicf.llm.tokenizer import END_NAMES, Tokenizer, of_characters

PROBE = (
    "Hello World! It's the RIGHT time, isn't it? I'LL see...  What?!\n\n\tdef f(x):\n        return x+1  # 3.14159\r\n"
    "1234567 89 2024-01-02 café CAFÉ naïve e\u0301 日本語のテキスト Привет МИР שלום 12,5% <b>a</b> \\/path//x_y "
    "camelCaseWord ﬁ ½ x² 🙂🙂   \n \n  end "
)
"""Words, cases, contractions, numbers, runs of white space, scripts, and characters that normalization changes."""

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
"""Types of tokens."""
_ENDS = ("eos", "eot", "eom")
"""Fields that name tokens which end a text."""
_WAY_OUT = "make a file with convert_hf_to_gguf.py of llama.cpp, and quantise that"


def vocabulary_fields(folder: Path, tokenizer: Tokenizer, size: int) -> Stated:
    """The fields of a folder's tokenizer.

    Args:
        folder: Its path.
        tokenizer: As it was opened.
        size: Tokens that the model embeds; those without text get a name.

    Raises:
        InvalidIR: a file of it is damaged.
        UnsupportedOp: it is no byte-level BPE, splits text in a way that files have no word for, or has more ends of
            texts than files name.
    """
    path = folder / "tokenizer.json"
    stated = read_object(path)
    model = cast("Mapping[str, Any]", stated.get("model") or {})
    if tokenizer.spelled is not of_characters or model.get("type") != "BPE":
        raise UnsupportedOp(f"the tokenizer is no byte-level BPE; {_WAY_OUT}", location=str(path))
    fields: Stated = {
        "tokenizer.ggml.model": ("s", "gpt2"),
        **_tokens(tokenizer, cast("Sequence[Any]", stated.get("added_tokens") or ()), size),
        "tokenizer.ggml.merges": ("s", [_merge(each) for each in model.get("merges") or ()]),
        **_named(tokenizer, folder_tokens(folder), size),
    }
    fields["tokenizer.ggml.pre"] = "s", _split(path, fields, tokenizer, size)
    return fields


def _tokens(tokenizer: Tokenizer, added: Sequence[Any], size: int) -> Stated:
    """Texts and types of all tokens."""
    named = {int(each["id"]): _CONTROL if each["special"] else _USER_DEFINED for each in added}
    known = [*tokenizer.tokens, *[""] * (size - len(tokenizer.tokens))][:size]
    taken = frozenset(known)
    texts = [text or _filler(number, taken) for number, text in enumerate(known)]
    types = [named.get(number, _NORMAL) if text else _UNUSED for number, text in enumerate(known)]
    return {"tokenizer.ggml.tokens": ("s", texts), "tokenizer.ggml.token_type": ("i", types)}


def _filler(number: int, taken: frozenset[str]) -> str:
    """A text that no other token has."""
    text = f"[PAD{number}]"
    while text in taken:
        text = f"[{text}]"
    return text


def _merge(pair: Any) -> str:
    return pair if isinstance(pair, str) else " ".join(pair)


def _named(tokenizer: Tokenizer, tokens: Mapping[str, str], size: int) -> Stated:
    """Which tokens begin and end a text: the end that the folder names comes first, those that are known by their names
    need no field."""
    numbers = {text: number for number, text in enumerate(tokenizer.tokens) if text}
    begin = numbers.get(tokens.get("bos_token", ""), tokenizer.begin)
    found: Stated = {"tokenizer.ggml.add_bos_token": ("?", tokenizer.begin is not None)}
    if begin is not None:
        found["tokenizer.ggml.bos_token_id"] = "I", begin if tokenizer.begin is None else tokenizer.begin
    first = numbers.get(tokens.get("eos_token", ""))
    by_name = {numbers.get(text) for text in END_NAMES}
    ends = sorted(_ends(tokenizer, size), key=lambda end: (end != first, end in by_name))
    for name, end in zip(_ENDS, ends, strict=False):
        found[f"tokenizer.ggml.{name}_token_id"] = "I", end
    return found


def _ends(tokenizer: Tokenizer, size: int) -> list[int]:
    """The tokens that end a text; a folder may state numbers of none."""
    return [end for end in tokenizer.ends if 0 <= end < size]


def _split(path: Path, fields: Stated, tokenizer: Tokenizer, size: int) -> str:
    """The word for how text is split. Raises UnsupportedOp if there is none, or if the file would miss an end."""
    wanted = tokenizer.encode(PROBE)
    values = values_of(fields)
    for name in SPLITS:
        file = GgufFile(path, np.empty(0, np.uint8), 0, {**values, "tokenizer.ggml.pre": name}, {}, {})
        read_back = gguf_tokenizer(file)
        if read_back.encode(PROBE) != wanted:
            continue
        if missed := set(_ends(tokenizer, size)) - set(read_back.ends):
            raise UnsupportedOp(
                f"{len(tokenizer.ends)} tokens end a text, and a file names {len(_ENDS)}: it would miss "
                f"{quoted(read_back.tokens[min(missed)])}; state fewer in generation_config.json",
                location=str(path),
            )
        return name
    raise UnsupportedOp(
        f"the tokenizer splits text in none of the ways that are read ({', '.join(SPLITS)}); {_WAY_OUT}",
        location=str(path),
    )
