"""The text of row programs after wgmma products, run on the CPU by all consumer threads of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from aicf.backends.cuda.compiler.specializer import Snippet, splice, stage
from aicf.backends.cuda.families.gemm.wgmma.kernel import task_of_work
from aicf.backends.cuda.families.gemm.wgmma.rows import PARAMETERS, row_snippet
from aicf.backends.cuda.families.gemm.wgmma.schedule import Spec
from aicf.frontends.builder import Graph
from tests.backends.cuda.simulator import run_cluster
from tests.backends.cuda.test_gemm_norm import work
from tests.gpu.programs import rows_normed

Array = NDArray[Any]


def rows(acc: Any, row: Any, column: Any, lane: Any, thread: Any, rank: Any) -> None:
    """A template: one tile's row program, its shared memory at 0."""
    shared = 0  # noqa: F841
    splice(ROWS, acc, 0, 0, 0, row, column, lane)  # type: ignore[name-defined]  # noqa: F821


@dataclass
class Tiles:
    """One cluster's tiles: the product of a row of tiles, what the program loads, and what it stores."""

    sums: Array
    extras: list[Array]
    stored: dict[int, Array]


def run(graph: Graph, spec: Spec, random: np.random.Generator) -> Tiles:
    """Runs the row program of `graph` on random sums in a cluster of `spec`."""
    job = work(graph)
    task, code = task_of_work(job), job.code
    assert code is not None
    m, n = task.problem.m, task.problem.n
    wide = spec.cluster_n * spec.tile_n
    tiles = Tiles(
        random.standard_normal((spec.tile_m, wide)).astype(np.float32),
        [random.standard_normal(operand.shape).astype(np.float32) for operand in job.operands[2:]],
        {output: np.full((spec.tile_m, wide), np.nan, np.float32) for output in range(len(job.results))},
    )
    constants: dict[str, Any] = {
        "ROWS": row_snippet(code, task, spec, "fused", {}),
        "SUMS": spec.sums,
        "WIDTH": spec.tile_n,
        "TOTALS_AT": 0,
    }
    for number in range(len(tiles.extras)):
        constants[f"LOAD_EXTRA{number}"] = Snippet(
            ("matrix", "row", "column"), (), f"load_extra({number}, row, column)"
        )
    for output in tiles.stored:
        call = f"store_result({output}, acc, row, column, lane)"
        constants[f"STORE_RESULT{output}"] = Snippet(PARAMETERS, (call,))

    def load_extra(number: int, row: int, column: int) -> list[Any]:
        """As the kernel does: indices after the last row or column are held inside."""
        values = np.broadcast_to(tiles.extras[number], (m, n))
        return [values[min(row + 8 * half, m - 1), min(column + c, n - 1)] for half in (0, 1) for c in (0, 1)]

    def store_result(output: int, values: Any, row: int, column: int, lane: int) -> None:
        for index, value in enumerate(values):
            at_row = row + lane // 4 + 8 * (index // 2 % 2)
            tiles.stored[output][at_row, column + index // 4 * 8 + lane % 4 * 2 + index % 2] = value

    def arguments(rank: int, number: int) -> tuple[Any, ...]:
        warp, lane = number // 32, number % 32
        row, column = (warp // 4) * 64 + (warp % 4) * 16, rank * spec.tile_n
        upper, first = row + lane // 4, column + lane % 4 * 2
        acc = tuple(
            tiles.sums[upper + 8 * (index // 2 % 2), first + index // 4 * 8 + index % 2]
            for index in range(spec.sums)
        )
        return acc, row, column, lane, number + 128, rank

    text = stage(rows, constants)
    threads = 128 * spec.consumers
    run_cluster(text, spec.cluster_n, threads, arguments, load_extra=load_extra, store_result=store_result)
    return tiles


def layer_norm(y: Array, scale: Array, bias: Array) -> Array:
    """In float64."""
    centred = y - y.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def rms_norm(y: Array, scale: Array) -> Array:
    """In float64."""
    return y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-3) * scale


def softmax(y: Array) -> Array:
    """In float64."""
    powers = np.exp(y - y.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


NORMS: dict[str, Callable[..., Array]] = {"layer_norm": layer_norm, "rms_norm": rms_norm, "softmax": softmax}


@pytest.mark.parametrize(
    ("norm", "m", "n", "spec", "keep"),
    [
        ("layer_norm", 64, 192, Spec(64, 64, 2, cluster_n=3), False),
        ("layer_norm", 64, 155, Spec(64, 64, 2, cluster_n=3), True),
        ("rms_norm", 50, 300, Spec(64, 64, 2, cluster_n=5), False),
        ("softmax", 64, 130, Spec(64, 128, 2, cluster_n=2), True),
        ("softmax", 60, 51, Spec(64, 64, 2), False),
        ("layer_norm", 128, 128, Spec(128, 64, 2, cluster_n=2), False),
    ],
)
def test_rows_are_normed_as_in_float64(norm: str, m: int, n: int, spec: Spec, keep: bool) -> None:
    """Whole rows across blocks, also where the last has columns after the end, whose sums are anything; what is normed
    is the second result where it is one."""
    random = np.random.default_rng(m + n)
    tiles = run(rows_normed("f16", m, n, 64, norm, keep=keep), spec, random)
    bias, residual, *rest = (extra.astype(np.float64) for extra in tiles.extras)
    y = tiles.sums[:m, :n].astype(np.float64) + bias + residual
    wanted = {0: NORMS[norm](y, *rest), 1: y}
    if keep:
        # Results stand in the order in which their ops do.
        wanted = {0: y, 1: wanted[0]}
    # The mean of squares is a value of half precision, which rounds once; everything else is f32.
    rtol = 1e-3 if norm == "rms_norm" else 2e-5
    for output, values in tiles.stored.items():
        np.testing.assert_allclose(values[:m, :n], wanted[output], rtol=rtol, atol=2e-6)


def test_all_blocks_of_a_row_agree_to_the_bit() -> None:
    """A norm that stores the mean of its row in every column stores one value."""

    def means(n: int) -> Graph:
        g = Graph("means")
        x, w = g.input("x", (64, 64), "f16"), g.param("w", (n, 64), "f16")
        y = g.cast(g.linear(x, w), "f32")
        mean = g.reduce_mean(y, [-1], keepdims=True)
        g.output(y * 0.0 + mean, "z")
        return g

    tiles = run(means(180), Spec(64, 64, 2, cluster_n=3), np.random.default_rng(1))
    found = tiles.stored[0][:, :180]
    assert (found == found[:, :1]).all()
    wanted = tiles.sums[:, :180].astype(np.float64).mean(-1)
    np.testing.assert_allclose(cast(Array, found[:, 0]), wanted, rtol=1e-5, atol=1e-6)
