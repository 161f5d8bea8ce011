"""Convolutions beside which the statistics of a batch norm are taken, without a GPU: what is legal and why not, values
(simulated) against float64, what they cost, compiled code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import IntegerAttr, ModuleOp

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.wgmma.codegen import emit
from aicf.backends.cuda.families.conv.wgmma.kernel import ConvWgmmaKernel, ConvWgmmaMomentsKernel
from aicf.backends.cuda.families.records import integers
from aicf.compilation.record import Options
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import TargetAttr
from aicf.errors import PolicyError
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import workload_of
from aicf.tuning.candidates import grouped
from tests.backends.cuda import wgmma_simulator
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.sass import ATOMICS, SPILLS, instructions, starting
from tests.backends.cuda.simulator import Memory
from tests.gpu.batch_norms import Normed, normed, passed_back

KERNEL = ConvWgmmaMomentsKernel()
TARGET = TargetAttr("cuda", "sm_90a")
TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
POLICY = {"layouts": {"*": "channels_last"}, "kernels": {"conv_moments": KERNEL.id}}

Build = Callable[[Normed, str], Graph]
"""A program with one convolution."""

_MODULES: list[ModuleOp] = []
"""Works hold parts of them, and go with them."""


def module_of(made: Normed, dtype: str = "bf16", build: Build = normed) -> ModuleOp:
    """Its groups, as kernels are selected for them."""
    options = Options("cuda:sm_90a", json.dumps(POLICY), "", 1)
    return grouped(build(made, dtype).module(), options, make_context(), lambda _: None)


@cache
def work_of(made: Normed, dtype: str = "bf16", build: Build = normed) -> Workload:
    """What the kernel is asked to run: the group that holds the convolution, and what it takes of each channel."""
    module = module_of(made, dtype, build)
    _MODULES.append(module)
    works = [workload_of(op).work for op in module.walk() if isinstance(op, GroupOp)]
    (found,) = (work for work in works if work.kind == "conv_moments")
    return found


SMALL = Normed(batch=1, channels=64, outputs=72, size=(9, 16), taps=1)
"""Of 144 pixels: two parts, and a third of one warp's rows alone; of 72 channels, which are no whole tile."""


@pytest.mark.parametrize(
    ("made", "dtype", "mean", "spec"),
    [
        (SMALL, "bf16", 0.0, {"tile_m": 64, "tile_n": 64}),
        (SMALL, "f16", 40.0, {"tile_m": 128, "tile_n": 64}),  # no row of the last warpgroup has a result
        (
            replace(SMALL, batch=2, outputs=136, size=(8, 10), taps=3),
            "bf16",
            8.0,
            {"tile_m": 64, "tile_n": 256},
        ),
        (
            replace(SMALL, size=(11, 16)),
            "bf16",
            8.0,
            {"tile_m": 64, "tile_n": 64},
        ),  # three warps of the last part
    ],
)
def test_values(made: Normed, dtype: str, mean: float, spec: dict[str, int]) -> None:
    """The moments are those of what is stored, digit by digit, however large the mean is beside the deviation."""
    work = work_of(made, dtype)
    random = np.random.default_rng(made.outputs)
    x = random.standard_normal(work.operands[0].shape) + mean / 8
    w = random.standard_normal(work.operands[1].shape) + mean / 512
    x, w = x.astype(TYPES[dtype]), w.astype(TYPES[dtype])
    scale = random.standard_normal(made.outputs).astype(np.float32)
    found = _run(work, spec, [x, w, scale])
    wide = found["conv"].astype(np.float64)
    exact, variance = wide.mean((0, 2, 3)), wide.var((0, 2, 3))
    inverse = 1 / np.sqrt(variance + 1e-5)
    means = found["reduce_mean0"].reshape(-1)
    np.testing.assert_allclose(means, exact, rtol=1e-6, atol=1e-6 * np.sqrt(variance).max())
    np.testing.assert_allclose(found["rsqrt0"].reshape(-1), inverse, rtol=3e-6)
    np.testing.assert_allclose(found["mul1"], inverse * scale, rtol=3e-6)
    product = _convolved(x, w, made)
    np.testing.assert_allclose(wide, product, rtol=2.0**-8, atol=2e-2)


@pytest.mark.parametrize(
    ("made", "spec"),
    [
        (SMALL, {"tile_m": 128, "tile_n": 64}),
        (replace(SMALL, outputs=136, size=(8, 10), batch=2, taps=3), {"tile_m": 64, "tile_n": 128}),
    ],
)
def test_sums(made: Normed, spec: dict[str, int]) -> None:
    """Of what is stored after a ReLU's gradient, and of its product with what the norm read, from its mean on."""
    work = work_of(made, "bf16", passed_back)
    random = np.random.default_rng(made.outputs)
    arrays = [
        (random.standard_normal(info.shape) + 0.5).astype(TYPES.get(info.dtype, np.float32))
        for info in work.operands
    ]
    found = _run(work, spec, arrays)
    x, w, given, read, mean = arrays
    wide = found["select0"].astype(np.float64)
    product = np.where(given.astype(np.float64) > 0, _convolved(x, w, made), 0)
    np.testing.assert_allclose(wide, product, rtol=2.0**-8, atol=2e-2)
    pixels = made.batch * made.size[0] * made.size[1]
    shift = wide.sum((0, 2, 3))
    scale = (wide * (read.astype(np.float64) - mean.reshape(1, -1, 1, 1))).sum((0, 2, 3))
    wanted = {"reduce_sum0": shift, "mul1": shift / pixels, "reduce_sum1": scale, "mul2": scale / pixels}
    for name, each in wanted.items():
        np.testing.assert_allclose(found[name].reshape(-1), each, rtol=1e-5, atol=1e-4)
    assert len(found) == 5


def _run(work: Workload, spec: dict[str, int], arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    """The results of simulated launches by the ops of the body that give them, by one block that does all tiles."""
    assert KERNEL.legal(work, TARGET) is None
    variant = {"stages": 2, "cluster_m": 1, "cluster_n": 1, "blocks_per_sm": 1, **spec}
    schedule = replace(KERNEL.schedule(work, TARGET), **variant)
    assert KERNEL.schedule_reason(work, TARGET, schedule) is None
    record = KERNEL.record_of(work, TARGET, schedule) | {"grid": integers((1, 1, 1))}
    size = record["workspace_bytes"]
    assert isinstance(size, IntegerAttr)
    infos = (*work.operands, *work.results)
    memory = Memory([max(16, 4 * int(np.prod(info.shape))) for info in infos] + [size.value.data])
    for number, (array, info) in enumerate(zip(arrays, work.operands, strict=True)):
        memory.fill(number, _lying(array, info.strides))
    wgmma_simulator.run(emit(launch_of(work, KERNEL.id, record)), memory)
    seen = [
        _seen(memory, number, info.shape, info.strides, TYPES.get(info.dtype, np.float32))
        for number, info in enumerate(work.results, len(work.operands))
    ]
    assert work.body.last_op is not None
    names = [str(value.owner.attributes["aicf.id"].data) for value in work.body.last_op.operands]
    return dict(zip(names, seen, strict=True))


def _lying(values: np.ndarray, strides: tuple[int, ...]) -> np.ndarray:
    """The elements in the order in which they lie."""
    order = sorted(range(values.ndim), key=lambda dim: (-strides[dim], dim))
    return np.ascontiguousarray(values.transpose(order))


def _seen(memory: Memory, number: int, shape: Any, strides: Any, dtype: Any) -> np.ndarray:
    raw = memory.buffers[number][: int(np.prod(shape)) * np.dtype(dtype).itemsize]
    assert memory.written[number][: raw.size].all()
    flat = raw.view(dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, [step * flat.itemsize for step in strides]).copy()


def _convolved(x: np.ndarray, w: np.ndarray, made: Normed) -> np.ndarray:
    """In float64, with zeros around."""
    low = made.taps // 2
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (low, low), (low, low)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (made.taps, made.taps), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64), optimize=True)


def test_the_order_of_sums_is_told() -> None:
    """Moments and sums come together in orders of their own."""
    moments, sums = (
        str(KERNEL.record(work_of(SMALL, "bf16", build), TARGET)["combination_order"])
        for build in (normed, passed_back)
    )
    assert "4 pixels of a thread in pairs" in moments and "4 pixels of a thread ascending" in sums


def test_refusals() -> None:
    """Pixels that are no whole rows of a warp, or one part; results in vectors of f32; other programs after it."""
    work = work_of(SMALL)
    assert "16 pixels at a time, it has 135" in str(module_of(replace(SMALL, size=(9, 15))))
    assert "its 64 pixels are one part" in str(module_of(replace(SMALL, size=(4, 16))))
    assert "no generated code" in (KERNEL.legal(replace(work, code=None), TARGET) or "")
    x, *rest = work.operands
    row_major = replace(x, strides=(64 * 144, 144, 16, 1))
    assert "not channels-last" in (KERNEL.legal(replace(work, operands=(row_major, *rest)), TARGET) or "")
    assert "a reduction follows" in (ConvWgmmaKernel().legal(work, TARGET) or "")
    assert "need sm_90a" in (KERNEL.legal(work, TargetAttr("cuda", "sm_80")) or "")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (replace(SMALL, size=(9, 15)), "16 pixels at a time, it has 135"),
        (None, "no norm takes statistics of its result"),
    ],
)
def test_a_pinned_kernel_without_moments_to_take(made: Normed | None, why: str) -> None:
    """The policy names it for one convolution: an error says what that one lacks, and which kernels run it."""
    graph = _alone() if made is None else normed(made, "bf16")
    policy = json.dumps({"layouts": {"*": "channels_last"}, "kernels": {"conv": KERNEL.id}})
    with pytest.raises(PolicyError, match=f"it takes moments, and 'conv' has none to take: .*{why}; legal: "):
        grouped(graph.module(), Options("cuda:sm_90a", policy, "", 1), make_context(), lambda _: None)


def _alone() -> Graph:
    g = Graph("alone")
    x, w = g.input("x", (1, 64, 9, 16), "bf16"), g.param("w", (72, 64, 1, 1), "bf16")
    g.output(g.conv(x, w, strides=[1, 1], low=[0, 0], high=[0, 0], name="conv"), "y")
    return g


def test_a_split_of_k_takes_no_moments() -> None:
    """Its blocks finish rows of a tile each."""
    work = work_of(replace(SMALL, channels=512))
    schedule = replace(
        KERNEL.schedule(work, TARGET), split_k=4, cluster_m=1, cluster_n=1, tile_m=64, tile_n=64
    )
    assert "one result" in (KERNEL.schedule_reason(work, TARGET, schedule) or "")


LAYER = Normed(batch=32, channels=64, outputs=256, size=(56, 56), taps=1)


def test_what_it_costs() -> None:
    """More than the convolution; less than that and another reading of what it stores."""
    work = work_of(LAYER)
    alone = replace(
        work, kind="conv", operands=work.operands[:2], results=work.results[:1], code=_plain(work)
    )
    product = ConvWgmmaKernel().cost_us(alone, TARGET)
    read = 2 * 32 * 56 * 56 * 256 / 3.35e6
    assert product < KERNEL.cost_us(work, TARGET) < product + read


def _plain(work: Workload) -> Any:
    from aicf.backends.cuda.families.conv.wgmma.moments import Statistics, statistics_of

    assert work.code is not None
    parts = statistics_of(work.code)
    assert isinstance(parts, Statistics) and parts.stored == 0
    return parts.epilogue


def test_machine_code() -> None:
    """Statistics come of what is read for whole lines, with another operand in this program, which holds the most in
    registers; nothing spills, nothing is atomic."""
    work = work_of(LAYER, "bf16", passed_back)
    parts = compiled(emit(launch_of(work, KERNEL.id, KERNEL.record(work, TARGET))))
    assert len(parts) == 2
    for _, cubin in parts:
        names = instructions(cubin)
        assert cubin.stack_bytes == 0 and not starting(names, SPILLS + ATOMICS)
    names = instructions(parts[0][1])
    assert starting(names, ("HGMMA",)) and starting(names, ("SHFL.BFLY",))
    assert names.count("LDS.128") == names.count("STG.E.128") * 2
