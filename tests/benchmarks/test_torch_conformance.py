# pyright: basic, reportMissingImports=false
# The modules of benchmarks/conformance are found by a path that the fixture sets.
"""The conformance benchmark of ATen ops: that its samples are right, that its judge is strict, and its page."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from aicf.frontends.torch.ops import ROWS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "conformance"
RESULT = ROOT / "benchmarks" / "results" / "torch_ops_cpu.json"
GPU_RESULT = ROOT / "benchmarks" / "results" / "torch_ops_cuda.json"
STATUSES = ("right", "wrong", "unsupported", "raised")
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

    results = [json.loads(path.read_text("utf-8")) for path in (RESULT, GPU_RESULT) if path.exists()]
    assert PAGE.read_text("utf-8") == page(*results)


def _on_gpu(core: list[dict[str, Any]]) -> dict[str, Any]:
    counts = {name: sum(row[name] for row in core) for name in STATUSES}
    total = sum(counts.values())
    totals = {"samples": total, **counts, "percent": 100 * counts["right"] / total}
    return {**json.loads(RESULT.read_text("utf-8")), "target": "cuda", "core": core, "totals": totals}


def test_the_page_says_where_a_gpu_differs() -> None:
    from torch_page import page

    cpu = json.loads(RESULT.read_text("utf-8"))
    core = copy.deepcopy(cpu["core"])
    row = next(each for each in core if each["op"] == "aten.add.Tensor")
    assert row["right"] > 1
    row["right"], row["wrong"] = row["right"] - 1, row["wrong"] + 1
    row["reasons"] = [{"dtype": "f16", "sample": "", "status": "wrong", "reason": "result 0: 1.0 | 2.0"}]
    gpu = _on_gpu(core)
    plain, text = page(cpu), page(cpu, gpu)
    before, _, section = text.partition("## On a GPU\n")
    section, _, after = section.partition("## All other ops\n")
    assert before + "## All other ops\n" + after == plain
    tables = [line for line in section.splitlines() if line.startswith("|")]
    totals = cpu["totals"]
    assert f"| `cpu` | 186 | {totals['samples']} | {totals['right']} | 0 |" in section
    assert f"| `cuda` | 186 | {totals['samples']} | {totals['right'] - 1} | 1 |" in section
    count = row["samples"]
    assert f"| `add.Tensor` | `cpu` | {count} | {count} | 0 | 0 | 0 |" in tables
    assert f"| `add.Tensor` | `cuda` | {count} | {count - 1} | 1 | 0 | 0 |" in tables
    assert tables[-1] == "| `add.Tensor` | 1 | f16 | wrong | result 0: 1.0 \\| 2.0 |"
    assert len(tables) == 4 + 4 + 3


def test_the_page_says_that_a_gpu_does_not_differ() -> None:
    from torch_page import page

    cpu = json.loads(RESULT.read_text("utf-8"))
    assert "Every op has the same outcomes on both targets." in page(cpu, _on_gpu(cpu["core"]))


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["add.Tensor", "full.default", "rand.default", "sort.default"])
def test_samples_are_drawn_on_a_device(name: str) -> None:
    """On the device `meta`, as there may be no GPU."""
    import torch
    from torch_cases import cases_of

    for device in ("cpu", "meta"):
        cases = cases_of(overload(name), "f32", 4, device)
        assert cases
        for case in cases:
            results = case(*case.tensors)
            assert {each.device.type for each in [*case.tensors, *results]} == {device}
    (case, *_) = cases_of(overload("add.Tensor"), "f32", 4)
    assert [torch.equal(*pair) for pair in zip(case.on_host().tensors, case.tensors, strict=True)] == [
        True
    ] * len(case.tensors)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
def test_a_result_on_another_device_is_wrong() -> None:
    from torch_cases import cases_of
    from torch_judge import difference, eager
    from torch_workers import _expected

    case = cases_of(overload("full.default"), "f32", 1)[0]
    (expected,) = eager(case)
    said = f"float32{list(expected.shape)}"
    assert (
        difference(case, [expected.to("meta")], [expected]) == f"result 0: {said} on meta instead of {said}"
    )
    assert _expected(case, "cpu") is not None
    assert _expected(case, "meta") is None  # nothing is there


@pytest.mark.peers
def test_a_process_that_ends_says_where_and_why() -> None:
    from torch_workers import RAISED, Job, measure

    (found,) = measure(["aten.abs.default"], Job("cpu", 1, ("no_dtype",), 60.0), 1)
    assert (found.op, found.status) == ("aten.abs.default", RAISED)
    assert found.reason == "the process ended with status 1 while it drew samples: KeyError: 'no_dtype'"
