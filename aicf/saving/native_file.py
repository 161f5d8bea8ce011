"""`native.bin`: native code with what it takes for granted, so that a plan that does not fit is refused before it runs.

The code itself is trusted, as a shared library is. What it takes for granted is compared with `plan.json`: the hash of
the plan that it was made with, and for a message in numbers what each program needs of threads and memory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aicf.backends.native import NativeCode, ProgramNeeds
from aicf.errors import ArtifactError
from aicf.runtime.capture_plan import CapturePlan, ModulePlan
from aicf.support.dataclass_json import from_json_value, parse_json, to_json_value

_MAGIC = b"AICFCODE"
_LENGTH = struct.Struct("<Q")
_START = len(_MAGIC) + _LENGTH.size
_ALIGN = 64
"""Bytes; the code begins at a multiple."""
REBUILD = 'load it with native="rebuild", which makes both from emit.mlir'


@dataclass(frozen=True)
class _Header:
    """`NativeCode` but for its bytes, and `plan`, the SHA-256 of the `plan.json` that it was made with."""

    plan: str
    features: tuple[str, ...]
    functions: tuple[str, ...]
    memory: str
    reserves: dict[str, object]
    programs: tuple[ProgramNeeds, ...]


def to_bytes(native: NativeCode, plan_sha256: str) -> bytes:
    """The entry of an artifact whose plan has this hash."""
    header = _Header(
        plan_sha256, native.features, native.functions, native.memory, dict(native.reserves), native.programs
    )
    text = json.dumps(to_json_value(header), sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-(_START + len(text)) % _ALIGN)
    return b"".join([_MAGIC, _LENGTH.pack(len(text)), text, native.code])


def read(data: bytes | memoryview) -> tuple[NativeCode, str]:
    """The code, and the hash of the plan that it was made with. Raises ArtifactError for anything else."""
    view = memoryview(data)
    header, start = _read_header(view)
    reserves = {entry: size for entry, size in header.reserves.items() if type(size) is int and size >= 0}
    if header.memory not in ("host", "device") or len(reserves) != len(header.reserves):
        raise ArtifactError("native.bin does not say where its code runs; compile the model again")
    native = NativeCode(
        bytes(view[start:]), header.features, header.functions, header.memory, reserves, header.programs
    )
    return native, header.plan


def _read_header(view: memoryview) -> tuple[_Header, int]:
    """The header, and where the code begins."""
    if bytes(view[: len(_MAGIC)]) != _MAGIC or len(view) < _START:
        raise ArtifactError(f"native.bin does not say what its code needs; {REBUILD}")
    (length,) = _LENGTH.unpack_from(view, len(_MAGIC))
    try:
        value = parse_json(bytes(view[_START : _START + length]))
    except ValueError:
        raise ArtifactError("the header of native.bin is no JSON; compile the model again") from None
    return from_json_value(_Header, value, "native.bin"), _START + length


def check_plan(plan: ModulePlan, plan_sha256: str, native: NativeCode, made_with: str) -> None:
    """Raises ArtifactError if a plan, with the hash of its text, is not the one that code was made with."""
    for problem in _disagreements(plan, native):
        raise ArtifactError(f"plan.json and native.bin disagree: {problem}; {REBUILD}")
    if plan_sha256 != made_with:
        entries = ", ".join(f"'{program.entry}'" for program in _programs(plan).values())
        raise ArtifactError(
            f"plan.json is not the plan that native.bin was made with (entries {entries}): its SHA-256 is "
            f"{plan_sha256[:16]}..., not {made_with[:16]}...; {REBUILD}"
        )


def _programs(plan: ModulePlan) -> Mapping[str, CapturePlan]:
    """All programs by entry."""
    return {program.entry: program for program in plan.all_programs}


def _disagreements(plan: ModulePlan, native: NativeCode) -> Iterator[str]:
    """Each figure of the plan that the code does not get along with."""
    programs, needs = _programs(plan), {program.entry: program for program in native.programs}
    for entry in sorted(programs.keys() ^ needs.keys()):
        holder, other = ("plan", "code") if entry in programs else ("code", "plan")
        yield f"entry '{entry}' is in the {holder} and not in the {other}"
    for entry, program in programs.items():
        for what, planned, needed in _figures(plan, program, needs[entry]):
            yield f"entry '{entry}': the plan has {what} {planned}, the code needs {needed}"


def _figures(plan: ModulePlan, program: CapturePlan, needs: ProgramNeeds) -> Iterator[tuple[str, int, int]]:
    """What is wrong between a program and its code: a name, the figure of the plan, that of the code."""
    exact = {
        "threads": (plan.threads, needs.threads),
        "instructions": (len(program.launches), needs.launches),
        "pointers in its table": (program.table_size, len(needs.nbytes)),
    }
    for what, (planned, needed) in exact.items():
        if planned != needed:
            yield what, planned, needed
            return
    if program.arena_bytes < needs.nbytes[0]:
        yield "arena_bytes", program.arena_bytes, needs.nbytes[0]
    for bind, needed in zip(program.graph.binds, needs.nbytes[1:], strict=True):
        if bind.nbytes < needed:
            yield f"nbytes of {bind.role} '{bind.name}'", bind.nbytes, needed
