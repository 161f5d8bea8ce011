"""ATen ops that read and write at indices, beside PyTorch: cases that its own samples of ops lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from aicf.errors import UnsupportedOp
from tests.support.torch_graphs import lowered_outputs
from tests.support.torch_op_outputs import op_outputs, op_outputs_on
from tests.support.torch_tensors import array_of

pytestmark = pytest.mark.peers

aten = torch.ops.aten
Case = tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]


def floats(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def below(size: int, *shape: int, seed: int = 0, negative: bool = False) -> torch.Tensor:
    low = -size if negative else 0
    return torch.randint(low, size, shape, generator=torch.Generator().manual_seed(seed))


def holds(*shape: int, seed: int = 0) -> torch.Tensor:
    return floats(*shape, seed=seed) > 0


def assert_same(found: list[Any], wanted: Any) -> None:
    theirs = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    for mine, other in zip(found, theirs, strict=True):
        np.testing.assert_allclose(mine, array_of(other), rtol=1e-9, atol=1e-9)


X = floats(4, 5, 6)
INDEXING: list[Case] = [
    ("one", lambda x, i: x[i], (X, below(4, 3, negative=True))),
    ("of i32", lambda x, i: x[:, i], (X, below(5, 2, 2).int())),
    ("the second", lambda x, i: x[:, i], (X, below(5, 2, 3, negative=True))),
    ("neighbours", lambda x, i, j: x[i, j], (X, below(4, 3, negative=True), below(5, 3, negative=True))),
    ("neighbours behind", lambda x, i, j: x[:, i, j], (X, below(5, 2, 1), below(6, 3, seed=1))),
    ("apart", lambda x, i, j: x[i, :, j], (X, below(4, 3), below(6, 3, negative=True))),
    ("apart, of two dimensions", lambda x, i, j: x[i, :, j], (X, below(4, 2, 1), below(6, 1, 3))),
    ("all", lambda x, i, j, k: x[i, j, k], (X, below(4, 7), below(5, 7), below(6, 1))),
    ("with a new dimension", lambda x, i: x[None, :, i], (X, below(5, 3))),
]


@pytest.mark.parametrize(
    ("fn", "tensors"), [case[1:] for case in INDEXING], ids=[case[0] for case in INDEXING]
)
def test_index(fn: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> None:
    assert_same(lowered_outputs(fn, *tensors), fn(*tensors))


def put(*indices: Any, accumulate: bool = False) -> Callable[..., Any]:
    """`index_put` of a tensor and values; indices are tensors, or numbers of arguments after those."""

    def apply(x: torch.Tensor, values: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        chosen = [None if index is None else given[index] for index in indices]
        return aten.index_put(x, chosen, values, accumulate)

    return apply


def test_numbers_that_the_graph_holds() -> None:
    def filled(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[:, 1] = 3.0
        return y * 2

    np.testing.assert_array_equal(lowered_outputs(filled, X)[0], filled(X).numpy())


PUTS: list[Case] = [
    ("rows", put(0), (X, floats(3, 5, 6), torch.tensor([2, -1, 0]))),
    ("rows, one value", put(0), (X, floats(), torch.tensor([2, -1, 0]))),
    ("apart", put(0, None, 1), (X, floats(2, 5), torch.tensor([1, 3]), torch.tensor([-1, 2]))),
    ("behind", put(None, 0, 1), (X, floats(4, 2), torch.tensor([1, 3]), torch.tensor([-1, 2]))),
    ("added", put(0, accumulate=True), (X, floats(6, 5, 6), below(4, 6, negative=True))),
    ("added behind", put(None, 0, 1, accumulate=True), (X, floats(4, 9), below(5, 9), below(6, 9))),
    ("added apart", put(0, None, 1, accumulate=True), (X, floats(7, 1), below(4, 7), below(6, 7))),
    ("of half", put(0, accumulate=True), (floats(3, 2).half(), floats(4, 2).half(), below(3, 4))),
    ("of truth", put(0, accumulate=True), (holds(3, 2), holds(4, 2, seed=1), below(3, 4))),
    ("where all hold", put(0), (X, floats(), holds(4, 5, 6))),
    ("where rows hold", put(0), (X, floats(6), holds(4, 5))),
    ("where columns hold", put(None, None, 0), (X, floats(4, 5, 1), holds(6))),
    ("where the middle holds", put(None, 0), (X, floats(4, 1, 6), holds(5))),
    ("added where some hold", put(0, accumulate=True), (X, floats(1, 6), holds(4, 5))),
    ("at no index", put(0), (X, floats(1, 1), torch.zeros(0, dtype=torch.int64))),
]


@pytest.mark.parametrize(("fn", "tensors"), [case[1:] for case in PUTS], ids=[case[0] for case in PUTS])
def test_index_put(fn: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> None:
    wanted = fn(*tensors)
    for mine in lowered_outputs(fn, *tensors):
        np.testing.assert_allclose(
            np.asarray(mine, np.float64),
            wanted.double().numpy(),
            atol=2e-3 if wanted.dtype == torch.half else 1e-12,
        )


def test_values_of_a_mask_come_in_order() -> None:
    mask = holds(4, 5)
    values = floats(int(mask.sum()), 6)
    assert_same(op_outputs(aten.index_put.default, X, [mask], values), aten.index_put(X, [mask], values))
    columns = holds(6, seed=3)
    behind = floats(4, 5, int(columns.sum()))
    assert_same(
        op_outputs(aten.index_put.default, X, [None, None, columns], behind),
        aten.index_put(X, [None, None, columns], behind),
    )


def test_refuses_sizes_that_follow_from_elements() -> None:
    with pytest.raises(UnsupportedOp):
        lowered_outputs(lambda x, m: x[m], X, holds(4, 5))
    with pytest.raises(UnsupportedOp, match="beside other indices"):
        op_outputs(aten.index_put.default, X, [holds(4), below(5, int(holds(4).sum()))], floats())


BACKWARD: list[tuple[Any, tuple[Any, ...]]] = [
    (aten.embedding_dense_backward.default, (floats(3, 4, 5), below(7, 3, 4), 7, -1, False)),
    (aten.embedding_dense_backward.default, (floats(3, 4, 5), below(4, 3, 4), 7, 2, False)),
    (aten.embedding_dense_backward.default, (floats(12, 5), below(4, 12), 4, 0, True)),
    (aten.masked_scatter_backward.default, (floats(3, 4), holds(3, 4), [3, 4])),
    (aten.select_backward.default, (floats(4, 6), [4, 5, 6], 1, -2)),
    (aten.slice_backward.default, (floats(4, 2, 6), [4, 5, 6], 1, 1, 4, 2)),
    (aten.slice_backward.default, (floats(4, 3, 6), [4, 5, 6], 1, 0, 9223372036854775807, 2)),
    (aten.slice_backward.default, (floats(4, 2, 6), [4, 5, 6], 1, -2, 9223372036854775807, 1)),
    (aten.slice_backward.default, (floats(0, 5), [4, 5], 0, 2, 2, 1)),
    (aten.diagonal_backward.default, (floats(3, 4), [4, 3, 5], 1, 0, 2)),
    (aten.diagonal_backward.default, (floats(4, 2), [4, 4, 3], -2, 1, 2)),
    (aten.unfold_backward.default, (floats(2, 3, 5, 4), [2, 9, 5], 1, 4, 2)),
    (aten.unfold_backward.default, (floats(2, 2, 3), [2, 9], 1, 3, 5)),
]


@pytest.mark.parametrize(("op", "arguments"), BACKWARD, ids=[str(case[0]) for case in BACKWARD])
def test_backward(op: Any, arguments: tuple[Any, ...]) -> None:
    assert_same(op_outputs(op, *arguments), op(*arguments))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("include_last", [False, True])
def test_bags(mode: str, padding: int | None, include_last: bool) -> None:
    weight, indices = floats(6, 3), below(6, 9)
    offsets = torch.tensor([0, 2, 2, 7, 9]) if include_last else torch.tensor([0, 2, 2, 7])

    def plain(weight: torch.Tensor, indices: torch.Tensor, bags: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding_bag(
            indices, weight, bags, mode=mode, padding_idx=padding, include_last_offset=include_last
        )

    assert_same(lowered_outputs(plain, weight, indices, offsets), plain(weight, indices, offsets))


@pytest.mark.parametrize("mode", [1, 2])
def test_all_that_is_known_of_bags(mode: int) -> None:
    """Bags of the indices, sizes, and the indices of maxima, or the sizes again; one bag is empty."""
    arguments = (floats(6, 3), below(6, 9), torch.tensor([0, 2, 2, 7]), False, mode)
    op = aten._embedding_bag.default
    assert_same(op_outputs(op, *arguments), op(*arguments))


@pytest.mark.parametrize("count", [9, 0])
@pytest.mark.parametrize("padding", [-1, 2])
def test_a_maximum_of_an_empty_bag(count: int, padding: int) -> None:
    """It has no index: eager mode says 0 for that on a CPU, and -1 on a GPU."""
    offsets = torch.tensor([0, 2, 2, 7]) if count else torch.tensor([0, 0, 0, 0])
    arguments = (floats(6, 3), below(6, count), offsets, False, 2, False, None, False, padding)
    op = aten._embedding_bag.default
    eager = op(*arguments)
    is_empty = (eager[2] == 0)[:, None]
    assert is_empty.any()
    assert_same(op_outputs_on("cpu", op, *arguments), eager)
    on_gpu = (*eager[:3], torch.where(is_empty, -1, eager[3]))
    assert_same(op_outputs_on("cuda", op, *arguments), on_gpu)
    if not count:
        return
    backward = aten._embedding_bag_dense_backward.default
    grad, indices = floats(4, 3, seed=1), arguments[1]
    rest = (6, False, 2, None, padding)
    wanted = backward(grad, indices, *eager[1:], *rest)
    assert_same(op_outputs_on("cuda", backward, grad, indices, *on_gpu[1:], *rest), wanted)


def test_bags_pass_gradients_back() -> None:
    weight, indices, bag = floats(6, 3), below(6, 9), torch.tensor([0, 0, 1, 1, 1, 1, 3, 3, 3])
    grad, sizes, none = floats(4, 3, seed=1), torch.tensor([2, 4, 0, 3]), torch.zeros(0, dtype=torch.int64)
    op = aten._embedding_bag_dense_backward.default
    for mode, scales in ((0, None), (1, None), (0, floats(9, seed=2))):
        arguments = (grad, indices, bag, sizes, none, 6, False, mode, scales, -1)
        assert_same(op_outputs(op, *arguments), op(*arguments))
    largest = below(6, 4, 3)
    arguments = (grad, indices, bag, sizes, largest, 6, False, 2, None, -1)
    assert_same(op_outputs(op, *arguments), op(*arguments))
    scale = aten._embedding_bag_per_sample_weights_backward.default
    offsets = torch.tensor([0, 2, 6, 6])
    arguments = (grad, weight, indices, offsets, bag, 0, -1)
    assert_same(op_outputs(scale, *arguments), scale(*arguments))


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, float("inf")])
def test_rows_are_scaled_down(order: float) -> None:
    weight, indices = floats(6, 3), torch.tensor([[0, 2], [2, 5]])
    assert_same(
        op_outputs(aten.embedding_renorm.default, weight, indices, 0.7, order),
        aten.embedding_renorm(weight, indices, 0.7, order),
    )
    assert_same(op_outputs(aten.renorm.default, X, order, 1, 0.7), torch.renorm(X, order, 1, 0.7))


@pytest.mark.parametrize("size", [5, 300])
def test_searches_as_pytorch_does_with_nan(size: int) -> None:
    rows = floats(size).sort().values
    values = torch.cat([floats(20, seed=1), rows[:3], torch.tensor([np.nan, np.inf, -np.inf])])
    for right in (False, True):

        def search(rows: torch.Tensor, values: torch.Tensor, right: bool = right) -> torch.Tensor:
            return torch.searchsorted(rows, values, right=right)

        assert_same(lowered_outputs(search, rows, values), search(rows, values))


def test_sorted_rows_of_many_elements() -> None:
    rows, values = floats(2, 3, 100).sort(-1).values, floats(2, 3, 7, seed=1)
    assert_same(lowered_outputs(torch.searchsorted, rows, values), torch.searchsorted(rows, values))
