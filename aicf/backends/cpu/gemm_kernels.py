"""Descriptors of the CPU kernels that multiply matrices, and of the one that packs weights for them.

No code generator is imported here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, prod

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.base import OperandInfo, Work
from aicf.backends.common.kernel import Kernel
from aicf.backends.common.record import OneOf, Record, Whole, illegal, integer, read_entry, read_part
from aicf.backends.cpu.blas import LIBRARY
from aicf.backends.cpu.gemm_spec import (
    NOMINAL_GHZ,
    SPLITS,
    BSource,
    GemmProblem,
    GemmSpec,
    propose,
    traffic_cycles,
)
from aicf.backends.cpu.gemm_work import KINDS, GemmWork, contiguous, read_gemm
from aicf.backends.cpu.legality import (
    DETERMINISM,
    VERSION,
    code_reason,
    level_of,
    level_reason,
    may_alias,
    strided,
    threads_of,
    threads_reason,
    variant_of,
)
from aicf.backends.cpu.loop_spec import LoopSpec, choose, cost_us, point_cycles
from aicf.backends.cpu.pack_spec import packed_bytes
from aicf.backends.cpu.records import (
    GEMM_VERSION,
    gemm_record,
    gemm_spec,
    get_bool,
    get_int,
    get_text,
    loop_record,
    loop_spec,
    rounding_record,
)
from aicf.backends.cpu.target import ELEMENT_BYTES, SHORT_INTEGERS, CpuLevel
from aicf.backends.cpu.vectors import legal_lanes
from aicf.backends.nests import LoopNest, has_even_rows, one_row
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

PACKED_B = "packed_b"
"""Layout of a weight for the GEMM microkernel: ``[ceil(n / nr)][k][nr]``, zero padded; with `pairs` an element is two
terms of k that lie `pairs` apart in the weight."""


@dataclass(frozen=True)
class GemmSchedule:
    """How products are multiplied, and how the rows in front of them are made, if there are such."""

    product: GemmSpec
    rows: LoopSpec | None = None


@dataclass(frozen=True)
class GemmKernel(Kernel[GemmSchedule]):
    """The packed microkernel for vectors of one width: products of one A, with epilogues and a row program in front."""

    id: str
    level: str
    """The lowest level that has its instructions; the portable variant runs anywhere."""
    simplicity: int
    version: int = GEMM_VERSION
    determinism: str = DETERMINISM
    kinds: frozenset[str] = frozenset(KINDS)

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `Kernel`."""
        if (reason := _gemm_reason(work) or _several_reason(work)) is not None:
            return reason
        return level_reason(target, self.level)

    def _variant(self, target: TargetAttr) -> CpuLevel:
        return variant_of(target, self.level)

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `Kernel`."""
        return self._best(work, target)[0]

    def apart_us(self, work: Work, target: TargetAttr) -> float:
        """See `FusedKernel`: the row program, then one product after the other, the last with the joint epilogue."""
        if work.kind in ("gemm", "gemm_epilogue"):
            return inf
        gemm = read_work(work)
        level, threads = self._variant(target), threads_of(target)
        rows = 0.0 if gemm.rows is None else _rows_us(gemm.rows, level, threads, work.batch_invariant)
        products = sum(self.product_us(part, target) for part in _products_apart(work, gemm))
        # The sums that wait for the last product are written and read again.
        waiting = (gemm.places.accumulators - 1) * prod(work.results[0].shape)
        cycles = 2 * traffic_cycles(waiting * ELEMENT_BYTES[gemm.problem.dtype])
        return rows + products + cycles / NOMINAL_GHZ / 1000

    def product_us(self, work: Work, target: TargetAttr) -> float:
        """A single product with the kernel that takes least."""
        own = self.cost_us(work, target)
        library = BlasKernel()
        is_plain = work.kind == "gemm" and library.legal(work, target) is None
        return min(own, library.cost_us(work, target)) if is_plain else own

    def schedule(self, work: Work, target: TargetAttr) -> GemmSchedule:
        """See `Kernel`."""
        return self._scheduled(work, target, self._best(work, target)[1])

    def _scheduled(self, work: Work, target: TargetAttr, spec: GemmSpec) -> GemmSchedule:
        gemm = read_work(work)
        if gemm.rows is None:
            return GemmSchedule(spec)
        level = self._variant(target)
        rows = choose(one_row(gemm.rows).nest, level, 1, work.batch_invariant, work.rounding)
        return GemmSchedule(spec, rows)

    def read(self, work: Work, record: Record, target: TargetAttr) -> GemmSchedule:
        """See `Kernel`."""
        gemm = read_work(work)
        spec = gemm_spec(record, gemm.problem, self._variant(target).has_fma)
        if gemm.rows is None:
            return GemmSchedule(spec)
        return GemmSchedule(spec, loop_spec(read_part(record, "rows"), one_row(gemm.rows).nest))

    def schedule_reason(self, work: Work, target: TargetAttr, schedule: GemmSchedule) -> str | None:
        """See `Kernel`."""
        if schedule.rows is not None and schedule.rows.threads != 1:
            return f"in its 'rows', its {illegal('threads', schedule.rows.threads, 1)}"
        return threads_reason(schedule.product.threads, target)

    def threads_us(self, work: Work, target: TargetAttr) -> dict[int, float]:
        """See `SharingKernel`."""
        best: dict[int, float] = {}
        for us, spec in self._ranked(work, target, 1):
            best.setdefault(spec.threads, us)
        return best

    def candidates(self, work: Work, target: TargetAttr) -> Sequence[dict[str, Attribute]]:
        """See `TunableKernel`: tiles, splits of K, ways to fetch B and numbers of threads, as they are predicted."""
        found = (self._scheduled(work, target, spec) for _, spec in self._ranked(work, target, VARIANTS))
        return [self.record_of(work, target, schedule) for schedule in found]

    def record_of(self, work: Work, target: TargetAttr, schedule: GemmSchedule) -> dict[str, Attribute]:
        """See `Kernel`."""
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
            sums = gemm.places.accumulators
            extras = (work.operands[place].dtype for place in gemm.places.extras[0])
            dtypes = [*(sums * [work.results[0].dtype]), *extras]
            entries["may_alias"] = may_alias(work.code, dtypes, [r.dtype for r in work.results], sums)
        return entries

    def _best(self, work: Work, target: TargetAttr) -> tuple[float, GemmSpec]:
        return self._ranked(work, target, 1)[0]

    def _ranked(self, work: Work, target: TargetAttr, count: int) -> Sequence[tuple[float, GemmSpec]]:
        """The best `count` specs of each way to fetch B and number of threads, the cheapest first."""
        gemm = read_work(work)
        problem, level = gemm.problem, self._variant(target)
        epilogue = 0.0 if work.code is None else point_cycles(work.code) * ELEMENT_BYTES[problem.dtype] / 4
        rows = 0.0
        if gemm.rows is not None:
            rows = (
                _rows_us(gemm.rows, level, 1, work.batch_invariant) * NOMINAL_GHZ * 1000 / max(1, problem.m)
            )
        packed = all(_can_prepare(work.operands[place], problem) for place in gemm.places.rights)
        splits = FIXED_SPLITS if work.batch_invariant else SPLITS
        return ranked(problem, level, packed, threads_of(target), epilogue, rows, splits, count)

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """See `BatchInvariantKernel`: one sum over K, whatever the tile; rows in front as loops of their own do it."""
        rounding = "rounded once" if self._variant(target).has_fma else "rounded apart"
        order = f"ascending k, product and sum {rounding}"
        rows = read_work(work).rows
        if rows is None:
            return order
        nest = one_row(rows).nest
        spec = choose(nest, self._variant(target), 1, fixed=True)
        return f"{order}; rows {spec.combination_order(nest)}"

    def prepare(self, work: Work, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cpu.pack`."""
        return pack_record(layout, self._variant(target).lanes(work.operands[operand].dtype))


def pack_record(layout: LayoutAttr, lanes: int) -> KernelAttr:
    """The record of `cpu.pack` that makes a layout."""
    own = {"version": integer(PackKernel.version), "determinism": StringAttr(DETERMINISM)}
    return KernelAttr(PackKernel.id, own | _pack_entries(layout, lanes))


def _pack_entries(layout: LayoutAttr, lanes: int) -> dict[str, Attribute]:
    """Panels that hold another type than the weight say which, those with pairs of terms how far apart these lie."""
    given = layout.parameters_.data
    panel = {name: given[name] for name in ("nr", "k_dim", "element", "pairs") if name in given}
    return {"lanes": integer(lanes), "threads": integer(1), **panel}


VARIANTS = 12
"""Of each way to fetch B and number of threads, offered to be measured."""

FIXED_SPLITS = (1,)
"""Sums over K where their number may not depend on M: how many hide the latency best does."""

_TRANSPOSES = ("transpose_a", "transpose_b")


def _gemm_reason(work: Work) -> str | None:
    if work.operands[0].dtype == "i1":
        return "a matrix product of i1 has no meaning on cpu: cast to a number first"
    if work.kind == "gemm":
        return None if len(work.results) == 1 else "a plain product has one result"
    if work.kind == "gemm_epilogue" and len(work.results) != 1:
        return "a product has several results"
    if work.code is None:
        return "what follows the product has no generated code"
    if work.code.reduce_sizes or len(work.code.phases) != 1:
        return "a reduction follows the product"
    return code_reason(work.code)


def _several_reason(work: Work) -> str | None:
    """Why the loop nest takes not several products, or not what is in front of them."""
    if work.kind in ("gemm", "gemm_epilogue"):
        return None
    if work.prologue is not None and (reason := code_reason(work.prologue)) is not None:
        return reason
    gemm = read_work(work)
    if 0 in (gemm.problem.m, gemm.problem.n, gemm.problem.k, *gemm.problem.batch):
        return "nothing to multiply"
    first = work.operands[gemm.places.rights[0]]
    if any(work.operands[place].strides != first.strides for place in gemm.places.rights):
        return "the right operands lie differently in memory"
    if any(own != gemm.accesses[0] for own in gemm.accesses):
        return "what the products read and write lies differently in memory for each"
    if gemm.rows is None:
        return None
    if first.dtype in SHORT_INTEGERS:
        return "its rows are of short integers, which are multiplied in pairs"
    if gemm.problem.batch:
        return "its rows feed a product for each batch element, not one product"
    return None if has_even_rows(gemm.rows) else "the rows do not follow each other evenly in memory"


def read_work(work: Work) -> GemmWork:
    """The matrix products of a work."""
    operands = [strided(operand) for operand in work.operands]
    results = [strided(result) for result in work.results]
    transposed = (get_bool(work.attrs, "transpose_a"), get_bool(work.attrs, "transpose_b"))
    packed = work.operands[1].layout is not None
    return read_gemm(work.kind, operands, results, transposed, work.code, work.prologue, packed)


def _can_prepare(b: OperandInfo, problem: GemmProblem) -> bool:
    """Whether B is a weight that is packed once: one matrix that the program does not overwrite."""
    return b.is_weight and len(b.shape) == 2 and 0 not in b.strides and prod(b.shape) > 0


def _rows_us(nest: LoopNest, level: CpuLevel, threads: int, fixed: bool) -> float:
    """Predicted microseconds of all rows: as an instruction of their own, or row by row if `threads` is 1."""
    if threads > 1:
        return cost_us(nest, choose(nest, level, threads, fixed))
    row = choose(one_row(nest).nest, level, 1, fixed)
    vector_dim = row.vector_dim + len(nest.parallel_dims) if row.vector_dim >= 0 else -1
    return cost_us(nest, LoopSpec(vector_dim, row.lanes, row.unroll))


def _products_apart(work: Work, gemm: GemmWork) -> Iterator[Work]:
    """The products as instructions of their own; the sums of a joined one go through memory to the last."""
    a = work.operands[0]
    if gemm.rows is not None:
        dtype = work.operands[gemm.places.rights[0]].dtype
        a = OperandInfo("temp", a.shape, dtype, contiguous(a.shape))
    transposed = {name: work.attrs[name] for name in _TRANSPOSES}
    sums = [replace(work.results[0], role="temp")] * (gemm.places.accumulators - 1)
    rights = [work.operands[place] for place in gemm.places.rights]
    plain = replace(work, kind="gemm", attrs=transposed, code=None, prologue=None)
    for b in rights[: len(sums)]:
        yield replace(plain, operands=(a, b), results=work.results[:1])
    for b, extras, result in zip(rights[len(sums) :], gemm.places.extras, work.results, strict=True):
        own = (a, b, *sums, *(work.operands[place] for place in extras))
        yield replace(plain, kind="gemm_epilogue", operands=own, results=(result,), code=work.code)


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
    """Specs behind their predicted microseconds, the cheapest first: the best `count` of each way to fetch B, on one
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


def _layouts(work: Work, gemm: GemmWork, spec: GemmSpec) -> Attribute:
    problem = spec.problem
    entries: dict[str, Attribute] = {
        "bytes": integer(packed_bytes(spec.b_unit, problem.depth, problem.n, spec.nr)),
        "k_dim": integer(1 if get_bool(work.attrs, "transpose_b") else 0),
        "nr": integer(spec.nr),
    }
    if spec.b_element != problem.b_element:
        entries["element"] = StringAttr(spec.b_element)
    if problem.pairs:
        entries["pairs"] = integer(1)
    layout = LayoutAttr(PACKED_B, entries)
    rights = gemm.places.rights
    return ArrayAttr([layout if place in rights else UnitAttr() for place in range(len(work.operands))])


@dataclass(frozen=True)
class BlasKernel(Kernel[None]):
    """The GEMM of scipy-openblas64, called through the pointer table."""

    id: str = "cpu.gemm_blas"
    version: int = VERSION
    determinism: str = DETERMINISM
    simplicity: int = 5
    kinds: frozenset[str] = frozenset({"gemm"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `Kernel`."""
        if (reason := _gemm_reason(work)) is not None:
            return reason
        if work.operands[0].dtype not in ("f32", "f64"):
            return f"{LIBRARY} multiplies f32 and f64 only"
        if library_version(target) is None:
            return f"the target lists no {LIBRARY}: pip install scipy-openblas64 and resolve the target on that machine"
        gemm = read_work(work)
        problem, output = gemm.problem, gemm.accesses[0][0]
        if min(problem.m, problem.n, problem.k) == 0:
            return "nothing to multiply"
        for what, strides in (("A", problem.a_strides), ("B", problem.b_strides), ("C", output.strides[-2:])):
            if 1 not in strides or min(strides) < 1 or (what == "C" and strides[1] != 1):
                return (
                    f"{LIBRARY} needs contiguous rows or columns, the strides of {what} are {list(strides)}"
                )
        sizes = {"A": (problem.m, problem.k), "B": (problem.k, problem.n)}
        for what, strides in (("A", problem.a_strides), ("B", problem.b_strides)):
            if _overlaps(sizes[what], strides):
                return f"{LIBRARY} takes no rows that overlap, the strides of {what} are {list(strides)}"
        return None

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `Kernel`: call overhead, packing of both operands as fast as B comes from its level of cache,
        80 % of the arithmetic peak."""
        problem = read_work(work).problem
        level = level_of(target)
        peak = 2.0 * level.lanes(problem.dtype) * (1.0 if level.has_fma else 0.5)
        b_bytes = problem.k * problem.n * ELEMENT_BYTES[problem.dtype]
        packing = max((problem.m + problem.n) * problem.k * 0.25, traffic_cycles(b_bytes))
        cycles = problem.m * problem.n * problem.k / peak / 0.8 + packing + 1200
        return cycles * prod(problem.batch) / NOMINAL_GHZ / 1000

    def schedule(self, work: Work, target: TargetAttr) -> None:
        """See `Kernel`: the library decides, the same for one version and core."""

    def read(self, work: Work, record: Record, target: TargetAttr) -> None:
        """See `Kernel`."""

    def record_of(self, work: Work, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        """See `Kernel`."""
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


def _overlaps(sizes: tuple[int, int], strides: tuple[int, int]) -> bool:
    """Whether lines of a matrix that are contiguous reach into the next one, as those of a window do."""
    inner = 1 if strides[1] == 1 else 0
    return sizes[1 - inner] > 1 and strides[1 - inner] < sizes[inner]


def library_version(target: TargetAttr) -> str | None:
    """Version and core of scipy-openblas64 as the target lists it."""
    libraries = target.facts.data.get("libraries")
    version = libraries.data.get(LIBRARY) if isinstance(libraries, DictionaryAttr) else None
    return version.data if isinstance(version, StringAttr) else None


@dataclass(frozen=True)
class PackKernel(Kernel[int]):
    """Packs a weight for the GEMM microkernel, vectors of so many elements at a time; only ever asked for through
    `Kernel.prepare`.

    Version 3 packs pairs of short integers.
    """

    id: str = "cpu.pack"
    version: int = 3
    determinism: str = DETERMINISM
    simplicity: int = 0
    kinds: frozenset[str] = frozenset({"pack"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `Kernel`: a layout of this kernel's, for the weight as it is."""
        layout, operand = work.results[0].layout, work.operands[0]
        if layout is None or layout.layout.data != PACKED_B:
            return "weights are packed where a product asks for it, in @prepare"
        return panels_reason(layout, operand.shape, operand.dtype)

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `Kernel`: two bytes a cycle; run once."""
        operand = work.operands[0]
        return prod(operand.shape) * ELEMENT_BYTES[operand.dtype] / 2 / NOMINAL_GHZ / 1000

    def schedule(self, work: Work, target: TargetAttr) -> int:
        """See `Kernel`: elements of a vector."""
        return level_of(target).lanes(work.operands[0].dtype)

    def record_of(self, work: Work, target: TargetAttr, schedule: int) -> dict[str, Attribute]:
        """See `Kernel`."""
        assert work.results[0].layout is not None, "the result of legal work has a layout"
        return _pack_entries(work.results[0].layout, schedule)

    def read(self, work: Work, record: Record, target: TargetAttr) -> int:
        """See `Kernel`."""
        return read_entry(record, "lanes", legal_lanes(work.operands[0].dtype))


def panels_reason(layout: LayoutAttr, shape: Sequence[int], dtype: str) -> str | None:
    """Why a layout is not that of a weight in panels; None if it is.

    Args:
        shape, dtype: Of the weight: a matrix, or more dimensions of which all after the first are one.
    """
    given = layout.parameters_.data
    k_dim: int = read_entry(given, "k_dim", OneOf((0, 1)))
    nr: int = read_entry(given, "nr", Whole(1))
    sizes = (shape[0], prod(shape[1:]))
    k, n = sizes[k_dim], sizes[1 - k_dim]
    pairs: int = read_entry(given, "pairs", Whole(1, max(1, k))) if "pairs" in given else 0
    element = get_text(given, "element") if "element" in given else dtype
    if element not in ELEMENT_BYTES:
        return f"its layout's {illegal('element', element, ', '.join(ELEMENT_BYTES))}"
    steps = k
    if pairs:
        # Two terms that lie `pairs` apart are one unit: those of a stretch of twice as many.
        stretches, rest = divmod(k, 2 * pairs)
        steps = stretches * pairs + min(rest, pairs)
    unit = ELEMENT_BYTES[element] * (2 if pairs else 1)
    expected = packed_bytes("i8", steps, n, nr) * unit
    stated = get_int(given, "bytes")
    return None if stated == expected else f"its layout's {illegal('bytes', stated, expected)}"
