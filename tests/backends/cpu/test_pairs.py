"""Products of short integers, two terms of K at once: exact in i32 for every pair of types, at both ends of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.gemm.pack.pairs import PairPacker, Pairs
from aicf.backends.cpu.families.gemm.schedule import GemmProblem, GemmSpec, propose
from aicf.backends.cpu.target import LEVELS, CpuLevel
from tests.backends.cpu.harness import NUMPY, Function, Poisoned, runnable_levels
from tests.backends.cpu.test_gemm import V4_OR_BEST, check_product, gemm_code, pack_pairs

Array = NDArray[Any]
SHORT = ("i8", "u8", "i16")


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Of the whole range, a quarter of them at its ends."""
    limits = np.iinfo(NUMPY[dtype])
    values = rng.integers(limits.min, limits.max + 1, shape)
    ends = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random(shape) < 0.25, ends, values).astype(NUMPY[dtype])


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(1, 9),
    n=st.integers(1, 40),
    k=st.integers(1, 70),
    left=st.sampled_from(SHORT),
    right=st.sampled_from(SHORT),
    transposed=st.tuples(st.booleans(), st.booleans()),
    mr=st.integers(1, 4),
    nv=st.integers(1, 2),
    split=st.sampled_from([1, 2, 4]),
    blocks=st.integers(0, 2),
    source=st.sampled_from(["packed", "packed narrow", "workspace"]),
    threads=st.integers(1, 2),
    level=st.sampled_from(runnable_levels()),
    seed=st.integers(0, 1000),
)
def test_sums_are_exact(
    m: int,
    n: int,
    k: int,
    left: str,
    right: str,
    transposed: tuple[bool, bool],
    mr: int,
    nv: int,
    split: int,
    blocks: int,
    source: str,
    threads: int,
    level: CpuLevel,
    seed: int,
) -> None:
    """Every decision; sums of 70 products of i16 at the ends of their range leave i32, and wrap around as NumPy's."""
    rng = np.random.default_rng(seed)
    stored = [numbers(rng, shape[::-1] if swap else shape, dtype) for shape, swap, dtype in (
        ((m, k), transposed[0], left), ((k, n), transposed[1], right)
    )]  # fmt: skip
    a, b = (each.T if swap else each for each, swap in zip(stored, transposed, strict=True))
    how, _, narrow = source.partition(" ")
    b_source: Any = how
    problem = GemmProblem(
        "i32", m, n, k,
        (1, m) if transposed[0] else (k, 1), (1, k) if transposed[1] else (n, 1),
        a_type=left, b_type=right,
    )  # fmt: skip
    assert problem.pairs
    spec = GemmSpec(
        problem,
        level.lanes("i32"),
        mr,
        nv,
        k_split=split,
        b_source=b_source,
        mc=blocks * mr,
        partition="none" if threads == 1 else "columns",
        threads=threads,
        b_panel_type=right if narrow else "",
    )
    panels = pack_pairs(b if narrow else b.astype(np.int16), spec.nr)
    check_product(spec, level, a, b, panels if how == "packed" else stored[1])


@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("level", [level for level in LEVELS.values() if level.architecture != "aarch64"],
                         ids=lambda level: level.name)  # fmt: skip
def test_the_specs_of_every_level_compile(dtype: str, level: CpuLevel) -> None:
    """Also for levels that this machine does not run; a weight that leaves the cache is prefetched and kept narrow."""
    problem = GemmProblem("i32", 1, 2048, 2048, (2048, 1), (2048, 1), a_type="i16", b_type=dtype)
    element = "" if dtype == "i16" else dtype
    ((_, spec),) = propose(problem, level, "packed", count=1, b_panel_type=element)
    assert spec.prefetch_lines
    assert gemm_code(spec, level)


@pytest.mark.parametrize("apart", [1, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_pairs_may_lie_apart(apart: int, transposed: bool, kept: bool) -> None:
    """Terms of a convolution are places in a window of one channel after the other: pairs are of two channels."""
    rng = np.random.default_rng(apart)
    columns, width, groups = 21, 16, 5
    k = groups * apart
    b = numbers(rng, (k, columns), "i8")
    stored = np.ascontiguousarray(b.T) if transposed else b
    pairs = Pairs("i8", "i8" if kept else "i16", k, apart)
    order = [
        (2 * group * apart + index, (2 * group + 1) * apart + index)
        for group in range(-(-groups // 2))
        for index in range(apart)
    ]
    padded = np.concatenate([b, np.zeros((apart, columns), b.dtype)]).astype(NUMPY[pairs.element])
    wanted = pack_pairs(np.concatenate([padded[list(pair)] for pair in order]), width)
    out = Poisoned(wanted.shape, pairs.element)
    assert pairs.units == len(order)

    def emit(em: Emitter, source: Value, target: Value, *_: Value) -> None:
        strides = (1, k) if transposed else (columns, 1)
        packer = PairPacker(em, pairs, V4_OR_BEST.lanes("i32"), width, strides)
        packer.matrix(columns, source, target)

    Function(V4_OR_BEST, 2, emit)(stored, out.array)
    out.check()
    np.testing.assert_array_equal(out.array, wanted)
