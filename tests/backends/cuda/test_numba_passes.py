"""Steps that replace Numba's decide what Numba's do, on random graphs of blocks and in random kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import numpy as np
import pytest
from numba.cuda.compiler import run_frontend
from numba.cuda.core import analysis
from numba.cuda.core.controlflow import CFGraph

from aicf.backends.cuda.compiler import toolchain
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.numba_passes import linear_passes
from aicf.backends.cuda.compiler.toolchain import compile_kernel

Names = dict[int, set[str]]


class Flow:
    """What the analyses ask a control flow graph: blocks are numbers, edges pairs of them."""

    def __init__(self, edges: set[tuple[int, int]]) -> None:
        self.edges = edges

    def successors(self, block: int) -> Iterator[tuple[int, None]]:
        return ((end, None) for start, end in self.edges if start == block)

    def predecessors(self, block: int) -> Iterator[tuple[int, None]]:
        return ((start, None) for start, end in self.edges if end == block)


def flow(random: np.random.Generator, blocks: int) -> Flow:
    """Blocks in a row with jumps ahead and back between them."""
    row = {(block, block + 1) for block in range(blocks - 1)}
    return Flow(row | {(int(a), int(b)) for a, b in random.integers(0, blocks, (blocks // 2, 2))})


def naming(random: np.random.Generator, blocks: int) -> Names:
    """A few of ten variables for each block."""
    return {
        block: {f"v{n}" for n in random.integers(0, 10, random.integers(0, 4))} for block in range(blocks)
    }


def test_the_same_variables_are_alive() -> None:
    """Also those that no block defines, or that are defined on some of the ways alone."""
    for seed in range(200):
        random = np.random.default_rng(seed)
        blocks = int(random.integers(1, 30))
        cfg, used, defined = flow(random, blocks), naming(random, blocks), naming(random, blocks)
        with linear_passes():
            found = analysis.compute_live_map(cfg, dict.fromkeys(range(blocks)), used, defined)
        assert found == analysis.compute_live_map(cfg, dict.fromkeys(range(blocks)), used, defined), seed


def test_the_same_blocks_dominate() -> None:
    """From the entry, and towards the exits, which loops without end have none of."""
    for seed in range(200):
        random = np.random.default_rng(seed)
        blocks = int(random.integers(1, 30))
        cut = set(random.integers(0, blocks, blocks // 4).tolist())  # no longer followed by the next block
        edges = {(a, b) for a, b in flow(random, blocks).edges if a not in cut or b != a + 1}
        with linear_passes():
            ours = graph(blocks, edges)
            found = ours.dominators(), ours.post_dominators()
        numbas = graph(blocks, edges)
        assert found == (numbas.dominators(), numbas.post_dominators()), seed


def graph(blocks: int, edges: set[tuple[int, int]]) -> CFGraph:
    """As Numba's own."""
    made = CFGraph()
    for block in range(blocks):
        made.add_node(block)
    for start, end in edges:
        made.add_edge(start, end)
    made.set_entry_point(0)
    made.process()
    return made


def test_the_steps_are_numbas_again_afterwards() -> None:
    own = analysis.compute_live_map
    with linear_passes():
        assert analysis.compute_live_map is not own
    assert analysis.compute_live_map is own


# Kernels

EXPRESSIONS = (
    "i32({a} + {b} * {n})",
    "i32({a} ^ {b} >> {n})",
    "i32(min({a}, {b}) - {n})",
    "i32({a} if {b} < {n} else {b})",
    "i32(u32({a}) & 7 | u32({b}) << 2)",
    "i32(remainder(u32({a}), {n}))",
    "i32((({a}, {b}))[{n} % 2])",
    "i32(-{a} if {a} < 0 and {b} > {n} or {b} == 3 else {a})",
    "{a}",
)
"""Values of variables `a` and `b` and a literal `n`."""


class KernelText:
    """A random kernel: assignments of four variables in branches and loops inside each other."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.lines = ["def k(x, y, n):", *(f"    v{i} = i32(cuda.threadIdx.x * {i + 1})" for i in range(4))]
        self._loops = 0
        self._statements("    ", 3)
        self.lines += [f"    store_i32(u64(y + u64({4 * i})), v{i})" for i in range(4)]

    def _statements(self, indent: str, depth: int) -> None:
        for _ in range(self._random.integers(2, 5)):
            kind = self._random.integers(0, 5) if depth else 0
            if kind < 3:
                self.lines.append(f"{indent}{self._assignment()}")
                continue
            if kind == 3:
                self._loops += 1
                self.lines.append(f"{indent}for i{self._loops} in range({self._one_of(('n', '3'))}):")
            else:
                self.lines.append(f"{indent}if {self._variable()} < {self._variable()}:")
            self._statements(indent + "    ", depth - 1)
            if kind == 4 and self._random.integers(0, 2):
                self.lines.append(f"{indent}else:")
                self._statements(indent + "    ", depth - 1)

    def _assignment(self) -> str:
        if self._random.integers(0, 5) == 0:
            a, b = self._variable(), self._variable()
            return f"{a}, {b} = ({b}, {a})" if a != b else f"{a} = load_i32(u64(x + u64({a} * 4)))"
        literal = int(self._random.integers(1, 30))
        value = self._one_of(EXPRESSIONS).format(a=self._variable(), b=self._variable(), n=literal)
        return f"{self._variable()} = {value}"

    def _variable(self) -> str:
        return f"v{self._random.integers(0, 4)}"

    def _one_of(self, choices: tuple[str, ...]) -> str:
        return choices[self._random.integers(0, len(choices))]


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(8))
def test_random_kernels_have_the_bytes_of_numbas(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_bytes_of_numbas(KernelText(seed).lines, monkeypatch)


@pytest.mark.parametrize("index", [5, 6])
def test_kernels_with_a_long_tuple_have_the_bytes_of_numbas(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python and Numba build one of more than 30 elements in another way."""
    long = f"    store_i32(u64(y + u64(16)), i32((({'v0, i32(v1 * n), ' * 16}))[{index}]))"
    assert_bytes_of_numbas([*KernelText(1).lines, long], monkeypatch)


def assert_bytes_of_numbas(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code = KernelCode("k", "\n".join(lines) + "\n", ("ptr", "ptr", "i32"), 64)
    ours = compile_kernel(code, "sm_90a")
    monkeypatch.setattr(toolchain, "linear_passes", nullcontext)
    assert compile_kernel(code, "sm_90a") == ours


@pytest.mark.parametrize(
    ("elements", "lengths"),
    [
        ("a, b + 1, " * 20, [40]),
        ("a, (a := b), " * 16, [32]),
        ("*a, " + "b, " * 30, [0, *[1] * 30]),
    ],
    ids=["values", "assignments", "unpacked"],
)
def test_a_long_tuple_is_built_at_once(elements: str, lengths: list[int]) -> None:
    """One that another tuple is unpacked into stays the sum of tuples that Numba makes of it."""
    namespace: dict[str, Callable[..., object]] = {}
    exec(f"def k(a, b):\n    return ({elements})", namespace)
    with linear_passes():
        (block,) = run_frontend(namespace["k"]).blocks.values()
    assert [len(each.items) for each in block.find_exprs("build_tuple")] == lengths
    assert not list(block.find_exprs("list_to_tuple"))
