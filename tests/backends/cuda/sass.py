"""Machine code of a cubin as instruction names, by NVIDIA's disassembler (package nvidia-cuda-nvdisasm)."""

from __future__ import annotations

import re
import subprocess
import tempfile
from importlib.metadata import files
from pathlib import Path

from aicf.backends.cuda.code import Cubin


def disassembler() -> Path:
    """Where the package has put `nvdisasm`; PackageNotFoundError if the dev extra is not installed."""
    found = [file for file in files("nvidia-cuda-nvdisasm") or () if Path(str(file)).stem == "nvdisasm"]
    return Path(str(found[0].locate()))


def instructions(cubin: Cubin) -> list[str]:
    """Names of all instructions with their modifiers, `LDG.E.128`, in order."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin.code)
        file.flush()
        text = subprocess.run(
            [disassembler(), "-c", file.name], check=True, capture_output=True, text=True
        ).stdout
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", text)
