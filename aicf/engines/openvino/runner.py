"""Running a compiled model of OpenVINO: requests, memory of the caller, and the times of its ops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from aicf.engines.external.adapter import Runner
from aicf.errors import InputMismatch, UnsupportedOp
from aicf.runtime.profiler import InstructionTime
from aicf.runtime.tensors import Array


class OpenVinoRunner(Runner):
    """See `Runner`.

    Args:
        openvino: The package.
        compile_model: Gives the compiled model; with True, one that counts times.
        inputs, outputs: Names, in the order of the model.
    """

    def __init__(
        self,
        openvino: Any,
        compile_model: Callable[[bool], Any],
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> None:
        self._openvino, self._compile, self._names = openvino, compile_model, list(outputs)
        self._model = compile_model(False)
        self._inputs = _indices(self._model.inputs, inputs)
        self._outputs = _indices(self._model.outputs, outputs)
        self._idle: deque[Any] = deque()

    def profiled(self) -> Any:
        """The compiled model, as one that counts times."""
        return self._compile(True)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See `Runner`. A request that fails is not used again."""
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._model.create_infer_request()
        given = {self._inputs[name]: array for name, array in inputs.items() if name in self._inputs}
        request.infer(given, share_inputs=True)
        results = {
            name: np.array(request.get_output_tensor(self._outputs[name]).data) for name in self._names
        }
        self._idle.append(request)
        return results

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> BoundRequest:
        """See `Runner`; nothing is copied on the host."""
        request = self._model.create_infer_request()
        tensor = self._openvino.Tensor
        for name, array in inputs.items():
            if name in self._inputs:
                request.set_input_tensor(self._inputs[name], tensor(array, shared_memory=True))
        for name, array in outputs.items():
            request.set_output_tensor(self._outputs[name], tensor(array, shared_memory=True))
        return BoundRequest(request, self._outputs, inputs, outputs)

    def profile(self, inputs: Mapping[str, Array], repeats: int) -> tuple[InstructionTime, ...]:
        """See `Runner`: ops as OpenVINO executes them, by a model that counts times."""
        request = self.profiled().create_infer_request()
        given = {self._inputs[name]: array for name, array in inputs.items() if name in self._inputs}
        samples: dict[str, list[float]] = {}
        about: dict[str, Any] = {}
        for _ in range(repeats):
            request.infer(given)
            for info in request.get_profiling_info():
                if info.status == self._openvino.ProfilingInfo.Status.EXECUTED:
                    samples.setdefault(info.node_name, []).append(info.real_time.total_seconds() * 1e6)
                    about[info.node_name] = info
        return tuple(
            InstructionTime(
                name, about[name].node_type, (name,), about[name].exec_type, median(times), min(times)
            )
            for name, times in samples.items()
        )

    def plan(self) -> bytes:
        """See `Runner`: the compiled model as OpenVINO exports it."""
        exported = self._model.export_model()  # bytes, or a stream in later versions
        return exported if isinstance(exported, bytes) else exported.getvalue()

    def close(self) -> None:
        """See `Runner`."""
        self._idle.clear()


def _indices(ports: Sequence[Any], names: Sequence[str]) -> dict[str, int]:
    """Where OpenVINO has the inputs or outputs of a model; inputs that nothing reads may be gone.

    Raises UnsupportedOp if an entry has none of the names.
    """
    found: dict[str, int] = {}
    for index, port in enumerate(ports):
        own = [name for name in names if name in port.get_names() and name not in found]
        if not own:
            raise UnsupportedOp(
                f"OpenVINO has an input or output {sorted(port.get_names())} that the model has not; export the model "
                "again"
            )
        found[own[0]] = index
    return found


class BoundRequest:
    """See `BoundRun`."""

    def __init__(
        self,
        request: Any,
        indices: Mapping[str, int],
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
    ) -> None:
        self._request, self._indices, self._inputs, self._given = request, indices, inputs, outputs
        self._has_run = False

    def run(self) -> None:
        """See `BoundRun`."""
        self._request.infer()
        self._has_run = True

    def outputs(self) -> dict[str, Array]:
        """See `BoundRun`; outputs that are not bound are memory of OpenVINO, which every run writes anew."""
        own = [name for name in self._indices if name not in self._given]
        if own and not self._has_run:
            raise InputMismatch(f"output '{own[0]}' is there after the first run; run, or bind memory for it")
        return {
            name: self._given[name] if name in self._given else self._request.get_output_tensor(index).data
            for name, index in self._indices.items()
        }
