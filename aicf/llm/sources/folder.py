"""A Hugging Face folder as a source of models: `config.json` and safetensors files, with names translated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from aicf.dialects.block_schemes import Scheme
from aicf.errors import InvalidIR, did_you_mean, quoted
from aicf.llm.sources.base import Source
from aicf.llm.sources.names import SETTINGS, Names, transposed
from aicf.llm.sources.quantised.method import PackedMatrix
from aicf.llm.sources.quantised.methods import packed_matrices
from aicf.llm.sources.shards import read_object, stored_in
from aicf.runtime.tensors import Array, numpy_dtype

CONFIG = "config.json"
KINDS = ("weight", "bias")
NOTHING: Mapping[str, Any] = {}

_BUFFERS = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias", "position_ids")
"""Ends of the names of what old files store besides weights: tables that follow from the settings."""


def model_type(folder: Path) -> str:
    """The architecture of a folder's model. Raises InvalidIR if it states none."""
    if not (folder / CONFIG).is_file():
        found = next((path.name for path in sorted(folder.glob("*.gguf"))), None)
        way_out = (
            f"give the path of '{found}' in it" if found else "give a .gguf file, or a Hugging Face folder"
        )
        raise InvalidIR(f"the folder has no {CONFIG}; {way_out}", location=str(folder))
    found = read_object(folder / CONFIG).get("model_type")
    if not isinstance(found, str):
        raise InvalidIR(
            f"'model_type' is {quoted(found)}; it names the architecture", location=str(folder / CONFIG)
        )
    return found


class FolderSource(Source):
    """A model in a folder.

    Args:
        folder: Its path.
        names: Of its tensors.

    Raises:
        InvalidIR: a file is missing or damaged.
    """

    rotates_neighbours = False

    def __init__(self, folder: Path, names: Names) -> None:
        super().__init__(folder, model_type(folder))
        self._config, self._names = read_object(folder / CONFIG), names
        self._stored_files = stored_in(folder)
        self._tensors = self._stored_files.tensors
        self._matrices = packed_matrices(self._config, self._tensors, str(folder))

    def identity(self) -> list[object]:
        config = json.dumps(self._config, sort_keys=True)
        return [*self._stored_files.identity, hashlib.sha256(config.encode()).hexdigest()]

    def setting(self, name: str) -> object:
        keys = SETTINGS.get(name, ())
        return next((self._config[key] for key in keys if self._config.get(key) is not None), None)

    def called(self, name: str) -> str:
        keys = SETTINGS.get(name, (name,))
        return f"'{next((key for key in keys if key in self._config), keys[0])}' of {CONFIG}"

    def rope_parameters(self, *, local: bool) -> Mapping[str, Any]:
        """From `rope_parameters`, which may have an entry a kind of layer, or from the keys that came before it."""
        stated = self._object("rope_parameters")
        kind = "sliding_attention" if local else "full_attention"
        if kind in stated:
            stated = self._object("rope_parameters", kind)
        elif not stated:
            stated = self._former_rope_parameters(local)
        return {"original_max_position_embeddings": self._original_context(), **stated}

    def _former_rope_parameters(self, local: bool) -> Mapping[str, Any]:
        base = self._config.get("rope_local_base_freq") if local else None
        scaling = self._object("rope_scaling") if base is None else NOTHING
        return {
            "rope_type": scaling.get("type", "default"),
            "rope_theta": base or self._config.get("rope_theta", 10000.0),
            "partial_rotary_factor": self._config.get("partial_rotary_factor", 1.0),
            **scaling,
        }

    def _original_context(self) -> object:
        return self._config.get("original_max_position_embeddings", self.setting("context_length"))

    def _object(self, *keys: str) -> Mapping[str, Any]:
        found = self._config
        for key in keys:
            inner: object = found.get(key)
            if inner is None:
                return NOTHING
            if not isinstance(inner, dict):
                raise self.error(f"'{key}' of {CONFIG} is {quoted(inner)}; it is an object")
            found = cast("Mapping[str, Any]", inner)
        return found

    def has(self, name: str) -> bool:
        try:
            return all(stored in self._matrices or stored in self._tensors for stored in self._stored(name))
        except KeyError:  # no name of the family
            return False

    def shape(self, name: str) -> tuple[int, ...]:
        stored, matrices = self._stored(name), self._matrices_of(name)
        if matrices:
            return (*self._experts(name), *matrices[0].shape)
        if len(stored) == 1:
            return self._array(name).shape
        return (len(stored), *self._tensor(stored[0]).shape)

    def array(self, name: str, dtype: str = "f32") -> Array:
        if matrices := self._matrices_of(name):
            return matrices[0].scheme.rows(self.rows(name)).astype(numpy_dtype(dtype), copy=False)
        return self._array(name).astype(numpy_dtype(dtype), copy=False)

    def packed(self) -> dict[str, Scheme]:
        return {name: matrices[0].scheme for name in self.names() if (matrices := self._matrices_of(name))}

    def rows(self, name: str) -> Array:
        matrices = self._matrices_of(name)
        if not matrices:
            return super().rows(name)
        rows = [matrix.rows() for matrix in matrices]
        return np.stack(rows) if self._experts(name) else rows[0]

    def names(self) -> list[str]:
        layers = range(self.size("block_count"))
        modules = dict.fromkeys(
            module.replace("{}", str(layer)) for module in self._names.modules for layer in layers
        )
        return [name for module in modules for kind in KINDS if self.has(name := f"{module}.{kind}")]

    def unused(self, used: Iterable[str]) -> list[str]:
        names = [
            *used,
            *(["output.weight"] if "output" in self._names.modules else []),
        ]  # a tied head may be stored
        taken = {stored for name in names for stored in self._stored(name)}
        taken.update(part for name in names for matrix in self._matrices_of(name) for part in matrix.stored)
        left = self._tensors.keys() - taken
        ignored = tuple(f"{module}." for module in self._names.ignored)
        return sorted(
            name
            for name in left
            if not name.endswith(_BUFFERS) and not (ignored and name.startswith(ignored))
        )

    def _stored(self, name: str) -> list[str]:
        """What the folder calls a tensor: several names if it is stored by experts."""
        stored, _ = self._names.stored(name)
        if "{expert}" not in stored:
            return [stored]
        count = self.size("expert_count")
        if count > len(self._tensors):
            raise self.error(f"{self.called('expert_count')} is {count:,}; the folder has fewer tensors")
        return [stored.replace("{expert}", str(expert)) for expert in range(count)]

    def _experts(self, name: str) -> tuple[int, ...]:
        """The number of experts, of a tensor that is stored by experts; nothing for others."""
        stored, _ = self._names.stored(name)
        return (len(self._stored(name)),) if "{expert}" in stored else ()

    def _matrices_of(self, name: str) -> list[PackedMatrix]:
        """A tensor's quantised matrices, one or as many as there are experts; none if it is stored as numbers."""
        stored, change = self._names.stored(name)
        found = [self._matrices[each] for each in self._stored(name) if each in self._matrices]
        if found and change not in (None, transposed):  # methods store all matrices as [to, from]
            raise self.unsupported(
                f"tensor '{stored}' is quantised; leave it as numbers (modules_to_not_convert)"
            )
        if len({(each.shape, each.scheme.name) for each in found}) > 1 or len(found) not in (
            0,
            len(self._stored(name)),
        ):
            raise self.error(f"the tensors '{stored}' differ in shape or type; fetch the model again")
        return found

    def _array(self, name: str) -> Array:
        parts = [self._tensor(stored) for stored in self._stored(name)]
        stored, change = self._names.stored(name)
        if "{expert}" not in stored:
            return parts[0] if change is None else change(parts[0])
        if len({part.shape for part in parts}) != 1:
            raise self.error(f"the tensors '{stored}' differ in shape; fetch the model again")
        return np.stack(parts)

    def _tensor(self, stored: str) -> Array:
        if stored not in self._tensors:
            raise self.error(
                f"it has no tensor '{stored}'; {did_you_mean(stored, self._tensors) or 'fetch the model again'}"
            )
        return self._tensors[stored]
