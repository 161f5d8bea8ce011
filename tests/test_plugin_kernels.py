"""Ops and kernels outside the core: installed from a package of their own, found by entry point, used by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tests" / "plugin_kernels"

MODEL = """
func.func @f(%x : tensor<6x40xf32> {logical.name = "x", logical.role = "input"},
             %s : tensor<40xf32> {logical.name = "s", logical.role = "param"})
    -> (tensor<6x40xf32> {logical.name = "y"}) {
  %clip = logical.custom "acme.clip_rows" %x {version = 1, parameters = {most = 2.0}}
      : (tensor<6x40xf32>) -> tensor<6x40xf32>
  %norm = logical.rms_norm %clip, %s {axis = 1, epsilon = 1.0e-3}
      : (tensor<6x40xf32>, tensor<40xf32>) -> tensor<6x40xf32>
  func.return %norm : tensor<6x40xf32>
}
"""

USE = """
import sys
import numpy as np
import aicf
from aicf.testing import check_kernel

rng = np.random.default_rng(0)
x, s = rng.standard_normal((6, 40), np.float32), rng.standard_normal(40, np.float32)
clipped = x * np.minimum(1, 2 / np.sqrt((x.astype(float) ** 2).sum(1, keepdims=True)))
expected = clipped / np.sqrt((clipped**2).mean(1, keepdims=True) + 1e-3) * s
for target in ("cpu", "reference"):
    exe = aicf.compile(sys.argv[1], {"s": s}, target)
    assert np.abs(exe(x) - expected).max() < 1e-5, target
exe = aicf.compile(sys.argv[1], {"s": s}, "cpu", policy={"kernels": {"norm": "acme.rms_norm_cpu"}})
assert np.abs(exe(x) - expected).max() < 1e-5
print([launch.kernel for launch in exe.plan.programs[0].launches])
kernel = sys.modules["acme_kernels"].clip_rows.KERNEL
check_kernel(kernel, (5, 33), attributes={"most": 1.5}, bounds=True)
try:
    aicf.compile(open(sys.argv[1]).read().replace("most = 2.0", 'most = "2"'), {"s": s}, "cpu")
except aicf.InvalidIR as error:
    print(error.message)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package installed in it; built from a copy, which leaves the repository as it is."""
    folder = tmp_path_factory.mktemp("kernels")
    shutil.copytree(
        PACKAGE, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    )
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    run([*pip, "--no-build-isolation", "--target", str(folder / "site"), str(folder / "source")], folder)
    (folder / "model.mlir").write_text(MODEL)
    return folder / "site"


def run(command: list[str], site: Path, expected: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)])}
    done = subprocess.run(
        command, check=False, env=environment, cwd=site.parent, capture_output=True, text=True
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_programs_use_the_package(site: Path) -> None:
    """Nothing imports it but the entry point."""
    printed = run([sys.executable, "-c", USE, "model.mlir"], site)
    assert "['acme.clip_rows_cpu', 'acme.rms_norm_cpu']" in printed.splitlines()
    assert "attribute 'most' of op 'acme.clip_rows' is '2'; it is a number" in printed


def test_a_package_that_does_not_import(site: Path, tmp_path: Path) -> None:
    shutil.copytree(site, tmp_path / "site")
    (tmp_path / "site" / "acme_kernels" / "__init__.py").write_text("import no_such_module\n")
    use = "import aicf\nfrom aicf.backends.registry import get_kernels\nget_kernels('cpu')\n"
    printed = run([sys.executable, "-c", use], tmp_path / "site", expected=1)
    message = "the kernels of package 'acme-kernels' do not import: No module named 'no_such_module'; repair"
    assert message in printed
