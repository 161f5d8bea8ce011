"""Products of the GEMM families as launches, their code compiled and disassembled."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute

from aicf.backends.base import BufferRef, Launch, Work
from aicf.backends.cuda.code import Cubin
from aicf.backends.cuda.launches import KernelLaunch, LibraryCall
from aicf.backends.cuda.toolchain import compile_kernels


def launch_of(work: Work, kernel: str, record: Mapping[str, Attribute]) -> Launch:
    """The instruction of `work` by `record`. Buffer i is operand i, results follow, then the workspace."""
    refs = [
        BufferRef(place, 0, info.shape, info.strides, info.dtype)
        for place, info in enumerate((*work.operands, *work.results))
    ]
    ins, outs = tuple(refs[: len(work.operands)]), tuple(refs[len(work.operands) :])
    size = record.get("workspace_bytes")
    bytes_ = size.value.data if isinstance(size, IntegerAttr) else 0
    ws = (BufferRef(len(refs), 0, (bytes_ // 4,), (1,), "f32"),) if bytes_ else ()
    return Launch("product", work.kind, kernel, record, ins, outs, ws, work.body, work.code, ())


def compiled(
    parts: Sequence[KernelLaunch | LibraryCall], arch: str = "sm_90a"
) -> list[tuple[KernelLaunch, Cubin]]:
    """Every launch with its cubin."""
    own = [part for part in parts if isinstance(part, KernelLaunch)]
    cubins = compile_kernels([part.code for part in own], arch)
    return [(part, cubins[part.code.symbol]) for part in own]


def instructions(cubin: Cubin, folder: Path) -> Counter[str]:
    """How often each opcode occurs in the SASS of a cubin, without its modifiers."""
    nvidia = pytest.importorskip("nvidia.cu13")
    tool = Path(next(iter(nvidia.__path__))) / "bin" / "cuobjdump"
    if not tool.exists():
        pytest.skip("cuobjdump is not installed")
    path = folder / "a.cubin"
    path.write_bytes(cubin.code)
    text = subprocess.run([tool, "-sass", path], capture_output=True, text=True, check=True).stdout
    return Counter(re.findall(r"^\s+/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9]+)", text, re.MULTILINE))
