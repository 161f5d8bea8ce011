"""Attention that gives 0 for queries that see no key: the text of the kernels on a simulated GPU, against float64
NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import BoolAttr

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.specializer import part, registers, splice, stage, unrolled
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.attention.backward.tensor.schedule import Spec
from aicf.backends.cuda.families.attention.decode.kernel import Spec as StepSpec
from aicf.backends.cuda.families.attention.tensor.schedule import AttentionSpec
from aicf.backends.cuda.families.attention.wgmma import template as attention_wgmma
from aicf.backends.cuda.families.attention.wgmma.kernel import Spec as WgmmaSpec
from tests.backends.cuda.attention_simulator import ARITHMETIC, run_attention
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.simulator import run_cluster
from tests.backends.cuda.test_attention_backward import Sizes, assert_gradients, backward, matrix
from tests.backends.cuda.test_attention_backward import launches as backward_launches
from tests.backends.cuda.test_attention_backward import random_operands as backward_operands
from tests.backends.cuda.test_attention_nan import (
    DTYPES,
    KERNEL,
    SCALE,
    SIMT,
    STEP,
    TARGET,
    VARIANTS,
    WGMMA,
    WITHIN,
    Array,
    guarded,
    launched_wgmma,
    random_operands,
    step,
    tensor_cores,
)
from tests.support.record_checks import record_reason

YES, NO = BoolAttr.from_bool(True), BoolAttr.from_bool(False)
SOME = ("simt", "warps", "step-blocks")
HIDDEN: dict[str, Callable[[Array], None]] = {
    "last": lambda mask: mask.__setitem__(-1, -np.inf),
    "all": lambda mask: mask.fill(-np.inf),
    "first tile": lambda mask: mask.__setitem__((slice(None), slice(None, 20)), -np.inf),
    "last tile": lambda mask: mask.__setitem__((slice(None), slice(20, None)), -np.inf),
}


def with_zeros(work: Workload, zeros: bool = True) -> Workload:
    """The work with 0 for queries that see no key, and nothing else in place of NaN."""
    return replace(work, attrs={**work.attrs, "nan_as_zero": NO, "empty_as_zero": BoolAttr.from_bool(zeros)})


def expected(ins: Sequence[Array], past: int | None) -> Array:
    """By the definition."""
    q, k, v = (each.astype(np.float64) for each in ins[:3])
    with np.errstate(invalid="ignore"):
        scores = q @ np.swapaxes(k, -1, -2) * SCALE + (ins[3].astype(np.float64) if len(ins) > 3 else 0.0)
        if past is not None:
            rows, keys = scores.shape[-2:]
            scores = np.where(np.arange(keys) > np.arange(rows)[:, None] + past, -np.inf, scores)
        is_empty = (scores == -np.inf).all(-1, keepdims=True)
        weights = np.exp(scores - np.where(is_empty, 0.0, scores.max(-1, keepdims=True)))
        return weights / np.where(is_empty, 1.0, weights.sum(-1, keepdims=True)) @ v


def check(variant: str, zeros: bool, change: Callable[[list[Array]], None]) -> Array:
    """Runs a variant with a mask on random operands that `change` edits; gives its result."""
    launch, make = VARIANTS[variant]
    work = with_zeros(make(True), zeros)
    ins = random_operands(work)
    change(ins)
    result = work.results[0]
    found = run_attention(launch(work), ins, np.empty(result.shape, DTYPES[result.dtype])).astype(np.float64)
    if zeros:
        past = work.attrs["past"].value.data if work.attrs["causal"] == YES else None  # type: ignore[attr-defined]
        np.testing.assert_allclose(found, expected(ins, past), WITHIN[result.dtype], WITHIN[result.dtype])
    return found


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("variant", VARIANTS)
def test_queries_without_a_key_give_zeros(variant: str, hidden: str) -> None:
    """Of some queries, of all, and of none where only a tile is hidden."""

    def change(ins: list[Array]) -> None:
        ins[3][-1] = 0.0
        HIDDEN[hidden](ins[3])

    found = check(variant, True, change)
    assert (found[0, -1] == 0).all() == (hidden in ("last", "all"))
    assert hidden != "all" or (found == 0).all()


@pytest.mark.parametrize("variant", SOME)
def test_without_the_word_they_give_nan(variant: str) -> None:
    found = check(variant, False, lambda ins: None)
    assert np.isnan(found[0, -1]).all()


@pytest.mark.parametrize("variant", SOME)
def test_a_score_that_is_nan_stays(variant: str) -> None:
    """It is not -inf, so its query sees something."""

    def change(ins: list[Array]) -> None:
        ins[0][0, 0, 0] = np.nan
        if ins[3].shape[0] == 1:
            ins[3][0, 0] = 0.0

    assert np.isnan(check(variant, True, change)[0, 0]).all()


SCORE = WEIGH = NAN_AS_ZERO = EMPTY_AS_ZERO = 0


def weighed(tiles: Any, told: Any) -> None:
    """A template: one warp's softmax over tiles of scores, as `cuda.attention_wgmma` takes it."""
    largest = larger  # type: ignore[name-defined]  # noqa: F821, F841
    score = registers(SCORE, f32(0.0))  # type: ignore[name-defined]  # noqa: F821
    top = registers(2, f32(NEGATIVE_INFINITY))  # type: ignore[name-defined]  # noqa: F821, F841
    sums = registers(2, f32(0.0))  # type: ignore[name-defined]  # noqa: F821
    decay = registers(2, f32(0.0))  # type: ignore[name-defined]  # noqa: F821
    base = registers(2, f32(0.0))  # type: ignore[name-defined]  # noqa: F821, F841
    for tile in unrolled(2):
        score[0:SCORE] = tiles[tile]
        splice(WEIGH)
        told(tile, *decay[0:2], *score[0:SCORE])
    told(2, *sums[0:2])


@pytest.mark.parametrize("masked", [False, True])
def test_warpgroups_weigh_empty_rows_with_zeros(masked: bool) -> None:
    """Two tiles of 16 keys: row 0 is hidden whole, row 1 in its first tile and row 2 in its second."""
    scores = np.random.default_rng(4).standard_normal((16, 32)).astype(np.float32)
    scores[0], scores[1, :16], scores[2, 16:] = -np.inf, -np.inf, -np.inf
    found = {lane: dict[int, tuple[Any, ...]]() for lane in range(32)}

    def elements_of(lane: int) -> list[tuple[int, int]]:
        return [(lane // 4 + 8 * (i // 2 % 2), i // 4 * 8 + lane % 4 * 2 + i % 2) for i in range(8)]

    def arguments(rank: int, lane: int) -> tuple[Any, ...]:
        def told(at: int, *numbers: Any) -> None:
            found[lane][at] = numbers

        return [[scores[row, 16 * tile + key] for row, key in elements_of(lane)] for tile in range(2)], told

    constants: dict[str, Any] = {
        **{"SCORE": 8, "NAN_AS_ZERO": False, "EMPTY_AS_ZERO": True, "MASKED": masked, "SCALE": SCALE},
        "LOG2_E": float(np.log2(np.e)),
        "WEIGH": part(attention_wgmma.weigh),
    }
    run_cluster(stage(weighed, constants), 1, 32, arguments, **ARITHMETIC)
    weights, sums = np.zeros((16, 32)), np.zeros(16)
    for lane, told in found.items():
        sums[[lane // 4, lane // 4 + 8]] += told[2]
        for tile in range(2):
            for index, ((row, key), weight) in enumerate(zip(elements_of(lane), told[tile][2:], strict=True)):
                shrunk = told[1][index // 2 % 2] if tile == 0 else 1.0
                weights[row, 16 * tile + key] = weight * shrunk
    scale = float(np.log2(np.e)) if masked else SCALE
    wide = scores[1:].astype(np.float64) * scale
    wanted = np.exp2(wide - wide.max(-1, keepdims=True))
    np.testing.assert_allclose(weights[1:], wanted, 1e-5, 1e-6)
    np.testing.assert_allclose(sums, weights.sum(-1), 1e-5)
    assert (weights[0] == 0).all() and sums[0] == 0


# Gradients

EMPTY_WORKS = {
    "rows": (backward(Sizes((1,), 20, 40, 16, 16), mask=matrix((20, 40), "f32")), Spec(1, 1, 32)),
    "two tiles": (backward(Sizes((2,), 33, 40, 16, 16), "bf16", 5, matrix((33, 40), "f32")), Spec(2, 2, 32)),
    "padding": (backward(Sizes((2,), 50, 40, 16, 16), mask=matrix((2, 1, 40), "f16")), Spec(1, 1, 32)),
    "row mask": (backward(Sizes((1,), 33, 40, 16, 16), mask=matrix((1, 33, 1), "bf16")), Spec(1, 1, 64)),
}


@pytest.mark.parametrize("hidden", ["some", "all"])
@pytest.mark.parametrize("name", EMPTY_WORKS)
def test_queries_without_a_key_pass_nothing_back(name: str, hidden: str) -> None:
    """Their rows of the gradient of the queries are 0, and those of keys and values are the sums over the others."""
    work, spec = EMPTY_WORKS[name]
    work = with_zeros(work)
    ins = backward_operands(work)
    mask = ins[4]
    if hidden == "all":
        mask[...] = -np.inf
    elif name == "padding":
        mask[1] = -np.inf
    else:
        mask[..., 3, :] = mask[..., 7, :] = -np.inf
    found = assert_gradients(work, spec, ins)
    if hidden == "all":
        assert all((each == 0).all() for each in found)


# Machine code and records


def test_zeros_keep_to_the_registers() -> None:
    """The code with zeros compiles without spills."""
    row = matrix((2, 1, 1, 200), "bf16", strides=(200, 0, 0, 1))
    gradient = with_zeros(backward(Sizes((2, 3), 300, 200, 64, 64), "bf16", None, row))
    codes = [
        launched_wgmma(with_zeros(guarded(500, 500, 128, "f16", True)), WgmmaSpec(2, 128, 2, 1)).code,
        launched_wgmma(with_zeros(guarded(500, 500, 64, "f16", False)), WgmmaSpec(2, 128, 2, 1)).code,
        tensor_cores(AttentionSpec(64, 128, 2, 4, 1))(
            with_zeros(guarded(200, 300, 64, "bf16", True, 100))
        ).code,
        step(StepSpec(2, 4))(with_zeros(guarded(1, 500, 64, "f16", True))).code,
        *(made.code for made in backward_launches(gradient)),
    ]
    for cubin in compile_kernels(codes, "sm_90a").values():
        assert cubin.stack_bytes == 0 and not starting(instructions(cubin), SPILLS)


def test_a_record_says_it() -> None:
    """Every kernel takes such work; a record that contradicts the instruction is refused in words."""
    for kernel, work in (
        (SIMT, guarded(40, 50, 24, "f32", True)),
        (KERNEL, guarded(40, 50, 32, "f16", True)),
        (WGMMA, guarded(40, 50, 64, "f16", False)),
        (STEP, guarded(1, 50, 64, "f16", True)),
    ):
        zeros = with_zeros(work)
        assert kernel.legal(zeros, TARGET) is None
        record = kernel.record(zeros, TARGET)
        assert record["empty_as_zero"] == YES
        edited = {**record, "empty_as_zero": NO}
        assert "its 'empty_as_zero' is False" in str(record_reason(kernel, zeros, edited, TARGET))
