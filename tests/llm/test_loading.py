"""Whole models, with tokenizers and templates, from a folder and from a file: the same text as transformers makes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import aicf.llm
from aicf.errors import InputMismatch, InvalidIR, PolicyError
from aicf.llm.loading import open_model
from tests.llm.gguf_models import written
from tests.llm.small_models import VOCABULARY, saved, small_model

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.peers

LETTERS = list("abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ.,")
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message.content }}</s>{% endfor %}"


@pytest.fixture(scope="module")
def model() -> Any:
    return small_model("llama", seed=139)


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a vocabulary of letters, which starts every text with `<s>`."""
    path = saved(model, tmp_path_factory.mktemp("model"))
    tokens = {"<unk>": 0, "<s>": 1, "</s>": 2, **{letter: 3 + at for at, letter in enumerate(LETTERS)}}
    tokens |= {"<unused>": VOCABULARY - 2, "ab": VOCABULARY - 1}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=bytes_of(tokens), merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    made.save(str(path / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return path


def bytes_of(tokens: dict[str, int]) -> dict[str, int]:
    """Byte-level BPE writes a space as another letter."""
    return {token.replace(" ", "\u0120"): number for token, number in tokens.items()}


def expected(model: Any, ids: list[int], count: int) -> list[int]:
    """Greedy tokens in float64, as transformers makes them."""
    import torch

    made = model.double().generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False, eos_token_id=2)
    return made[0, len(ids) :].tolist()


def test_a_folder_makes_text(folder: Path, model: Any) -> None:
    lm = aicf.llm.load(folder, "reference", context=32)
    ids = lm.tokenizer.encode("the cat")
    assert ids == [1, *(3 + LETTERS.index(letter) for letter in "the cat")]
    following = expected(model, ids, 12)
    assert list(lm.tokens(ids, max_tokens=12)) == [token for token in following if token != 2]
    assert "".join(lm.generate("the cat", max_tokens=12)) == lm.tokenizer.decode(following)
    assert lm.template is not None
    prompt = lm.template.prompt([{"role": "user", "content": "ab"}])
    assert lm.tokenizer.encode(prompt) == [1, 3, 4, 2]  # the token that starts a text is there once


def test_a_file_makes_the_same_text(folder: Path, model: Any, tmp_path: Path) -> None:
    def add_tokenizer(writer: Any) -> None:
        stated = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(sorted(stated, key=stated.get))
        writer.add_token_types([3, 3, 3, *[1] * (VOCABULARY - 3)])
        writer.add_token_merges(["a b"])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_add_bos_token(True)

    path = written(model, tmp_path / "model.gguf", add_tokenizer)
    lm = aicf.llm.load(path, "reference", context=32)
    ids = lm.tokenizer.encode("the cat")
    assert list(lm.tokens(ids, max_tokens=12)) == [token for token in expected(model, ids, 12) if token != 2]


def test_a_tokenizer_of_another_model_is_told(folder: Path, tmp_path: Path) -> None:
    """A control token may have no row: nobody but a text with its name asks for it."""
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    stated = json.loads((other / "tokenizer.json").read_text("utf-8"))
    kept = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for is_control in (True, False):
        more = {"id": VOCABULARY, "content": "<image>", "special": is_control, **kept}
        changed = {**stated, "added_tokens": [*stated["added_tokens"], more]}
        (other / "tokenizer.json").write_text(json.dumps(changed), "utf-8")
        if is_control:
            assert open_model(other).tokenizer.encode("<image>") == [1, VOCABULARY]
    message = (
        f"the tokenizer has {VOCABULARY + 1} tokens and the model embeds {VOCABULARY}; they are of different"
    )
    with pytest.raises(InvalidIR, match=message):
        open_model(other)


def test_a_policy_that_is_wrong_is_told(folder: Path) -> None:
    with pytest.raises(PolicyError, match=r"packed_activations.* f32, int8"):
        aicf.llm.load(folder, policy={"packed_activations": "int4"})


def test_what_is_neither_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidIR, match=r"gone: the file cannot be read: No such file"):
        aicf.llm.load(tmp_path / "gone")
    with pytest.raises(InputMismatch, match=r"the model's path is 3; give a path"):
        aicf.llm.load(3)  # type: ignore[arg-type]
    with pytest.raises(InputMismatch, match=r"context is 65; the model has positions for 1 to 64"):
        aicf.llm.load(folder, context=65)
