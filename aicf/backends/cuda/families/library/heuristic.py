"""The algorithm that a library itself would take for a call: queried from it on the GPU of this machine.

Its heuristic needs the GPU and nothing of the operands. The answer becomes part of the record, so the program is as
complete as one whose algorithm was measured. Nothing is queried for a target that is not this machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

from xdsl.dialects.builtin import DictionaryAttr, StringAttr

from aicf.backends.common.record import Record
from aicf.backends.cuda.families.library.call import ALGORITHM, LIBRARY, WORKSPACE, LibraryFunction
from aicf.backends.cuda.runtime.device import CudaDevice
from aicf.backends.cuda.runtime.device_program import LibraryNode
from aicf.backends.cuda.runtime.driver import host_arch
from aicf.backends.cuda.runtime.library import Offer, library_of, module_of, offered
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.json_values import json_value
from aicf.errors import BackendUnavailable

_WAY_OUT = "compile with target cuda on the machine with the GPU, or give a tuning table"


def proposal(record: Record, target: TargetAttr, function: LibraryFunction, result: str) -> dict[str, object]:
    """The `device_fields` of a record, from the first algorithm that the heuristic offers for its call.

    Args:
        result: What the call names its result.

    Raises BackendUnavailable: this machine is not the target, or the library offers nothing.
    """
    version = _check_machine(target, library_of(function.name))
    operands = record["operands"]
    assert isinstance(operands, DictionaryAttr)
    values = {key: json_value(value) for key, value in record.items()}
    call = function.call(values, [*operands.data, result])
    offer = first_offered(function.name, json.dumps(call, sort_keys=True))
    return {ALGORITHM: offer.algorithm, LIBRARY: version, WORKSPACE: offer.workspace_bytes}


def _check_machine(target: TargetAttr, name: str) -> str:
    """The version of the library here, which is that of the target, as is the GPU."""
    listed = _listed(target).get(name)
    if listed is None:
        raise BackendUnavailable(f"the target lists no {name}; {_WAY_OUT}")
    found, arch = module_of(name).version(), host_arch()
    for what, wanted, here in (
        ("library", f"{name} {listed}", f"{name} {found}"),
        ("GPU", target.arch.data, arch),
    ):
        if wanted != here:
            raise BackendUnavailable(f"the {what} here is {here}, the target's {wanted}; {_WAY_OUT}")
    return found


def _listed(target: TargetAttr) -> Mapping[str, str]:
    libraries = target.facts.data.get("libraries")
    if not isinstance(libraries, DictionaryAttr):
        return {}
    return {name: value.data for name, value in libraries.data.items() if isinstance(value, StringAttr)}


@cache
def first_offered(function: str, call: str) -> Offer:
    """The first algorithm for a call. Equal calls are queried once."""
    found = offered(CudaDevice(), LibraryNode("an instruction", function, "", json.loads(call), ()), 1)
    if not found:
        raise BackendUnavailable("the library's heuristic offers no algorithm for it; choose another kernel")
    return found[0]
