"""Reports on a compiled model: its graphs, their programs, and what runs in eager mode."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch._dynamo.utils import counters

from aicf.compilation.compiled import CompiledModel
from aicf.errors import InputMismatch
from aicf.inspection.explain import Saves, saves_of
from aicf.pytorch.fallback import PartlyCompiled
from aicf.pytorch.graphs import CompiledGraph, EagerProgram, Kind
from aicf.pytorch.registry import all_graphs
from aicf.pytorch.traced import first_line, location_of


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
        breaks: Why TorchDynamo ended graphs of the model early, and how often; in a report on all graphs, those of the
            process.
        other_breaks: Of a report on one model: breaks in this process that ended no graph that AICF compiled, so that
            it is not known whose they are.
    """

    graphs: tuple[GraphReport, ...]
    eager: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    breaks: Mapping[str, int] = field(default_factory=dict[str, int])
    other_breaks: Mapping[str, int] = field(default_factory=dict[str, int])

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
        for reason, count in self.other_breaks.items():
            lines.append(f"graph break in this process, of this model or another ({count}): {reason}")
        return "\n".join(lines)


def report(model: nn.Module | Callable[..., Any] | None = None) -> TorchReport:
    """Reports on a model or a function, or on every graph that this process compiled.

    Args:
        model: A module, a function, or the result of `torch.compile` for one. Graphs belong to a module by its
            parameters and buffers, and to a function or a module without these by the code that was traced: graphs of
            functions that it calls after a graph break are in the report on all graphs only. None reports on all.

    Raises:
        InputMismatch: it is neither.
    """
    belongs = _belonging(model)
    whole = [graph for graph in all_graphs() if isinstance(graph, CompiledGraph) and belongs(graph)]
    partly = [graph for graph in all_graphs() if isinstance(graph, PartlyCompiled)]
    names = {graph.info.name.partition(".")[0] for graph in whole}
    eager = {graph.name: graph.eager for graph in partly if model is None or graph.name in names}
    for graph in whole:
        reasons = [each.program.reason for each in graph.built if isinstance(each.program, EagerProgram)]
        if reasons:
            eager[graph.info.name] = tuple(dict.fromkeys(reasons))
    reports = tuple(map(_graph_report, whole))
    if model is None:
        return TorchReport(reports, eager, dict(_breaks()))
    known = [graph for graph in all_graphs() if isinstance(graph, CompiledGraph)]
    return TorchReport(reports, eager, dict(_breaks_of(whole)), dict(_breaks() - _breaks_of(known)))


def _breaks() -> Counter[str]:
    """By the first line of the reason. PyTorch counts some breaks in one table, some in another, and some in both."""
    tables = [Counter[str](), Counter[str]()]
    for table, name in zip(tables, ("graph_break", "unimplemented"), strict=True):
        for reason, count in counters[name].items():
            table[first_line(reason)] += count
    return tables[0] | tables[1]


def _breaks_of(graphs: Iterable[CompiledGraph]) -> Counter[str]:
    """The breaks that ended these graphs; each once, for several graphs may come from one of TorchDynamo."""
    traced = {id(graph.info.traced): graph.info.traced for graph in graphs}
    return Counter(each.graph_break for each in traced.values() if each.graph_break is not None)


def _belonging(model: nn.Module | Callable[..., Any] | None) -> Callable[[CompiledGraph], bool]:
    """Whether a graph belongs to what a report is asked for."""
    if model is None:
        return lambda graph: True
    function: Any = getattr(model, "_torchdynamo_orig_callable", model)
    owner = getattr(function, "__self__", function)
    if isinstance(owner, nn.Module):
        owner = getattr(owner, "_orig_mod", owner)
        if own := {id(tensor) for tensor in (*owner.parameters(), *owner.buffers())}:
            return lambda graph: any(id(owner()) in own for owner in graph.info.owners)
        function = owner.forward
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    if code is None:
        raise InputMismatch(
            f"report takes a module, a function, or what torch.compile made of one; got a {type(model).__name__}; "
            "report() without an argument reports on all graphs"
        )
    location = location_of(code)
    return lambda graph: graph.info.traced.location == location


def _graph_report(graph: CompiledGraph) -> GraphReport:
    programs = tuple(
        GraphProgramReport(built.sizes, built.seconds, built.origin, built.program.executable)
        for built in graph.built
    )
    executable = next((each.executable for each in programs if each.executable is not None), None)
    is_forward = graph.info.kind == "forward"
    saves = saves_of(executable.decisions) if is_forward and executable is not None else None
    return GraphReport(graph.info.name, graph.info.kind, graph.calls, graph.dropped, programs, saves)
