"""fp8, as Transformers, vLLM and FBGEMM store it: f8E4M3FN times a scale of the matrix, of a row or of a tile.

With `weight_block_size` scales are `weight_scale_inv`, [rows / a, columns / b] for tiles of a rows and b columns
(DeepSeek-AI, DeepSeek-V3, 2024). Without, they are `weight_scale`, of the matrix or of each row. Activations are not
rounded, whatever `activation_scheme` says.
"""

from __future__ import annotations

from aicf.llm.sources.quantised.method import Method, Module, PackedMatrix, Settings
from aicf.llm.sources.quantised.whole import E4M3, Tile, float_matrix, tile_of
from aicf.runtime.tensors import Array

_TILED, _SCALE = "weight_scale_inv", "weight_scale"


class Fp8(Method):
    """See `Method`."""

    def __init__(self, settings: Settings) -> None:
        settings.one_of("fmt", ("e4m3", "float8_e4m3fn"), "e4m3")
        stated = settings.values.get("weight_block_size")
        self._tile: Tile | None = None if stated is None else tile_of(settings, "weight_block_size")

    def marks(self, name: str, array: Array) -> bool:
        return name.endswith(".weight") and str(array.dtype) == E4M3

    def matrix(self, module: Module) -> PackedMatrix:
        if self._tile is not None:
            return float_matrix(module, _TILED, self._tile)
        scale = _TILED if module.has(_TILED) else _SCALE
        stored = module.tensors.get(f"{module.name}.{scale}")
        is_whole = stored is not None and stored.size == 1
        return float_matrix(module, scale, (None if is_whole else 1, None))
