"""From the record of a `LibraryKernel` to the call that is captured: plain values and addresses, nothing decided."""

from __future__ import annotations

from typing import cast

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.launches import LibraryCall, address_of
from aicf.backends.cuda.families.library.call import LIBRARY, LibraryFunction
from aicf.dialects.json_values import json_value


def library_call(launch: Launch, function: LibraryFunction, result: str) -> LibraryCall:
    """The call of one instruction; `operands` of the call names its addresses in order."""
    record = {key: json_value(value) for key, value in launch.record.items()}
    operands = cast("dict[str, int]", record["operands"])
    addresses = {name: address_of(launch.ins[index]) for name, index in operands.items()}
    addresses[result] = address_of(launch.outs[0])
    if launch.ws:
        addresses["workspace"] = address_of(launch.ws[0])
    call = function.call(record, list(addresses))
    return LibraryCall(function.name, str(record[LIBRARY]), call, tuple(addresses.values()))
