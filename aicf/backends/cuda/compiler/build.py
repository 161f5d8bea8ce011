"""From resolved instructions to a device module: the launches of every kernel family, compiled once each."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from importlib import import_module

from aicf.backends.base import CodeUnit, Launch
from aicf.backends.common.record import naming
from aicf.backends.cuda.compiler.code import Cubin, ForeignCode, KernelCode
from aicf.backends.cuda.compiler.launches import Emit, KernelLaunch, LibraryCall
from aicf.backends.cuda.compiler.toolchain import MINIMUM_DRIVER, KernelError, compile_kernels, toolchain_lock
from aicf.backends.cuda.families.records import is_programmatic
from aicf.backends.cuda.runtime.device_program import (
    FORMAT,
    Address,
    Dependency,
    DeviceModule,
    DeviceProgram,
    KernelNode,
    LibraryNode,
    Scalar,
    StoredCubin,
    Table,
    TensorMap,
)
from aicf.backends.cuda.runtime.storage import stored
from aicf.backends.cuda.target import GpuArch
from aicf.backends.registry import get_kernels
from aicf.errors import CaptureError, PlanError


def emitter(kernel: str) -> Emit:
    """The function that makes the launches of kernel `kernel`."""
    return import_module(get_kernels("cuda")[kernel].code_generator).emit


def build_module(units: Sequence[CodeUnit], arch: GpuArch) -> bytes:
    """The stored form of all units; the same units give the same bytes.

    Raises:
        BackendUnavailable: the toolchain is missing.
        CaptureError: the kernel of an instruction does not compile.
    """
    lock = toolchain_lock()
    programs: list[DeviceProgram] = []
    versions = dict(lock)
    try:
        cubins = compile_kernels(_noting(_codes(units, programs), versions), arch.name)
    except KernelError as error:
        raise CaptureError(_failed(error, units, programs, arch)) from error
    table, section = _section([cubins[symbol] for symbol in sorted(cubins)])
    return stored(
        DeviceModule(FORMAT, arch.name, tuple(programs), table, dict(versions), MINIMUM_DRIVER), section
    )


def _noting(
    codes: Iterator[KernelCode | ForeignCode], versions: dict[str, str]
) -> Iterator[KernelCode | ForeignCode]:
    """The same, with what else compiles some of them added to `versions`."""
    for code in codes:
        if isinstance(code, ForeignCode):
            versions.update(code.toolchain)
        yield code


def _codes(units: Sequence[CodeUnit], programs: list[DeviceProgram]) -> Iterator[KernelCode | ForeignCode]:
    """The code of each kernel as soon as it is made, so that it compiles while the next is made; adds the programs to
    `programs`."""
    for unit in units:
        programs.append((yield from _program(unit)))


def _failed(
    error: KernelError, units: Sequence[CodeUnit], programs: Sequence[DeviceProgram], arch: GpuArch
) -> str:
    """What to say about a kernel that does not compile: the first instruction that launches it, and the way out."""
    name = next(node.name for program in programs for node in program.kernels if node.symbol == error.symbol)
    kernel = next(launch.kernel for unit in units for launch in unit.launches if launch.name == name)
    return (
        f"instruction '{name}': kernel '{kernel}' does not compile for {arch.name}: {error.reason}; forbid it in "
        "the policy (the toolchain's whole message is the cause of this error, which --debug shows)"
    )


def _section(cubins: Sequence[Cubin]) -> tuple[tuple[StoredCubin, ...], bytes]:
    table: list[StoredCubin] = []
    section = b""
    for cubin in cubins:
        digest = hashlib.sha256(cubin.code).hexdigest()
        entry = (cubin.symbol, len(section), len(cubin.code), digest)
        table.append(StoredCubin(*entry, cubin.registers, cubin.stack_bytes, cubin.shared_bytes))
        section += cubin.code
    return tuple(table), section


def _program(unit: CodeUnit) -> Generator[KernelCode | ForeignCode, None, DeviceProgram]:
    """The nodes of one unit; gives the code of its kernels on the way."""
    nodes: list[KernelNode | LibraryNode] = []
    ends: dict[str, int] = {}
    for launch in unit.launches:
        first = True
        with naming(launch.name):
            parts = list(emitter(launch.kernel)(launch))
        for part in parts:
            after = _edges(launch, ends, nodes, part) if first else _chained(launch, nodes, part)
            nodes.append(_node(launch.name, part, after))
            if isinstance(part, KernelLaunch):
                yield part.code
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
    """The edges of an instruction's first node: as the IR says.

    Raises PlanError for a programmatic edge from or to a library call, which neither triggers nor waits inside.
    """
    for name in launch.programmatic:
        if isinstance(part, LibraryCall) or isinstance(nodes[ends[name]], LibraryNode):
            raise PlanError(
                f"instruction '{launch.name}' starts before '{name}' ends, but edges of library calls are full; write "
                f'after(["{name}" full])'
            )
    return tuple(Dependency(ends[name], name in launch.programmatic) for name in launch.waits_for)


def _chained(
    launch: Launch, nodes: Sequence[KernelNode | LibraryNode], part: KernelLaunch | LibraryCall
) -> tuple[Dependency, ...]:
    """The edge inside an instruction: each launch waits for the one before, early where both are ours and wait."""
    own = isinstance(part, KernelLaunch) and isinstance(nodes[-1], KernelNode)
    early = own and is_programmatic(launch.record)
    return (Dependency(len(nodes) - 1, early),)


def _node(
    name: str, part: KernelLaunch | LibraryCall, after: tuple[Dependency, ...]
) -> KernelNode | LibraryNode:
    if isinstance(part, LibraryCall):
        return LibraryNode(name, part.function, part.version, dict(part.call), part.operands, after)
    letters = {Address: "a", TensorMap: "m", Scalar: "s", Table: "t"}
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
        tuple(a for a in part.arguments if isinstance(a, Table)),
    )
