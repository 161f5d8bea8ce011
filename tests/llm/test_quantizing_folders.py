"""Folders as GGUF files: fields and tensors against a file by the package gguf, tokens, and what has no field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicf.errors import UnsupportedOp
from aicf.frontends.gguf.reader import GgufFile, read_gguf
from aicf.llm.loading import open_model
from aicf.llm.quantizing.opening import open_original
from aicf.llm.quantizing.quantize import quantize
from tests.llm.gguf_models import written
from tests.llm.small_models import CONFIGS, VOCABULARY, logits_of, saved, small_model
from tests.llm.test_families import scale_by_width

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("transformers")
pytestmark = pytest.mark.peers

WORDS = ["th", "in", "er", "an", "Th", "12", "lo", "é"]
NOT_SAID = ("general.", "tokenizer.", "feed_forward_length", "head_count_kv", "sliding_window", "key_length")
"""Parts of the names of fields that one of the two files states, and that follow from others in the other one."""


def with_tokenizer(folder: Path, split: Callable[[Any], Any], size: int = VOCABULARY) -> Path:
    """A byte-level BPE of all bytes and a few merges, with two control tokens; more tokens than the model has
    otherwise."""
    characters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    spelled = [
        "".join(tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(w)[0][0])
        for w in WORDS
    ]
    tokens = ["<s>", "</s>", *characters, *spelled]
    merges = [(word[0], word[1]) for word in spelled if len(word) == 2]
    made = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    made.pre_tokenizer = split(tokenizers.pre_tokenizers)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>"])
    made.save(str(folder / "tokenizer.json"))
    configured = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ messages[0].content }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(configured), "utf-8")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 1}), "utf-8")
    generation = folder / "generation_config.json"
    generation.unlink(missing_ok=True)
    return folder


def gpt2(pre: Any) -> Any:
    return pre.ByteLevel(add_prefix_space=False, use_regex=True)


def smollm(pre: Any) -> Any:
    return pre.Sequence([pre.Digits(individual_digits=True), gpt2(pre)])


def resized(config: Any) -> None:
    scale_by_width(config)
    config.vocab_size = 300
    config.bos_token_id, config.eos_token_id = 0, 1


@pytest.mark.parametrize("name", CONFIGS)
def test_a_file_says_what_that_of_gguf_says(name: str, tmp_path: Path) -> None:
    peer = small_model(name, seed=131, change=resized)
    theirs = read_gguf(written(peer, tmp_path / "theirs.gguf"))
    quantize(with_tokenizer(saved(peer, tmp_path), gpt2), tmp_path / "ours.gguf", "Q8_0", keep={"*": "F32"})
    ours = read_gguf(tmp_path / "ours.gguf")
    assert ours.tensors.keys() == theirs.tensors.keys()
    for tensor in ours.tensors:
        np.testing.assert_array_equal(
            ours.array(tensor).ravel(), theirs.array(tensor).ravel(), err_msg=tensor
        ) if not tensor.startswith("rope") else np.testing.assert_allclose(
            ours.array(tensor), theirs.array(tensor), rtol=1e-6
        )
    assert said(ours).items() >= said(theirs).items()
    assert open_model(tmp_path / "ours.gguf").family.vocabulary == 300


def said(file: GgufFile) -> dict[str, object]:
    return {
        name: pytest.approx(value) if isinstance(value, float) else value
        for name, value in file.fields.items()
        if not any(part in name for part in NOT_SAID)
    }


@pytest.mark.parametrize("split", [gpt2, smollm])
def test_tokens_are_those_of_the_folder(split: Callable[[Any], Any], tmp_path: Path) -> None:
    peer = small_model("qwen2", seed=137, change=resized)
    folder = with_tokenizer(saved(peer, tmp_path), split)
    quantize(folder, tmp_path / "q.gguf", "Q4_0")
    file, before = open_model(tmp_path / "q.gguf"), open_model(folder)
    assert (
        read_gguf(tmp_path / "q.gguf").fields["tokenizer.ggml.pre"]
        == {gpt2: "gpt-2", smollm: "smollm"}[split]
    )
    for text in ("The thing, in 1212 cafés</s>", "\n\tan  er's\U0001f642 <s>x"):
        assert file.tokenizer.encode(text) == before.tokenizer.encode(text)
        assert file.tokenizer.decode(file.tokenizer.encode(text)) == before.tokenizer.decode(
            before.tokenizer.encode(text)
        )
    assert file.tokenizer.ends == before.tokenizer.ends and file.tokenizer.begin == before.tokenizer.begin
    assert file.template is not None and before.template is not None
    assert file.template.text == before.template.text and file.named_tokens == before.named_tokens


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_llama_cpp_makes_the_same_text(name: str, tmp_path: Path) -> None:
    """Numbers in f32, and the greedy tokens of transformers in float64."""
    xllamacpp: Any = pytest.importorskip("xllamacpp")
    peer, output = small_model(name, seed=131, change=resized), tmp_path / "q.gguf"
    quantize(with_tokenizer(saved(peer, tmp_path), gpt2), output, "Q8_0", keep={"*": "F32"})
    tokens = [40, 50, 60, 70]
    for _ in range(6):
        tokens.append(int(logits_of(peer, tokens)[-1].argmax()))
    options: Any = xllamacpp.CommonParams()
    options.model.path, options.n_ctx, options.n_parallel, options.warmup = str(output), 64, 1, False
    found: list[Any] = []
    asked = {"prompt": tokens[:4], "n_predict": 6, "temperature": 0, "ignore_eos": True}
    xllamacpp.Server(options).handle_completions(asked, found.append)
    assert found[-1]["choices"][0]["text"] == open_model(output).tokenizer.decode(tokens[4:])


def odd_split(pre: Any) -> Any:
    return pre.Sequence([pre.Split(tokenizers.Regex("[aeiou]"), "isolated"), gpt2(pre)])


def pieces(folder: Path) -> None:
    """A tokenizer of SentencePiece."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>"))
    made.decoder = tokenizers.decoders.ByteFallback()
    made.save(str(folder / "tokenizer.json"))


WRONG: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "split": ("llama", lambda folder: with_tokenizer(folder, odd_split), "splits text in none of the ways"),
    "pieces": ("llama", pieces, "the tokenizer is no byte-level BPE; make a file with convert_hf_to_gguf.py"),
    "scale": ("gemma2", lambda folder: with_tokenizer(folder, gpt2), r"and the folder says .* \(scale\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_no_field_can_say(case: str, tmp_path: Path) -> None:
    """Gemma's scale follows from the width of a head in files."""
    name, change, message = WRONG[case]

    def larger(config: Any) -> None:
        config.vocab_size = 300

    change(saved(small_model(name, seed=139, change=larger), tmp_path))
    with pytest.raises(UnsupportedOp, match=message) as caught:
        open_original(tmp_path)
    assert "\n" not in str(caught.value)
