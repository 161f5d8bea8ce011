"""The tokenizer that a GGUF file holds: byte-level BPE with its merges, or pieces of SentencePiece with scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aicf.errors import UnsupportedOp
from aicf.frontends.gguf.reader import GgufFile
from aicf.llm.tokenizer import END_NAMES, Tokenizer, library, of_characters, of_pieces

KIND = "tokenizer.ggml.model"
"""The field that says what kind the tokenizer is of."""
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
"""Types of tokens: `<unk>`, and those that are found in a text as they are."""


@dataclass(frozen=True)
class Split:
    """How text is split before pairs are merged.

    Args:
        patterns: Each match of one of them is a part; each splits what the one before left.
        is_whole_first: Whether a part that is a token needs no merges.
        is_composed: Whether text is normalized to NFC first.
    """

    patterns: tuple[str, ...]
    is_whole_first: bool = False
    is_composed: bool = False


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CASES = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _WORDS.format(digits="{1,3}")
SPLITS: dict[str, Split] = {
    "gpt-2": Split((_GPT2,)),
    "olmo": Split((_GPT2,)),
    "smollm": Split((r"\p{N}", _GPT2)),
    "llama-bpe": Split((_LLAMA3,), is_whole_first=True),
    "dbrx": Split((_LLAMA3,)),
    "qwen2": Split((_WORDS.format(digits=""),), is_composed=True),
    "gpt-4o": Split((_CASES,)),
}
"""By `tokenizer.ggml.pre`."""

_ENDS = ("eos", "eot", "eom")
"""Tokens that end an answer, by the fields that name them."""


def gguf_tokenizer(file: GgufFile) -> Tokenizer:
    """The tokenizer of a file.

    Raises:
        BackendUnavailable: the package tokenizers is missing.
        InvalidIR: the file has no tokenizer, or a damaged one.
        UnsupportedOp: it is of another kind.
    """
    package = library()
    if KIND not in file.fields:
        raise file.error(f"the file has no tokenizer (field '{KIND}'); make it again with one")
    kind = file.field(KIND, str)
    tokens: list[Any] = file.field("tokenizer.ggml.tokens", list)
    types: list[Any] = file.field("tokenizer.ggml.token_type", list)
    if len(types) != len(tokens) or not all(isinstance(token, str) for token in tokens):
        raise file.error(
            "fields 'tokenizer.ggml.tokens' and 'token_type' do not have a text and a type for each token"
        )
    if kind == "gpt2":
        impl, spelled = _byte_level(package, file, tokens), of_characters
    elif kind == "llama":
        impl, spelled = _pieces(package, file, tokens, types), of_pieces
    else:
        raise UnsupportedOp(
            f"the tokenizer is of kind {kind}; those that are read: gpt2, llama", location=str(file.path)
        )
    control, verbatim = (
        [number for number, found in enumerate(types) if found == wanted]
        for wanted in (_CONTROL, _USER_DEFINED)
    )
    impl.add_tokens(
        [
            package.AddedToken(tokens[number], normalized=False, special=types[number] == _CONTROL)
            for number in sorted([*control, *verbatim])
        ]
    )
    return Tokenizer(
        impl,
        tokens,
        spelled,
        control=control,
        verbatim=verbatim if spelled is of_characters else (),
        begin=_begin(file, len(tokens)),
        ends=_ends(file, tokens, control),
    )


def _byte_level(package: Any, file: GgufFile, tokens: Sequence[str]) -> Any:
    name = str(file.fields.get("tokenizer.ggml.pre", "gpt-2"))
    if name not in SPLITS:
        raise UnsupportedOp(
            f"the tokenizer splits text as {name}; those that are read: {', '.join(SPLITS)}",
            location=str(file.path),
        )
    split = SPLITS[name]
    merges = [tuple(str(pair).split(" ", 1)) for pair in file.field("tokenizer.ggml.merges", list)]
    if any(len(pair) != 2 for pair in merges):
        raise file.error("field 'tokenizer.ggml.merges' has an entry that is no pair")
    made = _bpe(package, file, tokens, merges, ignore_merges=split.is_whole_first)
    steps = [package.pre_tokenizers.Split(package.Regex(pattern), "isolated") for pattern in split.patterns]
    steps.append(package.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    made.pre_tokenizer = package.pre_tokenizers.Sequence(steps)
    if split.is_composed:
        made.normalizer = package.normalizers.NFC()
    return made


def _pieces(package: Any, file: GgufFile, tokens: Sequence[str], types: Sequence[int]) -> Any:
    """Of two neighbours the pair that is the best piece is merged first: BPE, with pairs in the order of scores."""
    scores = file.field("tokenizer.ggml.scores", list)
    if len(scores) != len(tokens) or not all(isinstance(score, float) for score in scores):
        raise file.error("field 'tokenizer.ggml.scores' does not have a score for each token")
    known = {token for token, kind in zip(tokens, types, strict=True) if kind != _CONTROL}
    order = sorted(range(len(tokens)), key=lambda number: (-scores[number], number))
    merges = [
        (token[:cut], token[cut:])
        for token in (tokens[number] for number in order)
        if token in known
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]
    unknown = next((token for token, kind in zip(tokens, types, strict=True) if kind == _UNKNOWN), None)
    made = _bpe(package, file, tokens, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    spaces = package.normalizers.Replace(" ", "\u2581")
    if file.fields.get("tokenizer.ggml.add_space_prefix", True):
        spaces = package.normalizers.Sequence([package.normalizers.Prepend("\u2581"), spaces])
    made.normalizer = spaces
    return made


def _bpe(package: Any, file: GgufFile, tokens: Sequence[str], merges: Sequence[Any], **options: Any) -> Any:
    numbers = {token: number for number, token in enumerate(tokens)}
    try:
        return package.Tokenizer(package.models.BPE(vocab=numbers, merges=list(merges), **options))
    except Exception as error:  # the package raises no class of its own
        raise file.error(f"its tokenizer is damaged: {error}") from None


def _begin(file: GgufFile, count: int) -> int | None:
    """The token that texts start with; where a file does not say whether they do, it is as llama.cpp has it."""
    kind, split = file.fields[KIND], file.fields.get("tokenizer.ggml.pre")
    is_usual = kind == "llama" or split == "llama-bpe"
    return _token(file, "bos", count) if file.fields.get("tokenizer.ggml.add_bos_token", is_usual) else None


def _ends(file: GgufFile, tokens: Sequence[str], control: Sequence[int]) -> Sequence[int]:
    stated = [found for name in _ENDS if (found := _token(file, name, len(tokens))) is not None]
    return list(dict.fromkeys([*stated, *(number for number in control if tokens[number] in END_NAMES)]))


def _token(file: GgufFile, name: str, count: int) -> int | None:
    found = file.fields.get(f"tokenizer.ggml.{name}_token_id")
    if found is not None and not (isinstance(found, int) and 0 <= found < count):
        raise file.error(f"field 'tokenizer.ggml.{name}_token_id' is {found}, and there are {count:,} tokens")
    return found
