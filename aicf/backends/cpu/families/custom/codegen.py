"""The code of kernels of users: one call, of a function that is linked into the program or comes through the table."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from llvmlite import ir

from aicf.backends.base import Launch
from aicf.backends.common.user_code import CpuFunction
from aicf.backends.common.user_kernel import Number, read_numbers
from aicf.backends.cpu.codegen.call import Call
from aicf.backends.cpu.codegen.ir_builder import F64, I32, I64, PTR, VOID, Emitter, Value
from aicf.backends.cpu.families.custom.kernel import NUMBA_TYPES, CpuUserKernel
from aicf.backends.cpu.families.custom.numba_ir import function_ir
from aicf.backends.registry import get_kernels
from aicf.errors import CaptureError


def emit(em: Emitter, launch: Launch, call: Call) -> None:
    """The call, with pointers first and then numbers."""
    kernel = cast("CpuUserKernel", get_kernels("cpu")[launch.kernel])
    numbers = read_numbers(launch.record)
    pointers = [*call.ins, *call.outs, *call.ws]
    values = [*pointers, *(ir.Constant(_type_of(number), number) for number in numbers)]
    code = kernel.spec.code
    if isinstance(code, CpuFunction):
        # Numba's own convention: room for a result and an exception, of which there is none.
        room = [em.b.alloca(PTR), em.b.alloca(PTR)]
        em.b.call(_linked(em, launch, code, numbers), [*room, *values])
        return
    name = kernel.library_function(launch)
    assert name is not None
    at = em.b.gep(call.table, [em.index(call.functions.index(name))], source_etype=PTR)
    signature = ir.FunctionType(VOID, [value.type for value in values])
    em.b.call(em.typed_function(em.b.load(at, typ=PTR), signature), values)


def _type_of(number: Number) -> Any:
    return F64 if isinstance(number, float) else I64


def _linked(em: Emitter, launch: Launch, code: CpuFunction, numbers: Sequence[Number]) -> Value:
    """The function, compiled for the types of its parameters and linked into the module once for each of them."""
    buffers = [f"{NUMBA_TYPES[ref.dtype]}*" for ref in (*launch.ins, *launch.outs)]
    scalars = ["float64" if isinstance(number, float) else "int64" for number in numbers]
    types = [*buffers, *["uint8*"] * len(launch.ws), *scalars]
    key = hashlib.sha256(repr((code.digest, types)).encode()).hexdigest()[:16]
    symbol = f"user_{key}"
    module = em.module
    if symbol not in module.linked:
        module.linked[symbol] = _compiled(launch, code, tuple(types), symbol)
        parameters = [PTR, PTR, *[PTR if each.endswith("*") else _SCALARS[each] for each in types]]
        ir.Function(module, ir.FunctionType(I32, parameters), symbol)
    return module.get_global(symbol)


_text = lru_cache(maxsize=64)(function_ir)
"""Programs of one process share what Numba made, which takes it a second: a language model has several that draw a
token. The symbol has the digest of the function in it, so that one whose globals have changed is compiled again."""


def _compiled(launch: Launch, code: CpuFunction, types: tuple[str, ...], symbol: str) -> str:
    try:
        return _text(code.python, types, symbol)
    except CaptureError as error:
        raise CaptureError(
            f"instruction '{launch.name}': kernel '{launch.kernel}': {error.message}"
        ) from error


_SCALARS = {"float64": F64, "int64": I64}
