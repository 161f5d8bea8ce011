"""Sessions over engines: which one runs, what each refuses, plans by sizes and on disk, and engines that fail."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import aicf
from aicf import InferenceSession
from aicf.engines.availability import Package
from aicf.engines.openvino.engine import _names
from aicf.engines.record import Fingerprint
from aicf.engines.registry import engine_names, get_engine
from aicf.engines.report import Report
from aicf.engines.request import Request
from aicf.errors import (
    BackendUnavailable,
    EngineError,
    InputMismatch,
    PolicyError,
    SessionClosed,
    UnsupportedOp,
)
from aicf.tools.aicf_cli import main
from tests.engines.stand_ins import DEVICE, Steady, stand_ins
from tests.inference.models import classifier, rows
from tests.inference.test_onnx_session import WEIGHT, mlp

__all__ = ["stand_ins"]

pytestmark = pytest.mark.usefixtures("stand_ins")


def answer(x: np.ndarray) -> np.ndarray:
    """What the model of these tests gives, in float64."""
    scores = np.maximum(x.astype(np.float64) @ WEIGHT, 0)
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def assert_right(found: np.ndarray, x: np.ndarray) -> None:
    np.testing.assert_allclose(found, answer(x), rtol=1e-4, atol=1e-7)


# Which engine runs


def test_engines_of_other_packages_come_last() -> None:
    assert engine_names()[:5] == ["aicf", "onnxruntime", "openvino", "tensorrt", "qnn"]
    assert engine_names()[5:] == ["absent", "dying", "flaky", "old", "rough", "steady"]
    assert get_engine("steady") is get_engine("steady")


def test_aicf_is_the_default_and_says_so() -> None:
    with InferenceSession(mlp(), device="reference") as session:
        assert session.engine_name == "aicf"
        assert not session.engine.is_opaque and session.engine.because == ""
        assert str(session.engine).startswith("engine aicf ")
        assert not session.report.of("chosen")


def test_the_engine_that_is_named_runs() -> None:
    x = rows(3, 24)
    with InferenceSession(mlp(), engine="steady", device=DEVICE.upper()) as session:
        assert_right(session.run({"x": x})["y"], x)
        assert (session.engine_name, session.target) == ("steady", DEVICE)
        assert repr(session) == "InferenceSession(model: x: f32[batch, 24]; steady on abacus)"
        said = str(session.placement())
    assert "engine steady 1.0 on abacus; asked for: beads=10" in said
    assert "beads are moved by hand" in said and "(opaque)" in said


AUTO: list[tuple[dict[str, Any], str, str]] = [
    (
        {"device": "reference"},
        "aicf",
        "it is the first that takes this model as asked (no engine comes before it)",
    ),
    ({"device": DEVICE}, "steady", "rough: it is unverified, so it must be named"),
    ({"device": DEVICE}, "steady", "old: engine 'old' cannot run here: package numpy "),
    ({"device": DEVICE}, "steady", "aicf: device: there is no 'abacus'"),
]


@pytest.mark.parametrize(("options", "chosen", "because"), AUTO)
def test_auto_says_why(
    options: dict[str, Any], chosen: str, because: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.engines.stand_ins.Dying.accept", Steady.accept)
    monkeypatch.setattr("tests.engines.stand_ins.Dying.is_verified", False)
    monkeypatch.setattr("tests.engines.stand_ins.Flaky.is_verified", False)
    with InferenceSession(mlp(), engine="auto", **options) as session:
        (event,) = session.report.of("chosen")
        assert session.engine_name == chosen
        assert because in event.detail and because in str(session.engine)


def test_auto_finds_none() -> None:
    with pytest.raises(
        PolicyError, match=r"engine: none takes this model as asked; aicf: device: there is no 'moon'"
    ):
        InferenceSession(mlp(), engine="auto", device="moon")


def test_auto_follows_what_is_asked() -> None:
    """An engine that cannot follow the policy is no candidate."""
    with InferenceSession(
        mlp(), engine="auto", device="reference", kernel_policy={"tf32": True}, dims="batch=2"
    ) as session:
        assert session.engine_name == "aicf"
    with pytest.raises(
        PolicyError, match="steady: engine 'steady' decides for itself and cannot follow the kernel"
    ):
        InferenceSession(mlp(), engine="auto", device=DEVICE, kernel_policy={"tf32": True})


@pytest.mark.parametrize(("name", "device"), [("aicf", "reference"), ("steady", None)])
def test_a_prepared_model_opens_sessions(name: str, device: str | None) -> None:
    """The contract without `InferenceSession`: equal requests have one fingerprint, and sessions end one by one."""
    request, x = Request(mlp(), device=device, dims="batch=2"), rows(2, 24)
    first, second = (get_engine(name).prepare(request, Report()) for _ in range(2))
    assert first.fingerprint.key == second.fingerprint.key and first.fingerprint.engine == name
    sessions = [first.session(), first.session()]
    sessions[0].close()
    assert_right(sessions[1].run([x])["y"], x)
    assert sessions[1].record.fingerprint == first.fingerprint
    sessions[1].close()


@pytest.mark.parametrize(
    "name", ["aicf", "onnxruntime", "openvino", "tensorrt", "qnn", "absent", "old", "steady"]
)
def test_every_engine_says_whether_it_can_run(name: str) -> None:
    """And what to do if it cannot."""
    engine = get_engine(name)
    found = engine.availability()
    assert engine.name == name and isinstance(engine.is_verified, bool)
    assert found.is_available == bool(found.devices) == (not found.missing)
    assert bool(found.missing) == bool(found.remedy)
    assert str(found) == ("yes" if found.is_available else f"{found.missing}; {found.remedy}")


def test_openvinos_devices_have_their_own_names_and_numbers() -> None:
    """Of a machine with one processor, two GPUs and an NPU."""
    found = dict(_names(("CPU", "GPU.0", "GPU.1", "NPU")))
    assert found == {
        **{"cpu": "CPU", "CPU": "CPU", "npu": "NPU", "NPU": "NPU"},
        **{"gpu": "GPU.0", "gpu:0": "GPU.0", "GPU.0": "GPU.0", "gpu:1": "GPU.1", "GPU.1": "GPU.1"},
    }


# What is refused

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"engine": "onyx"},
        PolicyError,
        "engine: there is no 'onyx'; registered: aicf, onnxruntime, openvino, ",
    ),
    (
        {"engine": "cpu:x86-64-v3"},
        PolicyError,
        "engine: there is no 'cpu:x86-64-v3'; a backend of AICF and its level are target='cpu:x86-64-v3'",
    ),
    ({"engine": 5}, PolicyError, "engine: 5 is no name; registered: aicf, "),
    (
        {"engine": "absent"},
        BackendUnavailable,
        "engine 'absent' cannot run here: package no_such_engine is not installed; pip install ",
    ),
    (
        {"engine": "old"},
        BackendUnavailable,
        f"engine 'old' cannot run here: package numpy {np.__version__} is installed, 99.1 or later and ",
    ),
    ({"device": "cpu"}, PolicyError, "device: engine 'steady' finds no 'cpu' here; legal: abacus"),
    ({"device": 3}, PolicyError, "device: engine 'steady' finds no 3 here; legal: abacus"),
    (
        {"kernel_policy": {"tf32": True}},
        PolicyError,
        "engine 'steady' decides for itself and cannot follow the kernel policy's tf32; leave it out, or use "
        "engine='aicf' (fields of policies that it follows: new_shapes)",
    ),
    (
        {"policy": "{to: f16}"},
        PolicyError,
        "engine 'steady' decides for itself and cannot follow the precision policy's to",
    ),
    (
        {"exec_policy": {"max_programs": 3}},
        PolicyError,
        "engine 'steady' decides for itself and cannot follow the execution",
    ),
    ({"threads": 2}, PolicyError, "engine 'steady' decides for itself and cannot follow threads="),
    ({"target": "cpu"}, PolicyError, "engine 'steady' decides for itself and cannot follow target="),
    ({"weights": {}}, PolicyError, "engine 'steady' decides for itself and cannot follow weights="),
    ({"strict": True}, PolicyError, "engine 'steady' decides for itself and cannot follow strict="),
    ({"values": {"x": [1]}}, PolicyError, "engine 'steady' decides for itself and cannot follow values="),
    (
        {"dims": {"rows": 2}},
        PolicyError,
        "dims: the program has no symbolic dimension rows; its dimensions are: batch",
    ),
    (
        {"policy": "{max_programs: 2}", "exec_policy": {"max_programs": 3}},
        PolicyError,
        "max_programs: 2 in policy=, 3 in exec_policy=; drop one of them",
    ),
]


@pytest.mark.parametrize(("options", "kind", "message"), WRONG)
def test_nothing_that_is_asked_is_ignored(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as error:
        InferenceSession(mlp(), **{"engine": "steady", **options})
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (classifier(), "not a Graph; export the model to ONNX, or use engine='aicf'"),
        ("model.mlir", "not a .mlir; "),
        ("model.aicf", "not a .aicf; "),
        ("func.func @f() {}", "not a str; "),
    ],
)
def test_engines_take_onnx_models(model: Any, what: str) -> None:
    with pytest.raises(UnsupportedOp, match="engine 'steady' takes ONNX models") as error:
        InferenceSession(model, engine="steady")
    assert what in error.value.message


def test_a_model_that_is_damaged_is_an_error_of_every_engine(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(mlp().SerializeToString()[:1000])
    for engine in ("steady", "auto"):
        with pytest.raises(aicf.InvalidIR, match="no ONNX model, or a truncated one"):
            InferenceSession(path, engine=engine)


def test_a_policy_in_one_argument_is_followed_by_aicf() -> None:
    policy = aicf.Policy(execution=aicf.ExecutionPolicy(new_shapes="refuse"))
    for given in (policy, policy.execution, {"new_shapes": "refuse"}, '{"new_shapes": "refuse"}'):
        with (
            InferenceSession(mlp(), device="reference", policy=given, dims="batch=2") as session,
            pytest.raises(InputMismatch, match="the execution policy says new_shapes: refuse"),
        ):
            session.run([rows(3, 24)])


@pytest.mark.parametrize(
    ("version", "is_right"),
    [("1.20.0", True), ("1.19.9", False), ("1.32.0.dev1", True), ("2.0", False), ("", False)],
)
def test_versions_are_compared_by_their_numbers(
    version: str, is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx, "__version__", version)
    module, found = Package("onnx", "1.20", "2", "onnx").find()
    assert (module is onnx) is found.is_available is is_right
    assert found.version == version


# Plans by sizes


def test_sizes_ahead_have_plans_and_others_get_one() -> None:
    with InferenceSession(mlp(), engine="steady", dims={"batch": [1, 4]}) as session:
        assert [event.program for event in session.report.of("compiled")] == ["batch=1", "batch=4"]
        for count in (4, 2, 2):
            assert_right(session.run([rows(count, 24)])["y"], rows(count, 24))
        assert [event.program for event in session.report.of("compiled")][2:] == ["batch=2"]
        assert [event.program for event in session.report.of("picked")] == ["batch=4", "batch=2"]
        session.warm_up()
        session.warm_up({"batch": 7})
        assert session.report.of("compiled")[-1].program == "batch=7"


def test_new_sizes_may_be_refused() -> None:
    refuse = {"new_shapes": "refuse"}
    with InferenceSession(mlp(), engine="steady", exec_policy=refuse, dims={"batch": [1, 4]}) as session:
        assert_right(session.run([rows(4, 24)])["y"], rows(4, 24))
        with pytest.raises(
            InputMismatch, match=r"no plan for batch=2; made for batch=1 \| batch=4; the execution policy"
        ):
            session.run([rows(2, 24)])


def test_many_threads_get_one_answer() -> None:
    with InferenceSession(mlp(), engine="steady") as session, ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda _: session.run([rows(5, 24)])["y"].tobytes(), range(40))
        assert len({hashlib.sha256(each).hexdigest() for each in results}) == 1
        assert len(session.report.of("compiled")) == 1


# Calls

CALLS: list[tuple[Callable[[InferenceSession], object], str]] = [
    (lambda s: s.run({"z": rows(2, 24)}), "there is no input 'z'; it has x"),
    (
        lambda s: s.run([rows(2, 24).astype(np.float64)]),
        "input 'x': expected f32[2, 24], got f64[2, 24]; convert it",
    ),
    (
        lambda s: s.run([rows(2, 23)]),
        "input 'x': expected f32[batch, 24], got f32[2, 23]; the model fixes dimension 1",
    ),
    (lambda s: s.run([rows(2, 24)], ["z"]), "there is no output 'z'; it has y"),
    (lambda s: s.run([rows(2, 24)], out={"z": rows(2)}), "there is no output 'z'; it has y"),
    (
        lambda s: s.run([rows(2, 24)], out=rows(3, 600)),
        "output 'y': the result is float32[2, 600], out is float32[3, 600]",
    ),
    (lambda s: s.bind(x=rows(24, 2).T).run(), "input 'x' is not row-major, zero-copy needs that"),
    (lambda s: s.bind(y=rows(2, 600)).run(), "input 'x' is not bound; bind it first"),
    (lambda s: s.bind(x=rows(2, 24)).outputs(), "an output that is not bound is there after the first run"),
    (
        lambda s: s.bind(x=rows(2, 24), y=rows(3, 600)).run(),
        "output 'y' has shape [2, 600], what is bound has [3, 600]",
    ),
    (
        lambda s: s.bind(x=rows(2, 24), y=np.broadcast_to(rows(600), (2, 600))),
        "output 'y' is a read-only array",
    ),
    (lambda s: s.state("w"), "there is no state 'w'; it has none"),
    (lambda s: s.set_state({}), "'model' updates nothing, so it has no state"),
    (lambda s: s.profile([rows(2, 24)], repeats=0), "0 is no number of runs"),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_wrong_calls_say_what_is_right(call: Callable[[InferenceSession], object], message: str) -> None:
    with InferenceSession(mlp(), engine="steady") as session, pytest.raises(InputMismatch) as error:
        call(session)
    assert error.value.message.startswith(message)


def test_memory_of_the_caller_is_read_and_written() -> None:
    x, y = rows(3, 24), np.full((3, 600), np.nan, np.float32)
    with InferenceSession(mlp(), engine="steady") as session:
        assert session.run([x], out=y)["y"] is y
        assert_right(y, x)
        binding = session.bind(x=x, y=y)
        x *= -1
        binding.run(2)
        assert_right(y, x)
        other = rows(5, 24, seed=9)
        fresh = session.bind(x=other)
        fresh.start()
        fresh.wait()
        assert_right(fresh["y"], other)
        assert session.profile([x], repeats=3).replay_us > 0
        with pytest.raises(
            PolicyError, match="engine 'steady' does not tell what memory it holds; `aicf compare`"
        ):
            session.memory  # noqa: B018


def test_a_closed_session_says_so() -> None:
    session = InferenceSession(mlp(), engine="steady")
    binding = session.bind(x=rows(2, 24))
    session.close()
    session.close()
    for use in (lambda: session.run([rows(2, 24)]), binding.run, session.warm_up, session.state):
        with pytest.raises(
            SessionClosed, match="the session of 'model' is closed; make a new InferenceSession"
        ):
            use()


# Engines that fail


def test_a_run_that_fails_is_told_in_one_line_and_the_next_goes_on() -> None:
    x = rows(2, 24)
    with InferenceSession(mlp(), engine="flaky") as session:
        assert_right(session.run([x])["y"], x)
        with pytest.raises(EngineError) as error:
            session.run([x])
        assert error.value.message == (
            "engine 'flaky' failed while it ran the model: the device was lost at bead 3; correct what it names, or "
            "use engine='aicf'"
        )
        assert_right(session.run([x])["y"], x)
    with InferenceSession(mlp(), engine="flaky") as session:
        binding = session.bind(x=x)
        binding.run()
        with pytest.raises(
            EngineError, match="engine 'flaky' failed while it ran the model: the device was lost"
        ):
            binding.run()
        binding.run()
        assert_right(binding["y"], x)


# Plans on disk


def opened(folder: Path, model: onnx.ModelProto, **options: Any) -> list[tuple[str, str]]:
    """Events of a session that opens and answers, as kinds and programs."""
    with InferenceSession(model, engine="steady", cache_dir=folder, dims="batch=2", **options) as session:
        assert session.run([rows(2, 24)])["y"].shape == (2, 600)
        hashes = [hashlib.sha256(path.read_bytes()[32:]).hexdigest() for path in folder.glob("*.plan")]
        assert set(session.engine.plans.values()) <= set(hashes)
        return [
            (each.what, each.program)
            for each in session.report.of("compiled", "loaded", "rebuilt", "unsaved")
        ]


def test_plans_are_kept_and_found_again(tmp_path: Path) -> None:
    model = mlp()
    assert opened(tmp_path, model) == [("compiled", "batch=2")]
    assert opened(tmp_path, model) == [("loaded", "batch=2")]
    (about,) = tmp_path.glob("*.json")
    assert json.loads(about.read_text())["sizes"] == {"batch": 2}
    model.graph.node[1].op_type = "Abs"
    assert opened(tmp_path, model) == [("compiled", "batch=2")]


def test_a_plan_of_another_version_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path, mlp())
    monkeypatch.setattr(Steady, "version", "1.1")
    assert opened(tmp_path, mlp()) == [("compiled", "batch=2")]


@pytest.mark.parametrize(
    "damage",
    [
        lambda plan: plan[:-1],
        lambda plan: plan[:40] + bytes([plan[40] ^ 1]) + plan[41:],
        lambda plan: b"",
        lambda plan: hashlib.sha256(b"[]\n").digest() + b"[]\n",
    ],
    ids=["cut", "flipped", "empty", "whole and of other sizes"],
)
def test_a_plan_that_cannot_be_used_is_made_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    opened(tmp_path, mlp())
    (path,) = tmp_path.glob("*.plan")
    path.write_bytes(damage(path.read_bytes()))
    assert opened(tmp_path, mlp()) == [("rebuilt", "batch=2"), ("compiled", "batch=2")]
    assert opened(tmp_path, mlp()) == [("loaded", "batch=2")]


def test_weights_in_files_of_their_own_are_part_of_the_hash(tmp_path: Path) -> None:
    path, digests = tmp_path / "model.onnx", list[str]()
    onnx.save(mlp(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    for flip in (0, 1):
        data = (tmp_path / "weights.bin").read_bytes()
        (tmp_path / "weights.bin").write_bytes(bytes([data[0] ^ flip]) + data[1:])
        with InferenceSession(path, engine="steady") as session:
            digests.append(session.engine.fingerprint.model)
    assert digests[0] != digests[1]
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(aicf.InvalidIR, match=r"cannot read 'weights.bin' of the model"):
        InferenceSession(path, engine="steady")


def test_all_of_a_fingerprint_is_in_its_key() -> None:
    own = Fingerprint("steady", "1", "abacus", {"beads": "10"}, "00", {"batch": 2})
    others = [
        replace(own, engine="flaky"),
        replace(own, version="2"),
        replace(own, target="npu"),
        replace(own, options={"beads": "11"}),
        replace(own, model="01"),
        replace(own, sizes={"batch": 3}),
    ]
    assert len({each.key for each in (own, *others)}) == 7
    assert replace(own, options=dict(own.options)).key == own.key


# The command line


def test_the_command_lists_what_is_here_and_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engines"]) == 0
    said = capsys.readouterr().out
    assert "rough" in said and "unverified" in said
    assert "absent: package no_such_engine is not installed; pip install " in said
    assert main(["engines", "--json"]) == 0
    listed = {row["engine"]: row for row in json.loads(capsys.readouterr().out)}
    assert listed["steady"] == {
        "engine": "steady",
        "version": "1.0",
        "devices": [DEVICE],
        "verified": True,
        "available": True,
        "missing": "",
        "remedy": "",
    }
    assert not listed["tensorrt"]["verified"] and not listed["qnn"]["verified"]
    assert not listed["old"]["available"] and listed["old"]["version"] == np.__version__


def test_a_model_runs_by_the_engine_that_the_command_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, x = tmp_path / "model.onnx", rows(3, 24)
    onnx.save(mlp(), path)
    np.save(tmp_path / "x.npy", x)
    asked = ["run", str(path), "--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path)]
    assert main([*asked, "--engine", "steady"]) == 0
    assert_right(np.load(tmp_path / "y.npy"), x)
    assert main([*asked, "--engine", "absent"]) == 1
    assert "error: engine 'absent' cannot run here: package no_such_engine" in capsys.readouterr().err


def test_what_opens_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "aicf.inference"),
        InferenceSession(mlp(), engine="rough", dims="batch=2"),
    ):
        assert "engine rough 1.0 on abacus (unverified)" in caplog.text
        assert "compiled batch=2" in caplog.text
