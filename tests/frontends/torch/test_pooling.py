"""ATen's poolings, and what they pass back, against eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.torch_single_ops import assert_op

pytestmark = pytest.mark.peers

aten = torch.ops.aten


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)), dtype=torch.float64)


_WINDOWS: list[tuple[Any, ...]] = [
    # size, stride, padding, dilation, ceil_mode
    ([2, 2], [2, 2], [0, 0], [1, 1], False),
    ([3, 2], [2, 1], [1, 1], [1, 1], False),
    ([3, 3], [2, 2], [1, 1], [1, 1], True),
    ([2, 2], [], [0, 0], [2, 1], False),
    ([3], [2], [0], [1], True),
]


@pytest.mark.parametrize("case", _WINDOWS)
@pytest.mark.parametrize("batch", [(2, 3), (3,)])
def test_max_pool(case: tuple[Any, ...], batch: tuple[int, ...]) -> None:
    x = _random(*batch, 8, 7)
    assert_op(aten.max_pool2d.default, x, *case)
    assert_op(aten.max_pool2d_with_indices.default, x, *case)
    y, places = aten.max_pool2d_with_indices.default(x, *case)
    assert_op(aten.max_pool2d_with_indices_backward.default, _random(*y.shape), x, *case, places)


def test_max_pool_of_three_dimensions() -> None:
    x, case = _random(2, 3, 5, 6, 5), ([2, 3, 2], [1, 2, 2], [1, 1, 0], [1, 1, 1], False)
    assert_op(aten.max_pool3d_with_indices.default, x, *case)
    y, places = aten.max_pool3d_with_indices.default(x, *case)
    assert_op(aten.max_pool3d_with_indices_backward.default, _random(*y.shape), x, *case, places)


@pytest.mark.parametrize(
    "case",
    [
        ([2, 2], [2, 2], [0, 0], False, True, None),
        ([3, 2], [2, 1], [1, 1], False, True, None),
        ([3, 2], [2, 1], [1, 1], False, False, None),
        ([3, 3], [2, 2], [1, 1], True, True, None),
        ([3, 3], [2, 2], [1, 1], True, False, None),
        ([2, 2], [3, 3], [0, 0], True, False, 3),
        ([2, 4], [2, 1], [0, 0], False, True, 5),
        ([8, 6], [1, 1], [0, 0], False, True, None),
    ],
)
@pytest.mark.parametrize("batch", [(2, 3), (3,)])
def test_avg_pool(case: tuple[Any, ...], batch: tuple[int, ...]) -> None:
    x = _random(*batch, 8, 6)
    assert_op(aten.avg_pool2d.default, x, *case)
    y = aten.avg_pool2d.default(x, *case)
    assert_op(aten.avg_pool2d_backward.default, _random(*y.shape), x, *case)


def test_avg_pool_of_one_and_three_dimensions() -> None:
    assert_op(aten.avg_pool1d.default, _random(2, 3, 8), [3], [2], [1], True, False)
    x, case = _random(2, 3, 5, 6, 5), ([2, 3, 2], [1, 2, 2], [1, 1, 0], True, False, None)
    assert_op(aten.avg_pool3d.default, x, *case)
    y = aten.avg_pool3d.default(x, *case)
    assert_op(aten.avg_pool3d_backward.default, _random(*y.shape), x, *case)


@pytest.mark.parametrize("counts", [(1, 1), (4, 3), (3, 5), (8, 6), (5, 1), (11, 7)])
def test_regions(counts: tuple[int, int]) -> None:
    x = _random(2, 3, 8, 6)
    assert_op(aten._adaptive_avg_pool2d.default, x, counts)
    assert_op(aten._adaptive_avg_pool2d_backward.default, _random(2, 3, *counts), x)
    assert_op(aten.adaptive_max_pool2d.default, x, counts)
    _, places = aten.adaptive_max_pool2d.default(x, counts)
    assert_op(aten.adaptive_max_pool2d_backward.default, _random(2, 3, *counts), x, places)


def test_regions_of_three_dimensions() -> None:
    x, counts = _random(2, 4, 5, 3), (3, 2, 2)
    assert_op(aten._adaptive_avg_pool3d.default, x, counts)
    assert_op(aten._adaptive_avg_pool3d_backward.default, _random(2, *counts), x)
    assert_op(aten.adaptive_max_pool3d.default, x, counts)


def test_no_infinity_reaches_another_region() -> None:
    x = _random(1, 7)
    x[0, 3] = float("inf")
    assert_op(aten.adaptive_avg_pool1d.default, x, [3])
