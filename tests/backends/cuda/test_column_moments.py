"""Columns in parts, without a GPU: means and squares around them in one sweep, few parts, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from aicf.backends.base import BufferRef
from aicf.backends.common.loop_nest import LoopNest, nest_of
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.loops.choice import choose
from aicf.backends.cuda.families.loops.codegen import launches_of
from aicf.backends.cuda.families.loops.costs import cost_us
from aicf.backends.cuda.families.loops.kernel import read_spec, spec_record
from aicf.backends.cuda.families.loops.moments import moments_of
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec, partial_bytes
from aicf.backends.cuda.target import ELEMENT_BYTES, arch_named
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import contiguous_strides
from aicf.dialects.types import element_named
from tests.backends.cpu.kernels_text import layer_norm, parse_kernel, reduction
from tests.backends.cuda.sass import ATOMICS, SPILLS, instructions, starting
from tests.backends.cuda.simulator import Memory, run
from tests.backends.cuda.test_generated import ARCH, recorded, simulated

EPSILON = 1e-5


def batch_norm(rows: int, columns: int, dtype: str = "bf16", count: float | None = None) -> KernelOp:
    """Of [rows, columns] and a scale of each column to means and variances [columns], and the normalised elements,
    none below 0.

    Args:
        count: What sums are divided by; the number of rows by default.
    """
    full, column = "affine_map<(d0, d1) -> (d1, d0)>", "affine_map<(d0, d1) -> (d0)>"
    cast = f"emit.cast %x : {dtype} to f32" if dtype != "f32" else "arith.addf %x, %zero : f32"
    rounded = f"emit.cast %z : f32 to {dtype}" if dtype != "f32" else "arith.addf %z, %zero : f32"
    zero = "%zero = arith.constant 0.0 : f32"
    return parse_kernel(
        f"""emit.kernel @k parallel [{columns}] reduce [{rows}]
            ins [{full}, {column}] outs [{column}, {column}, {full}] {{
        ^bb0(%x : {dtype}, %scale : f32):
          %sum = emit.phase -> f32 {{
            {zero}
            %w = {cast}
            %0 = emit.reduce "sum" %w : f32
            emit.yield %0 : f32 }}
          %squares, %mean = emit.phase -> f32, f32 {{
            {zero}
            %w = {cast}
            %n = arith.constant {count or float(rows)} : f32
            %mu = arith.divf %sum, %n : f32
            %c = arith.subf %w, %mu : f32
            %q = arith.mulf %c, %c : f32
            %r = emit.reduce "sum" %q : f32
            emit.yield %r, %mu : f32, f32 }}
          emit.phase {{
            {zero}
            emit.store %mean, 0 : f32
            %n = arith.constant {float(rows)} : f32
            %v = arith.divf %squares, %n : f32
            emit.store %v, 1 : f32
            %e = arith.constant 1.0e-5 : f32
            %s = arith.addf %v, %e : f32
            %i = math.rsqrt %s : f32
            %f = arith.mulf %i, %scale : f32
            %w = {cast}
            %c = arith.subf %w, %mean : f32
            %z = arith.mulf %c, %f : f32
            %y = {rounded}
            %least = arith.constant 0.0 : {dtype}
            %o = arith.maximumf %y, %least : {dtype}
            emit.store %o, 2 : {dtype}
            emit.yield }}
        }}"""
    )


def two_sums(rows: int, columns: int, dtype: str = "bf16") -> KernelOp:
    """The gradient of that: of [rows, columns] twice to sums of the second and of both's product [columns], and both
    elements combined with them."""
    full, column = "affine_map<(d0, d1) -> (d1, d0)>", "affine_map<(d0, d1) -> (d0)>"
    return parse_kernel(
        f"""emit.kernel @k parallel [{columns}] reduce [{rows}]
            ins [{full}, {full}] outs [{column}, {column}, {full}] {{
        ^bb0(%x : {dtype}, %y : {dtype}):
          %a, %b = emit.phase -> f32, f32 {{
            %v = emit.cast %x : {dtype} to f32
            %w = emit.cast %y : {dtype} to f32
            %p = arith.mulf %v, %w : f32
            %0 = emit.reduce "sum" %w : f32
            %1 = emit.reduce "sum" %p : f32
            emit.yield %0, %1 : f32, f32 }}
          emit.phase {{
            emit.store %a, 0 : f32
            emit.store %b, 1 : f32
            %v = emit.cast %x : {dtype} to f32
            %w = emit.cast %y : {dtype} to f32
            %p = arith.mulf %v, %b : f32
            %q = arith.mulf %w, %a : f32
            %s = arith.addf %p, %q : f32
            %o = emit.cast %s : f32 to {dtype}
            emit.store %o, 2 : {dtype}
            emit.yield }}
        }}"""
    )


def shapes_of(rows: int, columns: int) -> list[tuple[int, ...]]:
    """Of the operands and results of `batch_norm`."""
    return [(rows, columns), (columns,), (columns,), (columns,), (rows, columns)]


def types_of(dtype: str) -> list[str]:
    """Likewise."""
    return [dtype, "f32", "f32", "f32", dtype]


def nest_for(kernel: KernelOp, shapes: Sequence[tuple[int, ...]], types: Sequence[str]) -> LoopNest:
    """On contiguous operands."""
    return nest_of(kernel, [contiguous_strides(shape) for shape in shapes], types)


def results_of(
    nest: LoopNest,
    spec: GeneratedSpec,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[tuple[tuple[int, ...], str]],
) -> list[np.ndarray]:
    """What simulated launches write."""
    operands = [(array.shape, array.dtype.name) for array in inputs]
    named = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
    operands = [*((shape, named[dtype]) for shape, dtype in operands), *outputs]
    refs = [BufferRef(i, 0, s, contiguous_strides(s), d) for i, (s, d) in enumerate(operands)]
    sizes = [int(np.prod(shape)) * ELEMENT_BYTES[dtype] for shape, dtype in operands]
    workspace = []
    if spec.splits > 1:
        sizes.append(partial_bytes(nest, spec))
        workspace = [BufferRef(len(refs), 0, (sizes[-1],), (1,), "i1")]
    memory = Memory(sizes)
    for number, array in enumerate(inputs):
        memory.fill(number, array)
    run(launches_of("k", nest, recorded(nest, spec), refs, workspace), memory)
    found: list[np.ndarray] = []
    for number, (shape, dtype) in enumerate(outputs, len(inputs)):
        assert memory.written[number].all(), "an element of an output was not written"
        found.append(memory.buffers[number].view(element_named(dtype).dtype).reshape(shape))
    return found


def norms(spec: GeneratedSpec, x: np.ndarray, dtype: str) -> list[np.ndarray]:
    """Means, variances and normalised elements by a spec."""
    rows, columns = x.shape
    nest = nest_for(batch_norm(rows, columns, dtype), shapes_of(rows, columns), types_of(dtype))
    scale = np.ones(columns, np.float32)
    outputs = [((columns,), "f32"), ((columns,), "f32"), (x.shape, dtype)]
    return results_of(nest, spec, [x, scale], outputs)


def elements(rows: int, columns: int, dtype: str, mean: float) -> np.ndarray:
    """Of deviation 1 around a mean of its own in each column."""
    random = np.random.default_rng(rows + columns)
    centers = mean * random.uniform(0.5, 1, columns)
    return (random.standard_normal((rows, columns)) + centers).astype(element_named(dtype).dtype)


# Values, on a simulated GPU

ONLINE = GeneratedSpec("online_columns", 4, 64, 32, 2, 3)


@pytest.mark.parametrize(
    ("rows", "columns", "spec"),
    [
        (300, 8, ONLINE),
        (300, 8, replace(ONLINE, splits=1)),
        (37, 16, replace(ONLINE, threads=32, lanes=8, splits=2)),  # one warp; some threads see nothing
        (
            97,
            200,
            replace(ONLINE, threads=128, lanes=4, unroll=3),
        ),  # a warp has no column twice; some are past the end
        (65, 6, GeneratedSpec("online_columns", 1, 64, 32, 4, 1)),
        (40, 12, GeneratedSpec("online_columns", 4, 32, 1, 4, 4)),  # a thread alone
        (70, 8, replace(ONLINE, splits=9)),  # parts that are empty
    ],
)
def test_means_and_squares_in_one_sweep(rows: int, columns: int, spec: GeneratedSpec) -> None:
    """Against float64, with means that are large beside the deviation."""
    _compare(elements(rows, columns, "f32", 1000.0), spec, "f32", 5e-4)


@pytest.mark.parametrize(("dtype", "mean", "tolerance"), [("f16", 30.0, 2e-3), ("bf16", 4.0, 1.6e-2)])
def test_of_halves(dtype: str, mean: float, tolerance: float) -> None:
    """Whose results are rounded in pairs."""
    _compare(elements(300, 8, dtype, mean), ONLINE, dtype, tolerance)


def _compare(x: np.ndarray, spec: GeneratedSpec, dtype: str, tolerance: float) -> None:
    means, variances, normalised = norms(spec, x, dtype)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(means, wide.mean(0), rtol=5e-7)
    np.testing.assert_allclose(variances, wide.var(0), rtol=1e-6)
    wanted = np.maximum((wide - wide.mean(0)) / np.sqrt(wide.var(0) + EPSILON), 0)
    np.testing.assert_allclose(normalised.astype(np.float64), wanted, atol=tolerance)


@pytest.mark.parametrize("mean", [0.0, 30.0, 1e3, 1e6])
def test_as_good_as_two_sweeps(mean: float) -> None:
    """Variances of f32 around any mean."""
    x = elements(512, 8, "f32", mean)
    exact = x.astype(np.float64).var(0)
    errors = [
        np.abs(norms(replace(ONLINE, strategy=strategy), x, "f32")[1] / exact - 1).max()
        for strategy in ("online_columns", "columns")
    ]
    assert errors[0] <= 2 * errors[1] + 3e-7


def test_an_element_far_from_all_others() -> None:
    """The first one, by which a shifted sum would go: the variance keeps its digits."""
    x = elements(512, 8, "f32", 0.0)
    x[0] = 1e4
    _, variances, _ = norms(ONLINE, x, "f32")
    np.testing.assert_allclose(variances, x.astype(np.float64).var(0), rtol=2e-6)


@pytest.mark.parametrize(
    "spec", [GeneratedSpec("columns", 8, 64, 32, 2, 5), GeneratedSpec("columns", 2, 128, 4, 2, 3)]
)
def test_sums_of_parts(spec: GeneratedSpec) -> None:
    """Loaded in whole vectors, a few parts together; parts that threads have left over, and columns past the end."""
    rows, columns = 150, 80
    shapes = [(rows, columns)] * 2 + [(columns,)] * 2 + [(rows, columns)]
    kernel = two_sums(rows, columns)
    nest = nest_for(kernel, shapes, ["bf16", "bf16", "f32", "f32", "bf16"])
    x, y = (elements(rows, columns, "bf16", mean) for mean in (0.0, 1.0))
    outputs = [((columns,), "f32"), ((columns,), "f32"), ((rows, columns), "bf16")]
    sums, products, combined = results_of(nest, spec, [x, y], outputs)
    v, w = x.astype(np.float64), y.astype(np.float64)
    np.testing.assert_allclose(sums, w.sum(0), rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(products, (v * w).sum(0), rtol=1e-6, atol=1e-4)
    wanted = v * (v * w).sum(0) + w * w.sum(0)
    np.testing.assert_allclose(combined.astype(np.float64), wanted, rtol=1e-2, atol=0.5)


@pytest.mark.parametrize(
    ("dtype", "how"), [("f64", "sum"), ("i64", "sum"), ("bf16", "max"), ("i8", "sum"), ("i8", "max")]
)
@pytest.mark.parametrize("lanes", [32, 2])
def test_parts_of_every_type(dtype: str, how: str, lanes: int) -> None:
    """By butterflies and without; integers exactly."""
    spec = GeneratedSpec("columns", 2, 64, lanes, 2, 5)
    x, y = simulated(
        reduction("10", "300", "d1, d0", "d0", how, dtype), [(300, 10), (10,)], [dtype] * 2, spec
    )
    combine = {"sum": np.sum, "max": np.max}[how]
    if dtype[0] == "i":
        assert (y == combine(x, axis=0).astype(x.dtype)).all()
    else:
        np.testing.assert_allclose(y.astype(np.float64), combine(x.astype(np.float64), axis=0), rtol=1e-12)


# Decisions


def test_what_is_recognised() -> None:
    """Sums of columns whose squares are around their mean; not around another number, nor a sum alone."""
    found = moments_of(batch_norm(64, 32))
    assert found is not None and (found.phase, found.squares) == (0, (0,))
    assert moments_of(batch_norm(64, 32, "f32")) is not None
    assert moments_of(batch_norm(64, 32, count=63.0)) is None
    assert moments_of(two_sums(64, 32)) is None
    assert moments_of(reduction("32", "64", "d1, d0", "d0")) is None
    assert moments_of(layer_norm(32, 64)) is not None, "rows have moments too"


@pytest.mark.parametrize(
    ("rows", "columns", "splits", "lanes", "unroll"),
    [
        (100352, 64, 132, 64, 6),
        (100352, 256, 33, 64, 10),
        (25088, 512, 16, 64, 9),
        (1568, 2048, 4, 64, 7),
        (1568, 512, 16, 32, 4),
    ],
)
def test_few_parts_that_fill_the_gpu(rows: int, columns: int, splits: int, lanes: int, unroll: int) -> None:
    """A block has a line of the cache of each row; two launches, one for each sweep."""
    nest = nest_for(batch_norm(rows, columns), shapes_of(rows, columns), types_of("bf16"))
    spec = choose(nest, [0] * 5, ARCH)
    assert (spec.strategy, spec.vector, spec.splits) == ("online_columns", 8, splits)
    assert (spec.lanes, spec.unroll) == (lanes, unroll)
    assert len(spec.launches(nest)) == 2
    assert read_spec(spec_record(nest, spec)) == spec and spec.problem(nest) is None
    assert partial_bytes(nest, spec) == 2 * 4 * splits * columns


def many_sums(count: int) -> KernelOp:
    """Of the elements of each column, as they are, of i8 [4096, 512]."""
    column = "affine_map<(d0, d1) -> (d0)>"
    names = [f"%s{i}" for i in range(count)]
    types = ", ".join(["i8"] * count)
    sums = " ".join(f'%r{i} = emit.reduce "sum" %x : i8' for i in range(count))
    results = ", ".join(f"%r{i}" for i in range(count))
    stores = " ".join(f"emit.store {name}, {i} : i8" for i, name in enumerate(names))
    return parse_kernel(
        f"""emit.kernel @k parallel [512] reduce [4096] ins [affine_map<(d0, d1) -> (d1, d0)>]
            outs [{", ".join([column] * count)}] {{
        ^bb0(%x : i8):
          {", ".join(names)} = emit.phase -> {types} {{ {sums} emit.yield {results} : {types} }}
          emit.phase {{ {stores} emit.yield }}
        }}"""
    )


@pytest.mark.parametrize(("count", "threads"), [(2, 512), (8, 256), (20, 128)])
def test_sums_that_share_memory(count: int, threads: int) -> None:
    """Where there are many of a vector of 16 elements, fewer threads have a column."""
    shapes = [(4096, 512), *[(512,)] * count]
    nest = nest_for(many_sums(count), shapes, ["i8"] * len(shapes))
    spec = choose(nest, [0] * len(shapes), arch_named("sm_80"))  # which has no clusters
    assert (spec.strategy, spec.vector, spec.threads) == ("columns", 16, threads)
    assert spec.problem(nest) is None
    wide = replace(spec, threads=1024, lanes=spec.lanes * 1024 // threads)
    assert ("does not fit its shared memory" in str(wide.problem(nest))) == (count > 2)


def test_decisions_that_do_not_fit() -> None:
    shapes = [(64, 32)] * 2 + [(32,)] * 2 + [(64, 32)]
    nest = nest_for(two_sums(64, 32), shapes, ["bf16", "bf16", "f32", "f32", "bf16"])
    assert "around the mean" in str(replace(ONLINE, splits=1).problem(nest))


def test_the_order_is_told() -> None:
    nest = nest_for(batch_norm(300, 8), shapes_of(300, 8), types_of("bf16"))
    assert ONLINE.combination_order(nest) == (
        "a thread its elements ascending, which move its mean, then 16 threads of a warp by butterflies, 2 warps "
        "ascending, then 3 parts strided over the threads, likewise"
    )
    fixed = choose(nest, [0] * 5, ARCH, fixed=True)
    assert fixed.combination_order(nest) == "a thread its elements ascending, then 8 threads ascending"


# Prices


@pytest.mark.parametrize(
    ("rows", "columns", "old", "measured"),
    [
        (100352, 64, GeneratedSpec("columns", 4, 256, 16, 4, 528), 66.0),
        (25088, 128, GeneratedSpec("columns", 4, 256, 8, 4, 392), 43.1),
        (100352, 128, GeneratedSpec("columns", 4, 256, 8, 4, 528), 94.4),
    ],
)
def test_many_parts_cost_what_was_measured(
    rows: int, columns: int, old: GeneratedSpec, measured: float
) -> None:
    """Microseconds of an H100; few parts are predicted to take less than half."""
    nest = nest_for(batch_norm(rows, columns), shapes_of(rows, columns), types_of("bf16"))
    assert measured * 0.8 < cost_us(nest, old, ARCH) < measured * 1.2
    assert cost_us(nest, choose(nest, [0] * 5, ARCH), ARCH) < measured / 2


# Machine code


ROWS, COLUMNS = 100352, 64


@pytest.mark.parametrize(
    ("kernel", "shapes", "types"),
    [
        (batch_norm(ROWS, COLUMNS), shapes_of(ROWS, COLUMNS), types_of("bf16")),
        (
            two_sums(ROWS, COLUMNS),
            [(ROWS, COLUMNS)] * 2 + [(COLUMNS,)] * 2 + [(ROWS, COLUMNS)],
            ["bf16", "bf16", "f32", "f32", "bf16"],
        ),
    ],
)
def test_machine_code(kernel: KernelOp, shapes: list[tuple[int, ...]], types: list[str]) -> None:
    """Elements and parts are loaded 16 bytes at a time and many together; no branches of divisions in the first sweep,
    no roundings one by one, no registers in memory, nothing atomic."""
    nest = nest_for(kernel, shapes, types)
    spec = choose(nest, [0] * 5, ARCH)
    refs = [
        BufferRef(i, 0, s, contiguous_strides(s), d)
        for i, (s, d) in enumerate(zip(shapes, types, strict=True))
    ]
    workspace = [BufferRef(9, 0, (partial_bytes(nest, spec),), (1,), "i1")]
    launches = launches_of("k", nest, recorded(nest, spec), refs, workspace)
    cubins = compile_kernels([launch.code for launch in launches], "sm_90a")
    names = [instructions(cubins[launch.code.symbol]) for launch in launches]
    for cubin, found in zip(cubins.values(), map(instructions, cubins.values()), strict=True):
        assert cubin.stack_bytes == 0
        assert not starting(found, (*ATOMICS, *SPILLS, "F2F."))
        assert {name for name in found if name.startswith("LDG")} == {"LDG.E.128"}
    inputs = sum(len(shape) == 2 for shape in shapes[:2])
    assert names[0].count("LDG.E.128") == spec.unroll * inputs + (spec.strategy == "online_columns")
    assert not starting(names[0], ("CALL",))
