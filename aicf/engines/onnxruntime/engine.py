"""ONNX Runtime: which providers are here, and a model for one of them. A provider that does not load is an error.

Packages `onnxruntime` (CPU) and `onnxruntime-gpu` (CUDA) are the same module. Its Python interface has no bf16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aicf.engines.availability import Availability, Package
from aicf.engines.external.adapter import ExternalModel
from aicf.engines.external.engine import ExternalEngine, threads_of
from aicf.engines.external.onnx_model import OnnxModel
from aicf.engines.onnxruntime.runner import OnnxRuntimeRunner
from aicf.engines.record import Fingerprint
from aicf.engines.request import Request
from aicf.errors import BackendUnavailable, EngineError, PolicyError, UnsupportedOp

PACKAGE = Package("onnxruntime", "1.20", "2", "onnxruntime")
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_PROVIDERS = {"cpu": CPU, "cuda": CUDA}
_CUDA = re.compile(rf"(?:cuda(?::(\d+))?|{CUDA})", re.IGNORECASE)
ELEMENTS = frozenset({"f64", "f32", "f16", "i64", "i32", "i16", "i8", "u8", "i1"})
"""Of inputs and outputs, by the names of AICF: those that NumPy has itself."""


class OnnxRuntimeEngine(ExternalEngine):
    """See `Engine`."""

    name = "onnxruntime"
    follows = frozenset({"dims", "threads", "new_shapes"})

    def availability(self) -> Availability:
        """See `Engine`."""
        ort, found = PACKAGE.find()
        if ort is None:
            return found
        return Availability(found.version, tuple(_names(ort)))

    def accept(self, model: OnnxModel, request: Request, found: Availability) -> ExternalModel:
        """See `ExternalEngine`."""
        ort, _ = PACKAGE.find()
        check_elements(model, self.name)
        provider, number = self._provider(ort, request, found.version)
        if provider == CUDA and request.threads is not None:
            raise PolicyError("threads: they are for the CPU; leave it out on device 'cuda'")
        return OnnxRuntimeModel(model, ort, provider, number, threads_of(request))

    def _provider(self, ort: Any, request: Request, version: str) -> tuple[str, str]:
        """The provider for a device, and the number of the GPU.

        Raises:
            PolicyError: there is no such device.
            BackendUnavailable: this package of ONNX Runtime has no provider for it.
        """
        found = _CUDA.fullmatch(request.device) if isinstance(request.device, str) else None
        if found is None:
            return self.device_of(request, _names(ort), "cpu"), "0"
        if CUDA not in ort.get_available_providers():
            raise BackendUnavailable(
                f"device '{request.device}': package onnxruntime {version} has no {CUDA}; install onnxruntime-gpu in "
                "its place"
            )
        return CUDA, found[1] or "0"


def _names(ort: Any) -> dict[str, str]:
    """What `device=` may say: short names, and providers as ONNX Runtime calls them."""
    here = ort.get_available_providers()
    return {
        name: provider
        for short, provider in _PROVIDERS.items()
        if provider in here
        for name in (short, provider)
    }


def check_elements(model: OnnxModel, engine: str) -> None:
    """Raises UnsupportedOp for an input or output that NumPy has no type for itself."""
    for spec in (*model.inputs, *model.outputs):
        if spec.dtype not in ELEMENTS and spec.dtype != "?":
            raise UnsupportedOp(
                f"'{spec.name}' is {spec.dtype}, which the Python interface of engine '{engine}' does not take; cast "
                "it inside of the model, or use engine='aicf'"
            )


class OnnxRuntimeModel(ExternalModel):
    """See `ExternalModel`."""

    runs_any_sizes = True

    def __init__(self, model: OnnxModel, ort: Any, provider: str, number: str, threads: int) -> None:
        super().__init__(model)
        self._ort, self._provider, self._number = ort, provider, number
        options = {"graph_optimization_level": "all", "execution_mode": "sequential"}
        if provider == CUDA:
            options["device_id"] = number
            self.notes = (
                "nodes that CUDAExecutionProvider has no kernel for run on the CPU, as ONNX Runtime decides",
            )
        else:
            options["intra_op_num_threads"] = str(threads)
            self.threads = threads
        self.fingerprint = Fingerprint("onnxruntime", str(ort.__version__), provider, options, model.digest)

    def build(self, sizes: Mapping[str, int]) -> OnnxRuntimeRunner:
        """See `ExternalModel`. Dimensions that have no name in the file stay open."""
        return OnnxRuntimeRunner(lambda profile_prefix: self._session(sizes, profile_prefix))

    def _session(self, sizes: Mapping[str, int], profile_prefix: str | None) -> Any:
        ort = self._ort
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.intra_op_num_threads, options.inter_op_num_threads = max(self.threads, 1), 1
        for name, size in sizes.items():
            if name in self.model.own_names:
                options.add_free_dimension_override_by_name(self.model.own_names[name], size)
        if profile_prefix is not None:
            options.enable_profiling, options.profile_file_prefix = True, profile_prefix
        given = {"device_id": self._number} if self._provider == CUDA else {}
        session = ort.InferenceSession(self.model.source, options, providers=[(self._provider, given)])
        session.disable_fallback()
        if session.get_providers()[0] != self._provider:
            raise EngineError(
                f"engine 'onnxruntime' did not load {self._provider}: it fell back to {session.get_providers()[0]}; "
                "install the CUDA and cuDNN that it was built for"
            )
        return session
