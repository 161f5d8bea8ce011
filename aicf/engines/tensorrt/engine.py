"""TensorRT: a plan for one GPU, one version and one combination of sizes, built from an ONNX model.

Unverified until its GPU test has run. Networks are strongly typed: what the model has in f32 is computed in f32, and
with TF32 only if the kernel policy says `tf32`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aicf.engines.availability import Availability, Package
from aicf.engines.external.adapter import ExternalModel
from aicf.engines.external.engine import ExternalEngine
from aicf.engines.external.onnx_model import OnnxModel
from aicf.engines.record import Fingerprint
from aicf.engines.request import Request
from aicf.engines.sizes import shape_at
from aicf.engines.tensorrt.cuda_memory import driver_version, gpus
from aicf.engines.tensorrt.runner import TensorRtRunner
from aicf.errors import EngineError
from aicf.support.extras import install

PACKAGE = Package("tensorrt", "10.3", "12", "tensorrt")


class TensorRtEngine(ExternalEngine):
    """See `Engine`."""

    name = "tensorrt"
    is_verified = False
    follows = frozenset({"dims", "cache_dir", "new_shapes", "tf32"})

    def availability(self) -> Availability:
        """See `Engine`."""
        tensorrt, found = PACKAGE.find()
        if tensorrt is None:
            return found
        try:
            count = len(gpus())
        except ImportError as error:
            return _missing(found, f"the CUDA runtime is not here: {error}", install("tensorrt"))
        except RuntimeError as error:
            return _missing(found, f"no GPU can be used: {error}", "install NVIDIA's driver")
        if not count:
            return _missing(found, "there is no NVIDIA GPU", "run it where there is one")
        return Availability(found.version, tuple(f"cuda:{number}" for number in range(count)))

    def accept(self, model: OnnxModel, request: Request, found: Availability) -> ExternalModel:
        """See `ExternalEngine`."""
        tensorrt, _ = PACKAGE.find()
        names = {"cuda": found.devices[0], **{name: name for name in found.devices}}
        device = int(self.device_of(request, names, "cuda").partition(":")[2])
        tf32 = request.policy is not None and request.policy.kernel.tf32
        return TensorRtModel(model, tensorrt, device, found.version, tf32=tf32)


def _missing(found: Availability, missing: str, remedy: str) -> Availability:
    return Availability(found.version, missing=missing, remedy=remedy)


class TensorRtModel(ExternalModel):
    """See `ExternalModel`."""

    runs_any_sizes = False

    def __init__(self, model: OnnxModel, tensorrt: Any, device: int, version: str, *, tf32: bool) -> None:
        super().__init__(model)
        self._trt, self._device = tensorrt, device
        target = f"cuda:{device} ({gpus()[device]}, driver of CUDA {driver_version()})"
        self.fingerprint = Fingerprint(
            "tensorrt", version, target, {"tf32": "on" if tf32 else "off"}, model.digest
        )

    def build(self, sizes: Mapping[str, int]) -> TensorRtRunner:
        """See `ExternalModel`."""
        trt, log = self._trt, _log(self._trt)
        builder = trt.Builder(log)
        network = builder.create_network(self._flags())
        parser = self._parse(network, log)
        config = builder.create_builder_config()
        if self.fingerprint.options["tf32"] == "off":
            config.clear_flag(trt.BuilderFlag.TF32)
        if sizes:
            config.add_optimization_profile(self._profile(builder, sizes))
        plan = builder.build_serialized_network(network, config)
        del parser  # the network reads the weights that it holds
        if plan is None:
            raise EngineError(f"engine 'tensorrt' built no plan: {log.worst()}; use engine='aicf'")
        return self.load(bytes(plan), sizes)

    def _flags(self) -> int:
        """Strongly typed, which all networks are from version 11 on."""
        is_always_typed = int(self.fingerprint.version.partition(".")[0]) >= 11
        return 0 if is_always_typed else 1 << int(self._trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)

    def _parse(self, network: Any, log: Any) -> Any:
        """Reads the model into a network; gives the parser."""
        parser = self._trt.OnnxParser(network, log)
        source = self.model.source
        is_read = parser.parse(source) if isinstance(source, bytes) else parser.parse_from_file(source)
        if not is_read:
            errors = [parser.get_error(number).desc() for number in range(parser.num_errors)]
            raise EngineError(
                f"engine 'tensorrt' does not read the model: {'; '.join(errors) or log.worst()}; use engine='aicf'"
            )
        return parser

    def _profile(self, builder: Any, sizes: Mapping[str, int]) -> Any:
        """The one shape of each input that is not fixed in the file."""
        profile = builder.create_optimization_profile()
        for spec in self.model.inputs:
            if any(isinstance(size, str) for size in spec.shape):
                shape = shape_at(spec.shape, sizes)
                profile.set_shape(spec.name, shape, shape, shape)
        return profile

    def load(self, plan: bytes, sizes: Mapping[str, int]) -> TensorRtRunner:
        """See `ExternalModel`."""
        log = _log(self._trt)
        runtime = self._trt.Runtime(log)
        engine = runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise EngineError(f"engine 'tensorrt' does not load the plan: {log.worst()}; build it again")
        return TensorRtRunner(self._trt, runtime, engine, self._device)


def _log(trt: Any) -> Any:
    """A logger that keeps what goes wrong, for messages, and prints nothing."""

    class Log(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self._said: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                self._said.append(message)

        def worst(self) -> str:
            """The first error, from which the others follow."""
            return self._said[0] if self._said else "it says nothing more"

    return Log()
