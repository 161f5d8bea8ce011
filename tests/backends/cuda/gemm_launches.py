"""Works as the instructions that code generators see, and their code compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.code import Cubin
from aicf.backends.cuda.compiler.launches import KernelLaunch, LibraryCall
from aicf.backends.cuda.compiler.toolchain import compile_kernels


def launch_of(work: Workload, kernel: str, record: Mapping[str, Attribute]) -> Launch:
    """The instruction of `work` by `record`. Buffer i is operand i, results follow, then the workspace."""
    refs = [
        BufferRef(index, 0, info.shape, info.strides, info.dtype)
        for index, info in enumerate((*work.operands, *work.results))
    ]
    ins, outs = tuple(refs[: len(work.operands)]), tuple(refs[len(work.operands) :])
    size = record.get("workspace_bytes")
    bytes_ = size.value.data if isinstance(size, IntegerAttr) else 0
    ws = (BufferRef(len(refs), 0, (bytes_ // 4,), (1,), "f32"),) if bytes_ else ()
    return Launch(
        work.id, work.kind, kernel, record, ins, outs, ws, work.body, work.code, (), prologue=work.prologue
    )


def compiled(
    parts: Sequence[KernelLaunch | LibraryCall], arch: str = "sm_90a"
) -> list[tuple[KernelLaunch, Cubin]]:
    """Every launch with its cubin."""
    own = [part for part in parts if isinstance(part, KernelLaunch)]
    cubins = compile_kernels([part.code for part in own], arch)
    return [(part, cubins[part.code.symbol]) for part in own]
