"""If, Loop and Scan: resolved while the graph is lowered, where conditions and trip counts are known.

A program is static, so what is left of them is their bodies' ops, one copy for each iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Region, SSAValue

from aicf.passes.onnx.ops.base import Known, Node, Result, Tensor, Value, row

MAX_ITERATIONS = 4096
"""Most copies of a body; more are held to be a mistake, and would make a program that nobody can compile."""


@row("If")
def _if(node: Node) -> Result:
    """The branch that the condition chooses."""
    branch = "then_branch" if node.one(0, "the condition", "b") else "else_branch"
    return node.run(node.body(branch), (), "")


@row("Loop")
def _loop(node: Node) -> Result:
    """The body, as often as the trip count and the conditions say; scan outputs are stacked."""
    body = node.body("body")
    trips = node.one(0, "the trip count", "iu") if node.has(0) else None
    condition: Value = Known(np.asarray(node.one(1, "the condition", "b") if node.has(1) else True))
    variables = node.values(2)
    carried = len(variables)
    _check_inputs(node, body, 2 + carried)
    scanned: list[list[Tensor]] = []
    iteration = 0
    while (trips is None or iteration < trips) and _holds(node, condition, iteration):
        _check_count(node, iteration)
        number = Known(np.asarray(iteration, np.int64))
        condition, *rest = node.run(body, (number, condition, *variables), str(iteration))
        variables = rest[:carried]
        scanned.append([_tensor(node, value) for value in rest[carried:]])
        iteration += 1
    return [*variables, *_stack_all(node, scanned, node.outputs - carried)]


def _holds(node: Node, condition: Value, iteration: int) -> bool:
    if not isinstance(condition, Known):
        raise node.unsupported(
            f"the condition before iteration {iteration} is computed at run time, and a program is static; give "
            "the loop a constant condition and a trip count"
        )
    if condition.array.size != 1:
        raise node.invalid(
            f"the condition before iteration {iteration} has {condition.array.size} elements; it has one"
        )
    return bool(condition.array.reshape(-1)[0])


def _check_count(node: Node, iteration: int) -> None:
    if iteration >= MAX_ITERATIONS:
        raise node.unsupported(
            f"more than {MAX_ITERATIONS} iterations are not unrolled; compute them by tensor ops"
        )


def _check_inputs(node: Node, body: Region, given: int) -> None:
    wanted = len(body.block.args)
    if wanted != given:
        raise node.invalid(f"the body takes {wanted} inputs, and is given {given}")


def _tensor(node: Node, value: Value) -> Tensor:
    if not isinstance(value, SSAValue | Known):
        raise node.unsupported("a scan output that is no tensor is not supported; collect tensors")
    return value


def _stack_all(node: Node, scanned: Sequence[Sequence[Tensor]], count: int) -> list[Tensor]:
    """Scan outputs: for each, what the iterations gave, one after the other along a new first axis."""
    if count and not scanned:
        raise node.unsupported("no iteration runs, so that the sizes of its scan outputs are not known")
    for values in scanned:
        if len(values) < count:
            raise node.invalid(f"it has {count} scan outputs, its body gives {len(values)}")
    return [node.stack([values[index] for values in scanned], 0) for index in range(count)]


@row("Scan", since=9)
def _scan(node: Node) -> Result:
    """The body once for each slice of the scanned inputs."""
    inputs = node.attributes.int("num_scan_inputs", None)
    if inputs is None or not 0 < inputs <= node.count:
        raise node.invalid(f"num_scan_inputs is {inputs}; it is 1 to the number of operands, {node.count}")
    states, scanned = node.values(0)[: node.count - inputs], node.values(node.count - inputs)
    return _scan_over(node, states, [_tensor(node, value) for value in scanned], "")


@row("Scan", since=8, until=8)
def _scan_of_batches(node: Node) -> Result:
    """As later opsets have it, for each element of the first dimension of all operands."""
    if node.has(0):
        raise node.unsupported(
            "sequence lengths are not supported; pad the sequences, and mask what is computed"
        )
    inputs = node.attributes.int("num_scan_inputs", None)
    if inputs is None or not 0 < inputs < node.count:
        raise node.invalid(
            f"num_scan_inputs is {inputs}; it is 1 to the number of operands, {node.count - 1}"
        )
    operands = [_tensor(node, value) for value in node.values(1)]
    batch = node.shape_of(operands[-1])[0]
    results: list[list[Tensor]] = []
    for index in range(batch):
        parts = [node.pick(value, 0, index) for value in operands]
        states, scanned = parts[: len(parts) - inputs], parts[len(parts) - inputs :]
        found = _scan_over(node, states, scanned, f"{index}.", batch)
        results.append([_tensor(node, value) for value in found])
    return _stack_all(node, results, node.outputs)


def _scan_over(
    node: Node, states: Sequence[Value], scanned: Sequence[Tensor], part: str, times: int = 1
) -> list[Value]:
    """One of so many times that the node goes over as many elements."""
    body = node.body("body")
    _check_inputs(node, body, len(states) + len(scanned))
    axes = _axes(node, "scan_input_axes", [len(node.shape_of(value)) for value in scanned])
    backward = _directions(node, "scan_input_directions", len(scanned))
    if not all(node.shape_of(value) for value in scanned):
        raise node.invalid("a scanned input is a scalar; it has at least one dimension")
    lengths = {node.shape_of(value)[axis] for value, axis in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise node.invalid(f"the scanned inputs have different lengths, {sorted(lengths)}")
    (length,) = lengths
    _check_count(node, length * times - 1)
    collected: list[list[Tensor]] = []
    for step in range(length):
        slices = [
            node.pick(value, axis, length - 1 - step if back else step)
            for value, axis, back in zip(scanned, axes, backward, strict=True)
        ]
        results = node.run(body, (*states, *slices), f"{part}{step}")
        states = results[: len(states)]
        collected.append([_tensor(node, value) for value in results[len(states) :]])
    return [*states, *_stack_outputs(node, collected, node.outputs - len(states))]


def _stack_outputs(node: Node, collected: Sequence[Sequence[Tensor]], count: int) -> list[Tensor]:
    if count and not collected:
        raise node.unsupported("nothing is scanned, so that the sizes of its outputs are not known")
    if any(len(values) < count for values in collected):
        raise node.invalid(f"it has {count} scan outputs, its body gives fewer")
    ranks = [len(node.shape_of(value)) + 1 for value in collected[0]] if collected else []
    axes = _axes(node, "scan_output_axes", ranks[:count])
    backward = _directions(node, "scan_output_directions", count)
    ordered = [collected[::-1] if back else collected for back in backward]
    return [node.stack([values[index] for values in ordered[index]], axes[index]) for index in range(count)]


def _axes(node: Node, name: str, ranks: Sequence[int]) -> list[int]:
    axes = node.attributes.ints(name, [0] * len(ranks))
    if len(axes) != len(ranks):
        raise node.invalid(f"{name} has {len(axes)} entries for {len(ranks)} tensors")
    return [node.axis(axis, rank) for axis, rank in zip(axes, ranks, strict=True)]


def _directions(node: Node, name: str, count: int) -> list[bool]:
    directions = node.attributes.ints("directions" if node.opset == 8 else name, [0] * count)
    if len(directions) != count or not all(direction in (0, 1) for direction in directions):
        raise node.invalid(f"{name} is {directions}; it is 0 or 1 for each of {count} tensors")
    return [direction == 1 for direction in directions]
