"""The launch of a kernel of a user: its code, not compiled yet, and its arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import cast

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.user_code import CudaFunction, CudaSource
from aicf.backends.common.user_kernel import Number, read_numbers
from aicf.backends.cuda.compiler.code import ForeignCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.user_code import NVRTC, compile_function, compile_source, nvrtc_version
from aicf.backends.cuda.families.custom.kernel import NUMBA_TYPES, CudaUserKernel
from aicf.backends.cuda.families.records import read_shape
from aicf.backends.cuda.runtime.device_program import Address, Scalar
from aicf.backends.registry import get_kernels
from aicf.dialects.types import element_named

Argument = Address | Scalar


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    kernel = cast("CudaUserKernel", get_kernels("cuda")[launch.kernel])
    shape = read_shape(launch.record)
    threads = shape.block[0] * shape.block[1] * shape.block[2]
    numbers = read_numbers(launch.record)
    code = kernel.spec.code
    if isinstance(code, CudaSource):
        made = _source(code, threads)
        arguments = [*map(address_of, _buffers(launch)), *map(_number, numbers)]
    else:
        assert isinstance(code, CudaFunction), "the kernel refuses other code"
        made = _function(code, launch, numbers, threads)
        arguments = [part for ref in _buffers(launch) for part in _array(ref, ref in launch.ws)]
        arguments += map(_number, numbers)
    return [launch_in(shape, made, tuple(arguments))]


def _buffers(launch: Launch) -> Sequence[BufferRef]:
    return (*launch.ins, *launch.outs, *launch.ws)


def _number(value: Number) -> Scalar:
    return Scalar("f64", value) if isinstance(value, float) else Scalar("i64", value)


def _array(ref: BufferRef, is_workspace: bool) -> list[Argument]:
    """An array as Numba's own convention has it: two pointers of its runtime that nothing reads, how many elements of
    how many bytes, the address, sizes, and bytes between neighbours."""
    size = 1 if is_workspace else element_named(ref.dtype).bytes
    count = 1
    for extent in ref.shape:
        count *= extent
    values = [0, 0, count, size]
    extents = [*ref.shape, *(stride * size for stride in ref.strides)]
    return [
        *(Scalar("i64", value) for value in values),
        address_of(ref),
        *(Scalar("i64", extent) for extent in extents),
    ]


def _source(code: CudaSource, threads: int) -> ForeignCode:
    symbol = f"user_{code.entry[:40]}_{code.digest[:16]}"
    return ForeignCode(symbol, threads, {NVRTC: nvrtc_version()}, partial(compile_source, code, symbol))


def _function(code: CudaFunction, launch: Launch, numbers: Sequence[Number], threads: int) -> ForeignCode:
    arrays = [(NUMBA_TYPES[ref.dtype], len(ref.shape), _is_dense(ref)) for ref in (*launch.ins, *launch.outs)]
    arrays += [("uint8", 1, True)] * len(launch.ws)
    scalars = ["float64" if isinstance(number, float) else "int64" for number in numbers]
    key = hashlib.sha256(repr((code.digest, arrays, scalars, threads)).encode()).hexdigest()
    symbol = f"user_{key[:16]}"
    build = partial(compile_function, code.python, arrays, scalars, threads, symbol)
    return ForeignCode(symbol, threads, {}, build)


def _is_dense(ref: BufferRef) -> bool:
    step = 1
    for extent, stride in zip(reversed(ref.shape), reversed(ref.strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True
