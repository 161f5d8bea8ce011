"""Folders with quantised weights: every method against its formula in f64, products with them, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import aicf
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.errors import AicfError, InvalidIR, UnsupportedOp
from aicf.llm.families.llama import Llama
from aicf.llm.families.moe import Olmoe
from aicf.llm.loading import weights_of
from aicf.llm.model import LanguageModel
from aicf.llm.packed_weights import keep_packed
from aicf.llm.sources.folder import FolderSource
from aicf.llm.sources.names import Names
from aicf.llm.tokenizer import Tokenizer
from tests.llm.quantised_modules import KINDS, Kind, Stored
from tests.llm.small_models import VOCABULARY, logits_of, saved, small_model

RNG = np.random.default_rng(307)
ROWS, COLUMNS = 64, 256
NO_END = cast(Tokenizer, SimpleNamespace(ends=()))
MODULE, OURS = "model.layers.0.self_attn.q_proj", "blk.0.attn_q.weight"


def source_of(
    folder: Path, settings: Mapping[str, Any], tensors: Stored, names: Names = Llama.NAMES, **config: Any
) -> FolderSource:
    stated = {"model_type": "llama", "num_hidden_layers": 1, "quantization_config": settings, **config}
    (folder / "config.json").write_text(json.dumps(stated), "utf-8")
    save_file(tensors, folder / "model.safetensors")
    return FolderSource(folder, names)


def named(stored: Stored, module: str = MODULE) -> Stored:
    return {f"{module}.{kind}": array for kind, array in stored.items()}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_element_is_what_its_method_says(kind: Kind, tmp_path: Path) -> None:
    stored = kind.stored(RNG, ROWS, COLUMNS)
    norm = np.ones(COLUMNS, np.float32)
    source = source_of(tmp_path, kind.settings, {**named(stored), "model.norm.weight": norm})
    scheme = BLOCK_SCHEMES[kind.scheme]
    assert source.packed() == {OURS: scheme}
    assert source.shape(OURS) == (ROWS, COLUMNS)
    rows = source.rows(OURS)
    assert rows.nbytes == ROWS * COLUMNS // scheme.length * scheme.nbytes
    found = source.array(OURS)
    np.testing.assert_allclose(found, kind.widened(stored, ROWS, COLUMNS), rtol=2e-7, atol=1e-7)
    np.testing.assert_array_equal(found, scheme.rows(rows))
    assert source.unused([OURS, "output_norm.weight"]) == []
    with pytest.raises(InvalidIR, match="'output_norm.weight' is not stored in blocks"):
        source.rows("output_norm.weight")


BESIDE: Mapping[str, tuple[str, Stored]] = {
    "awq-bias": ("awq-32", {"bias": np.zeros(ROWS, np.float16)}),
    "int4-input": ("int4-group", {"input_scale": np.ones(1, np.float32)}),
    "int4-order": ("int4-group", {"weight_g_idx": np.arange(COLUMNS, dtype=np.int32) // 32}),
    "int8-order": ("int8-row", {"weight_g_idx": np.zeros(COLUMNS, np.int32)}),
    "fp8-order": ("fp8-row", {"weight_g_idx": np.zeros(COLUMNS, np.int32)}),
}
"""Tensors that say nothing new of a module."""


@pytest.mark.parametrize("case", BESIDE)
def test_what_belongs_to_a_matrix_is_not_foreign(case: str, tmp_path: Path) -> None:
    name, beside = BESIDE[case]
    source = source_of(tmp_path, KINDS[name].settings, named(KINDS[name].stored(RNG, ROWS, COLUMNS) | beside))
    assert source.unused([OURS]) == []


@pytest.mark.parametrize("name", ["awq-128", "fp8-small-tiles"])
def test_products_with_weights_as_they_are_laid_out(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    stored = kind.stored(RNG, ROWS, COLUMNS)
    source = source_of(tmp_path, kind.settings, named(stored))
    g = aicf.Graph("linear")
    g.output(g.linear(g.input("x", (3, COLUMNS)), g.param(OURS, (ROWS, COLUMNS))), "y")
    module = g.module()
    keep_packed(module, source.packed())
    x = RNG.standard_normal((3, COLUMNS)).astype(np.float32)
    compiled = aicf.compile(module, {OURS: source.rows(OURS)})
    assert 'kernel("cpu.matmul_blocks"' in compiled.ir("emit")
    wide = kind.widened(stored, ROWS, COLUMNS)
    bound = 2.0**-20 * (np.abs(x) @ np.abs(wide).T)
    assert (np.abs(compiled.run({"x": x})["y"] - x @ wide.T) <= bound).all()


def test_experts_are_stacked_in_blocks(tmp_path: Path) -> None:
    kind, name = KINDS["gptq-32"], "blk.0.ffn_up_exps.weight"
    experts = [kind.stored(RNG, 16, 64) for _ in range(3)]
    tensors = {
        key: array
        for number, stored in enumerate(experts)
        for key, array in named(stored, f"model.layers.0.mlp.experts.{number}.up_proj").items()
    }
    source = source_of(tmp_path, kind.settings, tensors, Olmoe.NAMES, num_experts=3)
    assert source.packed() == {name: BLOCK_SCHEMES["U4"]}
    assert source.shape(name) == (3, 16, 64)
    wide = np.stack([kind.widened(stored, 16, 64) for stored in experts])
    np.testing.assert_allclose(source.array(name), wide, rtol=2e-7, atol=1e-7)
    assert source.rows(name).shape == (3, 16, 48)
    assert source.unused([name]) == []


def test_a_model_reads_its_experts_packed(tmp_path: Path) -> None:
    """Logits are those of the widened weights, which `reference` multiplies."""
    width, hidden, experts, vocabulary = 64, 32, 4, 40
    layer, kind = "model.layers.0", KINDS["gptq-32"]
    shapes = {
        "model.embed_tokens": (vocabulary, width),
        "lm_head": (vocabulary, width),
        f"{layer}.mlp.gate": (experts, width),
        **{f"{layer}.self_attn.{part}_proj": (width, width) for part in "qkvo"},
    }
    norms = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
    tensors = {
        f"{name}.weight": RNG.standard_normal(shape).astype(np.float32) / 8 for name, shape in shapes.items()
    } | {
        f"{name}.weight": np.ones(width, np.float32)
        for name in ("model.norm", *(f"{layer}.{each}" for each in norms))
    }
    for number in range(experts):
        for part, rows, columns in (("gate", hidden, width), ("up", hidden, width), ("down", width, hidden)):
            tensors |= named(kind.stored(RNG, rows, columns), f"{layer}.mlp.experts.{number}.{part}_proj")
    config = {
        "hidden_size": width,
        "intermediate_size": hidden,
        "num_attention_heads": 4,
        "num_experts": experts,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 32,
        "rms_norm_eps": 1e-5,
    }
    family = Olmoe(source_of(tmp_path, kind.settings, tensors, Olmoe.NAMES, **config))
    packed = family.source.packed()
    assert len(packed) == 3
    graph, tokens = family.decoder("small", 8), RNG.integers(0, vocabulary, 3).tolist()
    found: list[np.ndarray] = []
    for target, kept in (("cpu", packed), ("reference", {})):
        module = graph.module()
        keep_packed(module, kept)
        weights = weights_of(family.source, graph, kept) | family.states(8)
        compiled = aicf.compile(module, weights, target, dims="T=1")
        assert ("panels_of_blocks" in compiled.ir("emit")) == (target == "cpu")
        found.append(LanguageModel(compiled, NO_END, 8, 1).logits(tokens))
    assert found[1].std() > 0.1
    np.testing.assert_allclose(*found, rtol=2e-4, atol=2e-4)


Edit = Callable[[dict[str, Any], Stored], object]
"""Changes the settings or the tensors of a module."""


def without(kind: str) -> Edit:
    return lambda settings, stored: stored.pop(kind)


def cut(kind: str) -> Edit:
    return lambda settings, stored: stored.update({kind: stored[kind][:-1]})


def cast(kind: str, dtype: str) -> Edit:
    return lambda settings, stored: stored.update({kind: stored[kind].astype(dtype)})


def states(**changed: Any) -> Edit:
    return lambda settings, stored: settings.update(changed)


def of_weights(**changed: Any) -> Edit:
    return lambda settings, stored: settings["config_groups"]["group_0"]["weights"].update(changed)


def turned(settings: dict[str, Any], stored: Stored) -> None:
    stored["g_idx"] = stored["g_idx"][::-1].copy()


def two_settings(settings: dict[str, Any], stored: Stored) -> None:
    settings["config_groups"]["group_1"] = {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}


REFUSED: Mapping[str, tuple[str, Edit, type[AicfError], str]] = {
    "method": (
        "awq-32",
        states(quant_method="bitsandbytes"),
        UnsupportedOp,
        "'quantization_config.quant_method' of config.json is 'bitsandbytes'; those that are read: awq, compressed-",
    ),
    "awq-bits": ("awq-32", states(bits=3), UnsupportedOp, "bits' of config.json is 3; what is read: 4"),
    "awq-version": (
        "awq-32",
        states(version="gemv"),
        UnsupportedOp,
        "version' .* is 'gemv'; what is read: gemm",
    ),
    "awq-group": (
        "awq-32",
        states(group_size=96),
        InvalidIR,
        f"'{MODULE}' has rows of 256 columns, which are no whole groups of 96",
    ),
    "awq-group-0": ("awq-32", states(group_size=0), InvalidIR, "group_size' .* is 0; it is -1, or 1 or more"),
    "awq-other-group": (
        "awq-32",
        states(group_size=64),
        InvalidIR,
        r"qzeros' has shape \[8, 8\]; its settings and the others ask for \[4, 8\]",
    ),
    "awq-scales": (
        "awq-32",
        without("scales"),
        InvalidIR,
        f"it has no tensor '{MODULE}.scales'; fetch the model again",
    ),
    "awq-shape": ("awq-32", cut("scales"), InvalidIR, r"scales' has shape \[7, 64\]; .* ask for \[8, 64\]"),
    "awq-type": (
        "awq-32",
        cast("scales", "int64"),
        InvalidIR,
        "scales' is of int64; it is of float32 or float16",
    ),
    "awq-empty": (
        "awq-32",
        lambda settings, stored: stored.update(qweight=np.zeros((0, 8), np.int32)),
        InvalidIR,
        "qweight' has no elements",
    ),
    "gptq-bits": (
        "gptq-32",
        states(bits=2),
        UnsupportedOp,
        "bits' of config.json is 2; what is read: 4 or 8",
    ),
    "gptq-format": (
        "gptq-32",
        states(checkpoint_format="marlin"),
        UnsupportedOp,
        "what is read: gptq or gptq_v2",
    ),
    "gptq-order": ("gptq-32", turned, UnsupportedOp, "g_idx' reorders the columns .* desc_act=False"),
    "gptq-dynamic": (
        "gptq-32",
        states(dynamic={"lm_head": {}}),
        UnsupportedOp,
        "one setting for all modules is read",
    ),
    "gptq-zeros": ("gptq-32", without("qzeros"), InvalidIR, "it has no tensor '.*qzeros'"),
    "gptq-small-group": (
        "gptq-32",
        lambda settings, stored: (
            settings.update(group_size=8),
            stored.update(qzeros=np.zeros((32, 8), np.int32), scales=np.ones((32, 64), np.float16)),
            stored.pop("g_idx"),
        ),
        UnsupportedOp,
        "has rows of 256 columns in groups of 8; what is read: multiples of 32",
    ),
    "gptq-rows": (
        "gptq-32",
        lambda settings, stored: stored.update(
            {name: stored[name][:, :size] for name, size in (("qweight", 12), ("qzeros", 1), ("scales", 12))}
        ),
        InvalidIR,
        f"'{MODULE}' has 12 rows; zero points of 4 bits are stored for multiples of 8",
    ),
    "int8-order": (
        "int8-row",
        lambda settings, stored: (
            of_weights(strategy="group", group_size=512)(settings, stored),
            stored.update(weight_g_idx=np.zeros(COLUMNS, np.int32)),
        ),
        InvalidIR,
        "rows of 256 columns, which are no whole groups of 512",
    ),
    "fp8-scales": ("fp8-rows", without("weight_scale"), InvalidIR, "it has no tensor '.*weight_scale'"),
    "fp8-shape": ("fp8-rows", cut("weight_scale"), InvalidIR, r"has shape \[63, 1\]; .* ask for \[64, 1\]"),
    "fp8-tile": ("fp8-tiles", states(weight_block_size=[128]), UnsupportedOp, "it is two sizes, 1 or more"),
    "fp8-type": ("fp8-matrix", states(fmt="e5m2"), UnsupportedOp, "fmt' of config.json is 'e5m2'"),
    "int4-format": (
        "int4-row",
        states(format="marlin-24"),
        UnsupportedOp,
        "format' .* is 'marlin-24'; what is read",
    ),
    "int4-bits": ("int4-row", of_weights(num_bits=2), UnsupportedOp, "weights.num_bits' of config.json is 2"),
    "int4-floats": (
        "int4-row",
        of_weights(type="float"),
        UnsupportedOp,
        "weights.type' .* is 'float'; .*: int",
    ),
    "int4-strategy": ("int4-row", of_weights(strategy="token"), UnsupportedOp, "strategy' .* is 'token'"),
    "int4-two": ("int4-row", two_settings, UnsupportedOp, "one setting for all modules is read"),
    "int4-none": ("int4-row", states(config_groups={}), UnsupportedOp, "it says nothing of weights"),
    "int4-shape": (
        "int4-row",
        cut("weight_packed"),
        InvalidIR,
        r"has shape \[63, 32\]; .* ask for \[64, 32\]",
    ),
    "int4-sparse": (
        "int4-row",
        states(sparsity_config={"format": "sparse-24"}),
        UnsupportedOp,
        "is 'sparse-24'",
    ),
    "int4-turned": (
        "int4-row",
        states(transform_config={"a": 1}),
        UnsupportedOp,
        "models without rotations are read",
    ),
    "int4-sections": (
        "int4-row",
        states(config_groups=3),
        InvalidIR,
        "config_groups' .* is 3; it is an object",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_told_in_one_line(
    case: tuple[str, Edit, type[AicfError], str], tmp_path: Path
) -> None:
    name, edit, error, message = case
    kind = KINDS[name]
    settings, stored = json.loads(json.dumps(kind.settings)), kind.stored(RNG, ROWS, COLUMNS)
    edit(settings, stored)
    with pytest.raises(error, match=message) as raised:
        source_of(tmp_path, settings, named(stored))
    assert "\n" not in str(raised.value) and str(tmp_path) in str(raised.value)


TILE = 32


def rounded(folder: Path) -> Stored:
    """The matrices of a folder's layers become f8E4M3FN in tiles, as `transformers` stores them: what they then are."""
    found: Stored = {}
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if "_proj." in name]:
        wide = tensors[name]
        tiles = wide.reshape(wide.shape[0] // TILE, TILE, wide.shape[1] // TILE, TILE)
        scales = np.abs(tiles).max((1, 3)).astype(np.float32) / 448
        codes = (tiles / scales[:, None, :, None]).astype(ml_dtypes.float8_e4m3fn)
        tensors[name] = codes.reshape(wide.shape)
        found[name] = (codes.astype(np.float64) * scales[:, None, :, None]).reshape(wide.shape)
        tensors[name.replace(".weight", ".weight_scale_inv")] = scales
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [TILE, TILE]}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return found


@pytest.mark.peers
def test_logits_of_tiles_of_fp8_are_those_of_transformers(tmp_path: Path) -> None:
    """Whose weights are what the tiles say."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")

    def change(config: Any) -> None:
        config.hidden_size, config.intermediate_size, config.head_dim, config.num_hidden_layers = (
            64,
            96,
            16,
            1,
        )

    peer = small_model("llama", seed=313, change=change)
    folder = saved(peer, tmp_path)
    widened = {name: torch.from_numpy(array) for name, array in rounded(folder).items()}
    assert not peer.double().load_state_dict(widened, strict=False).unexpected_keys
    family = Llama(FolderSource(folder, Llama.NAMES))
    packed = family.source.packed()
    assert {scheme.name for scheme in packed.values()} == {"E4M3_32"} and len(packed) == 7
    graph = family.decoder("small", 16)
    module = graph.module()
    keep_packed(module, packed)
    weights = weights_of(family.source, graph, packed) | family.states(16)
    model = LanguageModel(aicf.compile(module, weights, dims="T=1,8"), NO_END, 16, 8)
    tokens = RNG.integers(0, VOCABULARY, 9).tolist()
    np.testing.assert_allclose(model.logits(tokens), logits_of(peer, tokens)[-1], rtol=2e-4, atol=2e-4)
