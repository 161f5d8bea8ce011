"""What one captured program launches on a GPU: kernel and library nodes, their arguments and edges.

The form in which code travels from the builder to the loader and into an artifact. Plain data: the loader reads it
without Numba and without xDSL, and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

FORMAT = 4
"""Raised when the stored form changes."""


@dataclass(frozen=True)
class Address:
    """A kernel argument: `offset` bytes past the pointer in entry `base` of the pointer table (0 is the arena)."""

    base: int
    offset: int


@dataclass(frozen=True)
class Windows:
    """How a copy goes along the windows of a convolution: for each dimension of an image, innermost first.

    Args:
        lower: The first elements of the first windows, from the first element of the image.
        upper: The first elements of the last windows, from the last element of the image.
        steps: From one window to the next.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class TensorMap:
    """A kernel argument: the address of a 128-byte TMA descriptor in device memory, for a tensor in global memory.

    Args:
        base, offset: Where the tensor starts, as in `Address`; the address must be a multiple of 16.
        dtype: Element type name: `f16`, `bf16`, `f32`, `f64`, `i32` or `i64`; `tf32` is f32 that a copy rounds to TF32.
        sizes: Elements, innermost dimension first.
        strides: Bytes between neighbours of every dimension but the innermost; multiples of 16.
        box: Elements of one copy, innermost first; with `windows` channels and pixels.
        swizzle: Bytes of the shared-memory swizzle: 0, 32, 64 or 128.
        l2_promotion: Bytes that a miss brings into L2 at least: 0, 64, 128 or 256.
        interleave: Bytes of the slices that channels lie in: 0 (none), 16 or 32.
        out_of_bounds: What elements outside read as: `zeros` or `nan`.
        windows: For a tensor of channels, one to three dimensions and images, of which a copy takes an element of each
            window (im2col mode); None for boxes of neighbours.
    """

    base: int
    offset: int
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    l2_promotion: int
    interleave: int
    out_of_bounds: str
    windows: Windows | None = None


@dataclass(frozen=True)
class Table:
    """A kernel argument: the address of a table in device memory, of words of 8 bytes: for kernels with more operands
    than they have parameters for.

    Args:
        numbers: The first words; what a kernel changes of them it leaves as it found it.
        addresses: The words after them.
    """

    numbers: tuple[int, ...]
    addresses: tuple[Address, ...]

    @property
    def nbytes(self) -> int:
        """Size of the table."""
        return 8 * (len(self.numbers) + len(self.addresses))


@dataclass(frozen=True)
class Scalar:
    """A kernel argument passed by value: `i32`, `i64`, `f32` or `f64`."""

    type: str
    value: int | float


@dataclass(frozen=True)
class Dependency:
    """An edge from node number `node`; `programmatic` lets this node start early and wait inside the kernel."""

    node: int
    programmatic: bool = False


@dataclass(frozen=True)
class KernelNode:
    """One launch of an own kernel.

    Args:
        name: The instruction it belongs to.
        symbol: Entry of its code.
        grid, block, cluster: Sizes in blocks, threads and blocks.
        shared_bytes: Dynamic shared memory.
        addresses, maps, scalars: Arguments by kind; `order` tells the sequence.
        order: One letter an argument: `a` address, `m` tensor map, `s` scalar, `t` table.
        after: Edges.
        tables: Arguments of that kind.
    """

    name: str
    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    addresses: tuple[Address, ...]
    maps: tuple[TensorMap, ...]
    scalars: tuple[Scalar, ...]
    order: str
    after: tuple[Dependency, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class LibraryNode:
    """One library call, captured as it is; its edges are full ones.

    Args:
        name: The instruction it belongs to.
        function: `cublasLt.matmul`; before the dot stands the library.
        version: The library version that the record was measured with.
        call: Everything the call needs, as plain values.
        addresses: Operand addresses in the order that `call` names them.
        after: Edges.
    """

    name: str
    function: str
    version: str
    call: dict[str, object]
    addresses: tuple[Address, ...]
    after: tuple[Dependency, ...] = ()


@dataclass(frozen=True)
class DeviceProgram:
    """One program in launch order; `kernels` and `libraries` hold the nodes, `order` says which comes when.

    Args:
        entry: Symbol of the program.
        table_size: Pointers in its table.
        kernels, libraries: Nodes of each sort, in launch order; an instruction may have several.
        order: One letter a node: `k` the next kernel, `l` the next library call.
    """

    entry: str
    table_size: int
    kernels: tuple[KernelNode, ...]
    libraries: tuple[LibraryNode, ...]
    order: str

    def nodes(self) -> list[KernelNode | LibraryNode]:
        """All nodes in launch order; `Dependency.node` counts in this list."""
        kernels, libraries = iter(self.kernels), iter(self.libraries)
        return [next(kernels) if letter == "k" else next(libraries) for letter in self.order]


@dataclass(frozen=True)
class StoredCubin:
    """Where one cubin lies in the code section, and what it needs.

    Args:
        symbol: Its entry.
        start, size: Bytes in the section after the header.
        sha256: Of those bytes.
        registers, stack_bytes, shared_bytes: As the compiler reported them.
    """

    symbol: str
    start: int
    size: int
    sha256: str
    registers: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class DeviceModule:
    """All programs of a module and their kernels.

    Args:
        format: `FORMAT`.
        arch: `sm_90a`.
        programs: One per emit program.
        cubins: One per distinct kernel.
        toolchain: Versions of what compiled it, by package.
        minimum_driver: CUDA version of the driver, as 13000 for 13.0.
    """

    format: int
    arch: str
    programs: tuple[DeviceProgram, ...]
    cubins: tuple[StoredCubin, ...]
    toolchain: dict[str, object]
    minimum_driver: int
