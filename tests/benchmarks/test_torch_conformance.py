# pyright: basic, reportMissingImports=false
# The modules of benchmarks/conformance are found by a path that the fixture sets.
"""The conformance benchmark of ATen ops: that its samples are right, that its judge is strict, and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aicf.frontends.torch.ops import ROWS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "conformance"
RESULT = ROOT / "benchmarks" / "results" / "torch_ops_cpu.json"
PAGE = ROOT / "docs" / "torch-support.md"
OPS = (
    *("_softmax.default", "abs.default", "add.Scalar", "add.Tensor", "amax.default", "bitwise_and.Tensor"),
    *("cat.default", "clamp.default", "convolution.default", "cumsum.default", "div.Tensor_mode"),
    *("gather.default", "index.Tensor", "masked_scatter.default", "max_pool2d_with_indices.default"),
    *("mm.default", "native_layer_norm_backward.default", "rand.default", "sort.default", "sum.dim_IntList"),
    *("view.default", "where.self"),
)


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/conformance is no package: a folder named `benchmarks` on the path would hide `cuda`."""
    monkeypatch.syspath_prepend(FOLDER)


def overload(name: str) -> Any:
    from torch_table import core_overloads

    return next(each for each in core_overloads() if str(each) == f"aten.{name}")


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")  # of PyTorch's own samples
@pytest.mark.parametrize("name", OPS)
def test_samples_are_right(name: str) -> None:
    from torch_workers import RIGHT, Job, Outcome, outcomes

    found = [
        each
        for each in outcomes(f"aten.{name}", Job("cpu", 2, ("f32", "i64"), 60.0))
        if isinstance(each, Outcome)
    ]
    assert found
    assert [each for each in found if each.status != RIGHT] == []


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "index"),
    [("add.Tensor", 0), ("sort.default", 0), ("sort.default", 1), ("native_dropout.default", 1)],
)
def test_a_wrong_result_is_called_so(name: str, index: int) -> None:
    """One element of a result is changed, in a sample that has several."""
    from torch_cases import cases_of
    from torch_judge import difference, eager

    case = next(case for case in cases_of(overload(name), "f32", 20) if eager(case)[index].numel() > 1)
    expected = eager(case)
    assert difference(case, expected, expected) is None
    found = [each.clone() for each in expected]
    first = found[index].view(-1)[:1]
    first.copy_(~first if first.dtype.is_floating_point is False and first.element_size() == 1 else first + 1)
    assert difference(case, found, expected) is not None
    assert difference(case, [each.double() for each in expected], expected) is not None


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
def test_ties_may_come_in_any_order_and_random_numbers_may_not() -> None:
    import torch
    from torch.utils import _pytree as pytree
    from torch_cases import Case
    from torch_judge import difference

    sort = Case(overload("sort.default"), "f32", 0, *pytree.tree_flatten(([torch.zeros(3)], {})))
    zeros, order = torch.zeros(3), torch.tensor([0, 1, 2])
    assert difference(sort, [zeros, torch.tensor([2, 0, 1])], [zeros, order]) is None
    assert difference(sort, [zeros, torch.tensor([0, 0, 1])], [zeros, order]) is not None
    rand = Case(overload("rand.default"), "f32", 0, *pytree.tree_flatten(([[1000]], {})))
    assert difference(rand, [torch.rand(1000)], [torch.rand(1000)]) is None
    for wrong in (torch.full([1000], 0.5), torch.rand(1000) / 2, torch.ones(1000)):
        assert difference(rand, [wrong], [torch.rand(1000)]) is not None


@pytest.mark.peers
def test_core_ops_are_all_in_the_result() -> None:
    from torch_table import core_overloads

    result = json.loads(RESULT.read_text("utf-8"))
    found = {row["op"] for row in result["core"]} | set(result["apart"])
    assert {str(each) for each in core_overloads()} == found


def test_the_page_lists_every_row() -> None:
    """Made again with `python benchmarks/torch_conformance.py --page` when a row is added."""
    text = PAGE.read_text("utf-8")
    assert [name for name in ROWS if f"`{name}`" not in text] == []


def test_the_page_is_that_of_the_result() -> None:
    from torch_page import page

    assert PAGE.read_text("utf-8") == page(json.loads(RESULT.read_text("utf-8")))
