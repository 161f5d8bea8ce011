"""A GGUF file as a source of models. Its names are those that families use."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from aicf.dialects.block_schemes import Scheme
from aicf.frontends.gguf.reader import GgufFile
from aicf.llm.sources.base import Source, identity_of
from aicf.runtime.tensors import Array, numpy_dtype

_NEIGHBOURS = frozenset({"llama"})
"""Architectures whose queries and keys llama.cpp stores permuted, so that neighbours are a pair."""

_LOCAL_BASES = {"gemma3": 10000.0}
"""Base of rotary positions in layers with a window, where files do not state it."""

_ROPE_TENSORS = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}
"""Tensors that are settings."""


class GgufSource(Source):
    """A model in a GGUF file.

    Args:
        file: That is read.

    Raises:
        InvalidIR: the file states no architecture.
    """

    def __init__(self, file: GgufFile) -> None:
        super().__init__(file.path, file.field("general.architecture", str))
        self.file = file
        self.rotates_neighbours = self.architecture in _NEIGHBOURS

    def identity(self) -> list[object]:
        stored = identity_of(self.file.data.data, self.file.written)
        return [*stored, hashlib.sha256(self.file.header).hexdigest()]

    def setting(self, name: str) -> object:
        return self.file.fields.get(f"{self.architecture}.{name}")

    def called(self, name: str) -> str:
        return f"field '{self.architecture}.{name}'"

    def rope_parameters(self, *, local: bool) -> Mapping[str, Any]:
        base = self.setting("rope.freq_base_swa") or _LOCAL_BASES.get(self.architecture)
        if local and base is not None:
            return {"rope_theta": base}
        width, kind = self.setting("rope.dimension_count"), self.setting("rope.scaling.type") or "default"
        found: dict[str, Any] = {
            "rope_theta": self.number("rope.freq_base", 10000.0),
            "rope_type": kind,
            "factor": self.number("rope.scaling.factor", 1.0),
            "original_max_position_embeddings": self.size(
                "rope.scaling.original_context_length", self.size("context_length")
            ),
            "attn_factor" if kind == "yarn" else "attention_factor": self.setting("rope.scaling.attn_factor"),
        }
        if width is not None:
            found["width"] = self.size("rope.dimension_count")
        if self.has("rope_factors_long.weight"):
            found |= {
                "rope_type": "longrope",
                "long_factor": self.array("rope_factors_long.weight"),
                "short_factor": self.array("rope_factors_short.weight"),
            }
        elif self.has("rope_freqs.weight"):
            found |= {"rope_type": "divided", "divisors": self.array("rope_freqs.weight")}
        return found

    def has(self, name: str) -> bool:
        return name in self.file.tensors

    def shape(self, name: str) -> tuple[int, ...]:
        return self.file.tensor(name).shape

    def array(self, name: str, dtype: str = "f32") -> Array:
        return self.file.array(name).astype(numpy_dtype(dtype), copy=False)

    def packed(self) -> dict[str, Scheme]:
        return {
            name: each.scheme
            for name, each in self.file.tensors.items()
            if each.scheme.length > 1 and len(each.shape) > 1
        }

    def rows(self, name: str) -> Array:
        return self.file.rows(name)

    def names(self) -> list[str]:
        return [name for name in self.file.tensors if name not in _ROPE_TENSORS]

    def unused(self, used: Iterable[str]) -> list[str]:
        return sorted(self.file.tensors.keys() - set(used) - _ROPE_TENSORS)
