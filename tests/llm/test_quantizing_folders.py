"""Folders as GGUF files: fields and tensors against a file by the package gguf, tokens, and what has no field."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from aicf.errors import AicfError, InvalidIR, UnsupportedOp
from aicf.frontends.gguf.reader import GgufFile, read_gguf
from aicf.llm.families import rope
from aicf.llm.loading import open_model
from aicf.llm.quantizing.folder_vocabulary import vocabulary_fields
from aicf.llm.quantizing.opening import open_original
from aicf.llm.quantizing.quantize import quantize
from tests.llm.gguf_models import written
from tests.llm.quantised_modules import KINDS, Stored
from tests.llm.small_models import CONFIGS, VOCABULARY, logits_of, saved, small_model

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

from tests.llm.test_families import scale_by_width  # noqa: E402 - which is skipped where that is missing

pytestmark = pytest.mark.peers

WORDS = ["th", "in", "er", "an", "Th", "12", "lo", "é"]
NOT_SAID = ("general.", "tokenizer.", "feed_forward_length", "head_count_kv", "sliding_window", "key_length")
"""Parts of the names of fields that one of the two files states, and that follow from others in the other one."""
OF_EXPERTS = {"olmoe": [48], "qwen2_moe": [24, 20], "qwen3_moe": [24]}
"""Widths of experts and of the one that takes every token, by the name of a model."""


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
    lengths = [f"{name.replace('_', '')}.expert{kind}_feed_forward_length" for kind in ("", "_shared")]
    assert [ours.fields[each] for each in lengths if each in ours.fields] == OF_EXPERTS.get(name, [])
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


def configure(folder: Path, name: str = "config.json", **stated: Any) -> Path:
    path = folder / name
    found = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    path.write_text(json.dumps(found | stated), "utf-8")
    return folder


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
    "shares": (
        "qwen3_moe",
        lambda folder: configure(with_tokenizer(folder, gpt2), norm_topk_prob=False),
        r"of qwen3moe means True by its settings, and the folder says False \(is_normed\)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_no_field_can_say(case: str, tmp_path: Path) -> None:
    """Gemma's scale follows from the width of a head in files, the sum of Qwen's shares from the architecture."""
    name, change, message = WRONG[case]

    def larger(config: Any) -> None:
        config.vocab_size = 300

    change(saved(small_model(name, seed=139, change=larger), tmp_path))
    with pytest.raises(UnsupportedOp, match=message) as caught:
        open_original(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of width 32, heads of 8, 64 positions."""
    folder = tmp_path_factory.mktemp("llama")
    folder = with_tokenizer(saved(small_model("llama", seed=149, change=resized), folder), gpt2)
    return configure(folder, rope_parameters={"rope_type": "default", "rope_theta": 500.0})


@pytest.fixture
def folder(llama: Path, tmp_path: Path) -> Path:
    return shutil.copytree(llama, tmp_path / "folder")


def tensors(change: Callable[[Stored], object]) -> Callable[[Path], object]:
    def changed(folder: Path) -> None:
        path = folder / "model.safetensors"
        stored = load_file(path)
        change(stored)
        save_file(stored, path)

    return changed


def without(name: str) -> Callable[[Path], object]:
    return tensors(lambda stored: stored.pop(name))


def scaled(**stated: Any) -> Callable[[Path], object]:
    return lambda folder: configure(folder, rope_parameters={"rope_theta": 500.0, **stated})


def stating(**stated: Any) -> Callable[[Path], object]:
    return lambda folder: configure(folder, **stated)


ATTENTION = "model.layers.0.self_attn"
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.5, 2.0, 3.0], "original_max_position_embeddings": 16}
DAMAGED: dict[str, tuple[Callable[[Path], object], type[AicfError], str]] = {
    "head": (without("lm_head.weight"), InvalidIR, "no tensor 'lm_head.weight'"),
    "keys": (without(f"{ATTENTION}.k_proj.weight"), InvalidIR, "no tensor '.*k_proj.weight'"),
    "foreign": (
        tensors(lambda stored: stored.update({f"{ATTENTION}.sinks": np.ones(4, np.float32)})),
        UnsupportedOp,
        "it has a tensor '.*sinks', which llama does not use",
    ),
    "rows": (
        tensors(lambda stored: stored.update({"model.embed_tokens.weight": np.ones((99, 32), np.float32)})),
        InvalidIR,
        "the tokenizer has 266 tokens and the model embeds 99",
    ),
    "part": (scaled(rope_type="default", partial_rotary_factor="0.5"), InvalidIR, "no numbers that fit"),
    "base": (scaled(rope_type="default", rope_theta="abc"), InvalidIR, "no numbers that fit"),
    "factor": (scaled(rope_type="linear", factor="x"), InvalidIR, "no numbers that fit"),
    "kind": (scaled(rope_type=["a"]), UnsupportedOp, "are scaled by"),
    "long": (scaled(**LONG), InvalidIR, "of type 'longrope' need 'long_factor'"),
    "clamp": (stating(clip_qkv="x"), InvalidIR, "'clip_qkv' of config.json is 'x'; .* a float of 32 bits"),
    "cap": (stating(final_logit_softcapping="a"), InvalidIR, "'final_logit_softcapping' .* a float of 32"),
    "negative": (stating(num_experts=-1), InvalidIR, "'num_experts' .* is -1; .* whole number of 32 bits"),
    "broken": (stating(num_experts=2.5), InvalidIR, "'num_experts' .* is 2.5; .* whole number of 32 bits"),
    "large": (stating(num_experts=2**40), InvalidIR, f"is {2**40}; .* whole number of 32 bits"),
    "ends": (
        lambda folder: configure(folder, "generation_config.json", eos_token_id=[5, 1, 6, 7]),
        UnsupportedOp,
        "4 tokens end a text, and a file names 3: it would miss",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_damaged_is_told_in_one_line(case: str, folder: Path) -> None:
    damage, error, message = DAMAGED[case]
    damage(folder)
    with pytest.raises(error, match=message) as caught:
        open_original(folder)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)


def test_biases_of_zeros_that_no_layer_has_are_left_out(folder: Path, tmp_path: Path) -> None:
    """As AutoGPTQ stores them."""
    module = "model.layers.0.mlp.gate_proj"
    stored = KINDS["gptq-32"].stored(np.random.default_rng(151), 48, 32)
    without(f"{module}.weight")(folder)
    tensors(lambda known: known.update({f"{module}.{kind}": array for kind, array in stored.items()}))(folder)
    configure(folder, quantization_config=KINDS["gptq-32"].settings)
    quantize(folder, tmp_path / "q.gguf", "Q8_0")
    assert "blk.0.ffn_gate.bias" not in read_gguf(tmp_path / "q.gguf").tensors
    open_original(tmp_path / "q.gguf")


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
MAGNITUDES: dict[str, tuple[dict[str, Any], float, float]] = {
    "stated": (YARN | {"attention_factor": 1.7}, 1.7, 1.7 / (0.1 * log(4) + 1)),
    "usual": (YARN, 0.1 * log(4) + 1, 1.0),
    "long": (
        LONG | {"long_factor": [1.0, 2.0, 3.0, 4.0]},
        (1 + log(4) / log(16)) ** 0.5,
        (1 + log(4) / log(16)) ** 0.5,
    ),
}
"""Parameters of rotary positions, the magnitude they stand for, and what llama.cpp finds in the file: for YaRN, what it
multiplies 0.1 ln(factor) + 1 by."""


@pytest.mark.parametrize("case", MAGNITUDES)
def test_magnitudes_of_rotary_positions(case: str, folder: Path, tmp_path: Path) -> None:
    stated, magnitude, field = MAGNITUDES[case]
    scaled(**stated)(folder)
    quantize(folder, tmp_path / "q.gguf", "Q8_0")
    file = open_model(tmp_path / "q.gguf").family
    assert file.source.setting("rope.scaling.attn_factor") == pytest.approx(field)
    for family in (open_model(folder).family, file):
        _, found = rope.frequencies(family.source, family.head_width, 64, local=False)
        assert found == pytest.approx(magnitude)


def test_the_end_that_the_folder_names_comes_first(folder: Path, tmp_path: Path) -> None:
    """A number of no token is none; `</s>` is token 1."""
    configure(folder, "generation_config.json", eos_token_id=[7, 5, 1, 999])
    quantize(folder, tmp_path / "q.gguf", "Q8_0")
    assert list(open_model(tmp_path / "q.gguf").tokenizer.ends) == [1, 7, 5]
    assert open_model(tmp_path / "q.gguf").named_tokens["eos_token"] == "</s>"


def test_tokens_without_text_get_one_that_is_free(folder: Path) -> None:
    path = folder / "tokenizer.json"
    made = tokenizers.Tokenizer.from_file(str(path))
    made.add_tokens(["[PAD299]"])
    made.save(str(path))
    opened = open_model(folder)
    _, texts = vocabulary_fields(folder, opened.tokenizer, 300)["tokenizer.ggml.tokens"]
    assert len(set(texts)) == 300 and texts[266] == "[PAD299]" and texts[298] == "[PAD298]"
