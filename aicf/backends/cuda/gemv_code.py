"""Code of `cuda.gemv`: the kernel text of a record. The templates say how it runs, this says with which operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from xdsl.ir import BlockArgument, SSAValue

from aicf.backends.base import BufferRef, Launch
from aicf.backends.cuda.code import KernelCode
from aicf.backends.cuda.gemv_kernels import (
    ColumnsSpec,
    GemvProblem,
    RowsSpec,
    Spec,
    TilesSpec,
    read_problem,
    read_spec,
    rounding_of,
)
from aicf.backends.cuda.launches import KernelLaunch, address_of
from aicf.backends.cuda.scalar_code import (
    Rounding,
    ScalarText,
    address_text,
    combine_text,
    dtype_of,
    element_text,
    identity_text,
    load_text,
    point_snippet,
    store_text,
)
from aicf.backends.cuda.staging import Constant, Snippet, part, stage
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch
from aicf.backends.cuda.templates import gemv as templates
from aicf.backends.nests import Access, access_of
from aicf.dialects.emit_kernels import KernelOp, PhaseOp, ReduceOp, StoreOp, YieldOp

_UNPACK = {
    "f16": Snippet(("word",), (), "unpack_f16(word)"),
    "bf16": Snippet(("word",), (), "unpack_bf16(word)"),
    "f32": Snippet(("word",), (), "(bits_to_f32(word),)"),
}
"""A word of memory as a tuple of f32."""

_PARTS: dict[str, Constant | Snippet] = {
    function.__name__.upper(): part(function)
    for function in (
        templates.weights_along_k,
        templates.weights_along_n,
        templates.extras_of_rounds,
        templates.finish_rounds,
    )
}

_CHAINS = 4
"""Independent chains of a reduction of the row program: one add need not wait for the one before."""


def emit(launch: Launch, arch: GpuArch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    problem = read_problem(launch.kind, launch.record, launch.ins)
    return [make_launch(launch, problem, read_spec(launch.record), arch.capability >= 90)]


def make_launch(launch: Launch, problem: GemvProblem, spec: Spec, programmatic: bool) -> KernelLaunch:
    """The launch of `problem` as `spec` says; `programmatic` if the GPU has programmatic launch."""
    text = _Text(launch, problem, spec)
    names = [
        "x",
        *(f"in{i}" for i in range(1, len(launch.ins))),
        *(f"out{o}" for o in range(len(launch.outs))),
    ]
    shared = 0
    match spec:
        case RowsSpec():
            template, constants = templates.gemv_rows, text.rows(spec)
        case ColumnsSpec():
            template, constants = templates.gemv_columns, text.columns(spec)
            shared = spec.shared_bytes(problem)
        case TilesSpec():
            template, constants = templates.gemv_tiles, text.tiles(spec)
            shared = spec.shared_bytes(problem)
    source = stage(template, {**_PARTS, **text.shared(), **constants, "PROGRAMMATIC": programmatic})
    source = source.replace("(pointers)", f"({', '.join(names)})", 1)
    code = KernelCode(template.__name__, source, ("ptr",) * len(names), spec.threads, spec.blocks_per_sm)
    return KernelLaunch(
        code,
        tuple(address_of(ref) for ref in (*launch.ins, *launch.outs)),
        (spec.grid(problem), 1 if problem.gated else len(problem.weights), 1),
        (spec.threads, 1, 1),
        shared_bytes=shared,
    )


class _Text:
    """The constants of the templates for one instruction."""

    def __init__(self, launch: Launch, problem: GemvProblem, spec: Spec):
        self.launch, self.problem, self.spec = launch, problem, spec
        self.rounding: Rounding = rounding_of(launch.record)
        self.early_extras = [e for e in self._extras() if e.operand in spec.early]
        self.late_extras = [e for e in self._extras() if e.operand not in spec.early]

    def shared(self) -> dict[str, Constant | Snippet]:
        """What all templates name in capitals."""
        problem, spec = self.problem, self.spec
        share = share_of(problem, spec)
        program = _row_program(self.launch, problem, spec, share, self.rounding)
        totals = program.totals * spec.groups * spec.parts * share.lines
        return {
            "M": problem.m,
            "N": problem.n,
            "K": problem.k,
            "VEC": problem.vector,
            "X_WORDS": problem.vector * ELEMENT_BYTES[problem.x_dtype] // 4,
            "X_ROWS": tuple(row * ELEMENT_BYTES[problem.x_dtype] for row in problem.x_rows),
            "PRODUCTS": problem.products,
            "CHUNKS": share.chunks,
            "K_TAIL": share.masked,
            "EARLY_WEIGHTS": all(weight in spec.early for weight in problem.weights),
            "EXTRAS": len(self.early_extras) + len(self.late_extras),
            "EARLY_EXTRAS": len(self.early_extras),
            "WEIGHTS": Snippet((), (), self._weights()),
            "STREAM": _load("stream_u32x4", share.masked),
            "LOAD": _load("load_u32x4", share.masked),
            "UNPACK_W": _UNPACK[problem.dtype],
            "UNPACK_X": _UNPACK[problem.x_dtype],
            "LOAD_EARLY_EXTRAS": self._loads(self.early_extras),
            "LOAD_LATE_EXTRAS": self._loads(self.late_extras),
            "FINISH": self._finish(),
            "EARLY_ROW_OPERANDS": Snippet((), program.early),
            "LATE_ROW_OPERANDS": Snippet((), program.late),
            "ROW_PROGRAM": Snippet((), program.body),
            "TOTALS": max(4, -(-totals // 4) * 4),
            "GIVEN": program.given,
            "WORDS": program.words,
        }

    def rows(self, spec: RowsSpec) -> dict[str, Constant | Snippet]:
        """What `gemv_rows` names beside them."""
        problem = self.problem
        return {
            "W_ROW_BYTES": problem.w_steps[0] * ELEMENT_BYTES[problem.dtype],
            "ROWS": spec.rows,
            "GROUPS": spec.groups,
            "SPLIT": spec.parts,
            "CHAINS": spec.chains,
            "COUNT": spec.count(problem),
            "TRIGGER": spec.trigger,
        }

    def columns(self, spec: ColumnsSpec) -> dict[str, Constant | Snippet]:
        """What `gemv_columns` names beside them."""
        problem = self.problem
        return {
            "W_ROW_BYTES": problem.w_steps[1] * ELEMENT_BYTES[problem.dtype],
            "COLUMNS": spec.columns(problem),
            "LANES_N": spec.lanes,
            "LANES_K": 32 // spec.lanes,
            "LANE_BITS": (32 // spec.lanes).bit_length() - 1,
            "WARPS": spec.parts,
            "THREADS": spec.threads,
            "SHARES": spec.shares,
            "UNROLL": spec.unroll,
            "STEPS": spec.steps(problem),
            "K_PADDED": spec.padded(problem),
            "ROUNDS": -(-problem.m * spec.columns(problem) // spec.threads),
        }

    def tiles(self, spec: TilesSpec) -> dict[str, Constant | Snippet]:
        """What `gemv_tiles` names beside them."""
        problem = self.problem
        step = problem.x_rows[1] - problem.x_rows[0] if problem.m > 1 else 0
        accumulator = tuple(f"c{i}" for i in range(4))
        factors = ("a0", "a1", "a2", "a3", "b0", "b1")
        call = f"mma_{problem.dtype}(({', '.join(accumulator)}), {', '.join(factors)})"
        return {
            "W_ROW_BYTES": problem.w_steps[0] * 2,
            "X_ROW_BYTES": step * 2,
            "TILES": spec.tiles,
            "GROUPS": spec.groups,
            "SPLIT": spec.parts,
            "COLUMNS": spec.columns,
            "SLOTS": spec.slots(problem),
            "UNROLL": spec.unroll,
            "STEPS": spec.steps(problem),
            "THREADS": spec.threads,
            "ROUNDS": -(-problem.m * spec.columns // spec.threads),
            "PROLOGUE": self.launch.prologue is not None,
            "PACK": Snippet(("low", "high"), (), f"pack_{problem.dtype}(low, high)"),
            "PRODUCT": Snippet((*accumulator, *factors), (), call),
        }

    def _weights(self) -> str:
        """The weights that this block reads, as a tuple."""
        if self.problem.gated:
            return f"({', '.join(f'in{w}' for w in self.problem.weights)},)"
        return f"({_chosen([f'in{w}' for w in self.problem.weights])},)"

    def _extras(self) -> list[_Extra]:
        """What the epilogue reads beside the sums."""
        code = self.launch.code
        if code is None:
            return []
        found: list[_Extra] = []
        for place in range(len(self.problem.epilogue[0])):
            operands = [numbers[place] for numbers in self.problem.epilogue]
            ref = self.launch.ins[operands[0]]
            argument = self.problem.products + place
            access = access_of(code.in_maps[argument], ref.strides, ref.dtype)
            found.append(
                _Extra(operands[0], argument, access, _chosen([f"in{number}" for number in operands]))
            )
        return found

    def _loads(self, extras: Sequence[_Extra]) -> Snippet:
        """Loads of one element each at row `m` and column `n`."""
        indices = _indices(self.problem)
        texts = [
            load_text(e.access.dtype, address_text(e.base, element_text(e.access, indices), e.access.dtype))
            for e in extras
        ]
        return Snippet(("m", "n"), (), f"({', '.join(texts)},)" if texts else "")

    def _finish(self) -> Snippet:
        """The epilogue of one result and its store; what it reads beside the sums is in `extra` from `first` on."""
        lines: list[str] = []
        value = "sums[0]"
        code = self.launch.code
        ref = self.launch.outs[0]
        strides = ref.strides
        access = Access(ref.dtype, 0, strides)
        if code is not None:
            point = point_snippet(code, len(code.in_maps), (), self.launch.outs[:1], self.rounding)
            lines += [f"acc{i} = sums[{i}]" for i in range(self.problem.products)]
            for place, extra in enumerate((*self.early_extras, *self.late_extras)):
                lines.append(f"acc{extra.argument} = extra[first + {place}]")
            lines += point.body
            value = point.result
            access = access_of(code.out_maps[0], strides, ref.dtype)
        base = _chosen([f"out{o}" for o in range(len(self.launch.outs))])
        element = element_text(access, _indices(self.problem))
        lines.append(store_text(ref.dtype, address_text(base, element, ref.dtype), value))
        return Snippet(("m", "n", "first", "sums"), tuple(lines))


@dataclass(frozen=True)
class _Extra:
    """An epilogue operand: its number, its place among the program's arguments, where it lies."""

    operand: int
    argument: int
    access: Access
    base: str


def _load(intrinsic: str, masked: bool) -> Snippet:
    """16 bytes at an address; with `masked`, zeros unless `inside`."""
    text = f"{intrinsic}_or_zero(address, inside)" if masked else f"{intrinsic}(address)"
    return Snippet(("address", "inside"), (), text)


def _chosen(names: Sequence[str]) -> str:
    """The pointer of the result that this block computes: block y."""
    text = names[0]
    for place, name in enumerate(names[1:], 1):
        text = f"cuda.selp(cuda.blockIdx.y == {place}, {name}, {text})"
    return text


def _indices(problem: GemvProblem) -> list[str]:
    """The indices of result element (m, n), one for each dim."""
    texts: list[str] = []
    inner = problem.m
    for size in problem.row_shape:
        inner //= size
        texts.append("0" if size == 1 else "m" if size == problem.m else f"(m // {inner} % {size})")
    return [*texts, "n"]


@dataclass
class _Program:
    """The text of the row program: loads before and after the wait, and its statements.

    Args:
        early, late, body: Statements.
        totals: Sums that cross warps.
        given, words: Values that are loaded, and words of those that wait packed.
    """

    early: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    totals: int = 0
    given: int = 0
    words: int = 0


@dataclass(frozen=True)
class Share:
    """What a thread holds of the activations, for the row program.

    Args:
        rows: Rows, held side by side.
        chunks: Pieces of a row, of `vector` elements each.
        vector: Elements of a piece.
        stride: Elements between the pieces.
        exchange: Lane distances over which the lanes that share a row exchange.
        lines: Rows that the lanes of a warp hold in the same register.
        masked: Whether pieces may lie behind the end of the row.
    """

    rows: int
    chunks: int
    vector: int
    stride: int
    exchange: tuple[int, ...]
    lines: int
    masked: bool

    @property
    def elements(self) -> int:
        """Of one row."""
        return self.chunks * self.vector


def share_of(problem: GemvProblem, spec: Spec) -> Share:
    """The share of a thread in the template of `spec`."""
    chunks, vector = spec.chunks(problem), problem.vector
    if isinstance(spec, TilesSpec):
        masked = spec.steps(problem) * spec.parts * chunks * 32 != problem.k
        return Share(spec.slots(problem), chunks, vector, 32, (2, 1), 8, masked)
    masked = spec.parts * chunks * 32 * vector != problem.k
    return Share(problem.m, chunks, vector, 32 * vector, (16, 8, 4, 2, 1), 1, masked)


def _row_program(
    launch: Launch, problem: GemvProblem, spec: Spec, share: Share, rounding: Rounding
) -> _Program:
    """The prologue on registers: each thread has its share of every row in `a`, and leaves the result there."""
    if launch.prologue is None:
        return _Program()
    return _RowProgram(launch, launch.prologue, problem, spec, share, rounding).text()


class _RowProgram:
    """Walks the phases of a prologue.

    A value that does not vary along K is a local of its own, one for each row; one that does is an array of registers,
    or a local inside the loop over the thread's elements. A reduction combines the elements of a thread in order, then
    lanes by exchange, then the warps that share the row in order.
    """

    def __init__(
        self,
        launch: Launch,
        kernel: KernelOp,
        problem: GemvProblem,
        spec: Spec,
        share: Share,
        rounding: Rounding,
    ):
        self.launch, self.kernel, self.problem, self.spec, self.share = launch, kernel, problem, spec, share
        self.elements = share.elements
        self.rounding: Rounding = rounding
        self.program = _Program()
        self.body: list[str] = []
        self.rows = [ScalarText(rounding, f"row{m}_") for m in range(share.rows)]
        self.arrays: list[dict[SSAValue, str]] = [{} for _ in range(share.rows)]
        """Of each row: text of a value that varies, at element `e`."""
        self.packed: dict[BlockArgument, list[str]] = {}
        """Operands that lie packed in `words`: what unpacks them."""

    def text(self) -> _Program:
        """All of it."""
        for m in range(self.share.rows):
            self.arrays[m][self.kernel.body.block.args[0]] = f"a[{m * self.elements} + e]"
        for place, number in enumerate(self.problem.prologue, 1):
            self._operand(self.kernel.body.block.args[place], number)
        for number, phase in enumerate(self.kernel.phases):
            self._phase(number, phase)
        self.program.body = tuple(self.body)
        return self.program

    def _operand(self, argument: BlockArgument, number: int) -> None:
        """Loads what the program reads beside x: along K as wide as it lies, else one element.

        16-byte loads stay packed in `words` until the phase that uses them, so that they cost few registers meanwhile.
        """
        ref = self.launch.ins[number]
        access = access_of(self.kernel.in_maps[argument.index], ref.strides, ref.dtype)
        rows, step = access.strides[:-1], access.strides[-1]
        shared = not any(rows)
        lines: list[str] = []
        first = self.program.given
        indices = [*product(*map(range, self.problem.row_shape))]
        for m in range(self.share.rows):
            index = indices[m]
            if m == 0 or not shared:
                first = self.program.given
                self.program.given += self.elements if step else 1
                start = access.offset + sum(i * s for i, s in zip(index, rows, strict=True))
                loads, unpacking = self._loads(first, f"in{number}", ref, start, step)
                lines += loads
                self.packed.setdefault(argument, []).extend(unpacking)
            if step:
                self.arrays[m][argument] = f"given[{first} + e]"
            else:
                self.rows[m].names[argument] = f"given[{first}]"
        if number in self.spec.early:
            self.program.early += tuple(lines)
        else:
            self.program.late += tuple(lines)

    def _loads(
        self, first: int, base: str, ref: BufferRef, start: int, step: int
    ) -> tuple[list[str], list[str]]:
        """Loads of the thread's elements, element 0 of the row at `start`; and what fills `given` from `first` on."""
        size, vector = ELEMENT_BYTES[ref.dtype], self.problem.vector
        if step == 0:
            return [f"given[{first}] = {load_text(ref.dtype, f'{base} + u64({start * size})')}"], []
        count = vector * size // 4
        if step == 1 and count % 4 == 0 and (ref.offset + start * size) % 16 == 0:
            return self._wide_loads(first, base, ref, start)
        k = f"min(k0 + i32(e // {vector} * {self.share.stride} + e % {vector}), i32({self.problem.k - 1}))"
        address = f"{base} + u64({k}) * u64({step * size}) + u64({start * size})"
        line = f"    given[{first} + e] = {load_text(ref.dtype, address)}"
        return [f"for e in unrolled({self.elements}):", line], []

    def _wide_loads(self, first: int, base: str, ref: BufferRef, start: int) -> tuple[list[str], list[str]]:
        size, vector = ELEMENT_BYTES[ref.dtype], self.problem.vector
        count = vector * size // 4
        load, guard = ("load_u32x4_or_zero", ", inside[j]") if self.share.masked else ("load_u32x4", "")
        word = self.program.words
        self.program.words += self.share.chunks * count
        address = (
            f"{base} + u64(k0) * u64({size}) + u64({start * size} + j * {self.share.stride * size} + c * 4)"
        )
        loads = [
            f"for j in unrolled({self.share.chunks}):",
            f"    for c in unrolled(0, {count}, 4):",
            f"        words[{word} + j * {count} + c : {word + 4} + j * {count} + c] = {load}({address}{guard})",
        ]
        at, each = f"{first} + i * {4 // size}", 4 // size
        values = _UNPACK[ref.dtype].result.replace("word", f"words[{word} + i]")
        return loads, [
            f"for i in unrolled({self.share.chunks * count}):",
            f"    given[{at} : {at} + {each}] = {values}",
        ]

    def _phase(self, number: int, phase: PhaseOp) -> None:
        for argument in [a for a in self.packed if any(use.operation.parent_op() is phase for use in a.uses)]:
            self.body += self.packed.pop(argument)
        reduces = [op for op in phase.body.block.ops if isinstance(op, ReduceOp)]
        sums = {op: [f"sum{number}_{i}_{m}" for m in range(self.share.rows)] for i, op in enumerate(reduces)}
        for m in range(self.share.rows):
            self._invariant(m, phase)
            if self.kernel.sweeps_reduce_space(phase):
                self._sweep(number, m, phase, {op: names[m] for op, names in sums.items()})
        self._combine(sums)
        for result, value in zip(phase.results, phase.terminator.operands, strict=True):
            for m, row in enumerate(self.rows):
                if isinstance(value.owner, ReduceOp):
                    row.names[result] = sums[value.owner][m]
                elif value in self.arrays[m]:
                    self.arrays[m][result] = self.arrays[m][value]
                else:
                    row.names[result] = row.names[value]

    def _invariant(self, m: int, phase: PhaseOp) -> None:
        """Ops of values that are one for the whole row."""
        row = self.rows[m]
        for op in phase.body.block.ops:
            if not isinstance(op, ReduceOp | StoreOp | YieldOp) and not self.kernel.varies(op.results[0]):
                row.emit(op)
        self.body += row.lines
        row.lines.clear()

    def _sweep(self, number: int, m: int, phase: PhaseOp, sums: dict[ReduceOp, str]) -> None:
        """The loop over the elements of a thread."""
        kept = [value for value in phase.terminator.operands if self.kernel.varies(value)]
        names = {value: f"kept{number}_{i}_{m}" for i, value in enumerate(kept)}
        for name in names.values():
            self.body.append(f"{name} = registers({self.elements}, f32(0.0))")
        for op, name in sums.items():
            self.body.append(
                f"{name}_chains = registers({_CHAINS}, {identity_text(op.combine.data, dtype_of(op.value))})"
            )
        text = ScalarText(self.rounding, f"at{number}_{m}_")
        text.names |= self.rows[m].names
        text.names |= {value: array for value, array in self.arrays[m].items()}
        stored: list[str] = []
        for op in phase.body.block.ops:
            match op:
                case ReduceOp():
                    dtype = dtype_of(op.value)
                    value = self._inside(text.names[op.value], identity_text(op.combine.data, dtype))
                    chain = f"{sums[op]}_chains[e % {_CHAINS}]"
                    text.lines.append(f"{chain} = {combine_text(op.combine.data, dtype, chain, value)}")
                case StoreOp():
                    value = self._inside(text.names[op.value], "f32(0.0)")
                    stored.append(f"a[{m * self.elements} + e] = {value}")
                case YieldOp():
                    continue
                case _:
                    if self.kernel.varies(op.results[0]):
                        text.emit(op)
        keeps = [f"{name}[e] = {text.names[value]}" for value, name in names.items()]
        self.body.append(f"for e in unrolled({self.elements}):")
        self.body += [f"    {line}" for line in (*text.lines, *keeps, *stored)]
        self.arrays[m] |= {value: f"{name}[e]" for value, name in names.items()}
        for op, name in sums.items():
            chains = [f"{name}_chains[{i}]" for i in range(_CHAINS)]
            while len(chains) > 1:
                pairs = zip(chains[::2], chains[1::2], strict=True)
                chains = [combine_text(op.combine.data, dtype_of(op.value), a, b) for a, b in pairs]
            self.body.append(f"{name} = {chains[0]}")

    def _inside(self, value: str, outside: str) -> str:
        """The value where the row has an element, else `outside`."""
        if not self.share.masked:
            return value
        return f"cuda.selp(inside[e // {self.problem.vector}] != i32(0), {value}, {outside})"

    def _combine(self, sums: dict[ReduceOp, list[str]]) -> None:
        """The sums of all threads that share a row, in every one of them."""
        parts, groups = self.spec.parts, self.spec.groups
        ordered = [(op, name) for op, names in sums.items() for name in names]
        for op, name in ordered:
            dtype = dtype_of(op.value)
            for distance in self.share.exchange:
                other = f"cuda.shfl_xor_sync(ALL_LANES, {name}, {distance})"
                self.body.append(f"{name} = {combine_text(op.combine.data, dtype, name, other)}")
        if parts == 1 or not ordered:
            return
        lines = self.share.lines
        writer, line = ("lane == i32(0)", "") if lines == 1 else ("(lane & i32(3)) == i32(0)", " + line")
        first = self.program.totals
        self.program.totals += len(ordered)
        self.body.append(f"if {writer}:")
        for slot, (_, name) in enumerate(ordered, first):
            at = f"i32({slot * groups * parts * lines}) + (group * i32({parts}) + part) * i32({lines}){line}"
            self.body.append(f"    totals[{at}] = {name}")
        self.body.append("cuda.syncthreads()")
        for slot, (op, name) in enumerate(ordered, first):
            at = f"i32({slot * groups * parts * lines}) + group * i32({parts * lines}){line}"
            value = f"totals[{at} + i32(s * {lines})]"
            self.body += [
                f"{name} = totals[{at}]",
                f"for s in unrolled(1, {parts}):",
                f"    {name} = {combine_text(op.combine.data, dtype_of(op.value), name, value)}",
            ]
