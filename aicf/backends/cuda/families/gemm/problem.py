"""Reads a matrix product from its operands: sizes, strides, and where its epilogue reads and writes. Plain data.

Shared by the descriptors (which see a `Workload`) and the code generators (which see a `Launch`) of the GEMM families.
Batch dims that only continue the rows of A (a shared B) are taken into the rows, so that ``[batch, seq, features]``
times a weight is one matrix; the epilogue still sees every dim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import cast

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute
from xdsl.ir.affine import AffineMap

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common import loop_nest
from aicf.backends.common.loop_nest import is_linear, sums_type
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.gemm.packing import k_innermost
from aicf.backends.cuda.families.records import is_never_written
from aicf.backends.cuda.target import ELEMENT_BYTES, FLOAT8, SHORT_INTEGERS
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.kinds import EPILOGUES
from aicf.errors import PlanError

KINDS = frozenset({"gemm", *EPILOGUES, "gemm_gated", "gemm_multi"})
"""Opcodes that are one or more plain products with an epilogue."""

BASE_ALIGNMENT = 256
"""Bytes to which the start of every buffer is aligned."""

FEW_ROWS, FEW_ROWS_SHARE = 16, 0.6
"""Most rows of products that read little but weights, and what kernels of tiles reach of the memory throughput: too
little is under way at a time. By warpgroup products [1, 8192] x [8192, 2048] of bf16 took 19 us on an H100; those of
warps are taken to be no faster."""


@dataclass(frozen=True)
class Strided:
    """An operand in memory.

    Args:
        shape, strides: Sizes, and elements between neighbours.
        dtype: Element type name.
        alignment: Bytes to which its first element is aligned, at most 16.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    alignment: int


def strided(operand: OperandInfo | BufferRef) -> Strided:
    """The operand of a work or of a launch."""
    scale = ELEMENT_BYTES.get(operand.dtype, 1) if isinstance(operand, OperandInfo) else 1
    return Strided(operand.shape, operand.strides, operand.dtype, gcd(operand.offset * scale, 16))


@dataclass(frozen=True)
class Access:
    """Element ``offset + sum(strides[d] * i[d])`` of an operand, over the dims (batch..., row, column) of the product.

    `alignment` is that of the operand's first element, in bytes.
    """

    dtype: str
    offset: int
    strides: tuple[int, ...]
    alignment: int

    def vector_bytes(self, elements: int) -> int:
        """Bytes of `elements` neighbouring columns if they may be moved at once from any column that is a multiple of
        `elements`, else 0."""
        size = ELEMENT_BYTES[self.dtype]
        width = size * elements
        if self.strides[-1] != 1 or width not in (4, 8, 16):
            return 0
        starts = (self.offset, *self.strides[:-1])
        return (
            width if all(start * size % width == 0 for start in starts) and self.alignment % width == 0 else 0
        )


@dataclass(frozen=True)
class GemmProblem:
    """One or more equal-shaped products of one A, without the epilogue.

    Args:
        dtype: Of A, and of B unless `b_dtype` says another one.
        m, n, k: Sizes; rows include collapsed batch dims.
        a_strides: Elements between neighbours along (m, k).
        b_strides: Along (k, n).
        batch: Sizes of the batch dims that are left.
        a_batch, b_batch: Their strides; 0 where shared.
        row_dims: Sizes of the dims that make up the rows, outermost first; their product is `m`.
        factors: B operands that one block multiplies: 2 for a gated product, else 1.
        products: Independent products, one B, extras and result each.
        a_alignment, b_alignment: Bytes to which the first elements are aligned (the least of several B).
        b_dtype: Of B, if it is another one: of 8 bits, as that of A.
        widens: Whether the sums have a wider type: i32 of short integers, which else wrap around in the type of the
            operands, and f32 of floats of 8 bits.
    """

    dtype: str
    m: int
    n: int
    k: int
    a_strides: tuple[int, int]
    b_strides: tuple[int, int]
    batch: tuple[int, ...]
    a_batch: tuple[int, ...]
    b_batch: tuple[int, ...]
    row_dims: tuple[int, ...]
    factors: int
    products: int
    a_alignment: int
    b_alignment: int
    b_dtype: str | None = None
    widens: bool = False

    @property
    def element_bytes(self) -> int:
        """Of an element of A and B."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def sums(self) -> str:
        """Element type of the sums in tensor cores."""
        return "i32" if self.widens and self.dtype in SHORT_INTEGERS else "f32"

    @property
    def is_exact(self) -> bool:
        """Whether tensor cores make sums that are the same in any order."""
        return self.sums == "i32"

    @property
    def batches(self) -> int:
        """Matrices of one product."""
        return prod(self.batch)

    @property
    def flops(self) -> float:
        """Of all products."""
        return 2.0 * self.m * self.n * self.k * self.batches * self.factors * self.products

    @property
    def epilogue_dims(self) -> tuple[int, ...]:
        """Sizes of the dims that the epilogue sees: batch, rows, columns."""
        return (*self.batch, *self.row_dims, self.n)


@dataclass(frozen=True)
class GemmOperands:
    """Which operand is what, by number among the instruction's `ins` and `outs`.

    Args:
        b: B operands, products outermost.
        extras: Operands of the epilogue after the accumulators, one tuple per product.
        outputs: Results, one tuple per product.
    """

    b: tuple[int, ...]
    extras: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


def operands_of(kind: str, ins: int, outs: int) -> GemmOperands:
    """The roles of the operands of an instruction with `ins` operands and `outs` results."""
    if kind == "gemm_multi":
        extras = (ins - 1 - outs) // outs
        firsts = [1 + outs + product * extras for product in range(outs)]
        return GemmOperands(
            tuple(range(1, 1 + outs)),
            tuple(tuple(range(first, first + extras)) for first in firsts),
            tuple((product,) for product in range(outs)),
        )
    last_b = 2 if kind == "gemm_gated" else 1
    return GemmOperands(tuple(range(1, last_b + 1)), (tuple(range(last_b + 1, ins)),), (tuple(range(outs)),))


def early_b(work: Workload) -> tuple[int, ...]:
    """The B operands if nothing writes any of them while the program runs, else none: one wait serves all copies."""
    right = operands_of(work.kind, len(work.operands), len(work.results)).b
    return right if all(is_never_written(work.operands[index]) for index in right) else ()


def problem_of_work(work: Workload, packed: bool = False) -> GemmProblem:
    """The product that a work asks for, its B as packed ahead if `packed`. The work has passed `product_reason`."""
    sums = sums_type(work.code, [result.dtype for result in work.results])
    return _problem(work.kind, work.attrs, work.operands, len(work.results), sums, packed)


def problem_of_launch(launch: Launch) -> GemmProblem:
    """The product of an instruction, whose record holds the orientation."""
    sums = sums_type(launch.code, [ref.dtype for ref in launch.outs])
    packed = any(ref.layout is not None for ref in launch.ins)
    return _problem(launch.kind, launch.record, launch.ins, len(launch.outs), sums, packed)


def product_reason(work: Workload, widens: bool = False) -> str | None:
    """Why `work` is no product that a GEMM family can run, None if it is one. With `widens` the family has a reason of
    its own for types."""
    roles = operands_of(work.kind, len(work.operands), len(work.results))
    a, first, *others = (work.operands[index] for index in (0, *roles.b))
    if not widens and (reason := _types_reason(work, a, first)) is not None:
        return reason
    for other in others:
        if (other.shape, other.strides, other.dtype) != (first.shape, first.strides, first.dtype):
            return "the B operands differ in shape, strides or element type"
    if 0 in a.shape or 0 in first.shape:
        return "nothing to multiply"
    if work.code is None:
        return None if work.kind == "gemm" else "what follows the product has no generated code"
    if work.kind != "gemm_norm" and (work.code.reduce_sizes or len(work.code.phases) != 1):
        return "a reduction follows the product"
    if not all(is_linear(m) for m in (*work.code.in_maps, *work.code.out_maps)):
        return "an operand of the epilogue is not indexed by sums of the product's dims"
    for product in range(1, len(roles.outputs)):
        for mine, theirs in zip(_own(work, roles, 0), _own(work, roles, product), strict=True):
            if (mine.shape, mine.strides, mine.dtype) != (theirs.shape, theirs.strides, theirs.dtype):
                return "the products differ in the shapes, strides or element types of their operands"
    return None


def _types_reason(work: Workload, a: OperandInfo, first: OperandInfo) -> str | None:
    """Why a family whose A, B and sums of integers have one type does not run `work`, None if it may."""
    sums = sums_type(work.code, [result.dtype for result in work.results])
    if first.dtype in SHORT_INTEGERS and sums != first.dtype:
        return f"its sums are {sums}, wider than a product of {first.dtype}: cast the operands first"
    if a.dtype != first.dtype:
        return f"A is {a.dtype} and B is {first.dtype}: cast one of them first"
    return None


def several_reason(work: Workload) -> str | None:
    """Why a family whose products have one result each does not run `work`, None if it may."""
    roles = operands_of(work.kind, len(work.operands), len(work.results))
    return "a product has several results" if any(len(own) != 1 for own in roles.outputs) else None


def _own(work: Workload, roles: GemmOperands, product: int) -> list[OperandInfo]:
    extras = [work.operands[index] for index in roles.extras[product]]
    return extras + [work.results[index] for index in roles.outputs[product]]


def _flag(attrs: Mapping[str, Attribute], name: str) -> bool:
    value = attrs.get(name)
    if not isinstance(value, IntegerAttr):
        raise PlanError(f"a matrix product lacks the attribute '{name}'")
    return bool(cast("IntegerAttr", value).value.data)


def _problem(
    kind: str,
    attrs: Mapping[str, Attribute],
    ins: Sequence[OperandInfo] | Sequence[BufferRef],
    outs: int,
    sums: str,
    packed: bool,
) -> GemmProblem:
    roles = operands_of(kind, len(ins), outs)
    a, *bs = (strided(ins[index]) for index in (0, *roles.b))
    if packed:
        bs = [replace(each, strides=k_innermost(each.shape), alignment=16) for each in bs]
    b = bs[0]
    a_swap, b_swap = (-1 if _flag(attrs, name) else 1 for name in ("transpose_a", "transpose_b"))
    m, k = a.shape[-2:][::a_swap]
    n = b.shape[-2:][::b_swap][1]
    row, a_k = a.strides[-2:][::a_swap]
    b_k, b_n = b.strides[-2:][::b_swap]
    batch, a_batch = list(a.shape[:-2]), list(a.strides[:-2])
    b_batch = list(b.strides[:-2]) if len(b.shape) > 2 else [0] * len(batch)
    rows = [m]
    while batch and _continues_rows(batch[-1], m, row, a_batch[-1], b_batch[-1]):
        rows.insert(0, batch.pop())
        step = a_batch.pop()
        row = step if m == 1 else row
        b_batch.pop()
        m *= rows[0]
    return GemmProblem(
        a.dtype,
        m,
        n,
        k,
        (row, a_k),
        (b_k, b_n),
        tuple(batch),
        tuple(a_batch),
        tuple(b_batch),
        tuple(rows),
        2 if kind == "gemm_gated" else 1,
        len(roles.outputs),
        a.alignment,
        min(each.alignment for each in bs),
        None if a.dtype == b.dtype else b.dtype,
        a.dtype in (*SHORT_INTEGERS, *FLOAT8) and sums != a.dtype,
    )


def _continues_rows(size: int, m: int, row: int, a_step: int, b_step: int) -> bool:
    """Whether the innermost batch dim steps over exactly the rows of A, and B is shared."""
    return size == 1 or (b_step == 0 and (m == 1 or a_step == row * m))


# Epilogue operands


def access_of(map_: AffineMap, operand: Strided) -> Access:
    """The access of an operand that is indexed by `map_`, which is linear."""
    access = loop_nest.access_of(map_, operand.strides, operand.dtype)
    return Access(access.dtype, access.offset, access.strides, operand.alignment)


def epilogue_accesses(
    code: KernelOp | None, accumulators: int, extras: Sequence[Strided], outputs: Sequence[Strided]
) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
    """Accesses of one product's extras and of its outputs over (batch..., rows..., column)."""
    if code is None:
        return (), tuple(Access(out.dtype, 0, out.strides, out.alignment) for out in outputs)
    reads = zip(code.in_maps[accumulators:], extras, strict=True)
    writes = zip(code.out_maps, outputs, strict=True)
    return tuple(access_of(m, o) for m, o in reads), tuple(access_of(m, o) for m, o in writes)
