"""`aicf policy merge`, `validate` and `schema`, and the policies that other commands take."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.policies.policy import Policy
from aicf.policies.policy_schema import shipped_schema
from aicf.tools.aicf_cli import main
from tests.inference.models import WEIGHTS, classifier

MLP = str(Path(__file__).parents[2] / "examples" / "digits" / "mlp.mlir")


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_merge_prints_or_writes_all_that_the_files_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [
        write(tmp_path, "a.yaml", "streams: 2\n"),
        write(tmp_path, "b.json", '{"kernel": {"tf32": true}}'),
    ]
    assert main(["policy", "merge", *files]) == 0
    wanted = Policy().with_(streams=2, tf32=True)
    assert Policy.from_text(capsys.readouterr().out) == wanted
    output = tmp_path / "both.yaml"
    assert main(["policy", "merge", *files, "-o", str(output)]) == 0
    assert Policy.load(output) == wanted
    assert capsys.readouterr().out == f"{output}: 2 files, which state tf32, streams\n"


def test_merge_names_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [write(tmp_path, f"{streams}.yaml", f"streams: {streams}\n") for streams in (2, 3)]
    assert main(["policy", "merge", *files]) == 1
    assert (
        capsys.readouterr().err
        == f"aicf: error: streams: 2 in {files[0]}, 3 in {files[1]}; drop one of them\n"
    )


def test_validate_says_what_is_legal_and_where_it_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write(tmp_path, "good.yaml", "$schema: policy.schema.json\nstreams: 1\n")
    bad = write(tmp_path, "bad.yaml", "kernels: {fc9: cpu.gemm_portable}\n")
    given = ["--target", "cpu:x86-64-v3", "--dims", "N=2"]
    assert main(["policy", "validate", MLP, good, *given]) == 0
    assert capsys.readouterr().out == f"{good}: legal for {MLP}: it states streams\n"
    assert main(["policy", "validate", MLP, bad, *given]) == 1
    assert capsys.readouterr().err.startswith(f"{bad}: error: kernels.fc9: no group or kind has that name; ")
    assert main(["policy", "validate", MLP, good, bad, *given]) == 1
    assert capsys.readouterr().err.startswith("aicf: error: kernels.fc9: no group or kind has that name; ")


def test_schema_is_the_one_of_the_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "schema"]) == 0
    assert capsys.readouterr().out == shipped_schema()
    output = tmp_path / "policy.schema.json"
    assert main(["policy", "schema", "-o", str(output)]) == 0
    assert json.loads(output.read_text())["title"] == "Policy of AICF"
    assert main(["policy", "schema", "-o", str(tmp_path / "no" / "schema.json")]) == 1


def test_run_and_bench_follow_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A policy with an unknown kernel is the one that shows that it is read."""
    policy = write(tmp_path, "p.yaml", "kernels: {prob: cpu.no_such_kernel}\n")
    np.save(tmp_path / "x.npy", np.ones((2, 64), np.float32))
    run = ["run", MLP, "--input", f"x={tmp_path / 'x.npy'}", "--policy", policy]
    for command in (run, ["bench", MLP, "--random-weights", "--dims", "N=2", "--policy", policy]):
        assert main(command) == 1
        assert "has no kernel 'cpu.no_such_kernel'" in capsys.readouterr().err
    artifact = tmp_path / "c.aicf"
    aicf.compile(classifier(), WEIGHTS, "reference", dims="N=1").save(artifact)
    for command in (["run", str(artifact), "--policy", policy], ["bench", str(artifact), "--policy", policy]):
        assert main(command) == 1
        assert "--policy has no effect on an artifact, which is compiled" in capsys.readouterr().err
