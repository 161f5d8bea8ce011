"""Networks of any size, for timing the pipeline: one block after the other."""

from __future__ import annotations

import aicf


def _primitive_block(graph: aicf.Graph, x: aicf.Value, name: str) -> aicf.Value:
    weight, bias = graph.param(f"{name}.w", (WIDTH, WIDTH)), graph.param(f"{name}.b", x.shape)
    return graph.tanh(graph.add(graph.mul(graph.add(graph.matmul(x, weight), bias), x), x))


def _layer(graph: aicf.Graph, x: aicf.Value, name: str) -> aicf.Value:
    weight, bias = graph.param(f"{name}.w", (WIDTH, WIDTH)), graph.param(f"{name}.b", (WIDTH,))
    return graph.relu(graph.linear(x, weight, bias))


def _residual_block(graph: aicf.Graph, x: aicf.Value, name: str) -> aicf.Value:
    scale, shift = graph.param(f"{name}.scale", (WIDTH,)), graph.param(f"{name}.shift", (WIDTH,))
    up, down = graph.param(f"{name}.up", (WIDTH, WIDTH)), graph.param(f"{name}.down", (WIDTH, WIDTH))
    inner = graph.linear(graph.layer_norm(x, scale, shift), up, graph.param(f"{name}.b", (WIDTH,)))
    return graph.add(graph.linear(graph.gelu(inner), down), x)


WIDTH = 64
BLOCKS = {
    "matmul, add, mul, add, tanh": (_primitive_block, 5),
    "linear, relu": (_layer, 2),
    "layer_norm, linear, gelu, linear, add": (_residual_block, 5),
}
"""What the pipeline is timed on: a block, and its number of logical ops. The second and third are no primitive ops."""


def stack(block: str, ops: int) -> aicf.Graph:
    """Blocks one after the other, `ops` logical ops in all."""
    make, count = BLOCKS[block]
    graph = aicf.Graph("stack")
    value = graph.input("x", (32, WIDTH))
    for number in range(ops // count):
        value = make(graph, value, f"block{number}")
    graph.output(value, "y")
    return graph
