"""The kernel of poolings on cuda: on a simulated GPU in every layout, its records and costs, and its machine code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.pool import PoolAxis
from aicf.backends.common.record import RecordError, integer, read_integer, read_text
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.code import Cubin
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.pool.problem import Border, PoolDim, PoolProblem, read_pool
from aicf.backends.cuda.families.pool.schedule import lanes_of
from aicf.dialects.emit import find_ledger
from aicf.dialects.emit_types import TargetAttr
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from tests.backends.cuda.pool_launches import (
    KERNEL,
    channels,
    launch_of,
    planes,
    pooling,
    simulated,
    strided,
    work_of,
)
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.test_generated_programs import compiled
from tests.backends.cuda.test_generated_programs import simulated as simulated_program
from tests.support.random_graphs import run_program
from tests.support.random_pools import DrawnPool, drawn_pool

Array = NDArray[Any]

WITHIN = {"f64": 1e-13, "f32": 2e-6, "f16": 1e-3, "bf16": 8e-3}

CENTRED: dict[str, Any] = {"strides": [1, 1], "low": [1, 1], "high": [1, 1]}
STEM: dict[str, Any] = {"sizes": [3, 3], "strides": [2, 2], "low": [1, 1], "high": [1, 1]}
IMAGES = (32, 64, 112, 112)
"""What the first pooling of a residual network gets."""


def work(op: str, shape: tuple[int, ...], dtype: str, last: bool = True, **windows: Any) -> Any:
    """The work and the target of a pooling in channels-last memory, or in row-major memory."""
    order = channels(len(shape)) if last else planes(len(shape))
    return work_of(pooling(op, shape, dtype, **windows), order, order)


def stem(dtype: str = "f16", last: bool = True, batch: int = 32) -> tuple[Workload, TargetAttr]:
    return work("max_pool", (batch, *IMAGES[1:]), dtype, last, **STEM)


# Results


def assert_right(drawn: DrawnPool, x: Array, found: Array) -> None:
    """Maxima are equal; means are as close as the type of the result allows."""
    exact = run_program(pooling(drawn.op, drawn.shape, drawn.dtype, **drawn.windows).module(), {"x": x})["y"]
    if drawn.op == "max_pool":
        np.testing.assert_array_equal(found.astype(exact.dtype), exact)
        return
    within = WITHIN[drawn.dtype]
    np.testing.assert_allclose(found.astype(np.float64), exact.astype(np.float64), within, within)


def variants_of(work: Workload, target: TargetAttr) -> list[Mapping[str, Attribute]]:
    """The first records with each way to share out the work."""
    found: dict[tuple[int, ...], Mapping[str, Attribute]] = {}
    for record in KERNEL.variants(work, target):
        found.setdefault(tuple(read_integer(record, name) for name in ("vector", "pixels")), record)
    return list(found.values())


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(40))
def test_drawn_poolings(seed: int) -> None:
    """In two of four layouts, one of which differs between the operand and the result; with gaps, and from an odd
    address."""
    drawn = drawn_pool(seed)
    x, rank = drawn.values(seed), len(drawn.shape)
    graph = pooling(drawn.op, drawn.shape, drawn.dtype, **drawn.windows)
    last, rows, turned = channels(rank), planes(rank), list(reversed(range(rank)))
    layouts = [(last, last), (rows, rows), (rows, last), (turned, turned)]
    for number in (seed % 2, 2 + seed // 2 % 2):
        lies, result = layouts[number]
        own, target = work_of(graph, lies, result, gap=seed % 4 * 2, offset=seed % 3)
        assert KERNEL.legal(own, target) is None
        variants = variants_of(own, target)
        for record in variants if number == seed % 2 else variants[:1]:
            assert KERNEL.checked_record(own, record, target)
            assert_right(drawn, x, simulated(own, record, x))


def test_the_draws_are_of_every_kind() -> None:
    """Short and long windows, vectors of all widths, threads with several results, and every border."""
    found: dict[str, set[object]] = {"op": set(), "dtype": set(), "borders": set()}
    for drawn in map(drawn_pool, range(40)):
        own, target = work(drawn.op, drawn.shape, drawn.dtype, **drawn.windows)
        found["op"].add(drawn.op)
        found["dtype"].add(drawn.dtype)
        found["borders"].update(problem_of(own).borders)
        for record in variants_of(own, target):
            for name in ("lanes", "vector", "pixels"):
                found.setdefault(name, set()).add(read_integer(record, name))
    assert found["op"] == {"max_pool", "avg_pool"} and len(found["dtype"]) >= 8
    assert found["borders"] == set(Border)
    assert found["lanes"] >= {1, 4, 8} and found["pixels"] == {1, 2, 4} and found["vector"] >= {1, 2, 4, 8}


def test_a_window_that_finds_nothing() -> None:
    """The mean is NaN, whether the compiler knows it or not; the maximum is what is smaller than all."""
    for windows in (
        {"sizes": [2], "strides": [9], "low": [4]},
        {"sizes": [2], "strides": [1], "low": [4]},
    ):
        for dtype in WITHIN:
            drawn = DrawnPool("avg_pool", (1, 2, 3), dtype, windows)
            x = np.ones(drawn.shape, drawn.values(0).dtype)
            own, target = work("avg_pool", drawn.shape, dtype, **windows)
            found = simulated(own, KERNEL.record(own, target), x)
            assert np.isnan(found[..., 0].astype(np.float64)).all()
            assert_right(drawn, x, found)
            most, target = work("max_pool", drawn.shape, dtype, **windows)
            assert (simulated(most, KERNEL.record(most, target), x)[..., 0] == -np.inf).all()


def test_between_instructions_that_read_and_write_channels_last() -> None:
    """The operand through a transposition, and the result by the policy: nothing is copied."""
    g = Graph("last")
    x = g.input("x", (2, 9, 10, 16), "f16")
    y = g.max_pool(g.transpose(x, [0, 3, 1, 2]), **STEM)
    g.output(g.transpose(y, [0, 2, 3, 1]), "y")
    given = {"x": np.random.default_rng(2).standard_normal((2, 9, 10, 16)).astype(np.float16)}
    wanted = run_program(g.module(), given)["y"]
    plan, unit = compiled(g.module(), '{"layouts": {"*": "channels_last"}}')
    (launch,) = unit.launches
    assert launch.kernel == "cuda.pool" and read_integer(launch.record, "vector") == 8
    np.testing.assert_array_equal(simulated_program(plan, unit, given)["y"], wanted)


# Legality


@pytest.mark.parametrize(
    ("shape", "windows", "why"),
    [
        ((1, 2, 5000), {"sizes": [4097]}, "its windows have more than 4096 elements"),
        ((1, 1 << 28, 64), {"sizes": [1]}, None),
        (
            (1 << 20, 1 << 10, 4096),
            {"sizes": [1]},
            "its windows have 1099511627776 elements or more together",
        ),
        (
            (1, 1, 1 << 30),
            {"sizes": [2]},
            "its windows reach over 1073741824 places or more along a dimension",
        ),
        (
            (1, 1, 8),
            {"sizes": [2], "dilations": [1 << 29], "high": [1 << 29]},
            "its windows reach over 1073741824 places or more along a dimension",
        ),
        ((1, 1, 1 << 28), {"sizes": [2]}, None),
    ],
)
def test_what_is_refused(shape: tuple[int, ...], windows: dict[str, Any], why: str | None) -> None:
    own, target = plain(shape, windows)
    reason = KERNEL.legal(own, target)
    assert reason is None if why is None else str(reason).startswith(why)
    assert why is not None or max(json_grid(KERNEL.record(own, target))) < 1 << 31


def plain(shape: tuple[int, ...], windows: dict[str, Any]) -> tuple[Workload, TargetAttr]:
    """A pooling of row-major memory of any size, made out of a small one: no program is compiled for it."""
    (axis,) = (
        PoolAxis(
            shape[2],
            *(windows.get(name, [absent])[0] for name, absent in _ABSENT.items()),
            count=0,
        ),
    )
    room = axis.whole + axis.low + axis.high - ((axis.size - 1) * axis.dilation + 1)
    axis = replace(axis, count=room // axis.stride + 1)
    own, target = work("max_pool", (1, 1, 2), "f32", False, sizes=[1])
    entries = {f"{name}_0": integer(getattr(axis, name)) for name in _FIELDS}
    (x,), (y,) = own.operands, own.results

    def sized(info: Any, last: int) -> Any:
        return replace(info, shape=(*shape[:2], last), strides=(shape[1] * last, last, 1))

    sizes = sized(x, shape[2]), sized(y, axis.count)
    return replace(own, attrs={**own.attrs, **entries}, operands=sizes[:1], results=sizes[1:]), target


_ABSENT = {"sizes": 1, "strides": 1, "dilations": 1, "low": 0, "high": 0}
_FIELDS = ("size", "stride", "dilation", "low", "high")


def json_grid(record: Mapping[str, Attribute]) -> list[int]:
    grid: Any = record["grid"]
    return [each.value.data for each in grid.data]


def test_an_operand_without_elements_is_refused() -> None:
    own, target = stem()
    empty = replace(own.operands[0], shape=(32, 64, 0, 112))
    assert KERNEL.legal(replace(own, operands=(empty,)), target) == "its operand has no elements"
    none = replace(own.results[0], shape=(0, 64, 56, 56))
    assert "no elements" in str(KERNEL.legal(replace(own, results=(none,)), target))
    unknown = replace(own.operands[0], dtype="f8")
    assert "element type f8 is not supported" in str(KERNEL.legal(replace(own, operands=(unknown,)), target))


def test_more_results_than_an_i32_counts() -> None:
    """Indices of 64 bits where they are needed, and nowhere else."""
    large, target = plain((4, 1 << 27, 64), {"sizes": [2], "strides": [2]})
    code = launch_of(large, KERNEL.record(large, target)).code
    assert "i64(cuda.blockIdx.x)" in code.source
    (cubin,) = compile_kernels([code], "sm_90a").values()
    assert cubin.stack_bytes == 0
    small, target = plain((4, 1 << 20, 64), {"sizes": [2], "strides": [2]})
    assert "i64(cuda.blockIdx.x)" not in launch_of(small, KERNEL.record(small, target)).code.source


# Problems


def problem_of(own: Workload) -> PoolProblem:
    return read_pool(own.attrs, strided(own.operands[0]), strided(own.results[0]))


@pytest.mark.parametrize(
    ("mode", "axis", "border"),
    [
        ("max", PoolAxis(8, 3, 1, 1, 0, 0, 6), Border.NONE),
        ("max", PoolAxis(8, 3, 1, 1, 1, 1, 8), Border.NEAREST),
        ("avg", PoolAxis(8, 3, 1, 1, 1, 1, 8), Border.TESTED),
        ("max", PoolAxis(8, 3, 1, 2, 1, 1, 6), Border.TESTED),
        ("max", PoolAxis(8, 3, 1, 1, 3, 0, 9), Border.TESTED),
        ("max", PoolAxis(8, 3, 1, 1, 0, 3, 9), Border.TESTED),
    ],
)
def test_what_is_asked_of_a_place(mode: str, axis: PoolAxis, border: Border) -> None:
    assert PoolDim(axis, 1, 1).border(mode) == border


def test_windows_that_are_all_of_a_plane_are_a_row() -> None:
    """In both layouts; not where the rows of the plane have gaps."""
    for last in (True, False):
        own, _ = work("avg_pool", (2, 16, 7, 7), "f32", last, sizes=[7, 7])
        sizes = [dim.axis.size for dim in problem_of(own).dims]
        assert sizes == [1, 1, 49]
    graph = pooling("avg_pool", (2, 16, 7, 7), "f32", sizes=[7, 7])
    gaps, _ = work_of(graph, planes(4), planes(4), gap=3)
    assert [dim.axis.size for dim in problem_of(gaps).dims] == [1, 7, 7]
    rows, _ = work("max_pool", (2, 3, 9, 4), "f32", False, sizes=[3, 4], strides=[2, 1])
    assert [dim.axis.stride for dim in problem_of(rows).dims] == [1, 1, 8]


@pytest.mark.parametrize(("taps", "lanes"), [(1, 1), (32, 1), (33, 4), (49, 4), (169, 16), (4096, 256)])
def test_threads_of_a_window(taps: int, lanes: int) -> None:
    assert lanes_of(taps) == lanes


# Records and costs


def test_the_record_of_a_residual_network() -> None:
    """Eight channels of a result for each thread where channels lie side by side, else results along a row."""
    own, target = stem()
    record = KERNEL.record(own, target)
    assert read_text(record, "threads_along") == "channels" and read_integer(record, "vector") == 8
    assert json_grid(record) == [32 * 64 // 8 * 56 * 56 // 256, 1, 1]
    assert read_text(record, "combination_order") == "the elements of a window, ascending"
    rows = KERNEL.record(*stem(last=False))
    assert read_text(rows, "threads_along") == "pixels" and read_integer(rows, "vector") == 1


def test_costs_are_those_of_memory() -> None:
    """64 MB at the bandwidth of an H100; more in row-major memory, and most where the layouts differ."""
    own, target = stem()
    moved = (32 * 64 * (112 * 112 + 56 * 56) * 2) / 2950e3
    assert moved < KERNEL.cost_us(own, target) < moved + 2
    rows = KERNEL.cost_us(*stem(last=False))
    graph = pooling("max_pool", IMAGES, "f16", **STEM)
    mixed = KERNEL.cost_us(*work_of(graph, planes(4), channels(4)))
    assert KERNEL.cost_us(own, target) < rows < mixed
    older, target = work_of(graph, channels(4), channels(4), target="cuda:sm_80")
    assert KERNEL.cost_us(older, target) > 1.5 * moved


@pytest.mark.parametrize(
    ("gap", "offset", "vector"), [(0, 0, 8), (8, 0, 8), (4, 0, 4), (0, 4, 4), (0, 2, 2), (0, 1, 1), (1, 0, 1)]
)
def test_vectors_are_aligned(gap: int, offset: int, vector: int) -> None:
    graph = pooling("max_pool", (2, 64, 12, 12), "f16", **STEM)
    record = KERNEL.record(*work_of(graph, channels(4), channels(4), gap, offset))
    assert read_integer(record, "vector") == vector


@pytest.mark.parametrize(
    ("change", "legal"),
    [
        ({"vector": integer(16)}, "legal: 1, 2, 4, 8"),
        ({"vector": integer(3)}, "legal: 1, 2, 4, 8, 16"),
        ({"pixels": integer(3)}, "legal: 1, 2, 4"),
        ({"threads": integer(96)}, "legal: 256, 128, 64"),
        ({"threads": integer(128)}, "'grid'"),
        ({"lanes": integer(2)}, "legal: 1, which follows"),
        ({"threads_along": StringAttr("rows")}, "legal: channels, pixels"),
        ({"threads_along": StringAttr("pixels")}, "'vector' is 8, legal: 1"),
        ({"combination_order": StringAttr("none")}, "'combination_order'"),
    ],
)
def test_records_that_contradict_themselves(change: dict[str, Attribute], legal: str) -> None:
    own, target = stem()
    with pytest.raises(RecordError, match=legal):
        KERNEL.checked_record(own, {**KERNEL.record(own, target), **change}, target)


def test_a_long_window_has_one_result_a_thread() -> None:
    own, target = work("avg_pool", (2, 16, 30, 30), "f32", sizes=[20, 20])
    record = KERNEL.record(own, target)
    assert read_integer(record, "lanes") == 32 and read_integer(record, "pixels") == 1
    with pytest.raises(RecordError, match="'pixels' is 2, legal: 1"):
        KERNEL.checked_record(own, {**record, "pixels": integer(2)}, target)
    largest, target = work("avg_pool", (2, 16, 64, 64), "f32", sizes=[64, 64])
    assert {read_integer(each, "threads") for each in KERNEL.variants(largest, target)} == {256}
    with pytest.raises(RecordError, match="'threads' is 128, legal: 256"):
        KERNEL.checked_record(largest, {**KERNEL.record(largest, target), "threads": integer(128)}, target)


def test_variants_are_different_and_can_be_carried_out() -> None:
    for own, target in (stem(), stem(last=False), stem("f32", batch=1)):
        variants = KERNEL.variants(own, target)
        assert variants[0] == KERNEL.record(own, target)
        assert len({str(sorted(each.items())) for each in variants}) == len(variants) >= 6
        for each in variants:
            assert KERNEL.checked_record(own, each, target) == each


@pytest.mark.parametrize("size", [3, 7, 20])
def test_one_order_whatever_the_batch_and_the_layout(size: int) -> None:
    orders = {
        KERNEL.fixed_order(*work("avg_pool", (batch, 16, 24, 24), "f32", last, sizes=[size, size]))
        for batch in (1, 3, 64)
        for last in (True, False)
    }
    assert len(orders) == 1


# Machine code

CODES: dict[str, tuple[tuple[Workload, TargetAttr], int]] = {
    "stem": (stem(), 9),
    "stem-bf16": (stem("bf16"), 9),
    "stem-f32": (stem("f32"), 9),
    "mean": (work("avg_pool", (32, 64, 56, 56), "f16", sizes=[3, 3], **CENTRED), 9),
    "mean-f64": (work("avg_pool", (32, 64, 56, 56), "f64", sizes=[2, 2], strides=[2, 2]), 4),
    "global": (work("avg_pool", (32, 2048, 7, 7), "bf16", sizes=[7, 7]), 4),
    "bytes": (work("max_pool", (32, 64, 56, 56), "i8", sizes=[3, 3], **CENTRED), 9),
    "volume": (work("max_pool", (4, 64, 16, 16, 16), "f16", sizes=[2, 2, 2], strides=[2, 2, 2]), 8),
}


def cubin_of(record: Mapping[str, Attribute], own: Workload, arch: str = "sm_90a") -> Cubin:
    (cubin,) = compile_kernels([launch_of(own, record).code], arch).values()
    return cubin


@pytest.mark.parametrize("name", CODES)
def test_channels_are_read_sixteen_bytes_at_a_time(name: str) -> None:
    """Every element of a window once, without spills; as many threads as a multiprocessor needs fit on it."""
    (own, target), loads = CODES[name]
    cubin = cubin_of(KERNEL.record(own, target), own)
    names = Counter(instructions(cubin))
    assert names["LDG.E.128"] == loads and names["STG.E.128"] == 1
    assert set(starting(names, ("LDG", "STG"))) == {"LDG.E.128", "STG.E.128"}
    assert cubin.stack_bytes == 0 and cubin.registers <= 80 and not starting(names, SPILLS)


def test_halves_are_compared_in_pairs() -> None:
    for dtype, suffix in (("f16", ".NAN"), ("bf16", ".BF16_V2.NAN")):
        own, target = stem(dtype)
        names = Counter(instructions(cubin_of(KERNEL.record(own, target), own)))
        assert 2 * names[f"VHMNMX{suffix}"] + names[f"HMNMX2{suffix}"] == 9 * 4  # of three and of two
        assert not starting(names, ("FMNMX", "CALL"))


def test_overlapping_windows_share_what_they_read() -> None:
    """Four results of a thread in a row read six columns of three rows, not four times nine elements."""
    own, target = work("max_pool", (32, 64, 56, 56), "f16", sizes=[3, 3], **CENTRED)
    variants = {read_integer(each, "pixels"): each for each in KERNEL.variants(own, target)}
    cubin = cubin_of(variants[4], own)
    names = Counter(instructions(cubin))
    assert names["LDG.E.128"] == 18 and names["STG.E.128"] == 4
    assert cubin.stack_bytes == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
def test_other_architectures(arch: str) -> None:
    graph = pooling("max_pool", (2, 64, 12, 12), "bf16", **STEM)
    own, target = work_of(graph, channels(4), channels(4), target=f"cuda:{arch}")
    record = KERNEL.record(own, target)
    assert "early_reads" not in record
    assert "LDG.E.128" in instructions(cubin_of(record, own, arch))


# In programs


def final(graph: Graph, policy: str = "") -> ModuleOp:
    module = graph.module()
    AicfInferencePass("cuda:sm_90a", policy).apply(make_context(), module)
    return module


def residual_stem() -> Graph:
    g = Graph("stem")
    x = g.input("x", (32, 112, 112, 64), "f16")
    y = g.max_pool(g.relu(g.transpose(x, [0, 3, 1, 2])), **STEM)
    g.output(g.reduce_mean(g.tanh(y), [2, 3]), "y")
    return g


def test_values_around_a_pooling_lie_channels_last() -> None:
    """Where kernels say that they take less time so; the policy may say otherwise."""
    ledger = find_ledger(final(residual_stem()))
    assert ledger is not None
    choices = [each.choice.data for each in ledger.decisions if each.pass_name.data == "select-layouts"]
    assert any(choice.startswith("channels_last for 2") for choice in choices), choices
    text = str(final(residual_stem(), '{"layouts": {"*": "row_major"}}'))
    assert 'kernel("cuda.pool"' in text and "channels_last for" not in text


def test_bits_that_do_not_depend_on_the_batch() -> None:
    """The policy that asks for them keeps the kernel, which has one order."""
    text = str(final(residual_stem(), '{"determinism": "batch_invariant"}'))
    assert 'kernel("cuda.pool"' in text
