"""QNN: Qualcomm's NPU (HTP), by the plug-in of ONNX Runtime that package `onnxruntime-qnn` brings.

Unverified: it was run on no Snapdragon. On x86 the package brings a simulator of the NPU, whose device is called
`simulator` here. Plans are context binaries, for fixed sizes. No node runs on the processor instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aicf.engines.availability import Availability, Package
from aicf.engines.external.adapter import ExternalModel
from aicf.engines.external.engine import ExternalEngine
from aicf.engines.external.onnx_model import OnnxModel
from aicf.engines.onnxruntime.engine import PACKAGE as ORT
from aicf.engines.onnxruntime.engine import check_elements
from aicf.engines.onnxruntime.runner import OnnxRuntimeRunner
from aicf.engines.record import Fingerprint
from aicf.engines.request import Request
from aicf.errors import EngineError, UnsupportedOp

PLUG_IN = Package("onnxruntime_qnn", "2.0", "3", "qnn")
_PROVIDER = "QNNExecutionProvider"
_NPU, _SIMULATOR = "npu", "simulator"
_SIMULATED = {"soc_model": "60", "enable_htp_fp16_precision": "1"}
"""What is simulated: the HTP of the Snapdragon X Elite, as Qualcomm numbers its chips."""


class QnnEngine(ExternalEngine):
    """See `Engine`."""

    name = "qnn"
    is_verified = False
    follows = frozenset({"dims", "cache_dir", "new_shapes"})

    def availability(self) -> Availability:
        """See `Engine`."""
        ort, found = ORT.find()
        if ort is None:
            return found
        plug_in, found = PLUG_IN.find()
        if plug_in is None:
            return found
        try:
            devices = tuple(_devices(ort, plug_in))
        except Exception as error:
            missing = f"the plug-in of QNN does not load: {error}"
            return Availability(
                found.version, missing=missing, remedy="see `pip show onnxruntime-qnn` for what it needs"
            )
        if not devices:
            missing = "QNN finds no NPU of Qualcomm's, and no simulator for this processor"
            return Availability(
                found.version, missing=missing, remedy="run it on a Snapdragon, or on x86 Linux"
            )
        return Availability(found.version, devices)

    def accept(self, model: OnnxModel, request: Request, found: Availability) -> ExternalModel:
        """See `ExternalEngine`."""
        ort, _ = ORT.find()
        plug_in, _ = PLUG_IN.find()
        check_elements(model, self.name)
        name = self.device_of(request, {device: device for device in found.devices}, found.devices[0])
        return QnnModel(model, ort, plug_in, name, found.version, keeps_plans=request.cache_dir is not None)


def _devices(ort: Any, plug_in: Any) -> dict[str, Any]:
    """Devices of the plug-in by name: the NPU, or on a processor without one its simulator."""
    if not any(device.ep_name == _PROVIDER for device in ort.get_ep_devices()):
        ort.register_execution_provider_library(_PROVIDER, plug_in.get_library_path())
    kinds = ort.OrtHardwareDeviceType
    names = {kinds.NPU: _NPU, kinds.CPU: _SIMULATOR}
    own = [device for device in ort.get_ep_devices() if device.ep_name == _PROVIDER]
    found = {names[device.device.type]: device for device in own if device.device.type in names}
    return {_NPU: found[_NPU]} if _NPU in found else found


class QnnModel(ExternalModel):
    """See `ExternalModel`."""

    runs_any_sizes = False
    notes = ("the NPU computes in f16 where the model has f32",)

    def __init__(
        self, model: OnnxModel, ort: Any, plug_in: Any, device: str, version: str, *, keeps_plans: bool
    ) -> None:
        super().__init__(model)
        self._ort, self._device, self._keeps_plans = ort, _devices(ort, plug_in)[device], keeps_plans
        self._options = {"backend_path": str(plug_in.get_qnn_htp_path())}
        if device == _SIMULATOR:
            self._options |= _SIMULATED
            self.notes = (
                *self.notes,
                "a simulator of the NPU on the processor; its times say nothing of an NPU's",
            )
        shown = {name: value for name, value in self._options.items() if name != "backend_path"}
        options = {"backend": "htp", **shown}
        whole = f"{version} (onnxruntime {ort.__version__})"
        self.fingerprint = Fingerprint("qnn", whole, device, options, model.digest)

    def build(self, sizes: Mapping[str, int]) -> OnnxRuntimeRunner:
        """See `ExternalModel`. Raises UnsupportedOp for a dimension that has no name in the file to fix it by."""
        if nameless := [name for name in sizes if name not in self.model.own_names]:
            raise UnsupportedOp(
                f"engine 'qnn' needs fixed sizes, and dimension {nameless[0]} has no name in the file; give it one"
            )
        source = self.model.source
        if not self._keeps_plans:
            return OnnxRuntimeRunner(lambda prefix: self._session(source, sizes, prefix, None))
        with TemporaryDirectory() as folder:
            context = Path(folder) / "context.onnx"
            first = self._session(source, sizes, None, context)
            plan = context.read_bytes()
        del first  # what runs is what is kept
        return OnnxRuntimeRunner(lambda prefix: self._session(plan, {}, prefix, None), plan)

    def load(self, plan: bytes, sizes: Mapping[str, int]) -> OnnxRuntimeRunner:
        """See `ExternalModel`; a context binary has its sizes."""
        return OnnxRuntimeRunner(lambda prefix: self._session(plan, {}, prefix, None))

    def _session(
        self, source: bytes | str, sizes: Mapping[str, int], profile_prefix: str | None, context: Path | None
    ) -> Any:
        options = self._ort.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        for name, size in sizes.items():
            options.add_free_dimension_override_by_name(self.model.own_names[name], size)
        if profile_prefix is not None:
            options.enable_profiling, options.profile_file_prefix = True, profile_prefix
        if context is not None:
            options.add_session_config_entry("ep.context_enable", "1")
            options.add_session_config_entry("ep.context_embed_mode", "1")
            options.add_session_config_entry("ep.context_file_path", str(context))
        options.add_provider_for_devices([self._device], self._options)
        session = self._ort.InferenceSession(source, options)
        session.disable_fallback()
        if session.get_providers()[0] != _PROVIDER:
            raise EngineError(
                f"engine 'qnn' did not load {_PROVIDER}; use engine='onnxruntime' for the processor"
            )
        return session
