"""OpenVINO: its devices by its own names (CPU, GPU.1, NPU), and a model for one of them.

An NPU has plans for fixed sizes only, and computes in f16. Whether a device has f16 or bf16 it says itself. Devices
that choose among others (AUTO, MULTI, HETERO) are refused: what runs where is named, never left open.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

from aicf.engines.availability import Availability, Package
from aicf.engines.external.adapter import ExternalModel
from aicf.engines.external.engine import ExternalEngine, precision_of, threads_of
from aicf.engines.external.onnx_model import OnnxModel
from aicf.engines.onnxruntime.engine import check_elements
from aicf.engines.openvino.runner import OpenVinoRunner
from aicf.engines.record import Fingerprint
from aicf.engines.request import Request
from aicf.engines.sizes import shape_at
from aicf.errors import PolicyError

PACKAGE = Package("openvino", "2025.0", "2027", "openvino")
_CAPABILITIES = {"FP16": "f16", "BF16": "bf16"}
"""What a device says that it computes in, and the precision policy's word for it."""


class OpenVinoEngine(ExternalEngine):
    """See `Engine`."""

    name = "openvino"
    follows = frozenset({"dims", "threads", "cache_dir", "new_shapes", "to"})

    def availability(self) -> Availability:
        """See `Engine`."""
        openvino, found = PACKAGE.find()
        if openvino is None:
            return found
        devices = tuple(openvino.Core().available_devices)
        if not devices:
            return Availability(
                found.version, missing="OpenVINO finds no device", remedy="install a driver for one"
            )
        return Availability(found.version, devices)

    def accept(self, model: OnnxModel, request: Request, found: Availability) -> ExternalModel:
        """See `ExternalEngine`."""
        openvino, _ = PACKAGE.find()
        check_elements(model, self.name)
        core = openvino.Core()
        device = self.device_of(request, dict(_names(found.devices)), found.devices[0])
        kind = device.partition(".")[0]
        if kind != "CPU" and request.threads is not None:
            raise PolicyError(f"threads: they are for the CPU; leave it out on device '{device}'")
        capabilities = core.get_property(device, "OPTIMIZATION_CAPABILITIES")
        legal = ["unchanged", *(name for word, name in _CAPABILITIES.items() if word in capabilities)]
        precision = precision_of(request, legal, self.name)
        return OpenVinoModel(model, openvino, core, device, precision, threads_of(request), found.version)


def _names(devices: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """What `device=` may say: OpenVINO's names, `gpu` for the first of several, and `gpu:1` for GPU.1."""
    for device in devices:
        kind, _, number = device.partition(".")
        if number in ("", "0"):
            yield kind.lower(), device
        if number:
            yield f"{kind.lower()}:{number}", device
        yield device, device


class OpenVinoModel(ExternalModel):
    """See `ExternalModel`."""

    def __init__(
        self,
        model: OnnxModel,
        openvino: Any,
        core: Any,
        device: str,
        precision: str,
        threads: int,
        version: str,
    ) -> None:
        super().__init__(model)
        self._openvino, self._core, self._device = openvino, core, device
        kind = device.partition(".")[0]
        self.runs_any_sizes = kind != "NPU"
        options = {"PERFORMANCE_HINT": "LATENCY"}
        if kind == "CPU":
            options["INFERENCE_NUM_THREADS"] = str(threads)
            self.threads = threads
        if kind == "NPU":
            self.notes = ("an NPU computes in f16 where the model has f32",)
        else:
            options["INFERENCE_PRECISION_HINT"] = "f32" if precision == "unchanged" else precision
        target = f"{device} ({self._about(kind)})"
        self.fingerprint = Fingerprint("openvino", version, target, options, model.digest)

    def _about(self, kind: str) -> str:
        """The device in words, with the driver that its plans are for."""
        name = self._core.get_property(self._device, "FULL_DEVICE_NAME")
        supported = self._core.get_property(self._device, "SUPPORTED_PROPERTIES")
        key = f"{kind}_DRIVER_VERSION"
        return (
            f"{name}, driver {self._core.get_property(self._device, key)}" if key in supported else str(name)
        )

    def build(self, sizes: Mapping[str, int]) -> OpenVinoRunner:
        """See `ExternalModel`."""

        def compile_model(is_profiled: bool) -> Any:
            source = self.model.source
            model = self._core.read_model(io.BytesIO(source) if isinstance(source, bytes) else source)
            if sizes:
                model.reshape(
                    {
                        spec.name: [-1 if size is None else size for size in shape_at(spec.shape, sizes)]
                        for spec in self.model.inputs
                    }
                )
            return self._core.compile_model(model, self._device, self._options(is_profiled))

        return self._runner(compile_model)

    def load(self, plan: bytes, sizes: Mapping[str, int]) -> OpenVinoRunner:
        """See `ExternalModel`."""

        def import_model(is_profiled: bool) -> Any:
            if is_profiled:
                return self.build(sizes).profiled()
            return self._core.import_model(io.BytesIO(plan), self._device, self._options(is_profiled))

        return self._runner(import_model)

    def _options(self, is_profiled: bool) -> dict[str, str]:
        return {**self.fingerprint.options, **({"PERF_COUNT": "YES"} if is_profiled else {})}

    def _runner(self, compile_model: Any) -> OpenVinoRunner:
        inputs = [spec.name for spec in self.model.inputs]
        outputs = [spec.name for spec in self.model.outputs]
        return OpenVinoRunner(self._openvino, compile_model, inputs, outputs)
