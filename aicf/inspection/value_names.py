"""The names that `aicf explain` answers for: inputs, outputs, weights, ops of the model and instructions.

Plain data and plain text, read out of the plan; which decision is about which name is the affair of `explain`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aicf.inspection.explain import format_table
from aicf.runtime.capture_plan import CapturePlan, ModulePlan
from aicf.runtime.graph import Bind
from aicf.runtime.tensors import describe


@dataclass(frozen=True)
class ValueName:
    """One name.

    Args:
        kind: Role of a bind (`input`, `output`, `param`, ...), `op` or `instruction`.
        what: Type of a bind, the instructions of an op, kind and kernel of an instruction.
    """

    name: str
    kind: str
    what: str


@dataclass(frozen=True)
class ValueNames:
    """All names of a model, each with its kind once; `str()` is a plain text table, a name a line."""

    names: tuple[ValueName, ...]

    def __str__(self) -> str:
        return format_table(
            ("name", "kind", "what it is"), [(each.name, each.kind, each.what) for each in self.names]
        )


def value_names(plan: ModulePlan) -> ValueNames:
    """The names of all programs, in the order in which programs mention them: the boundary, ops, instructions."""
    plans = plan.all_programs
    found: dict[tuple[str, str], list[str]] = {}
    for program in plans:
        for bind in program.graph.binds:
            if bind.role != "const":
                found.setdefault((bind.name, bind.role), []).append(_type_of(bind))
    for program in plans:
        for node in program.graph.nodes:
            for source in node.src:
                found.setdefault((source, "op"), []).append(node.name)
    for program in plans:
        for name, what in _instructions(program):
            found.setdefault((name, "instruction"), []).append(what)
    return ValueNames(
        tuple(ValueName(name, kind, ", ".join(dict.fromkeys(what))) for (name, kind), what in found.items())
    )


def _type_of(bind: Bind) -> str:
    return bind.layout if bind.layout is not None else describe(bind.shape, bind.dtype)


def _instructions(program: CapturePlan) -> Iterator[tuple[str, str]]:
    for node, launch in zip(program.graph.nodes, program.launches, strict=True):
        yield node.name, f"{node.kind} by {launch.kernel}"
