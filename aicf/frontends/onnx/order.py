"""Nodes in the order of what they read. ONNX asks for that order, yet tools that insert nodes append them, such as the
casts around a model that was made f16, and ONNX Runtime sorts what it loads.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, MutableSequence, Sequence

import onnx


def order_nodes(model: onnx.ModelProto) -> None:
    """Puts every node after the producers of what it or a graph inside it reads, in all graphs and functions.

    Nodes that may stay where they are do. Nodes in a cycle have no such order and are left for the checker to refuse.
    """
    for function in model.functions:
        _order(function.node)
    _order(model.graph.node)


def _order(nodes: MutableSequence[onnx.NodeProto]) -> None:
    for node in nodes:
        for graph in _graphs_of(node):
            _order(graph.node)
    producers = {output: index for index, node in enumerate(nodes) for output in filter(None, node.output)}
    needs = [{producers[name] for name in _reads(node) if name in producers} for node in nodes]
    if all(producer < index for index, needed in enumerate(needs) for producer in needed):
        return
    order = _topological(needs)
    if len(order) == len(nodes):
        moved = [nodes[index] for index in order]
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in moved]
        del nodes[:]
        nodes.extend(copies)


def _topological(needs: Sequence[set[int]]) -> list[int]:
    """Indices in an order of their needs, the first first where that leaves a choice; without those of a cycle."""
    readers: list[list[int]] = [[] for _ in needs]
    for index, needed in enumerate(needs):
        for producer in needed:
            readers[producer].append(index)
    missing = [len(needed) for needed in needs]
    ready = [index for index, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        producer = heapq.heappop(ready)
        order.append(producer)
        for reader in readers[producer]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    return order


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node reads, and those that the graphs inside of it do, of theirs or of values around them."""
    yield from node.input
    for graph in _graphs_of(node):
        yield from (entry.name for entry in graph.output)
        for inner in graph.node:
            yield from _reads(inner)


def _graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs
