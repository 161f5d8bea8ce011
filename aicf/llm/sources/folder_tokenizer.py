"""The tokenizer of a Hugging Face folder: `tokenizer.json`, and which tokens end a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from aicf.errors import InvalidIR, UnsupportedOp
from aicf.llm.sources.shards import read_object
from aicf.llm.tokenizer import END_NAMES, Tokenizer, library, of_characters, of_pieces
from aicf.support.dataclass_json import parse_json

_FILE = "tokenizer.json"
_LISTED, _STATED = "generation_config.json", "config.json"
"""Files that say which tokens end a text: the first has all of them, the second perhaps one."""


def folder_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder.

    Raises:
        BackendUnavailable: the package tokenizers is missing.
        InvalidIR: the folder has no tokenizer, or a damaged one.
        UnsupportedOp: it is of another kind.
    """
    package, path = library(), folder / _FILE
    if not path.is_file():
        raise InvalidIR(
            f"the folder has no {_FILE}; save the tokenizer with save_pretrained", location=str(folder)
        )
    try:
        impl = package.Tokenizer.from_file(str(path))
        impl.no_truncation()  # the file may ask for both, as for training
        impl.no_padding()
    except Exception as error:  # the package raises no class of its own
        read_object(path)  # says more of a file that is no JSON
        raise InvalidIR(f"the tokenizer is damaged: {error}; fetch it again", location=str(path)) from None
    kinds = set(_types(_decoder(impl)))
    if "ByteLevel" in kinds:
        spelled = of_characters
    elif kinds & {"ByteFallback", "Metaspace"}:
        spelled = of_pieces
    else:
        raise UnsupportedOp(
            f"the tokenizer is decoded by {', '.join(sorted(kinds)) or 'nothing'}; byte-level BPE and SentencePiece "
            "are read",
            location=str(path),
        )
    tokens = _texts(impl)
    added: Mapping[int, Any] = impl.get_added_tokens_decoder()
    control = [number for number, token in added.items() if token.special]
    return Tokenizer(
        impl,
        tokens,
        spelled,
        control=control,
        verbatim=added.keys() - control if spelled is of_characters else (),
        begin=_begin(impl),
        ends=_ends(folder, [number for number in control if tokens[number] in END_NAMES]),
    )


def _decoder(impl: Any) -> Any:
    """What the file says of its decoder; None if it has none. From the package, which has parsed the file: it pickles
    a decoder as JSON."""
    return None if impl.decoder is None else parse_json(impl.decoder.__getstate__())


def _texts(impl: Any) -> list[str]:
    """The texts of all tokens by id, empty where an id stands for none."""
    tokens = [impl.id_to_token(number) for number in range(impl.get_vocab_size(with_added_tokens=True))]
    if None not in tokens:
        return tokens
    # Ids leave gaps, and go on after as many as there are tokens. To list a vocabulary takes four times as long.
    numbers: Mapping[str, int] = impl.get_vocab(with_added_tokens=True)
    tokens = [""] * (max(numbers.values(), default=-1) + 1)
    for token, number in numbers.items():
        tokens[number] = token
    return tokens


def _types(stated: Any) -> Iterator[str]:
    """The types of a decoder and of those in it."""
    if isinstance(stated, dict):
        parts = cast("Mapping[str, Any]", stated)
        yield str(parts.get("type"))
        for part in parts.get("decoders") or ():
            yield from _types(part)


def _begin(impl: Any) -> int | None:
    """The token that the tokenizer puts before every text."""
    bare, whole = (list(impl.encode("a", add_special_tokens=adds).ids) for adds in (False, True))
    return whole[0] if whole[:1] != bare[:1] else None


def _ends(folder: Path, named: Sequence[int]) -> Sequence[int]:
    """The tokens that end a text.

    Args:
        folder: Whose files may say which.
        named: Tokens that do so by their names, where no file lists all.
    """
    return _stated_ends(folder / _LISTED) or list(dict.fromkeys([*_stated_ends(folder / _STATED), *named]))


def _stated_ends(path: Path) -> Sequence[int]:
    """What a file says; nothing if it is not there or says nothing."""
    stated = read_object(path).get("eos_token_id") if path.is_file() else None
    found = cast("list[Any]", stated if isinstance(stated, list) else [stated])
    return found if all(type(number) is int for number in found) else ()
