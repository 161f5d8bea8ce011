"""What the records of all cuDNN kernels say alike: tensors, what no plan may do, and how its sums are combined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.records import integers

LIBRARY = "cudnn"
DTYPES = ("f16", "bf16", "f32")
MOST_WORKSPACE_BYTES = 64 << 20
"""What a plan may ask for: room for copies of the operands in another order, and for the parts of sums."""
ALIGNMENT = 16
"""Bytes to which plans take the first element of every tensor to be aligned."""

_BARRED: Mapping[str, str] = {
    "NONDETERMINISTIC": "bits differ between runs",
    "REDUCED_PRECISION_REDUCTION": "sums are kept in less than f32",
    "DOWN_CONVERT_INPUTS": "f32 operands are rounded to f16",
    "FFT": "errors grow with the image, not with the sum",
    "WINOGRAD": "transformed operands of f16 lose bits",
    "WINOGRAD_TILE_4x4": "as above",
    "WINOGRAD_TILE_6x6": "as above",
    "WINOGRAD_TILE_13x13": "as above",
}
"""Numerical notes of plans that are never taken, and why."""
_TENSOR_CORES = "TENSOR_CORE"
"""The note of plans that round f32 operands to TF32."""


def barred_notes(dtype: str, tf32: bool) -> ArrayAttr[Attribute]:
    """The notes that no plan for operands of a type may have."""
    rounds = [_TENSOR_CORES] if dtype == "f32" and not tf32 else []
    return ArrayAttr([StringAttr(note) for note in (*_BARRED, *rounds)])


def tensor(sizes: Sequence[int], strides: Sequence[int]) -> DictionaryAttr:
    """A tensor of a call, in elements."""
    return DictionaryAttr({"sizes": integers(sizes), "strides": integers(strides)})


def common_record(work: Workload) -> dict[str, Attribute]:
    """What follows from a work for every call."""
    dtype = work.results[0].dtype
    return {
        "dtype": StringAttr(dtype),
        "barred_notes": barred_notes(dtype, work.tf32),
        "combination_order": StringAttr("the library's, fixed by version and algorithm"),
        "rounding": StringAttr("fused"),
        "fixed_addresses": integers(range(len(work.operands) + len(work.results))),
    }


def common_reason(work: Workload, dtypes: Sequence[str]) -> str | None:
    """Why cuDNN is not given the operands of a work, None if it may be."""
    found = {each.dtype for each in (*work.operands, *work.results)}
    if len(found) != 1 or not found <= {*dtypes}:
        return f"cudnn is given {', '.join(dtypes)}, all operands alike; here are {', '.join(sorted(found))}"
    if len(work.results) != 1:
        return "cudnn gives one result"
    return None


def strides_reason(what: str, sizes: Sequence[int], strides: Sequence[int]) -> str | None:
    """Why strides are none of a tensor of cuDNN, None if they are: no element twice, none backwards."""
    if any(stride <= 0 and size > 1 for size, stride in zip(sizes, strides, strict=True)):
        return f"cudnn reads forwards, every element once; the strides of {what} are {list(strides)}"
    return None


def alignment_reason(operands: Sequence[OperandInfo], sizes: Mapping[str, int]) -> str | None:
    """Why first elements lie where no plan takes them, None if they lie well; `sizes` are bytes of elements."""
    for operand in operands:
        if operand.offset * sizes[operand.dtype] % ALIGNMENT:
            return f"cudnn needs tensors that start at multiples of {ALIGNMENT} bytes"
    return None
