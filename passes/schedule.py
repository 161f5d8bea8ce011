"""`schedule`: fixes the order of instructions, their streams, and every happens-before edge."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from aicf.dialects.emit import BindOp, EdgeAttr, ProgramOp, ResolvedOp, SlotOp
from aicf.passes.analysis.accesses import accesses_of, written_roots
from aicf.passes.support.early_start import may_start_early
from aicf.passes.support.ledger import record
from aicf.passes.support.policy import policy_of
from aicf.passes.support.programs import advance, programs


@dataclass(frozen=True)
class SchedulePass(ModulePass):
    """Keeps the text order, assigns streams and writes `after`.

    With one stream every instruction waits for the one before it. With more, an instruction follows a predecessor on
    the stream that one ended, or opens another stream; edges are those that read-after-write, write-after-read and
    write-after-write need and that others do not imply. An instruction that has a stream keeps stream and edges.

    An only edge is programmatic where both kernels allow it: the successor starts early, reads what is never written
    (its weights), and waits inside for the rest.
    """

    name = "schedule"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        streams = policy_of(op).streams
        for program in programs(op):
            if advance(program, "bufferized", "scheduled"):
                _schedule(op, program, streams)


def _schedule(module: ModuleOp, program: ProgramOp, streams: int) -> None:
    instructions = program.instructions
    if instructions and all(op.stream is not None for op in instructions):
        record(
            module,
            SchedulePass.name,
            [program.sym_name.data],
            "as written",
            "every instruction states its stream",
        )
        return
    planner = _Planner(streams, written_roots(program))
    for op in instructions:
        planner.place(op)
    used = max((op.stream.value.data for op in instructions if op.stream is not None), default=0) + 1
    edges = sum(len(op.after) for op in instructions)
    early = sum(edge.kind.data == "programmatic" for op in instructions for edge in op.after)
    choice = f"{len(instructions)} instructions in text order on {used} stream{'s' if used > 1 else ''}"
    allowed = f"{streams} stream{'s' if streams > 1 else ''}"
    kinds = f", {early} of them programmatic," if early else ""
    because = f"{edges} edges{kinds} order every conflicting pair; the policy allows {allowed}"
    record(module, SchedulePass.name, [program.sym_name.data], choice, because)


@dataclass
class _Planner:
    """Hazards and stream ends, instruction by instruction."""

    streams: int
    written: frozenset[BindOp | SlotOp] = frozenset()
    writer: dict[BindOp | SlotOp, int] = field(default_factory=dict[BindOp | SlotOp, int])
    readers: dict[BindOp | SlotOp, list[int]] = field(default_factory=dict[BindOp | SlotOp, list[int]])
    placed: list[ResolvedOp] = field(default_factory=list[ResolvedOp])
    closure: list[int] = field(default_factory=list[int])
    ends: dict[int, int] = field(default_factory=dict[int, int])

    def place(self, op: ResolvedOp) -> None:
        """Gives `op` its stream and edges."""
        needed = self._hazards(op)
        stream = self._stream(needed)
        if stream in self.ends:
            needed.add(self.ends[stream])
        edges = self._irredundant(needed)
        place = len(self.placed)
        self.placed.append(op)
        mask = 0
        for source in edges:
            mask |= self.closure[source] | 1 << source
        self.closure.append(mask)
        self.ends[stream] = place
        self._note(op, place)
        op.properties["stream"] = IntegerAttr(stream, i64)
        op.properties["after"] = ArrayAttr(
            [self._edge(op, self.placed[source], len(edges)) for source in edges]
        )

    def _edge(self, op: ResolvedOp, source: ResolvedOp, count: int) -> EdgeAttr:
        """A programmatic edge if it is the only one and both kernels allow it, else a full one."""
        early = count == 1 and may_start_early(op, source, self.written)
        return EdgeAttr(source.instruction.data, "programmatic" if early else "full")

    def _hazards(self, op: ResolvedOp) -> set[int]:
        needed: set[int] = set()
        for access in accesses_of(op):
            root = access.region.root
            if root in self.writer:
                needed.add(self.writer[root])
            if access.writes:
                needed.update(self.readers.get(root, ()))
        return needed

    def _note(self, op: ResolvedOp, place: int) -> None:
        for access in accesses_of(op):
            root = access.region.root
            if access.writes:
                self.writer[root] = place
                self.readers[root] = []
            else:
                self.readers.setdefault(root, []).append(place)

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
