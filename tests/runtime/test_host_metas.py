"""Metas that the executable computes: by the formulas of the program, bit by bit, and anew before each replay."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.compilation.compiled import CompiledModel
from aicf.dialects.host_formulas import SIGNATURES
from aicf.errors import ArtifactError
from aicf.runtime.on_host.formulas import FORMULAS
from aicf.runtime.on_host.metas import HostMetas
from aicf.support.dataclass_json import to_json_value
from tests.runtime.support import read_plan
from tests.support.meta_programs import START, scalars, scalars_program


@pytest.fixture(scope="module")
def host() -> CompiledModel:
    return aicf.compile(scalars_program(), START, "cpu", meta="host")


@pytest.fixture(scope="module")
def device() -> CompiledModel:
    return aicf.compile(scalars_program(), START, "cpu", meta="device")


def test_the_runtime_knows_the_formulas_of_the_dialect() -> None:
    assert FORMULAS.keys() == SIGNATURES.keys()
    for name, formula in FORMULAS.items():
        assert (formula.operands, tuple(formula.numbers)) == (
            SIGNATURES[name].operands,
            SIGNATURES[name].numbers,
        )


@pytest.mark.parametrize("first", [0, 10**7, 2**47])
def test_host_and_program_compute_the_same_bits(
    host: CompiledModel, device: CompiledModel, first: int
) -> None:
    """Rates, corrections and offsets as both have them, beside closed forms in f64; the last offset wraps around."""
    names = [spec.name for spec in host.outputs]
    assert "step_inc" not in {node.kind for node in host.plan.programs[0].graph.nodes}
    for exe in (host, device):
        exe.set_state({"step": np.array(first), "total": START["total"]})
    for step in range(first + 1, first + 25):
        ours, theirs = (exe(np.float32(0.5)) for exe in (host, device))
        wanted = scalars(step)
        for name, one, other in zip(names, ours, theirs, strict=True):
            assert one.tobytes() == other.tobytes(), (name, step)
            np.testing.assert_allclose(float(one), wanted[name], rtol=1e-7)
        assert int(ours[names.index("offset")]) == wanted["offset"]
    for name in ("step", "total"):
        assert host.state()[name].tobytes() == device.state()[name].tobytes()


def test_replays_in_a_row_count_on(host: CompiledModel) -> None:
    """`replay(n)` is n runs, each with its own values; another executable of the same state goes on from there."""
    host.set_state(START)
    x, total = np.float32(0.25), np.float32(0)
    bound = host.bind(x=np.asarray(x))
    bound.replay(7)
    host(x)
    bound.replay(3)
    for step in range(1, 12):
        total += x * np.float32(scalars(step)["cosine"])
    assert host.state()["step"] == 11
    assert host.state()["total"] == total
    alone = host.instantiate()
    alone.bind({"x": np.asarray(x)})
    alone.replay(2)
    assert alone.state["step"] == 2 and host.state()["step"] == 11


def test_what_is_computed_is_no_weight_and_no_state(host: CompiledModel) -> None:
    assert set(host.weights) == set(host.state()) == {"total", "step"}
    with pytest.raises(aicf.AicfError, match="no state 'cosine.meta'"):
        host.set_state({"cosine.meta": np.zeros((), np.float32)})


def test_an_artifact_computes_them_without_the_compiler(host: CompiledModel, tmp_path: Path) -> None:
    host.save(tmp_path / "scalars.aicf")
    loaded = aicf.load(tmp_path / "scalars.aicf")
    first = [float(value) for value in loaded(np.float32(1))]
    np.testing.assert_allclose(first, [scalars(1)[spec.name] for spec in loaded.outputs], rtol=1e-7)
    assert loaded.state()["step"] == 1
    assert "set by the executable before each run: bias_corr of 'now', beta 0.9" in str(
        loaded.explain("fast.meta")
    )
    assert "kept by the executable: for the next run what 'now' is in this one" in str(loaded.explain("step"))


@pytest.mark.parametrize(
    "change", [{"formula": "exec"}, {"of": ("later",)}, {"of": (1, 2)}, {"numbers": {"beta": 1}}]
)
def test_a_damaged_plan_computes_nothing(host: CompiledModel, change: dict[str, object]) -> None:
    """A formula that is unknown, reads what is not there, or has operands or numbers of another kind."""
    (program,) = host.plan.programs
    binds = tuple(
        replace(bind, host=replace(bind.host, **change))
        if bind.host is not None and bind.host.formula == "bias_corr"
        else bind
        for bind in program.graph.binds
    )
    damaged = replace(host.plan, programs=(replace(program, graph=replace(program.graph, binds=binds)),))
    with pytest.raises(ArtifactError, match="is computed in an unknown way"):
        read_plan(to_json_value(damaged))
    assert read_plan(to_json_value(host.plan)) == host.plan


def test_an_interrupted_run_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python raises KeyboardInterrupt when the call that a signal came in is over: the program has run by then."""
    counted, interrupts = HostMetas.counted, [False]

    def interrupted(
        metas: HostMetas, prepare: Callable[[], None], run: Callable[[], None]
    ) -> Callable[[], None]:
        def run_then_interrupt() -> None:
            run()
            if interrupts[0]:
                raise KeyboardInterrupt

        return counted(metas, prepare, run_then_interrupt)

    monkeypatch.setattr(HostMetas, "counted", interrupted)
    host = aicf.compile(scalars_program(), START, "cpu", meta="host")
    x, total = np.float32(0.25), np.float32(0)
    bound = host.bind(x=np.asarray(x))
    for step in range(1, 7):
        interrupts[0] = step in (2, 3)
        with pytest.raises(KeyboardInterrupt) if interrupts[0] else nullcontext():
            bound.replay()
        total += x * np.float32(scalars(step)["cosine"])
        assert (host.state()["step"], host.state()["total"]) == (step, total)
