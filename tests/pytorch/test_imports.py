"""What importing the package loads, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import aicf.pytorch

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:.*isinstance.treespec")]
ROOT = Path(__file__).parents[2]
COMPILER = ("xdsl", "numba", "aicf.compilation.compiler", "aicf.frontends")
LISTED = f"print([name for name in {COMPILER!r} if name in sys.modules])"


def output_of(*lines: str) -> str:
    program = "\n".join(("import sys, torch", *lines))
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        check=True,
        cwd=ROOT,
        timeout=120,
        capture_output=True,
        text=True,
    )
    return run.stdout.strip()


def test_the_package_loads_no_compiler() -> None:
    assert output_of("import aicf.pytorch", LISTED) == "[]"


def test_loading_and_running_a_program_loads_no_compiler(tmp_path: Path) -> None:
    path = tmp_path / "linear.aicf"
    aicf.pytorch.save(torch.nn.Linear(8, 4), path, (torch.randn(6, 8),))
    found = output_of(
        "import aicf.pytorch",
        "model, x = torch.nn.Linear(8, 4), torch.randn(6, 8)",
        f"loaded = aicf.pytorch.load({str(path)!r}, model)",
        "torch.testing.assert_close(loaded(x), model(x))",
        "optimizer = torch.optim.AdamW(model.parameters(), fused=True)",
        "model(x).sum().backward()",
        "optimizer.step()",
        "torch.testing.assert_close(loaded(x), model(x))",
        LISTED,
    )
    assert found == "[]"


def test_pytorch_finds_the_backend_by_its_name() -> None:
    found = output_of(
        "model, x = torch.nn.Linear(8, 4), torch.randn(6, 8)",
        "found = torch.compile(model, backend='aicf')(x)",
        "torch.testing.assert_close(found, model(x))",
        "import aicf.pytorch",
        "print(len(aicf.pytorch.report(model).graphs))",
    )
    assert found == "1"


@pytest.mark.parametrize(
    "first", ["aicf.pytorch.report", "aicf.pytorch.training.report", "aicf.pytorch.training.train_step"]
)
def test_functions_stay_functions_whatever_module_is_imported_first(first: str) -> None:
    found = output_of(
        f"import {first}",
        "from aicf.pytorch import report, train_step",
        "print(report.__name__, train_step.__name__, aicf.pytorch.report is report)",
    )
    assert found == "report train_step True"


def test_names() -> None:
    assert set(aicf.pytorch.__all__) <= set(dir(aicf.pytorch))
    for name in aicf.pytorch.__all__:
        assert getattr(aicf.pytorch, name).__name__ == name
    with pytest.raises(AttributeError, match=r"module 'aicf\.pytorch' has no attribute 'trainer'"):
        aicf.pytorch.trainer  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
