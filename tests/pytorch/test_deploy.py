"""Programs in a file, on the weights of a module of another process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import aicf
import aicf.pytorch

pytestmark = [
    pytest.mark.peers,
    *(pytest.mark.filterwarnings(f"ignore:.*{text}") for text in ("isinstance.treespec", "`torch.jit")),
]


def network() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    ).eval()


def saved(tmp_path: Path) -> Path:
    path = tmp_path / "network.aicf"
    sizes = ({0: torch.export.Dim("batch", max=64)},)
    aicf.pytorch.save(network(), path, (torch.randn(4, 8),), dynamic_shapes=sizes, dims="batch=1,5")
    return path


def test_it_runs_on_the_weights_that_a_module_has(tmp_path: Path) -> None:
    path, module = saved(tmp_path), network()
    loaded = aicf.pytorch.load(path, module)
    for batch in (1, 5, 1):
        x = torch.randn(batch, 8)
        torch.testing.assert_close(loaded(x), module(x))
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.mul_(1.5)
    torch.testing.assert_close(loaded(x), module(x))


def test_the_file_has_no_weights(tmp_path: Path) -> None:
    assert not any("weights" in entry for entry in aicf.artifact.read(saved(tmp_path)).entries)


def test_other_sizes_and_modules_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with pytest.raises(aicf.InputMismatch, match=r"no program was saved for input \(3, 8\)"):
        aicf.pytorch.load(path, network())(torch.randn(3, 8))
    with pytest.raises(aicf.InputMismatch, match="missing weight"):
        aicf.pytorch.load(path, torch.nn.Linear(8, 4))


def test_loading_traces_and_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, module = saved(tmp_path), network()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it traces or compiles")

    monkeypatch.setattr(torch.export, "export", refuse)
    monkeypatch.setattr("aicf.compiler.build_native", refuse)
    x = torch.ones(5, 8)
    torch.testing.assert_close(aicf.pytorch.load(path, module)(x), module(x))


def test_weights_that_no_longer_fit_are_refused(tmp_path: Path) -> None:
    path, module, x = saved(tmp_path), network(), torch.randn(5, 8)
    loaded = aicf.pytorch.load(path, module)
    expected = loaded(x)
    for change in (module.double, module.half):
        change()
        with pytest.raises(
            aicf.InputMismatch, match="have changed since the programs were loaded; load again"
        ):
            loaded(x)
    module.float()
    torch.testing.assert_close(loaded(x), expected, rtol=1e-2, atol=1e-2)  # the halves had fewer digits
    module[0].weight.data = module[0].weight.data.t().contiguous().t()
    with pytest.raises(aicf.InputMismatch, match="have changed since the programs"):
        loaded(x)
    with pytest.raises(aicf.InputMismatch, match="'0.weight' is not row-major in memory"):
        aicf.pytorch.load(path, module)
    module[0].weight.data = module[0].weight.data.contiguous()
    torch.testing.assert_close(loaded(x), module(x))
