"""ATen ops that see a tensor in another way or put tensors side by side, as single ops: tracing takes many apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aicf.errors import UnsupportedOp
from aicf.frontends.torch.ops import ROWS
from tests.support.torch_graphs import lowered_outputs
from tests.support.torch_op_outputs import op_outputs
from tests.support.torch_tensors import array_of

pytestmark = pytest.mark.peers

aten = torch.ops.aten


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(float(np.prod(shape)), dtype=torch.float64).reshape(shape) + 1


X = numbers(4, 5, 6)
CASES: list[tuple[str, tuple[Any, ...]]] = [
    ("flatten.using_ints", (X, 1, 2)),
    ("unflatten.int", (X, 2, [2, -1])),
    ("view_as.default", (X, numbers(20, 6))),
    ("reshape_as.default", (X, numbers(20, 6))),
    ("ravel.default", (X,)),
    ("reshape.default", (X, [2, -1, 3])),
    ("squeeze.dims", (numbers(1, 3, 1), [0, 2])),
    ("unsqueeze_copy.default", (X, -2)),
    ("expand_as.default", (numbers(4, 1, 6), X)),
    ("expand_copy.default", (numbers(5, 1), [4, -1, 6])),
    ("broadcast_to.default", (numbers(5, 1), [4, 5, 6])),
    ("permute_copy.default", (X, [-1, 0, 1])),
    ("transpose_copy.int", (X, 0, -1)),
    ("swapaxes.default", (X, 0, 1)),
    ("swapdims.default", (X, 0, 1)),
    ("t_copy.default", (numbers(3, 4),)),
    ("numpy_T.default", (X,)),
    ("mT.default", (X,)),
    ("adjoint.default", (X,)),
    ("movedim.int", (X, 0, 2)),
    ("movedim.intlist", (X, [2, 0], [0, 1])),
    ("moveaxis.intlist", (X, [0, -1], [-1, 1])),
    ("fliplr.default", (X,)),
    ("flipud.default", (X,)),
    ("roll.default", (X, [7])),
    ("roll.default", (X, [-1, 8], [0, 2])),
    *(("rot90.default", (X, k, [0, 2])) for k in range(-1, 4)),
    ("select_copy.int", (X, 1, -2)),
    ("slice_copy.Tensor", (X, 1, -4, 100, 2)),
    ("slice.Tensor", (X, 2, 1, -1, 3)),
    ("narrow.default", (X, 1, -3, 2)),
    ("narrow_copy.default", (X, 1, 1, 2)),
    ("split.Tensor", (X, 2, 1)),
    ("split.sizes", (X, [2, 0, 3], 1)),
    ("split_with_sizes_copy.default", (X, [2, 3], 1)),
    ("chunk.default", (X, 4, 2)),
    ("unsafe_chunk.default", (X, 2, 0)),
    ("unsafe_split.Tensor", (X, 4, 2)),
    ("tensor_split.sections", (X, 3, 1)),
    ("tensor_split.indices", (X, [1, 3], 2)),
    ("hsplit.int", (X, 5)),
    ("hsplit.array", (numbers(6), [2, 3])),
    ("vsplit.int", (X, 2)),
    ("dsplit.array", (X, [1, 4])),
    ("unbind_copy.int", (X, -2)),
    ("diagonal_copy.default", (X, -1, 2, 1)),
    ("linalg_diagonal.default", (X,)),
    ("diag.default", (numbers(3), -1)),
    ("diag.default", (numbers(3, 5), 1)),
    ("diag_embed.default", (numbers(2, 3), -1, 0, -1)),
    ("diagonal_scatter.default", (X, numbers(6, 3) * 1000, 2, 0, 1)),
    ("select_scatter.default", (X, numbers(4, 6) * 1000, 1, -1)),
    ("slice_scatter.default", (X, numbers(4, 2, 6) * 1000, 1, 1, 4, 2)),
    ("slice_scatter.default", (X, numbers(4, 5, 3) * 1000, 2, 0, None, 2)),
    ("slice_scatter.default", (X, numbers(4, 0, 6), 1, 2, 2)),
    ("unfold_copy.default", (X, 1, 3, 2)),
    ("as_strided_copy.default", (X, [3, 4], [2, 7], 5)),
    ("as_strided_copy.default", (X, [6, 2, 3], [1, 0, 6], 6)),
    ("as_strided_scatter.default", (X, numbers(3, 4) * 1000, [3, 4], [30, 7], 5)),
    ("view_copy.dtype", (X, torch.int64)),
    ("pixel_shuffle.default", (numbers(2, 8, 3, 4), 2)),
    ("pixel_unshuffle.default", (numbers(2, 3, 4, 6), 2)),
    ("channel_shuffle.default", (numbers(2, 6, 3, 4), 3)),
    ("tril.default", (X, 1)),
    ("triu.default", (X, -1)),
    ("trace.default", (numbers(3, 5),)),
    ("trace.default", (numbers(0, 5),)),
    ("diag.default", (numbers(0), -1)),
    ("bucketize.Tensor", (numbers(3), numbers(0))),
    ("hstack.default", ([numbers(3), numbers(0)],)),
    ("cat.default", ([X, numbers(4, 2, 6)], 1)),
    ("cat.default", ([numbers(0), X, numbers(4, 0, 6)], 1)),
    ("concat.default", ([X, X.int()], -1)),
    ("stack.default", ([X, X * 2], -1)),
    ("hstack.default", ([numbers(3), numbers(2)],)),
    ("vstack.default", ([numbers(3), numbers(2, 3)],)),
    ("dstack.default", ([numbers(3), numbers(3)],)),
    ("dstack.default", ([numbers(2, 3), numbers(2, 3, 2)],)),
    ("column_stack.default", ([numbers(3), numbers(3, 2)],)),
    ("block_diag.default", ([numbers(3), numbers(2, 2), numbers(0, 2), numbers()],)),
    ("repeat.default", (X, [2, 1, 3, 1])),
    ("tile.default", (X, [2])),
    ("repeat_interleave.self_int", (X, 3, 1)),
    ("repeat_interleave.self_int", (X, 2)),
    ("meshgrid.default", ([numbers(3), numbers(2), numbers(4)],)),
    ("broadcast_tensors.default", ([numbers(3, 1), numbers(4)],)),
    ("pad_sequence.default", ([numbers(3, 2), numbers(5, 2)], True, 7.0)),
    ("pad_sequence.default", ([numbers(3), numbers(5)], False, 7.0, "left")),
    ("isin.Tensor_Tensor", (X, numbers(2, 9))),
    ("isin.Tensor_Scalar", (X, 7)),
    ("isin.Scalar_Tensor", (7, X)),
    ("take_along_dim.default", (X, torch.randint(0, 5, (4, 3, 1)), 1)),
    ("take_along_dim.default", (X, torch.tensor([1, 119, 7]))),
    ("linalg_cross.default", (numbers(3, 4, 3), numbers(1, 4, 3).flip(1))),
    ("cross.default", (numbers(4, 3, 2), numbers(4, 3, 2).flip(0))),
]


@pytest.mark.parametrize(("overload", "arguments"), CASES, ids=[overload for overload, _ in CASES])
def test_op(overload: str, arguments: tuple[Any, ...]) -> None:
    packet, _, name = overload.partition(".")
    op = getattr(getattr(aten, packet), name)
    wanted = op(*arguments)
    theirs = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    for mine, other in zip(op_outputs(op, *arguments), theirs, strict=True):
        assert mine.shape == tuple(other.shape)
        np.testing.assert_allclose(mine, array_of(other.contiguous()), rtol=1e-12)


def test_named_arguments() -> None:
    parts = [numbers(3), numbers(2)]
    for mine, other in zip(
        op_outputs(aten.meshgrid.indexing, parts, indexing="xy"),
        torch.meshgrid(parts, indexing="xy"),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, other.numpy())
    for size in (3, 30):
        x = X.remainder(7) > 4
        (found,) = op_outputs(aten.nonzero_static.default, x[:1], size=size, fill_value=-3)
        np.testing.assert_array_equal(found, torch.nonzero_static(x[:1], size=size, fill_value=-3).numpy())
    repeats = torch.tensor([2, 0, 3])
    (found,) = op_outputs(aten.repeat_interleave.self_Tensor, numbers(2, 3), repeats, 1, output_size=5)
    np.testing.assert_array_equal(found, numbers(2, 3).repeat_interleave(repeats, 1).numpy())


def test_strides_are_those_of_memory() -> None:
    """The order in memory counts, not that of the dimensions."""

    def turned(x: torch.Tensor) -> torch.Tensor:
        return (x.transpose(0, 2)).as_strided([3, 4], [7, 2], 5) * 1

    def of_part(x: torch.Tensor) -> torch.Tensor:
        return x[1:].as_strided([2, 3], [30, 2], 31) * 1

    for fn in (turned, of_part):
        np.testing.assert_array_equal(lowered_outputs(fn, X)[0], fn(X).numpy())
    with pytest.raises(UnsupportedOp, match="has gaps in memory"):
        lowered_outputs(lambda x: x[:, 1:3].as_strided([2, 3], [3, 1]) * 1, X)
    with pytest.raises(UnsupportedOp, match="reaches beyond"):
        lowered_outputs(lambda x: x[1:].as_strided([2, 3], [3, 1], 0) * 1, X)


def test_writes_give_what_is_written() -> None:
    """In the type and shape of what is written to; where a part of it is read by others, they are refused."""
    x, y = numbers(2, 3), numbers(3).int()

    def written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x).copy_(y) * 2

    def in_parts(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, [1, 1], mode="circular") * 2

    np.testing.assert_array_equal(lowered_outputs(written, x, y)[0], written(x, y).numpy())
    with pytest.raises(UnsupportedOp, match="has other readers"):
        lowered_outputs(in_parts, x)


def test_refuses_bits_of_another_size() -> None:
    with pytest.raises(UnsupportedOp, match="another size"):
        op_outputs(aten.view_copy.dtype, X, torch.int32)


def test_every_row_is_of_an_op() -> None:
    for overload in ROWS:
        if overload.count(".") != 1:
            continue
        packet, _, name = overload.partition(".")
        assert name in getattr(aten, packet).overloads(), overload
