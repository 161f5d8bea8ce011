"""Products of bf16, two terms of K at once, on levels that have the instruction."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aicf
from aicf.backends.cpu.families.gemm.schedule import GemmProblem, GemmSpec, check
from aicf.backends.cpu.target import CpuLevel
from aicf.errors import AicfError
from tests.backends.cpu.harness import NUMPY
from tests.backends.cpu.test_dot_products import featured
from tests.backends.cpu.test_gemm import check_product, pack_pairs, random

BF16 = NUMPY["bf16"]


def bf16_level() -> CpuLevel:
    return featured("avx512vnni", "avx512bf16")


def pairs(m: int, n: int, k: int, b_strides: tuple[int, int]) -> GemmProblem:
    return GemmProblem("f32", m, n, k, (k, 1), b_strides, a_type="bf16", b_type="bf16", unit_terms=2)


@settings(max_examples=30, deadline=None)
@given(
    m=st.integers(1, 20),
    n=st.integers(1, 70),
    k=st.integers(1, 70),
    transposed=st.booleans(),
    mr=st.integers(1, 6),
    nv=st.integers(1, 3),
    split=st.sampled_from([1, 2, 4]),
    source=st.sampled_from(["packed", "workspace"]),
    threads=st.integers(1, 2),
    seed=st.integers(0, 1000),
)
def test_any_shape_and_decision(
    m: int,
    n: int,
    k: int,
    transposed: bool,
    mr: int,
    nv: int,
    split: int,
    source: Any,
    threads: int,
    seed: int,
) -> None:
    level, rng = bf16_level(), np.random.default_rng(seed)
    a = random((m, k), "bf16", rng)
    stored = random((n, k) if transposed else (k, n), "bf16", rng)
    b = stored.T if transposed else stored
    spec = GemmSpec(
        pairs(m, n, k, (1, k) if transposed else (n, 1)),
        level.lanes("f32"),
        mr,
        nv,
        k_split=split,
        b_source=source,
        partition="none" if threads == 1 else "columns",
        threads=threads,
    )
    assert check(spec) is None
    check_product(spec, level, a, b, pack_pairs(b, spec.nr) if source == "packed" else stored)


@pytest.mark.parametrize("k", [1, 2, 3, 63, 64])
def test_nothing_past_a_row_is_read(k: int) -> None:
    """The last row of A ends where the memory of the process does."""
    level, rng, page = bf16_level(), np.random.default_rng(k), mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    a = np.frombuffer(memory, BF16, 3 * k, page - 6 * k).reshape(3, k)
    a[:] = random((3, k), "bf16", rng)
    b = random((k, 19), "bf16", rng)
    spec = GemmSpec(pairs(3, 19, k, (19, 1)), level.lanes("f32"), mr=3, nv=2)
    check_product(spec, level, a, b, pack_pairs(b, spec.nr))


def text(m: int, n: int, k: int) -> str:
    x, w, y = f"tensor<{m}x{k}xbf16>", f"tensor<{k}x{n}xbf16>", f"tensor<{m}x{n}xbf16>"
    return f"""
func.func @f(%x : {x} {{logical.name = "x", logical.role = "input"}},
             %w : {w} {{logical.name = "w", logical.role = "param"}}) -> ({y} {{logical.name = "y"}}) {{
  %y = logical.matmul %x, %w : ({x}, {w}) -> {y}
  func.return %y : {y}
}}"""


@pytest.mark.parametrize(
    ("level", "policy", "has_pairs"),
    [
        ("x86-64-v4+avx512vnni+avx512bf16", {}, True),
        ("x86-64-v4+avx512vnni+avx512bf16", {"determinism": "batch_invariant"}, True),
        ("x86-64-v4+avx512vnni+avx512bf16", {"rounding": "strict"}, False),
        ("x86-64-v4+avx512vnni", {}, False),
    ],
)
def test_which_programs_have_pairs(level: str, policy: dict[str, Any], has_pairs: bool) -> None:
    """The instruction takes subnormal numbers as 0, which strict rounding does not."""
    featured(*level.split("+")[1:])
    rng = np.random.default_rng(4)
    a, b = random((33, 129), "bf16", rng), random((129, 65), "bf16", rng)
    exe = aicf.compile(text(33, 65, 129), {"w": b}, target=f"cpu:{level}", policy=policy)
    assert ("pairs_of_k" in exe.ir("emit")) == has_pairs
    exact = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    found = exe.run({"x": a})["y"].astype(np.float64)
    assert (np.abs(found - exact) <= 2.0**-8 * np.abs(exact) + 131 * 2.0**-24 * scale).all()


def test_a_batch_changes_no_bits_where_it_may_not() -> None:
    level, rng = bf16_level(), np.random.default_rng(5)
    a, b = random((40, 129), "bf16", rng), random((129, 65), "bf16", rng)
    found = [
        aicf.compile(
            text(m, 65, 129), {"w": b}, target=f"cpu:{level.name}", policy={"determinism": "batch_invariant"}
        ).run({"x": a[:m]})["y"]
        for m in (1, 40)
    ]
    np.testing.assert_array_equal(found[0].view(np.uint16), found[1][:1].view(np.uint16))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("+avx512bf16", "", "units of 2 terms of K need avx512bf16, which the target is without"),
        (
            "pairs_of_k = true",
            "pairs_of_k = false",
            "'combination_order' is ascending pairs of k, legal: ascending k",
        ),
    ],
)
def test_edited_records_are_refused(old: str, new: str, reason: str) -> None:
    weights = {"w": np.zeros((66, 20), BF16)}
    program = aicf.compile(text(5, 20, 66), weights, target=f"cpu:{bf16_level().name}").ir("emit")
    assert old in program
    with pytest.raises(AicfError, match=reason):
        aicf.compile(program.replace(old, new), weights)
