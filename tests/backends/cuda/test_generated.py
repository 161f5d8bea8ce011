"""Generated kernels without a GPU: what is decided, what the code computes (simulated), what the machine code holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.base import BufferRef
from aicf.backends.common.loop_nest import LoopNest, nest_of
from aicf.backends.common.record import RecordError, integer
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.loops.choice import choose
from aicf.backends.cuda.families.loops.codegen import launches_of
from aicf.backends.cuda.families.loops.costs import cost_us
from aicf.backends.cuda.families.loops.kernel import loops_record, read_spec, spec_record
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec, partial_bytes
from aicf.backends.cuda.families.records import Record, integers
from aicf.backends.cuda.target import ELEMENT_BYTES, arch_named
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import contiguous_strides
from aicf.dialects.types import element_named
from tests.backends.cpu.kernels_text import counting, layer_norm, pointwise, reduction, softmax
from tests.backends.cuda.sass import ATOMICS, SPILLS, instructions, starting
from tests.backends.cuda.simulator import Memory, run

ARCH = arch_named("sm_90a")
Shape = tuple[int, ...]


def references(shapes: Sequence[Shape], dtypes: Sequence[str]) -> list[BufferRef]:
    """Contiguous buffers, one table entry each."""
    pairs = zip(shapes, dtypes, strict=True)
    return [BufferRef(i, 0, s, contiguous_strides(s), d) for i, (s, d) in enumerate(pairs)]


def chosen_spec(
    kernel: KernelOp, shapes: Sequence[Shape], dtypes: Sequence[str]
) -> tuple[LoopNest, GeneratedSpec]:
    """The nest of a kernel on contiguous operands, and what is chosen for it."""
    nest = nest_of(kernel, [contiguous_strides(s) for s in shapes], dtypes)
    return nest, choose(nest, [0] * len(shapes), ARCH)


def recorded(nest: LoopNest, spec: GeneratedSpec) -> Record:
    """The record of these decisions."""
    return loops_record(nest, spec, "fused", ARCH)


def data(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    """Random elements."""
    random = np.random.default_rng(seed)
    if dtype == "i1":
        return random.random(shape) > 0.5
    if dtype[0] == "i":
        return random.integers(-1000, 1000, shape).astype(element_named(dtype).dtype)
    return random.standard_normal(shape).astype(element_named(dtype).dtype)


def simulated(
    kernel: KernelOp, shapes: Sequence[Shape], dtypes: Sequence[str], spec: GeneratedSpec | None = None
) -> list[np.ndarray]:
    """Inputs and outputs of a kernel."""
    nest, chosen = chosen_spec(kernel, shapes, dtypes)
    spec = spec or chosen
    refs = references(shapes, dtypes)
    workspace = []
    sizes = [int(np.prod(s)) * ELEMENT_BYTES[d] for s, d in zip(shapes, dtypes, strict=True)]
    if spec.splits > 1:
        sizes.append(partial_bytes(nest, spec))
        workspace = [BufferRef(len(refs), 0, (sizes[-1],), (1,), "i1")]
    memory = Memory(sizes)
    arrays = [data(s, d, seed) for seed, (s, d) in enumerate(zip(shapes, dtypes, strict=True))]
    for number in range(nest.inputs):
        memory.fill(number, arrays[number])
    run(launches_of("k", nest, recorded(nest, spec), refs, workspace), memory)
    for number in range(nest.inputs, len(shapes)):
        assert memory.written[number].all(), "an element of an output was not written"
        arrays[number] = (
            memory.buffers[number].view(element_named(dtypes[number]).dtype).reshape(shapes[number])
        )
    return arrays


def softmax_of(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """In float64."""
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    """Relative to the largest magnitude; NaN never passes."""
    difference = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max()
    assert difference <= tolerance * max(1e-3, np.abs(wanted.astype(np.float64)).max())


# Decisions


@pytest.mark.parametrize(
    ("kernel", "shapes", "dtype", "strategy", "vector"),
    [
        (softmax(16384, 4096), [(16384, 4096)] * 2, "f32", "resident", 4),
        (softmax(32768, 4096, "f16"), [(32768, 4096)] * 2, "f16", "resident", 8),
        (softmax(2048, 32768), [(2048, 32768)] * 2, "f32", "resident", 4),
        (softmax(512, 131072), [(512, 131072)] * 2, "f32", "online_rows", 4),
        (softmax(64, 4096, first=True), [(4096, 64)] * 2, "f32", "columns", 4),
        (softmax(64, 4095), [(64, 4095)] * 2, "f32", "resident", 1),
        (reduction("1", "67108864", "d1", "d0"), [(67108864,), (1,)], "f32", "rows", 4),
        (reduction("4096", "16384", "d1, d0", "d0"), [(16384, 4096), (4096,)], "f32", "columns", 4),
        (
            pointwise("512, 512", "d1, d0", "%x : f32", "%r = math.exp %x : f32"),
            [(512, 512)] * 2,
            "f32",
            "tiles",
            4,
        ),
        (
            pointwise("100, 257", "", "%x : f32", "%r = math.exp %x : f32"),
            [(100, 257)] * 2,
            "f32",
            "pointwise",
            4,
        ),
    ],
)
def test_strategy_follows_the_space_and_the_strides(
    kernel: KernelOp, shapes: list[Shape], dtype: str, strategy: str, vector: int
) -> None:
    """Rows stay in registers up to 32K elements; 16-byte vectors wherever sizes and alignment allow them."""
    nest, spec = chosen_spec(kernel, shapes, [dtype] * 2)
    assert (spec.strategy, spec.vector) == (strategy, vector)
    assert spec.problem(nest) is None
    assert read_spec(spec_record(nest, spec)) == spec


def test_an_unaligned_operand_narrows_the_vector() -> None:
    """An operand that starts 4 bytes after an aligned address is read by elements."""
    kernel = pointwise("64, 64", "", "%x : f32", "%r = math.exp %x : f32")
    nest = nest_of(kernel, [(64, 1), (64, 1)], ["f32"] * 2)
    assert choose(nest, [0, 0], ARCH).vector == 4
    assert choose(nest, [1, 1], ARCH).vector == 1


def test_a_full_reduction_fills_the_gpu_without_atomics() -> None:
    """One point, many elements: the row is split over the multiprocessors, and the parts have a place each."""
    nest, spec = chosen_spec(reduction("1", "67108864", "d1", "d0"), [(67108864,), (1,)], ["f32"] * 2)
    assert spec.splits >= ARCH.multiprocessors
    assert partial_bytes(nest, spec) == 4 * spec.splits
    assert "ascending" in spec.combination_order(nest)


def test_few_long_rows_are_one_launch_of_clusters() -> None:
    """A cluster has the row in its registers; older GPUs read parts of it again in every phase."""
    shapes, dtypes = [(4, 131072), (131072,), (131072,), (4, 131072)], ["f32"] * 4
    nest, spec = chosen_spec(layer_norm(4, 131072), shapes, dtypes)
    assert (spec.strategy, spec.cluster, spec.splits, spec.grids(nest)) == ("resident", 8, 1, [(4, 8, 1)])
    assert read_spec(spec_record(nest, spec)) == spec
    older = choose(nest, [0] * 4, arch_named("sm_80"))
    assert (older.strategy, older.cluster, len(older.grids(nest))) == ("rows", 1, 3)
    assert cost_us(nest, spec, ARCH) < cost_us(nest, older, ARCH)
    for change in ({"splits": 2}, {"lanes": 64}, {"strategy": "rows"}, {"unroll": 1}):
        assert replace(spec, **change).problem(nest), change


def test_reduced_dims_are_walked_as_memory_lies() -> None:
    """Of a channels-last operand the channels are innermost, whatever order the kernel has them in."""
    kernel = reduction("2", "8, 5, 3", "d0, d1, d2, d3", "d0")
    nest = nest_of(kernel, [(120, 1, 24, 8), (1,)], ["f32"] * 2)
    assert [(dim.size, dim.strides) for dim in nest.dims] == [(2, (120, 1)), (120, (1, 0))]
    turned = nest_of(kernel, [(120, 15, 1, 5), (1,)], ["f32"] * 2)
    assert [dim.strides[0] for dim in turned.dims] == [120, 1]


def test_few_long_columns_are_one_launch_of_clusters() -> None:
    """Blocks that share columns combine them through shared memory where the GPU has clusters, else another launch
    does; so does one where columns are too long for eight blocks."""
    shapes, dtypes = [(4096, 256), (256,)], ["f32"] * 2
    nest, spec = chosen_spec(reduction("256", "4096", "d1, d0", "d0"), shapes, dtypes)
    assert (spec.cluster, spec.splits, len(spec.grids(nest))) == (8, 1, 1)
    assert read_spec(spec_record(nest, spec)) == spec
    assert partial_bytes(nest, spec) == 0
    older = choose(nest, [0, 0], arch_named("sm_80"))
    assert (older.cluster, len(older.grids(nest))) == (1, 2)
    assert cost_us(nest, spec, ARCH) < cost_us(nest, older, ARCH)
    for change in ({"splits": 2}, {"lanes": 4}, {"strategy": "rows", "lanes": 32}):
        assert replace(spec, **change).problem(nest), change
    long = reduction("64", "1048576", "d1, d0", "d0")
    assert chosen_spec(long, [(1048576, 64), (64,)], dtypes)[1].splits > 1


@pytest.mark.parametrize(
    "change",
    [
        {"strategy": "pointwise"},
        {"unroll": 1},
        {"lanes": 48},
        {"splits": 4},
        {"vector": 3},
        {"unroll": 65},
        {"blocks_per_sm": 65},
    ],
)
def test_decisions_that_contradict_each_other_are_refused(change: dict[str, object]) -> None:
    """An edited record gives an error that says what is wrong, not a wrong kernel."""
    shapes = [(64, 1024)] * 2
    nest, spec = chosen_spec(softmax(64, 1024), shapes, ["f32"] * 2)
    assert spec.problem(nest) is None
    assert replace(spec, **change).problem(nest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [
        ("strategy", StringAttr("magic"), "pointwise, resident, "),
        ("vector", integer(64), "1 to 16"),
        ("threads", integer(48), "32, 64, 128, "),
        ("lanes", integer(3), "1, 2, 4, "),
        ("unroll", integer(1 << 31), "1 to 256"),
        ("splits", integer(1 << 20), "1 to 65535"),
        ("blocks_per_sm", integer(0), "1 to 1024"),
        ("late", integer(2), "False, True"),
        ("cluster", integers([1, 9, 1]), "1 to 8"),
        ("cluster", integers([1, 0, 1]), "1 to 8"),
        ("cluster", integers([2, 1, 1]), "1 to 1"),
        ("cluster", integers([1, 1]), "3 values"),
    ],
)
def test_a_number_that_has_no_code_is_refused(key: str, value: Attribute, legal: str) -> None:
    """Each element that a thread has in flight is code: what a record asks for is bounded before any is made."""
    nest, spec = chosen_spec(softmax(64, 1024), [(64, 1024)] * 2, ["f32"] * 2)
    record = recorded(nest, spec)
    assert read_spec(record) == spec
    with pytest.raises(RecordError, match=f"its '{key}.*' is .*, legal: {legal}"):
        read_spec({**record, key: value})


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "measured"),
    [(128, 768, "f16", 1.3), (1024, 768, "f16", 1.5), (16384, 4096, "f32", 180.0)],
)
def test_the_prior_of_a_norm_is_near_what_was_measured(
    rows: int, columns: int, dtype: str, measured: float
) -> None:
    """Microseconds of an H100: few rows take a launch and a latency, many the bandwidth of memory."""
    shapes: list[Shape] = [(rows, columns), (columns,), (columns,), (rows, columns)]
    nest, spec = chosen_spec(layer_norm(rows, columns), shapes, [dtype] * 4)
    assert measured * 0.7 < cost_us(nest, spec, ARCH) < measured * 1.4


# Values, on a simulated GPU


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 10), (3, 33), (2, 768), (2, 1100)])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_softmax_rows(rows: int, columns: int, dtype: str) -> None:
    """Rows in registers: parts of a warp, a warp, a block; whole and ragged."""
    x, y = simulated(softmax(rows, columns, dtype), [(rows, columns)] * 2, [dtype] * 2)
    close(y, softmax_of(x), 1e-6 if dtype == "f32" else 1e-3)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("columns", [300, 512])
def test_softmax_of_long_rows(splits: int, columns: int) -> None:
    """Rows that are read again in every phase, by one block or by several with partial results in between."""
    spec = GeneratedSpec("rows", 4, 64, 64, 2, splits)
    x, y = simulated(softmax(2, columns), [(2, columns)] * 2, ["f32"] * 2, spec)
    close(y, softmax_of(x), 1e-6)


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("points", [20, 64])
def test_softmax_of_columns(splits: int, points: int) -> None:
    """The reduced dim is not the contiguous one."""
    spec = GeneratedSpec("columns", 4, 64, 8, 2, splits)
    x, y = simulated(softmax(points, 37, first=True), [(37, points)] * 2, ["f32"] * 2, spec)
    close(y, softmax_of(x, 0), 1e-6)


@pytest.mark.parametrize(("rows", "points", "cluster"), [(37, 20, 2), (300, 70, 8), (3, 64, 4)])
def test_softmax_of_columns_that_a_cluster_shares(rows: int, points: int, cluster: int) -> None:
    """All phases in one launch; blocks with rows left over, or none; columns past the end."""
    spec = GeneratedSpec("columns", 2, 64, 8, 2, 1, cluster=cluster)
    x, y = simulated(softmax(points, rows, first=True), [(rows, points)] * 2, ["f32"] * 2, spec)
    close(y, softmax_of(x, 0), 1e-6)


@pytest.mark.parametrize(
    ("columns", "cluster", "unroll"), [(1024, 2, 2), (1000, 2, 2), (1100, 4, 2), (520, 4, 1), (264, 8, 1)]
)
def test_layer_norm_of_a_row_that_a_cluster_shares(columns: int, cluster: int, unroll: int) -> None:
    """Each block has its part in registers, of whole vectors, of fewer, or of none; two reductions meet."""
    shapes = [(3, columns), (columns,), (columns,), (3, columns)]
    spec = GeneratedSpec("resident", 4, 64, 64, unroll, 1, cluster=cluster)
    x, scale, bias, y = simulated(layer_norm(3, columns), shapes, ["f32"] * 4, spec)
    wide = x.astype(np.float64)
    centered = wide - wide.mean(1, keepdims=True)
    wanted = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) * scale + bias
    close(y, wanted, 2e-6)


@pytest.mark.parametrize("how", ["sum", "max"])
@pytest.mark.parametrize("dtype", ["f64", "bf16", "i64", "i8"])
def test_one_element_of_a_row_that_a_cluster_shares(dtype: str, how: str) -> None:
    """One block of the cluster writes it; integers exactly."""
    spec = GeneratedSpec("resident", 2, 64, 64, 2, 1, cluster=2)
    x, y = simulated(reduction("3", "400", "d0, d1", "d0", how, dtype), [(3, 400), (3,)], [dtype] * 2, spec)
    combine = {"sum": np.sum, "max": np.max}[how]
    wanted = combine(x, axis=1).astype(x.dtype) if dtype[0] == "i" else combine(x.astype(np.float64), axis=1)
    close(y, wanted, {"bf16": 5e-3}.get(dtype, 0 if dtype[0] == "i" else 1e-14))


@pytest.mark.parametrize("dtype", ["f64", "bf16", "i64", "i32", "i8"])
@pytest.mark.parametrize("how", ["sum", "max"])
def test_reductions_by_clusters(dtype: str, how: str) -> None:
    """Of every width that blocks tell each other; integers exactly."""
    spec = GeneratedSpec("columns", 2, 64, 16, 2, 1, cluster=4)
    kernel = reduction("10", "300", "d1, d0", "d0", how, dtype)
    x, y = simulated(kernel, [(300, 10), (10,)], [dtype] * 2, spec)
    combine = {"sum": np.sum, "max": np.max}[how]
    wanted = combine(x, axis=0).astype(x.dtype) if dtype[0] == "i" else combine(x.astype(np.float64), axis=0)
    close(y, wanted, {"bf16": 5e-3}.get(dtype, 0 if dtype[0] == "i" else 1e-14))


@pytest.mark.parametrize("late", [False, True])
def test_layer_norm_with_operands_that_rows_share(late: bool) -> None:
    """Scale and bias come with the row or where they are used."""
    shapes = [(3, 200), (200,), (200,), (3, 200)]
    spec = GeneratedSpec("resident", 4, 64, 64, 1, 1, late=late)
    x, scale, bias, y = simulated(layer_norm(3, 200), shapes, ["f32"] * 4, spec)
    wide = x.astype(np.float64)
    centered = wide - wide.mean(1, keepdims=True)
    wanted = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) * scale + bias
    close(y, wanted, 2e-6)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i64", "i32", "i16", "i8"])
@pytest.mark.parametrize("how", ["sum", "max", "min"])
def test_reductions_of_every_type(dtype: str, how: str) -> None:
    """Rows and columns; integers exactly."""
    combine = {"sum": np.sum, "max": np.max, "min": np.min}[how]
    for ins, axis, shapes in (("d0, d1", 1, [(5, 100), (5,)]), ("d1, d0", 0, [(100, 6), (6,)])):
        kernel = reduction(str(shapes[1][0]), "100", ins, "d0", how, dtype)
        x, y = simulated(kernel, shapes, [dtype] * 2)
        wanted = (
            combine(x, axis=axis).astype(x.dtype)
            if dtype[0] == "i"
            else combine(x.astype(np.float64), axis=axis)
        )
        close(y, wanted, {"bf16": 5e-3, "f32": 1e-6}.get(dtype, 0 if dtype[0] == "i" else 1e-14))


def test_two_reduced_dims_around_a_parallel_one() -> None:
    """Sums over batch and position of [batch, channel, position]: no two dims merge."""
    kernel = reduction("6", "4, 24", "d1, d0, d2", "d0")
    x, y = simulated(kernel, [(4, 6, 24), (6,)], ["f32"] * 2)
    close(y, x.astype(np.float64).sum((0, 2)), 1e-6)


def test_broadcast_operands() -> None:
    """A row and a column vector, each indexed by its own dim."""
    body = "%s = arith.addf %x, %y : f32 %r = arith.mulf %s, %z : f32"
    kernel = pointwise("10, 12", "d0, d1;d1;d0", "%x : f32, %y : f32, %z : f32", body)
    x, y, z, out = simulated(kernel, [(10, 12), (12,), (10,), (10, 12)], ["f32"] * 4)
    assert (out == (x + y) * z[:, None]).all()


@pytest.mark.parametrize("size", [1, 7, 1003])
def test_casts_and_tails(size: int) -> None:
    """A flat kernel of any size: vectors, and the elements after the last one."""
    kernel = pointwise(str(size), "", "%x : f16", "%r = emit.cast %x : f16 to f32")
    x, y = simulated(kernel, [(size,)] * 2, ["f16", "f32"])
    assert (x.astype(np.float32) == y).all()
    kernel = pointwise(
        str(size), "", "%x : i1", "%t = arith.constant true %r = arith.xori %x, %t : i1", result="i1"
    )
    x, y = simulated(kernel, [(size,)] * 2, ["i1"] * 2)
    assert (x != y).all()


@pytest.mark.parametrize(
    ("rows", "columns", "dtype"),
    [(20, 70, "f32"), (64, 64, "f16"), (33, 16, "i1"), (16, 65, "i64"), (64, 32, "i8"), (40, 34, "i16")],
)
def test_transposes_through_shared_memory(rows: int, columns: int, dtype: str) -> None:
    """Tiles that fit and tiles at the edge, batches outside."""
    op = {"f": "%r = arith.negf %x", "i": "%r = arith.addi %x, %x"}[dtype[0]]
    kernel = pointwise(
        f"2, {rows}, {columns}", "d0, d2, d1", f"%x : {dtype}", f"{op} : {dtype}", result=dtype
    )
    shapes = [(2, columns, rows), (2, rows, columns)]
    assert chosen_spec(kernel, shapes, [dtype] * 2)[1].strategy == "tiles"
    x, y = simulated(kernel, shapes, [dtype] * 2)
    turned = x.swapaxes(1, 2)
    assert (y == (-turned if dtype[0] == "f" else turned ^ turned if dtype == "i1" else 2 * turned)).all()


# Machine code


@pytest.mark.parametrize(
    ("kernel", "shapes", "dtypes", "registers"),
    [
        (pointwise("65536", "", "%x : f32", "%r = math.exp %x : f32"), [(65536,)] * 2, ["f32"] * 2, 40),
        (softmax(256, 4096), [(256, 4096)] * 2, ["f32"] * 2, 64),
        (softmax(256, 4096, "f16"), [(256, 4096)] * 2, ["f16"] * 2, 80),
        (layer_norm(256, 4096), [(256, 4096), (4096,), (4096,), (256, 4096)], ["f32"] * 4, 72),
        (softmax(64, 65536), [(64, 65536)] * 2, ["f32"] * 2, 64),
    ],
)
def test_streaming_kernels_move_sixteen_bytes_at_a_time(
    kernel: KernelOp, shapes: list[Shape], dtypes: list[str], registers: int
) -> None:
    """All loads and stores of elements are 16 bytes wide, nothing spills, nothing is atomic."""
    nest, spec = chosen_spec(kernel, shapes, dtypes)
    workspace = [BufferRef(9, 0, (partial_bytes(nest, spec),), (1,), "i1")] if spec.splits > 1 else []
    launches = launches_of("k", nest, recorded(nest, spec), references(shapes, dtypes), workspace)
    cubins = compile_kernels((launch.code for launch in launches), "sm_90a")
    for cubin in cubins.values():
        assert cubin.stack_bytes == 0
        assert cubin.registers <= registers
        names = instructions(cubin)
        assert not starting(names, ATOMICS + SPILLS)
    last = instructions(cubins[launches[-1].code.symbol])
    assert "LDG.E.128" in last and "STG.E.128" in last
    if spec.splits == 1:
        assert {name for name in last if name.startswith(("LDG", "STG"))} == {"LDG.E.128", "STG.E.128"}


@pytest.mark.parametrize("dtype", ["bf16", "f64", "i64", "i32"])
def test_clusters_hear_of_sums_by_barriers(dtype: str) -> None:
    """All loads of a thread are 16 bytes wide and under way together; no fence of all memory, nothing atomic. What a
    barrier expects is said after the wait that orders its start for every thread, as racecheck wants to see it."""
    shapes = [(4096, 256), (256,)]
    nest, spec = chosen_spec(reduction("256", "4096", "d1, d0", "d0", "sum", dtype), shapes, [dtype] * 2)
    (launch,) = launches_of("k", nest, recorded(nest, spec), references(shapes, [dtype] * 2))
    assert launch.cluster == (1, 8, 1)
    (cubin,) = compile_kernels([launch.code], "sm_90a").values()
    names = instructions(cubin)
    assert cubin.stack_bytes == 0
    assert not starting(names, (*ATOMICS, *SPILLS, "MEMBAR.ALL"))
    assert names.count("LDG.E.128") == spec.unroll
    assert names.count("STAS") + names.count("STAS.64") == spec.cluster
    started, expects = names.index("UCGABAR_WAIT"), [n.startswith("SYNCS.ARRIVE") for n in names].index(True)
    assert started < expects


def test_a_row_of_a_cluster_stays_in_registers() -> None:
    """It is loaded and stored 16 bytes at a time, once; each of the two reductions goes to every block."""
    shapes, dtypes = [(4, 131072), (131072,), (131072,), (4, 131072)], ["f32"] * 4
    nest, spec = chosen_spec(layer_norm(4, 131072), shapes, dtypes)
    (launch,) = launches_of("k", nest, recorded(nest, spec), references(shapes, dtypes))
    assert (launch.grid, launch.cluster) == ((4, 8, 1), (1, 8, 1))
    (cubin,) = compile_kernels([launch.code], "sm_90a").values()
    names = instructions(cubin)
    assert cubin.stack_bytes == 0
    assert not starting(names, (*ATOMICS, *SPILLS, "MEMBAR.ALL"))
    assert names.count("LDG.E.128") == 3 * spec.unroll
    assert names.count("STG.E.128") == spec.unroll
    assert names.count("STAS") == 2 * spec.cluster


def test_the_same_decisions_give_the_same_text() -> None:
    """Text and symbol are a pure function of the record and the operands."""
    shapes = [(64, 768)] * 2
    nest, spec = chosen_spec(softmax(64, 768), shapes, ["f32"] * 2)
    refs = references(shapes, ["f32"] * 2)
    first, second = (launches_of("k", nest, recorded(nest, spec), refs) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("shape", [(3, 5, 8, 1), (2, 3, 7, 1), (40,)])
def test_coordinates_of_points(shape: Shape, dtype: str) -> None:
    """Every dim counts from 0, in every lane of a vector, also those that would be one loop."""
    weights = [1000, 100, 10, 1]
    body = " ".join(
        f"%c{d} = emit.index {d} : {dtype} %w{d} = arith.constant {weights[d]} : {dtype} "
        f"%p{d} = arith.muli %c{d}, %w{d} : {dtype}"
        for d in range(len(shape))
    )
    total = "".join(
        f" %s{d} = arith.addi %{f's{d - 1}' if d else 'x'}, %p{d} : {dtype}" for d in range(len(shape))
    )
    last = f" %zero = arith.constant 0 : {dtype} %r = arith.addi %s{len(shape) - 1}, %zero : {dtype}"
    sizes = ", ".join(map(str, shape))
    kernel = pointwise(sizes, "", f"%x : {dtype}", body + total + last, result=dtype)
    x, y = simulated(kernel, [shape] * 2, [dtype] * 2)
    wanted = x + sum(w * i for w, i in zip(weights, np.indices(shape), strict=False))
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("strategy", ["resident", "rows", "columns"])
@pytest.mark.parametrize("shape", [(5, 64), (3, 37)])
def test_coordinates_in_reductions(shape: Shape, strategy: str) -> None:
    """A reduction weighs by the place in its row; a later phase knows row and place."""
    specs = {
        "resident": GeneratedSpec("resident", 1, 32, 32, 2, 1),
        "rows": GeneratedSpec("rows", 1, 32, 32, 2, 1),
        "columns": GeneratedSpec("columns", 1, 64, 4, 2, 1),
    }
    shapes = [shape, shape[:1], shape]
    x, sums, moved = simulated(counting(*shape, "i32"), shapes, ["i32"] * 3, specs[strategy])
    i, j = np.indices(shape)
    np.testing.assert_array_equal(sums, (x * (j + 1)).sum(1))
    np.testing.assert_array_equal(moved, x + 100 * i + j)


def test_coordinates_compile() -> None:
    """Vectors of four elements with coordinates of i32 and i64 are machine code without spills."""
    for dtype in ("i32", "i64"):
        nest, spec = chosen_spec(counting(64, 512, dtype), [(64, 512), (64,), (64, 512)], [dtype] * 3)
        launches = launches_of(
            "k", nest, recorded(nest, spec), references([(64, 512), (64,), (64, 512)], [dtype] * 3)
        )
        (cubin,) = compile_kernels((launch.code for launch in launches), "sm_90a").values()
        assert not starting(instructions(cubin), SPILLS)
