"""ATen ops that pad, resize and sample images, beside PyTorch: what is passed back, and edges of their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.torch_graphs import lowered_outputs
from tests.support.torch_op_outputs import op_outputs
from tests.support.torch_tensors import array_of

pytestmark = pytest.mark.peers

aten = torch.ops.aten


def floats(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_op(op: Any, *arguments: Any) -> None:
    """One op through the frontend and on its own."""
    wanted = op(*arguments)
    theirs = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    for mine, other in zip(op_outputs(op, *arguments), theirs, strict=True):
        np.testing.assert_allclose(mine, array_of(other), rtol=1e-9, atol=1e-9)


PADS = {1: [(2, 1), (0, 3), (3, 0)], 2: [(2, 1, 3, 0), (3, 3, 2, 2)], 3: [(1, 2, 0, 1, 2, 1)]}


@pytest.mark.parametrize("mode", ["reflection", "replication"])
@pytest.mark.parametrize(("rank", "pad"), [(rank, pad) for rank, pads in PADS.items() for pad in pads])
def test_padding(mode: str, rank: int, pad: tuple[int, ...]) -> None:
    x = floats(2, 3, *(4, 5, 6)[:rank])
    forward = getattr(aten, f"{mode}_pad{rank}d").default
    backward = getattr(aten, f"{mode}_pad{rank}d_backward").default
    assert_op(forward, x, pad)
    assert_op(backward, torch.randn_like(forward(x, pad)), x, pad)


def test_amounts_below_zero_take_away() -> None:
    for op in (aten.replication_pad2d, aten.reflection_pad2d):
        for pad in ((-1, 2, 1, -2), (-2, -1, 0, 3)):
            assert_op(op.default, floats(2, 5, 6), pad)
    assert_op(aten.constant_pad_nd.default, floats(2, 5, 6), (-1, 2, 1, -2), 3.5)
    assert_op(aten._pad_circular.default, floats(2, 5, 6), (2, 1))
    assert_op(aten.constant_pad_nd.default, floats(2, 0), (1, 2), 3.5)


SIZES = {1: [(5, 13), (6, 12), (9, 4), (7, 7)], 2: [(5, 12), (9, 4)], 3: [(3, 7)]}
"""Of the last dimension, before and after; those before it are resized too."""
RESIZES: list[tuple[str, int, bool]] = [
    *((f"upsample_nearest{rank}d", rank, False) for rank in (1, 2, 3)),
    *((f"_upsample_nearest_exact{rank}d", rank, False) for rank in (1, 2, 3)),
    ("upsample_linear1d", 1, True),
    ("upsample_bilinear2d", 2, True),
    ("upsample_trilinear3d", 3, True),
    ("upsample_bicubic2d", 2, True),
    ("_upsample_bilinear2d_aa", 2, True),
    ("_upsample_bicubic2d_aa", 2, True),
    ("_upsample_lanczos2d_aa", 2, True),
]


@pytest.mark.parametrize(("name", "rank", "has_align"), RESIZES, ids=[name for name, *_ in RESIZES])
def test_resizing(name: str, rank: int, has_align: bool) -> None:
    op = getattr(aten, name)
    backward = getattr(aten, f"{name}_backward").default
    for before, after in SIZES[rank]:
        small, large = (4, 3)[: rank - 1], (7, 6)[: rank - 1]
        x, wanted = floats(2, 2, *small, before), [*large, after]
        for align in ([False], [True]) if has_align else ([],):
            assert_op(op.default, x, wanted, *align)
            assert_op(op.vec, x, wanted, *align, None)
            grad = torch.randn(2, 2, *wanted, dtype=torch.float64)
            assert_op(backward, grad, wanted, list(x.shape), *align)
    factors = [1.7, 2.3, 0.6][:rank]
    assert_op(op.vec, floats(1, 2, *(5, 6, 7)[:rank]), None, *([False] if has_align else []), factors)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("align", [False, True])
def test_sampling(mode: int, padding: int, align: bool) -> None:
    x, grid = floats(2, 3, 4, 5), 1.3 * floats(2, 3, 6, 2, seed=1)
    assert_op(aten.grid_sampler_2d.default, x, grid, mode, padding, align)
    backward = aten.grid_sampler_2d_backward.default
    assert_op(backward, floats(2, 3, 3, 6, seed=2), x, grid, mode, padding, align, [True, True])


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_sampling_in_three_dimensions(padding: int) -> None:
    x, grid = floats(2, 3, 4, 5, 3), 1.3 * floats(2, 3, 2, 2, 3, seed=1)
    for mode in (0, 1):
        assert_op(aten.grid_sampler_3d.default, x, grid, mode, padding, False)
        backward = aten.grid_sampler_3d_backward.default
        assert_op(backward, floats(2, 3, 3, 2, 2, seed=2), x, grid, mode, padding, False, [True, True])


@pytest.mark.parametrize("align", [False, True])
def test_affine_grids(align: bool) -> None:
    assert_op(aten.affine_grid_generator.default, floats(2, 2, 3), [2, 3, 4, 5], align)
    assert_op(aten.affine_grid_generator.default, floats(2, 3, 4), [2, 3, 4, 1, 5], align)


def test_sampling_where_there_is_one_element() -> None:
    for padding in (0, 1, 2):
        for align in (False, True):
            assert_op(aten.grid_sampler_2d.default, floats(1, 2, 1, 1), floats(1, 2, 2, 2), 0, padding, align)


@pytest.mark.parametrize(
    ("kernel", "dilation", "padding", "stride"),
    [((2, 3), (1, 1), (0, 0), (1, 1)), ((3, 2), (2, 1), (1, 2), (2, 3)), ((2, 2), (1, 1), (0, 1), (2, 2))],
)
def test_patches(kernel: Any, dilation: Any, padding: Any, stride: Any) -> None:
    for x in (floats(2, 3, 8, 9), floats(3, 8, 9)):
        assert_op(aten.im2col.default, x, kernel, dilation, padding, stride)
        columns = aten.im2col(x, kernel, dilation, padding, stride)
        assert_op(aten.col2im.default, torch.randn_like(columns), (8, 9), kernel, dilation, padding, stride)


@pytest.mark.parametrize("name", ["upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa"])
def test_pixels_are_rounded(name: str) -> None:
    """PyTorch weighs bytes in fixed point."""
    op = getattr(aten, name).default
    x = torch.randint(0, 256, (1, 3, 9, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    (mine,) = op_outputs(op, x, [5, 12], False)
    assert mine.dtype == np.uint8
    np.testing.assert_array_equal(mine, op(x, [5, 12], False).numpy())


def test_gradients_of_a_resized_image() -> None:
    def resize(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")

    def back(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        return torch.func.vjp(resize, x)[1](grad)[0]

    x, grad = floats(1, 2, 3, 4), floats(1, 2, 6, 8)
    np.testing.assert_allclose(lowered_outputs(back, x, grad)[0], back(x, grad).numpy(), atol=1e-12)
