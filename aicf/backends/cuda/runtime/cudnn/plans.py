# pyright: basic
# The frontend ships no types.
"""Plans of a graph: an engine of cuDNN with its knobs, written as text, listed, and built again from the text.

`eng10 SPECFILT=2 STAGES=3` is engine 10 with two knobs, by the names of `cudnn.knob_type`. The frontend has no names
for some knobs of old engines; plans with such are not offered, since nothing could build them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from aicf.backends.cuda.runtime.cudnn.graphs import frontend, graph_of
from aicf.backends.cuda.runtime.cudnn.values import AnyCall
from aicf.errors import ArtifactError

_TEXT = re.compile(r"eng(\d+)((?: [A-Z][A-Z0-9_]*=-?\d+)*)")
_OF_CUDNN = re.compile(r"eng\d+(_k\d+=-?\d+)*")
"""What cuDNN calls a plan of its own engines; the frontend brings engines in Python, which are called otherwise."""


def plan_text(engine: int, knobs: dict[Any, int]) -> str | None:
    """An engine with its knobs; None if a knob has no name."""
    if frontend().knob_type.NOT_SET in knobs:
        return None
    return " ".join([f"eng{engine}", *sorted(f"{knob.name}={value}" for knob, value in knobs.items())])


def read_plan(text: str) -> tuple[int, dict[Any, int]]:
    """The engine and the knobs of a text. Raises ArtifactError if it is none."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ArtifactError(f"'{text}' is no plan of cudnn, such as 'eng10 STAGES=3'; compile it again")
    names = frontend().knob_type.__members__
    knobs: dict[Any, int] = {}
    for entry in found[2].split():
        name, _, value = entry.partition("=")
        if name not in names:
            raise ArtifactError(f"cudnn has no knob '{name}', which the plan '{text}' sets; compile it again")
        knobs[names[name]] = int(value)
    return int(found[1]), knobs


def built(call: AnyCall, handle: Any) -> Any:
    """The graph of a call with its plan, ready to run. Raises ArtifactError if `algorithm` is no plan; errors of the
    frontend pass."""
    engine, knobs = read_plan(call.algorithm)
    graph = graph_of(call, handle)
    graph.create_execution_plan(engine, knobs)
    _bar(graph, call)
    graph.build_plan_at_index(graph.get_execution_plan_count() - 1)
    return graph


def offered(call: AnyCall, handle: Any) -> Iterator[tuple[str, int]]:
    """The plans that cuDNN's heuristic offers for a call and that can be built, the most promising first, each with its
    workspace: none that does what is barred or needs more room than there is."""
    cudnn = frontend()
    graph = graph_of(call, handle)
    try:
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    except cudnn.cudnnGraphNotSupportedError:
        return
    _bar(graph, call)
    for index in range(graph.get_execution_plan_count()):
        if not _OF_CUDNN.fullmatch(graph.get_plan_name_at_index(index)):
            continue
        text = plan_text(*graph.get_engine_and_knobs_at_index(index))
        if text is None or not _builds(graph, index):
            continue
        workspace = int(graph.get_workspace_size_plan_at_index(index))
        if workspace <= call.workspace_bytes:
            yield text, workspace


def _bar(graph: Any, call: AnyCall) -> None:
    notes = frontend().numerical_note
    graph.deselect_numeric_notes([notes[name] for name in call.barred_notes])


def _builds(graph: Any, index: int) -> bool:
    """Whether a plan that the heuristic lists is one: it may be barred, or meant for another GPU."""
    cudnn = frontend()
    try:
        graph.build_plan_at_index(index)
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError):
        return False
    return True
