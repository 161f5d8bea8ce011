"""The contract between the compiler, the runtime and a backend: data classes and protocols, no behaviour.

A backend describes its kernels (`KernelDescriptor`, used by passes), makes native code from units (`CodeUnit`, at
compile time) and loads it (`native`, at run time). It never decides anything: every choice is in the kernel record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block

from aicf.backends.native import DeviceCode, Entry, LoadedCode, NativeCode, ProfileEntry
from aicf.dialects.emit import ProgramOp
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

__all__ = [
    "EARLY_READS",
    "TRIGGERS",
    "Backend",
    "BatchInvariantKernel",
    "BoundaryBackend",
    "BufferRef",
    "CachingBackend",
    "CodeUnit",
    "ConcurrentBackend",
    "DeviceCode",
    "DeviceGivenKernel",
    "Entry",
    "FusedKernel",
    "KernelDescriptor",
    "Launch",
    "LibraryBackend",
    "LoadedCode",
    "MachineBackend",
    "NativeCode",
    "OperandInfo",
    "ProfileEntry",
    "SharingKernel",
    "TunableKernel",
    "WeighingKernel",
    "Work",
]

EARLY_READS = "early_reads"
"""Entry of the record of a kernel that waits for its predecessors itself: the operands it reads before it does."""
TRIGGERS = "triggers"
"""Entry of a record: whether the kernel lets its successors start before it ends."""


@dataclass(frozen=True)
class OperandInfo:
    """One operand or result of a piece of work, as a kernel sees it.

    Args:
        role: `input`, `param`, `state`, `meta`, `const`, `derived`, `output` or `temp` (a value of this program).
        shape: Logical sizes.
        dtype: Element type name (`f32`, `i1`, ...).
        strides: Elements between neighbours, one per dimension; 0 where broadcast.
        updated: Whether the program overwrites it (then it cannot be prepared ahead).
        offset: Elements from the start of its buffer, which is aligned, to its first element.
        layout: The physical layout that it was prepared in, None for plain strided memory.
    """

    role: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    updated: bool = False
    offset: int = 0
    layout: LayoutAttr | None = None

    @property
    def is_weight(self) -> bool:
        """Whether it may be packed ahead: a parameter that no program overwrites, or what is made of such alone."""
        return self.role in ("param", "derived") and not self.updated


@dataclass(frozen=True)
class Work:
    """What a kernel is asked to run: one group or instruction.

    Args:
        id: Group id.
        kind: Opcode name derived from the body.
        attrs: Attributes of the kind's schema.
        operands, results: As seen by the kernel (view ops in front are already strides).
        body: The meaning: primitive logical ops from block arguments (operands) to `emit.yield` (results).
        code: The generated scalar program, for kinds that have one (epilogues and generated kernels).
        prologue: The generated row program that makes operand 0 of the product, for kinds that have one.
        rounding: As in the policy: `fused` lets a value between two ops of the body stay in the type it is computed
            in, `strict` rounds it to its own.
        batch_invariant: Whether the bits of a result element may depend on nothing but the terms that it is made of,
            not on how many other elements there are. Only kernels with that offer are asked to run such work.
        tf32: Whether its products may round f32 operands to TF32.
    """

    id: str
    kind: str
    attrs: Mapping[str, Attribute]
    operands: tuple[OperandInfo, ...]
    results: tuple[OperandInfo, ...]
    body: Block
    code: KernelOp | None
    prologue: KernelOp | None = None
    rounding: str = "fused"
    batch_invariant: bool = False
    tf32: bool = False


class KernelDescriptor(Protocol):
    """One kernel of a backend. Stateless; importing it imports no code generator."""

    @property
    def id(self) -> str:
        """Unique, `backend.name`."""
        ...

    @property
    def version(self) -> int:
        """Raised whenever the code or the record's meaning changes."""
        ...

    @property
    def kinds(self) -> frozenset[str]:
        """Opcodes it may run."""
        ...

    @property
    def determinism(self) -> str:
        """`bitwise` (same bits always) or `unordered`."""
        ...

    @property
    def simplicity(self) -> int:
        """Rank that breaks ties: lower is simpler."""
        ...

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """None if it can run `work` on `target`, else the reason in a user's words."""
        ...

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """Predicted microseconds on `target`, of the record that `record` gives. Only for legal work."""
        ...

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """The kernel record without `version` and `determinism`: tile, partition, threads, combination order.

        May hold `layouts`: an array with one entry an operand, `unit` for plain memory or the `LayoutAttr` it needs
        prepared; `workspace_bytes` (i64); and `may_alias`, an array of [result, operand] pairs that may share bytes.
        """
        ...

    def checked_record(
        self, work: Work, record: Mapping[str, Attribute], target: TargetAttr
    ) -> Mapping[str, Attribute]:
        """The record of the decisions that `record` holds, which may have been edited by hand, as `record` writes it.

        Operands that the record reads early have the role `const`; which of them may be is not asked here.

        Raises:
            PlanError: it cannot run `work` on `target`; the message names the entry and its legal values.
        """
        ...

    def prepare(self, work: Work, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """The kernel record of the instruction that packs `operand` into `layout` (run in `@prepare`)."""
        ...


@runtime_checkable
class TunableKernel(Protocol):
    """What a `KernelDescriptor` also offers if it could run a piece of work in several ways."""

    def candidates(self, work: Work, target: TargetAttr) -> Sequence[Mapping[str, Attribute]]:
        """The kernel records it could give, the most promising first: the first is what `record` gives.

        All have the same entries. A measurement finds its variant by the entries whose values differ, so the records
        may only depend on `work` and `target`, and other candidates mean another `version`. Only for legal work.
        """
        ...


@runtime_checkable
class SharingKernel(Protocol):
    """What a `KernelDescriptor` also says if threads may share its work: what that was predicted to gain or lose."""

    def threads_us(self, work: Work, target: TargetAttr) -> Mapping[int, float]:
        """Predicted microseconds by number of threads, for each number that was weighed: `record` has the best. Only
        for legal work."""
        ...


@runtime_checkable
class WeighingKernel(Protocol):
    """What a `KernelDescriptor` also says if it knows several algorithms: what speaks against those not taken."""

    def against(self, work: Work, record: Mapping[str, Attribute], target: TargetAttr) -> Mapping[str, str]:
        """The reason against each algorithm but that of `record`, one of those it gives. Only for legal work."""
        ...


@runtime_checkable
class FusedKernel(Protocol):
    """What a `KernelDescriptor` also says if a fusion may cost more than its parts: what the parts would cost.

    A fusion that only kernels with this offer is formed if it is predicted to take no longer, one that another kernel
    takes is formed always.
    """

    def apart_us(self, work: Work, target: TargetAttr) -> float:
        """Predicted microseconds of `work` as instructions of their own, infinite where it should never be taken
        apart. Only for legal work."""
        ...


@runtime_checkable
class BatchInvariantKernel(Protocol):
    """What a `KernelDescriptor` also offers if it can keep the bits of a result element apart from the batch.

    For work that is `batch_invariant` every record it gives (`record`, `candidates`) then combines the terms of an
    element in an order that follows from their number, their types and the target: never from the sizes over which
    nothing is summed, nor from strides that change with them. Whether it is legal may not depend on these sizes either.
    """

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """That order in words. Two kernels that say the same give the same bits. Only for legal work."""
        ...


@runtime_checkable
class DeviceGivenKernel(Protocol):
    """What a `KernelDescriptor` also says if entries of its record come from the device, by measuring.

    Without a measurement the kernel is not legal. `record` gives the other entries.
    """

    @property
    def device_fields(self) -> Mapping[str, Attribute]:
        """The entries that every measurement of it has, such as the bytes of a library's algorithm; each with what
        stands in its place until then (for `workspace_bytes` the most it may be)."""
        ...


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

    def kernels(self) -> Sequence[KernelDescriptor]:
        """All kernels, in a fixed order."""
        ...

    def build(self, module: ModuleOp, units: Sequence[CodeUnit], target: TargetAttr) -> NativeCode:
        """Code for all units. Pure: the same input gives the same bytes."""
        ...

    def load(self, native: NativeCode) -> LoadedCode | DeviceCode:
        """Loads code into this process, as `NativeCode.place` says. Raises BackendUnavailable if the machine lacks a
        feature."""
        ...

    def devices(self) -> Sequence[Mapping[str, str]]:
        """What this backend could run on here: `name`, `arch` as in a target, `memory` in words."""
        ...


@runtime_checkable
class LibraryBackend(Protocol):
    """What a `Backend` also says if its targets may list libraries."""

    @property
    def library_names(self) -> Sequence[str]:
        """Those that its kernels can call, be they here or not."""
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
