"""The kernels that multiply matrices over packed panels. No code generator is imported here."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, prod

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import LoopNest, one_row
from aicf.backends.common.record import Record, illegal, integer, read_part
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.blas.kernel import BlasKernel
from aicf.backends.cpu.families.gemm.pack.kernel import PACKED_B, pack_lanes, pack_record
from aicf.backends.cpu.families.gemm.pack.schedule import packed_bytes
from aicf.backends.cpu.families.gemm.problem import (
    KINDS,
    GemmWorkload,
    contiguous,
    gemm_reason,
    products_reason,
    read_work,
)
from aicf.backends.cpu.families.gemm.schedule import NOMINAL_GHZ, propose, traffic_cycles
from aicf.backends.cpu.families.gemm.spec import SPLITS, BSource, GemmProblem, GemmSpec
from aicf.backends.cpu.families.gemm.units import terms_by_type, terms_of_level, units_reason
from aicf.backends.cpu.families.legality import (
    level_reason,
    may_alias,
    threads_of,
    threads_reason,
    variant_of,
)
from aicf.backends.cpu.families.loops.schedule import LoopSpec, choose, cost_us, point_cycles
from aicf.backends.cpu.families.records import (
    GEMM_VERSION,
    gemm_record,
    gemm_spec,
    get_bool,
    loop_record,
    loop_spec,
    rounding_record,
)
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.dialects.kinds import EPILOGUES


@dataclass(frozen=True)
class GemmSchedule:
    """The schedule of the products, and of the row program before them, if there is one."""

    product: GemmSpec
    rows: LoopSpec | None = None


@dataclass(frozen=True)
class GemmKernel(CpuKernel[GemmSchedule]):
    """The packed microkernel for vectors of one width: products of one A, row program and epilogues."""

    library = "native"

    id: str
    level: str
    """The lowest level that has its instructions; the portable variant runs anywhere."""
    simplicity: int
    version: int = GEMM_VERSION
    kinds: frozenset[str] = frozenset(KINDS)

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := gemm_reason(work) or products_reason(work)) is not None:
            return reason
        return level_reason(target, self.level)

    def _variant(self, target: TargetAttr) -> CpuLevel:
        return variant_of(target, self.level)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self._best(work, target)[0]

    def unfused_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: the row program, then one product after the other, the last with the joint epilogue."""
        if work.kind in ("gemm", *EPILOGUES):
            return inf
        gemm = read_work(work)
        level, threads = self._variant(target), threads_of(target)
        rows = 0.0 if gemm.rows is None else _rows_us(gemm.rows, level, threads, work.batch_invariant)
        products = sum(self.product_us(part, target) for part in _products_apart(work, gemm))
        # The sums that wait for the last product are written and read again.
        waiting = (gemm.roles.accumulators - 1) * prod(work.results[0].shape)
        cycles = 2 * traffic_cycles(waiting * ELEMENT_BYTES[gemm.problem.dtype])
        return rows + products + cycles / NOMINAL_GHZ / 1000

    def product_us(self, work: Workload, target: TargetAttr) -> float:
        """A single product with the kernel that takes least."""
        own = self.cost_us(work, target)
        library = BlasKernel()
        fits_library = work.kind == "gemm" and library.legal(work, target) is None
        return min(own, library.cost_us(work, target)) if fits_library else own

    def schedule(self, work: Workload, target: TargetAttr) -> GemmSchedule:
        return self._scheduled(work, target, self._best(work, target)[1])

    def _scheduled(self, work: Workload, target: TargetAttr, spec: GemmSpec) -> GemmSchedule:
        gemm = read_work(work)
        if gemm.rows is None:
            return GemmSchedule(spec)
        level = self._variant(target)
        rows = choose(one_row(gemm.rows).nest, level, 1, work.batch_invariant, work.rounding)
        return GemmSchedule(spec, rows)

    def read(self, work: Workload, record: Record, target: TargetAttr) -> GemmSchedule:
        gemm = read_work(work)
        spec = gemm_spec(record, gemm.problem, self._variant(target).has_fma, any_units=True)
        if gemm.rows is None:
            return GemmSchedule(spec)
        return GemmSchedule(spec, loop_spec(read_part(record, "rows"), one_row(gemm.rows).nest))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: GemmSchedule) -> str | None:
        if schedule.rows is not None and schedule.rows.threads != 1:
            return f"in its 'rows', its {illegal('threads', schedule.rows.threads, 1)}"
        problem, features = schedule.product.problem, self._variant(target).features
        reason = units_reason(problem, problem.terms, features, work.rounding)
        return reason or threads_reason(schedule.product.threads, target)

    def threads_us(self, work: Workload, target: TargetAttr) -> dict[int, float]:
        best: dict[int, float] = {}
        for us, spec in self._ranked(work, target, 1):
            best.setdefault(spec.threads, us)
        return best

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[dict[str, Attribute]]:
        """See `Kernel`: tiles, splits of K, ways to fetch B and numbers of threads, as they are predicted."""
        found = (self._scheduled(work, target, spec) for _, spec in self._ranked(work, target, VARIANTS))
        return [self.record_of(work, target, schedule) for schedule in found]

    def record_of(self, work: Workload, target: TargetAttr, schedule: GemmSchedule) -> dict[str, Attribute]:
        gemm, spec = read_work(work), schedule.product
        entries = gemm_record(spec)
        entries |= {name: work.attrs[name] for name in _TRANSPOSES}
        entries["batch_in_rows"] = integer(gemm.batch_in_rows)
        entries["workspace_bytes"] = integer(spec.workspace_bytes)
        entries |= rounding_record(work.code, work.rounding)
        if gemm.rows is not None and schedule.rows is not None:
            entries["rows"] = DictionaryAttr(loop_record(schedule.rows, one_row(gemm.rows).nest))
        if spec.b_source == "packed":
            entries["layouts"] = _layouts(work, gemm, spec)
        if work.code is not None and gemm.rows is None and len(work.results) == 1:
            # Rows are read again by other threads and blocks, so nothing is written over what they are made of.
            sums = gemm.roles.accumulators
            extras = (work.operands[index].dtype for index in gemm.roles.extras[0])
            dtypes = [*(sums * [work.results[0].dtype]), *extras]
            entries["may_alias"] = may_alias(work.code, dtypes, [r.dtype for r in work.results], sums)
        return entries

    def _best(self, work: Workload, target: TargetAttr) -> tuple[float, GemmSpec]:
        return self._ranked(work, target, 1)[0]

    def _ranked(self, work: Workload, target: TargetAttr, count: int) -> Sequence[tuple[float, GemmSpec]]:
        """The best `count` specs of each way to fetch B and number of threads, the cheapest first."""
        gemm = read_work(work)
        problem, level = gemm.problem, self._variant(target)
        epilogue = 0.0 if work.code is None else point_cycles(work.code) * ELEMENT_BYTES[problem.dtype] / 4
        rows = 0.0
        if gemm.rows is not None:
            rows = (
                _rows_us(gemm.rows, level, 1, work.batch_invariant) * NOMINAL_GHZ * 1000 / max(1, problem.m)
            )
        packed = all(_can_prepare(work.operands[index], problem) for index in gemm.roles.rights)
        splits = FIXED_SPLITS if work.batch_invariant else SPLITS
        given = packed, threads_of(target), epilogue, rows, splits, count
        found = [entry for own in _in_units(problem, level, work) for entry in ranked(own, level, *given)]
        return sorted(found, key=lambda entry: entry[0])

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: one sum over K, whatever the tile; the row program keeps the order of its own loops."""
        gemm, level = read_work(work), self._variant(target)
        rounding = "rounded once" if level.has_fma else "rounded apart"
        order = f"ascending k, product and sum {rounding}"
        if any(own.is_float and own.terms > 1 for own in _in_units(gemm.problem, level, work)):
            order = "ascending pairs of k, each product added with a rounding of its own"
        rows = gemm.rows
        if rows is None:
            return order
        nest = one_row(rows).nest
        spec = choose(nest, self._variant(target), 1, fixed=True)
        return f"{order}; rows {spec.combination_order(nest)}"

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cpu.pack`."""
        return pack_record(layout, pack_lanes(layout, work.operands[operand].dtype, self._variant(target)))


VARIANTS = 12
"""Of each way to fetch B and number of threads, offered to be measured."""

FIXED_SPLITS = (1,)
"""Sums over K where their number may not depend on M: how many hide the latency best does."""

_TRANSPOSES = ("transpose_a", "transpose_b")


def _can_prepare(b: OperandInfo, problem: GemmProblem) -> bool:
    """Whether B is a weight that is packed once: one matrix that the program does not overwrite."""
    return b.is_weight and len(b.shape) == 2 and 0 not in b.strides and prod(b.shape) > 0


def _in_units(problem: GemmProblem, level: CpuLevel, work: Workload) -> Sequence[GemmProblem]:
    """The problem in the units that it may have; where results may not depend on the batch, in one kind of them."""
    by_type = terms_by_type(problem)
    legal = terms_of_level(problem, level.features, work.rounding)
    if work.batch_invariant:
        legal = legal[-1:]
    return [replace(problem, unit_terms=0 if terms == by_type else terms) for terms in legal]


def _rows_us(nest: LoopNest, level: CpuLevel, threads: int, fixed: bool) -> float:
    """Predicted microseconds of all rows: as an instruction of their own, or row by row if `threads` is 1."""
    if threads > 1:
        return cost_us(nest, choose(nest, level, threads, fixed))
    row = choose(one_row(nest).nest, level, 1, fixed)
    vector_dim = row.vector_dim + len(nest.parallel_dims) if row.vector_dim >= 0 else -1
    return cost_us(nest, LoopSpec(vector_dim, row.lanes, row.unroll))


def _products_apart(work: Workload, gemm: GemmWorkload) -> Iterator[Workload]:
    """The products as instructions of their own; the sums of a joined one go through memory to the last."""
    a = work.operands[0]
    if gemm.rows is not None:
        dtype = work.operands[gemm.roles.rights[0]].dtype
        a = OperandInfo("temp", a.shape, dtype, contiguous(a.shape))
    transposed = {name: work.attrs[name] for name in _TRANSPOSES}
    sums = [replace(work.results[0], role="temp")] * (gemm.roles.accumulators - 1)
    rights = [work.operands[index] for index in gemm.roles.rights]
    product = replace(work, kind="gemm", attrs=transposed, code=None, prologue=None)
    for b in rights[: len(sums)]:
        yield replace(product, operands=(a, b), results=work.results[:1])
    for b, extras, result in zip(rights[len(sums) :], gemm.roles.extras, work.results, strict=True):
        own = (a, b, *sums, *(work.operands[index] for index in extras))
        yield replace(product, kind="gemm_epilogue", operands=own, results=(result,), code=work.code)


@functools.lru_cache(maxsize=4096)
def ranked(
    problem: GemmProblem,
    level: CpuLevel,
    packed: bool,
    threads: int,
    epilogue: float,
    rows: float,
    splits: tuple[int, ...],
    count: int = 1,
) -> Sequence[tuple[float, GemmSpec]]:
    """Predicted microseconds with their specs, the cheapest first: the best `count` of each way to fetch B, on one
    thread and on all. A packed weight always has panels of two vectors, so that all buckets share one packing."""
    found: list[tuple[float, GemmSpec]] = []
    sources: tuple[BSource, ...] = ("packed",) if packed else ("workspace", "direct")
    elements = sorted({"", problem.b_element} - {problem.wide_element}) if packed else [""]
    for shares in sorted({1, threads}):
        for source, element in product(sources, elements):
            found += propose(
                problem,
                level,
                source,
                threads=shares,
                epilogue_cycles=epilogue,
                row_cycles=rows,
                vectors_of=(2,) if packed else range(1, 9),
                splits=splits,
                count=count,
                b_panel_type=element,
            )
    return sorted(found, key=lambda entry: entry[0])


def _layouts(work: Workload, gemm: GemmWorkload, spec: GemmSpec) -> Attribute:
    problem = spec.problem
    entries: dict[str, Attribute] = {
        "bytes": integer(packed_bytes(spec.b_unit, problem.depth + spec.start_rows, problem.n, spec.nr)),
        "k_dim": integer(1 if get_bool(work.attrs, "transpose_b") else 0),
        "nr": integer(spec.nr),
    }
    if spec.b_element != problem.b_element:
        entries["element"] = StringAttr(spec.b_element)
    if problem.terms > 1:
        entries["quads" if problem.quads else "pairs"] = integer(1)
    if problem.shift:
        entries["shift"] = integer(problem.shift)
    layout = LayoutAttr(PACKED_B, entries)
    rights = gemm.roles.rights
    return ArrayAttr([layout if index in rights else UnitAttr() for index in range(len(work.operands))])


KERNELS = (
    GemmKernel("cpu.gemm_avx512", "x86-64-v4", 4),
    GemmKernel("cpu.gemm_avx2", "x86-64-v3", 3),
    GemmKernel("cpu.gemm_portable", "generic", 2),
)
"""A kernel for each level of the processor."""
