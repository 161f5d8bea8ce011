"""What TorchDynamo knows of a graph that it traced: the function, why the graph ended, and the sources of arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeAlias, cast

import torch
from torch._dynamo.resume_execution import ContinueExecutionCache
from torch._functorch._aot_autograd.descriptors import PlainAOTInput
from torch._guards import TracingContext

CodeLocation: TypeAlias = tuple[str, int]
"""File and first line of a function."""
_PARAMETER = re.compile(
    r"[LG]\['\w+'\](?P<path>(?:\._modules\['[^']+'\])*)\._(?:parameters|buffers)\['(?P<name>[^']+)'\]"
)
_COUNTED = {"generic_jump": "Data-dependent branching"}
"""PyTorch's counter has another name for this reason than the graph."""
_ITEM = re.compile(r"\['([^']+)'\]")


@dataclass(frozen=True)
class Traced:
    """Where a graph comes from.

    Args:
        location: Of the function that was traced; None if it is not known.
        graph_break: Why TorchDynamo ended the graph early; None if it did not.
        parameters: Names of parameters and buffers in their module, by the index of the argument.
    """

    location: CodeLocation | None = None
    graph_break: str | None = None
    parameters: Mapping[int, str] | None = None

    @staticmethod
    def of(module: torch.fx.GraphModule) -> Traced:
        """Of the graph that a backend receives."""
        codes = TracingContext.get_traced_code()
        reason: Any = getattr(module, "compile_subgraph_reason", None)
        is_break: bool = reason is not None and reason.graph_break
        parameters: dict[int, str] = {}
        for index, node in enumerate(module.graph.find_nodes(op="placeholder")):
            source = getattr(node, "_dynamo_source", None)
            if source is not None and (name := _parameter_name(source)) is not None:
                parameters[index] = name
        return Traced(
            location_of(_original(codes[0])) if codes else None,
            _break_name(cast(Any, reason).reason) if is_break else None,
            parameters,
        )

    def names(self, graph: torch.fx.Graph) -> dict[int, str]:
        """The names of parameters and buffers, by the index of the placeholder of a graph of AOTAutograd."""
        parameters = self.parameters or {}
        found: dict[int, str] = {}
        for index, node in enumerate(graph.find_nodes(op="placeholder")):
            described = node.meta.get("desc")
            if isinstance(described, PlainAOTInput) and described.idx in parameters:
                found[index] = parameters[described.idx]
        return found


def _original(code: CodeType) -> CodeType:
    """The code of the function that a graph break divided, for that of a part after the break."""
    known: Any = ContinueExecutionCache.generated_code_metadata
    while (made := known.get(code)) is not None:
        code = made.code
    return code


def _break_name(reason: object) -> str:
    """The reason of a break, as PyTorch counts it."""
    line = first_line(reason)
    return _COUNTED.get(line.partition(" ")[0], line)


def location_of(code: CodeType) -> CodeLocation:
    """Of the code of a function."""
    return code.co_filename, code.co_firstlineno


def first_line(reason: object) -> str:
    """Of the reason of a break: what is wrong, without hints."""
    return str(reason).partition("\n")[0]


def _parameter_name(source: Any) -> str | None:
    """The name of a parameter or buffer in its module, `enc.0.weight`; None for other sources."""
    name = source.name if isinstance(source.name, str) else source.name()
    if (found := _PARAMETER.fullmatch(name)) is None:
        return None
    return ".".join((*_ITEM.findall(found["path"]), found["name"]))
