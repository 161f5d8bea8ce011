"""The wheel works where the repository is not: built, installed in a clean environment and used from there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

ROOT = Path(__file__).parents[2]
PROGRAM = """\
builtin.module attributes {aicf.target = #emit.target<"cpu", "x86-64-v3", {}>} {
  func.func @f(%x: tensor<2xf32> {logical.name = "x", logical.role = "input"})
      -> (tensor<2xf32> {logical.name = "y"}) {
    %y = logical.relu %x : tensor<2xf32>
    func.return %y : tensor<2xf32>
  }
}
"""


def run(*command: str | Path, cwd: Path, stdin: str | None = None) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, command)],
        check=False,
        cwd=cwd,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel; from a copy, so that no stale build folder takes part and none is left behind."""
    folder = tmp_path_factory.mktemp("wheel")
    litter = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=litter)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps")
    run(*pip, "--no-build-isolation", "--wheel-dir", folder, folder / "source", cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_bin(wheel: Path) -> Path:
    """The bin folder of a new environment that holds the wheel and borrows only the dependencies."""
    folder = wheel.parent / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        python,
        "install",
        "--quiet",
    )
    run(*pip, "--no-deps", "--no-index", wheel, cwd=wheel.parent)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A plain path line: it adds the dependencies, and runs no .pth file of an editable AICF found there.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def test_the_wheel_holds_every_module_under_aicf(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = {name for name in names if ".dist-info/" not in name}
    on_disk = {
        f"aicf/{path.relative_to(ROOT / top)}" if top == "aicf" else f"aicf/{path.relative_to(ROOT)}"
        for top in ("aicf", "dialects", "passes", "tools")
        for path in (ROOT / top).rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents)
    }
    data = {"aicf/py.typed", "aicf/frontends/builder/derived.pyi", "aicf/policies/policy.schema.json"}
    assets = {
        f"aicf/{path.relative_to(ROOT / 'aicf')}" for path in (ROOT / "aicf/report/assets").rglob("*.*")
    }
    assert shipped == on_disk | data | assets
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_aicf_comes_from_the_wheel(clean_bin: Path):
    where = run(clean_bin / "python", "-c", "import aicf; print(aicf.__file__)", cwd=clean_bin)
    assert Path(where).is_relative_to(clean_bin.parent)


def test_aicf_opt_runs(clean_bin: Path):
    assert "logical.relu" in run(clean_bin / "aicf-opt", cwd=clean_bin, stdin=PROGRAM)


def test_xdsl_opt_loads_both_dialects_and_a_pass(clean_bin: Path):
    xdsl_opt = (clean_bin / "python", "-m", "xdsl.tools.xdsl_opt")
    output = run(*xdsl_opt, "-p", "assign-ids", cwd=clean_bin, stdin=PROGRAM)
    assert "logical.relu" in output and "#emit.target" in output and "aicf.id" in output


def test_the_demo_program_compiles_and_runs(clean_bin: Path, tmp_path: Path):
    generator = np.random.default_rng(3)
    sizes = (64, 128, 64, 10)
    weights: dict[str, np.ndarray] = {}
    for number, (inputs, outputs) in enumerate(pairwise(sizes), 1):
        weights[f"fc{number}.weight"] = generator.standard_normal((outputs, inputs), np.float32) / 8
        weights[f"fc{number}.bias"] = generator.standard_normal(outputs, np.float32)
    safetensors.numpy.save_file(weights, tmp_path / "w.safetensors")
    x = generator.standard_normal((3, 64), np.float32)
    np.save(tmp_path / "x.npy", x)
    shutil.copy(ROOT / "examples/digits/mlp.mlir", tmp_path)

    aicf = clean_bin / "aicf"
    run(
        aicf,
        "compile",
        "mlp.mlir",
        "--weights",
        "w.safetensors",
        "--dims",
        "N=1,3",
        "-o",
        "m.aicf",
        cwd=tmp_path,
    )
    run(aicf, "run", "m.aicf", "--input", "x=x.npy", "--output", "out", cwd=tmp_path)

    values = x.astype(np.float64)
    for number in (1, 2, 3):
        values = np.maximum(values, 0) if number > 1 else values
        values = values @ weights[f"fc{number}.weight"].T + weights[f"fc{number}.bias"]
    expected = np.exp(values - values.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(np.load(tmp_path / "out/probabilities.npy"), expected, atol=1e-5)
