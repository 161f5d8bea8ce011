"""Arguments and results as PyTorch has them: views, shared memory, any order in memory, no elements, no tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.pytorch_backend import assert_same, compiled, random

pytestmark = pytest.mark.peers


def test_results_are_not_overwritten_by_the_next_call() -> None:
    ours = compiled(lambda x: x * 2)
    first = ours(torch.ones(8))
    second = ours(torch.zeros(8))
    assert_same([first, second], [torch.full((8,), 2.0), torch.zeros(8)])


def test_static_results_are_overwritten_by_the_next_call() -> None:
    ours = compiled(lambda x: (x * 2, x + 1), static_outputs=True)
    first = ours(torch.ones(8))
    second = ours(torch.zeros(8))
    for one, other in zip(first, second, strict=True):
        assert one.data_ptr() == other.data_ptr()
    assert_same(second, (torch.zeros(8), torch.ones(8)))


def test_static_results_do_not_touch_what_is_kept_for_gradients() -> None:
    ours = compiled(lambda x: x.exp().square(), static_outputs=True)
    one, other = torch.ones(4, requires_grad=True), torch.zeros(4, requires_grad=True)
    first, second = ours(one), ours(other)
    (first.sum() + second.sum()).backward()
    assert_same(one.grad, 2 * torch.full((4,), 2.0).exp(), 1e-5)
    assert_same(other.grad, torch.full((4,), 2.0), 1e-5)


def test_results_that_are_arguments() -> None:
    x, y = random(3), random(3, seed=1)
    a, b, c = compiled(lambda x, y: (x, x + y, y))(x, y)
    assert a is x
    assert c is y
    assert_same(b, x + y)


def test_results_that_are_views_of_arguments() -> None:
    x = random(3, 4)
    row, turned, total = compiled(lambda x: (x[1:, ::2], x.t(), x.sum()))(x)
    assert row.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    x[1, 0] = 7
    assert_same(row, x[1:, ::2])
    assert_same(turned, x.t())
    assert total != x.sum()


def test_only_views_are_given() -> None:
    x = random(3, 4)
    assert_same(compiled(lambda x: (x.t(), x[0]))(x), (x.t(), x[0]))


def test_one_tensor_twice_in_the_result() -> None:
    def twice(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * 3
        return y, y, y.view(-1)

    a, b, c = compiled(twice)(random(2, 3))
    assert a is b
    assert a.data_ptr() == c.data_ptr()
    assert_same((a, b, c), twice(random(2, 3)))


def test_results_that_are_views_of_one_another() -> None:
    def views(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.exp()
        return y[:1], y.t()

    found = compiled(views)(random(2, 3))
    assert_same(found, views(random(2, 3)))
    found[0].zero_()
    assert_same(found[1][:, 0], torch.zeros(3, dtype=torch.float64))


def test_parts_of_a_result_share_memory() -> None:
    first, rest, turned = compiled(lambda x: (*x.exp().t().split([1, 2]), x.exp().t()))(random(2, 3))
    assert_same(torch.cat([first, rest]), random(2, 3).exp().t())
    assert first.stride() == (1, 3)
    assert first.data_ptr() + 8 == rest.data_ptr()
    assert_same(turned, random(2, 3).exp().t())


def test_views_of_a_result_with_gradients() -> None:
    ours, theirs = random(2, 3).requires_grad_(), random(2, 3).requires_grad_()
    for run, x in ((compiled(lambda x: (x.exp()[:1], x.exp().t(), x[0])), ours), (None, theirs)):
        first, turned, row = run(x) if run else (x.exp()[:1], x.exp().t(), x[0])
        (first.sum() * turned.square().sum() + row.sum()).backward()
    assert_same(ours.grad, theirs.grad, 1e-9)


def test_results_that_are_no_tensors() -> None:
    def mixed(x: Tensor) -> dict[str, Any]:
        return {"none": None, "size": x.shape[0], "text": "a", "sum": x.sum(), "list": [x + 1, 2.5, True]}

    assert_same(compiled(mixed)(random(3)), mixed(random(3)))
    assert_same(compiled(mixed, dynamic=True)(random(5)), mixed(random(5)))


FORMS: dict[str, Callable[[], Tensor]] = {
    "slice": lambda: random(6, 10)[::2, 1:9:2],
    "expanded": lambda: random(1, 4).expand(3, 4),
    "expanded number": lambda: random(1).expand(3, 4),
    "transposed": lambda: random(4, 3).t(),
    "offset": lambda: random(13)[1:].view(3, 4),
    "overlapping": lambda: random(6).as_strided((3, 4), (1, 1)),
    "column of one": lambda: random(3, 4)[:, :1].expand(3, 4),
}


@pytest.mark.parametrize("form", FORMS)
def test_matrices_in_any_form(form: str) -> None:
    x = FORMS[form]()
    assert_same(compiled(lambda x: x @ x.t() + x.sum(0)[0])(x), x @ x.t() + x.sum(0)[0], 1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_matrices_in_any_form(form: str) -> None:
    ours, theirs = FORMS[form]().requires_grad_(), FORMS[form]().requires_grad_()
    compiled(lambda x: (x * x).sin().sum())(ours).backward()
    (theirs * theirs).sin().sum().backward()
    assert_same(ours.grad, theirs.grad, 1e-9)


def test_channels_last() -> None:
    model = torch.nn.Conv2d(3, 4, 3, padding=1).double().to(memory_format=torch.channels_last)
    x = random(2, 3, 8, 8).to(memory_format=torch.channels_last)
    found = compiled(model)(x)
    assert_same(found, model(x), 1e-9)
    assert found.stride() == model(x).stride()


def test_one_program_for_images_of_both_orders() -> None:
    model = torch.nn.Conv2d(3, 4, 3).double()
    ours, x = compiled(model), random(2, 3, 8, 8)
    for form in (torch.contiguous_format, torch.channels_last, torch.contiguous_format):
        assert_same(ours(x.to(memory_format=form)), model(x), 1e-9)


def test_permuted_arguments_give_permuted_results() -> None:
    x = random(2, 3, 4).permute(2, 0, 1)
    found = compiled(lambda x: x.exp())(x)
    assert_same(found, x.exp(), 1e-9)
    assert found.stride() == x.exp().stride()


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0)])
def test_no_elements(shape: tuple[int, ...]) -> None:
    def run(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x * 2, x.sum(), torch.cat([x, x])

    x = random(*shape)
    assert_same(compiled(run)(x), run(x))


def test_a_batch_without_rows() -> None:
    model = torch.nn.Linear(4, 3)
    x = torch.zeros(0, 4)
    assert compiled(model)(x).shape == (0, 3)


def test_arguments_that_share_memory() -> None:
    base = random(8)
    one, other = base[:6], base[2:]
    assert_same(compiled(lambda x, y: x * y)(one, other), one * other)
    assert_same(compiled(lambda x, y: x * y)(base, base), base * base)


def test_a_write_to_an_argument_that_shares_memory() -> None:
    def write(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return y * 2

    ours, theirs = random(8), random(8)
    assert_same(compiled(write)(ours[:6], ours[2:]), write(theirs[:6], theirs[2:]))
    assert_same(ours, theirs)


def test_writes_to_views_of_arguments() -> None:
    def write(x: Tensor) -> Tensor:
        x[0].mul_(2)
        x.t()[1] = 5
        return x.sum()

    ours, theirs = random(3, 4), random(3, 4)
    assert_same(compiled(write)(ours), write(theirs), 1e-9)
    assert_same(ours, theirs)


def test_a_write_to_a_strided_argument() -> None:
    def write(x: Tensor) -> Tensor:
        x.mul_(3)
        return x + 1

    ours, theirs = random(6, 8), random(6, 8)
    assert_same(compiled(write)(ours[::2, 1::2]), write(theirs[::2, 1::2]))
    assert_same(ours, theirs)


def test_a_write_counts_as_one_for_autograd() -> None:
    def write(x: Tensor) -> Tensor:
        x.mul_(3)
        return x + 1

    x = random(3)
    version = x._version
    compiled(write)(x)
    assert x._version > version


def test_numbers_as_arguments() -> None:
    ours = compiled(lambda x, n, f, b: x * n + f if b else x)
    x = random(4)
    for n, f, b in [(2, 0.5, True), (3, 0.25, True), (4, -1.5, True), (4, 1.0, False)]:
        assert_same(ours(x, n, f, b), x * n + f if b else x)


def test_a_number_in_a_tensor() -> None:
    x = random(4)
    assert_same(compiled(lambda x, s: x * s)(x, torch.tensor(2.5)), x * 2.5)


def test_arguments_in_containers() -> None:
    def run(data: dict[str, Any]) -> list[Tensor]:
        return [data["a"] + data["b"][0], data["b"][1] * 2]

    data = {"a": random(3), "b": (random(3), random(2))}
    assert_same(compiled(run)(data), run(data))


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float16, torch.bfloat16]
)
def test_element_types_of_arguments(dtype: torch.dtype) -> None:
    x = (random(12) * 3).abs().to(dtype)
    assert_same(compiled(lambda x: torch.where(x > 0, x, x + x))(x), torch.where(x > 0, x, x + x))


def test_a_changed_argument_as_the_result() -> None:
    x = random(4)
    found = compiled(lambda x: x.add_(1))(x)
    assert found is x
    assert_same(x, random(4) + 1)


def test_a_view_of_a_changed_argument_as_the_result() -> None:
    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        x.mul_(2)
        return x[1:], x.sum()

    ours, theirs = random(4), random(4)
    found = compiled(run)(ours)
    assert_same(found, run(theirs))
    assert_same(ours, theirs)
    ours.zero_()
    assert_same(found[0], torch.zeros(3, dtype=torch.float64))


def test_a_write_to_images_of_channels_last() -> None:
    def run(x: Tensor) -> Tensor:
        x.add_(torch.arange(3.0, dtype=torch.float64)[:, None, None])
        return x.mean((2, 3))

    ours = random(2, 3, 4, 4).to(memory_format=torch.channels_last)
    theirs, steps = ours.clone(), ours.stride()
    assert_same(compiled(run)(ours), run(theirs), 1e-9)
    assert_same(ours, theirs)
    assert ours.stride() == steps


def test_a_write_with_gradients() -> None:
    def run(x: Tensor) -> Tensor:
        y = x * 2
        y[0] = 3
        y.add_(x)
        return y.square().sum()

    ours, theirs = random(4).requires_grad_(), random(4).requires_grad_()
    compiled(run)(ours).backward()
    run(theirs).backward()
    assert_same(ours.grad, theirs.grad, 1e-9)


def test_writes_to_two_arguments_that_share_memory() -> None:
    def run(x: Tensor, y: Tensor) -> None:
        x.add_(1)
        y.mul_(2)

    ours, theirs = random(8), random(8)
    compiled(run)(ours[:5], ours[3:])
    run(theirs[:5], theirs[3:])
    assert_same(ours, theirs)


def test_results_of_many_forms_with_static_memory() -> None:
    def run(x: Tensor) -> tuple[Tensor, ...]:
        y = x.exp()
        return y, y.t(), x, y[:1], y + 1

    ours = compiled(run, static_outputs=True, dynamic=True)
    for rows in (2, 3, 2):
        assert_same(ours(random(rows, 4)), run(random(rows, 4)), 1e-9)


def test_static_results_are_not_written_by_programs_of_other_sizes() -> None:
    ours = compiled(lambda x: x * 2, static_outputs=True, dynamic=True)
    first = ours(torch.ones(4))
    ours(torch.zeros(5))
    assert_same(first, torch.full((4,), 2.0))


def test_a_result_that_is_kept_for_gradients_is_no_view() -> None:
    """As in eager mode: hooks of FSDP warn of views, and what is written in place counts for gradients."""
    x = random(3, 4).requires_grad_()
    found = compiled(lambda x: torch.tanh(x * 2))(x)
    assert not found._is_view()
    with torch.no_grad():
        found.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.sum().backward()
