"""How the parts of a reduction come together, as text: lanes of a vector, threads of a row or column.

A *partial result* is what one thread has of a reduction, in registers named `total[i]`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aicf.backends.cuda.codegen.scalar import REGISTERS, combine_text, dtype_of, rounded_text, wrapped_text
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec
from aicf.backends.cuda.families.records import Rounding
from aicf.backends.cuda.target import SHORT_INTEGERS
from aicf.dialects.emit_kernels import AccumulateOp, ReduceOp, ScanOp

WARP = 32


def partial_dtype(op: ReduceOp | ScanOp | AccumulateOp) -> str:
    """Element type of partial results: a register's, so that short integers wrap once, at the end; i1 as i32."""
    return {"bool": "i32"}.get(register := REGISTERS[dtype_of(op.value)], register)


def widened(name: str, op: ReduceOp | AccumulateOp) -> str:
    """A value as it is combined."""
    return f"cuda.selp({name}, i32(1), i32(0))" if dtype_of(op.value) == "i1" else name


def tree(how: str, dtype: str, names: Sequence[str]) -> str:
    """The combination of all names, pairwise."""
    values = list(names)
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        values = [combine_text(how, dtype, a, b) for a, b in pairs] + values[len(values) // 2 * 2 :]
    return values[0]


# Across threads


def finished(op: ReduceOp | AccumulateOp, name: str, rounding: Rounding) -> str:
    """A combined partial result in the type that later phases see."""
    if dtype_of(op.value) == "i1":
        return f"({name} != i32(0))"
    if dtype_of(op.value) in SHORT_INTEGERS:
        return wrapped_text(name, dtype_of(op.value))
    return rounded_text(name, dtype_of(op.value)) if rounding == "strict" else name


def by_butterflies(
    spec: GeneratedSpec,
    reductions: Sequence[ReduceOp],
    lines: list[str],
    partials: Sequence[str] | None = None,
    prefix: str = "",
) -> list[str]:
    """Within each warp, then over what the warps left in shared memory.

    Args:
        partials: Names of the partial results, where they are no longer in `total`.
        prefix: Of the names that are made here.
    """
    lanes = spec.lanes
    given = partials or [f"total[{i}]" for i in range(len(reductions))]
    names = [
        _butterfly(op, given[i], min(lanes, WARP), f"{prefix}b{i}_", lines) for i, op in enumerate(reductions)
    ]
    warps = lanes // WARP
    if warps <= 1 or not reductions:
        return names
    arrays = [f"{prefix}shared{i}" for i in range(len(reductions))]
    for array, op in zip(arrays, reductions, strict=True):
        lines.append(f"{array} = cuda.shared.array({warps}, {partial_dtype(op)})")
    lines.append("if thread % 32 == 0:")
    lines += [f"    {array}[thread // 32] = {name}" for array, name in zip(arrays, names, strict=True)]
    lines.append("cuda.syncthreads()")
    return [
        _butterfly(op, f"{arrays[i]}[thread % {warps}]", warps, f"{prefix}c{i}_", lines)
        for i, op in enumerate(reductions)
    ]


def by_columns(spec: GeneratedSpec, reductions: Sequence[ReduceOp], lines: list[str]) -> list[str]:
    """Within each warp, then over what the warps left in shared memory: a thread for each column adds that up,
    ascending, and all threads of the column read the sum."""
    own = [f"total[{slot}]" for slot in range(len(reductions) * spec.vector)]
    if spec.lanes == 1 or not reductions:
        return own
    board = ColumnBoard(spec)
    for i, op in enumerate(reductions):
        lines.append(f"shared{i} = cuda.shared.array({board.size}, {partial_dtype(op)})")
    kept: list[str] = []
    for slot, total in enumerate(own):
        i, lane = divmod(slot, spec.vector)
        name = _butterfly(reductions[i], total, board.warp, f"b{slot}_", lines, board.across)
        kept.append(f"shared{i}[{board.cell(lane)}] = {name}")
    lines += board.by_writers(kept)
    lines.append("cuda.syncthreads()")
    for start in board.starts:
        added = [
            line
            for i, op in enumerate(reductions)
            for line in (
                *_added(op, f"shared{i}", f"s{i}", board.rows, board.columns, f"thread + {start}"),
                f"shared{i}[thread + {start}] = s{i}",
            )
        ]
        lines += board.by_owners(start, added)
    lines.append("cuda.syncthreads()")
    return [f"shared{i}[{board.total(lane)}]" for i in range(len(reductions)) for lane in range(spec.vector)]


class ColumnBoard:
    """Where threads of a block that share columns leave what they have, in shared memory: a row of columns for each
    warp, or for each thread of a column where a warp has no column twice. Neighbouring threads have neighbouring cells.
    """

    def __init__(self, spec: GeneratedSpec):
        self.across = spec.threads // spec.lanes
        self.columns = self.across * spec.vector
        self.warp = min(spec.threads, max(WARP, self.across))
        """Threads that leave one row; those of a warp have come together before."""
        self.rows = spec.threads // self.warp
        self.size = self.rows * self.columns
        self.starts = range(0, self.columns, spec.threads)
        """The first column of each turn in which every thread adds up one column at most."""
        self._threads = spec.threads

    def cell(self, lane: int) -> str:
        """What the thread leaves of a lane of its vector."""
        row = f"thread // {self.warp} * {self.columns} + " if self.rows > 1 else ""
        return f"{row}{self.total(lane)}"

    def total(self, lane: int) -> str:
        """Where the total of that column is found."""
        return f"{lane * self.across} + thread % {self.across}"

    def by_writers(self, lines: Sequence[str]) -> list[str]:
        """Statements for one thread of each column of a row."""
        if self.across == self.warp:
            return list(lines)
        return [f"if thread % {self.warp} < {self.across}:", *(f"    {line}" for line in lines)]

    def by_owners(self, start: int, lines: Sequence[str]) -> list[str]:
        """Statements for the threads that add up a column of the turn that begins with column `start`."""
        if self.columns - start >= self._threads:
            return list(lines)
        return [f"if thread < {self.columns - start}:", *(f"    {line}" for line in lines)]


def by_clusters(
    spec: GeneratedSpec, reductions: Sequence[ReduceOp], barrier: str, lines: list[str]
) -> list[str]:
    """Within each warp, over the warps of a block, then over the blocks of the cluster: a thread for each column sends
    what its own block has to all blocks, and adds up what it received when all have arrived.

    Args:
        barrier: Address of one that expects `exchanged_bytes`.
    """
    if not reductions:
        return []
    across, columns = spec.threads // spec.lanes, _columns(spec)
    for i, op in enumerate(reductions):
        lines.append(f"shared{i} = cuda.shared.array({spec.threads // WARP * columns}, {partial_dtype(op)})")
        lines.append(f"exchanged{i} = cuda.shared.array({spec.cluster * columns}, {partial_dtype(op)})")
    _keep_warps(spec, reductions, lines)
    lines += ["cuda.syncthreads()", f"if thread < {columns}:"]
    for i, op in enumerate(reductions):
        lines += [f"    {line}" for line in _added(op, f"shared{i}", f"s{i}", spec.threads // WARP, columns)]
        offset = f"u32(cuda.blockIdx.y * {columns} + thread) * u32({_register_bytes(op)})"
        lines.append(f"    to{i} = u32(shared_base(exchanged{i}) + {offset})")
        for rank in range(spec.cluster):
            there = [f"map_shared({here}, u32({rank}))" for here in (f"to{i}", barrier)]
            lines.append(f"    store_async_{partial_dtype(op)}({there[0]}, s{i}, {there[1]})")
    lines += [f"barrier_wait({barrier}, u32(0))", f"if thread < {columns}:"]
    for i, op in enumerate(reductions):
        lines += [f"    {line}" for line in _added(op, f"exchanged{i}", f"w{i}", spec.cluster, columns)]
        lines.append(f"    exchanged{i}[thread] = w{i}")
    lines += ["cuda.syncthreads()", f"first = thread % {across} * {spec.vector}"]
    return [f"exchanged{i}[first + {lane}]" for i in range(len(reductions)) for lane in range(spec.vector)]


def by_row_clusters(
    spec: GeneratedSpec, reductions: Sequence[ReduceOp], barrier: str, lines: list[str]
) -> list[str]:
    """Within each block by butterflies, then over the blocks of the cluster: one thread sends what its block has to all
    blocks, and every thread adds up what has arrived.

    Args:
        barrier: Address of one that expects `exchanged_bytes`.
    """
    names = by_butterflies(spec, reductions, lines)
    if not reductions:
        return names
    for i, op in enumerate(reductions):
        lines.append(f"exchanged{i} = cuda.shared.array({spec.cluster}, {partial_dtype(op)})")
    lines.append("if thread == 0:")
    for i, op in enumerate(reductions):
        lines.append(
            f"    to{i} = u32(shared_base(exchanged{i}) + u32(cuda.blockIdx.y) * u32({_register_bytes(op)}))"
        )
        for rank in range(spec.cluster):
            there = [f"map_shared({here}, u32({rank}))" for here in (f"to{i}", barrier)]
            lines.append(f"    store_async_{partial_dtype(op)}({there[0]}, {names[i]}, {there[1]})")
    lines.append(f"barrier_wait({barrier}, u32(0))")
    for i, op in enumerate(reductions):
        lines += _added(op, f"exchanged{i}", f"w{i}", spec.cluster, 1, "0")
    return [f"w{i}" for i in range(len(reductions))]


def exchanged_bytes(spec: GeneratedSpec, reductions: Sequence[ReduceOp]) -> int:
    """Bytes that a block of a cluster receives for so many reductions, its own included."""
    return spec.cluster * _columns(spec) * sum(map(_register_bytes, reductions))


def _register_bytes(op: ReduceOp) -> int:
    return int(partial_dtype(op)[1:]) // 8


def _columns(spec: GeneratedSpec) -> int:
    """Of a block; a row has one total."""
    return 1 if spec.by_rows else spec.threads // spec.lanes * spec.vector


def _keep_warps(spec: GeneratedSpec, reductions: Sequence[ReduceOp], lines: list[str]) -> None:
    """Puts what each warp has of the columns into shared memory."""
    across, columns = spec.threads // spec.lanes, _columns(spec)
    kept: list[str] = []
    for i, op in enumerate(reductions):
        for lane in range(spec.vector):
            total = f"total[{i * spec.vector + lane}]"
            name = _butterfly(op, total, WARP, f"b{i}_{lane}_", lines, across)
            offset = f"thread // {WARP} * {columns} + thread % {WARP} * {spec.vector} + {lane}"
            kept.append(f"    shared{i}[{offset}] = {name}")
    lines += [f"if thread % {WARP} < {across}:", *kept]


def _added(op: ReduceOp, array: str, name: str, rows: int, columns: int, column: str = "thread") -> list[str]:
    """Combines the elements of a column of a shared array, ascending."""
    how, dtype = op.combine.data, partial_dtype(op)
    cells = [f"{array}[{row * columns} + {column}]" for row in range(rows)]
    return [
        f"{name} = {cells[0]}",
        *(f"{name} = {combine_text(how, dtype, name, cell)}" for cell in cells[1:]),
    ]


def _butterfly(op: ReduceOp, name: str, lanes: int, prefix: str, lines: list[str], apart: int = 1) -> str:
    """The combination over `lanes` neighbouring threads of a warp, those `apart` from each other, in every one."""
    how, dtype = op.combine.data, partial_dtype(op)
    current = f"{prefix}0"
    lines.append(f"{current} = {name}")
    step = lanes // 2
    while step >= apart:
        other, following = f"{prefix}o{step}", f"{prefix}{step}"
        lines.append(f"{other} = cuda.shfl_xor_sync(ALL_LANES, {current}, {step})")
        lines.append(f"{following} = {combine_text(how, dtype, current, other)}")
        current, step = following, step // 2
    return current
