"""`cuda.gemm_wgmma_int8` without a GPU: what is legal and why not, what compiled code contains, and what simulated
threads compute."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, StringAttr

from aicf.backends.base import Launch
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.gemm.wgmma import kernel as wgmma
from aicf.backends.cuda.families.gemm.wgmma.codegen import emit
from aicf.backends.cuda.families.gemm.wgmma.kernel import WgmmaIntegerKernel, WgmmaKernel
from aicf.backends.cuda.families.gemm.wgmma.schedule import Spec, spec_reason
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_types import TargetAttr
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import code_units, read_module
from tests.backends.cuda import wgmma_simulator
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.integer_simulator import simulated
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.test_mma_integers import integers
from tests.backends.cuda.wgmma_programs import work
from tests.gpu.integers import TYPES, integer_product, whole_range
from tests.gpu.programs import Array
from tests.support.random_graphs import run_program

TARGET = TargetAttr("cuda", "sm_90a")
KERNEL = WgmmaIntegerKernel()


@pytest.mark.parametrize("types", TYPES)
def test_all_pairs_of_types_are_legal(types: tuple[str, str]) -> None:
    assert KERNEL.legal(integers(100, 72, 144, types), TARGET) is None
    assert KERNEL.record(integers(64, 64, 64, types), TARGET)["math"] == StringAttr("_".join(types))


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (work(64, 64, 64, dtype="f16"), "it multiplies i8 and u8, the operands are f16 and f16"),
        (integers(64, 64, 64, transpose_b=False, b_role="temp"), "B lies along N"),
        (integers(64, 64, 64, transpose_a=True), "A lies along M"),
        (integers(64, 64, 72), "strides of whole 16 bytes, A has [72] elements"),
        (integers(64, 64, 64, result="i64"), "in i32, its sums are i64"),
    ],
)
def test_legality_says_why_not(job: Workload, reason: str) -> None:
    assert reason in str(KERNEL.legal(job, TARGET))
    assert "need sm_90a" in str(KERNEL.legal(job, TargetAttr("cuda", "sm_90")))


def test_large_products_are_predicted_to_take_half_the_time_of_halves() -> None:
    halves = WgmmaKernel().cost_us(work(8192, 8192, 8192, dtype="f16"), TARGET)
    assert 0.45 < KERNEL.cost_us(integers(8192, 8192, 8192), TARGET) / halves < 0.6


def product_of(module: ModuleOp) -> Launch:
    """The instruction of the module's one program that multiplies."""
    (plan,) = read_module(module).programs
    (unit,) = (unit for unit in code_units(module) if unit.entry == plan.entry)
    (found,) = (launch for launch in unit.launches if launch.kernel == KERNEL.id)
    return found


# What compiled code contains

SPECS = (
    Spec(128, 256, 4),
    Spec(128, 192, 4, 2, 1),
    Spec(128, 128, 4, 1, 2),
    Spec(64, 64, 4, blocks_per_sm=2),
    Spec(64, 128, 4, split_k=4),
)


@pytest.mark.parametrize(("types", "spec"), [*zip(TYPES, SPECS, strict=False), (TYPES[1], SPECS[4])])
def test_warpgroups_multiply_32_integers_at_a_time(types: tuple[str, str], spec: Spec) -> None:
    job = integers(1024, 1536, 4096, types)
    ((_, cubin),) = compiled(emit(launch_of(job, KERNEL.id, KERNEL.record_of(job, TARGET, spec))))
    names = instructions(cubin)
    a, b = (each.replace("i", "s").upper() for each in types)
    products = [name for name in names if "GMMA" in name]
    assert len(products) >= 4 and set(products) == {f"IGMMA.64x{spec.tile_n}x32.{a}.{b}"}
    assert cubin.stack_bytes == 0 and not starting(names, SPILLS)


@pytest.mark.parametrize("after", ["relu", "gelu", "halves", "i8", "rows"])
def test_epilogues_compile_without_spills(after: str) -> None:
    """Of the widest tile, whose threads hold 128 sums."""
    module = integer_product(("u8", "i8"), 1024, 1024, 1024, after).module()
    policy = {"kernels": dict.fromkeys(("gemm", "gemm_epilogue"), KERNEL.id)}
    AicfInferencePass("cuda:sm_90a", policy=json.dumps(policy)).apply(make_context(), module)
    (found,) = compiled(emit(product_of(module)))
    assert found[1].stack_bytes == 0 and not starting(instructions(found[1]), SPILLS)


# What simulated threads compute


@pytest.mark.parametrize(
    ("sizes", "after", "spec"),
    [
        ((70, 72, 144), "sums", Spec(64, 64, 2)),
        ((130, 69, 256), "sums", Spec(128, 128, 2)),
        ((200, 96, 272), "i8", Spec(128, 64, 2)),
        ((100, 160, 128), "u8", Spec(64, 128, 2)),
        ((100, 70, 128), "u8", Spec(64, 128, 2)),
        ((65, 64, 640), "relu", Spec(64, 64, 4, split_k=2)),
        ((65, 72, 896), "i8", Spec(64, 64, 4, split_k=4)),
        ((65, 72, 640), "sums", Spec(64, 64, 4, split_k=2)),
        ((150, 128, 192), "rows", Spec(64, 64, 2, cluster_m=2)),
        ((64, 192, 160), "halves", Spec(64, 64, 2, cluster_n=2)),
        ((64, 128, 160), "gelu", Spec(64, 128, 2)),
    ],
)
def test_simulated_threads_multiply_as_the_semantics_say(
    sizes: tuple[int, int, int], after: str, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of the whole range; tiles, clusters, splits and results of every kind, and weights that are packed."""
    monkeypatch.setattr(wgmma, "ranked", lambda task, arch, fixed=False: [spec])
    types = TYPES[sum(sizes) % 4]
    graph = integer_product(types, *sizes, after, transpose_b=spec.cluster_n == 1)
    program = whole_range(graph, f"wgmma {sizes} {after}")
    wanted: dict[str, Array] = run_program(program.module, program.arrays, "typed")
    policy = {"kernels": dict.fromkeys(("gemm", "gemm_epilogue"), KERNEL.id)}
    AicfInferencePass("cuda:sm_90a", policy=json.dumps(policy)).apply(make_context(), program.module)
    assert emit(product_of(program.module))
    found = simulated(program.module, program.arrays, wgmma_simulator.run)["y"]
    if found.dtype.kind == "f":
        exact = wanted["y"].astype(np.float64)
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=2e-3, atol=1e-3)
    else:
        np.testing.assert_array_equal(found, wanted["y"])


def test_specs_that_do_not_fit_say_so() -> None:
    task = KERNEL.task(integers(64, 64, 64))
    assert "too short" in str(spec_reason(Spec(64, 64, 2, split_k=8), task, ARCHES["sm_90a"]))
    assert KERNEL.legal(replace(integers(64, 64, 64), batch_invariant=True), TARGET) is None
