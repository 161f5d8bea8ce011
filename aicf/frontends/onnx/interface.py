"""What goes into a graph and comes out of it, by the names that a program has for it."""

from __future__ import annotations

from collections.abc import Collection

import onnx


def given_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs of a run, in order: those without an initializer.

    Up to version 3 of the IR of ONNX, and as a default that a run may override later on, an initializer is listed among
    the inputs too.
    """
    initialized = {tensor.name for tensor in graph.initializer}
    return [entry for entry in graph.input if entry.name not in initialized]


def result_names(graph: onnx.GraphProto) -> dict[str, str]:
    """What the outputs are called, by their names in the file.

    They keep these, but for an output that is an input: arguments and results of a program have names of their own, so
    output `x` is `x_out` where there is an input `x`.
    """
    taken = {entry.name for entry in given_inputs(graph)}
    names: dict[str, str] = {}
    own = {entry.name for entry in graph.output}
    for entry in graph.output:
        is_input = entry.name in taken
        names[entry.name] = (
            unused(f"{entry.name}_out", taken | own | {*names.values()}) if is_input else entry.name
        )
    return names


def unused(stem: str, taken: Collection[str]) -> str:
    """The stem, or the stem followed by the first number that makes it a name that is not taken."""
    name, number = stem, 0
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    return name
