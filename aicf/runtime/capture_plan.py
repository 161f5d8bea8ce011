"""What is captured, completely: kernels, launch order, streams, edges, and every address as table entry plus
offset.

Pure data and a pure function of emit IR (`plan_from_ir` makes it). A result of optimisation, not an
executable: it holds no code, no memory, no weights. It is stored as JSON in the artifact, so that loading
parses no IR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from aicf.errors import ArtifactError
from aicf.runtime.graph import ROLES, Bind, Graph, HostValue
from aicf.runtime.on_host.formulas import FORMULAS, ROUND
from aicf.runtime.tensors import ELEMENT_NAMES, numpy_dtype, span_bytes

ARENA = 0
"""Index of the arena in a pointer table; bind number i (from 0) has index i + 1."""


@dataclass(frozen=True)
class OperandRef:
    """An operand: `offset` bytes past the pointer in table entry `base`, and how to walk from there."""

    base: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    layout: str | None


@dataclass(frozen=True)
class Launch:
    """How one operation of the graph runs.

    Args:
        name: That of its node, which holds kind, sources and edges.
        kernel: Kernel id.
        record: The whole kernel record as plain values.
        stream: Number of its stream.
        ins, outs, ws: Operands read, defined, and used as workspace.
    """

    name: str
    kernel: str
    record: dict[str, object]
    stream: int
    ins: tuple[OperandRef, ...]
    outs: tuple[OperandRef, ...]
    ws: tuple[OperandRef, ...]


@dataclass(frozen=True)
class CapturePlan:
    """One program, ready to be captured.

    Args:
        entry: Symbol of its native entry.
        graph: Boundary and operations.
        launches: One per node, in launch order.
        arena_bytes, arena_align: The memory it needs of its own.
    """

    entry: str
    graph: Graph
    launches: tuple[Launch, ...]
    arena_bytes: int
    arena_align: int

    @property
    def name(self) -> str:
        """The program's symbol."""
        return self.graph.name

    @property
    def table_size(self) -> int:
        """Data pointers in its table: the arena and the binds."""
        return 1 + len(self.graph.binds)


@dataclass(frozen=True)
class Row:
    """One line of the dispatch table: sizes of the named dimensions, and the program compiled for them."""

    sizes: tuple[int, ...]
    program: str


@dataclass(frozen=True)
class ModulePlan:
    """All programs of a module.

    Args:
        backend, arch, threads: The target.
        dims: Names of the symbolic dimensions; none if there is one program.
        rows: Which program runs for which sizes of `dims`.
        programs: The plans, one per bucket.
        prepare: The program that fills derived binds, if any.
    """

    backend: str
    arch: str
    threads: int
    dims: tuple[str, ...]
    rows: tuple[Row, ...]
    programs: tuple[CapturePlan, ...]
    prepare: CapturePlan | None

    @property
    def by_name(self) -> dict[str, CapturePlan]:
        """The programs by symbol."""
        return {plan.name: plan for plan in self.programs}

    @property
    def weights(self) -> tuple[Bind, ...]:
        """Everything that has an initial value from the weights, once each, in order of first use."""
        binds: dict[str, Bind] = {}
        for bind in (bind for plan in self.all_programs for bind in plan.graph.weights):
            known = binds.setdefault(bind.name, bind)
            if bind.updated and not known.updated:
                binds[bind.name] = bind
        return tuple(binds.values())

    @property
    def derived(self) -> tuple[Bind, ...]:
        """What `prepare` makes of the weights."""
        return () if self.prepare is None else self.prepare.graph.with_role("derived")

    @property
    def mutable(self) -> tuple[str, ...]:
        """Names of the weights that programs update, sorted; every instance needs its own copies."""
        return tuple(sorted({b.name for plan in self.programs for b in plan.graph.binds if b.is_mutable}))

    @property
    def updated(self) -> tuple[str, ...]:
        """Names of the weights that programs write, sorted."""
        return tuple(sorted({b.name for plan in self.programs for b in plan.graph.binds if b.updated}))

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the metas that the executable keeps from run to run, sorted."""
        binds = (bind for plan in self.programs for bind in plan.graph.binds)
        return tuple(sorted({b.name for b in binds if b.host is not None and b.host.next is not None}))

    @property
    def is_stateful(self) -> bool:
        """Whether any program changes what a later call sees."""
        return any(plan.graph.is_stateful for plan in self.programs)

    @property
    def all_programs(self) -> tuple[CapturePlan, ...]:
        """The plans of all programs, `prepare` last."""
        return self.programs if self.prepare is None else (*self.programs, self.prepare)

    def check(self) -> None:
        """Raises ArtifactError if it contradicts itself: in what a running program relies on, and only a damaged file
        can break."""
        _require(self.threads >= 1, "the number of threads is not positive")
        _require(bool(self.rows), "the dispatch table is empty")
        _require(len(self.by_name) == len(self.programs), "two programs have one name")
        known = all(row.program in self.by_name for row in self.rows)
        _require(known, "the dispatch table names an unknown program")
        ragged = any(len(row.sizes) != len(self.dims) for row in self.rows)
        _require(not ragged, "the dispatch table has ragged rows")
        for program in self.all_programs:
            _check_program(program)
        for problem in contradictions(self):
            _require(False, problem)


def contradictions(plan: ModulePlan) -> Iterator[str]:
    """What is wrong between the programs of a module, each with the way out; nothing if they fit together."""
    first = plan.by_name[plan.rows[0].program].graph
    weights: dict[str, tuple[object, ...]] = {}
    for program in plan.programs:
        for role in ("input", "output"):
            ours, theirs = (
                [(bind.name, bind.dtype, len(bind.shape)) for bind in graph.with_role(role)]
                for graph in (first, program.graph)
            )
            if ours != theirs:
                yield f"@{program.name} and @{first.name} have other {role}s; run specialize-shapes again"
        for bind in program.graph.weights:
            described = (bind.shape, bind.dtype)
            if weights.setdefault(bind.name, described) != described:
                yield f"{bind.role} '{bind.name}' has another shape in @{program.name}; weights are shared"
        yield from _wrong_derived(program, plan.prepare)
        yield from _wrong_counts(program)
    written = {bind.name for program in plan.programs for bind in program.graph.binds if bind.is_host_written}
    for name in sorted(written.intersection(plan.updated)):
        yield f"meta '{name}' is kept by the executable for one program and updated by another; choose one"
    if plan.prepare is not None and plan.prepare.graph.is_stateful:
        yield f"@{plan.prepare.name} reads what programs update; only constant weights can be prepared"
    shapes = [tuple(bind.shape for bind in plan.by_name[row.program].graph.inputs) for row in plan.rows]
    if len(set(shapes)) != len(shapes):
        yield "two programs take inputs of the same shapes, so no call can choose; make the buckets differ"


def _wrong_derived(program: CapturePlan, prepare: CapturePlan | None) -> Iterator[str]:
    made = {bind.name: bind for bind in prepare.graph.with_role("derived")} if prepare is not None else {}
    for bind in program.graph.with_role("derived"):
        if bind.name not in made:
            yield f"@{program.name}: derived '{bind.name}' is not made by @prepare; run lower-to-emit again"
        elif bind != made[bind.name]:
            yield f"@{program.name}: derived '{bind.name}' has another type than in @prepare; make them equal"


def _wrong_counts(program: CapturePlan) -> Iterator[str]:
    ranks = {bind.name: len(bind.shape) for bind in program.graph.outputs}
    for bind in program.graph.binds:
        is_count = bind.role == "output" and not bind.shape and bind.dtype == "i64"
        for counted in bind.counts:
            if not is_count or not 0 <= counted.axis < ranks.get(counted.output, 0):
                yield (
                    f"@{program.name}: {bind.role} '{bind.name}' counts dimension {counted.axis} of "
                    f"'{counted.output}'; an output of one i64 counts dimensions that outputs have"
                )


def _check_program(plan: CapturePlan) -> None:
    align = plan.arena_align
    _require(plan.arena_bytes >= 0 and align > 0 and align & (align - 1) == 0, "the arena has no legal size")
    _require(
        [launch.name for launch in plan.launches] == [node.name for node in plan.graph.nodes], "launches miss"
    )
    names = [bind.name for bind in plan.graph.binds]
    _require(len(set(names)) == len(names), "two binds have one name")
    for bind in plan.graph.binds:
        _require(bind.role in ROLES, f"bind '{bind.name}' has the unknown role '{bind.role}'")
        _require(
            bind.dtype in ELEMENT_NAMES, f"bind '{bind.name}' has the unknown element type '{bind.dtype}'"
        )
        _require(
            len(bind.shape) == len(bind.strides) and min((*bind.shape, *bind.strides, 0)) == 0,
            f"bind '{bind.name}' has no legal shape",
        )
        _require(
            bind.nbytes >= span_bytes(bind.shape, bind.strides, bind.dtype),
            f"bind '{bind.name}' is too short",
        )
    _check_metas(plan.graph.binds)
    sizes = [plan.arena_bytes, *(bind.nbytes for bind in plan.graph.binds)]
    for launch in plan.launches:
        for operand in (*launch.ins, *launch.outs, *launch.ws):
            if problem := _operand_problem(operand, sizes):
                _require(False, f"launch '{launch.name}' has an operand {problem}")


def _operand_problem(operand: OperandRef, sizes: Sequence[int]) -> str | None:
    """What is wrong with an operand of a launch; `sizes`: bytes past each pointer of the table."""
    shape, strides = operand.shape, operand.strides
    if not 0 <= operand.base < len(sizes):
        return "outside the pointer table"
    if operand.dtype not in ELEMENT_NAMES:
        return f"of the unknown element type '{operand.dtype}'"
    if len(shape) != len(strides) or min((*shape, 0)) < 0:
        return f"of sizes {list(shape)} and strides {list(strides)}"
    if operand.layout is None and 0 not in shape:
        reach = [(size - 1) * step for size, step in zip(shape, strides, strict=True)]
        low = sum([step for step in reach if step < 0])
        high = sum([step for step in reach if step > 0]) + 1
        width = numpy_dtype(operand.dtype).itemsize
        if operand.offset + low * width < 0 or operand.offset + high * width > sizes[operand.base]:
            return "outside its buffer"
    return None


def _check_metas(binds: Sequence[Bind]) -> None:
    """Checks the metas that the executable computes: each by a known formula of numbers and earlier metas."""
    seen: set[str] = set()
    computed = {bind.name for bind in binds if bind.is_computed}
    for bind in (bind for bind in binds if bind.role == "meta"):
        if (host := bind.host) is not None:
            known = not bind.shape and bind.dtype in ROUND
            known &= _is_known(host, seen) if bind.is_computed else host.next in computed
            _require(known, f"meta '{bind.name}' is computed in an unknown way")
        seen.add(bind.name)
    hosts = {bind.role for bind in binds if bind.host is not None}
    _require(hosts <= {"meta"}, "the executable computes what is no meta")


def _is_known(host: HostValue, metas: Collection[str]) -> bool:
    formula = FORMULAS.get(host.formula or "")
    return (
        formula is not None
        and len(host.of) == formula.operands
        and all(operand in metas for operand in host.of if isinstance(operand, str))
        and {key: type(value) for key, value in host.numbers.items()} == formula.numbers
        and all(type(entry) is int for entry in _entries(host))
    )


def _entries(host: HostValue) -> Iterator[object]:
    """What the lists among the attributes of a formula hold."""
    for value in host.numbers.values():
        if isinstance(value, list):
            yield from cast("list[object]", value)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ArtifactError(f"plan: {problem}; the file is corrupt: compile the program again")
