"""Small programs that are saved as artifacts and damaged, each with inputs and the results that NumPy gives in f64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import aicf
from aicf import optimizers, schedules
from aicf.frontends.builder import Graph

Array = NDArray[Any]
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Sample:
    """A saved program.

    Args:
        name: Of it.
        path: Of its artifact.
        feeds: Inputs by name, of one call after the other on one executable.
        expected: What the calls give by name.
        runs_here: Whether this machine can run it.
        rebuilds: Whether its code is made again in a second or so.
    """

    name: str
    path: Path
    feeds: Sequence[Arrays]
    expected: Sequence[Arrays]
    runs_here: bool = True
    rebuilds: bool = True


def _normal(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _mlp_graph() -> Graph:
    graph = Graph("mlp")
    x = graph.input("x", ("N", 8))
    hidden = graph.relu(graph.linear(x, graph.param("w1", (16, 8)), graph.param("b1", (16,))))
    graph.output(graph.softmax(graph.linear(hidden, graph.param("w2", (4, 16)))), "y")
    return graph


_MLP_WEIGHTS = {"w1": _normal(1, 16, 8), "b1": _normal(2, 16), "w2": _normal(3, 4, 16)}


def _mlp(path: Path, target: str, **fields: Any) -> Sample:
    """Two programs, and weights that are packed ahead on cpu."""
    aicf.compile(_mlp_graph(), _MLP_WEIGHTS, target, dims="N=1,3").save(path)
    w1, b1, w2 = (_MLP_WEIGHTS[name].astype(np.float64) for name in ("w1", "b1", "w2"))
    feeds = [{"x": _normal(4, 1, 8)}, {"x": _normal(5, 3, 8)}]
    expected = [{"y": _softmax(np.maximum(feed["x"] @ w1.T + b1, 0) @ w2.T)} for feed in feeds]
    return Sample(path.stem, path, feeds, expected, **fields)


def _indexed(path: Path, target: str, threads: int) -> Sample:
    """Computed indices, a constant, f16, two outputs, and in `cpu` two threads."""
    graph = Graph("indexed")
    ids = graph.input("ids", (6,), "i64")
    table = graph.param("table", (10, 4))
    rows = graph.gather(table, ids)
    shift = graph.constant(np.arange(4, dtype=np.float32), (4,))
    values, _ = graph.topk(rows + shift, 2)
    graph.output(graph.concat([rows, values], 1), "y")
    graph.output(graph.cast(graph.reduce_sum(rows * rows, [1]), "f16"), "squares")
    weights = {"table": _normal(6, 10, 4)}
    aicf.compile(graph, weights, target, threads=threads).save(path)
    feeds = [{"ids": np.array([0, 9, 3, 3, 7, 1])}]
    found = weights["table"].astype(np.float64)[feeds[0]["ids"]]
    best = -np.sort(-(found + np.arange(4)), 1)[:, :2]
    expected = [{"y": np.concatenate([found, best], 1), "squares": (found * found).sum(1)}]
    return Sample(path.stem, path, feeds, expected)


def _step(path: Path) -> Sample:
    """A training step with momentum whose rate and counter the executable computes."""
    graph = Graph("line")
    x = graph.input("x", (5, 3))
    graph.output(graph.linear(x, graph.param("w", (2, 3)), graph.param("b", (2,))), "p")
    weights = {"w": _normal(7, 2, 3), "b": _normal(8, 2)}
    rate = schedules.Linear(0.1, total=4)
    step = aicf.train_step(
        graph, "mse", optimizers.SGD(lr=rate, momentum=0.9), weights=weights, target="cpu", meta="host"
    )
    step.save_program(path)
    feeds = [{"x": _normal(9 + n, 5, 3), "y": _normal(20 + n, 5, 2)} for n in range(3)]
    return Sample(path.stem, path, feeds, _trained(feeds, weights))


def _trained(feeds: Sequence[Arrays], weights: Arrays) -> list[Arrays]:
    w, b = (weights[name].astype(np.float64) for name in ("w", "b"))
    moving = [np.zeros_like(w), np.zeros_like(b)]
    found: list[Arrays] = []
    for number, feed in enumerate(feeds):
        off = feed["x"] @ w.T + b - feed["y"]
        found.append({"loss": np.mean(off**2)})
        gradients = [2 * off.T @ feed["x"] / off.size, 2 * off.sum(0) / off.size]
        moving = [0.9 * old + new for old, new in zip(moving, gradients, strict=True)]
        w, b = (old - 0.1 * (1 - number / 4) * by for old, by in zip((w, b), moving, strict=True))
    return found


_MAKERS: Mapping[str, Callable[[Path], Sample]] = {
    "mlp": lambda path: _mlp(path, "cpu"),
    "indexed": lambda path: _indexed(path, "cpu", 2),
    "step": _step,
    "reference": lambda path: _indexed(path, "reference", 1),
    "cuda": lambda path: _mlp(path, "cuda:sm_90a", runs_here=False, rebuilds=False),
}


def make_samples(folder: Path, names: Sequence[str] = tuple(_MAKERS)) -> list[Sample]:
    """Compiles and saves programs into a folder."""
    return [_MAKERS[name](folder / f"{name}.aicf") for name in names]
