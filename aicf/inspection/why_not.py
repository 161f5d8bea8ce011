"""Why two ops of a model are not one instruction: the refusals in the ledger that are about both, joined by id.

Plain data and plain text, like `explain`, whose answers about one value this completes. It reads no IR and decides
nothing: what no pass said, it does not guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aicf.errors import InputMismatch
from aicf.inspection.explain import ELIDES, Decision, stands_for, unknown
from aicf.runtime.capture_plan import CapturePlan, ModulePlan
from aicf.runtime.graph import Node
from aicf.support.arguments import text_from


@dataclass(frozen=True)
class WhyNot:
    """The answer for two ops; `str()` is plain text.

    Args:
        one, other: The ids, each with its location in the model where that is known.
        together: Instructions that are both, one line each.
        apart: Instructions that each is, one line each.
        because: The reasons, one line each; none where the ops are together in every program.
    """

    one: str
    other: str
    together: tuple[str, ...]
    apart: tuple[str, ...]
    because: tuple[str, ...]

    def __str__(self) -> str:
        lines: list[str] = []
        if self.together:
            lines += [f"{self.one} and {self.other} are one instruction:", *(f"  {x}" for x in self.together)]
        if self.because:
            lines += [
                f"{self.one} and {self.other} are not one instruction:",
                *(f"  {x}" for x in self.apart),
            ]
            lines += ["because", *(f"  {x}" for x in self.because)]
        return "\n".join(lines)


def why_not(
    plan: ModulePlan, decisions: Sequence[Decision], locations: Mapping[str, str], one: str, other: str
) -> WhyNot:
    """Why `one` and `other` are not one instruction, or in which they are.

    Args:
        locations: `file:line:col` of the model's ops, by id.
        one, other: Ids of ops of the model, or of those they were lowered to, with or without a bucket.

    Raises:
        InputMismatch: the program has no such op; the message lists the closest.
    """
    groups = group_members(decisions)
    for value in (one, other):
        text_from(value, InputMismatch, "the op")
        if not any(_computes(node, value, groups) for p in plan.programs for node in p.graph.nodes):
            if (view := _view(decisions, value)) is not None:
                return WhyNot(
                    one, other, (), (f"{value} is no instruction, but a view",), tuple(view.lines())
                )
            raise unknown(plan.all_programs, decisions, value)
    together: list[str] = []
    apart: list[str] = []
    because: dict[str, None] = {}
    for program in plan.programs:
        nodes = program.graph.nodes
        mine, theirs = ([node for node in nodes if _computes(node, value, groups)] for value in (one, other))
        both = [node for node in mine if node in theirs]
        together += [_line(node, program) for node in both]
        if not both and mine and theirs:
            apart += [f"{_names(mine)} of @{program.name}, and {_names(theirs)}"]
            sides = _Side(one, mine, groups), _Side(other, theirs, groups)
            because |= dict.fromkeys(_reasons(_about(program, decisions), _readers(program), *sides))
    mine, theirs = (
        f"{value} ({locations[value]})" if value in locations else value for value in (one, other)
    )
    return WhyNot(mine, theirs, tuple(together), tuple(apart), tuple(because))


@dataclass(frozen=True)
class Neighbours:
    """Why an instruction and one that reads its result are two, a reason a line."""

    producer: str
    consumer: str
    because: tuple[str, ...]


def why_not_neighbours(program: CapturePlan, decisions: Sequence[Decision]) -> tuple[Neighbours, ...]:
    """What `why_not` answers for every two instructions of a program of which one reads the other, in its order."""
    about, readers, groups = _about(program, decisions), _readers(program), group_members(decisions)
    mentions = _mentions(about.decisions)
    nodes = {node.name: node for node in program.graph.nodes}
    sides = {name: _Side(name, [node], groups) for name, node in nodes.items()}
    numbers = {
        name: {number for id_ in (name, *groups.get(name, ())) for number in mentions.get(id_, ())}
        for name in nodes
    }
    found: list[Neighbours] = []
    for producer in nodes:
        for consumer in dict.fromkeys(readers.get(producer, ())):
            if consumer != producer:
                both = sorted(numbers[producer] | numbers[consumer])
                own = _About(about.bucket, [about.decisions[number] for number in both])
                because = _reasons(own, readers, sides[producer], sides[consumer])
                found.append(Neighbours(producer, consumer, tuple(dict.fromkeys(because))))
    return tuple(found)


def _mentions(decisions: Sequence[Decision]) -> dict[str, list[int]]:
    """Each id to the numbers of the decisions that are about it or tried it, so that few are read for two ops."""
    found: dict[str, list[int]] = {}
    for number, decision in enumerate(decisions):
        tried = (id_ for label in decision.rejected for id_ in label.split(" + "))
        for id_ in dict.fromkeys((*decision.subjects, *tried)):
            found.setdefault(id_, []).append(number)
    return found


def _view(decisions: Sequence[Decision], value: str) -> Decision | None:
    """The decision that made an op a view of what others write."""
    return next((d for d in decisions if d.made_by == ELIDES and stands_for(d.subjects[0], value)), None)


def group_members(decisions: Sequence[Decision]) -> dict[str, tuple[str, ...]]:
    """The ops of each group by its id, as the pass said that formed it."""
    return {d.subjects[0]: d.subjects for d in decisions if d.is_of_fusion and d.choice != "not fused"}


def _computes(node: Node, value: str, groups: Mapping[str, Sequence[str]]) -> bool:
    ids = (node.name, *groups.get(node.name, ()))
    if any(stands_for(id_, value) for id_ in ids[1:]):
        return True
    return value in node.src or node.name == value


def _names(nodes: Sequence[Node]) -> str:
    return " and ".join(f"instruction {node.name}" for node in nodes)


def _line(node: Node, program: CapturePlan) -> str:
    launch = next(launch for launch in program.launches if launch.name == node.name)
    return f"@{program.name}: instruction {node.name}, {node.kind} by {launch.kernel}"


@dataclass(frozen=True)
class _Side:
    """One of the two ops: its id, the instructions that compute it, and the ops of all groups."""

    value: str
    nodes: Sequence[Node]
    groups: Mapping[str, Sequence[str]]

    def is_named(self, id_: str) -> bool:
        """Whether `id_` is the op, or one that it was lowered to."""
        return stands_for(id_, self.value)

    def is_beside(self, id_: str) -> bool:
        """Whether `id_` is an instruction of the op, or an op in one."""
        return any(id_ == node.name or id_ in self.groups.get(node.name, ()) for node in self.nodes)


@dataclass(frozen=True)
class _About:
    """The decisions that say what is fused in one program.

    Args:
        bucket: The sizes that the program is for, as they follow its ids; empty if it is the only one.
    """

    bucket: str
    decisions: Sequence[Decision]


def _about(program: CapturePlan, decisions: Sequence[Decision]) -> _About:
    bucket = program.name.partition("@")[2]
    fusing = (d for d in decisions if d.is_of_fusion or d.made_by == ELIDES)
    return _About(bucket, [d for d in fusing if all(_is_of(subject, bucket) for subject in d.subjects)])


def _reasons(about: _About, readers: Mapping[str, Sequence[str]], one: _Side, other: _Side) -> Iterator[str]:
    """What the ledger has against both ops together, else against ops of their instructions; where it has nothing, how
    they lie in the program."""
    tests = ((one.is_named, other.is_named), (one.is_beside, other.is_beside))
    lines = [[line for d in about.decisions for line in _against(d, *pair)] for pair in tests]
    lines.append(list(_no_neighbours(readers, about.decisions, one, other)))
    found = next(each for each in lines if each)
    yield from (line.replace(f"@{about.bucket}", "") if about.bucket else line for line in found)


def _is_of(subject: str, bucket: str) -> bool:
    return "@" not in subject or subject.partition("@")[2] == bucket


_Test = Callable[[str], bool]


def _against(decision: Decision, is_one: _Test, is_other: _Test) -> Iterator[str]:
    """The lines of a decision that are against the one with the other."""
    head = f"{decision.made_by} of {decision.subjects[0]}"
    has_one, has_other = (any(map(test, decision.subjects)) for test in (is_one, is_other))
    if has_one and has_other and decision.choice == "not fused":
        yield f"{head}: {decision.because}"
    for label, reason in decision.rejected.items():
        tried_one, tried_other = (any(map(test, label.split(" + "))) for test in (is_one, is_other))
        if (tried_one and (tried_other or has_other)) or (tried_other and has_one):
            yield f"{head}, tried with {_short(label)}: {reason}"


def _short(label: str) -> str:
    """The ops of a refused group: the first, the last, and how many there are between."""
    named = label.split(" + ")
    return " + ".join(named) if len(named) <= 4 else f"{named[0]} + {len(named) - 2} more + {named[-1]}"


def _no_neighbours(
    readers: Mapping[str, Sequence[str]], decisions: Sequence[Decision], one: _Side, other: _Side
) -> Iterator[str]:
    """No pass tried them: one does not read the other, or only through instructions in between."""
    for first, second in ((one, other), (other, one)):
        path = _path(readers, [node.name for node in first.nodes], {node.name for node in second.nodes})
        if path is None:
            continue
        if len(path) == 2:
            yield f"{second.value} reads {first.value}, but no pass joins ops like these"
            yield from (f"{path[0]}: {d.because}" for d in decisions if d.subjects[0] == path[0])
        else:
            yield f"what {second.value} reads of {first.value} goes through {', '.join(path[1:-1])}"
        return
    yield "neither reads what the other makes, and no pass joins such ops unless they are products of one left operand"


def _readers(program: CapturePlan) -> dict[str, list[str]]:
    """Of each instruction those that read what it wrote last: its results lie where their operands begin."""
    writer: dict[tuple[int, int], str] = {}
    readers: dict[str, list[str]] = {}
    for launch in program.launches:
        for operand in launch.ins:
            if (source := writer.get((operand.base, operand.offset))) is not None:
                readers.setdefault(source, []).append(launch.name)
        writer |= {(operand.base, operand.offset): launch.name for operand in launch.outs}
    return readers


def _path(readers: Mapping[str, Sequence[str]], starts: Sequence[str], ends: set[str]) -> list[str] | None:
    """The shortest way from one of `starts` to one of `ends`, both included; None if there is none."""
    before: dict[str, str | None] = dict.fromkeys(starts)
    queue = list(starts)
    for name in queue:
        if name in ends:
            path = [name]
            while (earlier := before[path[0]]) is not None:
                path.insert(0, earlier)
            return path
        for reader in readers.get(name, ()):
            if reader not in before:
                before[reader] = name
                queue.append(reader)
    return None
