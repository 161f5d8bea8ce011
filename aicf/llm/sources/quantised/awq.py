"""AWQ, as AutoAWQ stores it: ``scale * (code - zero)``, codes of 4 bits, in groups of rows of the transposed matrix.

Lin et al., AWQ: Activation-aware Weight Quantization, 2023. Of N rows and K columns, `qweight` is i32[K, N / 8],
`qzeros` i32[K / group, N / 8] and `scales` [K / group, N]. The eight codes of a word are of columns in `_ORDER`.
"""

from __future__ import annotations

import numpy as np

from aicf.llm.sources.quantised.blocks import unpacked
from aicf.llm.sources.quantised.method import FLOATS, Method, Module, PackedMatrix, Settings
from aicf.runtime.tensors import Array

_BITS, _PER_WORD = 4, 8
_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


class Awq(Method):
    """See `Method`."""

    def __init__(self, settings: Settings) -> None:
        settings.one_of("bits", (_BITS,))
        settings.one_of("zero_point", (True,), True)
        version = settings.values.get("version", settings.values.get("format", "gemm"))
        if not isinstance(version, str) or version.lower() != "gemm":
            raise settings.unsupported("version", version, "what is read: gemm")
        self._group = settings.group("group_size")

    def marks(self, name: str, array: Array) -> bool:
        return name.endswith(".qweight")

    def matrix(self, module: Module) -> PackedMatrix:
        weight = module.tensor("qweight", ("int32",), (None, None))
        columns, rows = weight.shape[0], weight.shape[1] * _PER_WORD
        groups = module.groups(columns, self._group)
        zeros = module.tensor("qzeros", ("int32",), (groups, rows // _PER_WORD))
        scales = module.tensor("scales", FLOATS, (groups, rows))
        layout = module.layout("u4", columns // groups, columns)
        return PackedMatrix(
            (rows, columns),
            layout.scheme,
            module.stored("qweight", "qzeros", "scales", *module.empty_bias()),
            lambda: layout.rows(_ordered(weight).T, scales.T, _ordered(zeros).T),
        )


def _ordered(words: Array) -> Array:
    """The codes of words in order: u8[..., rows of the matrix]."""
    codes = unpacked(words, _BITS).reshape(*words.shape, _PER_WORD)
    return codes[..., np.argsort(_ORDER)].reshape(len(words), -1)
