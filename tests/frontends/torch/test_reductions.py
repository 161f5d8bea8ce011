"""ATen's reductions, scans and orders: of NaN, of equal elements, of rank 0, and of no elements at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.torch_graphs import assert_like_eager, lowered_outputs

pytestmark = pytest.mark.peers
aten = torch.ops.aten
inf, nan = math.inf, math.nan

ALONG: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: x.sum(1),
    "sum_all": torch.sum,
    "sum_keepdim": lambda x: x.sum((0, 2), keepdim=True),
    "sum_f64": lambda x: x.sum(-1, dtype=torch.float64),
    "mean": lambda x: x.mean(-1),
    "prod": lambda x: x.prod(0),
    "any": lambda x: x.any(1),
    "all": lambda x: x.all(1, keepdim=True),
    "amax": lambda x: x.amax((1, 2)),
    "amin": lambda x: x.amin(),
    "aminmax": lambda x: torch.aminmax(x, dim=1),
    "max": lambda x: x.max(1),
    "max_all": torch.max,
    "min": lambda x: x.min(2, keepdim=True),
    "argmax": lambda x: x.argmax(1),
    "argmin_all": lambda x: x.argmin(),
    "argmax_keepdim": lambda x: x.argmax(keepdim=True),
    "var": lambda x: x.var(1),
    "var_all": lambda x: x.var(unbiased=False),
    "var_mean": lambda x: torch.var_mean(x, (0, 2), correction=0, keepdim=True),
    "std": lambda x: x.std((0, 1), correction=2),
    "std_mean": torch.std_mean,
    "var_of_one": lambda x: aten.var.correction(aten.sum.dim_IntList(x, [1], True), [1]),
    "logsumexp": lambda x: x.logsumexp((0, 1)),
    "norm": lambda x: x.norm(),
    "norm_0": lambda x: torch.linalg.vector_norm(x, 0, dim=1),
    "norm_1": lambda x: torch.linalg.vector_norm(x, 1, dim=(0, 1)),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, inf),
    "norm_min": lambda x: torch.linalg.vector_norm(x, -inf, dim=2),
    "norm_3": lambda x: torch.linalg.vector_norm(x, 3, dim=2, keepdim=True),
    "count_nonzero": lambda x: x.count_nonzero(1),
    "nansum": lambda x: x.nansum(1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(2),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(0),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "sort": lambda x: x.sort(dim=1, stable=True),
    "sort_down": lambda x: torch.sort(x, dim=1, descending=True, stable=True),
    "argsort": lambda x: x.argsort(dim=2, stable=True),
    "topk": lambda x: x.topk(2, 1)[0],
    "topk_smallest": lambda x: x.topk(3, 1, largest=False),
    "kthvalue": lambda x: x.kthvalue(2, 1)[0],
    "median": lambda x: x.median(1)[0],
    "median_all": torch.median,
    "nanmedian": lambda x: x.nanmedian(1)[0],
    "mode": lambda x: x.mode(1)[0],
}
OF_NUMBERS = {"prod", "var", "var_mean", "std_mean", "var_all", "std", "norm_3", "cumprod", "logcumsumexp"}
FOR_FLOATS = {
    *("mean", "var", "var_all", "var_mean", "std", "std_mean", "var_of_one", "logsumexp", "logcumsumexp"),
    *("norm", "norm_0", "norm_1", "norm_inf", "norm_min", "norm_3", "sum_f64"),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("name", ALONG)
def test_floats(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    assert_like_eager(ALONG[name], torch.randn(3, 5, 4).to(dtype))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", [name for name in ALONG if name not in OF_NUMBERS])
def test_not_a_number(name: str) -> None:
    torch.manual_seed(3)
    x = torch.randn(3, 5, 4)
    x[0, 2, 0], x[0, 4, 0], x[1, 1, 1], x[2, 3, 2] = nan, nan, inf, -inf
    assert_like_eager(ALONG[name], x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
@pytest.mark.parametrize("name", [name for name in ALONG if name not in FOR_FLOATS])
def test_integers(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    assert_like_eager(
        ALONG[name], torch.stack([torch.randperm(20) for _ in range(3)]).view(3, 5, 4).to(dtype)
    )


RANK_0: list[Callable[[torch.Tensor], Any]] = [
    *(torch.sum, torch.mean, torch.prod, torch.any, torch.argmax, torch.median, torch.max),
    lambda x: x.sum(0),
    lambda x: x.max(0),
    lambda x: x.cumsum(0),
    lambda x: x.cummax(0),
    lambda x: x.sort(0),
    lambda x: x.topk(1),
    lambda x: x.kthvalue(1),
    lambda x: x.mode(),
    lambda x: x.logsumexp(0),
    lambda x: x.var(correction=0),
    torch.linalg.vector_norm,
]


@pytest.mark.parametrize("fn", RANK_0)
def test_rank_0(fn: Callable[[torch.Tensor], Any]) -> None:
    assert_like_eager(fn, torch.tensor(1.5))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize(
    "fn",
    [
        torch.sum,
        torch.mean,
        torch.prod,
        torch.any,
        torch.all,
        torch.var,
        lambda x: x.sum(1),
        lambda x: x.mean(1, keepdim=True),
        lambda x: x.any(1),
        lambda x: x.all(1),
        lambda x: torch.var_mean(x, 1),
        lambda x: torch.logsumexp(x, 1),
        lambda x: torch.linalg.vector_norm(x, dim=1),
        lambda x: x.count_nonzero(1),
        lambda x: x.nansum(1),
        lambda x: x.new_full((2, 2), 3),
        lambda x: x.new_zeros((2,)),
        lambda x: x.sum(0),
    ],
)
def test_of_nothing(fn: Callable[[torch.Tensor], Any]) -> None:
    assert_like_eager(fn, torch.empty(3, 0))


def test_equal_elements_keep_their_order() -> None:
    x = torch.tensor([[2, 1, 2, 1, 1], [0, 0, 3, 3, 0]])
    for descending in (False, True):
        expected = torch.sort(x, dim=1, descending=descending, stable=True)
        values, indices = lowered_outputs(lambda x: torch.sort(x, dim=1, descending=descending), x)  # noqa: B023
        assert values.tolist() == expected[0].tolist()
        assert indices.tolist() == expected[1].tolist()


def test_the_last_of_equal_elements_is_the_extreme_so_far() -> None:
    x = torch.tensor([1.0, 3.0, 3.0, nan, 2.0, nan])
    for fn in (lambda x: x.cummax(0), lambda x: x.cummin(0)):
        assert_like_eager(fn, x)
