"""Convolutions out of bulk tensor copies, without a GPU: what is legal and why not, what copies read, compiled code."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.families.conv.pack.kernel import WINDOW_WEIGHT, channels_innermost
from aicf.backends.cuda.families.conv.problem import ConvProblem
from aicf.backends.cuda.families.conv.wgmma.codegen import emit
from aicf.backends.cuda.families.conv.wgmma.kernel import ConvWgmmaKernel, problem_reason
from aicf.backends.cuda.runtime.device_program import TensorMap, Windows
from aicf.compilation.record import Options
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import LayoutAttr, TargetAttr
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import workload_of
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.tuning.candidates import grouped
from tests.backends.cuda import wgmma_simulator
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.integer_simulator import simulated
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.gpu.convolutions import Convolution, convolutions, drawn_channels_last, image_layer
from tests.gpu.programs import random_arrays
from tests.support.random_graphs import run_program

KERNEL = ConvWgmmaKernel()
TARGET = TargetAttr("cuda", "sm_90a")


_MODULES: list[ModuleOp] = []
"""Works hold parts of them, and go with them."""


def work_of(made: Convolution, dtype: str = "f16") -> Workload:
    """What the kernel is asked to run: the group that holds the convolution."""
    module = grouped(
        convolutions(dtype, [made]).module(),
        Options("cuda:sm_90a", "", "", 1),
        make_context(),
        lambda _: None,
    )
    _MODULES.append(module)
    works = [workload_of(op).work for op in module.walk() if isinstance(op, GroupOp)]
    (found,) = (work for work in works if work.kind == "conv")
    return found


def launched(work: Workload, **changes: Any) -> KernelLaunch:
    """Its launch, by the record that is predicted to take least, or by that of a spec with changes."""
    record = KERNEL.record(work, TARGET)
    if changes:
        record = KERNEL.record_of(work, TARGET, replace(KERNEL.schedule(work, TARGET), **changes))
    (found,) = emit(_packed(work, record))
    assert isinstance(found, KernelLaunch)
    return found


def _packed(work: Workload, record: dict[str, Attribute]) -> Any:
    """The instruction, its weight in the layout that the record asks for."""
    launch = launch_of(work, KERNEL.id, record)
    layouts = record.get("layouts")
    if not isinstance(layouts, ArrayAttr):
        return launch
    ins = [
        replace(ref, layout=layout) if isinstance(layout, LayoutAttr) else ref
        for ref, layout in zip(launch.ins, layouts.data, strict=True)
    ]
    return replace(launch, ins=tuple(ins))


@cache
def _refused() -> dict[str, tuple[Workload, str]]:
    work = work_of(image_layer(2, 64, 64, 14))
    x, w, *rest = work.operands
    row_major = replace(x, strides=(64 * 14 * 14, 14 * 14, 14, 1))
    narrow = replace(x, strides=(60 * 14 * 14, 1, 60 * 14, 60))
    return {
        "row-major": (replace(work, operands=(row_major, w, *rest)), "its operand is not channels-last"),
        "strides": (replace(work, operands=(narrow, w, *rest)), "strides of whole 16 bytes"),
        "offset": (replace(work, operands=(replace(x, offset=4), w, *rest)), "strides of whole 16 bytes"),
        "f32": (replace(work, operands=(replace(x, dtype="f32"), w, *rest)), "f16 and bf16"),
        "mixed": (
            replace(work, operands=(x, replace(w, dtype="bf16"), *rest)),
            "its operand is f16 and its weight bf16",
        ),
        "changing weight": (
            replace(work, operands=(x, replace(w, role="temp"), *rest)),
            "its weight has others innermost",
        ),
    }


@pytest.mark.parametrize("what", ["row-major", "strides", "offset", "f32", "mixed", "changing weight"])
def test_what_it_refuses_has_a_reason(what: str) -> None:
    work, reason = _refused()[what]
    assert reason in (KERNEL.legal(work, TARGET) or "")


def _square(size: int, taps: int, **changes: Any) -> ConvProblem:
    """A convolution along two dimensions of 8 channels, with nothing around, and fields that are other."""
    count = size - taps + 1
    found = ConvProblem(
        "f16",
        batch=1,
        groups=1,
        channels=8,
        outputs=8,
        sizes=(size, size),
        counts=(count, count),
        taps=(taps, taps),
        strides=(1, 1),
        dilations=(1, 1),
        low=(0, 0),
        x_strides=(8 * size * size, 1, 8 * size, 8),
        weight_strides=channels_innermost((8, 8, taps, taps)),
        x_alignment=16,
        weight_alignment=16,
    )
    return replace(found, **changes)


LIMITS: dict[str, tuple[ConvProblem, str | None]] = {
    "reaches 255": (_square(300, 2, dilations=(127, 1), counts=(173, 299)), None),
    "corner too far": (_square(400, 2, dilations=(129, 1), counts=(271, 399)), "too long"),
    "most zeros": (_square(300, 2, low=(128, 0), counts=(427, 299)), None),
    "too many zeros": (_square(300, 2, low=(129, 0), counts=(428, 299)), "too long"),
    "most apart": (_square(300, 2, strides=(8, 1), counts=(38, 299)), None),
    "too far apart": (_square(300, 2, strides=(9, 1), counts=(34, 299)), "9 apart"),
    "groups": (_square(20, 3, groups=2, channels=4, outputs=4), "2 groups"),
}


@pytest.mark.parametrize("what", LIMITS)
def test_windows_that_a_descriptor_has_no_bits_for(what: str) -> None:
    problem, reason = LIMITS[what]
    found = problem_reason(problem)
    assert found is None if reason is None else reason in (found or "")


def test_a_copy_goes_along_the_windows() -> None:
    """Corners are those of the first and last window, steps the strides: innermost dimension first."""
    drawn = Convolution(
        *(2, 72, 64, 1),
        *((13, 9), (3, 2), (2, 1), (1, 3), (1, 4), (0, 2)),
        operand_last=True,
        result_last=True,
    )
    pixels, weight = (a for a in launched(work_of(drawn)).arguments if isinstance(a, TensorMap))
    assert pixels.sizes == (72, 9, 13, 2)
    assert pixels.strides == (144, 144 * 9, 144 * 9 * 13)
    # Along the columns 9 + 4 + 2 elements hold 12 windows that reach 3; the last begins 1 before the last element.
    # Along the rows 13 + 1 hold 6 windows 2 apart that reach 2: the last begins at 10 - 1.
    assert pixels.windows == Windows((-4, -1), (-1, -3), (1, 2))
    assert weight.sizes == (72, 6, 64) and weight.windows is None
    assert weight.strides == (144, 144 * 6)


def test_single_pixels_are_a_matrix() -> None:
    """No windows: the rows of a product, whatever the dimensions they are of."""
    pixels, weight = (
        a for a in launched(work_of(image_layer(2, 64, 128, 14, 1))).arguments if isinstance(a, TensorMap)
    )
    assert pixels.windows is None and pixels.sizes == (64, 2 * 14 * 14)
    assert weight.sizes == (64, 1, 128)


def test_a_weight_that_stays_is_packed_ahead() -> None:
    """One that lies channels-last is read where it lies."""
    work = work_of(image_layer(2, 64, 64, 14))
    layouts = KERNEL.record(work, TARGET)["layouts"]
    assert isinstance(layouts, ArrayAttr)
    (layout,) = (entry for entry in layouts.data if isinstance(entry, LayoutAttr))
    assert layout.layout.data == WINDOW_WEIGHT and layouts.data[1] == layout
    x, w, *rest = work.operands
    turned = replace(w, strides=channels_innermost(w.shape), role="temp")
    assert "layouts" not in KERNEL.record(replace(work, operands=(x, turned, *rest)), TARGET)


def across(made: Convolution, last: bool = False) -> Convolution:
    """Its weight given at every run with outputs innermost, as that of a data gradient lies."""
    return replace(made, weight_across=True, weight_last=last, is_param=False)


@pytest.mark.parametrize("last", [False, True])
def test_a_weight_with_outputs_innermost_is_read_where_it_lies(last: bool) -> None:
    """Copies of 64 neighbouring outputs, for as many channels as a stage has; windows between both or outside."""
    work = work_of(across(image_layer(2, 72, 128, 14), last))
    assert KERNEL.legal(work, TARGET) is None and "layouts" not in KERNEL.record(work, TARGET)
    _, weight = (a for a in launched(work).arguments if isinstance(a, TensorMap))
    assert weight.sizes == (128, 9, 72) and weight.box == (64, 1, 64)
    assert weight.strides == ((2 * 128 * 72, 2 * 128) if last else (2 * 128, 2 * 128 * 9))
    work = work_of(across(image_layer(2, 64, 60, 14)))
    assert "strides of whole 16 bytes, its weight has" in (KERNEL.legal(work, TARGET) or "")


@pytest.mark.parametrize("seed", range(3))
def test_simulated_threads_convolve_with_a_weight_that_lies_across(seed: int) -> None:
    """Any windows, strides and numbers of channels, against float64."""
    made = across(drawn_channels_last(random.Random(seed)), last=seed % 2 > 0)
    made = replace(made, outputs=(72, 16, 136)[seed], batch=1, after="bias")
    module = convolutions("bf16", [made]).module()
    arrays = random_arrays(module, f"across {seed}")
    (wanted,) = run_program(module, arrays).values()
    policy = json.dumps({"kernels": {"conv_c0": KERNEL.id}})
    AicfInferencePass("cuda:sm_90a", policy=policy).apply(make_context(), module)
    (found,) = simulated(module, arrays, wgmma_simulator.run).values()
    scale = np.abs(wanted) + np.sqrt(np.mean(wanted**2))
    assert np.max(np.abs(found.astype(np.float64) - wanted) / scale) < 1e-2


SPECS: dict[str, dict[str, Any]] = {
    "alone": {"tile_m": 128, "tile_n": 128, "stages": 4, "cluster_m": 1, "cluster_n": 1},
    "shared": {"tile_m": 128, "tile_n": 128, "stages": 4, "cluster_m": 2, "cluster_n": 1},
    "split": {"tile_m": 64, "tile_n": 64, "stages": 4, "cluster_m": 1, "cluster_n": 1, "split_k": 4},
}


def test_machine_code_of_a_weight_that_lies_across() -> None:
    """The multiplication reads it transposed; nothing spills."""
    made = across(image_layer(2, 128, 256, 9, 1, after="residual"))
    ((_, cubin),) = compiled([launched(work_of(made), blocks_per_sm=1, **SPECS["shared"])])
    names = instructions(cubin)
    assert starting(names, ("UTMALDG.3D.MULTICAST",)) and starting(names, ("HGMMA",))
    assert cubin.stack_bytes == 0 and not starting(names, SPILLS)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("spec", SPECS)
def test_machine_code(spec: str, dims: int) -> None:
    """Windows come by bulk copies of their own mode, products are the warpgroups', nothing spills."""
    one = (1,) * dims
    drawn = Convolution(
        *(2, 128, 256, 1),
        *((9,) * dims, (3,) * dims, one, one, one, one),
        operand_last=True,
        result_last=True,
        after="residual",
    )
    ((_, cubin),) = compiled([launched(work_of(drawn), blocks_per_sm=1, **SPECS[spec])])
    names = instructions(cubin)
    shared = ".MULTICAST" if spec == "shared" else ""
    assert starting(names, (f"UTMALDG.{dims + 2}D.IM2COL",)), sorted({n for n in names if "UTMA" in n})
    assert starting(names, (f"UTMALDG.3D{shared}",)) and starting(names, ("HGMMA",))
    assert cubin.stack_bytes == 0 and not starting(names, SPILLS)
