"""ATen's normalisations, and what they pass back, against eager mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from aicf.errors import UnsupportedOp
from tests.support.torch_single_ops import assert_op, op_program

pytestmark = pytest.mark.peers

aten = torch.ops.aten


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)), dtype=torch.float64)


def _ops_of(op: Any, *arguments: Any) -> list[str]:
    program, _ = op_program(op, *arguments)
    assert program.module is not None
    (function,) = program.module.body.block.ops
    return [inner.name for inner in function.regions[0].block.ops]


@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 5)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(shape: tuple[int, ...], affine: bool) -> None:
    x = _random(3, 4, 5)
    weight, bias = (_random(*shape), _random(*shape) + 1) if affine else (None, None)
    assert_op(aten.layer_norm.default, x, shape, weight, bias)
    assert_op(aten.native_layer_norm.default, x, shape, weight, bias, 1e-5)
    _, mean, factor = aten.native_layer_norm.default(x, shape, weight, bias, 1e-5)
    mask = [True, affine, affine]
    assert_op(
        aten.native_layer_norm_backward.default,
        *(_random(3, 4, 5) + 1, x, shape, mean, factor, weight, bias, mask),
    )


def test_norms_of_no_rows_pass_zeros_back() -> None:
    x, mean = torch.empty(0, 4), torch.empty(0, 1)
    mask = [True, True, True]
    assert_op(aten.native_layer_norm_backward.default, x, x, [4], mean, mean, _random(4), _random(4), mask)
    assert_op(aten.native_group_norm_backward.default, x, x, mean, mean, _random(4), 0, 4, 1, 1, mask)


def test_a_layer_norm_without_statistics_is_one_op() -> None:
    ops = _ops_of(aten.layer_norm.default, _random(3, 4), [4], _random(4), _random(4))
    assert ops == ["logical.layer_norm", "func.return"]


def test_layer_norm_of_halves_with_weights_of_f32() -> None:
    x, weight = _random(3, 4).bfloat16(), _random(4).float()
    ops = _ops_of(aten.native_layer_norm.default, x, [4], weight, weight, 1e-5)
    assert "logical.layer_norm" in ops


@pytest.mark.parametrize("eps", [None, 1e-3, 0.0])
@pytest.mark.parametrize("affine", [True, False])
def test_rms_norm(eps: float | None, affine: bool) -> None:
    x, weight = _random(3, 4, 5), _random(5) if affine else None
    types = (torch.float64,) if eps is None else (torch.float64, torch.float32, torch.float16)
    assert_op(aten.rms_norm.default, x, [5], weight, eps, types=types)
    assert_op(aten._fused_rms_norm.default, x, [5], weight, eps, types=types)
    _, root = aten._fused_rms_norm.default(x, [5], weight, eps)

    def differentiated(grad: torch.Tensor, *_: object) -> list[torch.Tensor | None]:
        leaves = [one.clone().requires_grad_() for one in (x, weight) if one is not None]
        y = aten.rms_norm.default(leaves[0], [5], leaves[1] if affine else None, eps)
        return [*torch.autograd.grad(y, leaves, grad), None][:2]

    grad, mask = _random(3, 4, 5) + 1, [True, affine]
    assert_op(
        aten._fused_rms_norm_backward.default,
        *(grad, x, [5], root, weight, mask),
        types=[torch.float64],
        like=differentiated,
    )


@pytest.mark.parametrize("sizes", [(2, 6), (2, 6, 3), (2, 6, 3, 2)])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(sizes: tuple[int, ...], affine: bool) -> None:
    x = _random(*sizes)
    weight, bias = (_random(6), _random(6) + 1) if affine else (None, None)
    counts = (2, 6, x.numel() // 12, 3)
    assert_op(aten.group_norm.default, x, 3, weight, bias)
    assert_op(aten.native_group_norm.default, x, weight, bias, *counts, 1e-5)
    _, mean, factor = aten.native_group_norm.default(x, weight, bias, *counts, 1e-5)
    mask = [True, affine, affine]
    assert_op(
        aten.native_group_norm_backward.default,
        *(_random(*sizes) + 1, x, mean, factor, weight, *counts, mask),
    )


_BATCHES = [(4, 3), (4, 3, 5), (4, 3, 2, 2)]


def _channels() -> Sequence[torch.Tensor]:
    return _random(3), _random(3) + 1, _random(3) * 0.5, _random(3) ** 2


@pytest.mark.parametrize("sizes", _BATCHES)
def test_batch_norm_after_training(sizes: tuple[int, ...]) -> None:
    x, (weight, bias, mean, variance) = _random(*sizes), _channels()
    assert_op(aten.batch_norm.default, x, weight, bias, mean, variance, False, 0.1, 1e-5, False)
    assert_op(aten.batch_norm.default, x, None, None, mean, variance, False, 0.1, 1e-5, False)
    assert_op(aten._native_batch_norm_legit_no_training.default, x, weight, bias, mean, variance, 0.1, 1e-5)
    assert_op(
        aten._native_batch_norm_legit_functional.default,
        *(x, weight, bias, mean, variance, False, 0.1, 1e-5),
    )


@pytest.mark.parametrize("sizes", _BATCHES)
def test_batch_norm_in_training(sizes: tuple[int, ...]) -> None:
    x, (weight, bias, mean, variance) = _random(*sizes), _channels()
    types = (torch.float64, torch.float32)
    assert_op(
        aten._native_batch_norm_legit_functional.default,
        *(x, weight, bias, mean, variance, True, 0.1, 1e-5),
        types=types,
    )
    assert_op(aten._native_batch_norm_legit.no_stats, x, weight, bias, True, 0.1, 1e-5, types=types)
    assert_op(
        aten._batch_norm_with_update_functional.default,
        *(x, weight, bias, mean, variance, 0.1, 1e-5),
        types=types,
    )
    assert_op(aten.batch_norm.default, x, weight, bias, None, None, True, 0.1, 1e-5, False)


@pytest.mark.parametrize("sizes", _BATCHES)
@pytest.mark.parametrize("training", [True, False])
def test_what_batch_norm_passes_back(sizes: tuple[int, ...], training: bool) -> None:
    x, (weight, bias, mean, variance) = _random(*sizes), _channels()
    _, now, factor = aten.native_batch_norm.default(
        x, weight, bias, mean.clone(), variance.clone(), True, 0.1, 1e-5
    )
    types = (torch.float64, torch.float32)
    assert_op(
        aten.native_batch_norm_backward.default,
        *(_random(*sizes) + 1, x, weight, mean, variance, now, factor, training, 1e-5, [True] * 3),
        types=types,
    )
    if not training:
        nothing = torch.empty(0, dtype=torch.float64)
        assert_op(
            aten.native_batch_norm_backward.default,
            *(x + 1, x, weight, mean, variance, nothing, nothing, False, 1e-5, [True, True, False]),
            types=types,
        )


def test_running_statistics_that_change_in_secret_are_refused() -> None:
    x, channels = _random(4, 3), _channels()
    with pytest.raises(UnsupportedOp, match=r"running statistics.*run_decompositions"):
        op_program(aten.batch_norm.default, x, *channels, True, 0.1, 1e-5, False)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis: int) -> None:
    x, grad = _random(3, 4, 5), _random(3, 4, 5) + 1
    assert_op(aten._softmax.default, x, axis, False)
    assert_op(aten._log_softmax.default, x, axis, False)
    for op, y in (
        (aten._softmax_backward_data.default, x.softmax(axis)),
        (aten._log_softmax_backward_data.default, x.log_softmax(axis)),
    ):
        assert_op(op, grad, y, axis, torch.float64, types=[torch.float64])


def test_softmax_of_a_number() -> None:
    assert_op(aten._softmax.default, torch.tensor(2.0), 0, False)
    assert_op(aten._log_softmax.default, torch.tensor(2.0), -1, False)


def test_safe_softmax_of_nothing_but_infinities() -> None:
    x = _random(3, 4)
    x[1] = float("-inf")
    x[2, 1] = float("-inf")
    assert_op(aten._safe_softmax.default, x, -1)


@pytest.mark.parametrize("dim", [0, 2])
def test_what_a_norm_of_weights_passes_back(dim: int) -> None:
    v, gradient = _random(3, 4, 5), _random(3, 4, 5) + 1
    sizes = [size if axis == dim else 1 for axis, size in enumerate(v.shape)]
    _, norms = aten._weight_norm_interface.default(v, _random(*sizes), dim)
    arguments = (gradient, v, _random(*sizes), norms, dim)
    assert_op(aten._weight_norm_interface_backward.default, *arguments, types=(torch.float64, torch.float32))
