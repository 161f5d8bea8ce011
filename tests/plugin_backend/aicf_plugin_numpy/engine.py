"""An engine outside of AICF's core: the reference implementation of package `onnx`, one node of the model at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from aicf.engines.availability import Availability
from aicf.engines.external.adapter import ExternalModel, Runner
from aicf.engines.external.engine import ExternalEngine
from aicf.engines.external.onnx_model import OnnxModel
from aicf.engines.record import Fingerprint
from aicf.engines.request import Request


class ReferenceEngine(ExternalEngine):
    """Runs ONNX models on the CPU, in the element types that they are written in."""

    name = "onnx-reference"
    follows = frozenset({"dims", "new_shapes"})

    def availability(self) -> Availability:
        """See `Engine`: its package brings `onnx`."""
        return Availability(onnx.__version__, ("cpu",))

    def accept(self, model: OnnxModel, request: Request, found: Availability) -> ExternalModel:
        """See `ExternalEngine`."""
        self.device_of(request, {"cpu": "cpu"}, "cpu")
        return ReferenceModel(model)


class ReferenceModel(ExternalModel):
    """See `ExternalModel`: one evaluator runs all sizes."""

    runs_any_sizes = True
    threads = 1

    def __init__(self, model: OnnxModel) -> None:
        super().__init__(model)
        self.fingerprint = Fingerprint("onnx-reference", onnx.__version__, "cpu", model=model.digest)

    def build(self, sizes: Mapping[str, int]) -> Runner:
        """See `ExternalModel`."""
        source = self.model.source
        model = onnx.load_from_string(source) if isinstance(source, bytes) else source
        return ReferenceRunner(ReferenceEvaluator(model))


class ReferenceRunner(Runner):
    """See `Runner`."""

    def __init__(self, evaluator: Any) -> None:
        self._evaluator = evaluator

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See `Runner`."""
        results = self._evaluator.run(None, dict(inputs))
        return dict(zip(self._evaluator.output_names, map(np.asarray, results), strict=True))
