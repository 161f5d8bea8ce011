"""An encoder of sentences against transformers in float64: sizes, ways to pool, texts that are cut, bad folders."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf.llm
from aicf.errors import AicfError, BackendUnavailable, InputMismatch, InvalidIR, UnsupportedOp
from aicf.llm.sentences import SentenceEncoder, load_encoder

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.peers

RNG = np.random.default_rng(149)
WORDS = [f"w{number}" for number in range(50)]


@pytest.fixture(scope="module")
def peer() -> Any:
    import torch

    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    model = transformers.BertModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                torch.from_numpy(RNG.standard_normal(parameter.shape) / np.sqrt(parameter.shape[-1]))
            )
    return model


@pytest.fixture(scope="module")
def folder(peer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("encoder")
    peer.float().save_pretrained(path)
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    made.enable_padding(length=20)
    made.save(str(path / "tokenizer.json"))
    write(path, "sentence_bert_config.json", {"max_seq_length": 24})
    return path


def write(folder: Path, name: str, value: Any) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(value), "utf-8")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> SentenceEncoder:
    return aicf.llm.load_encoder(folder, "reference")


def sentence(length: int) -> str:
    return " ".join(RNG.choice(WORDS, length))


def expected(peer: Any, text: str, *, is_mean: bool = True, longest: int = 24) -> np.ndarray:
    import torch

    words = [4 + WORDS.index(word) for word in text.split()]
    ids = [1, *words[: longest - 2], 2]
    with torch.no_grad():
        states = peer.double()(torch.tensor([ids])).last_hidden_state[0].numpy()
    pooled = states.mean(0) if is_mean else states[0]
    return pooled / np.linalg.norm(pooled)


def test_vectors(encoder: SentenceEncoder, peer: Any) -> None:
    """Of texts without a word, that fill a program, that need the next, and that are cut."""
    texts = [sentence(length) for length in (0, 1, 5, 14, 15, 22, 23, 40)]
    found = encoder.embed(texts)
    assert (encoder.lengths, found.dtype) == ((16, 24), np.float32)
    np.testing.assert_allclose(found, [expected(peer, text) for text in texts], atol=2e-5)


def test_the_first_token_may_stand_for_a_sentence(folder: Path, peer: Any, tmp_path: Path) -> None:
    linked(folder, tmp_path)
    write(
        tmp_path, "1_Pooling/config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    )
    text = sentence(7)
    found = load_encoder(tmp_path, "reference", longest=12).embed([text])
    np.testing.assert_allclose(found[0], expected(peer, text, is_mean=False, longest=12), atol=2e-5)


def linked(folder: Path, to: Path) -> None:
    for path in folder.iterdir():
        if path.is_file():
            (to / path.name).write_bytes(path.read_bytes())


@pytest.mark.parametrize("texts", ["one text", [3]])
def test_texts_are_a_list_of_texts(encoder: SentenceEncoder, texts: Any) -> None:
    with pytest.raises(InputMismatch):
        encoder.embed(texts)


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (lambda at: (at / "tokenizer.json").unlink(), InvalidIR, "the folder has no tokenizer.json"),
        (lambda at: write(at, "tokenizer.json", {}), InvalidIR, "the tokenizer is damaged"),
        (lambda at: write(at, "config.json", {"model_type": "gpt2"}), UnsupportedOp, "encoders that are read: bert"),
        (lambda at: write(at, "1_Pooling/config.json", {}), UnsupportedOp, "sentences are pooled by nothing"),
        (lambda at: write(at, "sentence_bert_config.json", {"max_seq_length": 0}), InvalidIR, "it is 3 or more"),
        (lambda at: configure(at, hidden_act="relu"), UnsupportedOp, "'hidden_act' of config.json is 'relu'"),
        (lambda at: configure(at, num_attention_heads=5), InvalidIR, "5 heads do not share a width of 32 evenly"),
    ],
)  # fmt: skip
def test_bad_folders_are_told(
    folder: Path, tmp_path: Path, damage: Callable[[Path], object], kind: type[AicfError], message: str
) -> None:
    linked(folder, tmp_path)
    damage(tmp_path)
    with pytest.raises(kind, match=message) as error:
        load_encoder(tmp_path, "reference")
    assert "\n" not in str(error.value)


def test_a_missing_package_is_no_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(BackendUnavailable, match="a tokenizer needs the package tokenizers"):
        load_encoder(folder)


def configure(folder: Path, **changes: Any) -> None:
    stated = json.loads((folder / "config.json").read_text("utf-8"))
    write(folder, "config.json", {**stated, **changes})


@pytest.mark.parametrize("longest", [2, 65, True])
def test_lengths_that_the_model_has_not(folder: Path, longest: int) -> None:
    with pytest.raises(InputMismatch, match=f"longest is {longest}; the model has positions for 3 to 64"):
        load_encoder(folder, longest=longest)
