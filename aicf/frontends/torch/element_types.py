"""Element types of PyTorch by their names: `torch.float32` is f32. PyTorch itself is not imported."""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, str] = {
    "torch.float64": "f64",
    "torch.float32": "f32",
    "torch.float16": "f16",
    "torch.bfloat16": "bf16",
    "torch.int64": "i64",
    "torch.int32": "i32",
    "torch.int16": "i16",
    "torch.int8": "i8",
    "torch.uint8": "u8",
    "torch.bool": "i1",
}
"""PyTorch's name of each type that AICF has."""


def name_of(dtype: object) -> str | None:
    """The name of an element type of PyTorch; None for one that AICF has not, such as a complex type."""
    return NAMES.get(str(dtype))
