"""From resolved instructions to a device module: the launches of every kernel family, compiled once each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib import import_module

from xdsl.dialects.builtin import BoolAttr

from aicf.backends.base import CodeUnit, Launch
from aicf.backends.cuda.code import Cubin, KernelCode
from aicf.backends.cuda.device_program import (
    FORMAT,
    Address,
    Dependency,
    DeviceModule,
    DeviceProgram,
    KernelNode,
    LibraryNode,
    Scalar,
    StoredCubin,
    TensorMap,
)
from aicf.backends.cuda.launches import Emit, KernelLaunch, LibraryCall
from aicf.backends.cuda.storage import stored
from aicf.backends.cuda.target import GpuArch
from aicf.backends.cuda.toolchain import MINIMUM_DRIVER, compile_kernels, toolchain_lock

_FAMILIES: dict[str, str] = {
    "cuda.cublaslt": "aicf.backends.cuda.cublaslt_code",
    "cuda.gemm_wgmma": "aicf.backends.cuda.wgmma_code",
    "cuda.gemm_mma": "aicf.backends.cuda.mma_code",
    "cuda.gemv": "aicf.backends.cuda.gemv_code",
    "cuda.gemm_simt": "aicf.backends.cuda.simt_code",
    "cuda.attention": "aicf.backends.cuda.attention_code",
    "cuda.attention_simt": "aicf.backends.cuda.attention_code",
    "cuda.generated": "aicf.backends.cuda.generated_code",
    "cuda.copy": "aicf.backends.cuda.move_code",
    "cuda.concat": "aicf.backends.cuda.move_code",
    "cuda.last_update": "aicf.backends.cuda.place_code",
    "cuda.scatter": "aicf.backends.cuda.place_code",
    "cuda.topk": "aicf.backends.cuda.place_code",
}
"""Kernel id to the module whose `emit` makes its launches."""


def emitter(kernel: str) -> Emit:
    """The function that makes the launches of kernel `kernel`."""
    return import_module(_FAMILIES[kernel]).emit


def build_module(units: Sequence[CodeUnit], arch: GpuArch) -> bytes:
    """The stored form of all units; the same units give the same bytes.

    Raises BackendUnavailable if the toolchain is missing.
    """
    lock = toolchain_lock()
    codes: dict[str, KernelCode] = {}
    programs = tuple(_program(unit, arch, codes) for unit in units)
    cubins = compile_kernels((codes[symbol] for symbol in sorted(codes)), arch.name)
    table, section = _section([cubins[symbol] for symbol in sorted(cubins)])
    return stored(DeviceModule(FORMAT, arch.name, programs, table, dict(lock), MINIMUM_DRIVER), section)


def _section(cubins: Sequence[Cubin]) -> tuple[tuple[StoredCubin, ...], bytes]:
    table: list[StoredCubin] = []
    section = b""
    for cubin in cubins:
        digest = hashlib.sha256(cubin.code).hexdigest()
        place = (cubin.symbol, len(section), len(cubin.code), digest)
        table.append(StoredCubin(*place, cubin.registers, cubin.stack_bytes, cubin.shared_bytes))
        section += cubin.code
    return tuple(table), section


def _program(unit: CodeUnit, arch: GpuArch, codes: dict[str, KernelCode]) -> DeviceProgram:
    """The nodes of one unit; adds the code of its kernels to `codes`."""
    nodes: list[KernelNode | LibraryNode] = []
    ends: dict[str, int] = {}
    for launch in unit.launches:
        first = True
        for part in emitter(launch.kernel)(launch, arch):
            after = _edges(launch, ends, nodes, part) if first else _chained(launch, nodes, part)
            nodes.append(_node(launch.name, part, after))
            if isinstance(part, KernelLaunch):
                codes[part.code.symbol] = part.code
            first = False
        ends[launch.name] = len(nodes) - 1
    kernels = tuple(node for node in nodes if isinstance(node, KernelNode))
    libraries = tuple(node for node in nodes if isinstance(node, LibraryNode))
    order = "".join("k" if isinstance(node, KernelNode) else "l" for node in nodes)
    return DeviceProgram(unit.entry, unit.table_size, kernels, libraries, order)


def _edges(
    launch: Launch,
    ends: Mapping[str, int],
    nodes: Sequence[KernelNode | LibraryNode],
    part: KernelLaunch | LibraryCall,
) -> tuple[Dependency, ...]:
    """The edges of an instruction's first node: as the IR says."""
    own = isinstance(part, KernelLaunch)
    return tuple(
        Dependency(
            ends[name], name in launch.programmatic and own and isinstance(nodes[ends[name]], KernelNode)
        )
        for name in launch.waits_for
    )


def _chained(
    launch: Launch, nodes: Sequence[KernelNode | LibraryNode], part: KernelLaunch | LibraryCall
) -> tuple[Dependency, ...]:
    """The edge inside an instruction: each launch waits for the one before, early where both are ours and wait."""
    waits = "early_reads" in launch.record and launch.record.get("triggers") == BoolAttr.from_bool(True)
    early = waits and isinstance(part, KernelLaunch) and isinstance(nodes[-1], KernelNode)
    return (Dependency(len(nodes) - 1, early),)


def _node(
    name: str, part: KernelLaunch | LibraryCall, after: tuple[Dependency, ...]
) -> KernelNode | LibraryNode:
    if isinstance(part, LibraryCall):
        return LibraryNode(name, part.function, part.version, dict(part.call), part.operands, after)
    letters = {Address: "a", TensorMap: "m", Scalar: "s"}
    return KernelNode(
        name,
        part.code.symbol,
        part.grid,
        part.block,
        part.cluster,
        part.shared_bytes,
        tuple(a for a in part.arguments if isinstance(a, Address)),
        tuple(a for a in part.arguments if isinstance(a, TensorMap)),
        tuple(a for a in part.arguments if isinstance(a, Scalar)),
        "".join(letters[type(a)] for a in part.arguments),
        after,
    )
