"""Models that are written in blocks: which scheme a tensor gets, what the file says, and what the report does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from aicf.dialects.block_schemes import SCHEMES
from aicf.errors import AicfError, InputMismatch, InvalidIR, UnsupportedOp
from aicf.frontends.gguf.reader import read_gguf
from aicf.llm.quantizing import original
from aicf.llm.quantizing.encoding import encode
from aicf.llm.quantizing.original import Original
from aicf.llm.quantizing.quantize import quantize
from aicf.llm.quantizing.recipe import ASKED_FOR, check_keep
from aicf.tools.aicf_cli import app_of
from aicf.tools.cli.quantize_command import BlockScheme
from tests.frontends.gguf.writer import Stored
from tests.llm.letters import ALPHABET
from tests.llm.small_llama import SmallLlama, small_llama

pytest.importorskip("tokenizers")

RNG = np.random.default_rng(311)
MATRIX = "blk.1.ffn_down.weight"
FIELDS = {
    "general.file_type": 0,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": [*ALPHABET.replace(" ", "\u0120").replace("\n", "\u010a")[:-1], "<|end|>"],
    "tokenizer.ggml.token_type": [1] * 79 + [3],
    "tokenizer.ggml.merges": [],
    "tokenizer.ggml.eos_token_id": 79,
    "some.numbers": [1.5, 2.5],
}


@pytest.fixture(scope="module")
def small() -> SmallLlama:
    return small_llama(RNG)


@pytest.fixture(scope="module")
def model(small: SmallLlama, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    path.write_bytes(small.file(**FIELDS))
    return path


def test_what_a_file_holds(small: SmallLlama, model: Path, tmp_path: Path) -> None:
    """Matrices in blocks, the ends in more bits, vectors as they were, and all fields."""
    found = quantize(model, tmp_path / "q.gguf", "Q4_0")
    file, before = read_gguf(tmp_path / "q.gguf"), read_gguf(model)
    schemes = {name: tensor.scheme.name for name, tensor in file.tensors.items()}
    assert list(schemes) == list(before.tensors)
    for name, array in small.weights.items():
        if array.ndim == 1:
            assert schemes.pop(name) == "F32"
            np.testing.assert_array_equal(file.array(name), array)
        else:
            scheme = "Q8_0" if name in ("token_embd.weight", "output.weight") else "Q4_0"
            assert schemes.pop(name) == scheme
            np.testing.assert_array_equal(file.rows(name), encode(SCHEMES[scheme], array))
    assert not schemes
    written = dict(file.fields)
    replaced = {name: written.pop(name) for name in ("general.quantization_version", "general.alignment")}
    assert replaced == {"general.quantization_version": 2, "general.alignment": 32}
    assert written == {**before.fields, "general.file_type": 2}
    errors = [each.relative_error for each in found.tensors]
    assert errors == sorted(errors, reverse=True) and len(errors) == 16
    for each in found.tensors:
        off = file.array(each.name).astype(np.float64) - small.weights[each.name]
        assert each.relative_error == pytest.approx(
            np.sqrt((off**2).sum() / np.square(small.weights[each.name], dtype=np.float64).sum())
        )
        assert each.largest == pytest.approx(np.abs(off).max())
    assert found.bytes_after == sum(tensor.nbytes for tensor in file.tensors.values())
    assert found.bytes_before == 4 * found.elements


def test_the_same_model_gives_the_same_bytes(model: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        quantize(model, tmp_path / name, "Q5_1")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_in_blocks(model: Path, tmp_path: Path) -> None:
    """A tensor whose scheme stays keeps its bytes; others are rounded a second time, which is said."""
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    assert not quantize(model, first, "Q8_0").notes
    found = quantize(first, second, "Q4_1", keep={"blk.0.*": "Q8_0"})
    assert "8 tensors were in blocks before" not in str(found) and "7 tensors were in blocks before" in str(
        found
    )
    before, after = read_gguf(first), read_gguf(second)
    assert all(name.startswith("blk.1.") for name in (each.name for each in found.tensors))
    for name in before.tensors:
        if after.tensor(name).scheme == before.tensor(name).scheme:
            np.testing.assert_array_equal(after.blocks(name), before.blocks(name))


def test_schemes_of_patterns_and_of_rows_that_are_too_short(model: Path, tmp_path: Path) -> None:
    """The last pattern that fits holds; rows of 64 and 96 are no blocks of 256."""
    keep = {"blk.*": "F32", "blk.*.attn_?.weight": "F16", MATRIX: "Q5_0"}
    quantize(model, tmp_path / "kept.gguf", "Q4_K", keep=keep)
    file = read_gguf(tmp_path / "kept.gguf")
    found = {name: file.tensor(name).scheme.name for name in file.tensors}
    assert found["blk.0.attn_q.weight"] == "F16" and found[MATRIX] == "Q5_0"
    assert found["blk.0.ffn_down.weight"] == "F32" and found["output.weight"] == "Q8_0"
    report = quantize(model, tmp_path / "short.gguf", "Q4_K")
    assert {each.scheme for each in report.tensors} == {"Q5_0", "Q8_0"}
    assert "rows of 96 are no blocks of 256, as Q4_K has" in {each.because for each in report.tensors}


def test_rows_that_fill_no_block(tmp_path: Path) -> None:
    small = small_llama(RNG, layers=1, heads=1, kv_heads=1)
    (tmp_path / "odd.gguf").write_bytes(small.file(**FIELDS))
    report = quantize(tmp_path / "odd.gguf", tmp_path / "q.gguf", "Q4_0")
    assert {each.scheme for each in report.tensors if each.name.endswith("attn_q.weight")} == {"F16"}


WRONG = {
    "scheme": ({"scheme": "Q2_K"}, "scheme: there is no scheme 'Q2_K'; those that are written: Q4_0, "),
    "kept scheme": ({"keep": {"*": "Q3"}}, "keep: there is no scheme 'Q3'"),
    "pattern": ({"keep": {"blk.7.*": "F16"}}, "keep: no matrix is called 'blk.7.*'"),
    "last": ({"keep": {"zzz": "F16"}}, "keep: no matrix is called 'zzz'; the last one is 'output.weight'"),
    "window": ({"window": 8}, "window and threads are for the text"),
    "threads": ({"threads": 2}, "window and threads are for the text"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told(case: str, model: Path, tmp_path: Path) -> None:
    wrong, message = WRONG[case]
    output = tmp_path / "never.gguf"
    with pytest.raises(InputMismatch, match=message.replace("*", r"\*")):
        quantize(model, output, **{"scheme": "Q4_0", **wrong})
    assert not output.exists()


def test_a_pattern_where_there_are_no_matrices() -> None:
    with pytest.raises(InputMismatch, match="no matrix is called 'a'; the model has no matrices"):
        check_keep({"a": "F16"}, [])


def test_a_file_that_would_not_load(small: SmallLlama, tmp_path: Path) -> None:
    """A tensor is missing, as in a part of a model; or nothing uses it."""
    path, output = tmp_path / "wrong.gguf", tmp_path / "q.gguf"
    left = {name: array for name, array in small.weights.items() if name != MATRIX}
    path.write_bytes(replace(small, weights=left).file(**FIELDS, **{"split.count": 2}))
    with pytest.raises(InvalidIR, match=f"it has no tensor '{MATRIX}'"):
        quantize(path, output, "Q4_0")
    foreign = small.weights | {"blk.0.attn_sinks.weight": np.ones(4, np.float32)}
    path.write_bytes(replace(small, weights=foreign).file(**FIELDS))
    with pytest.raises(
        UnsupportedOp, match="it has a tensor 'blk.0.attn_sinks.weight', which llama does not"
    ):
        quantize(path, output, "Q4_0")
    assert not output.exists()


def test_a_tensor_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original, "_PIECE", 24)
    numbers, reads = RNG.standard_normal((10, 8)).astype(np.float32), 0

    def read() -> np.ndarray:
        nonlocal reads
        reads += 1
        return numbers.view(np.uint8)

    pieces = list(Original("a", (2, 5, 8), SCHEMES["F32"], read).pieces())
    assert [len(piece) for piece in pieces] == [3, 3, 3, 1] and reads == 1
    np.testing.assert_array_equal(np.concatenate(pieces), numbers)


@pytest.mark.parametrize("element", [np.nan, np.inf, 1e6])
def test_elements_that_no_block_holds(element: float, small: SmallLlama, tmp_path: Path) -> None:
    """Nothing is written, and f32 is a way out."""
    array = small.weights[MATRIX].copy()
    array[3, 5] = element
    stored = Stored(tuple(reversed(array.shape)), 0, array.tobytes())
    path, output = tmp_path / "wrong.gguf", tmp_path / "q.gguf"
    path.write_bytes(small.file({MATRIX: stored}, **FIELDS))
    with pytest.raises(AicfError, match=f"'{MATRIX}' has an element of magnitude"):
        quantize(path, output, "Q4_0")
    assert not output.exists()
    quantize(path, output, "Q4_0", keep={MATRIX: "F32"})
    np.testing.assert_array_equal(read_gguf(output).array(MATRIX), array)


def test_the_command(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "q.gguf"
    command = [
        "quantize",
        str(model),
        "-o",
        str(output),
        "--scheme",
        "Q5_0",
        "--keep",
        "blk.0.*=Q8_0",
        "--json",
    ]
    done = CliRunner().invoke(app_of("quantize"), command)
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["scheme"] == "Q5_0" and found["prediction"] is None
    assert {each["scheme"] for each in found["tensors"] if each["name"].startswith("blk.0.")} == {"Q8_0"}
    assert read_gguf(output).tensor(MATRIX).scheme.name == "Q5_0"


def test_the_command_names_all_schemes() -> None:
    assert tuple(each.value for each in BlockScheme) == ASKED_FOR


@pytest.mark.parametrize("option", [["--keep", "Q8_0"], ["--keep", "=Q8_0"], ["--text", "missing.txt"]])
def test_options_that_are_wrong(option: list[str], model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputMismatch, match=r"write such as 'output.weight=Q8_0'|cannot read it"):
        CliRunner().invoke(
            app_of("quantize"),
            ["quantize", str(model), "-o", str(tmp_path / "q"), *option],
            catch_exceptions=False,
        )


@pytest.mark.peers
def test_a_file_is_read_by_the_package_gguf(model: Path, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    quantize(model, tmp_path / "q.gguf", "Q4_1")
    theirs, ours = gguf.GGUFReader(tmp_path / "q.gguf"), read_gguf(tmp_path / "q.gguf")
    for tensor in theirs.tensors:
        found = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(found.reshape(ours.tensor(tensor.name).shape), ours.array(tensor.name))
    for name, value in ours.fields.items():
        assert theirs.fields[name].contents() == value


@pytest.mark.peers
def test_a_text_before_and_after(tmp_path: Path) -> None:
    """Perplexities of the numbers of both files, in float64."""
    small, text, output = small_llama(RNG, layers=1, is_tied=True), "a text in windows", tmp_path / "q.gguf"
    (tmp_path / "small.gguf").write_bytes(small.file(**FIELDS))
    found = quantize(tmp_path / "small.gguf", output, "Q4_0", text=text, window=6).prediction
    file = read_gguf(output)
    rounded = replace(small, weights={name: file.array(name) for name in file.tensors})
    assert found is not None
    assert found.before == pytest.approx(perplexity_of(small, text, 6), rel=1e-4)
    assert found.after == pytest.approx(perplexity_of(rounded, text, 6), rel=1e-4)
    assert found.after != pytest.approx(found.before, rel=1e-2)


def perplexity_of(model: SmallLlama, text: str, window: int) -> float:
    tokens = [ALPHABET.index(character) for character in text]
    losses: list[float] = []
    for start in range(0, len(tokens), window):
        part = tokens[start : start + window]
        for end in range(1, len(part)):
            logits = model.logits(part[:end])
            losses.append(np.log(np.exp(logits).sum()) - logits[part[end]])
    return float(np.exp(np.mean(losses)))
