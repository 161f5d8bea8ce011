"""Folders as sources: types of numbers, shards, what a folder may lack, and damage of every kind as one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from aicf.errors import AicfError, InvalidIR, UnsupportedOp
from aicf.llm.families import family_of_model_type
from aicf.llm.families.decoder import Decoder
from aicf.llm.loading import load, weights_of
from aicf.llm.sources.folder import FolderSource, model_type

RNG = np.random.default_rng(131)
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
}
SHAPES = {
    "input_layernorm": (16,),
    "post_attention_layernorm": (16,),
    "self_attn.q_proj": (16, 16),
    "self_attn.k_proj": (8, 16),
    "self_attn.v_proj": (8, 16),
    "self_attn.o_proj": (16, 16),
    "mlp.gate_proj": (24, 16),
    "mlp.up_proj": (24, 16),
    "mlp.down_proj": (16, 24),
}


def tensors() -> dict[str, np.ndarray]:
    shapes = {f"model.layers.{layer}.{name}": SHAPES[name] for layer in (0, 1) for name in SHAPES}
    shapes |= {"model.embed_tokens": (20, 16), "model.norm": (16,), "lm_head": (20, 16)}
    return {f"{name}.weight": RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    save_file(tensors(), tmp_path / "model.safetensors")
    return tmp_path


def opened(folder: Path) -> Decoder:
    family = family_of_model_type(model_type(folder), str(folder))
    return family(FolderSource(folder, family.NAMES))


def weights(folder: Path) -> dict[str, np.ndarray]:
    family = opened(folder)
    return weights_of(family.source, family.decoder("small", 8))


def test_names_are_those_of_the_program(folder: Path) -> None:
    assert sorted(opened(folder).source.names()) == sorted(weights(folder))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_numbers_are_widened(folder: Path, dtype: Any) -> None:
    narrow = {name: array.astype(dtype) for name, array in tensors().items()}
    save_file(narrow, folder / "model.safetensors")
    found = weights(folder)["blk.1.ffn_down.weight"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, narrow["model.layers.1.mlp.down_proj.weight"].astype(np.float32))


def test_numbers_in_f32_stay_in_the_file(folder: Path) -> None:
    """They are views of a mapping, not copies."""
    assert not weights(folder)["blk.0.attn_q.weight"].flags.owndata


def test_shards(folder: Path) -> None:
    whole = weights(folder)
    split(folder)
    found = weights(folder)
    assert found.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(found[name], array)


def identity(folder: Path) -> list[object]:
    return opened(folder).source.identity()


def test_the_identity_of_a_folder_follows_from_all_that_is_read(folder: Path) -> None:
    """Settings, the index, and weights, even those of a file of the same size and time."""
    split(folder)
    found = [identity(folder)]
    shard, index = folder / "model-00001-of-00002.safetensors", folder / "model.safetensors.index.json"
    times, data = shard.stat(), shard.read_bytes()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
    found.append(identity(folder))
    stated = json.loads(index.read_text("utf-8"))["weight_map"]
    del stated["lm_head.weight"]
    index.write_text(json.dumps({"weight_map": stated}), "utf-8")
    found.append(identity(folder))
    configure(folder, rope_theta=9.0)
    found.append(identity(folder))
    assert len({json.dumps(each) for each in found}) == 4
    (folder / "other.safetensors").write_bytes(b"not read")
    assert identity(folder) == found[-1]


def split(folder: Path) -> None:
    """The weights in two files, with an index."""
    from safetensors.numpy import load_file

    stored = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(stored)
    places = {name: f"model-0000{number % 2 + 1}-of-00002.safetensors" for number, name in enumerate(names)}
    for file in set(places.values()):
        save_file({name: stored[name] for name in names if places[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), "utf-8")


def test_a_head_that_is_tied_may_be_stored(folder: Path) -> None:
    configure(folder, tie_word_embeddings=True)
    assert "output.weight" not in weights(folder)


def configure(folder: Path, **changes: Any) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}), "utf-8")


def store(folder: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    stored = tensors()
    change(stored)
    save_file(stored, folder / "model.safetensors")


def cut(folder: Path, size: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])


def index(folder: Path, places: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), "utf-8")


HEAD = "lm_head.weight"
DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (lambda at: (at / "config.json").unlink(), InvalidIR, "the folder has no config.json; give a .gguf"),
        (lambda at: (at / "config.json").write_text("{"), InvalidIR, "the file is no JSON"),
        (lambda at: (at / "config.json").write_text("[]"), InvalidIR, "holds no JSON object"),
        (lambda at: configure(at, model_type=None), InvalidIR, "'model_type' is None"),
        (lambda at: configure(at, model_type="mamba"), UnsupportedOp, "the architecture is mamba; those that"),
        (lambda at: configure(at, num_hidden_layers=None), InvalidIR, "'num_hidden_layers' of config.json is missing"),
        (lambda at: configure(at, num_hidden_layers=0), InvalidIR, "is 0; it is 1 or more"),
        (lambda at: configure(at, hidden_size="16"), InvalidIR, "'hidden_size' of config.json is '16'"),
        (lambda at: configure(at, num_key_value_heads=3), InvalidIR, "4 heads do not share 3 heads"),
        (lambda at: configure(at, hidden_act="relu"), UnsupportedOp, "'hidden_act' of config.json is 'relu'"),
        (lambda at: configure(at, sliding_window=4, layer_types=["x"]), InvalidIR, "1 entries for 2 layers"),
        (lambda at: configure(at, rope_scaling={"type": "odd"}), UnsupportedOp, "are scaled by 'odd'"),
        (lambda at: configure(at, rope_scaling={"type": "llama3"}), InvalidIR, "'llama3' need 'low_freq_factor'"),
        (lambda at: configure(at, rope_scaling=3), InvalidIR, "'rope_scaling' of config.json is 3; it is an object"),
        (lambda at: configure(at, rope_theta="x"), InvalidIR, "are no numbers that fit"),
        (lambda at: configure(at, head_dim=3), InvalidIR, "turn 3 of the 3 elements"),
        (lambda at: (at / "model.safetensors").unlink(), InvalidIR, "neither model.safetensors nor"),
        (lambda at: cut(at, 0), InvalidIR, "the file is cut or damaged"),
        (lambda at: cut(at, 6), InvalidIR, "the file is cut or damaged"),
        (lambda at: cut(at, 200), InvalidIR, "its header is longer than the file"),
        (lambda at: cut(at, -4), InvalidIR, "the bytes of tensor '.*' do not fit its shape"),
        (lambda at: store(at, lambda all: all.pop(HEAD)), InvalidIR, f"no tensor '{HEAD}'"),
        (lambda at: store(at, lambda all: all.pop(DOWN)), InvalidIR, f"no tensor '{DOWN}'; did you mean"),
        (
            lambda at: store(at, lambda all: all.update({DOWN: np.zeros((24, 16), np.float32)})),
            InvalidIR,
            r"tensor 'blk.1.ffn_down.weight' has shape \[24, 16\]; the model's settings ask for \[16, 24\]",
        ),
        (
            lambda at: store(at, lambda all: all.update({"model.layers.0.odd.weight": np.zeros(2)})),
            UnsupportedOp,
            "a tensor 'model.layers.0.odd.weight', which llama does not use",
        ),
        (lambda at: index(at, None), InvalidIR, "no 'weight_map'"),
        (lambda at: index(at, {HEAD: "../x"}), InvalidIR, "names '../x', which is not in the folder"),
        (lambda at: index(at, {HEAD: "gone.safetensors"}), InvalidIR, "gone.safetensors: the file cannot be read"),
        (lambda at: index(at, {"odd": "model.safetensors"}), InvalidIR, "it has no tensor 'odd'"),
    ],
)  # fmt: skip
def test_damage_is_told_in_one_line(
    folder: Path, damage: Callable[[Path], object], kind: type[AicfError], message: str
) -> None:
    damage(folder)
    with pytest.raises(kind, match=message) as error:
        weights(folder)
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


def test_a_folder_of_gguf_files_is_none(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "b.gguf").touch()
    (folder / "a.gguf").touch()
    with pytest.raises(InvalidIR, match=r"the folder has no config.json; give the path of 'a.gguf' in it"):
        load(folder)


@pytest.mark.peers
def test_a_folder_without_a_tokenizer(folder: Path) -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(InvalidIR, match=r"the folder has no tokenizer.json; save the tokenizer"):
        load(folder)
