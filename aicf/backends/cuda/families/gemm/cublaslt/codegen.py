"""From a `cuda.cublaslt` record to the call that is captured: plain values and addresses, nothing decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.launches import LibraryCall, address_of
from aicf.backends.cuda.families.gemm.cublaslt.call import FUNCTION, call_values
from aicf.dialects.json_values import json_value


def emit(launch: Launch) -> Sequence[LibraryCall]:
    """The call of one instruction; `operands` of the call names its addresses in order."""
    record = {key: json_value(value) for key, value in launch.record.items()}
    operands = cast("dict[str, int]", record["operands"])
    addresses = {name: address_of(launch.ins[index]) for name, index in operands.items()}
    addresses["d"] = address_of(launch.outs[0])
    if launch.ws:
        addresses["workspace"] = address_of(launch.ws[0])
    call = call_values(record, list(addresses))
    return [LibraryCall(FUNCTION, str(record["library"]), call, tuple(addresses.values()))]
