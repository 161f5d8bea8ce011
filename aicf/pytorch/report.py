"""Reports on a compiled model: its graphs, their programs, and what runs in eager mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn
from torch._dynamo.utils import counters

from aicf.compiled import CompiledModel
from aicf.explain import Saves, saves_of
from aicf.pytorch.fallback import PartlyCompiled
from aicf.pytorch.graphs import CompiledGraph, EagerProgram, Kind
from aicf.pytorch.registry import all_graphs


@dataclass(frozen=True)
class GraphProgramReport:
    """One program of a graph.

    Args:
        sizes: The value of each symbolic size.
        seconds: For compiling or loading it.
        origin: Whether it was compiled or loaded, in words.
        executable: The compiled program, with `explain()` and `ir()`; None if the graph computes nothing.
    """

    sizes: Mapping[str, int]
    seconds: float
    origin: str
    executable: CompiledModel | None

    def __str__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items()) or "one size"
        count = 0 if self.executable is None else instruction_count(self.executable)
        return f"{sizes}: {count} instructions, {self.origin} in {self.seconds:.2f} s"


def instruction_count(executable: CompiledModel) -> int:
    """How many instructions a run executes, over all of its programs."""
    return sum(len(program.launches) for program in executable.plan.programs)


@dataclass(frozen=True)
class GraphReport:
    """One graph that PyTorch traced.

    Args:
        name: Of its programs.
        kind: Whether it is an inference graph, or the forward or backward part of a training graph.
        calls: So far.
        dropped: Programs evicted because of the limit.
        programs: In memory now.
        saves: What a forward part saves for its backward part.
    """

    name: str
    kind: Kind
    calls: int
    dropped: int
    programs: tuple[GraphProgramReport, ...]
    saves: Saves | None = None

    def __str__(self) -> str:
        dropped = f", {self.dropped} dropped" if self.dropped else ""
        lines = [f"{self.name}: {self.calls} calls, {len(self.programs)} programs{dropped}"]
        lines += map(str, self.programs)
        return "\n  ".join(lines if self.saves is None else [*lines, str(self.saves)])


@dataclass(frozen=True)
class TorchReport:
    """The graphs of a model.

    Args:
        graphs: The compiled graphs, in the order in which PyTorch traced them.
        eager: By name of a graph, the ops of it that run in eager mode, with `fallback="eager"`.
        breaks: Why TorchDynamo ended graphs early, and how often, in this process.
    """

    graphs: tuple[GraphReport, ...]
    eager: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    breaks: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def executables(self) -> list[CompiledModel]:
        """The programs of all graphs."""
        programs = [program for graph in self.graphs for program in graph.programs]
        return [program.executable for program in programs if program.executable is not None]

    def __str__(self) -> str:
        lines = [str(graph) for graph in self.graphs] or ["nothing was compiled; call the model first"]
        for name, ops in self.eager.items():
            lines.append(f"{name}: in eager mode {', '.join(ops)}")
        lines += [f"graph break ({count}): {reason}" for reason, count in self.breaks.items()]
        return "\n".join(lines)


def report(model: nn.Module | None = None) -> TorchReport:
    """Reports on a model, or on every graph that this process compiled.

    Args:
        model: The module, or the result of `torch.compile`; graphs belong to it by its parameters and buffers. None
            reports on all graphs, those of functions without parameters among them.
    """
    own = None if model is None else {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    whole = [graph for graph in all_graphs() if isinstance(graph, CompiledGraph) and _belongs(graph, own)]
    partly = [graph for graph in all_graphs() if isinstance(graph, PartlyCompiled)]
    names = {graph.info.name.partition(".")[0] for graph in whole}
    eager = {graph.name: graph.eager for graph in partly if own is None or graph.name in names}
    for graph in whole:
        reasons = [each.program.reason for each in graph.built if isinstance(each.program, EagerProgram)]
        if reasons:
            eager[graph.info.name] = tuple(dict.fromkeys(reasons))
    return TorchReport(tuple(map(_graph_report, whole)), eager, _breaks())


def _breaks() -> Mapping[str, int]:
    """By the first line of the reason. PyTorch counts some breaks in one table, some in another, and some in both."""
    tables = [Counter[str](), Counter[str]()]
    for table, name in zip(tables, ("graph_break", "unimplemented"), strict=True):
        for reason, count in counters[name].items():
            table[str(reason).partition("\n")[0]] += count
    return tables[0] | tables[1]


def _belongs(graph: CompiledGraph, own: set[int] | None) -> bool:
    if own is None:
        return True
    return any((tensor := owner()) is not None and id(tensor) in own for owner in graph.info.owners)


def _graph_report(graph: CompiledGraph) -> GraphReport:
    programs = tuple(
        GraphProgramReport(built.sizes, built.seconds, built.origin, built.program.executable)
        for built in graph.built
    )
    executable = next((each.executable for each in programs if each.executable is not None), None)
    is_forward = graph.info.kind == "forward" and executable is not None
    saves = saves_of(executable.decisions) if is_forward else None
    return GraphReport(graph.info.name, graph.info.kind, graph.calls, graph.dropped, programs, saves)
