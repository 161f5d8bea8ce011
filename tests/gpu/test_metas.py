"""Counters of a training step on the GPU: who computes them makes no difference, and a bad step changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.compilation.compiled import CompiledModel
from tests.gpu.artifacts import obtained
from tests.gpu.case_table.training import METAS
from tests.gpu.harness import program
from tests.support.meta_programs import regression_batch

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(61)


def assert_same_state(one: CompiledModel, other: CompiledModel) -> None:
    ours, theirs = one.state(), other.state()
    for name, value in ours.items():
        assert np.isfinite(value).all() and value.tobytes() == theirs[name].tobytes(), name


def test_queued_replays_have_metas_of_their_own() -> None:
    """More replays than there are rows of pinned memory, with nothing that waits between them: the state is that of the
    program that counts by itself, bit for bit, and near that of the reference."""
    device, host = (obtained(name) for name in METAS.values())
    made = program(METAS["device"])
    reference = aicf.compile(made.module, made.weights, "reference")
    for n in (1, 40):
        replay((device, host, reference), regression_batch(RNG), n)
        assert_same_state(device, host)
        for name, value in reference.state().items():
            np.testing.assert_allclose(device.state()[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    replay((device, host), regression_batch(RNG), 1500)
    assert_same_state(device, host)
    assert device.state("step")["step"] == 1541


def replay(models: Iterable[CompiledModel], batch: Mapping[str, Any], n: int) -> None:
    """`n` steps of each on one batch, without a wait between them."""
    for model in models:
        bound = model.bind()
        bound.fill(batch)
        bound.replay(n)


def test_a_bad_step_changes_nothing() -> None:
    """With more replays queued after it; once the flag is cleared both go on as one that saw no bad step."""
    for name in METAS.values():
        model, good = obtained(name), obtained(name)
        batch = regression_batch(RNG)
        bad = {**batch, "y": np.full_like(batch["y"], np.inf)}
        replay([model, good], batch, 5)
        replay([model], bad, 5)
        replay([model], batch, 5)
        assert model.bad_step == 6 and good.bad_step is None
        model.set_state({"aicf.bad_step": np.array(0)})
        for each in (model, good):
            for _ in range(3):
                each.run(batch)
        assert model.bad_step is None and model.state("step")["step"] == 8
        assert_same_state(model, good)
