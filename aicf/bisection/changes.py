"""What two programs of one model decide differently, as changes that can be taken one by one.

A program's decisions are the policy that `aicf policy extract` writes. A change is what of it can be changed alone: the
kernel and record of an instruction together, since a record belongs to its kernel; where groups differ, those of all
ops that any of them has. With other groups and no other kernels, the passes choose the kernels of these groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_of
from typing import Any, TypeAlias, cast

from xdsl.dialects.builtin import ModuleOp

from aicf.inspection.explain import wrapped
from aicf.passes.emit.read_decisions import decisions_of, members_by_instruction
from aicf.policies.kernel_policy import EXPECTED_US
from aicf.policies.policy import KERNEL, PRECISION, Policy

Path: TypeAlias = tuple[str, ...]
"""Section, field, and key of an entry or the ids of a group: where something stands in a policy."""

GROUPS, KERNELS, RECORDS = "groups", "kernels", "records"
SAVES = "saves"
_PINS = KERNELS, RECORDS
_MOST_LETTERS = 200


@dataclass(frozen=True)
class Change:
    """One decision that two programs make differently.

    Args:
        section: Of the policy: `kernel`, `execution` or `precision`.
        field: Of the section: `groups`, `kernels`, `records`, `layouts`, `streams`, ...
        subject: The instruction, op or bind that it is about; empty for the whole program.
        before, after: Both values in words; `none` where a program has nothing of the kind. Of a record, its kernel.
        entries: Of a kernel record, each entry that differs, with both values.
        edits: What it changes in the policy of the first program; None removes an entry.
    """

    section: str
    field: str
    subject: str
    before: str
    after: str
    entries: Mapping[str, tuple[object, object]] = field_of(default_factory=dict[str, tuple[object, object]])
    edits: Mapping[Path, object] = field_of(default_factory=dict[Path, object], repr=False)

    @property
    def ops(self) -> set[str]:
        """The ops that it groups."""
        return {id_ for path in self.edits if path[1] == GROUPS for id_ in path[2:]}

    @property
    def title(self) -> str:
        """What it is about, without values."""
        return f"{self.section}.{self.field}" + (f" of {self.subject}" if self.subject else "")

    def lines(self) -> list[str]:
        """The change in words, in lines that fit a screen: one for each entry of a record that differs."""
        values = self.before if self.before == self.after else f"{self.before} -> {self.after}"
        lines = wrapped(f"{self.title}: {values}", "")
        for name, (before, after) in self.entries.items():
            lines += wrapped(f"{name}: {_words(before)} -> {_words(after)}", "  ")
        return lines

    def to_json_value(self) -> dict[str, object]:
        """JSON values: everything but the edits."""
        entries = {name: list(values) for name, values in self.entries.items()}
        return {
            "section": self.section,
            "field": self.field,
            "subject": self.subject,
            "before": self.before,
            "after": self.after,
            "entries": entries,
        }


def changes_between(before: ModuleOp, after: ModuleOp) -> list[tuple[Change, ...]]:
    """The decisions of two final programs of one model that differ, in program order; then those of no instruction.

    Those that hardly go without each other are together: other groups, and the kernels of these; and what makes ops,
    such as the casts of another precision, with the groups of ops that only one program has.
    """
    sides = _Side.of(before), _Side.of(after)
    a, b = (side.facts for side in sides)
    differing = [path for path in dict.fromkeys([*a, *b]) if a.get(path) != b.get(path)]
    pinned = list(dict.fromkeys(path[2] for path in differing if path[1] in _PINS))
    units: list[tuple[Change, ...]] = []
    alone = [name for name in pinned if name in sides[1].members]
    for part in _overlapping([path[2:] for path in differing if path[1] == GROUPS]):
        inside = [name for name in alone if _of_part(name, part, sides[1])]
        alone = [name for name in alone if name not in inside]
        kernels = (_of_kernel(name, name, sides) for name in inside)
        units.append((_regrouping(part, pinned, sides), *kernels))
    units += [(_of_kernel(sides[0].called(name, sides[1]), name, sides),) for name in alone]
    units.sort(key=lambda unit: sides[1].position(unit[-1].subject))
    rest = [
        _of_field(path, a.get(path), b.get(path)) for path in differing if path[1] not in (GROUPS, *_PINS)
    ]
    return _with_makers(units, rest, sides)


def _with_makers(
    units: Sequence[tuple[Change, ...]], rest: Sequence[Change], sides: tuple[_Side, _Side]
) -> list[tuple[Change, ...]]:
    """Units of instructions and other changes, with those in one unit that make ops, and those of the ops made."""
    makers = [change for change in rest if change.section == PRECISION or change.field == SAVES]
    others = [(change,) for change in rest if change not in makers]
    if not makers:
        return [*units, *others]
    ours, theirs = (set[str]().union(*side.members.values()) for side in sides)
    made = [unit for unit in units if not unit[0].ops <= ours & theirs]
    return [
        (*makers, *(change for unit in made for change in unit)),
        *(u for u in units if u not in made),
        *others,
    ]


def mixed(before: ModuleOp, changes: Collection[Change]) -> Policy:
    """The decisions of the first program with some changes. Raises PolicyError if they contradict each other."""
    facts = dict(_Side.of(before).facts)
    # Other groups drop the kernels of those that they replace, and may get others by changes of their own.
    for change in sorted(changes, key=lambda change: change.field != GROUPS):
        for path, value in change.edits.items():
            if value is None:
                facts.pop(path, None)
            else:
                facts[path] = value
    return Policy.from_json_value(_policy_value(facts))


# Policies as facts


@dataclass(frozen=True)
class _Side:
    """One of the programs.

    Args:
        facts: Everything that its policy says, by where it stands.
        members: The ids of the ops of each instruction that computes any.
    """

    facts: Mapping[Path, object]
    members: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, module: ModuleOp) -> _Side:
        computing = members_by_instruction(module)
        members = {
            op.instruction.data: ids for op, ids in computing.items() if ids and op.kind.data != "pack"
        }
        return cls(dict(_facts(decisions_of(module), members)), members)

    def pins(self, name: str) -> dict[Path, object]:
        """The kernel and the record of an instruction, None for what it has not."""
        paths = ((KERNEL, field, name) for field in _PINS)
        return {path: self.facts.get(path) for path in paths}

    def called(self, name: str, other: _Side) -> str:
        """What an instruction of the other program is called here, by the ops it computes."""
        wanted = set(other.members[name])
        return next((own for own, members in self.members.items() if set(members) == wanted), name)

    def position(self, subject: str) -> int:
        """Where an instruction or op is in the program."""
        places = enumerate(self.members.items())
        return next((place for place, (name, ids) in places if subject == name or subject in ids), 0)


def _facts(policy: Policy, members: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[Path, object]]:
    """What stands where. Copies, which exist because of other decisions, are left to the passes."""
    for section, fields in policy.to_json_value().items():
        for name, value in fields.items():
            if name == GROUPS:
                yield from (((section, name, *ids), True) for ids in value)
            elif not isinstance(value, dict):
                yield (section, name), value
            else:
                for key, entry in cast("dict[str, object]", value).items():
                    if name not in _PINS or key in members:
                        yield (section, name, key), entry


def _policy_value(facts: Mapping[Path, object]) -> dict[str, dict[str, Any]]:
    """The plain value of a policy."""
    value: dict[str, dict[str, Any]] = {}
    for (section, name, *keys), entry in facts.items():
        fields = value.setdefault(section, {})
        if name == GROUPS:
            fields.setdefault(name, []).append(keys)
        elif keys:
            fields.setdefault(name, {})[keys[0]] = entry
        else:
            fields[name] = entry
    return value


# Changes, and which facts are changed together


def _overlapping(groups: Sequence[Path]) -> list[frozenset[str]]:
    """The groups, taken together as far as they have ops in common."""
    parts: list[frozenset[str]] = []
    for ids in groups:
        touching = [part for part in parts if not part.isdisjoint(ids)]
        parts = [part for part in parts if part not in touching] + [frozenset(ids).union(*touching)]
    return parts


def _of_part(name: str, part: frozenset[str], side: _Side) -> bool:
    """Whether an instruction computes ops that are grouped differently."""
    return not part.isdisjoint(side.members.get(name, ()))


def _regrouping(part: frozenset[str], pinned: Sequence[str], sides: tuple[_Side, _Side]) -> Change:
    """Other groups of some ops. The kernels of the old groups go with them."""
    before, after = (
        [path for path in side.facts if path[1] == GROUPS and not part.isdisjoint(path[2:])] for side in sides
    )
    dropped = [path for name in pinned if _of_part(name, part, sides[0]) for path in sides[0].pins(name)]
    edits = {**dict.fromkeys([*before, *dropped], None), **dict.fromkeys(after, True)}
    ours, theirs = (" | ".join(" + ".join(path[2:]) for path in paths) for paths in (before, after))
    return Change(KERNEL, GROUPS, (*before, *after)[0][2], ours or "none", theirs or "none", edits=edits)


def _of_kernel(former: str, name: str, sides: tuple[_Side, _Side]) -> Change:
    """A kernel with its record, or the record alone where both programs have the same kernel.

    Args:
        former: What the instruction is called in the first program.
    """
    before, after = sides
    edits = {**dict.fromkeys(before.pins(former), None), **after.pins(name)}
    ours = str(before.facts.get((KERNEL, KERNELS, former), "none"))
    theirs = str(after.facts.get((KERNEL, KERNELS, name), "none"))
    a, b = _record(before, former), _record(after, name)
    entries = {key: (a.get(key), b.get(key)) for key in dict.fromkeys([*a, *b]) if a.get(key) != b.get(key)}
    if ours != theirs or len(entries) > 1:
        entries.pop(EXPECTED_US, None)  # it follows from what else differs
    return Change(KERNEL, RECORDS if ours == theirs else KERNELS, name, ours, theirs, entries, edits)


def _of_field(path: Path, before: object, after: object) -> Change:
    """A field, or an entry of it, that stands for itself."""
    return Change(path[0], path[1], "".join(path[2:]), _words(before), _words(after), edits={path: after})


def _record(side: _Side, instruction: str) -> Mapping[str, object]:
    return cast("Mapping[str, object]", side.facts.get((KERNEL, RECORDS, instruction), {}))


def _words(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]} ..."
