"""The stored form of a device module: a JSON header, then the cubins. Reading evaluates nothing."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import cast

from aicf.backends.cuda.runtime.device_program import FORMAT, DeviceModule
from aicf.errors import ArtifactError
from aicf.support.dataclass_json import from_json_value, parse_json, to_json_value

_MAGIC = b"AICFCUDA"


def stored(module: DeviceModule, section: bytes) -> bytes:
    """One block of bytes."""
    header = json.dumps(to_json_value(module), sort_keys=True, separators=(",", ":")).encode()
    return _MAGIC + struct.pack("<I", len(header)) + header + section


def read(code: bytes) -> tuple[DeviceModule, dict[str, bytes]]:
    """The module and its cubins by symbol. Raises ArtifactError for anything but whole code of this format."""
    start = len(_MAGIC) + 4
    if code[: len(_MAGIC)] != _MAGIC or len(code) < start:
        raise ArtifactError("the native code is no cuda code; compile the program again")
    (size,) = struct.unpack_from("<I", code, len(_MAGIC))
    try:
        header = parse_json(code[start : start + size])
    except ValueError:
        raise ArtifactError("the header of the cuda code is damaged; compile the program again") from None
    if isinstance(header, dict) and cast("dict[str, object]", header).get("format") != FORMAT:
        raise ArtifactError(f"cuda code of format {FORMAT} is read here; compile the program again")
    module = from_json_value(DeviceModule, cast(object, header), "cuda code")
    section = code[start + size :]
    cubins: dict[str, bytes] = {}
    for entry in module.cubins:
        image = section[entry.start : entry.start + entry.size]
        if hashlib.sha256(image).hexdigest() != entry.sha256:
            raise ArtifactError(f"the code of kernel '{entry.symbol}' is damaged; compile the program again")
        cubins[entry.symbol] = image
    return module, cubins
