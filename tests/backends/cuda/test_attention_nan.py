"""Attention whose probabilities are 0 where they would be NaN, as PyTorch exports it: the text of the kernels on a
simulated GPU, against float64 NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import BoolAttr

from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import part, registers, splice, stage, unrolled
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.attention.decode import codegen as attention_step_code
from aicf.backends.cuda.families.attention.decode.kernel import AttentionStepKernel
from aicf.backends.cuda.families.attention.decode.kernel import Spec as StepSpec
from aicf.backends.cuda.families.attention.simt import codegen as attention_simt_code
from aicf.backends.cuda.families.attention.simt.kernel import SimtAttentionKernel
from aicf.backends.cuda.families.attention.tensor import codegen as attention_code
from aicf.backends.cuda.families.attention.tensor.kernel import AttentionKernel
from aicf.backends.cuda.families.attention.tensor.schedule import AttentionSpec
from aicf.backends.cuda.families.attention.wgmma import codegen as attention_wgmma_code
from aicf.backends.cuda.families.attention.wgmma import template as attention_wgmma
from aicf.backends.cuda.families.attention.wgmma.kernel import Spec as WgmmaSpec
from aicf.backends.cuda.families.attention.wgmma.kernel import WgmmaAttentionKernel
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda.attention_simulator import ARITHMETIC, run_attention
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.simulator import run_cluster
from tests.backends.cuda.test_attention import attention
from tests.support.record_checks import record_reason

Array = NDArray[Any]
TARGET = TargetAttr("cuda", "sm_90a", {})
SIMT, KERNEL, STEP, WGMMA = (
    SimtAttentionKernel(),
    AttentionKernel(),
    AttentionStepKernel(),
    WgmmaAttentionKernel(),
)
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
WITHIN = {"f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}
SCALE = 0.25


def given(rows: int, keys: int, size: int, dtype: str) -> list[OperandInfo]:
    """Queries, keys, values and result of one head."""
    shapes = ((1, rows, size), (1, keys, size), (1, keys, size), (1, rows, size))
    return [OperandInfo("temp", shape, dtype, (shape[1] * size, size, 1)) for shape in shapes]


def guarded(rows: int, keys: int, size: int, dtype: str, mask: bool, past: int | None = None) -> Workload:
    """The attention that gives zeros; a mask is f32 and has a row for each query."""
    q, k, v, y = given(rows, keys, size, dtype)
    masks = [OperandInfo("temp", (rows, keys), "f32", (keys, 1))] if mask else []
    made = attention([q, k, v, *masks], y, SCALE, past)
    return replace(made, attrs={**made.attrs, "nan_as_zero": BoolAttr.from_bool(True)})


def random_operands(work: Workload, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    found = [random.standard_normal(info.shape).astype(DTYPES[info.dtype]) for info in work.operands]
    if len(found) > 3:
        found[3][random.random(found[3].shape) < 0.3] = -np.inf
        found[3][-1] = -np.inf
    return found


def expected(ins: Sequence[Array], past: int | None, seen: int) -> Array:
    """By the definition, keys after the first `seen` left out: no kernel visits those that no query sees."""
    q, k, v = (each.astype(np.float64) for each in ins[:3])
    k, v = k[:, :seen], v[:, :seen]
    with np.errstate(invalid="ignore"):
        scores = q @ np.swapaxes(k, -1, -2) * SCALE
        if len(ins) > 3:
            scores = scores + ins[3].astype(np.float64)[:, :seen]
        if past is not None:
            rows, keys = scores.shape[-2:]
            hidden = np.arange(keys) > np.arange(rows)[:, None] + past
            scores = np.where(hidden, -np.inf, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)
        return np.where(np.isnan(weights), 0.0, weights) @ v


Variant = Callable[[Workload], KernelLaunch]


def simt(work: Workload) -> KernelLaunch:
    (made,) = attention_simt_code.emit(launch_of(work, SIMT.id, SIMT.record(work, TARGET)))
    return made


def tensor_cores(spec: AttentionSpec) -> Variant:
    def made(work: Workload) -> KernelLaunch:
        (launch,) = attention_code.emit(launch_of(work, KERNEL.id, KERNEL.record_of(work, TARGET, spec)))
        return launch

    return made


def step(spec: StepSpec) -> Variant:
    def made(work: Workload) -> KernelLaunch:
        (launch,) = attention_step_code.emit(launch_of(work, STEP.id, STEP.record_of(work, TARGET, spec)))
        return launch

    return made


VARIANTS: Mapping[str, tuple[Variant, Callable[[bool], Workload]]] = {
    "simt": (simt, lambda mask: guarded(7, 40, 5, "f32", mask)),
    "simt-causal": (simt, lambda mask: guarded(18, 45, 4, "bf16", mask, 20)),
    "one-tile": (tensor_cores(AttentionSpec(16, 32, 1, 1, 1)), lambda mask: guarded(9, 27, 16, "f16", mask)),
    "tiles": (tensor_cores(AttentionSpec(16, 16, 2, 1, 1)), lambda mask: guarded(9, 41, 16, "bf16", mask)),
    "tiles-causal": (
        tensor_cores(AttentionSpec(16, 16, 2, 1, 1)),
        lambda mask: guarded(9, 41, 16, "f16", mask, 22),
    ),
    "warps": (tensor_cores(AttentionSpec(16, 32, 2, 1, 2)), lambda mask: guarded(9, 41, 16, "f16", mask)),
    "step": (step(StepSpec(1, 2)), lambda mask: guarded(1, 37, 32, "f16", mask)),
    "step-blocks": (step(StepSpec(2, 2)), lambda mask: guarded(1, 70, 32, "bf16", mask)),
}
"""A variant of a kernel, and work for it without a mask or with one."""


def check(variant: str, mask: bool, change: Callable[[list[Array]], None]) -> Array:
    """Runs a variant on random operands that `change` edits; gives its result."""
    launch, make = VARIANTS[variant]
    work = make(mask)
    ins = random_operands(work)
    change(ins)
    result = work.results[0]
    found = run_attention(launch(work), ins, np.empty(result.shape, DTYPES[result.dtype])).astype(np.float64)
    past = work.attrs["past"].value.data if work.attrs["causal"] == BoolAttr.from_bool(True) else None  # type: ignore[attr-defined]
    seen = work.operands[1].shape[1] if past is None else result.shape[1] + past
    wanted = expected(ins, past, seen)
    np.testing.assert_allclose(found, wanted, WITHIN[result.dtype], WITHIN[result.dtype])
    return found


@pytest.mark.parametrize("mask", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_without_a_key_are_zeros(variant: str, mask: bool) -> None:
    """The last row of the mask hides every key; without it no row is 0."""
    found = check(variant, mask, lambda ins: None)
    assert (found[0, -1] == 0).all() == mask


def put(operand: int, row: int, number: float) -> Callable[[list[Array]], None]:
    def change(ins: list[Array]) -> None:
        ins[operand][0, row, 1] = number

    return change


@pytest.mark.parametrize(
    ("number", "mask"), [(np.nan, False), (np.nan, True), (np.inf, False), (-np.inf, True)]
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_no_number_makes_zeros_and_stays_in_values(variant: str, number: float, mask: bool) -> None:
    """A query that is no number hides its row, a key its column; zeros times a value that is none are NaN."""
    for operand, row in ((0, 0), (1, 3), (1, 20), (2, 2)):
        check(variant, mask, put(operand, row, number))


def test_a_late_number_takes_back_what_was_summed_before() -> None:
    """In the last tile one score is NaN, beside values that are none in the first: zeros, and NaN where those lie."""

    def change(ins: list[Array]) -> None:
        ins[1][0, -1, 0] = np.nan
        ins[2][0, 0, 1] = np.inf

    for variant in ("simt", "tiles", "warps", "step", "step-blocks"):
        found = check(variant, False, change)
        assert np.isnan(found[0, 0]).tolist() == [index == 1 for index in range(found.shape[-1])]


SCORE = WEIGH = NAN_AS_ZERO = EMPTY_AS_ZERO = 0


def weighed(tiles: Any, told: Any) -> None:
    """A template: one warp's softmax over tiles of scores, as `cuda.attention_wgmma` takes it."""
    largest = max_nan if NAN_AS_ZERO else larger  # type: ignore[name-defined]  # noqa: F821, F841
    score = registers(SCORE, f32(0.0))  # type: ignore[name-defined]  # noqa: F821
    top = registers(2, f32(NEGATIVE_INFINITY))  # type: ignore[name-defined]  # noqa: F821, F841
    sums = registers(2, f32(0.0))  # type: ignore[name-defined]  # noqa: F821
    decay = registers(2, f32(0.0))  # type: ignore[name-defined]  # noqa: F821
    base = registers(2, f32(0.0))  # type: ignore[name-defined]  # noqa: F821, F841
    for tile in unrolled(3):
        score[0:SCORE] = tiles[tile]
        splice(WEIGH)
        told(tile, *decay[0:2], *score[0:SCORE])
    told(3, *sums[0:2])


@pytest.mark.parametrize("masked", [False, True])
def test_warpgroups_weigh_rows_that_are_no_numbers_with_zeros(masked: bool) -> None:
    """Three tiles of 16 keys for the 16 rows of a warp: sums that shrink tile by tile, and what divides them."""
    random = np.random.default_rng(4)
    scores = random.standard_normal((16, 48)).astype(np.float32)
    values = np.where(
        np.arange(48) == 3, np.inf, random.standard_normal((2, 48)).astype(np.float64).clip(-2, 2)
    )
    values[0, 3] = 0.5
    scores[1, 5], scores[2, 20], scores[3, 47], scores[4, 20] = np.nan, np.nan, np.nan, np.inf
    scores[5], scores[6, :16], scores[7, 16:], scores[8, 3] = -np.inf, -np.inf, -np.inf, -np.inf
    scale = np.log2(np.e) if masked else SCALE
    found = {lane: dict[int, tuple[Any, ...]]() for lane in range(32)}

    def arguments(rank: int, lane: int) -> tuple[Any, ...]:
        def told(step: int, *numbers: Any) -> None:
            found[lane][step] = numbers

        elements = _elements_of(lane)
        tiles = [[scores[row, 16 * tile + key] for row, key in elements] for tile in range(3)]
        return tiles, told

    constants: dict[str, Any] = {
        **{"SCORE": 8, "NAN_AS_ZERO": True, "EMPTY_AS_ZERO": False, "MASKED": masked, "SCALE": SCALE},
        "LOG2_E": float(np.log2(np.e)),
        "WEIGH": part(attention_wgmma.weigh),
    }
    run_cluster(stage(weighed, constants), 1, 32, arguments, **ARITHMETIC)
    total, sums = np.zeros((16, 2)), np.zeros(16)
    for tile in range(3):
        weights = np.empty((16, 16))
        for lane, told in found.items():
            if lane % 4 == 0:
                with np.errstate(invalid="ignore"):
                    total[[lane // 4, lane // 4 + 8]] *= np.array(told[tile][:2])[:, None]
            for (row, key), weight in zip(_elements_of(lane), told[tile][2:], strict=True):
                weights[row, key] = weight
        assert np.isfinite(weights).all()
        with np.errstate(invalid="ignore"):
            total += weights @ values[:, 16 * tile : 16 * tile + 16].T
    for lane, told in found.items():
        sums[[lane // 4, lane // 4 + 8]] += told[3]
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp2((scores - scores.max(-1, keepdims=True)).astype(np.float64) * scale)
        exact = powers / powers.sum(-1, keepdims=True)
        wanted = np.where(np.isnan(exact), 0.0, exact) @ values.T
    np.testing.assert_allclose(total / np.where(sums == 0, 1.0, sums)[:, None], wanted, 1e-5, 1e-5)
    assert np.flatnonzero(sums == 0).tolist() == [1, 2, 3, 4, 5]


def _elements_of(lane: int) -> list[tuple[int, int]]:
    """Row and key of each score of a lane, in its order."""
    return [
        (lane // 4 + 8 * (index // 2 % 2), index // 4 * 8 + lane % 4 * 2 + index % 2) for index in range(8)
    ]


def launched_wgmma(work: Workload, spec: WgmmaSpec) -> KernelLaunch:
    (made,) = attention_wgmma_code.emit(launch_of(work, WGMMA.id, WGMMA.record_of(work, TARGET, spec)))
    return made


def test_zeros_keep_to_the_registers() -> None:
    """The code with zeros compiles without spills, and is another one than without."""
    masked = guarded(500, 500, 128, "f16", True)
    codes = [
        launched_wgmma(masked, WgmmaSpec(2, 128, 2, 1)).code,
        tensor_cores(AttentionSpec(64, 128, 2, 4, 1))(guarded(200, 300, 64, "bf16", True, 100)).code,
        step(StepSpec(2, 4))(guarded(1, 500, 64, "f16", True)).code,
    ]
    for cubin in compile_kernels(codes, "sm_90a").values():
        assert cubin.stack_bytes == 0 and not starting(instructions(cubin), SPILLS)
    baseline = replace(masked, attrs={**masked.attrs, "nan_as_zero": BoolAttr.from_bool(False)})
    assert launched_wgmma(baseline, WgmmaSpec(2, 128, 2, 1)).code.source != codes[0].source


def test_a_record_says_it() -> None:
    """Every kernel takes such work; a record that contradicts the instruction is refused in words."""
    for kernel, work in (
        (SIMT, guarded(40, 50, 24, "f32", True)),
        (KERNEL, guarded(40, 50, 32, "f16", True)),
        (WGMMA, guarded(40, 50, 64, "f16", False)),
        (STEP, guarded(1, 50, 64, "f16", True)),
    ):
        assert kernel.legal(work, TARGET) is None
        record = kernel.record(work, TARGET)
        assert record["nan_as_zero"] == BoolAttr.from_bool(True)
        edited = {**record, "nan_as_zero": BoolAttr.from_bool(False)}
        assert "its 'nan_as_zero' is False" in str(record_reason(kernel, work, edited, TARGET))
