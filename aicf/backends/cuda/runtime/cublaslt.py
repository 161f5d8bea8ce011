# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# nvmath-python ships no types.
"""Calls of cublasLt at run time, through `nvmath.bindings`: from plain values to one call on a stream.

A `LibraryModule`, see `library`. Nothing is decided here: types, factors, layouts, the algorithm and its workspace come
from the kernel record. `offers` asks the library what it would take; a compile or `aicf tune` does that, never a run.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import numpy as np

from aicf.backends.cuda.runtime.device_program import LibraryNode
from aicf.backends.cuda.runtime.library import Offer, refusing
from aicf.errors import ArtifactError, BackendUnavailable
from aicf.support.extras import install

_refusing = partial(refusing, "cublasLt")

_TYPES = {"f32": 0, "f16": 2, "bf16": 14}
"""cudaDataType_t."""

_COMPUTE_TYPES = {"f32": "COMPUTE_32F", "tf32": "COMPUTE_32F_FAST_TF32"}
"""Names in cublasComputeType_t: f32 arithmetic on f32 operands, products of narrower ones added in f32; or operands of
f32 rounded to TF32."""

_REDUCTIONS = {"compute_type": 2}
"""cublasLtReductionScheme_t: parts of a sum meet in the compute type; other schemes round them to the result's."""

_SCALARS = {"f32": ctypes.c_float}
"""What holds a factor of a scale type."""


@cache
def _bindings() -> Any:
    try:
        from nvmath.bindings import cublasLt
    except ImportError as error:
        raise BackendUnavailable(
            f"cublasLt is called through nvmath-python: {error}; {install('cuda')}"
        ) from None
    return cublasLt


def version() -> str:
    """Version of the library that loads here, as 13.0.2.

    Raises BackendUnavailable if there is none.
    """
    with _refusing("loading the library"):
        number = _bindings().get_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def open_handle() -> int:
    """A handle on the GPU of the current context; not while a stream is being captured."""
    with _refusing("cublasLtCreate"):
        return _bindings().create()


def close_handle(handle: int) -> None:
    """Gives a handle back."""
    with _refusing("cublasLtDestroy"):
        _bindings().destroy(handle)


def prepare(handle: int, node: LibraryNode) -> None:
    """Checks the values of a call; the library needs nothing ahead of it. Raises as `LibraryModule.prepare`."""
    _values(node)


def call(handle: int, node: LibraryNode, addresses: Sequence[int], stream: int) -> None:
    """Queues the call of `node`, whose version the caller has checked; takes no device memory and waits for nothing.

    Args:
        addresses: Device addresses, in the order of the node's.

    Raises:
        ArtifactError: the call is not one of this release.
        BackendUnavailable: the library refuses it.
    """
    values = _values(node)
    at = dict(zip(values.operands, addresses, strict=True))
    algorithm = np.frombuffer(bytes.fromhex(values.algorithm), np.uint8).copy()
    scalar = _SCALARS[values.scale_type]
    alpha, beta = scalar(values.alpha), scalar(values.beta)
    with _refusing(f"the call of instruction '{node.name}'"), _described(values, at.get("bias")) as described:
        _bindings().matmul(
            handle,
            described.operation,
            ctypes.addressof(alpha),
            at["a"],
            described.a,
            at["b"],
            described.b,
            ctypes.addressof(beta),
            at.get("c", at["d"]),
            described.c,
            at["d"],
            described.d,
            algorithm.ctypes.data,
            at.get("workspace", 0),
            values.workspace_bytes,
            stream,
        )


def offers(handle: int, node: LibraryNode, count: int) -> list[Offer]:
    """The algorithms that the library would take for a call, best first; see `LibraryModule.offers`."""
    values = _values(node)
    lt = _bindings()
    results = np.zeros(count, lt.matmul_heuristic_result_dtype)
    found = ctypes.c_int(0)
    preference = lt.matmul_preference_create()
    try:
        wanted = lt.MatmulPreferenceAttribute
        limits: dict[Any, Any] = {wanted.MAX_WORKSPACE_BYTES: ctypes.c_uint64(values.workspace_bytes)}
        limits[wanted.REDUCTION_SCHEME_MASK] = ctypes.c_uint32(_REDUCTIONS[values.reduction])
        for operand in "ABCD":
            attribute = getattr(wanted, f"MIN_ALIGNMENT_{operand}_BYTES")
            limits[attribute] = ctypes.c_uint32(values.alignment)
        for attribute, limit in limits.items():
            _set(lt.matmul_preference_set_attribute, preference, attribute, limit)
        # The pointer of a bias is part of the description; any aligned one does while nothing runs.
        bias = 256 if "bias" in values.operands else None
        with suppress(lt.cuBLASLtError), _described(values, bias) as described:
            lt.matmul_algo_get_heuristic(
                handle,
                described.operation,
                described.a,
                described.b,
                described.c,
                described.d,
                preference,
                count,
                results.ctypes.data,
                ctypes.addressof(found),
            )
    finally:
        lt.matmul_preference_destroy(preference)
    good = [result for result in results[: found.value] if int(result["state"]) == 0]
    return [_offer(result["algo"].tobytes(), int(result["workspace_size"])) for result in good]


def _offer(algorithm: bytes, workspace: int) -> Offer:
    """An algorithm in hexadecimal digits, which are too many for a table."""
    return Offer(algorithm.hex(), workspace, hashlib.sha256(algorithm).hexdigest()[:8])


# The call as the library describes it


@dataclass(frozen=True)
class _Values:
    """The entries of `LibraryNode.call`; matrices are rows, columns, `ld` and batch stride."""

    dtype: str
    compute_type: str
    scale_type: str
    reduction: str
    alpha: float
    beta: float
    bias_type: str
    transpose: Sequence[bool]
    matrices: Mapping[str, Sequence[int]]
    batch: int
    epilogue: str
    alignment: int
    algorithm: str
    workspace_bytes: int
    operands: Sequence[str]


def _values(node: LibraryNode) -> _Values:
    try:
        values = _Values(**cast("dict[str, Any]", node.call))
        for name, table in _WORDS.items():
            if (word := getattr(values, name)) not in table:
                raise TypeError(f"{name} '{word}' is none of {', '.join(table)}")
    except TypeError as error:
        raise ArtifactError(
            f"instruction '{node.name}': no call of this release: {error}; compile it again"
        ) from None
    return values


_WORDS: Mapping[str, Mapping[str, object]] = {
    "dtype": _TYPES,
    "bias_type": _TYPES,
    "compute_type": _COMPUTE_TYPES,
    "scale_type": _SCALARS,
    "reduction": _REDUCTIONS,
}
"""Entries of a call that name something of the library."""


@dataclass
class _Described:
    """Descriptors of one call."""

    operation: int
    a: int
    b: int
    c: int
    d: int


@contextmanager
def _described(values: _Values, bias: int | None) -> Generator[_Described]:
    """Makes the descriptors of a call, and gives them back."""
    lt = _bindings()
    made: list[tuple[Callable[[int], None], int]] = []
    try:
        operation = lt.matmul_desc_create(_compute_type(values), _TYPES[values.scale_type])
        made.append((lt.matmul_desc_destroy, operation))
        _describe_operation(operation, values, bias)
        matrices: dict[str, int] = {}
        for name, numbers in values.matrices.items():
            matrices[name] = _layout(numbers, values)
            made.append((lt.matrix_layout_destroy, matrices[name]))
        yield _Described(operation, **matrices)
    finally:
        for destroy, descriptor in reversed(made):
            destroy(descriptor)


def _compute_type(values: _Values) -> int:
    from nvmath.bindings.cublas import ComputeType

    return int(ComputeType[_COMPUTE_TYPES[values.compute_type]])


def _describe_operation(operation: int, values: _Values, bias: int | None) -> None:
    lt = _bindings()
    attribute = lt.MatmulDescAttribute
    for name, transposed in zip((attribute.TRANSA, attribute.TRANSB), values.transpose, strict=True):
        _set(lt.matmul_desc_set_attribute, operation, name, ctypes.c_int32(int(transposed)))
    epilogue = lt.Epilogue[values.epilogue.upper()]
    _set(lt.matmul_desc_set_attribute, operation, attribute.EPILOGUE, ctypes.c_uint32(int(epilogue)))
    if bias is not None:
        _set(lt.matmul_desc_set_attribute, operation, attribute.BIAS_POINTER, ctypes.c_uint64(bias))
        kind = ctypes.c_int32(_TYPES[values.bias_type])
        _set(lt.matmul_desc_set_attribute, operation, attribute.BIAS_DATA_TYPE, kind)


def _layout(numbers: Sequence[int], values: _Values) -> int:
    lt = _bindings()
    rows, cols, ld, batch_stride = numbers
    layout = lt.matrix_layout_create(_TYPES[values.dtype], rows, cols, ld)
    if values.batch > 1:
        attribute = lt.MatrixLayoutAttribute
        _set(lt.matrix_layout_set_attribute, layout, attribute.BATCH_COUNT, ctypes.c_int32(values.batch))
        stride = ctypes.c_int64(batch_stride)
        _set(lt.matrix_layout_set_attribute, layout, attribute.STRIDED_BATCH_OFFSET, stride)
    return layout


def _set(setter: Any, descriptor: int, attribute: Any, value: Any) -> None:
    setter(descriptor, int(attribute), ctypes.addressof(value), ctypes.sizeof(value))
