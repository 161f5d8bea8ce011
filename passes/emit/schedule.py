"""`schedule`: fixes the order of instructions, their streams, and every happens-before edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from aicf.backends.base import CachingBackend, ConcurrentBackend
from aicf.backends.registry import get_backend
from aicf.dialects.emit import PREPARE, BindOp, EdgeAttr, ProgramOp, ResolvedOp, SlotOp
from aicf.dialects.emit_constraints import keeps_its_place, stream_group
from aicf.dialects.emit_types import TargetAttr
from aicf.errors import PlanError
from aicf.passes.analysis.accesses import Access, accesses_of
from aicf.passes.analysis.hazards import Hazards
from aicf.passes.analysis.programmatic_launch import may_start_early
from aicf.passes.bodies.workload import TARGET_ATTR
from aicf.passes.emit.reorder import footprint, move
from aicf.passes.emit.reuse import memory_bytes, reuse_order
from aicf.passes.emit.stream_prices import Step, predicted_us
from aicf.passes.support.identity import part_of
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import execution_of
from aicf.passes.support.programs import advance, programs
from aicf.passes.support.works_on import until_phase
from aicf.policies.execution_policy import ExecutionPolicy

MOST_STREAMS = 4
"""Of those whose number is left to the predicted times."""

FEWER = 0.95
"""An order by reuse must bring the bytes from memory below this part of those of the text order."""

GAIN = 0.98
"""Another stream must bring the predicted time below this part of what it is without."""


@dataclass(frozen=True)
class SchedulePass(ModulePass):
    """Orders the instructions, assigns streams and writes `after`.

    The text order stays, except on a device that runs instructions one after the other through a cache. There, and on
    one stream, the next instruction is the one most of whose operands are still in the cache, if a model of the cache
    says that so clearly fewer bytes come from memory. `order: text` in the policy keeps the text order.

    A step in micro-batches keeps the text order on one stream, unless the policy gives it more: they share memory.

    Constraints hold in any case: an instruction with `no_reorder` follows all that come before it in the text, and all
    after it follow it, by full edges; instructions with the same name in `same_stream` run on one stream.

    With one stream every instruction waits for the one before it. With more, an instruction follows a predecessor on
    the stream that one ended, or opens another stream; edges are those that read-after-write, write-after-read and
    write-after-write need and that others do not imply. A program whose instructions all state streams keeps them.

    The policy says how many streams there may be, or leaves it to the predicted times of the instructions: on a device
    that runs independent ones side by side, as many as make the whole program faster.

    An only edge is programmatic where both kernels allow it: the successor starts early, reads what is never written
    (its weights), and waits inside for the rest.
    """

    name = "schedule"
    works_on = until_phase("scheduled")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        execution = execution_of(op)
        execution.check_programs([program.sym_name.data for program in programs(op)])
        for program in programs(op):
            if advance(program, "bufferized", "scheduled"):
                _schedule(op, program, execution)


def _schedule(module: ModuleOp, program: ProgramOp, execution: ExecutionPolicy) -> None:
    instructions = program.instructions
    if instructions and all(op.stream is not None for op in instructions):
        record_decision(
            module,
            SchedulePass.name,
            [program.sym_name.data],
            "as written",
            "every instruction states its stream",
        )
        return
    _check_unstated(instructions)
    streams = execution.streams_for(program.sym_name.data)
    order, in_parts = "text order", any(part_of(op.instruction.data) for op in instructions)
    if execution.order == "reuse" and streams <= 1 and not in_parts and _order_by_reuse(module, program):
        instructions, order = program.instructions, "order of reuse"
    steps = [_Instruction.of(op) for op in instructions]
    if streams:
        planner, allowed = _placed(steps, streams), f"the policy allows {_counted(streams)}"
    elif in_parts:
        planner, allowed = _placed(steps, 1), "a micro-batch takes the memory of the one before"
    else:
        planner, allowed = _fastest(module, instructions, steps)
    written = frozenset(a.region.root for step in steps for a in step.accesses if a.writes)
    planner.write(instructions, written)
    used = max(planner.stream, default=0) + 1
    edges = sum(len(op.after) for op in instructions)
    early = sum(edge.kind.data == "programmatic" for op in instructions for edge in op.after)
    choice = f"{len(instructions)} instructions in {order} on {_counted(used)}"
    kinds = f", {early} of them programmatic," if early else ""
    because = f"{edges} edges{kinds} order every conflicting pair; {allowed}"
    record_decision(module, SchedulePass.name, [program.sym_name.data], choice, because)


def _order_by_reuse(module: ModuleOp, program: ProgramOp) -> bool:
    """Moves the instructions of a program where that keeps more of what they read in the cache; whether it did."""
    capacity = _cache_bytes(module)
    if capacity is None or program.sym_name.data == PREPARE or _placed_by_hand(program):
        return False
    instructions = program.instructions
    planned = [_Instruction.of(op) for op in instructions]
    steps = [footprint(each.accesses) for each in planned]
    in_text = memory_bytes(steps, capacity)
    if memory_bytes(steps, inf) >= FEWER * in_text:
        return False
    order = reuse_order(steps, _conflicts(planned), capacity)
    by_reuse = memory_bytes([steps[position] for position in order], capacity)
    if by_reuse >= FEWER * in_text:
        return False
    move(module, program, [instructions[position] for position in order])
    because = f"{by_reuse} bytes come from memory, {in_text} in text order"
    record_decision(module, SchedulePass.name, [program.sym_name.data], "order by reuse", because)
    return True


def _cache_bytes(module: ModuleOp) -> int | None:
    """Bytes of the cache through which instructions run one after the other; None on other devices."""
    target = module.attributes.get(TARGET_ATTR)
    backend = get_backend(target.backend.data) if isinstance(target, TargetAttr) else None
    return backend.cache_bytes if isinstance(backend, CachingBackend) else None


def _placed_by_hand(program: ProgramOp) -> bool:
    """Whether slots have offsets already: then two of them may share bytes, which only the text order keeps right."""
    return any(isinstance(op, SlotOp) and op.offset is not None for op in program.body.block.ops)


@dataclass(frozen=True)
class _Instruction:
    """What the order of an instruction follows from: what it touches, and its constraints.

    Args:
        accesses: Of its operands and workspace.
        keeps_its_place: Whether it is ordered with all others.
        group: Instructions of one name run on one stream; None for no group.
    """

    accesses: tuple[Access, ...]
    keeps_its_place: bool
    group: str | None

    @classmethod
    def of(cls, op: ResolvedOp) -> _Instruction:
        """That of an instruction."""
        constraints = op.constraints.data
        return cls(tuple(accesses_of(op)), keeps_its_place(constraints), stream_group(constraints))


@dataclass
class _Predecessors:
    """Which earlier instructions each one has to wait for, by what they touch and by constraints.

    Args:
        hazards: What the instructions so far touch.
        count: How many there were so far.
        kept: The last one that keeps its place; None if none did.
    """

    hazards: Hazards = field(default_factory=Hazards)
    count: int = 0
    kept: int | None = None

    def of_next(self, step: _Instruction) -> set[int]:
        """Those of the next instruction, which counts from now on."""
        needed = self.hazards.of(step.accesses)
        if self.kept is not None:
            needed.add(self.kept)
        if step.keeps_its_place:
            needed.update(range(self.kept or 0, self.count))
            self.kept = self.count
        self.hazards.note(step.accesses, self.count)
        self.count += 1
        return needed


def _conflicts(steps: Sequence[_Instruction]) -> list[set[int]]:
    """The earlier positions that each instruction has to wait for."""
    predecessors = _Predecessors()
    return [predecessors.of_next(step) for step in steps]


def _check_unstated(instructions: Sequence[ResolvedOp]) -> None:
    """Raises PlanError if some instructions state their stream: their edges may need others that are not there yet."""
    stated = next((op for op in instructions if op.stream is not None), None)
    open_ = next((op for op in instructions if op.stream is None), None)
    if stated is not None and open_ is not None:
        raise PlanError(
            f"'{stated.instruction.data}' states its stream, '{open_.instruction.data}' does not: state stream and "
            "edges of all instructions, or of none"
        )


def _counted(streams: int) -> str:
    return f"{streams} stream{'s' if streams > 1 else ''}"


def _fastest(
    module: ModuleOp, instructions: Sequence[ResolvedOp], steps: Sequence[_Instruction]
) -> tuple[_Planner, str]:
    """The plan with as many streams as pay, and why."""
    one = _placed(steps, 1)
    target = module.attributes.get(TARGET_ATTR)
    backend = get_backend(target.backend.data) if isinstance(target, TargetAttr) else None
    if not isinstance(target, TargetAttr) or not isinstance(backend, ConcurrentBackend):
        return one, "instructions run one after the other"
    if any(_expected_us(op) is None for op in instructions):
        return one, "not every instruction has a predicted time"
    shares = [0.0 if op.kernel is None else backend.device_share(op.kernel, target) for op in instructions]
    times = [_expected_us(op) or 0.0 for op in instructions]
    best, best_us = one, predicted_us(one.steps(times, shares), backend.join_us)
    tried = {1: best_us}
    for streams in range(2, MOST_STREAMS + 1):
        plan = _placed(steps, streams)
        if max(plan.stream, default=0) + 1 < streams:
            break
        tried[streams] = predicted_us(plan.steps(times, shares), backend.join_us)
        if tried[streams] < GAIN * best_us:
            best, best_us = plan, tried[streams]
    if len(tried) == 1:
        return best, "no two instructions are independent"
    return best, "predicted " + ", ".join(f"{us:.1f} us on {_counted(count)}" for count, us in tried.items())


def _expected_us(op: ResolvedOp) -> float | None:
    return None if op.expected_us is None else op.expected_us.value.data


def _placed(steps: Sequence[_Instruction], streams: int) -> _Planner:
    planner = _Planner(streams)
    for step in steps:
        planner.place(step)
    return planner


@dataclass
class _Planner:
    """Streams and edges, instruction by instruction.

    Args:
        streams: Most streams.
        stream, after: What is decided for each instruction so far: its stream, and the positions that it waits for.
        predecessors: What each instruction has to wait for.
        closure: Of each instruction, as bits, all that end before it starts.
        ends: The last instruction of each stream.
        groups: The stream of each group of instructions that share one.
    """

    streams: int
    stream: list[int] = field(default_factory=list[int])
    after: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    predecessors: _Predecessors = field(default_factory=_Predecessors)
    closure: list[int] = field(default_factory=list[int])
    ends: dict[int, int] = field(default_factory=dict[int, int])
    groups: dict[str, int] = field(default_factory=dict[str, int])

    def place(self, step: _Instruction) -> None:
        """Decides stream and edges of the next instruction."""
        needed = self.predecessors.of_next(step)
        stream = self._stream(needed) if step.group not in self.groups else self.groups[step.group]
        if step.group is not None:
            self.groups[step.group] = stream
        if stream in self.ends:
            needed.add(self.ends[stream])
        edges = self._irredundant(needed)
        position = len(self.stream)
        mask = 0
        for source in edges:
            mask |= self.closure[source] | 1 << source
        self.closure.append(mask)
        self.ends[stream] = position
        self.stream.append(stream)
        self.after.append(tuple(edges))

    def steps(self, times: Sequence[float], shares: Sequence[float]) -> list[Step]:
        """The plan as `predicted_us` reads it; `times` in microseconds, of each instruction alone."""
        return [Step(*step) for step in zip(times, shares, self.stream, self.after, strict=True)]

    def write(self, instructions: Sequence[ResolvedOp], written: frozenset[BindOp | SlotOp]) -> None:
        """Puts the plan into the program; `written`: what the program writes."""
        for op, stream, after in zip(instructions, self.stream, self.after, strict=True):
            sources = [instructions[position] for position in after]
            op.properties["stream"] = IntegerAttr(stream, i64)
            op.properties["after"] = ArrayAttr([_edge(op, source, len(after), written) for source in sources])

    def _stream(self, needed: set[int]) -> int:
        """The stream that ends with a predecessor, else a free number, else the one that ended first."""
        following = [stream for stream, end in self.ends.items() if end in needed]
        if following:
            return min(following)
        if not needed and not self.ends:
            return 0
        if len(self.ends) < self.streams:
            return len(self.ends)
        return min(self.ends, key=lambda stream: self.ends[stream])

    def _irredundant(self, needed: set[int]) -> list[int]:
        """The sources that no other source already waits for."""
        implied = 0
        kept: list[int] = []
        for source in sorted(needed, reverse=True):
            if not implied >> source & 1:
                kept.append(source)
                implied |= self.closure[source] | 1 << source
        return sorted(kept)


def _edge(op: ResolvedOp, source: ResolvedOp, count: int, written: frozenset[BindOp | SlotOp]) -> EdgeAttr:
    """A programmatic edge if it is the only one, both kernels allow it and neither keeps its place, else a full one."""
    is_kept = any(keeps_its_place(each.constraints.data) for each in (op, source))
    early = count == 1 and not is_kept and may_start_early(op, source, written)
    return EdgeAttr(source.instruction.data, "programmatic" if early else "full")
