"""Products of operands of 8 bits on tensor cores: which types, when a kernel may run one, and how its operands lie.

Instructions of tensor cores read both operands along K, and no load from shared memory transposes bytes: a weight that
lies as [K, N] is packed ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import sums_type
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.pack.kernel import weight_layout
from aicf.backends.cuda.families.gemm.packing import PRODUCT_WEIGHT
from aicf.backends.cuda.families.gemm.problem import GemmProblem, operands_of, problem_of_work
from aicf.backends.cuda.target import FLOAT8

EXACT = "any: sums of integers are exact"
"""How the sums of one element are combined, for the record."""
COPY_BYTES = 4
"""The least that an asynchronous copy brings."""


@dataclass(frozen=True)
class ByteOperands:
    """Types of 8 bits that tensor cores multiply in any pair.

    Args:
        types: Their names.
        sums: Element type of the sums.
        name: What messages call them.
    """

    types: tuple[str, ...]
    sums: str
    name: str

    def reason(self, work: Workload) -> str | None:
        """Why tensor cores do not multiply the operands of a product or convolution as they are, None if they do."""
        a, b = work.operands[0].dtype, work.operands[1].dtype
        if a not in self.types or b not in self.types:
            return f"it multiplies {' and '.join(self.types)}, the operands are {a} and {b}"
        sums = sums_type(work.code, [result.dtype for result in work.results])
        if sums != self.sums:
            return f"tensor cores add products of {self.name} in {self.sums}, its sums are {sums}"
        return None


SHORT_SUMS = (
    "tensor cores keep fewer bits than f32 has of a sum of products of floats of 8 bits, "
    "and the policy wants strict rounding (rounding)"
)
"""Why a kernel does not multiply floats of 8 bits as they are. Multiplied as halves, their sums are those of f32."""

INTEGERS = ByteOperands(("i8", "u8"), "i32", "integers")
FLOATS = ByteOperands(FLOAT8, "f32", "floats of 8 bits")


def stored_types(problem: GemmProblem) -> str:
    """The types of A and B as the names of intrinsics have them."""
    return f"{problem.dtype}_{problem.b_dtype or problem.dtype}"


def math_of_bytes(problem: GemmProblem) -> dict[str, Attribute]:
    """What a record says of the types of A and B."""
    return {"math": StringAttr(stored_types(problem))}


def is_packed(work: Workload) -> bool:
    """Whether B is packed ahead: it is a parameter that stays, and lies along N."""
    right = [
        work.operands[index] for index in operands_of(work.kind, len(work.operands), len(work.results)).b
    ]
    if any(operand.layout is not None for operand in right):
        return True
    problem = problem_of_work(work)
    along_k = problem.b_strides[0] == 1 or problem.k == 1
    is_plain = work.attrs["transpose_b"] == BoolAttr.from_bool(False)
    return is_plain and not along_k and all(operand.is_weight for operand in right)


def problem_of_bytes(work: Workload) -> GemmProblem:
    """The product that a work asks for, with its weights as they lie when the kernel runs."""
    return problem_of_work(work, is_packed(work))


def along_k_reason(problem: GemmProblem) -> str | None:
    """Why tensor cores cannot read both operands along K, None if they can."""
    for name, step, other, way_out in (
        ("A", problem.a_strides[1], "M", "transpose it first"),
        ("B", problem.b_strides[0], "N", "give it as [N, K] with transpose_b, or as a parameter"),
    ):
        if step != 1 and problem.k > 1:
            return f"operands of 8 bits are multiplied along K, {name} lies along {other}: {way_out}"
    return None


def copies_reason(problem: GemmProblem) -> str | None:
    """Why lines of A or B cannot be copied asynchronously, None if they can."""
    for name, stride, batch, alignment in (
        ("A", problem.a_strides[0], problem.a_batch, problem.a_alignment),
        ("B", problem.b_strides[1], problem.b_batch, problem.b_alignment),
    ):
        if any(step % COPY_BYTES for step in (stride, *batch, alignment)):
            steps = [stride, *batch]
            return f"lines of 8-bit operands begin at multiples of {COPY_BYTES} bytes, {name} has {steps} between them"
    return None


def layout_entries(work: Workload) -> dict[str, Attribute]:
    """The entry `layouts` of a record whose kernel wants B packed; none where it lies as it should."""
    if not is_packed(work):
        return {}
    right = operands_of(work.kind, len(work.operands), len(work.results)).b
    layouts = [
        weight_layout(operand.shape, operand.dtype, PRODUCT_WEIGHT) if index in right else UnitAttr()
        for index, operand in enumerate(work.operands)
    ]
    return {"layouts": ArrayAttr(layouts)}
