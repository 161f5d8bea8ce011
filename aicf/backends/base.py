"""The contract between the compiler, the runtime and a backend: data classes and protocols, no behaviour.

A backend describes its kernels (`Kernel`, used by passes), makes native code from units (`CodeUnit`, at compile time)
and loads it (`native`, at run time). It never decides anything: every choice is in the kernel record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block

from aicf.backends.common.kernel import AnyKernel
from aicf.backends.common.user_kernel import UserKernel
from aicf.backends.native import DeviceCode, LoadedCode, NativeCode
from aicf.dialects.emit import ProgramOp
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr


@dataclass(frozen=True)
class BufferRef:
    """Where an instruction's operand lies: `table[base] + offset` bytes.

    Args:
        base: Index into the pointer table: 0 is the arena, 1 .. are the binds in program order.
        offset: Bytes from that pointer.
        shape, strides: Logical sizes and element strides.
        dtype: Element type name.
        layout: Physical layout, None for plain strided memory.
    """

    base: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    layout: LayoutAttr | None = None


@dataclass(frozen=True)
class Launch:
    """One instruction, ready for code generation; operands in `ins`, `outs`, `ws` order.

    `waits_for` names the instructions of all its edges, `programmatic` those of them whose edge lets it start early.
    """

    name: str
    kind: str
    kernel: str
    record: Mapping[str, Attribute]
    ins: tuple[BufferRef, ...]
    outs: tuple[BufferRef, ...]
    ws: tuple[BufferRef, ...]
    body: Block
    code: KernelOp | None
    waits_for: tuple[str, ...]
    programmatic: tuple[str, ...] = ()
    prologue: KernelOp | None = None


@dataclass(frozen=True)
class CodeUnit:
    """One final program: its entry symbol and its launches in text order.

    Args:
        entry: Symbol of the native entry.
        program: The emit program it was read from.
        table_size: Number of data pointers (arena and binds); function pointers follow them in the table.
    """

    entry: str
    program: ProgramOp
    launches: tuple[Launch, ...]
    table_size: int


class Backend(Protocol):
    """An executor. Registered under its name; a plug-in registers by the entry point group `aicf.backends`."""

    @property
    def name(self) -> str:
        """As in a target, `cpu`."""
        ...

    def resolve_arch(self, arch: str | None) -> str:
        """The architecture level: `arch` checked, or this machine's if None. Raises PolicyError with the legal ones."""
        ...

    def libraries(self) -> Mapping[str, str]:
        """Libraries of this machine whose kernels may be chosen, with their versions; part of a resolved target."""
        ...

    def kernels(self) -> Sequence[AnyKernel]:
        """All kernels, in a fixed order."""
        ...

    def build(self, module: ModuleOp, units: Sequence[CodeUnit], target: TargetAttr) -> NativeCode:
        """Code for all units. Pure: the same input gives the same bytes."""
        ...

    def load(self, native: NativeCode) -> LoadedCode | DeviceCode:
        """Loads code into this process, as `NativeCode.memory` says. Raises BackendUnavailable if the machine lacks a
        feature."""
        ...

    def devices(self) -> Sequence[Mapping[str, str]]:
        """What this backend could run on here, in the order of its numbers, each with what is known of it: `kind`
        (`cpu`, the default, `gpu` or `npu`), `name`, `arch` as in a target, `capability`, `memory_bytes` as a decimal
        number, versions as `driver` and `toolkit`, and more in words as `details`."""
        ...


@runtime_checkable
class LibraryBackend(Protocol):
    """What a `Backend` also says if its targets may list libraries."""

    @property
    def library_names(self) -> Sequence[str]:
        """Those that its kernels can call, be they here or not."""
        ...


@runtime_checkable
class FeaturedBackend(Protocol):
    """What a `Backend` also says if levels may have features: instructions that only some of their processors have."""

    @property
    def feature_names(self) -> Sequence[str]:
        """Those that may follow the name of a level."""
        ...


@runtime_checkable
class MachineBackend(Protocol):
    """What a `Backend` also says if many machines have one architecture level: which of them this is."""

    def machine(self) -> str:
        """What this machine is called in tables of measured times."""
        ...


@runtime_checkable
class BoundaryBackend(Protocol):
    """What a `Backend` also offers if inputs and outputs can be staged: copied from and to memory of its programs."""

    @property
    def bind_align(self) -> int:
        """Bytes: what addresses of inputs and outputs that are used directly must be multiples of."""
        ...

    def copy_us(self, nbytes: int, target: TargetAttr) -> float:
        """Predicted microseconds of a staged copy of that many bytes."""
        ...


@runtime_checkable
class ConcurrentBackend(Protocol):
    """What a `Backend` also offers if its devices run independent instructions at the same time."""

    @property
    def join_us(self) -> float:
        """Microseconds from the end of an instruction to the start of one that waits for it on another stream, more
        than on the same one."""
        ...

    def device_share(self, kernel: KernelAttr, target: TargetAttr) -> float:
        """Part of the device, above 0 up to 1, that a launch with this record keeps busy."""
        ...


@runtime_checkable
class CachingBackend(Protocol):
    """What a `Backend` also offers if its instructions run one after the other, each through the same cache."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of what one instruction leaves there that the next one finds."""
        ...


@runtime_checkable
class DeviceBackend(Protocol):
    """What a `Backend` also says if its programs do not run on the processor, but on a device beside it."""

    @property
    def device(self) -> str:
        """What sessions call the device, as `cuda`; several backends may have one."""
        ...

    def how_to_choose(self, ordinal: int) -> str:
        """How a user makes device `ordinal`, counted from 0, the one that programs run on; in words."""
        ...


PACKED = "packed"
"""In place of the element type of both operands of a product: the weight is packed in blocks of few bits."""


@dataclass(frozen=True)
class Peaks:
    """The most that a target can do in a microsecond, as its cost models assume it: the roof of a roofline.

    Args:
        memory: Speeds of memory by size, the smallest first: bytes that fit, and bytes a microsecond. The last one
            takes what does not fit elsewhere.
        products: Arithmetic operations a microsecond in products, by the element type of their operands; a multiply
            and an add are two. Those with packed weights, as `PACKED`, at the rate of the type that kernels multiply.
        operations: Those of all others.
    """

    memory: tuple[tuple[int, float], ...]
    products: Mapping[str, float]
    operations: float

    def memory_us(self, nbytes: int) -> float:
        """Microseconds to move that many bytes once."""
        speed = next((speed for fits, speed in self.memory if nbytes <= fits), self.memory[-1][1])
        return nbytes / speed


@runtime_checkable
class RooflineBackend(Protocol):
    """What a `Backend` also says if reports compare the times of its instructions with what the target could do."""

    def peaks(self, arch: str, threads: int) -> Peaks:
        """Of a target, by its architecture and its threads."""
        ...


@runtime_checkable
class TimedBackend(Protocol):
    """What a `Backend` also says if its instructions can be timed one at a time, as `aicf tune` does."""

    @property
    def timing(self) -> str:
        """`module:Class` of the `aicf.tuning.measure.Device` that is made of prepared cases; loaded when it is used.

        Code that runs on the processor is timed by `aicf.tuning.host_device:HostDevice`.
        """
        ...


@runtime_checkable
class UserKernelBackend(Protocol):
    """What a `Backend` also offers if packages may define kernels for it."""

    def user_kernel(self, spec: UserKernel) -> AnyKernel:
        """The kernel that a package defines."""
        ...
