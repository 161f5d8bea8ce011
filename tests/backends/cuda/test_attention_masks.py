"""Masks of the lowest numbers of their types: the text of the attention kernels on a simulated GPU, against float64
NumPy.

A row that such a mask hides whole is the plain average of the values, as PyTorch gives it: in f32 every score of it is
the same number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import BoolAttr

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.specializer import Snippet, part, registers, splice, stage, unrolled
from aicf.backends.cuda.families.attention.wgmma import template as attention_wgmma
from tests.backends.cuda.attention_simulator import ARITHMETIC, run_attention
from tests.backends.cuda.simulator import run_cluster
from tests.backends.cuda.test_attention_nan import DTYPES, SCALE, VARIANTS, WITHIN, Array, random_operands

LOWEST = {
    "f32": float(np.finfo(np.float32).min),
    "half of f32": float(np.finfo(np.float32).min) / 2,
    "bf16": float(ml_dtypes.finfo(ml_dtypes.bfloat16).min),
    "-1e4": -1e4,
}


def with_guard(work: Workload, guard: bool) -> Workload:
    return replace(work, attrs={**work.attrs, "nan_as_zero": BoolAttr.from_bool(guard)})


def expected(ins: list[Array], past: int | None) -> Array:
    """By the definition, scores with their mask rounded to f32, as the program says."""
    q, k, v = (each.astype(np.float64) for each in ins[:3])
    scores = (q @ np.swapaxes(k, -1, -2) * SCALE).astype(np.float32) + ins[3]
    if past is not None:
        hidden = np.arange(k.shape[1]) > np.arange(q.shape[1])[:, None] + past
        scores = np.where(hidden, -np.inf, scores)
    scores = scores.astype(np.float64)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("guard", [False, True], ids=["plain", "guarded"])
@pytest.mark.parametrize("lowest", LOWEST)
@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_of_the_lowest_number_are_averages(variant: str, lowest: str, guard: bool) -> None:
    """The last row is hidden whole, others in part; in the first row a whole tile is, before one that is not."""
    launch, make = VARIANTS[variant]
    work = with_guard(make(True), guard)
    ins, random = random_operands(work, 3), np.random.default_rng(5)
    mask = ins[3]
    mask[:] = np.where(random.random(mask.shape) < 0.3, LOWEST[lowest], random.standard_normal(mask.shape))
    mask[0, :20] = LOWEST[lowest]
    mask[-1] = LOWEST[lowest]
    result = work.results[0]
    found = run_attention(launch(work), ins, np.empty(result.shape, DTYPES[result.dtype])).astype(np.float64)
    is_causal = work.attrs["causal"] == BoolAttr.from_bool(True)
    past = work.attrs["past"].value.data if is_causal else None  # type: ignore[attr-defined]
    wanted = expected(ins, past)
    np.testing.assert_allclose(found, wanted, WITHIN[result.dtype], WITHIN[result.dtype])
    keys = ins[1].shape[1] if past is None else min(ins[1].shape[1], ins[0].shape[1] + past)
    if lowest != "-1e4":
        average = ins[2][:, :keys].astype(np.float64).mean(1)
        np.testing.assert_allclose(found[:, -1], average, WITHIN[result.dtype], WITHIN[result.dtype])


SCORE = ADD_PAIR = WEIGH = NAN_AS_ZERO = EMPTY_AS_ZERO = 0
KEYS, TILE = 48, 16


def weighed(tiles: Any, biases: Any, told: Any) -> None:
    """A template: one warp's softmax over tiles of products and masks, as `cuda.attention_wgmma` takes it."""
    largest = max_nan if NAN_AS_ZERO else larger  # type: ignore[name-defined]  # noqa: F821, F841
    score = registers(SCORE, f32(0.0))  # type: ignore[name-defined]  # noqa: F821
    bias = registers(SCORE, f32(0.0))  # type: ignore[name-defined]  # noqa: F821
    top = registers(2, f32(NEGATIVE_INFINITY))  # type: ignore[name-defined]  # noqa: F821, F841
    sums = registers(2, f32(0.0))  # type: ignore[name-defined]  # noqa: F821
    decay = registers(2, f32(0.0))  # type: ignore[name-defined]  # noqa: F821
    base = registers(2, f32(0.0))  # type: ignore[name-defined]  # noqa: F821, F841
    for tile in unrolled(3):
        score[0:SCORE] = tiles[tile]
        bias[0:SCORE] = biases[tile]
        for each in unrolled(0, SCORE, 2):
            splice(ADD_PAIR, each // 2, each)
        splice(WEIGH)
        told(tile, *decay[0:2], *score[0:SCORE])
    told(3, *sums[0:2])


def _held(lane: int) -> list[tuple[int, int]]:
    """Row and key of each score of a lane, in its order."""
    return [
        (lane // 4 + 8 * (index // 2 % 2), index // 4 * 8 + lane % 4 * 2 + index % 2) for index in range(8)
    ]


@pytest.mark.parametrize("lowest", LOWEST)
def test_warpgroups_average_rows_of_the_lowest_number(lowest: str) -> None:
    """Row 0 is hidden whole, row 1 in its first tile, row 2 in its last one, all others in part."""
    random = np.random.default_rng(11)
    products, values = (random.standard_normal((rows, KEYS)).astype(np.float32) for rows in (16, 2))
    mask = np.where(random.random((16, KEYS)) < 0.3, LOWEST[lowest], random.standard_normal((16, KEYS)))
    mask[0], mask[1, :TILE], mask[2, -TILE:] = LOWEST[lowest], LOWEST[lowest], LOWEST[lowest]
    mask = mask.astype(np.float32)
    found = {lane: dict[int, tuple[Any, ...]]() for lane in range(32)}

    def arguments(rank: int, lane: int) -> tuple[Any, ...]:
        def told(step: int, *numbers: Any) -> None:
            found[lane][step] = numbers

        tiles = [
            [[x[row, TILE * tile + key] for row, key in _held(lane)] for tile in range(3)]
            for x in (products, mask)
        ]
        return *tiles, told

    constants: dict[str, Any] = {
        **{"SCORE": 8, "NAN_AS_ZERO": False, "EMPTY_AS_ZERO": False, "MASKED": True, "SCALE": SCALE},
        "MASK_WORDS": 2,
        "LOG2_E": float(np.log2(np.e)),
        "ADD_PAIR": part(attention_wgmma.add_pair),
        "UNPACKED": Snippet(("words",), (), "words[0], words[1]"),
        "WEIGH": part(attention_wgmma.weigh),
    }
    run_cluster(stage(weighed, constants), 1, 32, arguments, **ARITHMETIC)
    total, sums = np.zeros((16, 2)), np.zeros(16)
    for tile in range(3):
        weights = np.empty((16, TILE))
        for lane, told in found.items():
            if lane % 4 == 0:
                total[[lane // 4, lane // 4 + 8]] *= np.array(told[tile][:2])[:, None]
            for (row, key), weight in zip(_held(lane), told[tile][2:], strict=True):
                weights[row, key] = weight
        total += weights @ values[:, TILE * tile : TILE * tile + TILE].T
    for lane, told in found.items():
        sums[[lane // 4, lane // 4 + 8]] += told[3]
    scores = ((products * np.float32(SCALE)) + mask).astype(np.float64)
    exact = np.exp(scores - scores.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)
    np.testing.assert_allclose(total / sums[:, None], exact @ values.T, 1e-5, 1e-5)
