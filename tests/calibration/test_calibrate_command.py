"""`aicf calibrate`, from files to a policy that `aicf compile` follows and `aicf explain` repeats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import aicf
from aicf.tools.aicf_cli import main
from tests.calibration.models import TARGET, chain, chain_samples, outlier_weights


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("chain.mlir").write_text(str(chain().module()))
    safetensors.numpy.save_file(outlier_weights(), "chain.safetensors")
    np.savez("samples.npz", x=chain_samples())
    exe = aicf.compile(chain(), outlier_weights(), TARGET, dims="N=64")
    np.save("labels.npy", exe(chain_samples()).argmax(1))
    return tmp_path


CALIBRATE = ["calibrate", "chain.mlir", "samples.npz", "-o", "p.yaml", "--target", TARGET]
CALIBRATE += ["--weights", "chain.safetensors"]


def test_a_policy_and_what_it_costs(files: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--method", "percentile", "--keep", "error=3%", "--labels", "labels.npy", "--correct-bias"]
    assert main([*CALIBRATE, *options]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("p.yaml: 2 of 3 ops in int8 by percentile, against f32 on 64 samples\n")
    assert "right labels: " in shown and "stays f32:\n  fc2: int8 alone changes the outputs by " in shown
    assert aicf.Policy.load("p.yaml").precision.ops == {"fc2": "f32"}
    compile_ = ["compile", "chain.mlir", "--weights", "chain.safetensors", "--dims", "N=1"]
    assert main([*compile_, "--target", TARGET, "--policy", "p.yaml", "-o", "m.aicf"]) == 0
    capsys.readouterr()
    assert main(["explain", "m.aicf"]) == 0
    explained = " ".join(capsys.readouterr().out.split())
    assert (
        "precision: model in int8, calibration compared it with f32 on 64 samples; relative error: y "
        in explained
    )
    assert "stays f32: fc2: int8 alone changes the outputs by " in explained
    assert main(["explain", "m.aicf", "--json"]) == 0
    precision = json.loads(capsys.readouterr().out)["precision"]
    assert set(precision["op_errors"]) == {"fc1", "fc3"} and 0 < precision["errors"]["y"] < 0.03


def test_the_report_as_data(files: Path, capsys: pytest.CaptureFixture[str]):
    assert main([*CALIBRATE, "--to", "bf16", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["to"] == "bf16" and report["samples"] == 64 and report["outputs"][0]["name"] == "y"
    assert [each["op"] for each in report["ops"]] == ["fc1", "relu0", "fc2", "relu1", "fc3"]


def test_a_request_in_a_file(files: Path, capsys: pytest.CaptureFixture[str]):
    Path("request.yaml").write_text(
        "precision: {to: int8, method: percentile, keep: {metric: error, loss: 3 %}}"
    )
    assert main(["compile", "chain.mlir", "--dims", "N=1", "--policy", "request.yaml", "-o", "m.aicf"]) == 1
    assert (
        "keep: a request to calibration, which needs sample inputs; run aicf calibrate"
        in capsys.readouterr().err
    )
    assert main([*CALIBRATE, "--policy", "request.yaml"]) == 0
    assert "2 of 3 ops in int8 by percentile" in capsys.readouterr().out
    assert aicf.Policy.load("p.yaml").precision.request is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keep", "top1"], "keep: 'top1' has no '='"),
        (["--policy", "none.yaml"], "policy file 'none.yaml' cannot be read"),
        (
            ["--labels", "samples.npz"],
            "samples.npz: error: cannot read the labels: it has several arrays; write",
        ),
        (["-o", "samples.npz"], "the policy would take the place of what it is made of"),
    ],
)
def test_errors(files: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main([*CALIBRATE, *arguments]) == 1
    assert message in capsys.readouterr().err
