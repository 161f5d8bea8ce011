"""The kernel of depthwise convolutions on cuda: on a simulated GPU, its records and costs, and its machine code."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import RecordError, integer, read_integer, read_text
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.code import Cubin
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.conv.depthwise.kernel import problems_of
from aicf.backends.cuda.families.conv.depthwise.problem import WindowDim, of_work
from aicf.backends.cuda.families.conv.depthwise.schedule import candidates, segment_of
from aicf.backends.cuda.families.conv.mma.kernel import ConvMmaKernel, ConvMmaTf32Kernel
from aicf.backends.cuda.families.conv.pack.kernel import DEPTHWISE_WEIGHT
from aicf.dialects.emit_types import LayoutAttr, TargetAttr
from aicf.dialects.json_values import json_value
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from tests.backends.cuda.depthwise_launches import (
    KERNEL,
    channels_last,
    drawn_operands,
    expected,
    laid_out,
    launch_of,
    simulated,
    work_in,
    work_of,
)
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.test_generated_programs import compiled, prepared
from tests.backends.cuda.test_generated_programs import simulated as simulated_program
from tests.gpu.convolutions import (
    Convolution,
    convolutions,
    depthwise_layer,
    drawn_depthwise,
    image_layer,
)
from tests.gpu.programs import random_arrays
from tests.support.random_graphs import run_program

Array = NDArray[Any]
Work = tuple[Workload, TargetAttr]

WITHIN = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}
"""Of the largest result."""
DTYPES = ("f32", "f16", "bf16")


def layer(dtype: str = "f16", *given: int, **more: Any) -> Work:
    return work_of(depthwise_layer(*(given or (32, 96, 56)), **more), dtype)


# Results


def assert_right(own: Workload, record: Mapping[str, Attribute], seed: int) -> None:
    operands = drawn_operands(own, seed)
    for wanted, found in zip(expected(own, operands), simulated(own, record, operands), strict=True):
        wide = wanted.astype(np.float64)
        within = WITHIN[own.operands[0].dtype] * max(1.0, float(np.abs(wide).max()))
        np.testing.assert_allclose(found.astype(np.float64), wide, 0, within)


def variants_of(own: Workload, target: TargetAttr) -> list[Mapping[str, Attribute]]:
    """A record for each order of threads and each way to share out the work, whatever it is predicted to take."""
    found: dict[tuple[object, ...], Mapping[str, Attribute]] = {}
    for spec in candidates(problems_of(own)):
        key = (spec.along, spec.vector, spec.pixels)
        if key not in found:
            found[key] = KERNEL.record_of(own, target, spec)
    return list(found.values())


def drawn(seed: int) -> Convolution:
    return drawn_depthwise(random.Random(seed), 4000)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(30))
def test_drawn_convolutions(seed: int) -> None:
    """Any strides, padding, dilations and multipliers, in every layout, with everything that may follow."""
    own, target = work_of(drawn(seed), DTYPES[seed % 3])
    own = channels_last(own) if seed % 2 else own
    assert KERNEL.legal(own, target) is None
    for record in variants_of(own, target):
        assert KERNEL.checked_record(own, record, target) == record
        assert_right(own, record, seed)


def test_the_draws_are_of_every_kind() -> None:
    """Vectors of all widths, threads with several results, both orders of threads, and every kind of window."""
    found: dict[str, set[object]] = {"along": set(), "packed": set(), "rank": set(), "multiplier": set()}
    for seed in range(30):
        own, target = work_of(drawn(seed), DTYPES[seed % 3])
        problem = of_work(own, None)
        found["rank"].add(problem.rank)
        found["multiplier"].add(problem.multiplier)
        for record in variants_of(own, target):
            found["along"].add(read_text(record, "threads_along"))
            found["packed"].add("layouts" in record)
            for name in ("vector", "pixels"):
                found.setdefault(name, set()).add(read_integer(record, name))
    assert found["along"] == {"channels", "pixels"} and found["packed"] == {True, False}
    assert found["rank"] == {1, 2, 3} and found["multiplier"] >= {1, 2, 3, 4}
    assert found["pixels"] == {1, 2, 4} and found["vector"] >= {1, 2, 4, 8}


FIXED: dict[str, tuple[Convolution, str]] = {
    "long": (depthwise_layer(2, 8, 40, 31, rank=1, after="silu"), "bf16"),
    "seven": (depthwise_layer(1, 16, 9, 7, after="bias"), "f16"),
    "seven-rows": (depthwise_layer(1, 3, 9, 7, after="residual", last=False), "f32"),
    "twice": (depthwise_layer(1, 16, 7, multiplier=2, after="wider"), "f16"),
    "block": (depthwise_layer(1, 8, 5, rank=3, after="residual"), "bf16"),
    "residual": (depthwise_layer(1, 16, 7, 5, after="residual"), "f16"),
}


@pytest.mark.parametrize("name", FIXED)
def test_layers(name: str) -> None:
    """Every variant: longer lines than a thread holds, windows that are not written out, and vectors of 16 bytes."""
    made, dtype = FIXED[name]
    own, target = work_of(made, dtype)
    own = channels_last(own) if made.result_last else own
    for record in variants_of(own, target):
        assert_right(own, record, 3)


def test_a_result_on_the_operand_that_it_is_added_to() -> None:
    """Each element is read and written by one thread, even where the last thread of a line starts early."""
    own, target = work_of(depthwise_layer(1, 8, 7, after="residual"))
    own = channels_last(own)
    alias: Any = json_value(KERNEL.record(own, target)["may_alias"])
    operands = drawn_operands(own, 1)
    (wanted,) = expected(own, operands)
    for record in variants_of(own, target):
        (found,) = simulated(own, record, operands, alias[0][1])
        np.testing.assert_allclose(found.astype(float), wanted.astype(float), 0, 0.02)


def test_two_results() -> None:
    """What follows may give its sums to others, too."""
    g = Graph("both")
    x, w = g.input("x", (1, 5, 6, 8), "f32"), g.param("w", (8, 1, 3, 3), "f32")
    y = g.conv(g.transpose(x, (0, 3, 1, 2)), w, low=[1, 1], high=[1, 1], groups=8)
    kept = g.relu(y)
    g.output(g.transpose(kept, (0, 2, 3, 1)), "y")
    g.output(g.transpose(g.tanh(kept), (0, 2, 3, 1)), "z")
    own, target = work_in(g)
    own = channels_last(own)
    assert KERNEL.legal(own, target) is None and len(own.results) == 2
    for record in variants_of(own, target):
        assert_right(own, record, 5)


def test_a_weight_that_stays_is_packed_in_a_program() -> None:
    """Channels-last threads read the weights of a tap at once, and nothing is copied at run time."""
    made = depthwise_layer(1, 64, 9, after="residual")
    arrays = random_arrays(convolutions("f16", [made]).module(), "packed")
    wanted = run_program(convolutions("f16", [made]).module(), arrays)["y_c0"]
    module = convolutions("f16", [made]).module()
    plan, unit = compiled(module, '{"layouts": {"*": "channels_last"}}')
    assert [launch.kernel for launch in unit.launches] == [KERNEL.id]
    found = simulated_program(plan, unit, {**arrays, **prepared(module, arrays)})["y_c0"]
    np.testing.assert_allclose(found.astype(float), wanted.astype(float), 0, 2e-3 * np.abs(wanted).max())


# Legality


def test_other_convolutions_are_refused() -> None:
    own, target = work_of(image_layer(1, 16, 16, 8))
    assert KERNEL.legal(own, target) == "its groups have 16 input channels, and one is summed here"
    own, target = work_of(replace(depthwise_layer(1, 16, 8), groups=8, outputs=8))
    assert KERNEL.legal(own, target) == "its groups have 2 input channels, and one is summed here"


def test_many_outputs_of_a_channel_are_a_product() -> None:
    own, target = work_of(replace(image_layer(1, 1, 32, 20), after="bias"))
    assert str(KERNEL.legal(own, target)).startswith("each channel has 32 outputs, more than 16")


def test_what_is_refused_has_a_reason() -> None:
    own, target = layer()
    x, w, *rest = own.operands
    wide = replace(own, operands=(replace(x, dtype="f64"), replace(w, dtype="f64"), *rest))
    assert KERNEL.legal(wide, target) == "sums are f32 here, for f16, bf16, f32: it is of f64"
    mixed = replace(own, operands=(x, replace(w, dtype="bf16"), *rest))
    assert "its operand is f16 and its weight bf16" in str(KERNEL.legal(mixed, target))
    long = replace(own, attrs={**own.attrs, "dilation_0": integer(1 << 29)})
    assert "places or more along a dimension" in str(KERNEL.legal(long, target))
    integers = replace(own, results=(replace(own.results[0], dtype="i32"),))
    assert (
        KERNEL.legal(integers, target) == "what follows reads and gives f64, f32, f16, bf16, f8E4M3FN, f8E5M2"
    )


# Records and costs


@pytest.mark.parametrize(
    ("gap", "offset", "vector"), [(0, 0, 8), (8, 0, 8), (4, 0, 4), (0, 4, 4), (0, 2, 2), (0, 1, 1), (1, 0, 1)]
)
def test_vectors_are_aligned(gap: int, offset: int, vector: int) -> None:
    own, target = layer("f16", 2, 64, 12)
    x, *rest = own.operands
    row = 64 * 12 + gap
    moved = replace(x, strides=(row * 12, 1, row, 64), offset=offset)
    own = replace(own, operands=(moved, *rest))
    assert max(read_integer(each, "vector") for each in KERNEL.variants(own, target)) == vector


def test_ends_are_read_and_written_one_by_one_where_they_are_not_aligned() -> None:
    """The operand may be, still."""
    own, target = layer("f16", 1, 16, 6)
    own = replace(own, results=(replace(channels_last(own).results[0], offset=1),))
    wide = [each for each in variants_of(own, target) if read_integer(each, "vector") == 8]
    assert wide
    for record in wide:
        assert_right(own, record, 2)


def test_the_weight_lies_as_threads_want_it() -> None:
    own, target = layer()
    layouts: Any = KERNEL.record(own, target)["layouts"]
    layout = layouts.data[1]
    assert isinstance(layout, LayoutAttr) and layout.layout.data == DEPTHWISE_WEIGHT
    pack = KERNEL.prepare(own, 1, layout, target)
    assert pack.kernel.data == "cuda.pack_windows"
    assert KERNEL.record(laid_out(own, KERNEL.record(own, target)), target) == KERNEL.record(own, target)
    assert "layouts" not in KERNEL.record(*layer(last=False))
    changes, target = work_of(replace(depthwise_layer(32, 96, 56), is_param=False))
    assert "layouts" not in KERNEL.record(changes, target)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_tiles_leave_it_to_this_kernel(dtype: str) -> None:
    own, target = work_of(depthwise_layer(1, 32, 112, 3, 1, last=True), dtype)
    own = replace(own, tf32=True)
    other = ConvMmaTf32Kernel() if dtype == "f32" else ConvMmaKernel()
    assert KERNEL.legal(own, target) is None
    assert "one channel a group" in (other.legal(own, target) or "")


def test_costs_are_those_of_memory() -> None:
    """38 MB at the bandwidth of an H100 and a part of the instructions; more in row-major memory."""
    moved = 2 * 32 * 96 * 56 * 56 * 2 / 2950e3
    own, target = layer()
    assert moved < KERNEL.cost_us(own, target) < 1.7 * moved
    assert KERNEL.cost_us(own, target) < KERNEL.cost_us(*layer(last=False))
    assert KERNEL.cost_us(*layer(taps=7)) > 2 * moved
    older, target = work_of(depthwise_layer(32, 96, 56), target="cuda:sm_80")
    assert KERNEL.cost_us(older, target) > 1.5 * moved


@pytest.mark.parametrize(
    ("change", "legal"),
    [
        ({"vector": integer(16)}, "legal: 1, 2, 4, 8"),
        ({"vector": integer(3)}, "legal: 1, 2, 4, 8, 16"),
        ({"pixels": integer(3)}, "legal: 1, 2, 4"),
        ({"threads": integer(96)}, "legal: 256, 128, 64"),
        ({"threads": integer(32)}, "legal: 256, 128, 64"),
        ({"near": integer(3)}, "'near'"),
        ({"blocks_per_sm": integer(99)}, "'blocks_per_sm'"),
        ({"threads_along": StringAttr("rows")}, "legal: channels, pixels"),
        ({"threads_along": StringAttr("pixels")}, "'vector' is 8, legal: 1"),
        ({"combination_order": StringAttr("none")}, "'combination_order'"),
    ],
)
def test_records_that_contradict_themselves(change: dict[str, Attribute], legal: str) -> None:
    own, target = layer()
    record = KERNEL.record(own, target)
    assert read_integer(record, "vector") == 8
    with pytest.raises(RecordError, match=legal):
        KERNEL.checked_record(own, {**record, **change}, target)


def test_variants_are_different_and_can_be_carried_out() -> None:
    for own, target in (layer(), layer(last=False), layer("f32", 1, 32, 14, 5)):
        variants = KERNEL.variants(own, target)
        assert variants[0] == KERNEL.record(own, target)
        assert len({str(sorted(each.items())) for each in variants}) == len(variants) >= 6
        assert len({tuple(sorted(each)) for each in variants}) == 1
        for each in variants:
            assert KERNEL.checked_record(own, each, target) == each


@pytest.mark.parametrize("taps", [3, 7])
def test_one_order_whatever_the_batch_and_the_layout(taps: int) -> None:
    orders = {
        KERNEL.fixed_order(*layer("f32", batch, 16, 24, taps, last=last))
        for batch in (1, 3, 64)
        for last in (True, False)
    }
    assert len(orders) == 1


def test_a_segment_of_overlapping_windows() -> None:
    """Two windows of three elements find four, two of which both have."""
    found = segment_of(WindowDim(9, 7, 3, 1, 1, 0, 1, 1), 3, 2)
    assert found.places == (0, 1, 2, 3)
    assert found.uses == ((0, -1), (1, 0), (2, 1), (-1, 2))
    apart = segment_of(WindowDim(9, 3, 2, 3, 2, 0, 1, 1), 2, 2)
    assert apart.places == (0, 2, 3, 5) and apart.uses == ((0, -1), (1, -1), (-1, 0), (-1, 1))


def test_more_threads_than_an_i32_counts() -> None:
    """Indices of 64 bits where they are needed, and nowhere else."""
    own, target = layer("f16", 1, 16, 8, last=False)
    (x, w, *rest), (y,) = own.operands, own.results
    many = 1 << 26
    large = replace(
        own,
        operands=(replace(x, shape=(many, *x.shape[1:])), w, *rest),
        results=(replace(y, shape=(many, *y.shape[1:])),),
        code=None,
    )
    large = replace(large, operands=large.operands[:2])
    record = KERNEL.record(large, target)
    assert "i64(cuda.blockIdx.x)" in launch_of(large, record).code.source
    assert "i64(cuda.blockIdx.x)" not in launch_of(own, KERNEL.record(own, target)).code.source


# Machine code

CODES: dict[str, tuple[Convolution, str, int, int]] = {
    "mobile": (depthwise_layer(32, 96, 56), "f16", 16, 16),
    "mobile-steps": (depthwise_layer(32, 96, 112, 3, 2, after="silu"), "bf16", 16, 16),
    "mobile-f32": (depthwise_layer(32, 96, 56, after="residual"), "f32", 16, 16),
    "five": (depthwise_layer(32, 96, 56, 5, after="residual"), "f16", 16, 16),
    "next": (depthwise_layer(32, 96, 56, 7, after="bias"), "bf16", 16, 16),
    "next-f32": (depthwise_layer(32, 96, 56, 7, after="bias"), "f32", 16, 16),
    "speech": (depthwise_layer(8, 512, 400, 31, rank=1, after="silu"), "f16", 16, 16),
    "twice": (depthwise_layer(32, 64, 56, multiplier=2), "f16", 8, 16),
}
"""Layers, and the bytes of the narrowest load and of the narrowest store."""


def cubin_of(record: Mapping[str, Attribute], own: Workload, arch: str = "sm_90a") -> Cubin:
    (cubin,) = compile_kernels([launch_of(own, record).code], arch).values()
    return cubin


@pytest.mark.parametrize("name", CODES)
def test_channels_are_read_sixteen_bytes_at_a_time(name: str) -> None:
    """Without spills; several warps for each scheduler fit on a multiprocessor."""
    made, dtype, load, store = CODES[name]
    own, target = work_of(made, dtype)
    record = KERNEL.record(own, target)
    cubin = cubin_of(record, own)
    names = Counter(instructions(cubin))
    wide = {bytes_: f"E.{8 * bytes_}" for bytes_ in (8, 16)}
    loads, stores = (set(starting(names, (what,))) for what in ("LDG", "STG"))
    assert loads == {f"LDG.{each}" for size, each in wide.items() if size >= load}
    assert stores == {f"STG.{each}" for size, each in wide.items() if size >= store}
    assert names["STG.E.128"] == read_integer(record, "pixels")
    assert cubin.stack_bytes == 0 and cubin.registers <= 168 and not starting(names, SPILLS)


def test_overlapping_windows_share_what_they_read() -> None:
    """Four results of a thread in a column read six rows of three columns, and the weights once; a bias, too."""
    own, target = layer(after="bias")
    record = next(each for each in KERNEL.variants(own, target) if read_integer(each, "pixels") == 4)
    names = Counter(instructions(cubin_of(record, own)))
    assert names["LDG.E.128"] == 18 + 9 + 1 and names["STG.E.128"] == 4
    assert names["FFMA"] == 9 * 8 * 4


@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
def test_other_architectures(arch: str) -> None:
    own, target = work_of(depthwise_layer(32, 64, 56), "bf16", target=f"cuda:{arch}")
    record = KERNEL.record(own, target)
    assert "early_reads" not in record
    cubin = cubin_of(record, own, arch)
    assert "LDG.E.128" in instructions(cubin) and cubin.stack_bytes == 0


# In programs


def network(dtype: str) -> Graph:
    """A block of a network: a point-wise convolution on both sides of a depthwise one."""
    g = Graph("block")
    x = g.input("x", (8, 28, 28, 64), dtype)
    y = g.transpose(x, [0, 3, 1, 2])
    y = g.relu(g.conv(y, g.param("a", (128, 64, 1, 1), dtype)))
    y = g.relu(g.conv(y, g.param("b", (128, 1, 3, 3), dtype), low=[1, 1], high=[1, 1], groups=128))
    y = g.conv(y, g.param("c", (64, 128, 1, 1), dtype))
    g.output(g.transpose(y, [0, 2, 3, 1]), "y")
    return g


@pytest.mark.parametrize("policy", ["", '{"determinism": "batch_invariant"}'])
def test_a_network_runs_on_it(policy: str) -> None:
    """Also where bits may not depend on the batch, for it has one order."""
    module = network("f16").module()
    AicfInferencePass("cuda:sm_90a", policy).apply(make_context(), module)
    text = str(module)
    assert text.count('kernel("cuda.conv_depthwise"') == 1


def test_without_it_windows_are_arithmetic() -> None:
    module = network("f16").module()
    policy = json.dumps({"forbid": [KERNEL.id]})
    AicfInferencePass("cuda:sm_90a", policy).apply(make_context(), module)
    text = str(module)
    assert "cuda.conv_depthwise" not in text.partition("emit.program")[2]
    assert "tiles would hold next to nothing else" in text
