"""Descriptors of the CPU kernels: what each can run, what it would cost, and the record of its decisions.

No code generator is imported here. `build.py` turns records into code.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation

from aicf.backends.base import KernelDescriptor, OperandInfo, Work
from aicf.backends.cpu.blas import LIBRARY
from aicf.backends.cpu.gemm_spec import NOMINAL_GHZ, GemmProblem, GemmSpec, propose
from aicf.backends.cpu.gemm_work import GemmWork, epilogue_accesses, read_gemm
from aicf.backends.cpu.loop_spec import (
    LoopSpec,
    choose,
    cost_us,
    point_cycles,
)
from aicf.backends.cpu.pack_spec import packed_bytes
from aicf.backends.cpu.records import gemm_record, get_bool, get_int, integer, loop_record, pairs
from aicf.backends.cpu.target import ELEMENT_BYTES, LEVELS, CpuLevel, level_named
from aicf.backends.moves import Move, moves
from aicf.backends.nests import LoopNest, Strided, is_linear, nest_of, value_types
from aicf.dialects.emit_kernels import (
    CastOp,
    DivIntOp,
    KernelOp,
    ReduceOp,
    SigmoidOp,
    StoreOp,
    YieldOp,
)
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.errors import PlanError

PACKED_B = "packed_b"
"""Layout of a weight for the GEMM microkernel: ``[ceil(n / nr)][k][nr]``, zero padded."""

VERSION = 1
DETERMINISM = "bitwise"

SCALAR_OPS: frozenset[type[Operation]] = frozenset(
    {
        arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.DivfOp, arith.NegfOp, arith.MaximumfOp, arith.MinimumfOp,
        arith.AddiOp, arith.SubiOp, arith.MuliOp, arith.AndIOp, arith.OrIOp, arith.XOrIOp,
        arith.MaxSIOp, arith.MinSIOp, arith.MaxUIOp, arith.MinUIOp, arith.CmpfOp, arith.CmpiOp, arith.SelectOp,
        arith.ConstantOp, arith.ExtFOp, arith.TruncFOp, arith.SIToFPOp, arith.ExtSIOp, arith.TruncIOp,
        math.ExpOp, math.LogOp, math.SqrtOp, math.RsqrtOp, math.TanhOp, math.ErfOp, SigmoidOp, DivIntOp, CastOp,
    }
)  # fmt: skip
"""Scalar ops with code on this backend; a test compares them with the code generator's table."""

_STRUCTURE = (YieldOp, StoreOp, ReduceOp)


def _strided(operand: OperandInfo) -> Strided:
    return Strided(operand.shape, operand.strides, operand.dtype)


def _unsupported_dtype(work: Work) -> str | None:
    for operand in (*work.operands, *work.results):
        if operand.dtype not in ELEMENT_BYTES:
            return _dtype_reason(operand.dtype)
    return None


def _dtype_reason(dtype: str) -> str:
    return f"element type {dtype} is not supported on cpu, only {', '.join(ELEMENT_BYTES)}: cast to f32 first"


def _code_reason(code: KernelOp) -> str | None:
    """Why the scalar program has no code here."""
    if not all(is_linear(m) for m in (*code.in_maps, *code.out_maps)):
        return "an operand is not indexed by sums of the loop dims"
    for phase in code.phases:
        for op in phase.body.block.ops:
            if type(op) not in SCALAR_OPS and not isinstance(op, _STRUCTURE):
                return f"scalar op {op.name} has no code on cpu"
    unknown = value_types(code) - set(ELEMENT_BYTES)
    return _dtype_reason(sorted(unknown)[0]) if unknown else None


def threads_of(target: TargetAttr) -> int:
    """Threads that the target gives a program."""
    value = target.facts.data.get("threads")
    return value.value.data if isinstance(value, IntegerAttr) else 1


def _level(target: TargetAttr) -> CpuLevel:
    return level_named(target.arch.data)


def _may_alias(
    code: KernelOp, dtypes_in: Sequence[str], dtypes_out: Sequence[str], first: int = 0
) -> Attribute:
    """Outputs that may lie on an input: same element at every point, stored in the last phase (nothing reads later).

    `first` operands of the instruction come before those of the code (a GEMM's A and B in place of the accumulator).
    """
    last = code.phases[-1]
    found: list[tuple[int, int]] = []
    for op in last.body.block.ops:
        if not isinstance(op, StoreOp):
            continue
        output = op.output.value.data
        for place, map_ in enumerate(code.in_maps):
            same_type = dtypes_in[place] == dtypes_out[output]
            if same_type and map_ == code.out_maps[output] and (place > 0 or first == 0):
                found.append((output, place + first))
    return pairs(sorted(found))


class _PlainOperands:
    """A kernel that asks for no prepared layout."""

    id: str

    def prepare(self, work: Work, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `KernelDescriptor`; never reached by a record of this kernel."""
        raise PlanError(f"kernel '{self.id}' reads plain memory: its record must not ask for a layout")


# GEMM


@dataclass(frozen=True)
class GemmKernel:
    """The packed microkernel with fused epilogue, for vectors of one width."""

    id: str
    level: str
    """The lowest level that has its instructions; the portable variant runs anywhere."""
    simplicity: int
    version: int = VERSION
    determinism: str = DETERMINISM
    kinds: frozenset[str] = frozenset({"gemm", "gemm_epilogue"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        if (reason := _gemm_reason(work)) is not None:
            return reason
        return self._level_reason(_level(target))

    def _level_reason(self, level: CpuLevel) -> str | None:
        own = LEVELS[self.level]
        if own.vector_bytes > level.vector_bytes or (own.has_fma and not level.has_fma):
            return f"needs cpu level {self.level} ({8 * own.vector_bytes}-bit vectors), the target is {level.name}"
        return None

    def _variant(self, target: TargetAttr) -> CpuLevel:
        """The level whose vector width and registers the code uses; FMA is the target's."""
        return _narrowed(_level(target), LEVELS[self.level])

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`."""
        return self._best(work, target)[0]

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        _, spec = self._best(work, target)
        gemm = read_work(work)
        entries = gemm_record(spec)
        entries["transpose_a"], entries["transpose_b"] = work.attrs["transpose_a"], work.attrs["transpose_b"]
        entries["batch_in_rows"] = integer(gemm.batch_in_rows)
        entries["workspace_bytes"] = integer(spec.workspace_bytes)
        if spec.b_source == "packed":
            entries["layouts"] = _layouts(work, spec)
        if work.code is not None:
            kinds_in = [work.results[0].dtype, *(operand.dtype for operand in work.operands[2:])]
            entries["may_alias"] = _may_alias(work.code, kinds_in, [r.dtype for r in work.results], first=1)
        return entries

    def _best(self, work: Work, target: TargetAttr) -> tuple[float, GemmSpec]:
        problem = read_work(work).problem
        epilogue = 0.0 if work.code is None else point_cycles(work.code) * ELEMENT_BYTES[problem.dtype] / 4
        packed = _can_prepare(work.operands[1], problem)
        return _cheapest(problem, self._variant(target), packed, threads_of(target), epilogue)

    def prepare(self, work: Work, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `KernelDescriptor`: the record of `cpu.pack`."""
        level = self._variant(target)
        return KernelAttr(
            PackKernel.id,
            {
                "version": integer(VERSION),
                "determinism": StringAttr(DETERMINISM),
                "lanes": integer(level.lanes(work.operands[operand].dtype)),
                "threads": integer(1),
                "nr": layout.parameters_.data["nr"],
                "k_dim": layout.parameters_.data["k_dim"],
            },
        )


def _narrowed(level: CpuLevel, variant: CpuLevel) -> CpuLevel:
    if level.vector_bytes <= variant.vector_bytes:
        return level
    return CpuLevel(
        level.name,
        level.architecture,
        level.llvm_cpu,
        level.llvm_features,
        variant.vector_bytes,
        variant.registers,
        level.has_fma,
        level.required_features,
    )


def _gemm_reason(work: Work) -> str | None:
    if (reason := _unsupported_dtype(work)) is not None:
        return reason
    if work.operands[0].dtype == "i1":
        return "a matrix product of i1 has no meaning on cpu: cast to a number first"
    if work.kind == "gemm":
        return None if len(work.results) == 1 else "a plain product has one result"
    if work.code is None:
        return "what follows the product has no generated code"
    if work.code.reduce_sizes or len(work.code.phases) != 1:
        return "a reduction follows the product"
    return _code_reason(work.code)


def read_work(work: Work) -> GemmWork:
    """The matrix product of a work."""
    operands = [_strided(operand) for operand in work.operands]
    accesses = epilogue_accesses(work.code, operands[2:], [_strided(result) for result in work.results])
    transposed = (get_bool(work.attrs, "transpose_a"), get_bool(work.attrs, "transpose_b"))
    return read_gemm(operands[0], operands[1], transposed, accesses)


def _can_prepare(b: OperandInfo, problem: GemmProblem) -> bool:
    """Whether B is a weight that is packed once: one matrix, a parameter that the program does not overwrite."""
    return (
        b.role == "param" and not b.updated and len(b.shape) == 2 and 0 not in b.strides and prod(b.shape) > 0
    )


@functools.lru_cache(maxsize=4096)
def _cheapest(
    problem: GemmProblem, level: CpuLevel, packed: bool, threads: int, epilogue: float
) -> tuple[float, GemmSpec]:
    """The best spec. A packed weight always has panels of two vectors, so that all buckets share one packing."""
    found: list[tuple[float, GemmSpec]] = []
    for count in sorted({1, threads}):
        if packed:
            found += propose(
                problem, level, "packed", threads=count, epilogue_cycles=epilogue, vectors_of=(2,), count=1
            )
            continue
        found += propose(problem, level, "workspace", threads=count, epilogue_cycles=epilogue, count=1)
        found += propose(problem, level, "direct", threads=count, epilogue_cycles=epilogue, count=1)
    return min(found, key=lambda entry: entry[0])


def _layouts(work: Work, spec: GemmSpec) -> Attribute:
    problem = spec.problem
    layout = LayoutAttr(
        PACKED_B,
        {
            "bytes": integer(packed_bytes(problem.dtype, problem.k, problem.n, spec.nr)),
            "k_dim": integer(1 if get_bool(work.attrs, "transpose_b") else 0),
            "nr": integer(spec.nr),
        },
    )
    return ArrayAttr([layout if place == 1 else UnitAttr() for place in range(len(work.operands))])


@dataclass(frozen=True)
class BlasKernel(_PlainOperands):
    """The GEMM of scipy-openblas64, called through the pointer table."""

    id: str = "cpu.gemm_blas"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 5
    kinds: frozenset[str] = frozenset({"gemm"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        if (reason := _gemm_reason(work)) is not None:
            return reason
        if work.operands[0].dtype not in ("f32", "f64"):
            return f"{LIBRARY} multiplies f32 and f64 only"
        if library_version(target) is None:
            return f"the target lists no {LIBRARY}: pip install scipy-openblas64 and resolve the target on that machine"
        gemm = read_work(work)
        problem, output = gemm.problem, gemm.accesses[0]
        if min(problem.m, problem.n, problem.k) == 0:
            return "nothing to multiply"
        for what, strides in (("A", problem.a_strides), ("B", problem.b_strides), ("C", output.strides[-2:])):
            if 1 not in strides or min(strides) < 1 or (what == "C" and strides[1] != 1):
                return (
                    f"{LIBRARY} needs contiguous rows or columns, the strides of {what} are {list(strides)}"
                )
        return None

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`: call overhead, packing of both operands, 80 % of the arithmetic peak."""
        problem = read_work(work).problem
        level = _level(target)
        peak = 2.0 * level.lanes(problem.dtype) * (1.0 if level.has_fma else 0.5)
        packing = (problem.m * problem.k + problem.k * problem.n) * 0.25
        cycles = problem.m * problem.n * problem.k / peak / 0.8 + packing + 1200
        return cycles * prod(problem.batch) / NOMINAL_GHZ / 1000

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        version = library_version(target)
        assert version is not None
        return {
            "transpose_a": work.attrs["transpose_a"],
            "transpose_b": work.attrs["transpose_b"],
            "batch_in_rows": integer(read_work(work).batch_in_rows),
            "threads": integer(1),
            "library": StringAttr(version),
            "combination_order": StringAttr("the library's, fixed by version and core"),
        }


def library_version(target: TargetAttr) -> str | None:
    """Version and core of scipy-openblas64 as the target lists it."""
    libraries = target.facts.data.get("libraries")
    version = libraries.data.get(LIBRARY) if isinstance(libraries, DictionaryAttr) else None
    return version.data if isinstance(version, StringAttr) else None


# Loops


@dataclass(frozen=True)
class GeneratedKernel(_PlainOperands):
    """Loops from the generated scalar program: pointwise chains, and reductions with what is around them."""

    id: str = "cpu.generated"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 1
    kinds: frozenset[str] = frozenset(
        {"generated", "add", "relu", "bias_add", "reduce_sum", "sgd_step", "layernorm_fwd", "softmax"}
    )

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        if (reason := _unsupported_dtype(work)) is not None:
            return reason
        if work.code is None:
            return "it is not one set of loops over all elements"
        return _code_reason(work.code)

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`."""
        nest = work_nest(work)
        return cost_us(nest, choose(nest, _level(target), threads_of(target)))

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        assert work.code is not None
        nest = work_nest(work)
        spec = choose(nest, _level(target), threads_of(target))
        kinds_in = [operand.dtype for operand in work.operands]
        aliases = _may_alias(work.code, kinds_in, [result.dtype for result in work.results])
        return {**loop_record(spec, nest), "may_alias": aliases}


def work_nest(work: Work) -> LoopNest:
    """The loops of a work with generated code."""
    assert work.code is not None
    operands = (*work.operands, *work.results)
    return nest_of(work.code, [o.strides for o in operands], [o.dtype for o in operands])


@dataclass(frozen=True)
class MoveKernel(_PlainOperands):
    """Moves elements: a strided copy, or operands side by side."""

    id: str
    kinds: frozenset[str]
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 0

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        if (reason := _unsupported_dtype(work)) is not None:
            return reason
        if len(work.results) != 1 or self._moves(work) is None:
            return "it does more than move elements to one result"
        return None

    def _moves(self, work: Work) -> list[Move] | None:
        axis = get_int(work.attrs, "axis") if "axis" in work.attrs else 0
        return moves(
            work.body, [_strided(operand) for operand in work.operands], _strided(work.results[0]), axis
        )

    def _decide(self, work: Work, target: TargetAttr) -> list[tuple[LoopNest, LoopSpec]]:
        found = self._moves(work)
        assert found is not None
        return [(move.nest, choose(move.nest, _level(target), threads_of(target))) for move in found]

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`."""
        return sum(cost_us(nest, spec) for nest, spec in self._decide(work, target))

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        decided = self._decide(work, target)
        parts = [DictionaryAttr(loop_record(spec, nest)) for nest, spec in decided]
        return {
            "axis": work.attrs.get("axis", integer(0)),
            "threads": integer(max(spec.threads for _, spec in decided)),
            "parts": ArrayAttr(parts),
        }


@dataclass(frozen=True)
class PackKernel(_PlainOperands):
    """Packs a weight for the GEMM microkernel; only ever asked for through `GemmKernel.prepare`."""

    id: str = "cpu.pack"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 0
    kinds: frozenset[str] = frozenset({"pack"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        return "weights are packed where a GEMM asks for it, in @prepare"

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`: two bytes a cycle; run once."""
        operand = work.operands[0]
        return prod(operand.shape) * ELEMENT_BYTES[operand.dtype] / 2 / NOMINAL_GHZ / 1000

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """Its record comes from `GemmKernel.prepare`, which knows the panel."""
        raise PlanError(f"kernel '{self.id}' is recorded by the kernel that asks for the layout")


KERNELS: tuple[KernelDescriptor, ...] = (
    GemmKernel("cpu.gemm_avx512", "x86-64-v4", 4),
    GemmKernel("cpu.gemm_avx2", "x86-64-v3", 3),
    GemmKernel("cpu.gemm_portable", "generic", 2),
    BlasKernel(),
    GeneratedKernel(),
    MoveKernel("cpu.copy", frozenset({"copy"})),
    MoveKernel("cpu.concat", frozenset({"concat"})),
    PackKernel(),
)
"""All kernels of the backend, in the order in which they are considered."""
