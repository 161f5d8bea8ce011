"""A made-up frontend of cuDNN that keeps what it was told; it computes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Knob = Enum("Knob", ["NOT_SET", "STAGES", "TILE_SIZE"])
Note = Enum("Note", ["NONDETERMINISTIC", "TENSOR_CORE"])


@dataclass(frozen=True)
class Plan:
    """One that the fake knows.

    Args:
        engine, knobs: What it is.
        workspace: What it needs.
        note: Of what it does.
        builds: Whether it can be built.
        name: What the frontend calls it.
    """

    engine: int
    knobs: dict[Knob, int]
    workspace: int = 0
    note: Note | None = None
    builds: bool = True
    name: str = ""


class Tensor:
    """A tensor of a graph, input or result, that keeps what is set."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    def __getattr__(self, name: str) -> Any:
        def keep(value: Any) -> Tensor:
            self.given[name.removeprefix("set_")] = value
            return self

        return keep


class Graph:
    """`cudnn.pygraph`."""

    def __init__(self, frontend: Frontend, **given: Any) -> None:
        self.frontend, self.given = frontend, given
        self.tensors: list[Tensor] = []
        self.operations: list[tuple[str, dict[str, Any]]] = []
        self.plans: list[Plan] = []
        self.barred: list[Note] = []
        self.built: int | None = None

    def tensor(self, **given: Any) -> Tensor:
        self.tensors.append(Tensor(**given))
        return self.tensors[-1]

    def __getattr__(self, name: str) -> Any:
        def operation(*operands: Tensor, **given: Any) -> Any:
            self.operations.append((name, given))
            return (Tensor(), None) if name == "sdpa" else Tensor()

        return operation

    def create_execution_plans(self, modes: list[str]) -> None:
        assert modes == ["A", "FALLBACK"]
        if not self.frontend.plans:
            raise self.frontend.cudnnGraphNotSupportedError("no engine")
        self.plans += self.frontend.plans

    def create_execution_plan(self, engine: int, knobs: dict[Knob, int]) -> None:
        found = [plan for plan in self.frontend.plans if (plan.engine, plan.knobs) == (engine, knobs)]
        if not found:
            raise RuntimeError("Invalid engine id.\n")
        self.plans += found

    def deselect_numeric_notes(self, notes: list[Note]) -> None:
        self.barred += notes

    def get_execution_plan_count(self) -> int:
        return len(self.plans)

    def get_plan_name_at_index(self, index: int) -> str:
        return self.plans[index].name or f"eng{self.plans[index].engine}"

    def get_engine_and_knobs_at_index(self, index: int) -> tuple[int, dict[Knob, int]]:
        return self.plans[index].engine, self.plans[index].knobs

    def build_plan_at_index(self, index: int) -> None:
        self.frontend.builds += 1
        plan = self.plans[index]
        if plan.note in self.barred or not plan.builds:
            raise self.frontend.cudnnGraphNotSupportedError("Deselecting execution plan")
        self.built = index

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self.plans[index].workspace

    def execute(self, addresses: dict[int, int], workspace: int, handle: str) -> None:
        assert self.built is not None
        self.frontend.told.append(("execute", addresses, workspace, handle))


@dataclass
class Frontend:
    """The module `cudnn`.

    Args:
        plans: What its heuristic offers.
        told: What was done with handles.
        graphs: All that were made.
        builds: How many plans were built.
    """

    plans: list[Plan]
    told: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    graphs: list[Graph] = field(default_factory=list[Graph])
    builds: int = 0
    knob_type: Any = Knob
    numerical_note: Any = Note

    class data_type(Enum):
        FLOAT, HALF, BFLOAT16 = range(3)

    class heur_mode:
        A, FALLBACK = "A", "FALLBACK"

    class diagonal_alignment(Enum):
        TOP_LEFT, BOTTOM_RIGHT = range(2)

    class cudnnGraphNotSupportedError(Exception):
        """As the frontend calls it."""

    def backend_version(self) -> int:
        return 91901

    def pygraph(self, **given: Any) -> Graph:
        self.graphs.append(Graph(self, **given))
        return self.graphs[-1]

    def create_handle(self) -> str:
        self.told.append(("create",))
        return "handle"

    def destroy_handle(self, handle: str) -> None:
        self.told.append(("destroy", handle))

    def set_stream(self, handle: str, stream: int) -> None:
        self.told.append(("stream", stream, handle))
