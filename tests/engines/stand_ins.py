"""Engines for tests, registered as those of another package: the evaluator of package onnx, and what can go wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from aicf.engines.availability import Availability, Package
from aicf.engines.external.adapter import ExternalModel, Runner
from aicf.engines.external.engine import ExternalEngine
from aicf.engines.external.onnx_model import OnnxModel
from aicf.engines.record import Fingerprint
from aicf.engines.registry import get_engine
from aicf.engines.request import Request

DEVICE = "abacus"
NAMES = {
    "steady": "Steady",
    "flaky": "Flaky",
    "dying": "Dying",
    "rough": "Rough",
    "absent": "Absent",
    "old": "Old",
}


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers the engines of this file by entry points, for processes that are started too."""
    folder = tmp_path / "site" / "stand_ins-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: stand-ins\nVersion: 1\n")
    lines = [f"{name} = tests.engines.stand_ins:{factory}" for name, factory in NAMES.items()]
    (folder / "entry_points.txt").write_text("\n".join(["[aicf.engines]", *lines, ""]))
    monkeypatch.syspath_prepend(str(folder.parent))
    get_engine.cache_clear()


class Steady(ExternalEngine):
    """One plan per combination of sizes, and plans that can be kept."""

    name = "steady"
    follows = frozenset({"dims", "cache_dir", "new_shapes"})
    version = "1.0"

    def availability(self) -> Availability:
        return Availability(self.version, (DEVICE,))

    def accept(self, model: OnnxModel, request: Request, found: Availability) -> ExternalModel:
        device = self.device_of(request, {DEVICE: DEVICE}, DEVICE)
        return self.model(model, Fingerprint(self.name, found.version, device, {"beads": "10"}, model.digest))

    def model(self, model: OnnxModel, fingerprint: Fingerprint) -> ExternalModel:
        return SteadyModel(model, fingerprint)


class SteadyModel(ExternalModel):
    runs_any_sizes = False
    notes = ("beads are moved by hand",)

    def __init__(self, model: OnnxModel, fingerprint: Fingerprint) -> None:
        super().__init__(model)
        self.fingerprint = fingerprint

    def build(self, sizes: Mapping[str, int]) -> Runner:
        return Evaluator(contents(self.model), sizes)

    def load(self, plan: bytes, sizes: Mapping[str, int]) -> Runner:
        head, _, data = plan.partition(b"\n")
        if json.loads(head) != sizes:
            raise ValueError("a plan for other sizes")
        return Evaluator(data, sizes)


def contents(model: OnnxModel) -> bytes:
    """The model without its file."""
    source = model.source
    return source if isinstance(source, bytes) else onnx.load(source).SerializeToString()


class Evaluator(Runner):
    """Refuses inputs of other sizes than those it is for."""

    def __init__(self, data: bytes, sizes: Mapping[str, int]) -> None:
        self._data, self._sizes = data, dict(sizes)
        self._evaluator = ReferenceEvaluator(onnx.load_from_string(data))

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        assert not self._sizes or self._sizes["batch"] == inputs["x"].shape[0]
        results = self._evaluator.run(None, dict(inputs))
        return dict(zip(self._evaluator.output_names, map(np.asarray, results), strict=True))

    def plan(self) -> bytes:
        return json.dumps(self._sizes).encode() + b"\n" + self._data


class Flaky(Steady):
    """Fails in the second run."""

    name = "flaky"

    def model(self, model: OnnxModel, fingerprint: Fingerprint) -> ExternalModel:
        return FlakyModel(model, fingerprint)


class FlakyModel(SteadyModel):
    def build(self, sizes: Mapping[str, int]) -> Runner:
        return FlakyRunner(contents(self.model), sizes)


class FlakyRunner(Evaluator):
    runs = 0

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.runs += 1
        if self.runs == 2:
            raise RuntimeError("the device was lost\nat bead 3")
        return super().run(inputs)


class Dying(Steady):
    """Takes its process with it."""

    name = "dying"

    def accept(self, model: OnnxModel, request: Request, found: Availability) -> Any:
        self.device_of(request, {DEVICE: DEVICE}, DEVICE)
        os._exit(7)


class Rough(Steady):
    """Was never tested where it runs."""

    name = "rough"
    is_verified = False


class Absent(Steady):
    """Its package is not installed."""

    name = "absent"

    def availability(self) -> Availability:
        return Package("no_such_engine", "1", "2", "onnxruntime").find()[1]


class Old(Steady):
    """Its package has another version."""

    name = "old"

    def availability(self) -> Availability:
        return Package("numpy", "99.1", "100", "openvino").find()[1]
