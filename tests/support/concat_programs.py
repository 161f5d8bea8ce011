"""Programs whose concatenations are views: real blocks, and one for every way a part can lie. With float64 NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from aicf.frontends.builder import Graph

Array = NDArray[np.float64]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class ConcatProgram:
    """A program, shapes of what it is given, and what it computes of that."""

    build: Callable[[], ModuleOp]
    feeds: dict[str, tuple[int, ...]]
    weights: dict[str, tuple[int, ...]]
    meaning: Callable[[Arrays], Arrays]


def random_arrays(
    shapes: dict[str, tuple[int, ...]], rng: np.random.Generator
) -> dict[str, NDArray[np.float32]]:
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def inception(pixels: int = 64, channels: int = 16) -> ConcatProgram:
    """Branches of an inception block side by side along the channels: two 1x1 convolutions, and what goes through."""
    weights = {"w1": (24, channels), "w2": (8, channels), "b1": (24,), "b2": (8,)}

    def build() -> ModuleOp:
        graph = Graph("inception")
        x = graph.input("x", (pixels, channels))
        w = {name: graph.param(name, shape) for name, shape in weights.items()}
        one = graph.relu(graph.linear(x, w["w1"], w["b1"], name="one"), name="act1")
        two = graph.tanh(graph.linear(x, w["w2"], w["b2"], name="two"), name="act2")
        h = graph.concat([one, x, two], 1, name="cat")
        graph.output(graph.softmax(h, name="probs"), "y")
        return graph.module()

    def meaning(v: Arrays) -> Arrays:
        one, two = np.maximum(v["x"] @ v["w1"].T + v["b1"], 0), np.tanh(v["x"] @ v["w2"].T + v["b2"])
        h = np.concatenate([one, v["x"], two], 1)
        e = np.exp(h - h.max(1, keepdims=True))
        return {"y": e / e.sum(1, keepdims=True)}

    return ConcatProgram(build, {"x": (pixels, channels)}, weights, meaning)


def rotary(rows: int = 12, size: int = 64) -> ConcatProgram:
    """Rotary embedding: x cos + [-x2, x1] sin, of halves of what is computed."""
    half = size // 2

    def build() -> ModuleOp:
        graph = Graph("rotary")
        x, cos, sin = (graph.input(name, (rows, size)) for name in ("x", "cos", "sin"))
        x = graph.exp(x, name="grown")
        left, right = (graph.slice(x, [0, start], [rows, half]) for start in (0, half))
        turned = graph.concat([graph.neg(right, name="negated"), left], 1, name="turned")
        graph.output(graph.add(graph.mul(x, cos), graph.mul(turned, sin)), "y")
        return graph.module()

    def meaning(v: Arrays) -> Arrays:
        x = np.exp(v["x"])
        turned = np.concatenate([-x[:, half:], x[:, :half]], 1)
        return {"y": x * v["cos"] + turned * v["sin"]}

    shape = (rows, size)
    return ConcatProgram(build, {"x": shape, "cos": shape, "sin": shape}, {}, meaning)


def rows(count: int = 16, width: int = 32, size: int = 24) -> ConcatProgram:
    """Queries, keys and values of three products under each other."""
    names = ("q", "k", "v")

    def build() -> ModuleOp:
        graph = Graph("rows")
        x = graph.input("x", (count, width))
        parts = [
            graph.matmul(graph.add(x, float(n)), graph.param(name, (width, size)), name=f"product.{name}")
            for n, name in enumerate(names)
        ]
        graph.output(graph.concat(parts, 0, name="cat"), "y")
        return graph.module()

    def meaning(v: Arrays) -> Arrays:
        return {"y": np.concatenate([(v["x"] + n) @ v[name] for n, name in enumerate(names)])}

    return ConcatProgram(build, {"x": (count, width)}, dict.fromkeys(names, (width, size)), meaning)


def dense(rows: int = 12, size: int = 5) -> ConcatProgram:
    """A block of a DenseNet: every layer reads all before it where they lie, and adds columns to them."""

    def build() -> ModuleOp:
        graph = Graph("dense")
        one = graph.exp(graph.input("x", (rows, size)), name="one")
        two = graph.matmul(one, graph.param("w", (size, size)), name="two")
        both = graph.concat([one, two], 1, name="both")
        three = graph.matmul(both, graph.param("v", (2 * size, size)), name="three")
        all_ = graph.concat([both, graph.tanh(three), graph.neg(two, name="four")], 1, name="all")
        graph.output(graph.softmax(all_), "y")
        return graph.module()

    def meaning(v: Arrays) -> Arrays:
        one = np.exp(v["x"])
        two = one @ v["w"]
        both = np.concatenate([one, two], 1)
        e = np.exp(np.concatenate([both, np.tanh(both @ v["v"]), -two], 1))
        return {"y": e / e.sum(1, keepdims=True)}

    return ConcatProgram(build, {"x": (rows, size)}, {"w": (size, size), "v": (2 * size, size)}, meaning)


def state(rows: int = 7, size: int = 6) -> ConcatProgram:
    """A state whose new value is what was computed of the old one, side by side."""

    def build() -> ModuleOp:
        graph = Graph("state")
        x, held = graph.input("x", (rows, size)), graph.state("held", (rows, 2 * size))
        left, right = (graph.slice(held, [0, start], [rows, size]) for start in (0, size))
        new = graph.concat(
            [graph.add(left, x, name="sum"), graph.mul(right, x, name="product")], 1, name="new"
        )
        graph.update(held, new)
        graph.output(graph.reduce_sum(new, (1,)), "y")
        return graph.module()

    def meaning(v: Arrays) -> Arrays:
        left, right = v["held"][:, :size], v["held"][:, size:]
        return {"y": (left + v["x"]).sum(1) + (right * v["x"]).sum(1)}

    return ConcatProgram(build, {"x": (rows, size)}, {"held": (rows, 2 * size)}, meaning)


PROGRAMS: dict[str, Callable[[], ConcatProgram]] = {
    "inception": inception,
    "rotary": rotary,
    "rows": rows,
    "dense": dense,
    "state": state,
}
"""By name, each in its small size."""
