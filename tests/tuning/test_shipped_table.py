"""The table of `benchmarks/tuning`: it fits the kernels as they are, and decides what runs the BERT encoder."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aicf.compilation.record import Options
from aicf.compilation.sources import read_model
from aicf.compilation.stages import passes_of, read_decisions
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import KernelAttr
from aicf.dialects.json_values import json_value
from aicf.frontends.text import make_context
from aicf.inspection.explain import Decision
from aicf.passes.kernels.select_kernels import SelectKernelsPass
from aicf.passes.pipelines.text import apply_pass
from aicf.policies.tuning_table import MeasuredWorkload, Row, Timing, TuningTable

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TABLE = TuningTable.load(BENCHMARKS / "tuning" / "h100.json")


@dataclass(frozen=True)
class Selected:
    """Records by group, and the decisions about them."""

    kernels: dict[str, KernelAttr]
    decisions: dict[str, Decision]


@cache
def programs() -> Any:
    """The programs of the GPU benchmark."""
    sys.path.insert(0, str(BENCHMARKS / "gpu"))
    try:
        import programs
    finally:
        sys.path.pop(0)
    return programs


def select(name: str, table: TuningTable) -> Selected:
    """Kernels of a program of the benchmark, one layer of it if it has layers."""
    model: Any = {
        "mlp_chain": lambda: programs().mlp_chain(layers=1),
        "bert_1x128": lambda: programs().bert_encoder(1, 128, programs().EncoderConfig(layers=1)),
        "bert_8x128": lambda: programs().bert_encoder(8, 128, programs().EncoderConfig(layers=1)),
    }.get(name, programs().PROGRAMS[name])
    context = make_context()
    source = read_model(model(), context)
    for step in passes_of(source, Options("cuda:sm_90a", "", "", 1, table.to_line())):
        apply_pass(step, context, source.module)
        if isinstance(step, SelectKernelsPass):
            break
    groups = [op for op in source.module.walk() if isinstance(op, GroupOp)]
    made = [d for d in read_decisions(source.module) if d.made_by == "select-kernels"]
    kernels = {group.id.data: group.kernel for group in groups if group.kernel is not None}
    return Selected(kernels, {decision.subjects[0]: decision for decision in made})


CHAINS = {"mlp_chain", "gpt2_block", "gpt2_12_blocks"}
"""Of one token: they have no rows, as the priors of their kernels were fitted to times inside these very chains."""
BY_INDICES = {"scatter_add_256MB"}
"""How long it takes depends on the indices, which a measurement of its own does not know."""
ONLY_ONE = {"cuda.last_update"}
"""The only kernels for their work, in one variant: there is nothing to choose. What they take was measured of indices
that are a parameter; of those that come with a call it was not yet."""


@pytest.mark.parametrize("name", sorted(set(programs().PROGRAMS) - CHAINS - BY_INDICES))
def test_every_instruction_of_the_benchmark_runs_what_was_measured_fastest(name: str):
    """Every group but those of the programs and kernels above has rows.

    A program of one product binds what it reads and writes, and the library's call would need copies of that: 60 us
    for matrices of 32 MB, more than it gains.
    """
    selected = select(name, TABLE)
    for group, kernel in selected.kernels.items():
        decision = selected.decisions[group]
        if kernel.kernel.data in ONLY_ONE:
            assert "tuning_key" not in decision.cost and decision.because == "the only legal kernel"
            continue
        measured = TABLE.find(work_of(decision))
        assert measured is not None
        alone = len(selected.kernels) == 1
        free = [row for row in measured.rows if not (alone and row.kernel == "cuda.cublaslt")]
        best = min(free, key=lambda row: row.cold.median_us)
        assert decision.cost["cold_us"] == best.cold.median_us, group
        assert decision.choice == best.kernel and is_run_by(kernel, best)
        for row in measured.rows:
            if row is not best:
                assert str(decision.rejected[row.label]).startswith("measured")


def test_the_library_that_is_installed_is_the_one_that_was_measured():
    """An algorithm's bytes are valid for one version: the pin of the `cuda` extra, the table's header and the record of
    every row name the same. The package has one number more than the library tells."""
    project = tomllib.loads((BENCHMARKS.parent / "pyproject.toml").read_text("utf-8"))["project"]
    (pin,) = [each for each in project["optional-dependencies"]["cuda"] if each.startswith("nvidia-cublas")]
    measured = TABLE.header.libraries["cublasLt"]
    assert pin == f"nvidia-cublas=={measured}.*"
    rows = [row for entry in TABLE.works for row in entry.rows if row.kernel == "cuda.cublaslt"]
    assert rows and {row.record["library"] for row in rows} == {measured}


def work_of(decision: Decision) -> Any:
    """The key of the work that a decision read its times of."""
    return next(entry.work for entry in TABLE.works if entry.key == decision.cost["tuning_key"])


def test_an_edit_of_one_row_changes_exactly_that_kernel():
    """The product with GELU of the encoder gets the time of its slowest variant as the best: its record changes, all
    others stay, to the last entry."""
    before = select("bert_1x128", TABLE)
    group = "layer.0.intermediate.dense"
    entry = TABLE.find(work_of(before.decisions[group]))
    assert entry is not None
    slowest = max(entry.rows, key=lambda row: row.cold.median_us)
    edited = replace(slowest, cold=Timing(0.5, 0.0))
    after = select("bert_1x128", TABLE.with_works([MeasuredWorkload(entry.key, entry.work, (edited,))]))
    changed = [name for name, kernel in before.kernels.items() if after.kernels[name] != kernel]
    assert changed == [group] and len(before.kernels) == 7
    assert after.decisions[group].cost["expected_us"] == 0.5
    assert is_run_by(after.kernels[group], edited)


def is_run_by(kernel: KernelAttr, row: Row) -> bool:
    """Whether a record is the one of a row."""
    record = {key: json_value(value) for key, value in kernel.record.data.items()}
    wanted = row.record or row.spec  # the device's own fields tell its variants apart
    return kernel.kernel.data == row.kernel and all(record[key] == value for key, value in wanted.items())
