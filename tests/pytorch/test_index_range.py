"""Indices and labels out of range are errors before anything runs, where eager mode raises too."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aicf.pytorch
from aicf.errors import InputMismatch
from tests.support.pytorch_backend import assert_same, compiled, random

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:index_reduce:UserWarning"),
]

TABLE, ROWS, SCORES = random(10, 4), random(3, 5, seed=1), random(3, 4, seed=2)
CUBE, UPDATES = random(3, 4, 5, seed=3), random(3, 4, seed=4)
BAGS = torch.tensor([0, 2])


@pytest.mark.parametrize(
    ("function", "good", "bad", "told"),
    [
        (lambda i: F.embedding(i, TABLE), [0, 9, 4], [1, 1000000, 2], "index 1000000 .* 0 to 9"),
        (lambda i: F.embedding(i, TABLE), [0, 9, 4], [1, -1, 2], "index -1 .* 0 to 9"),
        (lambda i: F.embedding(i.reshape(1, 3).int(), TABLE), [0, 9, 4], [1, 10, 2], "index 10 .* 0 to 9"),
        (lambda i: ROWS.gather(1, i.unsqueeze(1)), [0, 4, 1], [0, 5, 1], "index 5 .* 0 to 4"),
        (lambda i: ROWS.index_select(-1, i), [0, 4, 1], [0, 5, 1], "index 5 .* 0 to 4"),
        (lambda i: F.cross_entropy(SCORES, i), [0, 3, -100], [0, 4, -100], "index 4 .* 0 to 3"),
        (lambda i: F.nll_loss(SCORES, i, ignore_index=2), [0, 3, 2], [0, -100, 2], "index -100 .* 0 to 3"),
        (lambda i: F.multi_margin_loss(SCORES, i), [0, 3, 1], [0, 4, 1], "index 4 .* 0 to 3"),
        (lambda i: F.embedding_bag(i, TABLE, BAGS), [0, 9, 4], [0, 10, 4], "index 10 .* 0 to 9"),
        (lambda i: F.embedding_bag(i, TABLE, BAGS, mode="max"), [0, 9, 4], [0, -1, 4], "index -1 .* 0 to 9"),
        (lambda i: TABLE[i], [0, -10, 9], [0, -11, 9], "index.Tensor takes -10 to 9"),
        (lambda i: CUBE[:, i], [0, -4, 3], [0, 4, 3], "index 4 .* -4 to 3"),
        (lambda i: CUBE[:, torch.tensor([0, 1, 3]), i], [0, -5, 4], [0, 5, 4], "index 5 .* -5 to 4"),
        (lambda i: CUBE[i.view(3, 1), None, i.int()], [0, -3, 2], [0, 3, 2], "index 3 .* -3 to 2"),
        (lambda i: torch.take(TABLE, i), [0, -40, 39], [0, 40, 39], "index 40 .* -40 to 39"),
        (lambda i: TABLE.index_put((i,), UPDATES), [0, -1, 8], [0, 10, 8], "index 10 .* -10 to 9"),
        (lambda i: TABLE.index_put((i,), UPDATES, True), [0, 0, 8], [0, -11, 8], "index -11 .* -10 to 9"),
        (lambda i: TABLE.put(i, UPDATES[:, 0]), [0, -40, 39], [0, -41, 39], "index -41 .* -40 to 39"),
        (lambda i: TABLE.index_add(0, i, UPDATES), [0, 9, 9], [0, 10, 9], "index 10 .* 0 to 9"),
        (lambda i: TABLE.index_copy(0, i, UPDATES), [0, 9, 8], [0, -1, 9], "index -1 .* 0 to 9"),
        (lambda i: TABLE.index_fill(0, i, 7.0), [0, -10, 8], [0, 10, 9], "index 10 .* -10 to 9"),
        (lambda i: TABLE.index_reduce(0, i, UPDATES, "amax"), [0, 9, 9], [0, 10, 9], "index 10 .* 0 to 9"),
        (lambda i: TABLE.scatter(0, i.view(3, 1), UPDATES), [0, 9, 8], [0, 10, 8], "index 10 .* 0 to 9"),
        (lambda i: TABLE.scatter(1, i.view(3, 1), 7.0), [0, 3, 1], [0, -1, 1], "index -1 .* 0 to 3"),
        (lambda i: TABLE.scatter_add(0, i.view(3, 1), UPDATES), [0, 9, 9], [0, 10, 9], "index 10 .* 0 to 9"),
        (
            lambda i: TABLE.scatter_reduce(0, i[:, None], UPDATES, "amax"),
            *([0, 9, 9], [0, 10, 9], "index 10 .* 0 to 9"),
        ),
    ],
)
def test_an_index_out_of_range(
    function: Callable[[Tensor], Tensor], good: list[int], bad: list[int], told: str
) -> None:
    ours = compiled(function)
    assert_same(ours(torch.tensor(good)), function(torch.tensor(good)), 1e-9)
    with pytest.raises((IndexError, RuntimeError)):
        function(torch.tensor(bad))
    with pytest.raises(InputMismatch, match=told):
        ours(torch.tensor(bad))
    assert_same(ours(torch.tensor(good)), function(torch.tensor(good)), 1e-9)


def test_the_line_of_the_user() -> None:
    with pytest.raises(InputMismatch) as caught:
        compiled(lambda i: F.embedding(i, TABLE))(torch.tensor([10]))
    assert "test_index_range.py:" in str(caught.value.location)


def test_an_index_that_is_spread_over_a_dimension() -> None:
    """Eager mode reads anything there."""
    ours = compiled(lambda i: TABLE.gather(0, i[:, None].expand(3, 4)))
    good = torch.tensor([0, 9, 4])
    assert_same(ours(good), TABLE[good], 1e-9)
    with pytest.raises(InputMismatch, match="index 10 is out of range: aten.gather.default takes 0 to 9"):
        ours(torch.tensor([0, 10, 4]))


def test_the_line_of_a_write() -> None:
    def write(x: Tensor, i: Tensor) -> Tensor:
        x = x.clone()
        x[i] = 0.0
        return x

    with pytest.raises(InputMismatch, match="index 10 .* -10 to 9") as caught:
        compiled(write)(TABLE, torch.tensor([3, 10]))
    assert "test_index_range.py:" in str(caught.value.location)


def test_masks_are_no_indices() -> None:
    def write(x: Tensor, mask: Tensor) -> Tensor:
        return x.index_put((mask,), torch.tensor(1.5, dtype=torch.float64))

    mask = TABLE[:, 0] > 0
    assert_same(compiled(write)(TABLE, mask), write(TABLE, mask), 0)


def test_graphs_in_eager_mode_are_checked_by_pytorch() -> None:
    def run(x: Tensor, i: Tensor) -> Tensor:
        return x[i.nonzero()[:, 0]] + x[i].sum()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        ours = compiled(run, fallback="eager")
        assert_same(ours(TABLE, torch.tensor([3, 0, -10])), run(TABLE, torch.tensor([3, 0, -10])), 1e-9)


FAR = torch.tensor([0, 1 << 40, -(1 << 40), 9, -(1 << 62)])


def test_computed_indices_far_out_of_range_touch_no_other_memory() -> None:
    """They are not checked: reads give the nearest row, and updates are dropped."""
    nearest = FAR.clamp(0, 9)
    assert_same(compiled(lambda i: TABLE[i - 1])(FAR + 1), TABLE[nearest], 0)
    assert_same(compiled(lambda i: F.embedding(i - 1, TABLE))(FAR + 1), TABLE[nearest], 0)
    updates, kept = random(5, 4, seed=5), torch.tensor([0, 9])
    wanted = TABLE.index_add(0, kept, updates[[0, 3]])
    assert_same(compiled(lambda i: TABLE.index_put((i - 1,), updates, True))(FAR + 1), wanted, 1e-9)
    assert_same(compiled(lambda i: TABLE.index_add(0, i - 1, updates))(FAR + 1), wanted, 1e-9)
    wanted = TABLE.index_copy(0, kept, updates[[0, 3]])
    assert_same(compiled(lambda i: TABLE.index_put((i - 1,), updates))(FAR + 1), wanted, 0)
    ours = compiled(lambda i: TABLE.scatter(0, (i - 1)[:, None].expand(5, 4), updates))
    assert_same(ours(FAR + 1), wanted, 0)


def test_computed_indices_of_several_dimensions_stay_inside() -> None:
    """Which elements they reach is not said."""
    found = compiled(lambda i: CUBE[i - 1, :, i + 1])(FAR)
    assert torch.isin(found, CUBE).all()
    found = compiled(lambda i: CUBE.index_put((i - 1, i + 1), torch.full((5, 5), 7.0).double()))(FAR)
    assert torch.isin(found, torch.cat([CUBE.flatten(), torch.tensor([7.0])])).all()


def test_a_size_that_changes() -> None:
    """The table of each call counts."""
    ours = compiled(F.embedding, dynamic=True)
    for rows in (5, 8):
        table = random(rows, 4)
        assert_same(ours(torch.tensor([rows - 1, 0]), table), table[[rows - 1, 0]], 1e-9)
        with pytest.raises(InputMismatch, match=f"index {rows} is out of range: .* takes 0 to {rows - 1}"):
            ours(torch.tensor([0, rows]), table)


@pytest.mark.parametrize("gradients", ["aicf", "pytorch"])
def test_a_label_out_of_range_changes_nothing(gradients: str) -> None:
    model = nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(16, 4)).double()
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    step = aicf.pytorch.train_step(model, F.cross_entropy, optimizer, options={"gradients": gradients})
    words, labels = torch.tensor([[0, 9], [3, 4]]), torch.tensor([3, -100])
    for bad in ((words + 1, labels), (words, labels + 1)):
        with pytest.raises(InputMismatch, match="is out of range"):
            step(*bad)
    assert_same(model.state_dict(), before, 0)
    assert step.steps == 0
    expected = F.cross_entropy(model(words), labels).detach()
    assert_same(step(words, labels), expected, 1e-9)
