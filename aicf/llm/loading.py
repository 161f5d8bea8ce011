"""Loads a language model: reads its file, builds the program of its architecture, and compiles it."""

from __future__ import annotations

from pathlib import Path

from aicf.compiled import CompiledModel
from aicf.errors import InputMismatch, UnsupportedOp
from aicf.frontends.gguf.reader import read_gguf
from aicf.llm.cache import file_identity, load_or_compile
from aicf.llm.families.llama import Llama
from aicf.llm.model import LanguageModel
from aicf.llm.tokenizer import Tokenizer
from aicf.runtime.deferred_weights import DeferredWeights
from aicf.whole_numbers import is_whole

_FAMILIES = {"llama": Llama}
"""By the architecture that a file states."""

PREFILL = 64
"""Tokens of a prompt that one run takes."""


def load(
    path: str | Path,
    target: str = "cpu",
    *,
    context: int | None = None,
    threads: int = 1,
    cache_dir: str | Path | None = None,
) -> LanguageModel:
    """Loads a model from a GGUF file and compiles it.

    Args:
        path: The file.
        target: Of the programs.
        context: Positions of the cache of keys and values; those that the model was made for, at most 2,048, if None.
        threads: That run the programs.
        cache_dir: Folder of compiled models, shared by processes; None keeps none. Only models that you trust as you
            trust programs may be in it.

    Raises:
        ArtifactError: the folder cannot be made or used.
        InvalidIR: the file is damaged, or a tensor or field is missing.
        UnsupportedOp: an architecture, a tokenizer or a scheme of numbers that is not read.
        InputMismatch: `context` is no number of positions that the model has.
    """
    file = read_gguf(path)
    architecture = file.field("general.architecture", str)
    if architecture not in _FAMILIES:
        raise UnsupportedOp(
            f"the architecture is {architecture}; those that are read: {', '.join(_FAMILIES)}",
            location=str(path),
        )
    tokenizer, family = Tokenizer(file), _FAMILIES[architecture].of(file)
    capacity = min(family.context, 2048) if context is None else context
    if not is_whole(capacity, least=1) or capacity > family.context:
        raise InputMismatch(f"context is {context}; the model has positions for 1 to {family.context:,}")
    prefill = min(PREFILL, capacity)
    weights = DeferredWeights(file.tensors, file.array)

    def compiled() -> CompiledModel:
        from aicf.compiler import compile

        graph = family.decoder(Path(path).stem, capacity, is_tied="output.weight" not in file.tensors)
        given = {**weights, **family.states(capacity)}
        return compile(graph, given, target, dims={"T": sorted({1, prefill})}, threads=threads)

    made_of = {"file": file_identity(file.path, file.header), "context": capacity, "prefill": prefill}
    executable = load_or_compile(cache_dir, made_of, target, threads, weights, compiled)
    return LanguageModel(executable, tokenizer, capacity, prefill)
