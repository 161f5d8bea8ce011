"""What a kernel family gives the builder: the launches of one instruction, with code that is not compiled yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aicf.backends.base import BufferRef, Launch
from aicf.backends.cuda.compiler.code import ForeignCode, KernelCode
from aicf.backends.cuda.families.records import Shape, Triple
from aicf.backends.cuda.runtime.device_program import Address, Scalar, Table, TensorMap


@dataclass(frozen=True)
class KernelLaunch:
    """One launch of a device function.

    Args:
        code: The function.
        arguments: One for each of its parameters; a tensor map or a table is a `ptr`.
        grid, block, cluster: Sizes in blocks, threads and blocks.
        shared_bytes: Dynamic shared memory.
    """

    code: KernelCode | ForeignCode
    arguments: tuple[Address | TensorMap | Table | Scalar, ...]
    grid: Triple
    block: Triple
    cluster: Triple = (1, 1, 1)
    shared_bytes: int = 0


@dataclass(frozen=True)
class LibraryCall:
    """One call of a library function, see `device_program.LibraryNode`."""

    function: str
    version: str
    call: Mapping[str, object]
    operands: tuple[Address, ...]


Emit = Callable[[Launch], Sequence[KernelLaunch | LibraryCall]]
"""The launches of an instruction, in order; each waits for the one before. A pure function of the kernel record."""


def launch_in(
    shape: Shape, code: KernelCode | ForeignCode, arguments: tuple[Address | TensorMap | Table | Scalar, ...]
) -> KernelLaunch:
    """The launch of `code` in a shape that a record states."""
    return KernelLaunch(code, arguments, shape.grid, shape.block, shape.cluster, shape.shared_bytes)


def lie_alike(one: BufferRef, other: BufferRef) -> bool:
    """Whether each element of two buffers of one shape is the same element of memory."""
    return (one.base, one.offset, one.strides) == (other.base, other.offset, other.strides)


def address_of(ref: BufferRef) -> Address:
    """The address of an operand."""
    return Address(ref.base, ref.offset)
