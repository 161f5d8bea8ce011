"""The page on PyTorch runs as it stands, and so do the lines of the README."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import aicf
import aicf.pytorch

# PyTorch's tracers warn of PyTorch's own functions.
OWN = ("isinstance.treespec, LeafSpec.", "`torch.jit", "Online softmax")
pytestmark = [
    pytest.mark.peers,
    *(pytest.mark.filterwarnings(f"ignore:.*{text}") for text in OWN),
]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_the_page_runs() -> None:
    names: dict[str, object] = {"__name__": "page"}
    text = (ROOT / "docs" / "pytorch.md").read_text("utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 6
    for example in examples:
        exec(compile(example, "docs/pytorch.md", "exec"), names)


def test_the_lines_of_the_readme_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    (section,) = re.findall(r"## PyTorch\n\n((?:    .*\n)+)", text)
    x, y = torch.randn(4, 8), torch.randint(0, 3, (4,))
    model = torch.nn.Linear(8, 3)
    names = {"torch": torch, "aicf": aicf, "model": model, "x": x, "y": y}
    names["loss"] = torch.nn.functional.cross_entropy
    before = model.weight.detach().clone()
    exec(textwrap.dedent(section), names)
    assert not torch.equal(model.weight, before)
    wanted = model(x).detach().numpy()
    assert abs(names["exe"](x.numpy()) - wanted).max() < 1e-6
    assert "nothing was compiled" in capsys.readouterr().out  # nobody has called the model
