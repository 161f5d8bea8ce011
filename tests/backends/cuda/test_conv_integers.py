"""`cuda.conv_mma_int8` and `cuda.conv_wgmma_int8` without a GPU: what is legal and why not, what records hold, what
compiled code contains, and what simulated threads compute."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, UnitAttr

from aicf.backends.base import Launch
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.families.conv.mma import kernel as mma
from aicf.backends.cuda.families.conv.mma.kernel import ConvMmaIntegerKernel
from aicf.backends.cuda.families.conv.tiled_kernel import problem_of_work
from aicf.backends.cuda.families.conv.wgmma.kernel import ConvWgmmaIntegerKernel
from aicf.backends.cuda.families.gemm.mma.kernel import MmaSpec
from aicf.backends.cuda.families.gemm.wgmma import kernel as wgmma
from aicf.backends.cuda.families.gemm.wgmma.schedule import Spec
from aicf.compilation.record import Options
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import TargetAttr
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import workload_of
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import code_units, read_module
from aicf.tuning.candidates import grouped
from tests.backends.cuda import wgmma_simulator
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.integer_simulator import Run, run, simulated
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.gpu.convolutions import Convolution, drawn, drawn_channels_last, image_layer
from tests.gpu.integers import AFTER_CONVOLUTION, TYPES, integer_convolution, whole_range
from tests.gpu.programs import Array
from tests.support.random_graphs import run_program

TARGET = TargetAttr("cuda", "sm_90a")
MMA, WGMMA = ConvMmaIntegerKernel(), ConvWgmmaIntegerKernel()
_MODULES: list[ModuleOp] = []
"""Works hold parts of them, and go with them."""


def work_of(made: Convolution, types: tuple[str, str] = ("u8", "i8"), around: int = 0) -> Workload:
    """What kernels are asked to run: the group that holds the convolution."""
    module = integer_convolution(types, made, padding_value=around).module()
    module = grouped(module, Options("cuda:sm_90a", "", "", 1), make_context(), lambda _: None)
    _MODULES.append(module)
    works = [workload_of(op).work for op in module.walk() if isinstance(op, GroupOp)]
    (found,) = (work for work in works if work.kind == "conv")
    return found


LAYER = image_layer(2, 64, 64, 14, after="nothing")
STEM = image_layer(1, 3, 64, 56, 7, 2, last=False, after="nothing")


# What is legal


@pytest.mark.parametrize("types", TYPES)
def test_all_pairs_of_types_are_legal(types: tuple[str, str]) -> None:
    for made in (LAYER, STEM):
        assert MMA.legal(work_of(made, types, 5), TARGET) is None
    assert WGMMA.legal(work_of(LAYER, types), TARGET) is None


def test_bulk_copies_put_zeros_around_the_operand() -> None:
    """Where nothing is padded, what would lie there does not matter."""
    assert "put zeros around the operand, here it is 128" in str(
        WGMMA.legal(work_of(LAYER, around=128), TARGET)
    )
    inside = replace(LAYER, low=(0, 0), high=(0, 0))
    assert WGMMA.legal(work_of(inside, around=128), TARGET) is None
    assert "not channels-last" in str(WGMMA.legal(work_of(STEM), TARGET))
    assert "strides of whole 16 bytes" in str(WGMMA.legal(work_of(image_layer(1, 40, 8, 9)), TARGET))


def test_other_types_are_refused() -> None:
    work = work_of(LAYER)
    x, w, *rest = work.operands
    wide = replace(work, operands=(replace(x, dtype="i16"), w, *rest))
    for kernel in (MMA, WGMMA):
        assert "the operands are i16 and i8" in str(kernel.legal(wide, TARGET))


def test_a_record_holds_what_lies_around() -> None:
    """And the types of both operands; sums in any order are the same."""
    work = work_of(LAYER, around=128)
    record = MMA.record(work, TARGET)
    assert record["padding_value"] == work.attrs["padding_value"]
    assert record["math"] == StringAttr("u8_i8")
    assert "exact" in str(record["combination_order"])
    assert WGMMA.record(work_of(LAYER), TARGET)["math"] == StringAttr("u8_i8")


def test_large_convolutions_are_predicted_to_take_less_than_those_of_halves() -> None:
    large = image_layer(32, 256, 256, 28, after="nothing")
    halves = mma.ConvMmaKernel()
    work = work_of(large)
    x, w, *rest = work.operands
    half = replace(work, operands=(replace(x, dtype="f16"), replace(w, dtype="f16"), *rest))
    assert MMA.cost_us(work, TARGET) < 0.7 * halves.cost_us(half, TARGET)


# What compiled code contains


def emitted(made: Convolution, kernel: Any, spec: Any, around: int = 0) -> list[str]:
    """The instructions of a convolution's kernel."""
    work = work_of(made, around=around)
    record = kernel.record_of(work, TARGET, spec)
    launch = launch_of(work, kernel.id, record)
    if isinstance(layouts := record.get("layouts"), ArrayAttr):
        pairs = zip(launch.ins, layouts.data, strict=True)
        ins = (ref if isinstance(layout, UnitAttr) else replace(ref, layout=layout) for ref, layout in pairs)
        launch = replace(launch, ins=tuple(ins))
    ((_, cubin),) = compiled(emitter(kernel.id)(launch))
    names = instructions(cubin)
    assert cubin.stack_bytes == 0 and not starting(names, SPILLS)
    return names


@pytest.mark.parametrize("around", [0, 128])
def test_windows_of_bytes_are_copied_asynchronously(around: int) -> None:
    """What lies around is stored where no copy is started."""
    spec = MmaSpec(128, 64, 64, 4, 2, 1, 3)
    names = emitted(image_layer(8, 64, 64, 56, after="nothing"), MMA, spec, around)
    assert sum(name.startswith("IMMA.16832.U8.S8") for name in names) == 2 * 2 * 4
    assert sum(name.startswith("LDGSTS") for name in names) >= 2 * (2 + 1)


def test_single_bytes_pass_through_registers() -> None:
    spec = MmaSpec(64, 32, 64, 2, 2, 1, 2)
    names = emitted(STEM, MMA, spec, 3)
    assert any(name.startswith("IMMA.16832.U8.S8") for name in names)
    assert sum(name.startswith("LDG.E.U8") for name in names) >= 7


def test_warpgroups_multiply_windows_of_bytes() -> None:
    names = emitted(image_layer(8, 128, 128, 28, after="nothing"), WGMMA, Spec(128, 128, 4))
    assert {name for name in names if "GMMA" in name} == {"IGMMA.64x128x32.U8.S8"}
    assert any(name.startswith("UTMALDG") for name in names)


# What simulated threads compute


def assert_convolved(graph: Graph, kernel: str, name: str, how: Run = run) -> None:
    """Runs a program on simulated threads, its convolution by a kernel, and holds it to the semantics."""
    program = whole_range(graph, name)
    wanted: Array = run_program(program.module, program.arrays, "typed")["y"]
    policy = json.dumps({"kernels": {"conv": kernel}})
    AicfInferencePass("cuda:sm_90a", policy=policy).apply(make_context(), program.module)
    assert kernel in {launch.kernel for launch in launches_of(program.module)}
    found = simulated(program.module, program.arrays, how)["y"]
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-5, atol=1e-3)
    else:
        np.testing.assert_array_equal(found, wanted)


def launches_of(module: ModuleOp) -> list[Launch]:
    """The instructions of the module's one program."""
    (plan,) = read_module(module).programs
    return [launch for unit in code_units(module) if unit.entry == plan.entry for launch in unit.launches]


def _pick_any_spec(seed: int, patch: pytest.MonkeyPatch) -> None:
    """Lets the family prefer a spec that `seed` draws."""
    ranked, source = mma.ranked_specs, random.Random(seed)

    @cache
    def drawn_first(*arguments: Any) -> tuple[tuple[float, MmaSpec], ...]:
        found = ranked(*arguments)
        first = source.choice(found)
        return first, *(each for each in found if each is not first)

    patch.setattr(mma, "ranked_specs", drawn_first)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(16))
def test_any_spec_convolves_anything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random convolutions by random specs, with anything around: no access reaches out of an operand."""
    _pick_any_spec(seed, monkeypatch)
    source = random.Random(900 + seed)
    made = drawn(source, 100_000)
    while made.groups > 1 and made.channels == made.groups:  # of single channels: no kernel of tensor cores
        made = drawn(source, 100_000)
    types = TYPES[seed % 4]
    around = source.choice((0, 7, 255) if types[0] == "u8" else (0, -128, 127))
    graph = integer_convolution(types, made, source.choice(sorted(AFTER_CONVOLUTION)), around)
    assert_convolved(graph, MMA.id, f"convolution {seed}")


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(8))
def test_bulk_copies_of_windows_convolve_as_the_semantics_say(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random channels-last convolutions by one tile or by blocks that share."""
    specs = (Spec(64, 64, 2), Spec(64, 64, 2, cluster_n=2), Spec(128, 64, 2), Spec(64, 64, 3, split_k=2))
    source = random.Random(300 + seed)
    spec = specs[seed % 4]
    made = replace(drawn_channels_last(source), channels=16 * source.choice((1, 2, 9)), batch=1)
    if seed % 4 == 3:
        made = replace(made, channels=144)
    monkeypatch.setattr(wgmma, "ranked", lambda task, arch, fixed=False: [spec])
    graph = integer_convolution(TYPES[seed % 4], made, source.choice(sorted(AFTER_CONVOLUTION)))
    assert_convolved(graph, WGMMA.id, f"windows {seed}", wgmma_simulator.run)


def test_channels_of_a_chunk_are_sixteen() -> None:
    assert problem_of_work(work_of(LAYER)).widens
    assert problem_of_work(work_of(LAYER, ("i8", "u8"))).weight_dtype == "u8"
