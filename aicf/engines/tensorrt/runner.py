"""Running a plan of TensorRT: inputs go to the GPU, results come back, one call at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from aicf.engines.external.adapter import Runner
from aicf.engines.tensorrt.cuda_memory import CudaMemory
from aicf.errors import EngineError, UnsupportedOp
from aicf.runtime.tensors import Array


class TensorRtRunner(Runner):
    """See `Runner`. Calls take turns, for a context has one set of buffers.

    Args:
        trt: The package.
        runtime, engine: The plan, loaded; the runtime lives as long.
        device: Number of the GPU.

    Raises:
        UnsupportedOp: the plan reads the values of an input on the host, as shapes.
    """

    def __init__(self, trt: Any, runtime: Any, engine: Any, device: int) -> None:
        self._runtime, self._engine = runtime, engine
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        if shapes := [name for name in names if engine.is_shape_inference_io(name)]:
            raise UnsupportedOp(
                f"shapes follow from the values of '{shapes[0]}', which engine 'tensorrt' here does not bind; make it "
                "a constant of the model, or use engine='aicf'"
            )
        is_input = {name: engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT for name in names}
        self._outputs = {
            name: np.dtype(trt.nptype(engine.get_tensor_dtype(name))) for name in names if not is_input[name]
        }
        self._inputs = [name for name in names if is_input[name]]
        self._memory = CudaMemory(device)
        self._context: Any = engine.create_execution_context()
        if self._context is None:
            raise EngineError("engine 'tensorrt' has no memory for the plan; use smaller sizes")
        self._lock = threading.Lock()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See `Runner`."""
        memory, context = self._memory, self._context
        with self._lock:
            memory.activate()
            for name in self._inputs:
                array = inputs[name]
                if not context.set_input_shape(name, array.shape):
                    raise EngineError(
                        f"engine 'tensorrt' has no plan for '{name}' of shape {list(array.shape)}; name its sizes in "
                        "dims="
                    )
                address = memory.buffer(name, array.nbytes)
                context.set_tensor_address(name, address)
                memory.upload(address, array)
            results = {name: self._result(name) for name in self._outputs}
            if not context.execute_async_v3(memory.stream):
                raise EngineError("engine 'tensorrt' did not run the plan; make a new session")
            for name, array in results.items():
                memory.download(array, memory.buffer(name, array.nbytes))
            memory.synchronize()
        return results

    def _result(self, name: str) -> Array:
        """New memory of the host for an output, whose memory on the GPU is bound."""
        shape = tuple(self._context.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            raise UnsupportedOp(
                f"the sizes of output '{name}' follow from the data, which engine 'tensorrt' here does not bind; use "
                "engine='aicf'"
            )
        array = np.empty(shape, self._outputs[name])
        self._context.set_tensor_address(name, self._memory.buffer(name, array.nbytes))
        return array

    def plan(self) -> bytes:
        """See `Runner`."""
        return bytes(self._engine.serialize())

    def close(self) -> None:
        """See `Runner`; waits for the call in flight."""
        with self._lock:
            self._context = None
            self._memory.close()
