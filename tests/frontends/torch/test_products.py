"""ATen's products, convolutions and distances, and what they pass back, against eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.torch_single_ops import assert_op

pytestmark = pytest.mark.peers

aten = torch.ops.aten


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)), dtype=torch.float64)


@pytest.mark.parametrize(
    ("op", "sizes"),
    [
        *[(aten.addmm.default, ((5,), (3, 4), (4, 5))), (aten.addmm.default, ((3, 1), (3, 4), (4, 5)))],
        *[(aten.addmv.default, ((3,), (3, 4), (4,))), (aten.addr.default, ((3, 4), (3,), (4,)))],
        *[
            (aten.baddbmm.default, ((4, 1), (2, 4, 3), (2, 3, 5))),
            (aten.addbmm.default, ((5,), (2, 4, 3), (2, 3, 5))),
        ],
    ],
)
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, 2.0), (0, 1), (2, 0)])
def test_products_with_summands(
    op: Any, sizes: tuple[tuple[int, ...], ...], beta: float, alpha: float
) -> None:
    bias, *factors = (_random(*each) for each in sizes)
    if beta == 0:
        bias = bias * float("nan")
    assert_op(op, bias, *factors, beta=beta, alpha=alpha)


def test_products_of_nothing() -> None:
    none, some = torch.zeros(3, 0), torch.zeros(0, 4)
    assert_op(aten.mm.default, none, some)
    assert_op(aten.addmm.default, _random(4), none, some, beta=2)
    assert_op(aten.addmm.default, _random(4), none, some, beta=0)
    assert_op(aten.linear.default, none, some.T, _random(4))
    assert_op(aten.linear.default, none, some.T)
    assert_op(aten.dot.default, torch.zeros(0), torch.zeros(0))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_products_of_integers(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    lhs = torch.randint(0, 100, (3, 4), generator=generator).to(dtype)
    rhs = torch.randint(0, 100, (4, 5), generator=generator).to(dtype)
    types = [torch.float64]
    assert_op(aten.mm.default, lhs, rhs, types=types)
    assert_op(aten.addmm.default, rhs[0], lhs, rhs, beta=2, alpha=3, types=types)
    assert_op(aten.mv.default, lhs, rhs[:, 0], types=types)


@pytest.mark.parametrize(
    ("x", "weight", "bias"),
    [((4,), (3, 4), (3,)), ((2, 5, 4), (3, 4), (3,)), ((2, 4), (3, 4), (1,))],
)
def test_linear(x: tuple[int, ...], weight: tuple[int, ...], bias: tuple[int, ...]) -> None:
    assert_op(aten.linear.default, _random(*x), _random(*weight), _random(*bias))
    assert_op(aten.linear.default, _random(*x), _random(*weight))


def test_linear_of_a_vector_of_weights() -> None:
    assert_op(aten.linear.default, _random(2, 4), _random(4))


@pytest.mark.parametrize("exponent", [0, 1, 2, 5, 6])
def test_powers_of_matrices(exponent: int) -> None:
    assert_op(aten.linalg_matrix_power.default, _random(2, 3, 3), exponent)


def test_bilinear() -> None:
    lhs, rhs, weight, bias = _random(2, 3, 4), _random(2, 3, 5), _random(6, 4, 5), _random(6)
    assert_op(aten.bilinear.default, lhs, rhs, weight, bias)
    rows = (lhs.reshape(6, 4), weight, rhs.reshape(6, 5))
    assert_op(aten._trilinear.default, *rows, [1, 3], [0], [1, 2], [2, 3])
    assert_op(aten._trilinear.default, _random(3, 4), _random(4), _random(3), [], [0], [1], [1])


@pytest.mark.parametrize(
    ("equation", "sizes"),
    [
        *[("ij,jk->ik", ((2, 3), (3, 4))), ("ij,jk", ((2, 3), (3, 4))), ("i,i->", ((3,), (3,)))],
        *[("bij,bkj->bik", ((2, 3, 4), (2, 5, 4))), ("...ij,...jk->...ik", ((2, 2, 3), (3, 4)))],
        *[("ii->i", ((3, 3),)), ("iij->j", ((3, 3, 2),)), ("i,j->ji", ((2,), (3,)))],
        *[("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))), ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5)))],
        *[("ij,ij->i", ((2, 1), (2, 3))), ("ij,kl->", ((2, 3), (2, 2)))],
    ],
)
def test_einsum(equation: str, sizes: tuple[tuple[int, ...], ...]) -> None:
    assert_op(aten.einsum.default, equation, [_random(*each) for each in sizes])


_CONVOLUTIONS = [
    # operand, weight, stride, padding, dilation, transposed, output padding, groups
    ((2, 3, 8), (4, 3, 3), [1], [1], [1], False, [0], 1),
    ((2, 4, 9), (6, 2, 3), [2], [0], [2], False, [0], 2),
    ((2, 3, 7, 6), (4, 3, 3, 2), [2, 1], [1, 0], [1, 2], False, [0, 0], 1),
    ((2, 4, 7, 6), (8, 1, 3, 3), [2, 2], [1, 1], [1, 1], False, [0, 0], 4),
    ((1, 2, 4, 5, 4), (2, 2, 2, 2, 2), [1, 2, 1], [0, 1, 0], [1, 1, 1], False, [0, 0, 0], 1),
    ((2, 3, 5), (3, 4, 3), [2], [1], [1], True, [1], 1),
    ((2, 4, 4, 3), (4, 2, 3, 3), [2, 3], [1, 0], [1, 1], True, [1, 2], 2),
    ((2, 4, 4, 3), (4, 1, 2, 3), [1, 1], [1, 1], [2, 1], True, [0, 0], 4),
    ((1, 2, 3), (2, 1, 2), [1], [0], [3], True, [2], 1),
]


@pytest.mark.parametrize("case", _CONVOLUTIONS)
def test_convolutions(case: tuple[Any, ...]) -> None:
    x_sizes, weight_sizes, *steps = case
    x, weight = _random(*x_sizes), _random(*weight_sizes)
    outputs = weight_sizes[1] * steps[-1] if steps[3] else weight_sizes[0]
    bias = _random(outputs)
    assert_op(aten.convolution.default, x, weight, bias, *steps)
    y = aten.convolution.default(x, weight, bias, *steps)
    grad = _random(*y.shape) + 0.5
    assert_op(aten.convolution_backward.default, grad, x, weight, [outputs], *steps, [True] * 3)
    assert_op(aten.convolution_backward.default, grad, x, weight, [outputs], *steps, [False, True, False])


@pytest.mark.parametrize("taps", [1, 2, 3, 4])
def test_convolutions_that_keep_sizes(taps: int) -> None:
    x, weight = _random(2, 3, 9, 8), _random(4, 3, taps, taps)
    for padding in ("same", "valid"):
        assert_op(aten.conv2d.padding, x, weight, None, [1], padding, [2])


def test_convolutions_of_one_sample() -> None:
    assert_op(aten.conv2d.default, _random(3, 6, 6), _random(4, 3, 3, 3), _random(4), [2], [1])
    assert_op(aten.conv_transpose2d.input, _random(3, 6, 6), _random(3, 4, 3, 3), _random(4), [2], [1], [1])


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p: float) -> None:
    lhs, rhs = _random(2, 3, 4), _random(2, 5, 4)
    assert_op(aten._cdist_forward.default, lhs, rhs, p, 2, types=[torch.float64, torch.float32])
    assert_op(aten._pdist_forward.default, lhs[0], p, types=[torch.float64, torch.float32])
    norms = aten._cdist_forward.default(lhs, rhs, p, 2)
    types = [torch.float64]
    assert_op(aten._cdist_backward.default, _random(2, 3, 5), lhs, rhs, p, norms, types=types)
    pairs = aten._pdist_forward.default(lhs[0], p)
    assert_op(aten._pdist_backward.default, _random(3), lhs[0], p, pairs, types=types)


def test_pairs_of_many_rows() -> None:
    assert_op(aten._pdist_forward.default, _random(70, 3), 2.0, types=[torch.float64])
