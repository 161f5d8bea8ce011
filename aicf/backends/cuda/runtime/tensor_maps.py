"""Descriptors of tensors for bulk copies, as the driver encodes them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from aicf.backends.cuda.runtime.device_program import TensorMap
from aicf.backends.cuda.target import ELEMENT_BYTES
from aicf.errors import ArtifactError

_MAP_BYTES = 128
"""Of a TMA descriptor."""
_LAST_WRONG_IM2COL, _WRONG_BELOW, _WRONG_BIT = 13010, 131072, 8 * 8 + 21
"""Up to this version the driver sets a bit in descriptors of windows that must not be set for tensors of fewer bytes
than that; CUTLASS clears it too."""

_DATA_TYPES: Mapping[object, str] = {
    "f16": "CU_TENSOR_MAP_DATA_TYPE_FLOAT16",
    "bf16": "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16",
    "f32": "CU_TENSOR_MAP_DATA_TYPE_FLOAT32",
    "tf32": "CU_TENSOR_MAP_DATA_TYPE_TFLOAT32",
    "f64": "CU_TENSOR_MAP_DATA_TYPE_FLOAT64",
    "i32": "CU_TENSOR_MAP_DATA_TYPE_INT32",
    "i64": "CU_TENSOR_MAP_DATA_TYPE_INT64",
    "i8": "CU_TENSOR_MAP_DATA_TYPE_UINT8",
    "u8": "CU_TENSOR_MAP_DATA_TYPE_UINT8",
    "f8E4M3FN": "CU_TENSOR_MAP_DATA_TYPE_UINT8",
    "f8E5M2": "CU_TENSOR_MAP_DATA_TYPE_UINT8",
}
_INTERLEAVES: Mapping[object, str] = {
    0: "CU_TENSOR_MAP_INTERLEAVE_NONE",
    16: "CU_TENSOR_MAP_INTERLEAVE_16B",
    32: "CU_TENSOR_MAP_INTERLEAVE_32B",
}
_SWIZZLES: Mapping[object, str] = {
    0: "CU_TENSOR_MAP_SWIZZLE_NONE",
    32: "CU_TENSOR_MAP_SWIZZLE_32B",
    64: "CU_TENSOR_MAP_SWIZZLE_64B",
    128: "CU_TENSOR_MAP_SWIZZLE_128B",
}
_L2_PROMOTIONS: Mapping[object, str] = {
    0: "CU_TENSOR_MAP_L2_PROMOTION_NONE",
    64: "CU_TENSOR_MAP_L2_PROMOTION_L2_64B",
    128: "CU_TENSOR_MAP_L2_PROMOTION_L2_128B",
    256: "CU_TENSOR_MAP_L2_PROMOTION_L2_256B",
}
_FILLS: Mapping[object, str] = {
    "zeros": "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE",
    "nan": "CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA",
}


def encoded(api: Any, call: Callable[..., Any], tensor: TensorMap, address: int) -> bytes:
    """The 128 bytes of the descriptor of a tensor at `address`.

    Args:
        api: The driver's constants and types.
        call: Calls one of its functions by name.

    Raises ArtifactError for an entry that the driver has no name for.
    """
    windows = tensor.windows
    memory = (
        _named(api.CUtensorMapDataType, _DATA_TYPES, tensor.dtype),
        len(tensor.sizes),
        address,
        [api.cuuint64_t(size) for size in tensor.sizes],
        [api.cuuint64_t(stride) for stride in tensor.strides],
    )
    mode = (
        _named(api.CUtensorMapInterleave, _INTERLEAVES, tensor.interleave),
        _named(api.CUtensorMapSwizzle, _SWIZZLES, tensor.swizzle),
        _named(api.CUtensorMapL2promotion, _L2_PROMOTIONS, tensor.l2_promotion),
        _named(api.CUtensorMapFloatOOBfill, _FILLS, tensor.out_of_bounds),
    )
    if windows is None:
        box = [api.cuuint32_t(size) for size in tensor.box]
        steps = [api.cuuint32_t(1)] * len(tensor.sizes)
        return _bytes(call("cuTensorMapEncodeTiled", *memory, box, steps, *mode))
    steps = [api.cuuint32_t(step) for step in (1, *windows.steps, 1)]
    corners = list(windows.lower), list(windows.upper)
    found = _bytes(call("cuTensorMapEncodeIm2col", *memory, *corners, *tensor.box, steps, *mode))
    return _mended(found, tensor) if int(call("cuDriverGetVersion")) <= _LAST_WRONG_IM2COL else found


def _bytes(descriptor: Any) -> bytes:
    return ctypes.string_at(int(descriptor.getPtr()), _MAP_BYTES)


def _named(enum: Any, names: Mapping[object, str], value: object) -> Any:
    """The driver's constant for an entry of a tensor map. Raises ArtifactError for one that it has no name for."""
    if value not in names:
        known = ", ".join(map(str, names))
        raise ArtifactError(f"its tensor map says '{value}', which is none of {known}; compile it again")
    return getattr(enum, names[value])


def _mended(descriptor: bytes, tensor: TensorMap) -> bytes:
    """A descriptor of windows without the bit that the driver sets wrongly for small tensors."""
    last = zip(tensor.sizes[1:], tensor.strides, strict=True)
    if (
        sum((size - 1) * step for size, step in last) + tensor.sizes[0] * ELEMENT_BYTES.get(tensor.dtype, 4)
        >= _WRONG_BELOW
    ):
        return descriptor
    whole = int.from_bytes(descriptor, "little") & ~(1 << _WRONG_BIT)
    return whole.to_bytes(_MAP_BYTES, "little")
