"""The descriptor of `cuda.cublaslt`: matrix products that the library runs, with the epilogues that it has.

Its record is the whole call as `runtime.cublaslt` makes it, in the library's terms, with the algorithm as opaque bytes
(see `LibraryKernel`). Matrices are stored by columns there, so a row-major ``D = A B`` is the call ``D^T = B^T A^T`` on
the same memory, its `a` is our B and its `b` our A.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, DictionaryAttr, FloatAttr, StringAttr, f64
from xdsl.ir import Attribute

from aicf.backends.common.record import Record, integer, read_integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.gemm.problem import (
    Access,
    GemmProblem,
    epilogue_accesses,
    problem_of_work,
    product_reason,
    strided,
)
from aicf.backends.cuda.families.library.call import LibraryFunction
from aicf.backends.cuda.families.library.epilogue import library_epilogue
from aicf.backends.cuda.families.library.kernel_base import (
    Algorithm,
    LibraryKernel,
    device_entries,
    unmeasured,
)
from aicf.backends.cuda.families.library.strides import joined
from aicf.backends.cuda.families.records import integers
from aicf.backends.cuda.target import ELEMENT_BYTES, arch_named
from aicf.dialects.emit_types import TargetAttr

LIBRARY = "cublasLt"
DTYPES = ("f16", "bf16", "f32")
_ACTIVATIONS: Mapping[str, str] = {"none": "", "relu": "relu", "gelu_tanh": "gelu"}
"""Our names to the library's, whose GELU is the one with tanh."""
MOST_WORKSPACE_BYTES = 32 << 20
"""What an algorithm may ask for; NVIDIA's advice for Hopper."""

_ALIGNMENT = 16
"""Bytes; no algorithm makes use of more."""


@dataclass(frozen=True)
class Matrix:
    """A matrix as the library sees it: stored by columns, `ld` elements from one to the next.

    Args:
        batch_stride: Elements from one matrix of the batch to the next; 0 where shared.
    """

    rows: int
    cols: int
    ld: int
    batch_stride: int


@dataclass(frozen=True)
class Call:
    """A call of the library, without the algorithm.

    Args:
        transpose_a, transpose_b: Of the library's operands.
        a, b, c, d: Matrices; `c` is `d` where nothing is added.
        batch: Matrices of each operand.
        operands: Which operand of the instruction is what: `a`, `b`, `c` and `bias` among its `ins`.
        epilogue: `default`, `bias`, `relu`, `relu_bias`, `gelu` or `gelu_bias`.
        alignment: Bytes to which all matrices are aligned.
    """

    transpose_a: bool
    transpose_b: bool
    a: Matrix
    b: Matrix
    c: Matrix
    d: Matrix
    batch: int
    operands: Mapping[str, int]
    epilogue: str
    alignment: int


class _NoCall(Exception):
    """The library cannot be called for this; the message says why."""


def call_of(work: Workload) -> Call:
    """The call that does a work which has passed `product_reason`. Raises _NoCall."""
    problem = problem_of_work(work)
    extras = [strided(operand) for operand in work.operands[2:]]
    reads, writes = epilogue_accesses(work.code, 1, extras, [strided(work.results[0])])
    operands, epilogue = _epilogue(work, problem, reads)
    batch = _Batch(problem)
    batch_a, batch_b = batch.stride(problem.a_batch, "A"), batch.stride(problem.b_batch, "B")
    transpose_b, rows, cols, ld = _oriented(problem.m, problem.k, problem.a_strides, "A")
    b = Matrix(rows, cols, ld, batch_a)
    transpose_a, rows, cols, ld = _oriented(problem.k, problem.n, problem.b_strides, "B")
    a = Matrix(rows, cols, ld, batch_b)
    d = _whole(writes[0], problem, batch, "the result")
    c = _whole(reads[operands["c"] - 2], problem, batch, "the residual") if "c" in operands else d
    alignment = min(problem.a_alignment, problem.b_alignment, writes[0].alignment, _ALIGNMENT)
    for read in reads:
        alignment = gcd(alignment, read.offset * ELEMENT_BYTES[read.dtype], read.alignment)
    return Call(transpose_a, transpose_b, a, b, c, d, batch.count, operands, epilogue, alignment)


def _epilogue(work: Workload, problem: GemmProblem, reads: Sequence[Access]) -> tuple[dict[str, int], str]:
    """Which operand is what, and the library's name for the epilogue."""
    operands = {"a": 1, "b": 0}
    if work.code is None:
        return operands, "default"
    found = library_epilogue(work.code, tuple(_ACTIVATIONS))
    if found is None:
        raise _NoCall("the library has no such epilogue")
    for term in found.terms:
        what = "bias" if _is_row(reads[term - 1], problem) else "c"
        if what in operands:
            raise _NoCall(f"the library adds one {'bias' if what == 'bias' else 'matrix'}, here are two")
        operands[what] = 1 + term
    words = [
        _ACTIVATIONS[found.activation],
        "bias" if "bias" in operands else "",
    ]
    return operands, "_".join(filter(None, words)) or "default"


def _is_row(access: Access, problem: GemmProblem) -> bool:
    """Whether every row of the product sees the same contiguous row."""
    *others, column = zip(access.strides, problem.epilogue_dims, strict=True)
    return all(stride == 0 or size == 1 for stride, size in others) and (column[0] == 1 or column[1] == 1)


def _oriented(rows: int, cols: int, strides: tuple[int, int], what: str) -> tuple[bool, int, int, int]:
    """A row-major `rows` x `cols` as stored by columns: whether it is to be transposed, its rows, columns and `ld`."""
    row, col = strides
    if (col == 1 or cols == 1) and (row >= cols or rows == 1):
        return False, cols, rows, max(row if rows > 1 else 0, cols)
    if (row == 1 or rows == 1) and (col >= rows or cols == 1):
        return True, rows, cols, max(col if cols > 1 else 0, rows)
    raise _NoCall(f"the library needs contiguous rows or columns, the strides of {what} are {list(strides)}")


def _whole(access: Access, problem: GemmProblem, batch: _Batch, what: str) -> Matrix:
    """A matrix of the product's size that is read or written by rows."""
    count = len(problem.batch)
    rows = access.strides[count:-1]
    ld = joined(rows, problem.row_dims)
    if ld is None or (access.strides[-1] != 1 and problem.n > 1):
        raise _NoCall(f"the library needs contiguous rows, the strides of {what} are {list(access.strides)}")
    if problem.m > 1 and ld < problem.n:
        raise _NoCall(f"the rows of {what} overlap")
    return Matrix(problem.n, problem.m, max(ld, problem.n), batch.stride(access.strides[:count], what))


class _Batch:
    """The batch dims of a product as the one that the library has."""

    def __init__(self, problem: GemmProblem) -> None:
        self.sizes = problem.batch
        self.count = prod(problem.batch)

    def stride(self, strides: Sequence[int], what: str) -> int:
        """From one matrix of an operand to the next."""
        found = joined(strides, self.sizes)
        if found is None:
            raise _NoCall(
                f"the library steps over one batch dim, the batch strides of {what} are {list(strides)}"
            )
        return found


def _reason(work: Workload, target: TargetAttr) -> str | None:
    dtypes = {operand.dtype for operand in (*work.operands, *work.results)}
    if len(dtypes) != 1 or not dtypes <= {*DTYPES}:
        return f"the library multiplies {', '.join(DTYPES)}, all operands alike; here are {', '.join(sorted(dtypes))}"
    if len(work.results) != 1:
        return "the library gives one result"
    if work.rounding == "strict" and work.kind != "gemm" and dtypes <= {"f16", "bf16"}:
        return "the library rounds once after its epilogue, the policy wants every value rounded"
    if arch_named(target.arch.data).capability < 80:
        return "the algorithms are those of sm_80 and later"
    return product_reason(work)


# Records


_ARITHMETIC: Mapping[str, Attribute] = {
    "scale_type": StringAttr("f32"),
    "reduction": StringAttr("compute_type"),
    "alpha": FloatAttr(1.0, f64),
}
"""How the library computes. The parts of a sum that blocks share meet in the compute type: the library could do that
otherwise."""


def _matrix(matrix: Matrix) -> Attribute:
    return integers([matrix.rows, matrix.cols, matrix.ld, matrix.batch_stride])


_FUNCTION = LibraryFunction(
    "cublasLt.matmul",
    (
        "dtype",
        "compute_type",
        "scale_type",
        "reduction",
        "alpha",
        "beta",
        "bias_type",
        "transpose",
        "matrices",
        "batch",
        "epilogue",
        "alignment",
    ),
)


class CublasLtKernel(LibraryKernel):
    """Products with bias, residual and activation, by NVIDIA's library."""

    id = "cuda.cublaslt"
    library = LIBRARY
    simplicity = 9
    kinds = frozenset({"gemm", "gemm_epilogue"})
    function = _FUNCTION
    result = "d"
    device_fields = unmeasured(MOST_WORKSPACE_BYTES)

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := _reason(work, target)) is not None:
            return reason
        try:
            call_of(work)
        except _NoCall as error:
            return str(error)
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: a launch, then three quarters of the arithmetic peak, or the memory's speed."""
        arch = arch_named(target.arch.data)
        problem = problem_of_work(work)
        peak = arch.f32_tflops if problem.dtype == "f32" else arch.tensor_tflops
        if work.tf32:
            peak = arch.tensor_tflops / 2
        elements = sum(prod(operand.shape) for operand in (*work.operands, *work.results))
        bytes_us = elements * ELEMENT_BYTES[problem.dtype] / arch.bandwidth_gbs / 1e3
        return 3.0 + max(problem.flops / peak / 0.75e6, bytes_us)

    def record_of(
        self, work: Workload, target: TargetAttr, schedule: Algorithm | None
    ) -> dict[str, Attribute]:
        call, dtype = call_of(work), StringAttr(work.results[0].dtype)
        count = len(work.operands) + len(work.results)
        entries: dict[str, Attribute] = {
            "dtype": dtype,
            # Products of narrower types are added in f32.
            "compute_type": StringAttr("tf32" if work.tf32 else "f32"),
            **_ARITHMETIC,
            "beta": FloatAttr(1.0 if "c" in call.operands else 0.0, f64),
            "bias_type": dtype,
            "transpose": ArrayAttr(
                [BoolAttr.from_bool(call.transpose_a), BoolAttr.from_bool(call.transpose_b)]
            ),
            "matrices": DictionaryAttr(
                {"a": _matrix(call.a), "b": _matrix(call.b), "c": _matrix(call.c), "d": _matrix(call.d)}
            ),
            "batch": integer(call.batch),
            "operands": DictionaryAttr({name: integer(index) for name, index in call.operands.items()}),
            "epilogue": StringAttr(call.epilogue),
            "alignment": integer(call.alignment),
            "combination_order": StringAttr("the library's, fixed by version and algorithm"),
            "rounding": StringAttr("fused"),
            "fixed_addresses": integers(range(count)),
            **device_entries(schedule),
        }
        if "c" in call.operands and call.c == call.d:
            entries["may_alias"] = ArrayAttr([integers([0, call.operands["c"]])])
        return entries

    def tolerates(self, target: TargetAttr, key: str, record: Record, expected: Record) -> bool:
        """See `Kernel`: matrices may be aligned to less than they are."""
        if key == "alignment":
            most = read_integer(expected, key)
            return any(most % aligned == 0 and record[key] == integer(aligned) for aligned in range(1, most))
        return super().tolerates(target, key, record, expected)


KERNELS = (CublasLtKernel(),)
"""The kernel of this family."""
