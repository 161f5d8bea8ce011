"""GPTQ, as AutoGPTQ and GPTQModel store it: ``scale * (code - zero)``, codes of 4 or 8 bits, in groups of columns.

Frantar et al., GPTQ, 2022. Of N rows and K columns, `qweight` is i32[K * bits / 32, N], `qzeros`
i32[K / group, N * bits / 32] and `scales` [K / group, N]. The format `gptq` stores zero points less 1, which wrap
around; `gptq_v2` as they are. `g_idx` is the group of each column. Columns whose groups are not in order (act-order)
are not read: the program would have to reorder the other operand.
"""

from __future__ import annotations

import numpy as np

from aicf.llm.sources.quantised.blocks import unpacked
from aicf.llm.sources.quantised.method import FLOATS, Method, Module, PackedMatrix, Settings
from aicf.runtime.tensors import Array

_ZEROS_LESS = {"gptq": 1, "gptq_v2": 0}
"""Format to what is taken off zero points in it."""


class Gptq(Method):
    """See `Method`."""

    def __init__(self, settings: Settings) -> None:
        self._bits: int = settings.one_of("bits", (4, 8))
        key = "format" if "format" in settings.values else "checkpoint_format"
        self._less = _ZEROS_LESS[settings.one_of(key, tuple(_ZEROS_LESS), "gptq")]
        self._group = settings.group("group_size")
        if settings.values.get("dynamic"):
            raise settings.unsupported(
                "dynamic", settings.values["dynamic"], "one setting for all modules is read"
            )

    def marks(self, name: str, array: Array) -> bool:
        return name.endswith(".qweight")

    def matrix(self, module: Module) -> PackedMatrix:
        per_word, bits = 32 // self._bits, self._bits
        weight = module.tensor("qweight", ("int32",), (None, None))
        columns, rows = weight.shape[0] * per_word, weight.shape[1]
        groups = module.groups(columns, self._group)
        if rows % per_word:
            raise module.error(
                f"'{module.name}' has {rows} rows; zero points of {bits} bits are stored for multiples of {per_word}"
            )
        zeros = module.tensor("qzeros", ("int32",), (groups, rows // per_word))
        scales = module.tensor("scales", FLOATS, (groups, rows))
        module.check_order("g_idx", columns, self._group)
        layout = module.layout(f"u{bits}", columns // groups, columns)
        return PackedMatrix(
            (rows, columns),
            layout.scheme,
            module.stored("qweight", "qzeros", "scales", "g_idx", *module.empty_bias()),
            lambda: layout.rows(unpacked(weight.T, bits), scales.T, self._zeros(zeros).T),
        )

    def _zeros(self, words: Array) -> Array:
        return unpacked(words, self._bits) + np.uint8(self._less) & np.uint8((1 << self._bits) - 1)
