"""The methods of `quantization_config` that are read, as a table, and the matrices that a folder has by its method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from aicf.errors import InvalidIR, UnsupportedOp, quoted
from aicf.llm.sources.quantised.awq import Awq
from aicf.llm.sources.quantised.compressed_tensors import CompressedTensors
from aicf.llm.sources.quantised.fp8 import Fp8
from aicf.llm.sources.quantised.gptq import Gptq
from aicf.llm.sources.quantised.method import Method, Module, PackedMatrix, Settings
from aicf.runtime.tensors import Array

METHODS: Mapping[str, type[Method]] = {
    "awq": Awq,
    "compressed-tensors": CompressedTensors,
    "fbgemm_fp8": Fp8,
    "fp8": Fp8,
    "gptq": Gptq,
}
"""By `quant_method`."""

_SECTION = "quantization_config"


def packed_matrices(
    config: Mapping[str, Any], tensors: Mapping[str, Array], location: str
) -> dict[str, PackedMatrix]:
    """The quantised matrices of a folder, by the names that they would have if they were not.

    Args:
        config: The folder's `config.json`.
        tensors: That the folder stores.
        location: Of the folder, for messages.

    Raises:
        InvalidIR: a tensor is missing, or has another type or shape than the settings ask for.
        UnsupportedOp: the method is not read, or not with such settings.
    """
    found: object = config.get(_SECTION)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidIR(f"'{_SECTION}' of config.json is {quoted(found)}; it is an object", location=location)
    settings = Settings(cast("Mapping[str, Any]", found), _SECTION, location)
    name = settings.values.get("quant_method")
    if not isinstance(name, str) or name not in METHODS:
        raise UnsupportedOp(
            f"'{_SECTION}.quant_method' of config.json is {quoted(name)}; those that are read: "
            f"{', '.join(METHODS)}; fetch the model in one of these, or as it was before",
            location=location,
        )
    method = METHODS[name](settings)
    modules = dict.fromkeys(
        stored.rpartition(".")[0] for stored, array in tensors.items() if method.marks(stored, array)
    )
    return {f"{module}.weight": method.matrix(Module(module, tensors, location)) for module in modules}
