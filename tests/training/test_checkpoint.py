"""Checkpoints: a resumed training goes on bit by bit, a killed process leaves the old file, others are refused."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import aicf
from aicf import ArtifactError, Graph, InputMismatch
from aicf.runtime.graph_exec import GraphExec
from aicf.training import initial_weights
from aicf.training.checkpoint import read_checkpoint, write_checkpoint
from tests.support.training_models import CLASSES, batches, classifier

ROOT = Path(__file__).parent.parent.parent
STEPS = 10
OPS = ("linear", "Adam")


def new_step(seed: int = 5) -> aicf.TrainStep:
    schedule = aicf.schedules.Cosine(1e-2, warmup=3, total=20)
    return aicf.train_step(
        classifier(dtype="f32"), "cross_entropy", aicf.optimizers.Adam(schedule), seed=seed
    )


def train(step: aicf.TrainStep, first: int, last: int) -> aicf.TrainStep:
    """Steps `first` to `last`, counted from 0, each on its own batch."""
    for x, y in batches(STEPS, dtype="f32")[first:last]:
        step(x, y)
    return step


@pytest.fixture(scope="module")
def small() -> aicf.TrainStep:
    return new_step()


def digest(step: aicf.TrainStep) -> str:
    """Of every bit of the state."""
    parts = [name.encode() + array.tobytes() for name, array in sorted(step.state_dict().items())]
    return hashlib.sha256(b"".join(parts)).hexdigest()


RESUME = """
import sys
from tests.training.test_checkpoint import STEPS, digest, new_step, train
step = new_step(seed=6)  # whose first weights are other ones
step.load(sys.argv[1])
assert step.steps == STEPS // 2
print(digest(train(step, STEPS // 2, STEPS)))
"""


def test_a_resumed_training_has_the_same_bits(tmp_path: Path):
    path = tmp_path / "half.ckpt"
    step = train(new_step(), 0, STEPS // 2)
    step.save(path)
    train(step, STEPS // 2, STEPS)
    command = [sys.executable, "-c", RESUME, path]
    resumed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert resumed.stdout.strip() == digest(step)
    expected, whole = step.losses(), digest(step)
    step.load(path)
    assert step.steps == STEPS // 2 and digest(step) != whole
    assert digest(train(step, STEPS // 2, STEPS)) == whole
    np.testing.assert_array_equal(step.losses(), expected)
    with pytest.raises(InputMismatch, match="no loss of step 11; known are 1 to 10"):
        step.loss_of(11)


LOADED = """
import sys, aicf
step = aicf.load_step(sys.argv[1])
compilers = ("xdsl", "numba", "aicf.compilation.compiler", "aicf.compilation.sources")
print(*(name for name in compilers if name in sys.modules))
import numpy as np
from hashlib import sha256
batches = np.load(sys.argv[2])
for x, y in zip(batches["x"], batches["y"]):
    step(x, y)
print(sha256(b"".join(n.encode() + a.tobytes() for n, a in sorted(step.state_dict().items()))).hexdigest())
"""


def test_a_step_in_an_artifact_goes_on_with_the_same_bits(tmp_path: Path):
    """Where it was saved, in a process without a compiler; it reads and writes checkpoints, and knows its model."""
    path, rest = tmp_path / "half.aicf", batches(STEPS, dtype="f32")[STEPS // 2 :]
    step = train(new_step(), 0, STEPS // 2)
    step.save_program(path)
    step.save(tmp_path / "half.ckpt")
    train(step, STEPS // 2, STEPS)
    arrays = {name: np.stack(column) for name, column in zip("xy", zip(*rest, strict=True), strict=True)}
    np.savez(tmp_path / "rest.npz", **arrays)
    command = [sys.executable, "-c", LOADED, path, tmp_path / "rest.npz"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", digest(step)]
    loaded = aicf.load_step(path, native="rebuild")
    assert loaded.steps == STEPS // 2
    assert digest(train(loaded, STEPS // 2, STEPS)) == digest(step)
    np.testing.assert_array_equal(loaded.losses(), step.losses())
    assert loaded.weights().keys() == step.weights().keys() < loaded.state_dict().keys()
    loaded.load(tmp_path / "half.ckpt")
    assert digest(train(loaded, STEPS // 2, STEPS)) == digest(step)
    write_checkpoint(path, loaded.state_dict(), ["gelu"])
    refuses(loaded, path, "its op 1 is gelu, here it is linear")


def test_a_step_in_an_artifact_begins_anew_where_only_the_program_is_saved(
    small: aicf.TrainStep, tmp_path: Path
):
    train(small, 0, 1).executable.save(tmp_path / "new.aicf")
    loaded = aicf.load_step(tmp_path / "new.aicf")
    assert loaded.steps == 0 and digest(loaded) == digest(new_step())


def test_a_saved_step_keeps_the_rate_of_the_host_and_its_bad_step(tmp_path: Path):
    rate = aicf.schedules.FromHost(0.5)
    step = aicf.train_step(
        classifier(), "cross_entropy", aicf.optimizers.SGD(rate), seed=1, meta="host", check_finite=True
    )
    (good,) = batches(1)
    step(*good)
    step.set_learning_rate(0.125)
    step(np.full_like(good[0], np.nan), good[1])
    step.save_program(tmp_path / "bad.aicf")
    loaded = aicf.load_step(tmp_path / "bad.aicf")
    assert loaded.bad_step == step.bad_step == 2 and loaded.steps == 1
    state = loaded.state_dict()
    assert state["lr"] == 0.125
    for one in (step, loaded):
        one.load_state_dict(state)
        assert one.bad_step is None and float(one(*good)) == one.losses()[0]
    assert digest(loaded) == digest(step)
    loaded.set_learning_rate(0.25)
    assert loaded.state_dict()["lr"] == 0.25


def test_an_artifact_that_holds_no_step_is_refused(tmp_path: Path):
    graph, path = classifier(), tmp_path / "model.aicf"
    aicf.compile(graph, initial_weights(graph)).save(path)
    with pytest.raises(ArtifactError, match="the artifact is of no training step, aicf.load"):
        aicf.load_step(path)


@pytest.mark.parametrize("comes", ["before", "after"])
def test_an_interrupted_step_is_counted_if_it_was_done(comes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses and numbers follow the program's own counter."""
    steps, done = 4, 2 if comes == "before" else 3
    whole, step = train(new_step(), 0, steps), train(new_step(), 0, 2)
    replay = GraphExec.replay

    def interrupted(graph_exec: GraphExec, n: int = 1) -> None:
        if comes == "after":
            replay(graph_exec, n)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(GraphExec, "replay", interrupted)
        step(*batches(steps, dtype="f32")[2])
    for number, batch in enumerate(batches(steps, dtype="f32")[done:], done + 1):
        assert step(*batch).number == number
    assert step.steps == steps and digest(step) == digest(whole)
    np.testing.assert_array_equal(step.losses(), whole.losses())


SAVING = """
import sys
import numpy as np
from aicf.training.checkpoint import write_checkpoint
big = np.zeros(4 << 20, np.float32)
number = 0
while True:
    number += 1
    write_checkpoint(sys.argv[1], {"w": big + number, "step": np.asarray(number)}, ["linear", "Adam"])
    print(number, flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.011])
def test_a_killed_process_leaves_a_whole_checkpoint(tmp_path: Path, delay: float):
    path = tmp_path / "a.ckpt"
    process = subprocess.Popen([sys.executable, "-c", SAVING, path], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    time.sleep(delay)  # into the third write, wherever that is
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    said = process.stdout.read().split()
    process.stdout.close()
    saved = read_checkpoint(path, OPS)
    number = int(saved["step"])
    assert number >= 2 + len(said) and (saved["w"] == number).all()


def test_an_interrupted_write_leaves_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.ckpt"
    write_checkpoint(path, {"w": np.ones(3)}, OPS)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtifactError, match="cannot write the checkpoint: No space left"):
        write_checkpoint(path, {"w": np.zeros(3)}, OPS)
    assert [file.name for file in tmp_path.iterdir()] == ["a.ckpt"]
    assert (read_checkpoint(path, OPS)["w"] == 1).all()


def test_names_are_those_of_pytorch(small: aicf.TrainStep, tmp_path: Path):
    train(small, 0, 1).save(tmp_path / "one.ckpt")
    saved = safetensors.numpy.load_file(tmp_path / "one.ckpt")
    params = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    states = [f"{name}.{state}" for name in params for state in ("exp_avg", "exp_avg_sq")]
    assert saved.keys() == {*params, *states, "step", "aicf.history"} and saved["step"] == small.steps


def refuses(step: aicf.TrainStep, path: Path, message: str, error: type[Exception] = InputMismatch) -> None:
    before = digest(step)
    with pytest.raises(error, match=re.escape(message)):
        step.load(path)
    assert digest(step) == before


def wider() -> Graph:
    """As the classifier, with one more class."""
    graph = Graph("classifier")
    x = graph.input("x", (8, 6))
    w1, b1 = graph.param("fc1.weight", (8, 6)), graph.param("fc1.bias", (8,))
    w2, b2 = graph.param("fc2.weight", (CLASSES + 1, 8)), graph.param("fc2.bias", (CLASSES + 1,))
    graph.output(graph.linear(graph.relu(graph.linear(x, w1, b1)), w2, b2), "logits")
    return graph


def test_the_first_difference_to_another_model_is_named(small: aicf.TrainStep, tmp_path: Path):
    path = tmp_path / "other.ckpt"
    aicf.train_step(wider(), "cross_entropy", aicf.optimizers.Adam()).save(path)
    refuses(small, path, "'fc2.weight' is f32[4, 8] in the state, here it is f32[3, 8]")
    state = small.state_dict()
    ops = ["linear", "relu", "linear", "CrossEntropyLoss", "Adam"]
    write_checkpoint(path, state, ["linear", "gelu", *ops[2:]])
    refuses(small, path, "the checkpoint is of another model: its op 2 is gelu, here it is relu")
    write_checkpoint(path, state, [*ops[:-1], "AdamW"])
    refuses(small, path, "its op 5 is AdamW, here it is Adam")
    write_checkpoint(path, state, [*ops, "Dropout"])
    refuses(small, path, "its op 6 is Dropout, here it is nothing")
    write_checkpoint(path, {name: array for name, array in state.items() if name != "step"}, ops)
    refuses(small, path, "the state has no 'step': here it is i64[]")
    write_checkpoint(path, {**state, "fc3.bias": np.ones(2)}, ops)
    refuses(small, path, "the state has 'fc3.bias', which nothing here has")


def test_what_is_no_checkpoint_is_refused(small: aicf.TrainStep, tmp_path: Path):
    path = tmp_path / "file"
    refuses(small, path, "cannot read the checkpoint", ArtifactError)
    path.write_bytes(b"nothing of that kind")
    refuses(small, path, "cannot read the checkpoint", ArtifactError)
    safetensors.numpy.save_file(small.state_dict(), path)
    refuses(small, path, "the file is no checkpoint of this version of AICF", ArtifactError)
    for ops in ({}, {"aicf.ops": "{"}):
        safetensors.numpy.save_file(small.state_dict(), path, {"aicf.checkpoint": "1", **ops})
        refuses(small, path, "the file is no checkpoint of this version of AICF", ArtifactError)
    small.save(path)
    path.write_bytes(path.read_bytes()[:-5])
    refuses(small, path, "cannot read the checkpoint", ArtifactError)
    with pytest.raises(ArtifactError, match="cannot write the checkpoint"):
        small.save(tmp_path)
