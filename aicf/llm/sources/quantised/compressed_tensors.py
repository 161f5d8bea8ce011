"""compressed-tensors, as LLM Compressor stores it: i8 or f8E4M3FN in `weight`, or 4 or 8 bits in `weight_packed`.

``scale * (weight - zero)``, with scales of the matrix, of rows, of groups of columns or of tiles, by `strategy`. Of N
rows and K columns `weight_packed` is i32[N, K * bits / 32], of codes that are 2^(bits - 1) larger, as are zero points,
which are i32[N * bits / 32, groups]. Activations are not rounded, whatever `input_activations` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from aicf.llm.sources.quantised.blocks import unpacked
from aicf.llm.sources.quantised.method import FLOATS, Method, Module, PackedMatrix, Settings
from aicf.llm.sources.quantised.whole import ACTIVATIONS, E4M3, Tile, float_matrix, integer_matrix, tile_of
from aicf.runtime.tensors import Array

_SCALE, _ZERO, _PACKED, _SHAPE, _ORDER = (
    "weight_scale",
    "weight_zero_point",
    "weight_packed",
    "weight_shape",
    "weight_g_idx",
)

_FORMATS = ("naive-quantized", "int-quantized", "float-quantized", "pack-quantized")
_KEYS = ("num_bits", "type", "strategy", "group_size", "block_structure")
"""What says how weights are stored."""

_TILES: Mapping[str, Callable[[Settings], Tile]] = {
    "tensor": lambda weights: (None, None),
    "channel": lambda weights: (1, None),
    "group": lambda weights: (1, weights.group("group_size")),
    "block": lambda weights: tile_of(weights, "block_structure"),
}
"""Strategy to the rows and columns that share a scale."""


class CompressedTensors(Method):
    """See `Method`."""

    def __init__(self, settings: Settings) -> None:
        settings.one_of("format", _FORMATS, _FORMATS[0])
        sparsity = settings.section("sparsity_config")
        sparsity.one_of("format", ("dense",), "dense")
        if transforms := settings.values.get("transform_config"):
            raise settings.unsupported("transform_config", transforms, "models without rotations are read")
        weights = _weights(settings)
        self._bits: int = weights.one_of("num_bits", (4, 8))
        self._type: str = weights.one_of("type", ("int", "float") if self._bits == 8 else ("int",), "int")
        self._tile = _TILES[weights.one_of("strategy", tuple(_TILES))](weights)

    def marks(self, name: str, array: Array) -> bool:
        is_short = str(array.dtype) in (E4M3, "int8")
        return name.endswith(f".{_PACKED}") or (name.endswith(".weight") and is_short)

    def matrix(self, module: Module) -> PackedMatrix:
        if module.has(_PACKED):
            return self._packed(module)
        columns = module.tensor("weight", (E4M3, "int8"), (None, None)).shape[1]
        module.check_order(_ORDER, columns, self._tile[1])
        if self._type == "float":
            return float_matrix(module, _SCALE, self._tile, _ORDER)
        return integer_matrix(module, _SCALE, _ZERO, self._tile, _ORDER)

    def _packed(self, module: Module) -> PackedMatrix:
        bits, tile = self._bits, self._tile
        rows, columns = (int(size) for size in module.tensor(_SHAPE, ("int64", "int32"), (2,)))
        words = module.tensor(_PACKED, ("int32",), (rows, -(-columns * bits // 32)))
        groups = module.groups(columns, tile[1])
        scales = module.grid(_SCALE, FLOATS, (1 if tile[0] is None else rows, groups))
        zeros = self._zeros(module, scales)
        module.check_order(_ORDER, columns, tile[1])
        layout = module.layout(f"u{bits}", columns // groups, columns)
        return PackedMatrix(
            (rows, columns),
            layout.scheme,
            module.stored(_PACKED, _SHAPE, _SCALE, _ZERO, _ORDER, *ACTIVATIONS),
            lambda: layout.rows(unpacked(words, bits)[:, :columns], scales, zeros),
        )

    def _zeros(self, module: Module, scales: Array) -> Array:
        """Zero points in the shape of the scales, as codes are: u8, 2^(bits - 1) larger."""
        (rows, groups), bits = scales.shape, self._bits
        half = 1 << (bits - 1)
        if not module.has(_ZERO):
            return np.full(scales.shape, half, np.uint8)
        if self._tile[0] is None:
            return module.grid(_ZERO, ("int8",), (1, groups)).view(np.uint8) + np.uint8(half)
        words = module.tensor(_ZERO, ("int32",), (-(-rows * bits // 32), groups))
        return unpacked(words.T, bits).T[:rows]


def _weights(settings: Settings) -> Settings:
    """What is said of the weights of all quantised modules. Raises UnsupportedOp if it is not one thing."""
    groups = settings.section("config_groups")
    found = [groups.section(name).section("weights") for name in groups.values]
    if not found or not found[0].values:
        raise settings.unsupported(
            "config_groups", settings.values.get("config_groups"), "it says nothing of weights"
        )
    kinds = [[each.values.get(key) for key in _KEYS] for each in found]
    if any(kind != kinds[0] for kind in kinds):
        raise settings.unsupported(
            "config_groups", list(groups.values), "one setting for all modules is read"
        )
    return found[0]
