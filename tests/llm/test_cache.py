"""The cache of compiled language models: what is found, without the compiler; what is not; damage; two processes."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import aicf
from aicf.backends.common import user_kernel
from aicf.backends.registry import resolve_target, target_spec, target_text
from aicf.compilation.compiled import CompiledModel
from aicf.dialects.custom_ops import ENTRY_POINTS
from aicf.errors import ArtifactError, PolicyError
from aicf.frontends.gguf.reader import read_gguf
from aicf.inference.packing import ModelWeights
from aicf.llm.cache import KERNEL_PACKAGES, load_or_compile
from aicf.llm.families.llama import Llama
from aicf.llm.loading import weights_of
from aicf.llm.model import LanguageModel
from aicf.llm.sources.gguf import GgufSource
from aicf.llm.tokenizer import Tokenizer
from aicf.runtime.deferred_weights import DeferredWeights
from tests.llm.small_llama import SmallLlama, small_llama

RNG = np.random.default_rng(107)
ROOT = Path(__file__).parents[2]
CAPACITY, PREFILL = 24, 4
SMALL = small_llama(RNG, layers=1, is_tied=True)
PROMPT = RNG.integers(0, 80, 7).tolist()


def opened(
    folder: Path,
    path: Path,
    *,
    capacity: int = CAPACITY,
    may_compile: bool = True,
    ready: CompiledModel | None = None,
) -> tuple[LanguageModel, DeferredWeights]:
    """A model from its file and the cache, and its weights; fails if it is compiled and may not be.

    Args:
        ready: Taken in place of compiling, for time.
    """
    source = GgufSource(read_gguf(path))
    weights = DeferredWeights(source.names(), lambda name, _: source.array(name))

    def compiled() -> CompiledModel:
        assert may_compile
        if ready is not None:
            return ready
        family = Llama(source)
        graph = family.decoder("small", capacity)
        given = {**weights_of(source, graph), **family.states(capacity)}
        return aicf.compile(graph, given, dims=f"T=1,{PREFILL}")

    made_of = {"files": source.identity(), "context": capacity}
    executable = load_or_compile(folder, made_of, "cpu", 1, weights, compiled)
    return LanguageModel(executable, cast(Tokenizer, SimpleNamespace(ends=())), capacity, PREFILL), weights


def check(model: LanguageModel, small: SmallLlama = SMALL) -> None:
    for tokens in (PROMPT, [*PROMPT, 5]):
        np.testing.assert_allclose(model.logits(tokens), small.logits(tokens), rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's file, and a cache with its programs."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "small.gguf").write_bytes(SMALL.file())
    check(opened(folder / "cache", folder / "small.gguf")[0])
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    """A copy of it, for the test alone; times are copied too."""
    return Path(shutil.copytree(filled, tmp_path / "models"))


def entry(folder: Path, suffix: str = ".aicf") -> Path:
    (found,) = (folder / "cache").glob(f"*{suffix}")
    return found


def test_what_was_compiled_is_found_and_computes_the_same(folder: Path) -> None:
    """Only those weights are read that programs read where they lie; all products have prepared ones."""
    model, weights = opened(folder / "cache", folder / "small.gguf", may_compile=False)
    check(model)
    assert set(weights.made) == {"token_embd.weight", *(name for name in weights if "norm" in name)}
    saved = folder / "with_weights.aicf"
    model.executable.save(saved)
    again = aicf.load(saved)
    for name, array in SMALL.weights.items():
        np.testing.assert_array_equal(again.weights[name], array)


def test_an_entry_has_no_weights_that_the_file_has(folder: Path) -> None:
    """In f32, norms and the embedding are used where they lie in the model's file."""
    from aicf.llm.array_file import map_arrays

    arrays = map_arrays(entry(folder, ".arrays"))
    assert arrays and not arrays.keys() & SMALL.weights.keys()
    assert all(array.ctypes.data % 64 == 0 for array in arrays.values())
    model, _ = opened(folder / "cache", folder / "small.gguf", may_compile=False)
    assert arrays.keys() == {bind.name for bind in model.executable.plan.derived}


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("suffix", [".aicf", ".arrays"])
@pytest.mark.parametrize("damage", [flip, lambda data: data[:-64], lambda data: data[:9], lambda data: b""])
def test_a_damaged_entry_is_found(
    folder: Path, suffix: str, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    path = entry(folder, suffix)
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING, "aicf.llm"), pytest.raises(AssertionError):
        opened(folder / "cache", folder / "small.gguf", may_compile=False)
    (message,) = caplog.messages
    assert message.startswith("the cached model cannot be used and is compiled again: ")
    assert "\n" not in message and path.name in message


def test_programs_that_share_weights_are_another_entry(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no arrays, which a model needs that begins with this size, and is no damage."""
    ready, weights = opened(folder / "cache", folder / "small.gguf")
    made_of = {"a cache that grew": True}

    def found(shared: ModelWeights | None) -> CompiledModel:
        return load_or_compile(folder / "cache", made_of, "cpu", 1, weights, lambda: ready.executable, shared)

    shared = ModelWeights()
    shared.keep(ready.executable)
    assert found(shared) is ready.executable is found(None)
    assert found(shared) is not ready.executable is not found(None)
    assert not caplog.messages


def test_a_damaged_entry_is_made_anew(folder: Path) -> None:
    ready, _ = opened(folder / "cache", folder / "small.gguf", may_compile=False)
    entry(folder, ".arrays").unlink()
    made, _ = opened(folder / "cache", folder / "small.gguf", ready=ready.executable)
    assert made.executable is ready.executable
    check(opened(folder / "cache", folder / "small.gguf", may_compile=False)[0])


def test_another_file_and_other_sizes_are_not_found(folder: Path) -> None:
    path = folder / "small.gguf"
    with pytest.raises(AssertionError):
        opened(folder / "cache", path, capacity=CAPACITY + 1, may_compile=False)
    os.utime(path, ns=(0, 1))
    with pytest.raises(AssertionError):
        opened(folder / "cache", path, may_compile=False)


def test_other_weights_of_the_same_size_and_time_are_not_found(folder: Path) -> None:
    path = folder / "small.gguf"
    times, data = path.stat(), path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(AssertionError):
        opened(folder / "cache", path, may_compile=False)


def test_a_file_that_is_replaced_after_it_was_opened_has_its_own_identity(folder: Path) -> None:
    """A program is kept under the file that it was made of, not under the one that took its place."""
    path = folder / "small.gguf"
    source = GgufSource(read_gguf(path))
    before = source.identity()
    shutil.copy(path, folder / "new")
    (folder / "new").rename(path)
    assert source.identity() == before != GgufSource(read_gguf(path)).identity()


def test_programs_of_other_user_kernels_are_not_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_kernel, "definitions_stamp", lambda: ["mine.scale 1"])
    with pytest.raises(AssertionError):
        opened(folder / "cache", folder / "small.gguf", may_compile=False)
    assert KERNEL_PACKAGES == ENTRY_POINTS


def test_a_target_without_xdsl_is_the_one_with_it() -> None:
    assert target_text("cpu") == target_spec(resolve_target("cpu"))
    assert target_text("cpu:x86-64-v3") == "cpu:x86-64-v3"
    with pytest.raises(PolicyError, match="threads must be at least 1, got 0"):
        target_text("cpu", 0)


def test_a_folder_that_cannot_be_used_is_told(folder: Path) -> None:
    with pytest.raises(
        ArtifactError, match="cannot use the cache folder: .*; choose one that can be written"
    ):
        opened(folder / "small.gguf", folder / "small.gguf")


def test_a_cache_that_cannot_be_written_costs_only_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    ready, _ = opened(folder / "cache", folder / "small.gguf")
    monkeypatch.setattr(os, "fsync", full)
    file, weights = folder / "small.gguf", DeferredWeights((), lambda name, dtype: np.zeros(0))
    made = load_or_compile(tmp_path / "new", {"file": str(file)}, "cpu", 1, weights, lambda: ready.executable)
    assert made is ready.executable
    assert caplog.messages == ["the cache cannot keep the compiled model: No space left on device"]
    assert not list((tmp_path / "new").glob("*.a*"))


LOAD = """
import sys
import aicf.llm
model = aicf.llm.load(sys.argv[1], context=24, cache_dir=sys.argv[2])
assert sys.argv[3] == "compiles" or not any(name.startswith("xdsl") for name in sys.modules)
print(list(model.tokens([1, 2, 3], max_tokens=4)))
"""


@pytest.mark.peers
def test_processes_that_start_together_compile_once_and_later_ones_never(tmp_path: Path) -> None:
    """Later ones do not even import what a compiler needs."""
    pytest.importorskip("tokenizers")
    characters = [chr(code) for code in range(33, 113)]
    tokenizer: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": characters,
        "tokenizer.ggml.token_type": [1] * 80,
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": 79,
    }
    (tmp_path / "small.gguf").write_bytes(SMALL.file(**tokenizer))

    def start(mode: str) -> Any:
        arguments = [str(tmp_path / "small.gguf"), str(tmp_path / "cache"), mode]
        command = [sys.executable, "-c", LOAD, *arguments]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes)

    together = [process.communicate(timeout=120) for process in [start("compiles"), start("compiles")]]
    later = start("finds").communicate(timeout=120)
    assert len({out for out, _ in (*together, later)}) == 1, (together, later)
    assert together[0][0].startswith("["), together
    assert len(list((tmp_path / "cache").glob("*.aicf"))) == 1
