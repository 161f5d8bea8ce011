"""Sessions: values, what they say of themselves, first use, threads, state, and what every wrong call says."""

from __future__ import annotations

import gc
import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import InferenceSession
from aicf.backends.reference.backend import ReferenceBackend
from aicf.backends.registry import get_backend
from aicf.engines.interface import Bucket
from aicf.errors import ArtifactError, BackendUnavailable, InputMismatch, PolicyError, SessionClosed
from aicf.inference import devices
from tests.inference.models import (
    SCORES,
    WEIGHTS,
    classified,
    classifier,
    counter,
    rows,
    scored,
    scores,
)

pytestmark = pytest.mark.usefixtures("few_objects")
THREADS = 8
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session() -> Iterator[InferenceSession]:
    with InferenceSession(classifier(), WEIGHTS, dims={"N": [1, 5]}) as session:
        yield session


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("session") / "classifier.aicf"
    aicf.compile(classifier(), WEIGHTS, "cpu", dims="N=1,5").save(path)
    return path


def assert_classified(results: Mapping[str, np.ndarray], x: np.ndarray) -> None:
    logits, probabilities = classified(x)
    np.testing.assert_allclose(results["logits"], logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results["probabilities"], probabilities, rtol=1e-4, atol=1e-6)


# What it is, and calls


def test_it_says_what_it_takes_and_gives(session: InferenceSession) -> None:
    assert [(s.name, s.shape, s.dtype) for s in session.input_info] == [("x", ("N", 24), "f32")]
    assert [(s.name, s.shape) for s in session.output_info] == [
        ("logits", ("N", 10)),
        ("probabilities", ("N", 10)),
    ]
    assert session.target.startswith("cpu:")
    assert repr(session) == f"InferenceSession(classifier: x: f32[N, 24]; {session.target})"


@pytest.mark.parametrize("count", [1, 5, 3])
def test_inputs_by_name_and_in_order(session: InferenceSession, count: int) -> None:
    """Three rows have no program ahead; one is made."""
    x = rows(count, 24, seed=count)
    for feeds in ({"x": x}, [x], (x,)):
        results = session.run(feeds)
        assert list(results) == ["logits", "probabilities"]
        assert_classified(results, x)


def test_the_outputs_that_are_asked_for(session: InferenceSession) -> None:
    x = rows(5, 24)
    results = session.run([x], ["probabilities"])
    assert list(results) == ["probabilities"]
    np.testing.assert_array_equal(results["probabilities"], session.run([x])["probabilities"])
    assert list(session.run([x], ["probabilities", "logits"])) == ["probabilities", "logits"]


def test_outputs_in_the_callers_memory(session: InferenceSession) -> None:
    x, mine = rows(5, 24), np.full((5, 10), np.nan, np.float32)
    results = session.run({"x": x}, out={"logits": mine})
    assert results["logits"] is mine
    assert_classified(results, x)


def test_results_are_fresh(session: InferenceSession) -> None:
    x = rows(5, 24)
    first = session.run([x])["logits"]
    kept = first.copy()
    first += 1
    session.run([-x])
    np.testing.assert_array_equal(first, kept + 1)


WRONG: list[tuple[Any, str]] = [
    ({"y": rows(1, 24)}, "there is no input 'y'; it has x"),
    ({"x": rows(1, 24), "z": rows(1)}, "there is no input 'z'; it has x"),
    ({}, "missing input x; it takes x: f32[N, 24]"),
    ([], "expected 1 inputs, got 0; it takes x: f32[N, 24]"),
    ([rows(1, 24)] * 2, "expected 1 inputs, got 2; it takes x: f32[N, 24]"),
    (
        rows(1, 24),
        "inputs are a dict by name or a list in order, got ndarray; it takes x: f32[N, 24]",
    ),
    (
        [rows(1, 24).astype(np.float64)],
        "input 'x': expected f32[1, 24], got f64[1, 24]; convert it, as in array.astype('float32')",
    ),
    ([rows(24)], "input 'x': expected f32[N, 24], got f32[24]; rank must be 2, is 1"),
    ([rows(2, 23)], "input 'x': expected f32[N, 24], got f32[2, 23]; the model fixes dimension 1 to 24"),
    ([rows(0, 24)], "no program for N=0; "),
    ([[1.0] * 24], "input 'x': expected an array f32[N, 24], got list; use np.asarray"),
]


@pytest.mark.parametrize(("feeds", "message"), WRONG)
def test_wrong_inputs_say_what_is_wrong(session: InferenceSession, feeds: Any, message: str) -> None:
    with pytest.raises(InputMismatch) as error:
        session.run(feeds)
    assert error.value.message.startswith(message)


def test_wrong_outputs_say_what_is_wrong(session: InferenceSession) -> None:
    x = rows(1, 24)
    with pytest.raises(
        InputMismatch, match=r"no output 'logit'; did you mean 'logits'\? it has logits, prob"
    ):
        session.run([x], ["logit"])
    with pytest.raises(InputMismatch, match=r"got the string 'logits'; write \['logits'\]"):
        session.run([x], "logits")
    for names in (None, ["logits"]):  # the order of ONNX Runtime
        with pytest.raises(
            InputMismatch,
            match=r"inputs come first, as in session\.run\(feeds, \['logits', 'probabilities'\]\)",
        ):
            session.run(names, {"x": x})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("size", [[2, 4], "8", -1, 1.5, True])
def test_a_size_to_warm_up_is_one_whole_number(session: InferenceSession, size: Any) -> None:
    with pytest.raises(InputMismatch) as error:
        session.warm_up({"N": size})
    assert error.value.message.startswith(f"dimension N has one size, 0 or more, got {size!r}; write ")


# Shapes


def test_every_pair_of_sizes_gets_its_program() -> None:
    """Sizes are told from all inputs, and given sizes need not name all dimensions."""
    with InferenceSession(scores(), SCORES, dims={"Q": 2}) as session:
        assert session.report.of("compiled", "picked") == ()
        for many in ((2, 3), (2, 4), (5, 3), (2, 3)):
            q, k, scale = rows(many[0], 24), rows(many[1], 12, seed=1), rows(many[0], 1, seed=2)
            found = session.run({"k": k, "q": q, "scale": scale})["s"]
            np.testing.assert_allclose(found, scored(q, k, scale), rtol=1e-4, atol=1e-4)
        assert [event.program for event in session.report.of("compiled")] == [
            "Q=2, K=3",
            "Q=2, K=4",
            "Q=5, K=3",
        ]
        with pytest.raises(InputMismatch) as error:
            session.run([rows(2, 24), rows(3, 12), rows(3, 1)])
        assert error.value.message == (
            "Q is 2 in input 'q', 3 in 'scale'; it is one size for the whole model"
        )


def test_new_shapes_are_refused_where_the_policy_says_so() -> None:
    policy = {"new_shapes": "refuse"}
    with InferenceSession(classifier(), WEIGHTS, dims="N=1,5", exec_policy=policy) as session:
        assert_classified(session.run([rows(5, 24)]), rows(5, 24))
        with pytest.raises(InputMismatch) as error:
            session.run([rows(2, 24)])
    assert error.value.message == (
        "no program for N=2; made for N=1 | N=5; the execution policy says new_shapes: refuse; give these sizes in "
        "dims= too"
    )


def test_the_least_recently_used_program_goes_first() -> None:
    """Those given ahead stay; what was evicted is made again."""
    policy = aicf.ExecutionPolicy(max_programs=2)
    with InferenceSession(classifier(), WEIGHTS, dims="N=1", exec_policy=policy) as session:
        for count in (2, 3, 2, 4, 2, 3, 1):
            assert_classified(session.run([rows(count, 24)]), rows(count, 24))
        events = [(event.what, event.program) for event in session.report.of("compiled", "evicted")]
    made, gone = "compiled", "evicted"
    assert events == [
        (made, "N=2"),
        (made, "N=3"),
        (made, "N=4"),
        (gone, "N=3"),
        (made, "N=3"),
        (gone, "N=4"),
    ]


def test_programs_go_when_they_hold_too_many_bytes() -> None:
    """The limit is on intermediates, and on packed weights, which count once."""
    k, ahead = rows(3, 12), {"Q": 1, "K": 3}

    def called(session: InferenceSession, count: int) -> None:
        q, scale = rows(count, 24), rows(count, 1)
        np.testing.assert_allclose(session.run([q, k, scale])["s"], scored(q, k, scale), rtol=1e-3, atol=1e-3)

    with InferenceSession(scores(), SCORES, dims=ahead) as session:
        called(session, 600)
        one, many = (program.nbytes for program in session._session._programs.all)
        packed = session.memory.prepared
    assert many > 4 * 600 * 12 and packed > 0
    policy = {"max_bytes": packed + one + many + many // 2}
    with InferenceSession(scores(), SCORES, dims=ahead, exec_policy=policy) as session:
        for count in (600, 599):
            called(session, count)
        (event,) = session.report.of("evicted")
        assert event.program == "Q=600, K=3" and event.detail.startswith(
            f"max_bytes is {policy['max_bytes']:,}, "
        )
        assert event.detail.endswith(f"; {many:,} bytes given back")
    with InferenceSession(scores(), SCORES, exec_policy={"max_bytes": packed + many - 1}) as session:
        with pytest.raises(
            PolicyError, match=r"max_bytes: with the program for Q=600, K=3 the session holds .*raise it"
        ):
            called(session, 600)
        assert session._session._programs.all == ()
    with pytest.raises(PolicyError, match="max_bytes: with the programs given ahead the session holds"):
        InferenceSession(scores(), SCORES, dims=ahead, exec_policy={"max_bytes": 10})


def test_an_evicted_program_still_runs_for_whoever_bound_it() -> None:
    policy = {"max_programs": 1}
    with InferenceSession(classifier(), WEIGHTS, exec_policy=policy) as session:
        x = rows(2, 24)
        binding = session.bind(x=x)
        session.run([rows(3, 24)])
        assert [event.program for event in session.report.of("evicted")] == ["N=2"]
        binding.run()
        assert_classified(binding.outputs(), x)


# What it reports


def test_the_placement_is_said_when_it_opens(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level("INFO", "aicf.inference"),
        InferenceSession(classifier(), WEIGHTS, dims="N=5") as session,
    ):
        said = caplog.text
        placement = session.placement()
        launches = session._session._programs.all[0].plan.launches
    assert str(placement) in said
    (program,) = placement.programs
    assert sum(program.kernels.values()) == len(launches)
    assert f"classifier on {placement.target}: N=5; others are compiled on first use" in said
    assert "x: f32[N, 24] -> logits: f32[N, 10], probabilities: f32[N, 10]" in said
    assert f"arena {program.arena:,} bytes (lower bound {program.lower_bound:,})" in said


def test_without_logging_it_is_said_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from aicf.engines.report import LOGGER

    monkeypatch.setattr("aicf.support.progress.SHOW_AFTER", 3600.0)  # however slow the machine is
    monkeypatch.setattr(LOGGER, "propagate", False)
    with InferenceSession(classifier(), WEIGHTS, dims="N=5") as session:
        assert str(session.placement()) in capsys.readouterr().err
        monkeypatch.setattr(LOGGER, "level", 30)
        session.run([rows(2, 24)])
        assert capsys.readouterr().err == ""
    assert "compiled N=2" in str(session.report)


def test_memory_is_what_was_predicted() -> None:
    """Bytes requested while the session is made and each program runs first, within one in a hundred."""
    with InferenceSession(classifier(), WEIGHTS, dims="N=1,900") as session:
        before = session.memory
        assert [row.requested for row in before.programs] == [None, None]
        for count in (900, 1, 40):
            session.run([rows(count, 24)])
        memory = session.memory
    assert memory.weights == sum(array.nbytes for array in WEIGHTS.values())
    assert memory.prepared > 0
    assert [row.program for row in memory.programs] == ["N=1", "N=900", "N=40"]
    for row in memory.programs:
        assert row.requested == pytest.approx(row.predicted, rel=0.01)
        assert row.lower_bound is not None and row.lower_bound <= row.arena <= row.predicted
    assert memory.requested == sum(row.requested or 0 for row in memory.programs)


def test_no_program_is_made_for_another_element_type() -> None:
    with InferenceSession(classifier(), WEIGHTS) as session:
        with pytest.raises(InputMismatch) as error:
            session.run([rows(3, 24).astype(np.float64)])
        assert error.value.message == (
            "input 'x': expected f32[3, 24], got f64[3, 24]; convert it, as in array.astype('float32')"
        )
        assert session.report.of("compiled") == ()


@pytest.mark.parametrize("count", [2, 900])
def test_a_first_run_that_fails_is_counted_with_the_next(count: int) -> None:
    with InferenceSession(classifier(), WEIGHTS, dims="N=2,900") as session:
        session.run([rows(902 - count, 24)])
        small = np.empty((1, 10), np.float32)
        with pytest.raises(InputMismatch):
            session.run([rows(count, 24)], out={"probabilities": small})
        assert [row.requested is None for row in session.memory.programs].count(True) == 1
        session.run([rows(count, 24)])
        for row in session.memory.programs:
            assert row.requested == pytest.approx(row.predicted, rel=0.01)


def test_programs_made_one_by_one_share_packed_weights() -> None:
    """What is packed once is requested once, and outlives the program that packed it."""
    with InferenceSession(classifier(), WEIGHTS, exec_policy={"max_programs": 2}) as session:
        for count in (2, 7, 64):
            assert_classified(session.run([rows(count, 24)]), rows(count, 24))
            assert session.memory.prepared == 1536
        assert [event.program for event in session.report.of("evicted")] == ["N=2"]
        for row in session.memory.programs:
            assert row.requested == row.predicted
        packed = [
            program.executable.prepared()["fc.weight:packed_b"] for program in session._session._programs.all
        ]
        assert np.shares_memory(*packed)


def test_the_profile_joins_instructions_to_the_ops_of_the_model(session: InferenceSession) -> None:
    profile = session.profile([rows(5, 24)], repeats=3)
    assert set(profile.by_source()) == {"fc", "prob"}
    assert profile.program == "classifier@N=5"


# Threads


def together(work: Callable[[int], None]) -> None:
    """Runs `work(number)` on all threads at once; the first error is raised here."""
    gate = threading.Barrier(THREADS)

    def start(number: int) -> None:
        gate.wait()
        work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(start, number) for number in range(THREADS)]:
            done.result()


def digest(results: Mapping[str, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in results.values())).hexdigest()


def test_eight_threads_are_served_with_one_result_hash() -> None:
    """No program is there at first: one thread makes each, the others wait for it; all answers have the same bits."""
    with InferenceSession(classifier(), WEIGHTS) as session:
        hashes: list[set[str]] = [set() for _ in range(THREADS)]
        inputs = [rows(count, 24, seed=count) for count in (1, 7, 32)]

        def work(number: int) -> None:
            for _ in range(40):
                hashes[number].add("".join(digest(session.run([x])) for x in inputs))

        together(work)
        assert len(set.union(*hashes)) == 1
        assert sorted(event.program for event in session.report.of("compiled")) == ["N=1", "N=32", "N=7"]
        assert [program.runs for program in session._session._programs.all] == [THREADS * 40] * 3
        for x in inputs:
            assert_classified(session.run([x]), x)


def test_threads_meet_eviction() -> None:
    """Programs come and go under calls that use them."""
    with InferenceSession(
        classifier(), WEIGHTS, exec_policy={"max_programs": 1}, device="reference"
    ) as session:

        def work(number: int) -> None:
            for turn in range(3):
                x = rows(1 + (number + turn) % 3, 24, seed=number)
                assert_classified(session.run([x]), x)

        together(work)
        assert session.report.of("evicted")


def test_what_fails_for_one_thread_is_told_to_all_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with InferenceSession(classifier(), WEIGHTS) as session:
        make = session._session._source.make
        calls: list[Bucket] = []

        def fail_once(bucket: Bucket) -> Any:
            calls.append(bucket)
            if len(calls) == 1:
                raise BackendUnavailable("not now")
            return make(bucket)

        monkeypatch.setattr(session._session._source, "make", fail_once)
        with pytest.raises(BackendUnavailable, match="not now"):
            session.run([rows(2, 24)])
        assert_classified(session.run([rows(2, 24)]), rows(2, 24))
        assert [bucket.sizes for bucket in calls] == [(2,), (2,)]


def test_who_waits_goes_on_when_the_one_that_makes_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    with InferenceSession(classifier(), WEIGHTS, device="reference") as session:
        make, started, waited = session._session._source.make, threading.Event(), threading.Event()

        def interrupted(bucket: Bucket) -> Any:
            monkeypatch.setattr(session._session._source, "make", make)
            started.set()
            assert waited.wait(60)
            raise KeyboardInterrupt

        monkeypatch.setattr(session._session._source, "make", interrupted)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(session.run, [rows(2, 24)])
            assert started.wait(60)
            second = pool.submit(session.run, [rows(2, 24)])
            for _ in range(60_000):
                if any(frame.f_code.co_name == "for_bucket" for frame in sys._current_frames().values()):
                    break
                time.sleep(0.001)
            waited.set()
            with pytest.raises(KeyboardInterrupt):
                first.result(60)
            assert_classified(second.result(60), rows(2, 24))


# State


def test_a_model_without_state_has_none(session: InferenceSession) -> None:
    assert session.state() == {}
    with pytest.raises(InputMismatch, match="'classifier' updates nothing, so it has no state"):
        session.set_state({"x": rows(1)})


def test_a_model_with_state_is_one_executable_and_its_calls_take_turns() -> None:
    """All its programs share the state, so sizes are given ahead."""
    start = {"total": np.zeros(8, np.float32)}
    with InferenceSession(counter(), start, dims="N=1,3") as session:

        def work(number: int) -> None:
            for count in (1, 3):
                session.run([np.full((count, 8), 1, np.float32)])

        session.warm_up()
        together(work)
        np.testing.assert_array_equal(
            session.run([np.zeros((1, 8), np.float32)])["sum"], np.full(8, THREADS * 4, np.float32)
        )
        with pytest.raises(InputMismatch, match="no program for N=2; compiled for N=1 | N=3"):
            session.run([rows(2, 8)])
        np.testing.assert_array_equal(session.state("total")["total"], np.full(8, THREADS * 4, np.float32))
        session.set_state(start)
        np.testing.assert_array_equal(session.run([np.ones((3, 8), np.float32)])["sum"], np.full(8, 3))
    with pytest.raises(PolicyError, match="unbound symbolic dimensions: N"):
        InferenceSession(counter(), start)


# Bindings


def test_bound_memory_is_read_and_written_in_place(session: InferenceSession) -> None:
    x, y = rows(5, 24), np.full((5, 10), np.nan, np.float32)
    binding = session.bind({"x": x, "logits": y})
    binding.run()
    assert_classified(binding.outputs(), x)
    assert binding["logits"] is y
    x[...] = rows(5, 24, seed=9)
    binding.run(2)
    np.testing.assert_allclose(y, classified(x)[0], rtol=1e-4, atol=1e-5)


def test_a_binding_follows_other_shapes(session: InferenceSession) -> None:
    binding = session.bind(x=rows(5, 24))
    binding.run()
    x = rows(1, 24, seed=3)
    binding.bind(x=x).run()
    assert_classified(binding.outputs(), x)
    with pytest.raises(InputMismatch, match="rank must be 2, is 1"):
        binding.bind(x=rows(24))
    binding.run()
    assert_classified(binding.outputs(), x)


def test_a_binding_takes_dlpack(session: InferenceSession) -> None:
    class Foreign:
        """An array of another library."""

        def __init__(self, array: np.ndarray) -> None:
            self._array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self._array.__dlpack_device__()

    x, y = rows(5, 24), np.zeros((5, 10), np.float32)
    binding = session.bind(x=Foreign(x), probabilities=Foreign(y))
    binding.run()
    np.testing.assert_allclose(y, classified(x)[1], rtol=1e-4, atol=1e-6)
    assert_classified(session.run([Foreign(x)]), x)


def test_what_cannot_be_bound(session: InferenceSession) -> None:
    with pytest.raises(
        InputMismatch, match="there is no input or output 'y'; it has x, logits, probabilities"
    ):
        session.bind(y=rows(1))
    with pytest.raises(InputMismatch, match="input 'x' is not bound; bind it first"):
        session.bind(logits=np.zeros((5, 10), np.float32)).run()
    with pytest.raises(InputMismatch, match=r"expected f32\[5, 10\], got f32\[4, 10\]"):
        session.bind(x=rows(5, 24), logits=np.zeros((4, 10), np.float32))


# Warming up, and the end


def test_warming_up_makes_what_is_missing() -> None:
    with InferenceSession(classifier(), WEIGHTS) as session:
        session.warm_up({"N": 6})
        assert [event.program for event in session.report.of("compiled")] == ["N=6"]
        assert session._session._programs.all[0].first_run is not None
        with pytest.raises(InputMismatch, match="there is no dimension 'M'; it has N"):
            session.warm_up({"M": 6})
        with pytest.raises(InputMismatch, match="no size is given for N; its dimensions are N"):
            session.warm_up({})


def test_a_closed_session_says_so() -> None:
    session = InferenceSession(classifier(), WEIGHTS, dims="N=1")
    binding = session.bind(x=rows(1, 24))
    session.close()
    session.close()
    message = "the session of 'classifier' is closed; make a new InferenceSession"
    for use in (
        lambda: session.run([rows(1, 24)]),
        lambda: session.bind(x=rows(1, 24)),
        session.warm_up,
        lambda: session.profile([rows(1, 24)]),
        binding.run,
    ):
        with pytest.raises(SessionClosed) as error:
            use()
        assert error.value.message == message


def test_closing_gives_memory_back() -> None:
    from aicf.runtime.memory import statistics

    gc.collect()
    before = statistics().live_bytes
    session = InferenceSession(classifier(), WEIGHTS, dims="N=900")
    session.run([rows(900, 24)])
    assert statistics().live_bytes > before
    session.close()
    gc.collect()
    assert statistics().live_bytes == before


# Devices, engines, and models that are compiled already


def test_the_reference_is_a_device_and_a_target_of_the_cpu() -> None:
    x = rows(2, 24)
    for options in (
        {"device": "reference"},
        {"device": "cpu", "target": "reference"},
        {"target": "reference"},
    ):
        with InferenceSession(classifier(), WEIGHTS, **options) as session:
            assert session.target == "reference:typed"
            assert_classified(session.run([x]), x)


class _Accelerator(ReferenceBackend):
    """The reference backend on a device of its own."""

    name = "accelerator"
    device = "npu"

    def how_to_choose(self, ordinal: int) -> str:
        return f"NPU={ordinal} makes it the first"


def test_a_backend_says_which_device_it_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = {"accelerator": _Accelerator()}
    monkeypatch.setattr(devices, "backend_names", lambda: ["cpu", *registered])
    monkeypatch.setattr(devices, "get_backend", lambda name: registered.get(name) or get_backend(name))
    assert [devices.target_for(name, None) for name in ("npu", "npu:0", "accelerator", "cpu")] == [
        *("accelerator", "accelerator", "accelerator", "cpu")
    ]
    assert devices.target_for("npu", "accelerator:typed") == "accelerator:typed"
    with pytest.raises(BackendUnavailable, match="device 'npu:2': NPU=2 makes it the first"):
        devices.target_for("npu:2", None)
    with pytest.raises(PolicyError, match="'accelerator' does not run on device 'cpu'; legal: cpu"):
        devices.target_for("cpu", "accelerator")
    with pytest.raises(PolicyError, match="no 'cuda'; legal: accelerator, cpu, npu, npu:0"):
        devices.target_for("cuda", None)
    devices.check_device("npu", None, "accelerator", "typed")
    with pytest.raises(PolicyError, match="'npu' is asked for, the program is compiled for cpu:x86-64-v3"):
        devices.check_device("npu", None, "cpu", "x86-64-v3")


def test_a_target_may_name_a_level() -> None:
    with InferenceSession(classifier(), WEIGHTS, device="cpu", target="cpu:x86-64-v3", dims="N=2") as session:
        assert session.target == "cpu:x86-64-v3"
        assert_classified(session.run([rows(2, 24)]), rows(2, 24))


def test_an_artifact_is_served_as_it_is(artifact: Path) -> None:
    with InferenceSession(artifact) as session:
        assert session.input_info[0].shape == ("N", 24)
        assert_classified(session.run([rows(5, 24)]), rows(5, 24))
        with pytest.raises(InputMismatch, match=r"no program for N=2; compiled for N=1 \| N=5"):
            session.run([rows(2, 24)])
        assert session.memory.programs[1].requested == session.memory.programs[1].predicted


SERVE = """
import sys
import numpy as np
import aicf
with aicf.InferenceSession(sys.argv[1]) as session:
    session.run([np.ones((5, 24), np.float32)])
print([name for name in ("xdsl", "numba", "onnx") if name in sys.modules])
"""


def test_an_artifact_is_served_without_the_compiler(artifact: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(artifact)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_a_compiled_model_is_served_as_it_is() -> None:
    exe = aicf.compile(classifier(), WEIGHTS, "reference", dims="N=5")
    with InferenceSession(exe, device="reference") as session:
        assert_classified(session.run([rows(5, 24)]), rows(5, 24))
        assert session.memory.programs[0].requested is None
        assert "classifier on reference:typed: N=5; others are refused" in str(session.placement())


OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"device": "tpu"}, PolicyError, "device: there is no 'tpu'; legal: cpu, cuda, cuda:0, reference"),
    (
        {"device": "cuda:3"},
        BackendUnavailable,
        "this machine has no NVIDIA driver",
    ),
    ({"target": "onnx"}, PolicyError, "target: there is no backend 'onnx'; registered: cpu, cuda, reference"),
    (
        {"device": "cpu", "target": "cuda:sm_90a"},
        PolicyError,
        "target: 'cuda:sm_90a' does not run on device 'cpu'; ",
    ),
    ({"target": "cpu:z80"}, PolicyError, ""),
    ({"kernel_policy": {"kernel": {}}}, PolicyError, "kernel: unknown field"),
    ({"kernel_policy": "{streams: 2}"}, PolicyError, "kernel: the policy also has the section 'execution'"),
    (
        {"exec_policy": aicf.KernelPolicy()},
        PolicyError,
        "execution: expected a ExecutionPolicy, got a KernelPolicy",
    ),
    ({"dims": {"M": 2}}, PolicyError, "dims: the program has no symbolic dimension M; its dimensions are: N"),
    ({"dims": {"N": -1}}, PolicyError, "dims: cannot read 'N=-1'"),
    ({"dims": {"N": 2.0}}, PolicyError, "dims: 'N' needs an integer or a list of integers, got 2.0"),
    ({"dims": 5}, PolicyError, "dims: 5 is neither text nor a dictionary"),
    ({"dims": {"N": 10**30}}, PolicyError, "dims: cannot read 'N=1000"),
    ({"values": 5}, PolicyError, "values: 5 is neither text nor a dictionary"),
    ({"device": 5}, PolicyError, "device: 5 is no name; legal: cpu, "),
    ({"threads": 0}, PolicyError, "threads must be at least 1, got 0"),
    ({"threads": 1.5}, PolicyError, "threads is a whole number, got 1.5"),
    ({"threads": "2"}, PolicyError, "threads is a whole number, got '2'"),
    ({"threads": 10**9}, PolicyError, "threads must be at most 1024, got 1000000000"),
]


def test_weights_outputs_and_repeats_of_a_wrong_kind() -> None:
    with pytest.raises(InputMismatch, match="weights is 5; give values by name, a dictionary"):
        InferenceSession(classifier(), 5)  # pyright: ignore[reportArgumentType]
    with InferenceSession(classifier(), WEIGHTS) as session:
        feeds = session.input_info[0]
        x = np.zeros([2 if isinstance(size, str) else size for size in feeds.shape], np.float32)
        with pytest.raises(InputMismatch, match="output names are a list of names, got int"):
            session.run([x], 3)  # pyright: ignore[reportArgumentType]
        with pytest.raises(InputMismatch, match="0 is no number of runs"):
            session.profile([x], repeats=0)


@pytest.mark.parametrize(("options", "kind", "message"), OPTIONS)
def test_wrong_options_say_what_is_legal(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as error:
        InferenceSession(classifier(), WEIGHTS, **options)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": "N=1"}, "dims= has no effect on a compiled model, in which all is decided; leave it out"),
        ({"cache_dir": "x"}, "cache_dir= has no effect on a compiled model"),
        ({"kernel_policy": {"tf32": True}}, "kernel_policy= has no effect on a compiled model"),
        ({"device": "cuda"}, "device: 'cuda' is asked for, the program is compiled for cpu:"),
        ({"target": "reference"}, "target: 'reference' is asked for, the program is compiled for cpu:"),
    ],
)
def test_a_compiled_model_takes_no_options_of_a_compile(
    artifact: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolicyError) as error:
        InferenceSession(artifact, **options)
    assert error.value.message.startswith(message)


def test_a_missing_artifact_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="nowhere.aicf: the artifact cannot be read"):
        InferenceSession(tmp_path / "nowhere.aicf")
