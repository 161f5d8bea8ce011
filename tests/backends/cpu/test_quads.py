"""Products of 8-bit integers, four terms of K at once: exact in i32, and nothing past a row of A is touched."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import aicf
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.gemm.pack.quads import QuadPacker
from aicf.backends.cpu.families.gemm.schedule import GemmProblem, GemmSpec, check, propose
from aicf.backends.cpu.target import CpuLevel
from aicf.errors import AicfError
from tests.backends.cpu.harness import NUMPY, Function, Poisoned
from tests.backends.cpu.test_dot_products import featured
from tests.backends.cpu.test_gemm import check_product, pack
from tests.backends.cpu.test_pairs import numbers

Array = NDArray[Any]
SHORT = ("i8", "u8")
DEPTHS = (*range(1, 10), 63, 64, 65, 257)


def vnni() -> CpuLevel:
    return featured("avx512vnni")


def pack_quads(b: Array, nr: int, shift: int) -> Array:
    """What `QuadPacker` must give, in NumPy: [panel][row][column], i32."""
    b = b.astype(np.int8)
    padded = np.concatenate([b, np.zeros((-len(b) % 4, b.shape[1]), b.dtype)])
    columns = pack(padded, nr)
    quads = np.ascontiguousarray(columns.reshape(len(columns), -1, 4, nr).swapaxes(2, 3))
    units = quads.view(np.int32)[..., 0]
    starts = -shift * columns.astype(np.int32).sum(1, keepdims=True)
    return np.concatenate([starts, units], 1).astype(np.int32) if shift else units


def quads(m: int, n: int, k: int, left: str, b_strides: tuple[int, int], **others: Any) -> GemmProblem:
    return GemmProblem("i32", m, n, k, (k, 1), b_strides, a_type=left, b_type="i8", unit_terms=4, **others)


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(1, 20),
    n=st.integers(1, 70),
    k=st.one_of(st.integers(1, 70), st.sampled_from(DEPTHS)),
    left=st.sampled_from(SHORT),
    transposed=st.booleans(),
    mr=st.integers(1, 6),
    nv=st.integers(1, 3),
    split=st.sampled_from([1, 2, 4]),
    blocks=st.integers(0, 2),
    group=st.integers(1, 3),
    source=st.sampled_from(["packed", "workspace"]),
    threads=st.integers(1, 2),
    seed=st.integers(0, 1000),
)
def test_any_shape_and_decision(
    m: int,
    n: int,
    k: int,
    left: str,
    transposed: bool,
    mr: int,
    nv: int,
    split: int,
    blocks: int,
    group: int,
    source: Any,
    threads: int,
    seed: int,
) -> None:
    """A quarter of the numbers are at the ends of their range."""
    level, rng = vnni(), np.random.default_rng(seed)
    a, stored = numbers(rng, (m, k), left), numbers(rng, (n, k) if transposed else (k, n), "i8")
    b = stored.T if transposed else stored
    problem = quads(m, n, k, left, (1, k) if transposed else (n, 1))
    spec = GemmSpec(
        problem,
        level.lanes("i32"),
        mr,
        nv,
        k_split=split,
        b_source=source,
        group=group if source == "workspace" and blocks == 0 else 1,
        mc=blocks * mr,
        partition="none" if threads == 1 else "columns",
        threads=threads,
        tile_buffer=seed % 2 == 0,
    )
    assert check(spec) is None
    check_product(spec, level, a, b, pack_quads(b, spec.nr, problem.shift) if source == "packed" else stored)


@pytest.mark.parametrize("left", SHORT)
@pytest.mark.parametrize("k", DEPTHS)
def test_nothing_past_a_row_is_read(k: int, left: str) -> None:
    """The last row of A ends where the memory of the process does."""
    level, rng = vnni(), np.random.default_rng(k)
    m, n, page = 3, 19, mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    a = np.frombuffer(memory, NUMPY[left], m * k, page - m * k).reshape(m, k)
    a[:] = numbers(rng, (m, k), left)
    b = numbers(rng, (k, n), "i8")
    problem = quads(m, n, k, left, (n, 1))
    spec = GemmSpec(problem, level.lanes("i32"), mr=3, nv=2)
    check_product(spec, level, a, b, pack_quads(b, spec.nr, problem.shift))


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("shift", [0, 128])
@pytest.mark.parametrize(("k", "step"), [(8, 8), (12, 16), (9, 9), (8, 9), (1, 1)])
@pytest.mark.parametrize("transposed", [False, True])
def test_packing(transposed: bool, k: int, step: int, shift: int, lanes: int) -> None:
    """Also of columns that lie further apart than they are long."""
    rng, columns, width = np.random.default_rng(k), 37, 32
    stored = numbers(rng, (columns, step) if transposed else (k, columns), "i8")
    b = stored[:, :k].T if transposed else stored
    wanted = pack_quads(b, width, shift)
    out = Poisoned(wanted.shape, "i32")
    strides = (1, step) if transposed else (columns, 1)

    def emit(em: Emitter, source: Value, target: Value, *_: Value) -> None:
        QuadPacker(em, lanes, k, width, strides, shift).matrix(columns, source, target)

    Function(vnni(), 2, emit)(stored, out.array)
    out.check()
    np.testing.assert_array_equal(out.array, wanted)


def test_sums_wrap_around() -> None:
    """Sums of more products than i32 holds are those of NumPy."""
    level, k = vnni(), 70_001
    a, b = np.full((1, k), -128, np.int8), np.full((k, 16), -128, np.int8)
    problem = quads(1, 16, k, "i8", (16, 1))
    spec = GemmSpec(problem, level.lanes("i32"), mr=1, nv=1)
    check_product(spec, level, a, b, pack_quads(b, spec.nr, problem.shift))


@pytest.mark.parametrize(
    ("decisions", "reason"),
    [
        ({"b_source": "direct"}, "quads of rows of B are packed, not read in place"),
        ({"lanes": 2}, "its 'lanes' is 2, legal: 4, 8, 16 for units of 4 terms of K"),
    ],
)
def test_specs_without_code(decisions: dict[str, Any], reason: str) -> None:
    given: dict[str, Any] = {"lanes": 16, "mr": 1, "nv": 1, **decisions}
    assert check(GemmSpec(quads(1, 16, 8, "u8", (16, 1)), **given)) == reason


def test_a_streamed_weight_is_prefetched() -> None:
    level, rng = vnni(), np.random.default_rng(3)
    k, n = 1028, 2048
    ((_, spec),) = propose(quads(1, n, k, "i8", (n, 1)), level, "packed", count=1)
    assert spec.prefetch_ahead and spec.prefetch_lines * 64 == spec.k_step * spec.nr * 4
    a, b = numbers(rng, (1, k), "i8"), numbers(rng, (k, n), "i8")
    check_product(spec, level, a, b, pack_quads(b, spec.nr, spec.problem.shift))


def text(m: int, n: int, k: int, left: str, right: str, *, batch: int = 0, widening: bool = True) -> str:
    """A product of a weight, or of two inputs with a batch, as a program; of transposed B then."""
    lead = f"{batch}x" if batch else ""
    names = {"u8": "ui8"}
    a, b = (names.get(each, each) for each in (left, right))
    x = f"tensor<{lead}{m}x{k}x{a}>"
    w = f"tensor<{lead}{n}x{k}x{b}>" if batch else f"tensor<{k}x{n}x{b}>"
    y = f"tensor<{lead}{m}x{n}x{'i32' if widening else a}>"
    attrs = [*(["transpose_b"] if batch else []), *(["widening"] if widening else [])]
    return f"""
func.func @f(%x : {x} {{logical.name = "x", logical.role = "input"}},
             %w : {w} {{logical.name = "w", logical.role = "{"input" if batch else "param"}"}})
    -> ({y} {{logical.name = "y"}}) {{
  %y = logical.matmul %x, %w {{{", ".join(attrs)}}} : ({x}, {w}) -> {y}
  func.return %y : {y}
}}"""


LEVELS = ("x86-64-v4", "x86-64-v4+avx512vnni", "x86-64-v4+avx512vnni+avx512bf16")


def units_of(exe: aicf.CompiledModel) -> str:
    found = [key for key in ("pairs_of_k", "quads_of_k") if key in exe.ir("emit")]
    return " ".join(found)


@pytest.mark.parametrize("left", SHORT)
@pytest.mark.parametrize("right", SHORT)
@pytest.mark.parametrize("k", DEPTHS)
def test_programs_of_every_depth(k: int, left: str, right: str) -> None:
    rng = np.random.default_rng(k)
    m, n = (int(size) for size in 2 * rng.integers(1, 24, 2) + 1)
    a, b = numbers(rng, (m, k), left), numbers(rng, (k, n), right)
    level = vnni().name
    exe = aicf.compile(text(m, n, k, left, right), {"w": b}, target=f"cpu:{level}")
    np.testing.assert_array_equal(exe.run({"x": a})["y"], a.astype(np.int64) @ b)
    if right == "u8" or k > 4:
        assert units_of(exe) == ("quads_of_k" if right == "i8" else "pairs_of_k")


@pytest.mark.parametrize("left", SHORT)
@pytest.mark.parametrize("k", [7, 64])
def test_batches_of_transposed_inputs(k: int, left: str) -> None:
    rng = np.random.default_rng(k)
    a, b = numbers(rng, (3, 21, k), left), numbers(rng, (3, 35, k), "i8")
    program = text(21, 35, k, left, "i8", batch=3)
    exe = aicf.compile(program, target=f"cpu:{vnni().name}")
    np.testing.assert_array_equal(
        exe.run({"x": a, "w": b})["y"], a.astype(np.int64) @ b.swapaxes(1, 2).astype(np.int64)
    )
    assert units_of(exe) == "quads_of_k"


def test_products_that_do_not_widen_wrap_around() -> None:
    rng = np.random.default_rng(1)
    a, b = numbers(rng, (9, 65), "i8"), numbers(rng, (65, 33), "i8")
    exe = aicf.compile(text(9, 33, 65, "i8", "i8", widening=False), {"w": b}, target=f"cpu:{vnni().name}")
    np.testing.assert_array_equal(exe.run({"x": a})["y"], (a.astype(np.int64) @ b).astype(np.int8))
    assert units_of(exe) == "quads_of_k"


@pytest.mark.parametrize("level", LEVELS)
def test_levels_with_and_without_the_feature(level: str) -> None:
    features = level.split("+")[1:]
    own = featured(*features)
    rng = np.random.default_rng(2)
    a, b = numbers(rng, (5, 66), "u8"), numbers(rng, (66, 20), "i8")
    exe = aicf.compile(text(5, 20, 66, "u8", "i8"), {"w": b}, target=f"cpu:{own.name}")
    np.testing.assert_array_equal(exe.run({"x": a})["y"], a.astype(np.int64) @ b)
    assert units_of(exe) == ("quads_of_k" if features else "pairs_of_k")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("+avx512vnni", "", "units of 4 terms of K need avx512vnni, which the target is without"),
        (
            "quads_of_k = true",
            "quads_of_k = false",
            "its 'pairs_of_k' and 'quads_of_k' are not those of its operands, legal: 'pairs_of_k' or 'quads_of_k'",
        ),
        ('"packed_b", {', '"packed_b", {shift = 128, ', "its layout's 'bytes' is 2176, legal: 2304"),
    ],
)
def test_edited_records_are_refused(old: str, new: str, reason: str) -> None:
    weights = {"w": np.zeros((66, 20), np.int8)}
    text_ = aicf.compile(text(5, 20, 66, "u8", "i8"), weights, target=f"cpu:{vnni().name}").ir("emit")
    assert old in text_
    with pytest.raises(AicfError, match=reason):
        aicf.compile(text_.replace(old, new), weights)
