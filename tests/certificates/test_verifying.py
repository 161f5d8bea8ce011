"""Certificates: of programs that give the same bits, and not of those that do not; and what is other than in one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.certificates.certificate import Certificate, array_hash
from aicf.certificates.repeating import Request, repeat
from aicf.errors import ArtifactError, InputMismatch
from aicf.tools.aicf_cli import main
from tests.support.faulty_programs import planted, program, save, weights

pytestmark = pytest.mark.usefixtures("faulty")
SGD = Path(__file__).parents[2] / "examples" / "sgd" / "step.mlir"


def sha(array: np.ndarray) -> str:
    return hashlib.sha256(f"{array.dtype} {list(array.shape)}\n".encode() + array.tobytes()).hexdigest()


def repeated(path: str, runs: int = 9, seed: int = 3, inputs: str | None = None) -> Any:
    """What one process gives, in this one."""
    return repeat(Request(path, None, runs, seed, inputs), lambda done: None)


# One process


def test_a_program_is_repeated_on_inputs_that_follow_from_the_seed(tmp_path: Path) -> None:
    compiled = program("N=2,3")
    series = repeated(save(compiled, tmp_path, "good"))
    assert [each.sizes for each in series.programs] == [{"N": 2}, {"N": 3}] and not series.unequal
    for runs, rows in zip(series.programs, (2, 3), strict=True):
        x = np.random.Generator(np.random.PCG64(3)).standard_normal((rows, 8)).astype(np.float32)
        assert runs.inputs == {"x": sha(x)} and runs.outputs == {"y": sha(compiled(x))}
    lines = [f"{name} {sha(array)}\n" for name, array in sorted(weights().items())]
    assert series.weights == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert series.emit == hashlib.sha256(compiled.ir("emit").encode()).hexdigest()
    assert repeated(save(compiled, tmp_path, "good"), seed=4).programs[0].inputs != series.programs[0].inputs


def test_the_first_run_that_differs_is_named(tmp_path: Path) -> None:
    path = save(planted({"fc3.bias": "faulty.racing"}), tmp_path, "racing")
    assert not repeated(path, runs=6).unequal
    ((unequal),) = repeated(path, runs=20).unequal
    assert (unequal.program, unequal.output, unequal.run) == ("layers@N=3", "y", 7)


def test_every_run_of_a_training_step_begins_anew(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    given = {"w": rng.normal(0, 1, (4, 8)), "b": rng.normal(0, 1, 4), "lr": np.asarray(0.1)}
    step = aicf.compile(SGD, {name: array.astype(np.float32) for name, array in given.items()}, "reference")
    series = repeated(save(step, tmp_path, "step"), runs=4)
    assert not series.unequal
    outputs = series.programs[0].outputs
    assert {"state w", "state b"} < set(outputs) and outputs["state w"] != sha(given["w"].astype(np.float32))


def test_bits_are_compared_and_not_numbers() -> None:
    zeros = np.zeros(3, np.float32)
    assert array_hash(zeros) != array_hash(-zeros)
    assert array_hash(zeros) != array_hash(zeros.reshape(3, 1)) != array_hash(zeros.astype(np.int32))
    strided = np.arange(12, dtype=np.float32).reshape(3, 4).T
    assert array_hash(strided) == array_hash(strided.copy()) == sha(strided.copy())
    assert array_hash(np.asarray(2.0)) == sha(np.asarray(2.0))


# Several processes, and certificates


def test_a_certificate_is_made_and_held_against(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, certificate = save(program(), tmp_path, "good"), tmp_path / "certificate.json"
    made = ["verify", good, "--runs", "5", "--processes", "1", "--seed", "7", "-o", str(certificate)]
    assert main(made) == 0
    assert capsys.readouterr().out.startswith(
        "layers for faulty:typed: 5 runs of the program in 1 process on "
    )
    written = Certificate.load(certificate)
    assert (written.runs, written.processes, written.seed) == (5, 1, 7)
    assert (
        written.generator == "numpy.random.PCG64" and written.environment.packages["numpy"] == np.__version__
    )
    # Elsewhere is no difference; another output is.
    moved = replace(written, environment=replace(written.environment, driver="12.4", cpu_features=("x",)))
    moved.save(certificate)
    found = aicf.verify(good, against=certificate)
    assert found.is_same and found.certificate.runs == 5
    assert str(found).splitlines()[0].endswith("the same bits as in the certificate")
    assert found.moved[0].startswith("driver: 12.4 -> ") and found.moved[1].startswith(
        "cpu features: only one has "
    )
    (runs,) = written.programs
    replace(written, programs=(replace(runs, outputs={"y": "0" * 64}),)).save(certificate)
    assert main(["verify", good, "--against", str(certificate), "--json"]) == 1
    value = json.loads(capsys.readouterr().out)
    assert not value["same"] and value["differences"][0].startswith(
        "output 'y' of @layers@N=3: 000000000000... -> "
    )


def test_processes_that_differ_get_no_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, certificate = (
        save(planted({"fc3": "faulty.by_process"}), tmp_path, "bad"),
        tmp_path / "certificate.json",
    )
    assert main(["verify", bad, "--runs", "3", "--processes", "2", "-o", str(certificate)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(": different") and not certificate.exists()
    assert lines[1].startswith("  process 2, run 1: output 'y' of @layers@N=3: ")


def test_runs_that_differ_are_named_with_their_process() -> None:
    found = aicf.verify(planted({"fc3.bias": "faulty.racing"}), runs=8, processes=1)
    assert found.differences == ("process 1, run 7: output 'y' of @layers@N=3 has other bits than in run 1",)


def test_a_process_that_dies_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deadly = save(planted({"fc3": "faulty.deadly"}), tmp_path, "deadly")
    assert main(["verify", deadly, "--runs", "8", "--processes", "1"]) == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith(
            f"{deadly}: error: process 1 ended by signal 9 before all runs were done; run the program alone"
        )
    )


def test_given_inputs_are_those_that_count(tmp_path: Path) -> None:
    x = np.random.default_rng(5).standard_normal((3, 8), np.float32)
    good = save(program(), tmp_path, "good")
    found = aicf.verify(good, runs=2, processes=1, inputs={"x": x})
    assert found.certificate.generator == "given"
    assert found.certificate.programs[0].inputs == {"x": sha(x)}
    with pytest.raises(InputMismatch, match="the certificate is of given inputs; give the same"):
        aicf.verify(good, against=found.certificate)


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 0}, "runs is 0; give a whole number of at least 1"),
        ({"processes": 1.5}, "processes is 1.5; give a whole number of at least 1"),
        ({"seed": -1}, "seed is -1; give a whole number of at least 0"),
        ({"inputs": 3}, "inputs is 3; give values by name, a dictionary"),
    ],
)
def test_options_that_are_not_legal(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputMismatch) as error:
        aicf.verify("model.aicf", **options)
    assert error.value.message == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no certificate: "),
        ("{}", "no certificate: certificate lacks field "),
        ('{"format": 3}', "no certificate: certificate"),
        ("[1]", "no certificate: certificate must be an object, got list"),
    ],
)
def test_files_that_are_no_certificates(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(text)
    with pytest.raises(ArtifactError) as error:
        aicf.verify("model.aicf", against=path)
    assert error.value.message.startswith(message) and error.value.location == str(path)
    with pytest.raises(ArtifactError, match="the certificate cannot be read: No such file"):
        aicf.verify("model.aicf", against=tmp_path / "gone.json")


def test_what_does_not_load_is_trouble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = str(tmp_path / "gone.aicf")
    with pytest.raises(ArtifactError, match="the artifact cannot be read"):
        aicf.verify(gone, processes=1)
    assert main(["verify", gone, "--processes", "1"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"{gone}: error: the artifact cannot be read")
    assert main(["verify", gone, "-o", str(tmp_path / "no" / "certificate.json")]) == 2
    assert "cannot write the certificate" in capsys.readouterr().err
