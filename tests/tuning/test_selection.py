"""What `select-kernels` makes of a tuning table: which rows count, what the ledger says, what is refused."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.registry import get_kernels
from aicf.compilation.compiler import compile
from aicf.compilation.record import Options
from aicf.compilation.sources import read_model
from aicf.compilation.stages import passes_of, read_decisions, stage_text
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import KernelAttr
from aicf.dialects.json_values import json_value
from aicf.errors import PolicyError
from aicf.frontends.text import make_context
from aicf.inspection.explain import Decision
from aicf.passes.kernels.select_kernels import SelectKernelsPass
from aicf.passes.pipelines.text import apply_pass
from aicf.policies.tuning_table import Failure, Header, MeasuredWorkload, Row, Timing, TuningTable
from aicf.tools.aicf_cli import main
from aicf.tuning.candidates import candidates

from .programs import (
    TARGET,
    TWO_PRODUCTS,
    LibraryKernel,
    TiledKernel,
    fresh_kernels,
    measured,
    register,
)

__all__ = ["fresh_kernels"]

HEADER = Header("cpu", "x86-64-v3", 1, "a fake device", "1.0", {}, {})
FAST_AVX2 = {"cpu.gemm_avx2": 3.0, "cpu.gemm_portable": 4.0}
FAST_PORTABLE = {"cpu.gemm_avx2": 4.0, "cpu.gemm_portable": 3.0}


@dataclass(frozen=True)
class Selected:
    """Records by group, and the decisions about them."""

    kernels: dict[str, KernelAttr]
    decisions: dict[str, Decision]


def before_selection() -> tuple[ModuleOp, Options]:
    context, options = make_context(), Options(TARGET, "", "", 1)
    source = read_model(TWO_PRODUCTS, context)
    for step in passes_of(source, options):
        if isinstance(step, SelectKernelsPass):
            break
        apply_pass(step, context, source.module)
    return source.module, options


def select(table: TuningTable | None, policy: str = "") -> Selected:
    """Kernels of `TWO_PRODUCTS` with a table."""
    context = make_context()
    source = read_model(TWO_PRODUCTS, context)
    tuning = "" if table is None else table.to_line()
    for step in passes_of(source, Options(TARGET, policy, "", 1, tuning)):
        apply_pass(step, context, source.module)
        if isinstance(step, SelectKernelsPass):
            break
    groups = [op for op in source.module.walk() if isinstance(op, GroupOp)]
    made = [d for d in read_decisions(source.module) if d.made_by == "select-kernels"]
    kernels = {group.id.data: group.kernel for group in groups if group.kernel is not None}
    return Selected(kernels, {decision.subjects[0]: decision for decision in made})


def row(
    kernel: str, cold: float, warm: float | None = None, version: int | None = None, **spec: object
) -> Row:
    known = get_kernels("cpu")
    own = known[kernel].version if kernel in known else 1
    version = own if version is None else version
    return Row(kernel, version, spec, {}, Timing(cold, 0.1), Timing(cold if warm is None else warm, 0.1))


def table_of(*rows: Row, only: str = "first") -> TuningTable:
    """A table with these rows for one group of `TWO_PRODUCTS`."""
    module, _ = before_selection()
    found = {candidate.group.id.data: candidate.work for candidate in candidates(module, 16)}
    return TuningTable(HEADER).with_works([MeasuredWorkload(found[only].digest, found[only], rows)])


def test_the_fastest_measured_kernel_runs():
    assert select(measured(FAST_AVX2)).kernels["first"].kernel.data == "cpu.gemm_avx2"
    assert select(measured(FAST_PORTABLE)).kernels["first"].kernel.data == "cpu.gemm_portable"


def test_without_rows_the_prediction_decides_and_the_ledger_says_unmeasured():
    none, other = select(None), select(table_of(row("cpu.gemm_portable", 1.0)))
    assert other.kernels["second"] == none.kernels["second"]
    assert other.decisions["second"].because == "lowest predicted time; unmeasured"
    assert "tuning_key" not in other.decisions["second"].cost


def test_the_ledger_has_the_times_of_every_candidate():
    table = table_of(row("cpu.gemm_avx2", 4.31, 2.0), row("cpu.gemm_portable", 3.92, 3.0))
    decision = select(table).decisions["first"]
    assert decision.choice == "cpu.gemm_portable"
    assert decision.because == "lowest measured time, cold"
    assert decision.rejected["cpu.gemm_avx2"] == "measured 4.31 us, not 3.92"
    assert "needs cpu level x86-64-v4" in str(decision.rejected["cpu.gemm_avx512"])
    wanted = {"expected_us": 3.92, "cold_us": 3.92, "warm_us": 3.0, "tuning_key": table.works[0].key}
    assert decision.cost == wanted


def test_equal_times_go_to_the_simpler_kernel():
    decision = select(table_of(row("cpu.gemm_avx2", 2.0), row("cpu.gemm_portable", 2.0))).decisions["first"]
    assert decision.choice == "cpu.gemm_portable"
    assert "measured the same 2 us" in str(decision.rejected["cpu.gemm_avx2"])


def test_a_policy_may_ask_for_warm_times():
    table = table_of(row("cpu.gemm_avx2", 4.0, 1.0), row("cpu.gemm_portable", 3.0, 2.0))
    assert select(table).decisions["first"].choice == "cpu.gemm_portable"
    warm = select(table, '{"measurements": "warm"}').decisions["first"]
    assert (warm.choice, warm.because) == ("cpu.gemm_avx2", "lowest measured time, warm")


def test_legality_and_policy_go_before_measurements():
    table = table_of(row("cpu.gemm_avx2", 1.0), row("cpu.gemm_portable", 3.0), row("cpu.gemm_avx512", 0.1))
    assert select(table).decisions["first"].choice == "cpu.gemm_avx2"
    forbidden = select(table, '{"forbid": ["cpu.gemm_avx2"]}').decisions["first"]
    assert forbidden.choice == "cpu.gemm_portable"
    pinned = select(table, '{"kernels": {"first": "cpu.gemm_portable"}}').decisions["first"]
    assert (pinned.choice, pinned.because) == ("cpu.gemm_portable", "policy pins it for 'first'")
    assert pinned.cost["expected_us"] == 3.0


def test_an_unmeasured_kernel_loses_to_a_measured_one():
    decision = select(table_of(row("cpu.gemm_portable", 1e6))).decisions["first"]
    assert decision.choice == "cpu.gemm_portable"
    assert str(decision.rejected["cpu.gemm_avx2"]).startswith("unmeasured, predicted ")


def test_the_best_measured_variant_gives_the_record(monkeypatch: pytest.MonkeyPatch):
    """A kernel with several specialisations: each row is one of them, found by the entries that vary."""
    register(monkeypatch, TiledKernel())
    table = table_of(row("cpu.tiled", 2.0, version=3, tile=64), row("cpu.tiled", 1.5, version=3, tile=256))
    found = select(table)
    record = {key: json_value(value) for key, value in found.kernels["first"].record.data.items()}
    assert record == {"version": 3, "determinism": "bitwise", "tile": 256, "stages": 4}
    decision = found.decisions["first"]
    assert decision.because == "lowest measured time, cold: tile=256"
    assert decision.rejected["cpu.tiled tile=64"] == "measured 2 us, not 1.5"


def test_a_variant_that_is_no_longer_offered_is_named(monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, TiledKernel())
    table = table_of(row("cpu.tiled", 0.1, version=3, tile=512), row("cpu.gemm_portable", 2.0))
    decision = select(table).decisions["first"]
    assert decision.choice == "cpu.gemm_portable"
    assert "does not offer this variant: run aicf tune again" in str(decision.rejected["cpu.tiled tile=512"])


def test_a_kernel_that_needs_the_device_is_legal_with_a_row_alone(monkeypatch: pytest.MonkeyPatch):
    """Its record is completed by the fields of the row; without one the reason says what to do."""
    register(monkeypatch, LibraryKernel())
    assert select(None).decisions["first"].rejected["cpu.library"] == "unmeasured: run aicf tune"
    given = {"algorithm": "c0ffee", "workspace_bytes": 512}
    rows = [
        replace(row("cpu.library", 0.7, version=3, algorithm="a1"), record={**given, "algorithm": "00"}),
        replace(row("cpu.library", 0.5, version=3, algorithm="b2"), record=given),
    ]
    found = select(table_of(*rows))
    record = {key: json_value(value) for key, value in found.kernels["first"].record.data.items()}
    assert record == {"version": 3, "determinism": "bitwise", "order": 1, **given}
    assert found.decisions["first"].rejected["cpu.library algorithm=a1"] == "measured 0.7 us, not 0.5"
    assert found.decisions["second"].rejected["cpu.library"] == "unmeasured: run aicf tune"


def test_a_variant_that_failed_is_not_taken_although_it_is_legal(monkeypatch: pytest.MonkeyPatch):
    """Neither is what its kernel would take itself, if no variant of it was measured: that may be the one."""
    register(monkeypatch, TiledKernel())
    key = table_of(row("cpu.gemm_portable", 2.0)).works[0]
    failed = (
        Failure("cpu.tiled", 3, {"tile": 64}, "it touches foreign memory"),
        Failure("cpu.gemm_avx2", 2, {}, "too little memory"),
    )
    tiled = row("cpu.tiled", 3.0, version=3, tile=128)
    for rows, best in (((tiled,), "cpu.tiled"), ((), "cpu.gemm_portable")):
        works = [MeasuredWorkload(key.key, key.work, rows, failed)]
        decision = select(TuningTable(HEADER).with_works(works)).decisions["first"]
        assert decision.choice == best
        wanted = "failed when it was measured: it touches foreign memory"
        assert decision.rejected["cpu.tiled tile=64"] == wanted
        assert decision.rejected["cpu.gemm_avx2"] == "failed when it was measured: too little memory"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row("cpu.gone", 1.0), "backend 'cpu' has no kernel 'cpu.gone', .* aicf tune MODEL"),
        (row("cpu.gemm_avx2", 1.0, version=7), "is version 5 here, the table has measured version 7"),
        (replace(row("cpu.gemm_avx2", 1.0), record={"algorithm": "x"}), "records algorithm of the device"),
    ],
)
def test_rows_of_other_kernels_are_refused(bad: Row, message: str):
    with pytest.raises(PolicyError, match=message):
        select(table_of(bad))


def test_a_table_of_another_target_is_refused():
    table = TuningTable(dataclasses.replace(HEADER, arch="x86-64-v4"))
    with pytest.raises(PolicyError, match="aicf tune MODEL --target cpu:x86-64-v3 -o tuning.json"):
        select(table)


# Through the whole compiler


def kernels_of(table: TuningTable) -> dict[str, tuple[str, object]]:
    plan = compile(TWO_PRODUCTS, target=TARGET, tuning=table).plan
    return {launch.name: (launch.kernel, launch.record) for launch in plan.programs[0].launches}


def test_an_edit_of_the_table_changes_exactly_the_chosen_kernel():
    """One time in the file is edited by hand; the other instruction keeps its kernel and its record."""
    table = measured(FAST_AVX2)
    before = kernels_of(table)
    key = next(entry.key for entry in table.works if entry.work.operands[0].shape == (16, 32))
    lines = table.to_json().splitlines()
    start = next(number for number, line in enumerate(lines) if key in line)
    found = next(n for n in range(start, len(lines)) if "cpu.gemm_portable" in lines[n])
    lines[found] = lines[found].replace('"cold": {"median_us": 4.0', '"cold": {"median_us": 0.5')
    after = kernels_of(TuningTable.from_text("\n".join(lines)))
    assert {name: kernel for name, (kernel, _) in before.items()} == dict.fromkeys(before, "cpu.gemm_avx2")
    assert after["first"][0] == "cpu.gemm_portable"
    assert after["second"] == before["second"]


def test_an_executable_keeps_the_rows_that_it_read():
    """Stages are made again from what it keeps; rows of other programs are not part of it."""
    table = measured(FAST_PORTABLE)
    foreign = replace(table.works[0].work, kind="softmax")
    grown = table.with_works([MeasuredWorkload(foreign.digest, foreign, table.works[0].rows)])
    first, second = (compile(TWO_PRODUCTS, target=TARGET, tuning=t) for t in (table, grown))
    assert first.record.emit == second.record.emit
    assert first.record.options == second.record.options
    assert TuningTable.from_text(second.record.options.tuning) == table
    assert "emit.group" in stage_text(second.record, "select-kernels")


def test_explain_names_kernel_reason_and_the_rejected_with_their_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Also of an artifact without weights: nothing is loaded."""
    table = table_of(row("cpu.gemm_avx2", 4.31, 2.0), row("cpu.gemm_portable", 3.92, 3.0))
    exe = compile(
        TWO_PRODUCTS.replace('"input"})', '"param"})'),
        {"b": np.eye(24, 8, dtype=np.float32)},
        TARGET,
        tuning=table,
    )
    exe.save(tmp_path / "two.aicf", weights=False)
    assert main(["explain", str(tmp_path / "two.aicf"), "--rejected"]) == 0
    out = capsys.readouterr().out
    assert "first: cpu.gemm_portable, 3.92 us measured, because lowest measured time, cold" in out
    assert "  not cpu.gemm_avx2: measured 4.31 us, not 3.92" in out
    assert "second: " in out and "us predicted, because" in out
