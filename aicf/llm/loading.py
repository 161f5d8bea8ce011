"""Loads a language model: reads its file, builds the program of its architecture, and compiles it."""

from __future__ import annotations

from pathlib import Path

from aicf.errors import InputMismatch, UnsupportedOp
from aicf.frontends.gguf.reader import GgufFile, read_gguf
from aicf.llm.families.llama import Llama
from aicf.llm.model import LanguageModel
from aicf.llm.tokenizer import Tokenizer
from aicf.runtime.tensors import Array
from aicf.whole_numbers import is_whole

_FAMILIES = {"llama": Llama}
"""By the architecture that a file states."""

PREFILL = 64
"""Tokens of a prompt that one run takes."""


def load(
    path: str | Path, target: str = "cpu", *, context: int | None = None, threads: int = 1
) -> LanguageModel:
    """Loads a model from a GGUF file and compiles it.

    Args:
        path: The file.
        target: Of the programs.
        context: Positions of the cache of keys and values; those that the model was made for, at most 2,048, if None.
        threads: That run the programs.

    Raises:
        InvalidIR: the file is damaged, or a tensor or field is missing.
        UnsupportedOp: an architecture, a tokenizer or a scheme of numbers that is not read.
        InputMismatch: `context` is no number of positions that the model has.
    """
    from aicf.compiler import compile

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
    graph = family.decoder(Path(path).stem, capacity, is_tied="output.weight" not in file.tensors)
    prefill = min(PREFILL, capacity)
    weights = {**_weights(file), **family.states(capacity)}
    executable = compile(graph, weights, target, dims={"T": sorted({1, prefill})}, threads=threads)
    return LanguageModel(executable, tokenizer, capacity, prefill)


def _weights(file: GgufFile) -> dict[str, Array]:
    """All tensors, in f32."""
    return {name: file.array(name) for name in file.tensors}
