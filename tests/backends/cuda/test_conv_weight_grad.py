"""`cuda.weight_grad_mma`, `cuda.weight_grad_mma_tf32`, `cuda.weight_grad_simt` and `cuda.weight_grad_wgmma` without a
GPU: what is legal and why not, what records hold, which parts K has, what compiled code contains, and what simulated
threads compute."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from aicf.backends.common.record import RecordError, integer, read_integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.code import Cubin
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.families.conv.pack.kernel import channels_innermost
from aicf.backends.cuda.families.conv.weight_grad import parted_kernel
from aicf.backends.cuda.families.conv.weight_grad.mma.kernel import (
    WeightGradMmaKernel,
    WeightGradMmaTf32Kernel,
)
from aicf.backends.cuda.families.conv.weight_grad.parted_kernel import (
    Parted,
    PartedKernel,
    even_parts,
    part_counts,
)
from aicf.backends.cuda.families.conv.weight_grad.problem import weight_grad_of_work
from aicf.backends.cuda.families.conv.weight_grad.simt.kernel import WeightGradSimtKernel
from aicf.backends.cuda.families.conv.weight_grad.sums import schedule as sums
from aicf.backends.cuda.families.conv.weight_grad.wgmma.kernel import WeightGradWgmmaKernel
from aicf.backends.cuda.families.records import integers
from aicf.backends.cuda.runtime.device_program import TensorMap, Windows
from aicf.backends.cuda.target import ARCHES
from aicf.compilation.record import Options
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import TargetAttr
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import workload_of
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import read_module
from aicf.tuning.candidates import grouped
from tests.backends.cuda import simulator, wgmma_simulator
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.integer_simulator import Run, simulated
from tests.backends.cuda.sass import SPILLS, instructions, opcodes, starting
from tests.backends.cuda.simulator import Memory
from tests.backends.cuda.tile_simulator import names
from tests.backends.cuda.wgmma_programs import contiguous
from tests.gpu.convolutions import Convolution, drawn, drawn_channels_last
from tests.gpu.programs import random_arrays
from tests.gpu.weight_grads import channels_last, layer, several_channels, weight_grads, whole_pieces
from tests.support.random_graphs import run_program

TARGET = TargetAttr("cuda", "sm_90a")
MMA, TF32, SIMT = WeightGradMmaKernel(), WeightGradMmaTf32Kernel(), WeightGradSimtKernel()
WGMMA = WeightGradWgmmaKernel()
Kernel = PartedKernel[Any]

_MODULES: list[ModuleOp] = []
"""Works hold parts of them, and go with them."""


@cache
def work_of(made: Convolution, dtype: str = "f16") -> Workload:
    """What kernels are asked to run: the group that holds the gradient, its result as it is asked to lie."""
    options = Options("cuda:sm_90a", json.dumps({"tf32": True}), "", 1)
    module = grouped(weight_grads(dtype, [made]).module(), options, make_context(), lambda _: None)
    _MODULES.append(module)
    works = [workload_of(op).work for op in module.walk() if isinstance(op, GroupOp)]
    (found,) = (work for work in works if work.kind == "conv_weight_grad")
    (result,) = found.results
    strides = (channels_innermost if made.weight_last else contiguous)(result.shape)
    return replace(found, results=(replace(result, strides=strides),), tf32=dtype == "f32")


LAYER = layer(32, 64, 64, 56)
DEEP = layer(32, 512, 512, 7)
STEM = layer(32, 3, 64, 224, 7, 2)
SINGLE = layer(32, 64, 256, 56, 1)

# What is legal


def test_what_kernels_refuse_has_a_reason() -> None:
    work = work_of(LAYER)
    assert "tensor cores multiply f16 and bf16 here" in str(MMA.legal(work_of(LAYER, "f32"), TARGET))
    assert "only f32 is rounded to TF32" in str(TF32.legal(work, TARGET))
    unrounded = replace(work_of(LAYER, "f32"), tf32=False)
    assert "the policy has not allowed that" in str(TF32.legal(unrounded, TARGET))
    assert "it multiplies f32 and f64" in str(SIMT.legal(work, TARGET))
    x, grad = work.operands
    far = replace(work, operands=(replace(x, strides=(1 << 40, 1, 1 << 29, 64)), grad))
    assert "2 GiB of its operand" in str(MMA.legal(far, TARGET))
    nothing = replace(
        work, operands=(replace(x, shape=(0, *x.shape[1:])), replace(grad, shape=(0, *grad.shape[1:])))
    )
    assert MMA.legal(nothing, TARGET) == "there is nothing to sum"
    each = work_of(replace(LAYER, groups=64))
    assert "it has one input channel a group" in str(MMA.legal(each, TARGET))


def test_what_bulk_copies_do_not_read_has_a_reason() -> None:
    """As convolutions do; and what is passed back is a matrix."""
    work = work_of(LAYER)
    assert "need sm_90a" in str(WGMMA.legal(work, TargetAttr("cuda", "sm_90")))
    assert "it has 2 groups" in str(WGMMA.legal(work_of(replace(LAYER, groups=2)), TARGET))
    assert "its operand is not channels-last" in str(
        WGMMA.legal(work_of(replace(LAYER, operand_last=False)), TARGET)
    )
    row_major = work_of(replace(LAYER, result_last=False))
    assert "what is passed back is not channels-last" in str(WGMMA.legal(row_major, TARGET))
    assert "strides of whole 16 bytes" in str(WGMMA.legal(work_of(STEM), TARGET))
    x, grad = work.operands
    every = replace(grad, strides=(56 * 56 * 128, 1, 56 * 128, 64))
    assert "not evenly apart" in str(WGMMA.legal(replace(work, operands=(x, every)), TARGET))
    assert "windows 9 apart" in str(WGMMA.legal(work_of(layer(2, 8, 8, 40, 3, 9)), TARGET))


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(20))
def test_any_gradient_is_legal(seed: int) -> None:
    """Whatever its sizes, strides, groups and places in memory: on every architecture."""
    made = several_channels(drawn(random.Random(2000 + seed), 1 << 30))
    for kernel, dtype in ((MMA, "bf16"), (TF32, "f32"), (SIMT, "f32"), (SIMT, "f64")):
        work = work_of(made, dtype)
        for arch in ARCHES:
            assert kernel.legal(work, TargetAttr("cuda", arch)) is None


# Parts


def test_no_part_is_empty_and_all_but_the_last_are_equal() -> None:
    for steps in (1, 2, 7, 25, 1568, 6272):
        for tiles, at_a_time in ((1, 132), (5, 264), (96, 132), (500, 132)):
            counts = part_counts(steps, tiles, at_a_time)
            assert counts[0] == 1
            for parts in counts:
                each = -(-steps // parts)
                assert even_parts(steps, parts) == parts and (parts - 1) * each < steps <= parts * each


def test_k_is_shared_where_the_product_is_small() -> None:
    """Enough blocks for all multiprocessors; a large product stores its sums itself."""
    for kernel in (MMA, WGMMA):
        record = kernel.record(work_of(LAYER), TARGET)
        assert read_integer(record, "parts") > 8 and read_integer(record, "workspace_bytes") > 0
        assert "parts of K, added in ascending order" in str(record["combination_order"])
        deep = kernel.record(work_of(DEEP), TARGET)
        assert read_integer(deep, "parts") == 1 and read_integer(deep, "workspace_bytes") == 0


def test_one_part_needs_a_second_launch_where_columns_are_apart_in_the_result() -> None:
    """Empty columns of a stem, and those of a row-major weight."""
    for made in (STEM, replace(LAYER, weight_last=False)):
        work = work_of(made)
        problem, schedule = weight_grad_of_work(work), replace(MMA.schedule(work, TARGET), parts=1)
        assert not MMA.is_direct(problem, schedule)
    work = work_of(LAYER)
    assert MMA.is_direct(weight_grad_of_work(work), replace(MMA.schedule(work, TARGET), parts=1))


# Records


@pytest.mark.parametrize(
    ("kernel", "dtype"), [(MMA, "f16"), (TF32, "f32"), (SIMT, "f32"), (SIMT, "f64"), (WGMMA, "bf16")]
)
def test_a_record_gives_its_decisions_back(kernel: Kernel, dtype: str) -> None:
    """All candidates have the same entries; the first is the record."""
    work = work_of(LAYER, dtype)
    found = kernel.variants(work, TARGET)
    assert found[0] == kernel.record(work, TARGET)
    assert all(record.keys() == found[0].keys() for record in found)
    assert len({str(record) for record in found}) == len(found) > 5
    for record in found[:5]:
        assert kernel.checked_record(work, record, TARGET) == record


@pytest.mark.parametrize(
    ("kernel", "changes", "message"),
    [
        (MMA, {"parts": integer(0)}, "its 'parts' is 0, legal: 1 to 512"),
        (WGMMA, {"parts": integer(511)}, "do not come in 511 parts of which none is empty"),
        (MMA, {"split_k": integer(2)}, "K is shared in parts, not by 2 blocks of a tile"),
        (WGMMA, {"cluster_shape": integers((1, 1, 2))}, "not by 2 blocks of a cluster"),
        (MMA, {"workspace_bytes": integer(4)}, "'workspace_bytes' is 4"),
        (WGMMA, {"sum_grid": integers((1, 1, 1))}, "'sum_grid' is"),
    ],
)
def test_a_record_that_contradicts_itself(
    kernel: Kernel, changes: dict[str, Attribute], message: str
) -> None:
    work = work_of(LAYER)
    with pytest.raises(RecordError, match=message):
        kernel.checked_record(work, {**kernel.record(work, TARGET), **changes}, TARGET)


# Compiled code


def emitted(
    made: Convolution, dtype: str, kernel: Kernel, parts: int | None = None, **changes: object
) -> list[tuple[KernelLaunch, Cubin]]:
    """The launches of a gradient, compiled; `changes` are those of the tile that is predicted to take least."""
    work = work_of(made, dtype)
    assert kernel.legal(work, TARGET) is None
    schedule: Parted[Any] = kernel.schedule(work, TARGET)
    schedule = Parted(replace(schedule.tile, **changes), parts or schedule.parts)
    record = kernel.record_of(work, TARGET, schedule)
    assert kernel.checked_record(work, record, TARGET) == record
    return compiled(emitter(kernel.id)(launch_of(work, kernel.id, record)))


def unspilled(cubin: Cubin) -> dict[str, int]:
    """The instructions of a kernel, none of which spills."""
    found = opcodes(cubin)
    assert cubin.stack_bytes == 0 and not starting(found, SPILLS)
    return found


LARGE = {"bm": 64, "bn": 128, "bk": 64, "warps_m": 2, "warps_n": 4, "warps_k": 1, "stages": 4}


def test_halves_are_transposed_on_the_way_to_tensor_cores() -> None:
    """A thread copies 2 chunks of what is passed back and 4 of windows: in a loop before, and in that over stages."""
    (_, product), (added, add) = emitted(LAYER, "bf16", MMA, **LARGE)
    found = unspilled(product)
    assert found["LDGSTS"] == 2 * (2 + 4) and found["HMMA"] == 4 * 2 * 4 and found["LDSM"] == 4 * (2 + 2)
    assert added.grid == (-(-64 * 576 // 128), 1, 1)
    unspilled(add)


def test_single_elements_are_loaded_before_the_products_of_a_stage() -> None:
    (_, product), _ = emitted(STEM, "bf16", MMA)
    found = unspilled(product)
    assert found["LDG"] > 0 and found["HMMA"] > 0 and found["LDGSTS"] > 0


def test_a_row_major_layer_spills_nothing() -> None:
    for _, cubin in emitted(layer(32, 64, 64, 56, last=False), "f16", MMA):
        unspilled(cubin)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_outside_tensor_cores_products_are_fused_multiply_adds(dtype: str) -> None:
    (_, product), _ = emitted(LAYER, dtype, SIMT)
    found = unspilled(product)
    assert found["FFMA" if dtype == "f32" else "DFMA"] >= 256 and found["LDGSTS"] > 0


def test_f32_is_rounded_on_the_way_to_tensor_cores() -> None:
    (_, product), _ = emitted(LAYER, "f32", TF32)
    found = unspilled(product)
    assert found["HMMA"] > 0 and found["LDS"] > 0 and found["LDGSTS"] > 0


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (1, 2)])
def test_machine_code_of_warpgroups(cluster: tuple[int, int], dims: int) -> None:
    """Windows come by bulk copies of their own mode, products are the warpgroups', nothing spills."""
    one = (1,) * dims
    made = Convolution(*(4, 128, 256, 1), *((12,) * dims, (3,) * dims, one, one, one, one))
    shape = {"tile_m": 128, "tile_n": 128, "stages": 4, "cluster_m": cluster[0], "cluster_n": cluster[1]}
    parts = 2 if dims > 1 else 1
    (_, product), *_ = emitted(channels_last(made), "bf16", WGMMA, parts, **shape)
    unspilled(product)
    names = instructions(product)
    for_b, for_a = (".MULTICAST" if shared > 1 else "" for shared in cluster)
    assert starting(names, (f"UTMALDG.{dims + 2}D.IM2COL{for_b}",)), [n for n in names if "UTMA" in n]
    assert starting(names, (f"UTMALDG.2D{for_a}",)) and starting(names, ("HGMMA",))


def test_maps_end_at_the_last_pixel() -> None:
    """So that what is past it is zeros; single pixels are a matrix."""
    ((launch, _), *_) = emitted(LAYER, "f16", WGMMA)
    passed, windows = (a for a in launch.arguments if isinstance(a, TensorMap))
    assert passed.sizes == (64, 32 * 56 * 56) and passed.box == (64, 64) and passed.windows is None
    assert windows.windows == Windows((-1, -1), (-1, -1), (1, 1)) and windows.box == (64, 64)
    ((launch, _), *_) = emitted(SINGLE, "f16", WGMMA)
    passed, windows = (a for a in launch.arguments if isinstance(a, TensorMap))
    assert passed.sizes == (256, 32 * 56 * 56) and windows.sizes == (64, 32 * 56 * 56)
    assert windows.windows is None


# What simulated threads compute

EXACT = {"f16": 1e-3, "bf16": 8e-3, "f32": 4e-6, "f64": 1e-13}


def _run(launches: Any, memory: Memory) -> None:
    simulator.run(launches, memory, names)


def pick_any(seed: int, patch: pytest.MonkeyPatch) -> None:
    """Lets every kernel prefer what `seed` draws of its tiles and parts."""
    ranked, source = parted_kernel._ranked, random.Random(seed)

    @cache
    def drawn_first(*arguments: Any) -> Any:
        found = ranked(*arguments)
        if not found:
            return found
        first = source.choice(found)
        return first, *(each for each in found if each is not first)

    patch.setattr(parted_kernel, "_ranked", drawn_first)


def assert_summed(made: Convolution, kernel: Kernel, dtype: str, seed: int, run: Run = _run) -> None:
    """Runs a gradient on simulated threads, in the memory that the plan gives: no access reaches out of an operand."""
    module = weight_grads(dtype, [made]).module()
    arrays = random_arrays(module, f"gradient {seed}")
    if kernel is TF32:
        for array in arrays.values():
            array.view(np.uint32)[...] &= np.uint32(0xFFFFE000)
    wanted, typed = run_program(module, arrays), run_program(module, arrays, "typed")
    policy = json.dumps({"kernels": {"grad_c0": kernel.id}, "tf32": kernel is TF32})
    AicfInferencePass("cuda:sm_90a", policy=policy).apply(make_context(), module)
    (plan,) = read_module(module).programs
    assert kernel.id in {launch.kernel for launch in plan.launches}
    ((name, found),) = simulated(module, arrays, run).items()
    exact = wanted[name]
    scale = np.abs(exact) + np.sqrt(np.mean(exact**2)) + np.finfo(np.float64).tiny
    rounded = np.max(np.abs(typed[name].astype(np.float64) - exact) / scale)
    off = np.max(np.abs(found.astype(np.float64) - exact) / scale)
    assert off <= max(EXACT[dtype], 3 * rounded)


CASES = [
    *((MMA, "f16", seed) for seed in range(12)),
    *((MMA, "bf16", seed) for seed in range(12, 24)),
    *((TF32, "f32", seed) for seed in range(24, 36)),
    *((SIMT, ("f32", "f64")[seed % 2], seed) for seed in range(36, 48)),
]


@pytest.mark.drawn
@pytest.mark.parametrize(("kernel", "dtype", "seed"), CASES)
def test_any_tile_and_parts_sum_anything(
    kernel: Kernel, dtype: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = several_channels(drawn(random.Random(seed), 150_000))
    pick_any(seed, monkeypatch)
    assert_summed(made, kernel, dtype, seed)


def test_many_parts_are_added_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """In runs of parts, then run by run."""
    made = Convolution(2, 3, 5, 1, (700,), (3,), (1,), (1,), (1,), (1,))
    work = work_of(made)
    problem, columns = weight_grad_of_work(work), MMA.order(weight_grad_of_work(work)).k
    schedules = [schedule for _, schedule in parted_kernel._ranked(MMA, problem, ARCHES["sm_90a"])]
    most = max(schedules, key=lambda schedule: schedule.parts)
    assert most.parts > 32 and sums.sharers(problem, columns, most.parts) > 1
    assert sums.sharers(problem, columns, 1) == sums.sharers(problem, 1 << 20, most.parts) == 1
    record = MMA.record_of(work, TARGET, most)
    assert "runs, each added in ascending order" in str(record["combination_order"])
    monkeypatch.setattr(parted_kernel, "_ranked", lambda *_: ((1.0, most),))
    assert_summed(made, MMA, "f16", 5)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(12))
def test_warpgroups_sum_anything_that_lies_channels_last(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By single blocks and by clusters, in one part and in several."""
    made = whole_pieces(drawn_channels_last(random.Random(seed)))
    made = replace(made, channels=min(made.channels, 72), weight_last=seed % 3 > 0)
    pick_any(seed, monkeypatch)
    assert_summed(made, WGMMA, ("f16", "bf16")[seed % 2], seed, wgmma_simulator.run)
