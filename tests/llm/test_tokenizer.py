"""The tokenizer of a file against the package tokenizers itself, and text that comes in pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicf.errors import InputMismatch, InvalidIR, UnsupportedOp
from aicf.frontends.gguf.reader import parsed
from aicf.llm.sources.gguf_tokenizer import gguf_tokenizer
from aicf.llm.tokenizer import StreamDecoder, Tokenizer
from tests.frontends.gguf.writer import gguf

tokenizers = pytest.importorskip("tokenizers")
pytestmark = pytest.mark.peers

RNG = np.random.default_rng(103)
ROOT = Path(__file__).parents[2]
CONTROLS = ["<|end|>", "<|user|>"]
TEXTS = [
    "",
    "The passes make every decision, before the first run.",
    "x = 1234567890 + 3.14\n\tdef f(self):  return None",
    "Grüße, 你好, Привет, 🙂🙃, naïve café \u00a0 end ",
    "<|user|>a<|end|><|user|>",
    "a<|use",
]


@pytest.fixture(scope="module")
def trained() -> Any:
    """Byte-level BPE of 600 tokens, learned from a page of the documentation, with digits apart."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Digits(individual_digits=True), tokenizers.pre_tokenizers.ByteLevel(False)]
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=CONTROLS, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([(ROOT / "docs/architecture.md").read_text("utf-8")], trainer)
    return made


def fields_of(trained: Any) -> dict[str, Any]:
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in CONTROLS else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.eos_token_id": tokens.index("<|end|>"),
    }


@pytest.fixture(scope="module")
def ours(trained: Any) -> Tokenizer:
    return gguf_tokenizer(parsed(gguf(fields_of(trained)), Path("small.gguf")))


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_the_package_and_give_the_text_back(
    trained: Any, ours: Tokenizer, text: str
) -> None:
    ids = ours.encode(text)
    assert ids == trained.encode(text).ids
    assert ours.decode(ids) == trained.decode(ids, skip_special_tokens=True)
    assert ours.ends[0] == ours.encode("<|end|>")[0]


def test_characters_wait_until_they_are_whole(ours: Tokenizer) -> None:
    """Token by token the text is the same as at once, and no piece has half a character."""
    for text in TEXTS:
        decoder = StreamDecoder(ours)
        pieces = [decoder.push(token) for token in ours.encode(text)]
        assert "".join(pieces) + decoder.finish() == ours.decode(ours.encode(text))
        assert "\ufffd" not in "".join(pieces)


def test_ids_that_pad_the_vocabulary_are_no_text(ours: Tokenizer) -> None:
    assert ours.text_size == len(ours.tokens) == 600
    assert ours.decode([*ours.encode("a"), 600, 10**6, *ours.encode("b")]) == "ab"


def test_what_is_no_utf8_is_replaced(ours: Tokenizer) -> None:
    ids = RNG.integers(len(CONTROLS), 256, 200).tolist()
    raw = b"".join(ours.raw(token) for token in ids)
    assert ours.decode(ids) == raw.decode("utf-8", errors="replace")


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        (
            {"tokenizer.ggml.model": "bert"},
            UnsupportedOp,
            "of kind bert; those that are read: gpt2, llama",
        ),
        ({"tokenizer.ggml.pre": "odd"}, UnsupportedOp, "splits text as odd; those that are read: gpt-2,"),
        ({"tokenizer.ggml.merges": ["ab"]}, InvalidIR, "an entry that is no pair"),
        ({"tokenizer.ggml.model": None}, InvalidIR, "the file has no tokenizer .*; make it again with one"),
        ({"tokenizer.ggml.tokens": None}, InvalidIR, "no field 'tokenizer.ggml.tokens'"),
    ],
)
def test_other_tokenizers_are_refused(
    trained: Any, changes: dict[str, Any], kind: type[Exception], message: str
) -> None:
    fields = {name: value for name, value in {**fields_of(trained), **changes}.items() if value is not None}
    with pytest.raises(kind, match=message):
        gguf_tokenizer(parsed(gguf(fields), Path("small.gguf")))


def test_a_text_is_text(ours: Tokenizer) -> None:
    with pytest.raises(InputMismatch):
        ours.encode(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(
        InputMismatch, match="the text holds bytes that are no UTF-8 at position 3; give text in UTF-8"
    ):
        ours.encode("abc\ud83d")
