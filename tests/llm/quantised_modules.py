"""Random quantised modules as folders store them, and what each element is by the published formula of its method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Stored = dict[str, np.ndarray]
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
"""Of AutoAWQ: code `i` of a word is that of column `AWQ_ORDER[i]` of eight."""


@dataclass(frozen=True)
class Kind:
    """A kind of module.

    Args:
        settings: Its `quantization_config`.
        stored: Random tensors of a module of so many rows and columns.
        element: Element (row, column) of a module, in f64.
        scheme: In which it is laid out.
    """

    settings: Mapping[str, Any]
    stored: Callable[[np.random.Generator, int, int], Stored]
    element: Callable[[Stored, int, int], float]
    scheme: str

    def widened(self, stored: Stored, rows: int, columns: int) -> np.ndarray:
        """f64[rows, columns]."""
        return np.array([[self.element(stored, n, k) for k in range(columns)] for n in range(rows)])


def words(rng: np.random.Generator, *sizes: int) -> np.ndarray:
    return rng.integers(-(2**31), 2**31, sizes, dtype=np.int32)


def scales(rng: np.random.Generator, dtype: Any, *sizes: int) -> np.ndarray:
    return rng.uniform(0.01, 0.1, sizes).astype(dtype)


def field(word: np.ndarray, number: int, bits: int) -> int:
    """A code of a word, the lowest bits first."""
    return int(word) >> bits * number & ((1 << bits) - 1)


def awq(group: int) -> Kind:
    def stored(rng: np.random.Generator, n: int, k: int) -> Stored:
        return {
            "qweight": words(rng, k, n // 8),
            "qzeros": words(rng, k // group, n // 8),
            "scales": scales(rng, np.float16, k // group, n),
        }

    def element(stored: Stored, n: int, k: int) -> float:
        place = AWQ_ORDER.index(n % 8)
        code, zero = (
            field(stored[name][row, n // 8], place, 4)
            for name, row in (("qweight", k), ("qzeros", k // group))
        )
        return (code - zero) * float(stored["scales"][k // group, n])

    settings = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    return Kind(settings, stored, element, "U4" if group == 32 else "U4_128")


def gptq(bits: int, group: int, form: str, scheme: str) -> Kind:
    per_word, less = 32 // bits, int(form == "gptq")

    def stored(rng: np.random.Generator, n: int, k: int) -> Stored:
        groups = 1 if group < 0 else k // group
        return {
            "qweight": words(rng, k // per_word, n),
            "qzeros": words(rng, groups, n // per_word),
            "scales": scales(rng, np.float16, groups, n),
            "g_idx": (np.arange(k) // (k // groups)).astype(np.int32),
            "bias": np.zeros(n, np.float16),
        }

    def element(stored: Stored, n: int, k: int) -> float:
        own = int(stored["g_idx"][k])
        code = field(stored["qweight"][k // per_word, n], k % per_word, bits)
        zero = (field(stored["qzeros"][own, n // per_word], n % per_word, bits) + less) % (1 << bits)
        return float(stored["scales"][own, n]) * (code - zero)

    settings = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group,
        "checkpoint_format": form,
        "sym": False,
    }
    return Kind(settings, stored, element, scheme)


def floats(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return (40 * rng.standard_normal((n, k))).astype(ml_dtypes.float8_e4m3fn)


def fp8(
    tile: tuple[int, int] | None, scale: Callable[[int], tuple[int, ...]], scheme: str, method: str = "fp8"
) -> Kind:
    """Scales of tiles; or of shape `scale`, by the number of rows."""
    name = "weight_scale_inv" if tile else "weight_scale"

    def stored(rng: np.random.Generator, n: int, k: int) -> Stored:
        shape = (-(-n // tile[0]), -(-k // tile[1])) if tile else scale(n)
        return {
            "weight": floats(rng, n, k),
            name: scales(rng, np.float32, *shape),
            "input_scale": np.float32([2]),
        }

    def element(stored: Stored, n: int, k: int) -> float:
        own = stored[name]
        factor = own[n // tile[0], k // tile[1]] if tile else own.reshape(-1)[n if own.size > 1 else 0]
        return float(stored["weight"][n, k]) * float(factor)

    settings: dict[str, Any] = {"quant_method": method, "activation_scheme": "dynamic"}
    return Kind({**settings, "weight_block_size": list(tile)} if tile else settings, stored, element, scheme)


def compressed(form: str, scheme: str, **weights: Any) -> Kind:
    """Of the formats of compressed-tensors; `weights` are the arguments of its weights."""
    bits, group, symmetric = weights["num_bits"], weights.get("group_size"), weights.get("symmetric", True)
    half, per_word = 1 << (bits - 1), 32 // bits

    def stored(rng: np.random.Generator, n: int, k: int) -> Stored:
        grid = (n, k // group if group else 1)
        found = {"weight_scale": scales(rng, ml_dtypes.bfloat16, *grid)}
        if form == "pack-quantized":
            packed = {"weight_packed": words(rng, n, k // per_word), "weight_shape": np.array([n, k])}
            zero = {} if symmetric else {"weight_zero_point": words(rng, n // per_word, grid[1])}
            return {**found, **packed, **zero}
        if weights["type"] == "float":
            return {**found, "weight": floats(rng, n, k)}
        zero = {} if symmetric else {"weight_zero_point": rng.integers(-128, 128, grid).astype(np.int8)}
        return {**found, **zero, "weight": rng.integers(-128, 128, (n, k)).astype(np.int8)}

    def element(stored: Stored, n: int, k: int) -> float:
        own, zero = (k // group if group else 0), 0
        if form == "pack-quantized":
            code = field(stored["weight_packed"][n, k // per_word], k % per_word, bits) - half
            if not symmetric:
                zero = field(stored["weight_zero_point"][n // per_word, own], n % per_word, bits) - half
        else:
            code = float(stored["weight"][n, k])
            zero = 0 if symmetric else int(stored["weight_zero_point"][n, own])
        return (code - zero) * float(stored["weight_scale"][n, own])

    settings = {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"symmetric": symmetric, **weights}}},
        "ignore": ["lm_head"],
    }
    return Kind(settings, stored, element, scheme)


KINDS = {
    "awq-32": awq(32),
    "awq-128": awq(128),
    "gptq-32": gptq(4, 32, "gptq", "U4"),
    "gptq-64-v2": gptq(4, 64, "gptq_v2", "U4"),
    "gptq-128": gptq(4, 128, "gptq", "U4_128"),
    "gptq-rows-8-bits": gptq(8, -1, "gptq", "U8_128"),
    "fp8-matrix": fp8(None, lambda rows: (), "E4M3_128"),
    "fp8-rows": fp8(None, lambda rows: (rows, 1), "E4M3_128", "fbgemm_fp8"),
    "fp8-tiles": fp8((48, 128), lambda rows: (), "E4M3_128"),
    "fp8-small-tiles": fp8((16, 32), lambda rows: (), "E4M3_32"),
    "int4-group": compressed(
        "pack-quantized", "U4", num_bits=4, type="int", strategy="group", group_size=32, symmetric=False
    ),
    "int4-row": compressed("pack-quantized", "U4_128", num_bits=4, type="int", strategy="channel"),
    "int8-packed": compressed(
        "pack-quantized", "U8_16", num_bits=8, type="int", strategy="group", group_size=16
    ),
    "int8-row": compressed("int-quantized", "U8_128", num_bits=8, type="int", strategy="channel"),
    "int8-row-zero": compressed(
        "int-quantized", "U8_128", num_bits=8, type="int", strategy="channel", symmetric=False
    ),
    "fp8-row": compressed("float-quantized", "E4M3_128", num_bits=8, type="float", strategy="channel"),
}
"""Every method, with groups and zero points as they occur."""
