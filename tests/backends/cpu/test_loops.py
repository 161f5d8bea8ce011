"""Generated kernels against NumPy: broadcasts, strides, tails, phases, element types, threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aicf.backends.common.loop_nest import LoopNest, nest_of
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.loops.schedule import LoopSpec, choose
from aicf.backends.cpu.families.loops.template import LoopPointers, emit_loops
from aicf.backends.cpu.target import CpuLevel
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import contiguous_strides
from tests.backends.cpu.harness import NUMPY, Function, Poisoned, runnable_levels, undefined_symbols
from tests.backends.cpu.kernels_text import counting, layer_norm, parse_kernel, pointwise, reduction, softmax

Array = NDArray[Any]
LEVELS = runnable_levels()
BEST = LEVELS[-2] if len(LEVELS) > 1 else LEVELS[0]
NAMES = {np.dtype(kind): name for name, kind in NUMPY.items()}


def element_strides(array: Array) -> tuple[int, ...]:
    return tuple(step // array.itemsize for step in array.strides)


def run(
    kernel: KernelOp,
    inputs: list[Array],
    output: tuple[tuple[int, ...], str],
    level: CpuLevel = BEST,
    spec: LoopSpec | None = None,
    threads: int = 1,
) -> Array:
    """Compiles `kernel`, runs all its threads one after the other, checks that nothing around the output changed."""
    shape, dtype = output
    strides = [*(element_strides(array) for array in inputs), contiguous_strides(shape)]
    nest = nest_of(kernel, strides, [*(NAMES[array.dtype] for array in inputs), dtype])
    spec = choose(nest, level, threads) if spec is None else spec
    out = Poisoned(shape, dtype)
    function = Function(level, len(inputs) + 1, lambda em, *args: emit(em, nest, spec, args))
    assert undefined_symbols(function.code) == []
    for tid in range(spec.threads):
        function(*inputs, out.array, tid=tid, nthreads=spec.threads)
    out.check()
    return out.array


def emit(em: Emitter, nest: LoopNest, spec: LoopSpec, args: tuple[Value, ...]) -> None:
    emit_loops(em, nest, spec, LoopPointers(args[:-2], args[-2], args[-1]))


def close(found: Array, exact: Array, scale: float = 1e-5) -> None:
    np.testing.assert_allclose(found, exact, rtol=scale, atol=scale * max(1.0, float(np.abs(exact).max())))


def normal(*shape: int, dtype: str = "f32", seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(NUMPY[dtype])


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("size", [1, 3, 16, 17, 64, 131])
def test_pointwise_tails(size: int, level: CpuLevel) -> None:
    kernel = pointwise(
        str(size), ";", "%x : f32, %y : f32", "%a = arith.mulf %x, %y : f32 %r = math.tanh %a : f32"
    )
    x, y = normal(size, seed=1), normal(size, seed=2)
    close(run(kernel, [x, y], ((size,), "f32"), level), np.tanh(x.astype(np.float64) * y))


def test_broadcast_operands() -> None:
    kernel = pointwise(
        "5, 7, 33", ";d2;d0, 0, 0;0, d1, 0", "%x : f32, %b : f32, %c : f32, %d : f32",
        "%0 = arith.addf %x, %b : f32 %1 = arith.mulf %0, %c : f32 %r = arith.subf %1, %d : f32",
    )  # fmt: skip
    x, b, c, d = normal(5, 7, 33), normal(33, seed=1), normal(5, 1, 1, seed=2), normal(1, 7, 1, seed=3)
    close(run(kernel, [x, b, c, d], ((5, 7, 33), "f32")), (x.astype(np.float64) + b) * c - d)


@pytest.mark.parametrize("shape", [(9, 40), (40, 9), (33, 65)])
def test_transposed_and_sliced_operands(shape: tuple[int, int]) -> None:
    kernel = pointwise(f"{shape[0]}, {shape[1]}", ";", "%x : f32, %y : f32", "%r = arith.addf %x, %y : f32")
    x = normal(shape[1], shape[0]).T
    y = normal(2 * shape[0], 3 * shape[1], seed=1)[::2, 1::3]
    np.testing.assert_array_equal(run(kernel, [x, y], (shape, "f32")), x + y)


def test_contiguous_dims_become_one_loop() -> None:
    kernel = pointwise("4, 5, 6", ";0, 0, 0", "%x : f32, %y : f32", "%r = arith.addf %x, %y : f32")
    nest = nest_of(kernel, [(30, 6, 1), (1, 1, 1), (30, 6, 1)], ["f32"] * 3)
    assert [dim.size for dim in nest.dims] == [120]


def test_scalar_kernel() -> None:
    kernel = pointwise("1, 1", ";", "%x : f32, %y : f32", "%r = arith.addf %x, %y : f32")
    np.testing.assert_array_equal(
        run(kernel, [normal(1, 1), normal(1, 1, seed=1)], ((1, 1), "f32")),
        normal(1, 1) + normal(1, 1, seed=1),
    )


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("shape", [(5, 10), (3, 16), (7, 100), (4, 129), (2, 1000), (2, 9000), (40, 1)])
def test_softmax_rows(shape: tuple[int, int], level: CpuLevel) -> None:
    x = normal(*shape) * 5
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    close(run(softmax(*shape), [x], (shape, "f32"), level), e / e.sum(1, keepdims=True))


@pytest.mark.parametrize("shape", [(10, 5), (7, 100), (300, 70), (2000, 40)])
def test_softmax_columns(shape: tuple[int, int]) -> None:
    x = normal(*shape) * 5
    e = np.exp(x.astype(np.float64) - x.max(0))
    close(run(softmax(shape[1], shape[0], first=True), [x], (shape, "f32")), e / e.sum(0))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(4, 64), (300, 77), (64, 768)])
def test_layer_norm(shape: tuple[int, int], threads: int) -> None:
    x, scale, bias = normal(*shape) * 3 + 1, normal(shape[1], seed=1), normal(shape[1], seed=2)
    wide = x.astype(np.float64)
    mean = wide.mean(1, keepdims=True)
    exact = (wide - mean) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * scale + bias
    close(run(layer_norm(*shape), [x, scale, bias], (shape, "f32"), threads=threads), exact)


@pytest.mark.parametrize("how", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
@pytest.mark.parametrize(
    "parallel,reduce,ins,shape,axes",
    [
        ("6", "35", "d0, d1", (6, 35), (1,)),
        ("35", "6", "d1, d0", (6, 35), (0,)),
        ("", "6, 35", "d0, d1", (6, 35), (0, 1)),
        ("5", "4, 33", "d1, d0, d2", (4, 5, 33), (0, 2)),
        ("4, 33", "5", "d0, d2, d1", (4, 5, 33), (1,)),
        ("3", "1", "d0, d1", (3, 1), (1,)),
    ],
)
def test_reductions(
    parallel: str, reduce: str, ins: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, how: str
) -> None:
    x = (normal(*shape) * 100).astype(NUMPY[dtype])
    outs = ", ".join(f"d{i}" for i in range(len(list(filter(None, parallel.split(","))))))
    kernel = reduction(parallel, reduce, ins, outs, how, dtype)
    result = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    exact = {"sum": np.sum, "max": np.max, "min": np.min}[how](x.astype(np.float64), axis=axes)
    close(run(kernel, [x], (result, dtype)), exact)


@pytest.mark.parametrize("length", [100, 1000, 33_000, 1_000_000])
@pytest.mark.parametrize(("parallel", "reduce", "ins", "outs"), [
    ("5", "{}", "d1, d0", "d0"), ("5", "{}", "d0, d1", "d0"), ("", "{}, 5", "d0, d1", ""), ("", "5, {}", "d1, d0", ""),
])  # fmt: skip
def test_long_sums_lose_no_digits(length: int, parallel: str, reduce: str, ins: str, outs: str) -> None:
    """Of positive numbers, whose rounding errors do not cancel. One addition after the other is beyond the bound from
    1000 rows on, and 400 epsilons off at a million."""
    along_rows = ins == "d0, d1" and parallel != ""
    shape = (5, length) if along_rows else (length, 5)
    x = np.random.default_rng(length).uniform(0, 1, shape).astype(np.float32)
    exact = x.sum(axis=None if not parallel else 1 if along_rows else 0, dtype=np.float64)
    found = run(reduction(parallel, reduce.format(length), ins, outs), [x], (exact.shape, "f32"))
    assert np.all(np.abs(found - exact) <= 6 * np.finfo(np.float32).eps * exact)


@given(st.integers(1, 100_000), st.integers(1, 80), st.integers(2, 40))
def test_no_chain_of_additions_is_longer_than_a_block(count: int, terms: int, block: int) -> None:
    sizes = LoopSpec(-1, 1, 1, sum_block=block).blocks(count, terms)
    inner = 1
    for size in (*sizes, count):
        steps = -(-size // inner)
        assert steps <= block or size == inner
        inner = size
    assert not sizes or sizes[0] * terms <= max(block, terms)
    assert bool(sizes) == (count * terms > block)


@pytest.mark.parametrize("how", ["max", "min"])
@pytest.mark.parametrize("size", [3, 16, 70, 700])
def test_nan_propagates_through_extrema(how: str, size: int) -> None:
    x = normal(size, size)
    x[np.arange(0, size, 2), np.random.default_rng(3).integers(0, size, len(range(0, size, 2)))] = np.nan
    found = run(reduction(str(size), str(size), "d0, d1", "d0", how), [x], ((size,), "f32"))
    np.testing.assert_array_equal(found, getattr(x, how)(1))


@pytest.mark.parametrize("columns", [20, 300, 9000])
def test_kept_values_need_nothing_from_their_phase(columns: int) -> None:
    """Phase 1 keeps exp(x * s), where s is read nowhere else; phase 2 only divides."""
    kernel = parse_kernel(
        f"""emit.kernel @k parallel [4] reduce [{columns}]
            ins [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>]
            outs [affine_map<(d0, d1) -> (d0, d1)>] {{
        ^bb0(%x : f32, %s : f32):
          %t, %k = emit.phase -> f32, f32 {{
            %q = math.tanh %s : f32
            %a = arith.mulf %x, %q : f32
            %b = math.exp %a : f32
            %c = emit.reduce "sum" %b : f32
            emit.yield %c, %b : f32, f32 }}
          emit.phase {{
            %n = arith.negf %k : f32
            %d = arith.divf %n, %t : f32
            emit.store %d, 0 : f32
            emit.yield }}
        }}"""
    )
    x, s = normal(4, columns), normal(4, seed=1)
    e = np.exp(x.astype(np.float64) * np.tanh(s.astype(np.float64))[:, None])
    close(run(kernel, [x, s], ((4, columns), "f32")), -e / e.sum(1, keepdims=True))


def test_multiple_outputs_of_different_rank() -> None:
    kernel = parse_kernel(
        """emit.kernel @k parallel [6] reduce [20]
            ins [affine_map<(d0, d1) -> (d0, d1)>]
            outs [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>] {
        ^bb0(%x : f32):
          %s = emit.phase -> f32 { %0 = emit.reduce "sum" %x : f32 emit.yield %0 : f32 }
          emit.phase { %a = arith.subf %x, %s : f32 emit.store %a, 1 : f32 emit.store %s, 0 : f32 emit.yield }
        }"""
    )
    x = normal(6, 20)
    nest = nest_of(kernel, [(20, 1), (1,), (20, 1)], ["f32"] * 3)
    total, rest = Poisoned((6,), "f32"), Poisoned((6, 20), "f32")
    Function(BEST, 3, lambda em, *args: emit(em, nest, choose(nest, BEST, 1), args))(
        x, total.array, rest.array
    )
    total.check()
    rest.check()
    close(total.array, x.sum(1))
    close(rest.array, x - x.sum(1, keepdims=True))


def test_in_place() -> None:
    shape = (7, 45)
    x = normal(*shape)
    nest = nest_of(softmax(*shape), [(45, 1)] * 2, ["f32"] * 2)
    data = x.copy()
    Function(BEST, 2, lambda em, *args: emit(em, nest, choose(nest, BEST, 1), args))(data, data)
    np.testing.assert_array_equal(data, run(softmax(*shape), [x], (shape, "f32")))


CASTS = ["f32", "f64", "i32", "i64", "i1"]


@pytest.mark.parametrize("source", CASTS)
@pytest.mark.parametrize("target", CASTS)
def test_casts(source: str, target: str) -> None:
    if source == target:
        pytest.skip("not a cast")
    values = np.array(
        [0, 1, -1, 2.5, -2.5, 127.99, 3e9, -3e9, 1e19, -1e19, np.nan, np.inf, -np.inf, 0.25, -0.0, 1e30] * 2
    )
    with np.errstate(all="ignore"):
        x = np.nan_to_num(values, nan=5, posinf=7, neginf=-7) if source.startswith("i") else values
        x = (
            np.clip(x, -(2**31), 2**31 - 1).astype(NUMPY[source])
            if source.startswith("i")
            else x.astype(NUMPY[source])
        )
        if source == "i64":
            x = x * 3
    body = f"%r = emit.cast %x : {source} to {target}"
    found = run(pointwise(str(x.size), "", f"%x : {source}", body, result=target), [x], ((x.size,), target))
    if target in ("i32", "i64") and source in ("f32", "f64"):
        info = np.iinfo(NUMPY[target])
        exact = [
            0
            if np.isnan(v)
            else min(max(int(v) if np.isfinite(v) else int(np.sign(v)) << 70, info.min), info.max)
            for v in x
        ]
        np.testing.assert_array_equal(found, np.array(exact, NUMPY[target]))
        return
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, x.astype(NUMPY[target]))


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_integer_ops(dtype: str) -> None:
    rng = np.random.default_rng(5)
    low, high = np.iinfo(NUMPY[dtype]).min, np.iinfo(NUMPY[dtype]).max
    x = np.concatenate([[low, low, high, 7, -7, 0], rng.integers(-100, 100, 50)]).astype(NUMPY[dtype])
    y = np.concatenate([[-1, 0, 0, 2, 2, 5], rng.integers(-5, 5, 50)]).astype(NUMPY[dtype])
    t = f"%x : {dtype}, %y : {dtype}"
    shape = ((x.size,), dtype)
    found = run(
        pointwise(str(x.size), ";", t, f"%r = emit.div_int %x, %y : {dtype}", result=dtype), [x, y], shape
    )
    exact = [
        0
        if b == 0
        else int(low)
        if (a, b) == (low, -1)
        else int(abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1))
        for a, b in zip(x, y, strict=True)
    ]
    np.testing.assert_array_equal(found, exact)
    found = run(
        pointwise(str(x.size), ";", t, f"%r = arith.maxsi %x, %y : {dtype}", result=dtype), [x, y], shape
    )
    np.testing.assert_array_equal(found, np.maximum(x, y))


@pytest.mark.parametrize("size", [5, 64, 83])
def test_compare_and_select(size: int) -> None:
    x, y = normal(size), normal(size, seed=1)
    x[0] = np.nan
    body = "%r = arith.cmpf ogt, %x, %y : f32"
    mask = run(pointwise(str(size), ";", "%x : f32, %y : f32", body, result="i1"), [x, y], ((size,), "i1"))
    np.testing.assert_array_equal(mask, x > y)
    body = "%r = arith.select %c, %x, %y : f32"
    kernel = pointwise(str(size), ";;", "%c : i1, %x : f32, %y : f32", body)
    np.testing.assert_array_equal(run(kernel, [mask, x, y], ((size,), "f32")), np.where(mask, x, y))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    data=st.data(),
)
def test_any_loops(sizes: list[int], data: Any) -> None:
    """Random shapes, permuted inputs, reduce sets, vector dims, unrolling and threads, all legal, all right."""
    rank = len(sizes)
    sizes = [size * data.draw(st.sampled_from([1, 1, 5])) for size in sizes]
    reduced = data.draw(st.integers(0, rank))
    order = data.draw(st.permutations(range(rank)))
    ins = ", ".join(f"d{order.index(axis)}" for axis in range(rank))
    parallel, reduce = sizes_of(sizes, order[: rank - reduced]), sizes_of(sizes, order[rank - reduced :])
    outs = ", ".join(f"d{i}" for i in range(rank - reduced))
    x = normal(*sizes, seed=data.draw(st.integers(0, 99)))
    axes = tuple(order[rank - reduced :])
    ordered, last = np.moveaxis(x.astype(np.float64), order, range(rank)), tuple(range(rank - reduced, rank))
    exact = ordered.sum(axis=last) if axes else 2 * ordered
    kernel = (
        reduction(parallel, reduce, ins, outs)
        if axes
        else pointwise(parallel, ins, "%x : f32", "%r = arith.addf %x, %x : f32")
    )
    nest = nest_of(kernel, [element_strides(x), contiguous_strides(exact.shape)], ["f32", "f32"])
    spec = choose(nest, BEST, 1)
    if nest.dims:
        vector = data.draw(st.integers(-1, len(nest.dims) - 1))
        lanes = 1 if vector < 0 else data.draw(st.sampled_from([4, 8, 16]))
        spec = replace(
            spec, vector_dim=vector, lanes=lanes, unroll=1 if vector < 0 else data.draw(st.integers(1, 4))
        )
        spec = replace(spec, sum_block=data.draw(st.sampled_from([0, 2, 3, 7])))
    if nest.parallel_dims:
        threads = data.draw(st.integers(1, 3))
        partition = data.draw(st.sampled_from(nest.parallel_dims)) if threads > 1 else -1
        spec = replace(spec, threads=threads, partition_dim=partition)
    # What a sum loses goes with what is summed, not with what is left of it.
    lost = np.abs(run(kernel, [x], (exact.shape, "f32"), spec=spec) - exact)
    assert np.all(lost <= 1e-5 + 2e-7 * np.abs(ordered).sum(axis=last))


def sizes_of(sizes: list[int], axes: list[int]) -> str:
    return ", ".join(str(sizes[axis]) for axis in axes)


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_coordinates_of_points(dtype: str, level: CpuLevel) -> None:
    """Every dim of [3, 5, 37] counts from 0, also those that would be one loop, and a dim of one point."""
    body = " ".join(
        f"%c{d} = emit.index {d} : {dtype} %w{d} = arith.constant {10 ** (2 * d)} : {dtype} "
        f"%p{d} = arith.muli %c{d}, %w{d} : {dtype}"
        for d in range(4)
    )
    total = (
        f"%s0 = arith.addi %p0, %p1 : {dtype} %s1 = arith.addi %s0, %p2 : {dtype} "
        f"%s2 = arith.addi %s1, %p3 : {dtype} %r = arith.addi %s2, %x : {dtype}"
    )
    kernel = pointwise("3, 5, 37, 1", "", f"%x : {dtype}", f"{body} {total}", result=dtype)
    shape = (3, 5, 37, 1)
    x = np.random.default_rng(1).integers(-9, 9, shape).astype(NUMPY[dtype])
    i, j, k, _ = np.indices(shape)
    np.testing.assert_array_equal(run(kernel, [x], (shape, dtype), level), x + i + 100 * j + 10000 * k)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(5, 37), (37, 5), (300, 70), (4, 9000)])
def test_coordinates_in_reductions(shape: tuple[int, int], threads: int) -> None:
    """A reduction weighs by the place in its row; a later phase knows row and place."""
    rows, columns = shape
    x = np.random.default_rng(2).integers(-99, 99, shape)
    nest = nest_of(counting(rows, columns), [(columns, 1), (1,), (columns, 1)], ["i64"] * 3)
    sums, moved = Poisoned((rows,), "i64"), Poisoned(shape, "i64")
    spec = choose(nest, BEST, threads)
    function = Function(BEST, 3, lambda em, *args: emit(em, nest, spec, args))
    for tid in range(spec.threads):
        function(x, sums.array, moved.array, tid=tid, nthreads=spec.threads)
    sums.check()
    moved.check()
    i, j = np.indices(shape)
    np.testing.assert_array_equal(sums.array, (x * (j + 1)).sum(1))
    np.testing.assert_array_equal(moved.array, x + 100 * i + j)
