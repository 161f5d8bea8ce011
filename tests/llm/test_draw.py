"""The op that draws: its meaning against probabilities by sorting in float64, and its kernels against the meaning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.backends.common.user_kernel import definitions_stamp
from aicf.backends.cuda.runtime.storage import read
from aicf.errors import InvalidIR
from aicf.llm.draw import CPU, DRAW
from aicf.llm.draw.meaning import draw
from aicf.testing import check_kernel

RNG = np.random.default_rng(211)
COUNT = 300


def program(count: int) -> aicf.Graph:
    graph = aicf.Graph("draw")
    operands = [graph.input("weights", (count,), "i32"), graph.input("uniform", (1,), "f64")]
    operands += [graph.input("top_k", (1,), "i64"), graph.input("top_p", (1,)), graph.input("min_p", (1,))]
    graph.output(graph.op(DRAW, *operands), "index")
    return graph


def settings(top_k: int, top_p: float, min_p: float) -> list[np.ndarray]:
    return [np.array([top_k]), np.array([top_p], np.float32), np.array([min_p], np.float32)]


def kept(weights: np.ndarray, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """Probabilities in float64, element by element as the filters are defined."""
    p = np.maximum(weights, 0).astype(np.float64)
    above = np.array([(p > each).sum() for each in p])
    p[above >= (top_k or len(p))] = 0
    mass = np.array([p[p > each].sum() for each in p])
    if top_p < 1:
        p[(mass >= np.float64(np.float32(top_p)) * p.sum()) & (p < p.max())] = 0
    p[p < np.float64(np.float32(min_p)) * p.max()] = 0
    return p / p.sum()


def chi_square(degrees: int) -> float:
    """What one in 10,000 random sums exceeds, by the cube root of Wilson and Hilferty, 1931."""
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + 3.72 * np.sqrt(spread)) ** 3


@pytest.fixture(scope="module")
def on_cpu() -> aicf.CompiledModel:
    return aicf.compile(program(COUNT), {}, "cpu")


def test_the_kernel_is_the_meaning(on_cpu: aicf.CompiledModel) -> None:
    """Over sizes of weights from 1 to 2^30, with equal and with negative ones, and filters at their ends."""
    for number in range(3000):
        weights = RNG.integers(-5, 2 ** int(RNG.integers(1, 31)), COUNT).astype(np.int32)
        if number % 3 == 0:
            weights = RNG.choice(weights[:9], COUNT)
        shares = RNG.choice([0, 1, *RNG.random(2)], 2)
        operands = [weights, RNG.random(1), *settings(int(RNG.integers(0, COUNT + 9)), *shares)]
        assert on_cpu(*operands) == draw(*operands)


def test_the_kernel_stays_in_its_buffers() -> None:
    weights = RNG.integers(0, 1 << 30, 777).astype(np.int32)
    check_kernel(CPU, weights, RNG.random(1), *settings(40, 0.9, 0.05), bounds=True)


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"),
    [(0, 1, 0), (5, 1, 0), (0, 0.6, 0), (0, 1, 0.2), (9, 0.7, 0.1), (1, 0, 0), (0, 0, 0), (0, 1, 1)],
)
def test_what_is_drawn_is_distributed_as_the_filters_say(
    on_cpu: aicf.CompiledModel, top_k: int, top_p: float, min_p: float
) -> None:
    """A chi-square test of 4,000 draws; what is left out is never drawn."""
    weights = (np.exp(RNG.normal(0, 2, COUNT)) * 2**20).astype(np.int32)
    expected, numbers = kept(weights, top_k, top_p, min_p), RNG.random((4000, 1))
    found = np.zeros(COUNT)
    for number in numbers:
        found[on_cpu(weights, number, *settings(top_k, top_p, min_p))[0]] += 1
    assert not found[expected == 0].any()
    often = expected * len(numbers) >= 5
    rest = [part[(expected > 0) & ~often].sum() for part in (found, expected * len(numbers))]
    observed, wanted = np.append(found[often], rest[0]), np.append(expected[often] * len(numbers), rest[1])
    if len(observed[wanted > 0]) > 1:
        observed, wanted = observed[wanted > 0], wanted[wanted > 0]
        assert ((observed - wanted) ** 2 / wanted).sum() < chi_square(len(wanted) - 1)
    else:
        assert observed.max() == len(numbers)


def test_nothing_to_draw(on_cpu: aicf.CompiledModel) -> None:
    none = np.minimum(RNG.integers(-9, 9, COUNT), 0).astype(np.int32)
    assert on_cpu(none, np.array([0.5]), *settings(3, 0.5, 0.5)) == -1


def test_programs_of_it_are_compiled_again_where_nothing_has_defined_it(
    on_cpu: aicf.CompiledModel, tmp_path: Path
) -> None:
    """It is part of AICF: a process that has only the artifact finds it, and caches do not tell it from others."""
    on_cpu.save(tmp_path / "draw.aicf")
    code = f"import aicf; print(aicf.load({str(tmp_path / 'draw.aicf')!r}, native='rebuild').name)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.stdout, done.returncode) == ("draw\n", 0), done.stderr
    assert not any("aicf.draw" in line for line in definitions_stamp())


def test_operands_of_other_types_are_told() -> None:
    graph = aicf.Graph("wrong")
    weights, one = graph.input("weights", (9,)), graph.input("one", (1,))
    with pytest.raises(InvalidIR, match=r"weights is f32 of shape \(9,\); it is i32\[count\]"):
        graph.op(DRAW, weights, one, one, one, one)


def test_the_kernel_for_gpus_spills_nothing() -> None:
    exe = aicf.compile(program(128256), {}, "cuda:sm_90a")
    (stored,) = read(exe.native.code)[0].cubins
    assert stored.stack_bytes == 0
