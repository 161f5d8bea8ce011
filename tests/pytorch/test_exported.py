"""Programs of torch.export: compiled, with sizes and results by name, saved, and run without PyTorch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import aicf
from aicf.errors import AicfError, InvalidIR, PolicyError
from tests.support.pytorch_backend import random

pytestmark = [
    pytest.mark.peers,
    # torch.export copies what it traced, with a class that it deprecates itself.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]

ROOT = Path(__file__).parents[2]


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor, scale: Tensor) -> dict[str, Tensor]:
        """Two results by name."""
        hidden = self.norm(self.layer(x))
        return {"hidden": hidden, "scaled": torch.tanh(hidden) * scale}


def _model() -> nn.Module:
    torch.manual_seed(1)
    return _Model().double().eval()


X, SCALE = random(6, 8), random(4, seed=1)


def _exported(**named: Any) -> Any:
    return torch.export.export(_model(), (X, SCALE), **named)


def _assert_results(found: Any, x: Tensor) -> None:
    for name, expected in _model()(x, SCALE).items():
        np.testing.assert_allclose(found[name], expected.detach().numpy(), rtol=1e-9, atol=1e-9)


def test_results_by_name() -> None:
    executable = aicf.compile(_exported())
    found = executable.run({"x": X.numpy(), "scale": SCALE.numpy()})
    assert set(found) == {"hidden", "scaled"}
    _assert_results(found, X)


def test_a_file(tmp_path: Path) -> None:
    torch.export.save(_exported(), tmp_path / "model.pt2")
    executable = aicf.compile(tmp_path / "model.pt2")
    _assert_results(executable.run({"x": X.numpy(), "scale": SCALE.numpy()}), X)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(b"nonsense")
    with pytest.raises(InvalidIR, match="PyTorch cannot read it"):
        aicf.compile(tmp_path / "model.pt2")


def _dynamic() -> Any:
    return _exported(dynamic_shapes={"x": {0: torch.export.Dim("rows", min=2, max=64)}, "scale": None})


def test_sizes() -> None:
    executable = aicf.compile(_dynamic(), dims="rows=2,6")
    for rows in (2, 6):
        _assert_results(executable.run({"x": X[:rows].numpy(), "scale": SCALE.numpy()}), X[:rows])


def test_a_size_that_was_not_asked_for() -> None:
    executable = aicf.compile(_dynamic(), dims="rows=2,6")
    with pytest.raises(AicfError, match="rows"):
        executable.run({"x": X[:3].numpy(), "scale": SCALE.numpy()})


def test_a_size_without_values() -> None:
    with pytest.raises(PolicyError, match='unbound symbolic dimensions: rows; give sizes.*dims="rows=1"'):
        aicf.compile(_dynamic())


def test_a_name_that_is_no_size() -> None:
    with pytest.raises(PolicyError, match="no symbolic dimension batch; its dimensions are: rows"):
        aicf.compile(_dynamic(), dims="batch=1")


class _Counter(nn.Module):
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        """The sum of all that it was called with, which it keeps."""
        self.total.add_(x)
        return self.total * 2


def test_a_buffer_that_changes() -> None:
    executable = aicf.compile(torch.export.export(_Counter(), (torch.ones(3),)))
    for expected in (2.0, 4.0, 6.0):
        (found,) = executable.run({"x": np.ones(3, np.float32)}).values()
        np.testing.assert_array_equal(found, [expected] * 3)


class _Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.arange(300.0)

    def forward(self, x: Tensor) -> Tensor:
        """A tensor that is no buffer, and one of the code."""
        return x + self.table[:3] + torch.tensor([1.0, 2.0, 3.0])


def test_constants() -> None:
    executable = aicf.compile(torch.export.export(_Constant(), (torch.ones(3),)))
    (found,) = executable.run({"x": np.ones(3, np.float32)}).values()
    np.testing.assert_array_equal(found, [2.0, 4.0, 6.0])


def test_results_that_are_arguments_and_views() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            """An argument, and a view."""
            return x, x.t()

    executable = aicf.compile(torch.export.export(Own(), (X,)))
    found = list(executable.run({"x": X.numpy()}).values())
    np.testing.assert_array_equal(found[0], X.numpy())
    np.testing.assert_array_equal(found[1], X.t().numpy())


SCRIPT = """
import sys
import numpy as np
import aicf
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "sympy"):
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
executable = aicf.load(sys.argv[1])
data = np.load(sys.argv[2])
found = executable.run({"x": data["x"], "scale": data["scale"]})
assert "torch" not in sys.modules
np.savez(sys.argv[3], **found)
"""


def test_an_artifact_runs_without_pytorch(tmp_path: Path) -> None:
    aicf.compile(_exported()).save(tmp_path / "model.aicf")
    np.savez(tmp_path / "data.npz", x=X.numpy(), scale=SCALE.numpy())
    files = [str(tmp_path / name) for name in ("model.aicf", "data.npz", "found.npz")]
    subprocess.run([sys.executable, "-c", SCRIPT, *files], cwd=ROOT, check=True)
    _assert_results(np.load(tmp_path / "found.npz"), X)


def test_an_artifact_is_loaded_again(tmp_path: Path) -> None:
    aicf.compile(_dynamic(), dims="rows=2,6").save(tmp_path / "model.aicf")
    loaded = aicf.load(tmp_path / "model.aicf")
    _assert_results(loaded.run({"x": X[:2].numpy(), "scale": SCALE.numpy()}), X[:2])
    _assert_results(loaded.run({"x": X.numpy(), "scale": SCALE.numpy()}), X)


def test_an_op_without_a_counterpart() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            """QR."""
            return torch.geqrf(x)[0]

    with pytest.raises(AicfError, match="op aten.geqrf.default is not supported"):
        aicf.compile(torch.export.export(Own(), (X,)))


def test_a_program_that_computes_nothing() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> int:
            """No tensor."""
            return 3

    with pytest.raises(AicfError, match="computes nothing"):
        aicf.compile(torch.export.export(Own(), (X,)))


# What is exported badly, or changes later


class _Function(nn.Module):
    """A function with a layer."""

    def __init__(self, run: Callable[..., Any], layer: nn.Module | None = None) -> None:
        super().__init__()
        self.run, self.layer = run, layer

    def forward(self, x: Tensor) -> Any:
        """What the function gives."""
        return self.run(self.layer, x)


def _of(run: Callable[..., Any], x: Tensor, layer: nn.Module | None = None) -> Any:
    return torch.export.export(_Function(run, layer), (x,), strict=False)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an item": (lambda: _of(lambda _, x: x * x.max().item(), X), "follows from elements of a tensor"),
    "a size": (lambda: _of(lambda _, x: x[x > 0], X), "follows from elements of a tensor"),
    "a write": (lambda: _of(lambda _, x: x.mul_(2), X.clone()), "user input mutation; return the new value"),
    "sparse": (
        lambda: _of(lambda _, x: x.to_dense() * 2, X.to_sparse()),
        "op aten._to_dense.default is not supported .*; write it with other ops, or leave it outside of the model",
    ),
    "complex": (lambda: _of(lambda _, x: x.real * 2, torch.complex(X, X)), "is not supported|complex"),
    "a module": (lambda: nn.Linear(2, 2), "not Linear; export it with torch.export.export"),
    "a compiled module": (
        lambda: torch.compile(nn.Linear(2, 2), backend="eager"),
        "; export it with torch.export.export",
    ),
    "weights without data": (
        lambda: _of(lambda layer, x: layer(x), X.to("meta"), nn.Linear(8, 3, device="meta").double()),
        "missing weights layer.bias, layer.weight",
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_one_line(name: str) -> None:
    make, said = REFUSED[name]
    with pytest.raises(AicfError, match=said) as caught:
        aicf.compile(make())
    assert "\n" not in str(caught.value)


def test_weights_of_a_program_without_data_are_given() -> None:
    layer = nn.Linear(8, 3).double()
    weights = {f"layer.{name}": value.detach().numpy() for name, value in layer.state_dict().items()}
    empty = nn.Linear(8, 3, device="meta").double()
    executable = aicf.compile(_of(lambda layer, x: layer(x), X.to("meta"), empty), weights)
    np.testing.assert_allclose(executable(X.numpy()), layer(X).detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("features", [3, 256])
def test_weights_that_change_later_are_not_its(features: int) -> None:
    """Neither those that are packed nor those that are read as they are."""
    layer = nn.Linear(8, features).double()
    expected = layer(X).detach().numpy()
    executable = aicf.compile(_of(lambda layer, x: layer(x), X, layer))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(100)
    np.testing.assert_allclose(executable(X.numpy()), expected, rtol=1e-9)


def test_one_value_under_two_names() -> None:
    def run(_: Any, x: Tensor) -> dict[str, Tensor]:
        y = x * 2
        return {"a": y, "b": y, "c": x, "d": x}

    found = aicf.compile(_of(run, X)).run({"x": X.numpy()})
    assert list(found) == ["a", "b", "c", "d"]
    for name, value in run(None, X).items():
        np.testing.assert_array_equal(found[name], value.numpy())


WEIGHTS: dict[str, Callable[[], Tensor]] = {
    "strided": lambda: random(3, 16)[:, ::2],
    "expanded": lambda: random(1, 8).expand(3, 8),
    "transposed": lambda: random(8, 3).t(),
}


@pytest.mark.parametrize("form", WEIGHTS)
def test_weights_in_any_form(form: str) -> None:
    layer = nn.Linear(8, 3).double()
    layer.weight.data = WEIGHTS[form]()
    executable = aicf.compile(_of(lambda layer, x: layer(x), X, layer))
    np.testing.assert_allclose(executable(X.numpy()), layer(X).detach().numpy(), rtol=1e-9)


def test_modes_inside_of_a_model() -> None:
    def run(layer: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            mean = layer(x).mean()
        with torch.autocast("cpu", torch.bfloat16):
            low = layer(x.float())
        return low.double() + mean

    layer = nn.Linear(8, 3)
    executable = aicf.compile(_of(lambda layer, x: run(layer, x.float()), X, layer))
    expected = run(layer, X.float()).detach().numpy()
    np.testing.assert_allclose(executable(X.numpy()), expected, rtol=2e-2, atol=2e-2)


def test_the_command_compiles_a_file_without_warnings_of_pytorch(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(nn.Linear(8, 3), (torch.ones(2, 8),)), path)
    program = "from aicf.tools.aicf_cli import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", program, "compile", str(path), "-o", str(tmp_path / "model.aicf")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "Warning" not in run.stderr and "LeafSpec" not in run.stderr
