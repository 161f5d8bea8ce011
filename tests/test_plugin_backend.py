"""A backend outside the core: installed from a package of its own, found by entry point, run as any other target."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aicf.policies.tuning_table import TuningTable

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tests" / "plugin_backend"

CLASSIFY = """
import sys
import numpy as np
import aicf

rng = np.random.default_rng(0)
shapes = {"fc1": (128, 64), "fc2": (64, 128), "fc3": (10, 64)}
weights = {f"{name}.weight": rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
weights |= {f"{name}.bias": rng.normal(0, 0.2, shape[0]).astype(np.float32) for name, shape in shapes.items()}
model, saved = sys.argv[1:]
ours = aicf.compile(model, weights, "numpy:any", dims="N=1,7")
reference = aicf.compile(model, weights, "reference", dims="N=1,7")
for rows in (1, 7):
    x = rng.normal(0, 1, (rows, 64)).astype(np.float32)
    expected = reference(x)
    assert np.abs(ours(x) - expected).max() < 1e-5, np.abs(ours(x) - expected).max()
    assert np.allclose(expected.sum(1), 1, atol=1e-5)
ours.save(saved)
loaded = aicf.load(saved)
assert np.array_equal(loaded(x), ours(x))
print(sorted({launch.kernel for program in loaded.plan.programs for launch in program.launches}))
"""

TRAIN = """
import sys
import numpy as np
import aicf

rng = np.random.default_rng(1)
weights = {"w": rng.normal(0, 1, (4, 8)), "b": rng.normal(0, 1, 4), "lr": np.asarray(0.1)}
weights = {name: value.astype(np.float32) for name, value in weights.items()}
steps = [aicf.compile(sys.argv[1], weights, target) for target in ("numpy", "reference")]
for _ in range(3):
    x, y = (rng.normal(0, 1, (64, width)).astype(np.float32) for width in (8, 4))
    losses = [step(x, y) for step in steps]
    assert abs(losses[0] - losses[1]) < 1e-4, losses
for name in ("w", "b"):
    ours, reference = (step.state()[name] for step in steps)
    assert np.abs(ours - reference).max() < 1e-5 and np.abs(ours - weights[name]).max() > 1e-3
"""

SERVE = """
import sys
import numpy as np
import aicf

rng = np.random.default_rng(2)
w, x = (rng.normal(0, 1, shape).astype(np.float32) for shape in ((8, 5), (3, 8)))
MODEL = \'\'\'
func.func @f(%x : tensor<3x8xf32> {logical.name = "x", logical.role = "input"},
             %w : tensor<8x5xf32> {logical.name = "w", logical.role = "param"})
    -> (tensor<3x5xf32> {logical.name = "y"}) {
  %y = logical.matmul %x, %w : (tensor<3x8xf32>, tensor<8x5xf32>) -> tensor<3x5xf32>
  func.return %y : tensor<3x5xf32>
}
\'\'\'
for options in ({"device": "cpu", "target": "numpy"}, {"device": "numpy"}):
    with aicf.InferenceSession(MODEL, {"w": w}, **options) as session:
        y = session.run([x])["y"]
        assert session.target == "numpy:any"
        assert np.abs(y - x.astype(float) @ w.astype(float)).max() < 1e-5
try:
    aicf.InferenceSession(MODEL, {"w": w}, device="cuda", target="numpy")
except aicf.PolicyError as error:
    print(error.message)
"""

ENGINE = """
import numpy as np
import aicf
from aicf.engines.registry import engine_names, get_engine
from tests.inference.test_onnx_session import mlp, rows, WEIGHT

assert engine_names()[-1] == "onnx-reference" and get_engine("onnx-reference").availability().is_available
x = rows(5, 24)
with aicf.InferenceSession(mlp(), engine="onnx-reference") as session:
    y = session.run([x])["y"]
    scores = np.maximum(x.astype(float) @ WEIGHT, 0)
    powers = np.exp(scores - scores.max(1, keepdims=True))
    assert np.abs(y - powers / powers.sum(1, keepdims=True)).max() < 1e-5
    out = np.full_like(y, np.nan)
    session.bind(x=x, y=out).run()
    assert np.array_equal(out, y)
    print(session.engine.fingerprint.engine, session.engine.is_opaque, session.target)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plug-in installed in it; built from a copy, which leaves the repository as it is."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(
        PACKAGE, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    )
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    run([*pip, "--no-build-isolation", "--target", str(folder / "site"), str(folder / "source")], folder)
    return folder / "site"


def run(command: list[str], site: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)])}
    done = subprocess.run(
        command, check=False, env=environment, cwd=site.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_digits_run_on_the_plug_in(site: Path, tmp_path: Path):
    model = str(ROOT / "examples" / "digits" / "mlp.mlir")
    printed = run([sys.executable, "-c", CLASSIFY, model, str(tmp_path / "digits.aicf")], site)
    assert printed.strip() == "['numpy.generated', 'numpy.matmul_epilogue']"


def test_a_training_step_runs_on_the_plug_in(site: Path):
    run([sys.executable, "-c", TRAIN, str(ROOT / "examples" / "sgd" / "step.mlir")], site)


def test_sessions_run_on_the_plug_in(site: Path):
    printed = run([sys.executable, "-c", SERVE], site)
    assert printed.strip() == "target: 'numpy' does not run on device 'cuda'; legal: cuda"


def test_its_engine_serves_models(site: Path):
    printed = run([sys.executable, "-c", ENGINE], site)
    assert printed.strip() == "onnx-reference True cpu"
    listed = run([sys.executable, "-m", "aicf.tools.aicf_cli", "engines"], site)
    assert "onnx-reference" in listed


def test_the_plug_in_is_tuned(site: Path, tmp_path: Path):
    table = tmp_path / "numpy.json"
    model = str(ROOT / "examples" / "digits" / "mlp.mlir")
    tune = [*("tune", model, "-o", str(table)), *("--target", "numpy:any"), *("--dims", "N=2")]
    run([sys.executable, "-m", "aicf.tools.aicf_cli", *tune], site)
    works = TuningTable.load(table).works
    rows = [row for work in works for row in work.rows]
    assert {row.kernel for row in rows} == {"numpy.matmul_epilogue", "numpy.generated"}
    assert all(row.cold.median_us > 0 for row in rows)


def test_passes_and_tools_know_it(site: Path):
    listed = run([sys.executable, "-m", "aicf.tools.aicf_cli", "devices"], site)
    assert "numpy" in listed
    optimized = run(
        [
            sys.executable,
            "-m",
            "aicf.tools.aicf_opt",
            str(ROOT / "examples" / "digits" / "mlp.mlir"),
            "-p",
            'aicf-inference{target="numpy:any" dims="N=2"}',
        ],
        site,
    )
    assert 'kernel("numpy.matmul_epilogue", {version = 1 : i64, determinism = "bitwise"' in optimized


def test_without_the_package_there_is_no_such_backend(tmp_path: Path):
    code = "import aicf; aicf.compile('builtin.module {}', target='numpy:any')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "unknown backend 'numpy'; registered: cpu, cuda, reference" in done.stderr
