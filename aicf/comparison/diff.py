"""Two compiled programs compared decision by decision: groups, kernels, records, order, memory, and what follows.

Plain data and plain text. Instructions are matched by the ops they compute, so that a group that came apart is one
difference and not several. What the decisions were based on is in the ledgers, which are not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import cast

from xdsl.dialects.builtin import ModuleOp

from aicf.compilation.saved_program import SavedProgram
from aicf.dialects.emit import BodyOp, ResolvedOp
from aicf.errors import InputMismatch
from aicf.inspection.explain import moved_bytes, wrapped
from aicf.passes.emit.read_decisions import members_by_instruction
from aicf.passes.support.identity import op_id, sources
from aicf.passes.support.policy import without_bucket
from aicf.runtime.capture_plan import CapturePlan, Launch, OperandRef
from aicf.runtime.graph import Node
from aicf.runtime.plan_from_ir import programs_of
from aicf.support.arguments import instance_from

ONLY_IN_ONE = "only in one"
"""What kind of difference it is if one of the programs has nothing of the kind."""


@dataclass(frozen=True)
class Difference:
    """One decision that differs.

    Args:
        kind: `fusion lost`, `fusion gained`, `regrouped`, `kernel`, `record`, `stream`, `edges`, `in place`,
            `binding`, `save`, `only in one`, `target`.
        program: The program it is in; empty for the whole module.
        subject: The instruction, bind or value that it is about.
        before, after: What it is in the first and in the second program, empty where it is not.
        entries: Entry of the kernel record to its two values, where records differ.
    """

    kind: str
    program: str
    subject: str
    before: str
    after: str
    entries: Mapping[str, tuple[object, object]] = field(default_factory=dict[str, tuple[object, object]])

    def lines(self) -> list[str]:
        """The difference in words, in lines that fit a screen, and one for each entry of a record that differs.

        Long lists of names are cut, and ids have no bucket, which the name of the program has.
        """
        before, after = (_shortened(side) or "none" for side in (self.before, self.after))
        text = f"{self.kind} of {self.subject}: {before} -> {after}"
        if self.kind == ONLY_IN_ONE:
            one = (
                f"the first: {self.subject}, {before}"
                if self.before
                else f"the second: {self.subject}, {after}"
            )
            text = f"only in {one}"
        bucket = "@" + self.program.partition("@")[2]
        lines = wrapped(text.replace(bucket, "") if len(bucket) > 1 else text, "")
        for name, (a, b) in self.entries.items():
            for path, x, y in _differing(name, a, b):
                lines += wrapped(f"{path}: {_cut(x)} -> {_cut(y)}", "  ")
        return lines


_MOST_NAMES, _MOST_INSTRUCTIONS, _MOST_LETTERS = 6, 4, 200
_NAME, _INSTRUCTION = " + ", " | "
"""What stands between the names of an instruction, and between instructions."""


def _shortened(side: str) -> str:
    """One side of a difference with only the first names and instructions."""
    instructions = [_first_names(part) for part in side.split(_INSTRUCTION)]
    return _INSTRUCTION.join(_first(instructions, _MOST_INSTRUCTIONS))


def _first_names(instruction: str) -> str:
    names, by, kernel = instruction.partition(" by ")
    return _NAME.join(_first(names.split(_NAME), _MOST_NAMES)) + by + kernel


def _first(parts: Sequence[str], most: int) -> list[str]:
    more = len(parts) - most
    return [*parts[:most], *([f"{more} more"] if more > 0 else [])]


def _differing(path: str, a: object, b: object) -> Iterator[tuple[str, object, object]]:
    """The parts of an entry that differ: of a dictionary only those keys."""
    if not (isinstance(a, dict) and isinstance(b, dict)):
        yield path, a, b
        return
    first, second = cast(dict[str, object], a), cast(dict[str, object], b)
    for key in dict.fromkeys([*first, *second]):
        if first.get(key) != second.get(key):
            yield from _differing(f"{path}.{key}", first.get(key), second.get(key))


def _cut(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]} ..."


@dataclass(frozen=True)
class Figures:
    """What the decisions of a program add up to; microseconds as measured or predicted when it was compiled."""

    instructions: int
    bytes_moved: int
    arena_bytes: int
    streams: int
    edges: int
    predicted_us: float


FIGURE_NAMES = {
    "instructions": "instructions",
    "bytes_moved": "bytes moved",
    "arena_bytes": "arena bytes",
    "streams": "streams",
    "edges": "edges",
    "predicted_us": "predicted us",
}


@dataclass(frozen=True)
class Comparison:
    """What differs between two compiled programs; `str()` is plain text.

    Args:
        differences: Every decision that differs, in program order.
        figures: Of each program that both have: the figures of the first and of the second.
    """

    before: str
    after: str
    differences: tuple[Difference, ...]
    figures: Mapping[str, tuple[Figures, Figures]]

    @property
    def is_equal(self) -> bool:
        """Whether every decision and every figure is the same."""
        return not self.differences and all(a == b for a, b in self.figures.values())

    def to_json_value(self) -> dict[str, object]:
        """JSON values: `equal`, `differences`, and `figures` as pairs by program."""
        return {
            "equal": self.is_equal,
            "differences": [asdict(difference) for difference in self.differences],
            "figures": {name: [asdict(a), asdict(b)] for name, (a, b) in self.figures.items()},
        }

    def __str__(self) -> str:
        if self.is_equal:
            count = sum(a.instructions for a, _ in self.figures.values())
            return f"{self.before} and {self.after}: the same decisions, {count} instructions"
        blocks = [f"{self.before} -> {self.after}"]
        for program in dict.fromkeys([*(d.program for d in self.differences), *self.figures]):
            found = [line for d in self.differences if d.program == program for line in d.lines()]
            found += _figure_lines(*self.figures[program]) if program in self.figures else []
            if found:
                blocks.append("\n".join([f"@{program}" if program else "module", *(f"  {x}" for x in found)]))
        return "\n\n".join(blocks)


def _figure_lines(before: Figures, after: Figures) -> list[str]:
    a, b = asdict(before), asdict(after)
    return [
        f"{title}: {_number(a[name])} -> {_number(b[name])}"
        for name, title in FIGURE_NAMES.items()
        if a[name] != b[name]
    ]


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


# One instruction, as it is compared


@dataclass(frozen=True)
class _Instruction:
    """One instruction with what was decided about it.

    Args:
        members: Ids of the ops it computes.
        names: What it computes, in order: ops of the model, or the parts of one that several instructions compute.
    """

    node: Node
    launch: Launch
    members: frozenset[str]
    names: tuple[str, ...]
    us: float

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def edges(self) -> str:
        return ", ".join(f"{edge.source} {edge.kind}" for edge in self.node.after)

    @property
    def in_place(self) -> str:
        """Which results lie where an operand lies."""
        launch = self.launch
        pairs = (
            f"result {result} on operand {operand}"
            for result, out in enumerate(launch.outs)
            for operand, ref in enumerate(launch.ins)
            if _start(out) == _start(ref)
        )
        return ", ".join(pairs)

    @property
    def record(self) -> dict[str, object]:
        """The kernel record, with the layouts of the operands that it wants packed ahead."""
        layouts = {f"operand {n}": p.layout for n, p in enumerate(self.launch.ins) if p.layout}
        return {**self.launch.record, **layouts}


def _start(operand: OperandRef) -> tuple[int, int]:
    return operand.base, operand.offset


_ASPECTS: Mapping[str, Callable[[_Instruction], str]] = {
    "stream": lambda instruction: str(instruction.launch.stream),
    "edges": lambda instruction: instruction.edges,
    "in place": lambda instruction: instruction.in_place,
}
"""What else is decided about an instruction, beside its group and its kernel."""


def _instructions(saved: SavedProgram) -> dict[str, list[_Instruction]]:
    """The instructions of each program, in text order."""
    members, origins = members_by_instruction(saved.module), _origins(saved.module)
    plans = {plan.name: plan for plan in saved.plan.all_programs}
    found: dict[str, list[_Instruction]] = {}
    for program in programs_of(saved.module):
        name = program.sym_name.data
        rows = zip(plans[name].graph.nodes, plans[name].launches, program.instructions, strict=True)
        uses = Counter(
            source
            for op in program.instructions
            for source in {source for member in members[op] for source in origins[member]}
        )
        found[name] = [
            # What moves data and computes nothing is known by its name.
            _Instruction(
                node,
                launch,
                frozenset(members[op]) or frozenset([f"@{node.name}"]),
                _names(members[op], origins, uses) or (without_bucket(node.name),),
                _us(op),
            )
            for node, launch, op in rows
        ]
    return found


def _origins(module: ModuleOp) -> dict[str, tuple[str, ...]]:
    """The ops of the model that each op of a body stands for, by id."""
    inside = (op for body in module.walk() if isinstance(body, BodyOp) for op in body.body.block.ops)
    return {identity: sources(op) for op in inside if (identity := op_id(op)) is not None}


def _names(
    members: Sequence[str], origins: Mapping[str, Sequence[str]], uses: Mapping[str, int]
) -> tuple[str, ...]:
    """An op of the model where one instruction is all of it, else the part."""
    names: dict[str, None] = {}
    for member in members:
        whole = [source for source in origins[member] if uses[source] == 1]
        is_whole = bool(whole) and len(whole) == len(origins[member])
        names |= dict.fromkeys(whole if is_whole else [without_bucket(member)])
    return tuple(names)


def _us(op: ResolvedOp) -> float:
    return 0.0 if op.expected_us is None else op.expected_us.value.data


# Comparing


def compare(before: SavedProgram, after: SavedProgram) -> Comparison:
    """Compares two compiled programs. Raises InputMismatch for what is none."""
    for what, program in (("the first program", before), ("the second program", after)):
        instance_from(
            program,
            SavedProgram,
            InputMismatch,
            what,
            "what aicf.compilation.saved_program.read_saved_program returns",
        )
    ours, theirs = _instructions(before), _instructions(after)
    plans = [{plan.name: plan for plan in saved.plan.all_programs} for saved in (before, after)]
    both = [name for name in ours if name in theirs]
    found = [*_targets(before, after), *_saves(before, after)]
    found += [Difference(ONLY_IN_ONE, "", f"@{name}", "a program", "") for name in ours if name not in theirs]
    found += [Difference(ONLY_IN_ONE, "", f"@{name}", "", "a program") for name in theirs if name not in ours]
    for name in both:
        for part in _components(ours[name], theirs[name]):
            found += _of_component(name, part)
        found += _bindings(name, plans[0][name], plans[1][name])
    figures = {
        name: (_figures(plans[0][name], ours[name]), _figures(plans[1][name], theirs[name])) for name in both
    }
    return Comparison(before.path, after.path, tuple(found), figures)


def _targets(before: SavedProgram, after: SavedProgram) -> Iterator[Difference]:
    for name in ("backend", "arch", "threads"):
        a, b = (str(getattr(saved.plan, name)) for saved in (before, after))
        if a != b:
            yield Difference("target", "", name, a, b)


def _saves(before: SavedProgram, after: SavedProgram) -> Iterator[Difference]:
    """What a training step keeps for its backward part in one of the programs only."""
    a, b = (saved.policy.execution.saves for saved in (before, after))
    for name in dict.fromkeys([*a, *b]):
        if a.get(name) != b.get(name):
            yield Difference("save", "", name, a.get(name, ""), b.get(name, ""))


@dataclass
class _Component:
    """Instructions of both programs that compute ops in common, directly or through others; `ops` are all of these."""

    first: int
    before: list[_Instruction]
    after: list[_Instruction]
    ops: set[str]

    def take(self, other: _Component) -> None:
        self.first = min(self.first, other.first)
        self.before = other.before + self.before
        self.after = other.after + self.after
        self.ops |= other.ops

    @property
    def kind(self) -> str:
        """What kind of difference it is if the groups are not the same."""
        before, after = len(self.before), len(self.after)
        if not before or not after:
            return ONLY_IN_ONE
        if after > before == 1:
            return "fusion lost"
        if before > after == 1:
            return "fusion gained"
        return "regrouped"


def _components(before: Sequence[_Instruction], after: Sequence[_Instruction]) -> list[_Component]:
    """The instructions of both programs, taken together as far as they compute an op in common; in program order."""
    of: dict[str, _Component] = {}
    for index, instruction in enumerate(before):
        own = _Component(index, [instruction], [], set(instruction.members))
        of |= dict.fromkeys(own.ops, own)
    for index, instruction in enumerate(after, len(before)):
        own = _Component(index, [], [instruction], set(instruction.members))
        overlapping = {part.first: part for op in instruction.members if (part := of.get(op)) is not None}
        for part in sorted(overlapping.values(), key=lambda part: -part.first):
            own.take(part)
        of |= dict.fromkeys(own.ops, own)
    return sorted({id(part): part for part in of.values()}.values(), key=lambda part: part.first)


def _of_component(program: str, part: _Component) -> Iterator[Difference]:
    before, after = part.before, part.after
    if len(before) == len(after) == 1 and before[0].members == after[0].members:
        yield from _of_pair(program, before[0], after[0])
        return
    a, b = (_INSTRUCTION.join(_described(each) for each in side) for side in (before, after))
    yield Difference(part.kind, program, (before or after)[0].name, a, b)


def _described(instruction: _Instruction) -> str:
    return f"{_NAME.join(instruction.names)} by {instruction.launch.kernel}"


def _of_pair(program: str, before: _Instruction, after: _Instruction) -> Iterator[Difference]:
    a, b = before.record, after.record
    names = dict.fromkeys([*a, *b])
    entries = {name: (a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}
    kernels = before.launch.kernel, after.launch.kernel
    if kernels[0] != kernels[1] or entries:
        kind = "record" if kernels[0] == kernels[1] else "kernel"
        yield Difference(kind, program, before.name, *kernels, entries)
    for kind, aspect in _ASPECTS.items():
        if aspect(before) != aspect(after):
            yield Difference(kind, program, before.name, aspect(before), aspect(after))


def _bindings(program: str, before: CapturePlan, after: CapturePlan) -> Iterator[Difference]:
    a, b = (
        {bind.name: bind.binding or "" for bind in plan.graph.binds if bind.binding}
        for plan in (before, after)
    )
    for name in dict.fromkeys([*a, *b]):
        if a.get(name) != b.get(name):
            yield Difference("binding", program, name, a.get(name, ""), b.get(name, ""))


def _figures(plan: CapturePlan, instructions: Sequence[_Instruction]) -> Figures:
    return Figures(
        instructions=len(instructions),
        bytes_moved=sum(moved_bytes(each.node.kind, each.launch, plan) for each in instructions),
        arena_bytes=plan.arena_bytes,
        streams=len({instruction.launch.stream for instruction in instructions}),
        edges=sum(len(instruction.node.after) for instruction in instructions),
        predicted_us=round(sum(instruction.us for instruction in instructions), 3),
    )
