"""Sentences as vectors: the closer their meanings, the larger the product of their vectors.

encoder = aicf.llm.load_encoder("all-MiniLM-L6-v2")
similarities = encoder.embed(["a cat", "a dog"]) @ encoder.embed(["an animal"]).T
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aicf.compilation.compiled import CompiledModel
from aicf.errors import InputMismatch, InvalidIR, UnsupportedOp
from aicf.llm.families.bert import COUNT, EMBEDDING, TOKENS, Bert
from aicf.llm.loading import weights_of
from aicf.llm.sources.folder import FolderSource, model_type
from aicf.llm.sources.shards import read_object
from aicf.llm.tokenizer import library
from aicf.runtime.graph_exec import GraphExec
from aicf.runtime.tensors import Array
from aicf.support.arguments import path_from, text_from
from aicf.support.whole_numbers import is_whole

_LENGTHS = (16, 64, 256)
"""Tokens of the programs, up to the longest sentence."""
_POOLING, _SENTENCES = "1_Pooling/config.json", "sentence_bert_config.json"


def load_encoder(
    path: str | Path, target: str = "cpu", *, longest: int | None = None, threads: int = 1
) -> SentenceEncoder:
    """Loads an encoder of sentences from a Hugging Face folder and compiles it.

    Args:
        path: The folder, with `config.json`, `model.safetensors` and `tokenizer.json`; what sentence-transformers puts
            beside them says how long a sentence may be, and which tokens stand for it: all of them, if it does not.
        target: Of the programs.
        longest: Most tokens of a sentence, what follows is cut off; as the folder says, if None.
        threads: That run the programs.

    Raises:
        BackendUnavailable: the package tokenizers is missing.
        InvalidIR: a file is missing or damaged, or a tensor or setting is missing or does not fit.
        UnsupportedOp: the folder has a model of another architecture, or other tokens stand for a sentence.
        InputMismatch: `longest` is no number of tokens that the model has positions for.
    """
    from aicf.compilation.compiler import compile

    folder = path_from(path, InputMismatch, "the encoder's path")
    architecture = model_type(folder)
    if architecture not in Bert.MODEL_TYPES:
        raise UnsupportedOp(
            f"the architecture is {architecture}; encoders that are read: {', '.join(Bert.MODEL_TYPES)}",
            location=str(folder),
        )
    family = Bert(FolderSource(folder, Bert.NAMES))
    most = min(_longest(folder, family), family.context) if longest is None else longest
    if not is_whole(most, least=3) or most > family.context:
        raise InputMismatch(
            f"longest is {longest}; the model has positions for 3 to {family.context:,} tokens"
        )
    tokenizer = _tokenizer(folder, most)
    graph = family.encoder(folder.name, is_mean=_is_mean(folder))
    lengths = [*(length for length in _LENGTHS if length < most), most]
    weights = weights_of(family.source, graph)
    executable = compile(graph, weights, target, dims={"T": lengths}, threads=threads)
    return SentenceEncoder(executable, tokenizer, lengths, family.width)


class SentenceEncoder:
    """An encoder. For one thread at a time.

    Args:
        executable: Its programs, one for each length.
        tokenizer: A `tokenizers.Tokenizer`, which cuts texts to the last length.
        lengths: Tokens of the programs, rising.
        width: Of a vector.
    """

    def __init__(self, executable: CompiledModel, tokenizer: Any, lengths: Sequence[int], width: int) -> None:
        self.executable, self.width, self.lengths = executable, width, tuple(lengths)
        self._tokenizer = tokenizer
        self._steps: dict[int, GraphExec] = {}

    def embed(self, texts: Sequence[str]) -> Array:
        """A vector of length 1 for each text: f32[texts, width].

        Raises InputMismatch: `texts` is one text, or holds something else.
        """
        if isinstance(texts, str):
            raise InputMismatch("the texts are one text; give a list of texts")
        made = np.empty((len(texts), self.width), np.float32)
        for row, text in zip(made, texts, strict=True):
            row[:] = self._embedded(self._tokenizer.encode(text_from(text, InputMismatch, "a text")).ids)
        return made

    def _embedded(self, ids: Sequence[int]) -> Array:
        step = self._step(next(length for length in self.lengths if length >= len(ids)))
        padded = np.zeros(step[TOKENS].shape, np.int64)
        padded[: len(ids)] = ids
        step.fill({TOKENS: padded, COUNT: np.array([len(ids)], np.int64)})
        step.replay()
        step.synchronize()
        return step[EMBEDDING]

    def _step(self, length: int) -> GraphExec:
        if length not in self._steps:
            self._steps[length] = self.executable.attach(T=length)
        return self._steps[length]


def _tokenizer(folder: Path, longest: int) -> Any:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InvalidIR(
            "the folder has no tokenizer.json; save the tokenizer with save_pretrained", location=str(folder)
        )
    read_object(path)
    package = library()
    try:
        made = package.Tokenizer.from_file(str(path))
        made.no_padding()
        made.enable_truncation(longest)
    except Exception as error:  # the package raises no class of its own
        raise InvalidIR(f"the tokenizer is damaged: {error}; fetch it again", location=str(path)) from None
    return made


def _longest(folder: Path, family: Bert) -> int:
    path = folder / _SENTENCES
    stated = read_object(path).get("max_seq_length") if path.is_file() else None
    if stated is not None and not is_whole(stated, least=3):
        raise InvalidIR(f"'max_seq_length' is {stated}; it is 3 or more", location=str(path))
    return stated or family.context


def _is_mean(folder: Path) -> bool:
    path = folder / _POOLING
    if not path.is_file():
        return True
    stated = read_object(path)
    modes = sorted(
        name for name, is_on in stated.items() if name.startswith("pooling_mode_") and is_on is True
    )
    if modes not in (["pooling_mode_mean_tokens"], ["pooling_mode_cls_token"]):
        raise UnsupportedOp(
            f"sentences are pooled by {', '.join(modes) or 'nothing'}; what is read: the mean, or the first token",
            location=str(path),
        )
    return modes == ["pooling_mode_mean_tokens"]
