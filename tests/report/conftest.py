"""Compiled programs that the tests of reports share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

import aicf
from aicf.inspection.benched import Benched, BenchedInstruction, BenchResult, Timing
from aicf.support.dataclass_json import to_json_value
from tests.support.training_graphs import mlp as training_mlp
from tests.test_compiler import MLP, mlp_weights

TARGET = "cpu:x86-64-v3"


@dataclass(frozen=True)
class Files:
    """Paths of artifacts: of a classifier for two batches, of it without fused epilogues, and of a training step that
    computes some values again."""

    folder: Path
    mlp: Path
    unfused: Path
    step: Path


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("report")
    made = Files(folder, folder / "mlp.aicf", folder / "unfused.aicf", folder / "step.aicf")
    weights = mlp_weights()
    aicf.compile(MLP, weights, TARGET, dims="N=1,3").save(made.mlp)
    apart = {"fusion": {"epilogue": False}}
    aicf.compile(MLP, weights, TARGET, dims="N=1,3", policy=apart).save(made.unfused)
    module, feeds = training_mlp(batch=256, layers=3)
    given = {name: array for name, array in feeds.items() if name not in ("x", "labels")}
    aicf.compile(module, given, TARGET, policy={"saves": {"act0.save": "recompute"}}).save(made.step)
    return made


def times_of(path: Path, us: float) -> str:
    """What `aicf bench --json` would write of an artifact if instruction number n (from 1) took n times `us`."""
    exe = aicf.load(path)
    programs: list[Benched] = []
    for row in exe.plan.rows:
        program = exe.plan.by_name[row.program]
        rows = [
            BenchedInstruction(node.name, node.kind, launch.kernel, node.src, us * number, us, None)
            for number, (node, launch) in enumerate(
                zip(program.graph.nodes, program.launches, strict=True), 1
            )
        ]
        programs.append(Benched(Timing(program.name, 9.0, 8.0, 8.0), tuple(rows), None))
    target = f"{exe.plan.backend}:{exe.plan.arch}"
    return json.dumps(to_json_value(BenchResult(exe.name, target, tuple(programs))))
