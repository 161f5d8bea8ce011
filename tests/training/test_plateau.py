"""`aicf.schedules.Plateau`: the rates that follow reported metrics, beside PyTorch's rule in NumPy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.compilation.record import TRAINED
from aicf.saving import artifact
from aicf.training.optimizers import SGD, Adam, Group
from aicf.training.schedules import Plateau
from tests.support.training_models import batches, classifier

ROOT = Path(__file__).parent.parent.parent
LENGTH = 120


def bound(options: Plateau, best: np.float64) -> np.float64:
    """What a metric must pass to be better, by the table in PyTorch's documentation."""
    sign = {"min": -1, "max": 1}[options.mode]
    return (
        best * (1 + sign * options.threshold)
        if options.threshold_mode == "rel"
        else best + sign * options.threshold
    )


def expected(options: Plateau, metrics: list[float]) -> list[float]:
    """The rate after each metric, as PyTorch's documentation of ReduceLROnPlateau says, in f64."""
    rate = np.float64(options.lr)
    best = np.float64(np.inf if options.mode == "min" else -np.inf)
    quiet, since, rates = 0, 0, list[float]()
    for metric in map(np.float64, metrics):
        limit = bound(options, best)
        if metric < limit if options.mode == "min" else metric > limit:
            best, since = metric, 0
        else:
            since += 1
        if quiet:
            quiet, since = quiet - 1, 0
        if since == options.patience + 1:
            lower = np.maximum(rate * options.factor, options.min_lr)
            rate = lower if rate - lower > options.eps else rate
            quiet, since = options.cooldown, 0
        rates.append(float(rate))
    return rates


def metrics(seed: int) -> list[float]:
    """Metrics of both signs that improve slowly, stand still, repeat, and are NaN or infinite now and then."""
    random = np.random.default_rng(seed)
    scale, middle, slope = (
        float(random.choice(each)) for each in ([0.01, 1.0], [-3.0, 0.0, 3.0], [-1.0, 0.0, 1.0])
    )
    found = random.normal(middle, scale, LENGTH) + np.linspace(0, slope, LENGTH)
    again = random.random(LENGTH) < 0.2
    found[1:][again[1:]] = found[:-1][again[1:]]
    for odd in (np.nan, np.inf, -np.inf):
        found[random.random(LENGTH) < 0.01 * (1 + 4 * np.isnan(odd))] = odd
    return found.tolist()


def options(seed: int, mode: Any, threshold_mode: Any) -> Plateau:
    random = np.random.default_rng(seed)
    return Plateau(
        lr=float(random.choice([0.5, 1e-3])),
        mode=mode,
        factor=float(random.choice([0.1, 0.7, 0.0])),
        patience=int(random.integers(0, 6)),
        threshold=float(random.choice([0.0, 1e-4, 0.25])),
        threshold_mode=threshold_mode,
        cooldown=int(random.integers(0, 4)),
        min_lr=float(random.choice([0.0, 1e-4])),
        eps=float(random.choice([1e-8, 1e-4])),
    )


def followed(plateau: Plateau, seen: list[float]) -> list[float]:
    """The rates by the rule of the schedule, without a step."""
    rule, found = plateau.rule(), list[float]()
    state = rule.start(plateau.lr)
    for metric in seen:
        state = rule.after(state, metric)
        found.append(float(state["lr"]))
    return found


CASES = list(product(range(12), ("min", "max"), ("rel", "abs")))


@pytest.mark.parametrize(("seed", "mode", "threshold_mode"), CASES)
def test_the_rule_is_that_of_pytorch(seed: int, mode: str, threshold_mode: str) -> None:
    plateau, seen = options(seed, mode, threshold_mode), metrics(seed)
    np.testing.assert_array_equal(followed(plateau, seen), expected(plateau, seen))


def test_the_cases_try_the_whole_rule() -> None:
    """Rates that fall, that stay, that reach the lowest one: else the test above says little."""
    changes = [len(set(expected(options(*case), metrics(case[0])))) for case in CASES]
    assert min(changes) == 1 and max(changes) > 4 and np.mean(changes) > 1.5
    assert any(np.isnan(metrics(case[0])).any() for case in CASES)


def one_weight(dtype: str = "f64") -> aicf.Graph:
    """A weight whose gradient is the input."""
    graph = aicf.Graph("one")
    x, w = graph.input("x", (1,), dtype), graph.param("w", (1,), dtype)
    graph.output(graph.reduce_sum(x * w, [0]), "loss")
    return graph


def rates(step: aicf.TrainStep, seen: list[float]) -> tuple[list[float], list[float]]:
    """What SGD takes off the weight after each metric, and what `report_metric` says that it will."""
    said, taken = list[float](), list[float]()
    before = step.weights()["w"]
    for metric in seen:
        said.append(step.report_metric(metric))
        step(np.ones_like(before))
        after = step.weights()["w"]
        taken.append(float(before[0]) - float(after[0]))
        before = after
    return said, taken


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("meta", ["device", "host"])
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_steps_take_the_rate(target: str, meta: Any, dtype: str) -> None:
    plateau = Plateau(0.5, factor=0.3, patience=1, cooldown=1, min_lr=0.01)
    seen = metrics(3)[:40]
    start = {"w": np.zeros(1, np.float64 if dtype == "f64" else np.float32)}
    step = aicf.train_step(one_weight(dtype), None, SGD(plateau), weights=start, target=target, meta=meta)
    said, taken = rates(step, seen)
    wanted = expected(plateau, seen)
    assert said == wanted and len(set(wanted)) > 3
    np.testing.assert_allclose(taken, wanted, atol=1e-12 if dtype == "f64" else 1e-5)


def test_a_rate_is_rounded_once() -> None:
    """The rate is kept in f64: after many reductions a weight in f32 takes the nearest number to it."""
    step = aicf.train_step(
        one_weight("f32"),
        None,
        SGD(Plateau(0.3, factor=0.9, patience=0, eps=0.0)),
        weights={"w": np.zeros(1, np.float32)},
        target="reference",
    )
    step.report_metric(1.0)
    for number in range(1, 40):
        rate = step.report_metric(1.0)
        step.load_state_dict({**step.state_dict(), "w": np.zeros(1, np.float32)})
        step(np.ones(1, np.float32))
        assert rate == pytest.approx(0.3 * 0.9**number, rel=1e-13)
        assert -step.weights()["w"][0] == np.float32(rate)


def test_without_a_metric_the_rate_stays_and_a_user_may_set_it() -> None:
    step = aicf.train_step(
        one_weight(), None, SGD(Plateau(0.5, patience=0)), weights={"w": np.zeros(1)}, target="reference"
    )
    step(np.ones(1))
    step.replay(7)
    assert step.weights()["w"][0] == -4.0
    step.report_metric(1.0)
    step.set_learning_rate(0.25)
    assert step.report_metric(2.0) == 0.025
    assert step.weights().keys() == {"w"}


def test_what_can_be_a_metric() -> None:
    step = aicf.train_step(
        one_weight(), None, SGD(Plateau(0.5)), weights={"w": np.ones(1)}, target="reference"
    )
    for metric in (
        3,
        2.5,
        np.float32(2),
        np.array(1.5),
        np.array([1.25]),
        step(np.ones(1)),
        -np.inf,
        np.nan,
    ):
        step.report_metric(metric)
    state = step.state_dict()
    assert state["lr.best"] == -np.inf and state["lr.num_bad_epochs"] == 1
    for wrong in ("1", None, [1.0], np.ones(2), 1j, True, 10**400):
        with pytest.raises(aicf.InputMismatch, match="the metric is .*; give"):
            step.report_metric(wrong)  # pyright: ignore[reportArgumentType]
    assert step.state_dict() == state


def test_groups_have_a_part_of_the_rate() -> None:
    groups = [Group("fc2.*", lr_scale=0.5)]
    ((x, y),) = batches(1)
    baseline = aicf.train_step(
        classifier(), "cross_entropy", SGD(0.25, groups=groups), seed=1, target="reference"
    )
    step = aicf.train_step(
        classifier(),
        "cross_entropy",
        SGD(Plateau(0.5, factor=0.5, patience=0), groups=groups),
        seed=1,
        target="reference",
    )
    assert [step.report_metric(metric) for metric in (1.0, 1.0)] == [0.5, 0.25]
    step(x, y)
    baseline(x, y)
    for name, value in baseline.weights().items():
        np.testing.assert_array_equal(step.weights()[name], value)


# What outlives a process

PLATEAU = Plateau(0.5, mode="max", factor=0.5, patience=1, threshold=0.0, cooldown=1)
SEEN = [0.1, 0.2, 0.2, np.nan, 0.1, 0.3, 0.2, 0.2, 0.2, 0.1, 0.1, 0.4, 0.1, 0.1]


def made(seed: int = 1, **given: Any) -> aicf.TrainStep:
    return aicf.train_step(classifier(), "cross_entropy", Adam(PLATEAU), seed=seed, target="cpu", **given)


def train(step: aicf.TrainStep, first: int, last: int) -> list[float]:
    found = list[float]()
    for (x, y), metric in list(zip(batches(len(SEEN)), SEEN, strict=True))[first:last]:
        step(x, y)
        found.append(step.report_metric(metric))
    return found


LOADED = """
import sys, aicf
step = aicf.load_step(sys.argv[1])
compilers = ("xdsl", "numba", "aicf.compilation.compiler", "aicf.compilation.sources")
print(*(name for name in compilers if name in sys.modules))
print([step.report_metric(float(metric)) for metric in sys.argv[2:]])
"""


@pytest.mark.parametrize("half", [4, 5, 9])
def test_every_way_of_keeping_a_state_goes_on(half: int, tmp_path: Path) -> None:
    whole = made()
    wanted = train(whole, 0, len(SEEN))
    assert wanted == expected(PLATEAU, SEEN) and len(set(wanted)) > 2
    step = made()
    train(step, 0, half)
    step.save(tmp_path / "half.ckpt")
    step.save_program(tmp_path / "half.aicf")
    from_checkpoint = made(seed=9)
    from_checkpoint.load(tmp_path / "half.ckpt")
    rebuilt = aicf.load_step(tmp_path / "half.aicf", native="rebuild")
    resumed = [
        from_checkpoint,
        rebuilt,
        aicf.load_step(tmp_path / "half.aicf"),
        made(weights=step.state_dict()),
    ]
    for each in resumed:
        assert train(each, half, len(SEEN)) == wanted[half:]
        for name, value in whole.state_dict().items():
            np.testing.assert_array_equal(each.state_dict()[name], value, err_msg=name)
    command = [sys.executable, "-c", LOADED, tmp_path / "half.aicf", *map(str, SEEN[half:])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", str(wanted[half:])]


def test_steps_of_a_cache_have_their_own_rule(tmp_path: Path) -> None:
    first = made(cache_dir=tmp_path)
    optimizer = Adam(replace(PLATEAU, lr=0.25, patience=0, cooldown=0))
    other = aicf.train_step(
        classifier(), "cross_entropy", optimizer, seed=1, target="cpu", cache_dir=tmp_path
    )
    assert len(list(tmp_path.glob("*.aicf"))) == 1
    seen = [0.1, 0.1, 0.1]
    assert [first.report_metric(metric) for metric in seen] == [0.5, 0.5, 0.25]
    assert [other.report_metric(metric) for metric in seen] == [0.25, 0.125, 0.0625]


def test_artifacts_whose_rule_is_no_rule_are_refused(tmp_path: Path) -> None:
    made().save_program(tmp_path / "step.aicf")
    file = artifact.read(tmp_path / "step.aicf")
    manifest = {key: value for key, value in file.manifest.items() if key not in ("entries", "format")}
    trained = json.loads(file.text(TRAINED))

    def refuses(entry: dict[str, Any], message: str, entries: Mapping[str, Any] = file.entries) -> None:
        artifact.write(tmp_path / "bad.aicf", {**entries, TRAINED: json.dumps(entry).encode()}, manifest)
        with pytest.raises(aicf.ArtifactError, match=message):
            aicf.load_step(tmp_path / "bad.aicf")

    rule = trained["plateau"]
    for changed, message in (
        ({"mode": "up"}, "contradicts itself: mode is 'up'"),
        ({"patience": -1}, "contradicts itself: patience is -1"),
        ({"patience": 1.5}, "trained.plateau.patience must be int"),
    ):
        refuses({**trained, "plateau": {**rule, **changed}}, message)
    baseline = tmp_path / "plain.aicf"
    aicf.train_step(classifier(), "cross_entropy", Adam(0.1), target="cpu").save_program(baseline)
    refuses(
        json.loads(artifact.read(baseline).text(TRAINED)) | {"plateau": rule},
        "keeps no 'lr'",
        dict(artifact.read(baseline).entries),
    )


# What makes no sense


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "down"}, "mode is 'down'; it is min or max"),
        ({"mode": 3}, "mode is 3; give a name, such as 'min'"),
        ({"threshold_mode": "relative"}, "threshold_mode is 'relative'; it is rel or abs"),
        ({"factor": 1.0}, "factor is 1.0; it is 0 or more, and less than 1"),
        ({"factor": -0.1}, "factor is -0.1"),
        ({"factor": np.nan}, "factor is nan"),
        ({"patience": -1}, "patience is -1; it is a whole number from 0"),
        ({"patience": 2.5}, "patience is 2.5; it is a whole number from 0"),
        ({"cooldown": 1 << 63}, "cooldown is 9223372036854775808; it is a whole number from 0"),
        ({"min_lr": -1e-3}, "min_lr is -0.001; it is a finite number, 0 or more"),
        ({"eps": np.inf}, "eps is inf; it is a finite number, 0 or more"),
        ({"threshold": np.nan}, "threshold is nan; it is a finite number"),
        ({"threshold": 1.0}, "threshold is 1.0, of which no metric is better by mode 'min'"),
        ({"lr": np.inf}, "lr is inf; it is finite in f64"),
    ],
)
def test_options_that_make_no_sense(given: dict[str, Any], message: str) -> None:
    with pytest.raises(aicf.InvalidIR, match=f"Plateau: {message}"):
        aicf.train_step(one_weight(), None, SGD(replace(Plateau(0.1), **given)), weights={"w": np.ones(1)})


def test_other_schedules_follow_no_metric() -> None:
    for rate in (0.1, aicf.schedules.FromHost(0.1)):
        step = aicf.train_step(one_weight(), None, SGD(rate), weights={"w": np.ones(1)}, target="reference")
        with pytest.raises(
            aicf.InputMismatch, match=r"follows no metric; build it with lr=aicf.schedules.Plateau"
        ):
            step.report_metric(1.0)


@pytest.mark.parametrize("name", ["lr", "lr.best", "lr.num_bad_epochs", "lr.cooldown_counter"])
def test_names_of_the_schedule_are_taken(name: str) -> None:
    graph = aicf.Graph("taken")
    graph.output(graph.input("x", (1,)) * graph.param(name, (1,)), "y_hat")
    with pytest.raises(
        aicf.InvalidIR, match=rf"'{name}' \(param of 'taken'\) is the name of the plateau schedule"
    ):
        aicf.train_step(graph, "mse", SGD(Plateau(0.1)))
