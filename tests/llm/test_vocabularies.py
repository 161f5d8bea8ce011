"""Vocabularies of every kind, from files and folders: how text is split and merged, which tokens are special."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicf.errors import AicfError, InvalidIR, UnsupportedOp
from aicf.frontends.gguf.reader import parsed
from aicf.llm.sources.folder_tokenizer import folder_tokenizer
from aicf.llm.sources.gguf_tokenizer import gguf_tokenizer
from aicf.llm.tokenizer import Tokenizer, of_pieces
from tests.frontends.gguf.writer import gguf

tokenizers = pytest.importorskip("tokenizers")
pytestmark = pytest.mark.peers

RNG = np.random.default_rng(137)
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/architecture.md").read_text("utf-8")
TEXTS = [
    "",
    "The passes MAKE every decision, don't they?  WE'LL see: isn't it 12345 x 3.14?",
    "def f(self):\n\n\t  return  None\r\n\r\n  # end \n",
    "Grüße, 你好 Привет, 🙂🙃 naïve cafe\u0301 \u00a0 x\u2028y ",
    "HelloWorld HTTPServer3000 ÉCOLE éCole //path/to\n/x",
]


# Splits


def of_gpt2() -> Any:
    return tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)


def of_smollm() -> Any:
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    return tokenizers.pre_tokenizers.Sequence([digits, of_gpt2()])


def by_pattern(pattern: str) -> Any:
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    characters = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return tokenizers.pre_tokenizers.Sequence([split, characters])


def of_qwen2() -> Any:
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    return by_pattern(PRETOKENIZE_REGEX)


def of_llama3() -> Any:
    from transformers.convert_slow_tokenizer import TikTokenConverter

    return by_pattern(TikTokenConverter().pattern)


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("gpt-2", of_gpt2),
        ("olmo", of_gpt2),
        ("smollm", of_smollm),
        ("qwen2", of_qwen2),
        ("llama-bpe", of_llama3),
        ("dbrx", of_llama3),
    ],
)
def test_text_is_split_as_by_the_model_it_is_named_after(name: str, peer: Callable[[], Any]) -> None:
    splitter = peer()
    for text in TEXTS:
        assert pieces(name, text) == [part for part, _ in splitter.pre_tokenize_str(text)]


def pieces(name: str, text: str) -> list[str]:
    """The parts of a text in a tokenizer of bytes alone that is split by name."""
    impl = bytes_split_by(name)._impl
    return [part for part, _ in impl.pre_tokenizer.pre_tokenize_str(text)]


def bytes_split_by(name: str) -> Tokenizer:
    tokens = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), "ab"]
    kinds = [1] * len(tokens)
    return opened({}, model="gpt2", pre=name, tokens=tokens, token_type=kinds, merges=["a b"])


def test_words_that_change_case_are_split() -> None:
    assert pieces("gpt-4o", "HelloWorld HTTPServer123456 don't") == [
        "Hello",
        "World",
        "ĠHTTPServer",
        "123",
        "456",
        "Ġdon't",
    ]


def test_qwen_composes_characters() -> None:
    for name, is_same in (("qwen2", True), ("llama-bpe", False)):
        ours = bytes_split_by(name)
        assert (ours.encode("cafe\u0301") == ours.encode("caf\u00e9")) == is_same


# Pieces of SentencePiece


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@pytest.fixture(scope="module")
def scored() -> dict[str, Any]:
    """Fields of a vocabulary of pieces: those that are frequent in a text, with scores as SentencePiece gives them."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, show_progress=False)
    made.train_from_iterator([line[:60] for line in TEXT.splitlines()], trainer)
    vocabulary = made.get_vocab()
    learned = sorted(vocabulary, key=vocabulary.__getitem__)
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *learned]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(learned)],
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(number) for number in range(len(learned))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def opened(fields: dict[str, Any], **changes: Any) -> Tokenizer:
    named = {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    return gguf_tokenizer(parsed(gguf({**fields, **named}), Path("small.gguf")))


def merged(fields: dict[str, Any], text: str) -> list[int]:
    """SentencePiece's BPE: of all neighbours that make a piece, the pair of the best one is merged, the first of
    equals. What is no piece becomes bytes."""
    tokens = fields["tokenizer.ggml.tokens"]
    scores = dict(zip(tokens[259:], fields["tokenizer.ggml.scores"][259:], strict=True))
    parts = list(text.replace(" ", "\u2581"))
    while True:
        pairs = [(scores[a + b], -at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
        if not pairs:
            break
        at = -max(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [
        number
        for part in parts
        for number in ([tokens.index(part)] if part in scores else [3 + byte for byte in part.encode()])
    ]


@pytest.mark.parametrize("prefix", [False, True])
def test_pieces_are_merged_by_score(scored: dict[str, Any], prefix: bool) -> None:
    ours = opened(scored, add_space_prefix=prefix)
    drawn = ["".join(RNG.choice(list("abcdeinrst .,éü\n"), 40)) for _ in range(20)]
    for text in [*TEXTS[1:], *drawn, TEXT[300:900]]:
        ids = ours.encode(text)
        assert ids == [1, *merged(scored, f" {text}" if prefix else text)]
        assert ours.decode(ids) == (f" {text}" if prefix else text)


def test_a_piece_that_only_looks_like_a_byte_is_text() -> None:
    pieces = ["<0x41>", "<0xe9>", "<0xZZ>", "<0x 1>", "<0x+1>", "\u2581a"]
    assert list(map(of_pieces, pieces)) == [b"A", b"\xe9", b"<0xZZ>", b"<0x 1>", b"<0x+1>", b" a"]


def test_control_tokens_of_pieces(scored: dict[str, Any]) -> None:
    ours = opened(scored, add_space_prefix=False)
    assert ours.encode("<s>a</s>")[::2] == [1, 2]
    assert ours.encode("a", begin=False) == ours.encode("a")[1:]
    assert opened(scored, add_bos_token=False).encode("") == []
    assert ours.ends == (2,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": [0.0]}, "'tokenizer.ggml.scores' does not have a score for each token"),
        ({"scores": ["x"] * 659}, "'tokenizer.ggml.scores' does not have a score for each token"),
        ({"token_type": [1]}, "do not have a text and a type for each token"),
        ({"eos_token_id": 10**6}, "'tokenizer.ggml.eos_token_id' is 1000000, and there are"),
    ],
)
def test_damaged_vocabularies_are_told(scored: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidIR, match=message):
        opened(scored, **changes)


# Folders


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with byte-level BPE, which starts every text with a token."""
    folder = tmp_path_factory.mktemp("folder")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer, made.decoder = of_gpt2(), tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<s>", "</s>", "<turn>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([TEXT], trainer)
    made.add_tokens(["<tool>"])
    made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    made.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    return tmp_path


def write(folder: Path, name: str, value: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps(value), "utf-8")


def test_a_folder_gives_the_ids_of_the_package(folder: Path) -> None:
    peer, ours = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), folder_tokenizer(folder)
    for text in [*TEXTS, "<turn>a<tool>b</s>"]:
        ids = ours.encode(text)
        assert ids == peer.encode(text).ids
        assert ours.decode(ids) == peer.decode(ids, skip_special_tokens=True)
    assert ours.raw(ours.encode("<tool>")[1]) == b"<tool>"


def test_ids_of_a_folder_may_leave_gaps(folder: Path) -> None:
    """What follows a gap has the same text as without it."""
    before = folder_tokenizer(folder)
    stated = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    numbers: dict[str, int] = stated["model"]["vocab"]
    count, moved = len(before.tokens), max(numbers, key=lambda token: (len(token), token))
    former, numbers[moved] = numbers[moved], count + 40
    write(folder, "tokenizer", stated)
    ours = folder_tokenizer(folder)
    assert len(ours.tokens) == count + 41 and ours.tokens[former] == ours.tokens[count + 39] == ""
    assert ours.tokens[:former] == before.tokens[:former]
    text = before.raw(former).decode() + " and the rest"
    assert ours.encode(text)[1] == count + 40 and before.encode(text)[1] == former
    assert ours.decode(ours.encode(text)) == text == before.decode(before.encode(text))


def test_what_a_folder_says_of_tokens(folder: Path) -> None:
    ours = folder_tokenizer(folder)
    assert (ours.begin, ours.ends) == (0, ())
    write(folder, "config", {"eos_token_id": 1})
    assert folder_tokenizer(folder).ends == (1,)
    write(folder, "generation_config", {"eos_token_id": [2, 1]})
    assert folder_tokenizer(folder).ends == (2, 1)


def test_names_say_which_tokens_end_an_answer_where_no_file_lists_them(folder: Path) -> None:
    made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    made.add_special_tokens(["<|im_end|>"])
    made.add_tokens(["<|end|>"])  # text, whatever it is called
    made.save(str(folder / "tokenizer.json"))
    end = made.token_to_id("<|im_end|>")
    assert folder_tokenizer(folder).ends == (end,)
    write(folder, "config", {"eos_token_id": 1})
    assert folder_tokenizer(folder).ends == (1, end)
    write(folder, "generation_config", {"eos_token_id": 2})
    assert folder_tokenizer(folder).ends == (2,)


def test_what_training_did_to_texts_is_not_done_to_prompts(folder: Path) -> None:
    """A file may ask for texts that are cut, or filled up."""
    wanted = folder_tokenizer(folder).encode(TEXT[:200])
    made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    made.enable_truncation(4)
    made.enable_padding(length=300)
    made.save(str(folder / "tokenizer.json"))
    assert made.encode(TEXT[:200]).ids[4] == made.encode("").ids[299]
    assert folder_tokenizer(folder).encode(TEXT[:200]) == wanted


@pytest.mark.parametrize("prefix", [False, True])
def test_pieces_in_a_folder(scored: dict[str, Any], folder: Path, prefix: bool) -> None:
    """The same tokenizer from a folder and from a file."""
    opened(scored, add_space_prefix=prefix)._impl.save(str(folder / "tokenizer.json"))
    stated = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    parts = [
        tokenizers.decoders.Replace("\u2581", " "),
        tokenizers.decoders.ByteFallback(),
        tokenizers.decoders.Fuse(),
    ]
    stated["decoder"] = {
        "type": "Sequence",
        "decoders": [json.loads(part.__getstate__()) for part in parts],
    }
    write(folder, "tokenizer", stated)
    ours = folder_tokenizer(folder)
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == opened(scored, add_space_prefix=prefix).encode(text, begin=False)
        assert ours.decode(ids) == (f" {text}" if prefix and text else text)


def without_decoder(folder: Path) -> None:
    write(
        folder, "tokenizer", {**json.loads((folder / "tokenizer.json").read_text("utf-8")), "decoder": None}
    )


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (lambda at: (at / "tokenizer.json").unlink(), InvalidIR, "the folder has no tokenizer.json"),
        (lambda at: write(at, "tokenizer", {}), InvalidIR, "the tokenizer is damaged"),
        (lambda at: (at / "tokenizer.json").write_text("{"), InvalidIR, "the file is no JSON"),
        (without_decoder, UnsupportedOp, "is decoded by nothing; byte-level BPE and"),
    ],
)
def test_damaged_folders_are_told(
    folder: Path, damage: Callable[[Path], object], kind: type[AicfError], message: str
) -> None:
    damage(folder)
    with pytest.raises(kind, match=message) as error:
        folder_tokenizer(folder)
    assert "\n" not in str(error.value)
