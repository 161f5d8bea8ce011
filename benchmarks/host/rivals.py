"""The rivals of the CPU benchmark: each runs a network on one thread, on memory that it was given before."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
import openvino
import torch
from networks import Floats, Network
from torch import nn

import aicf

Run = Callable[[], Mapping[str, Floats]]
"""One run; gives the outputs by name."""


@dataclass(frozen=True)
class Case:
    """A network with its weights and inputs."""

    network: Network
    module: nn.Module
    inputs: dict[str, torch.Tensor]

    @property
    def weights(self) -> dict[str, Floats]:
        """The module's weights on the host."""
        return {name: value.detach().numpy() for name, value in self.module.state_dict().items()}

    @property
    def arrays(self) -> dict[str, Floats]:
        """The inputs on the host."""
        return {name: value.numpy() for name, value in self.inputs.items()}

    def outputs(self) -> dict[str, Floats]:
        """New memory for the outputs."""
        found = torch_eager(self)()
        return {name: np.full_like(value, np.nan) for name, value in found.items()}


def case_of(network: Network) -> Case:
    """Random weights and inputs."""
    torch.manual_seed(0)
    module = network.module().eval()
    return Case(network, module, {name: torch.randn(shape) for name, shape in network.inputs.items()})


def aicf_bound(case: Case) -> Run:
    """AICF on bound inputs and outputs."""
    exe = aicf.compile(case.network.build(), case.weights, "cpu")
    outputs = case.outputs()
    replay = exe.bind(**case.arrays, **outputs).replay

    def run() -> Mapping[str, Floats]:
        replay()
        return outputs

    return run


def exported(case: Case) -> bytes:
    """The network as an ONNX model."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            case.module,
            tuple(case.inputs.values()),
            path,
            dynamo=True,
            verbose=False,
            external_data=False,
            input_names=list(case.inputs),
            output_names=list(case.network.outputs),
        )
        return path.read_bytes()


def onnx_runtime(case: Case) -> Run:
    """ONNX Runtime with every optimisation, on bound inputs and outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(exported(case), options, ["CPUExecutionProvider"])
    binding, outputs = session.io_binding(), case.outputs()
    for arrays, bind in ((case.arrays, binding.bind_input), (outputs, binding.bind_output)):
        for name, array in arrays.items():
            bind(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)

    def run() -> Mapping[str, Floats]:
        session.run_with_iobinding(binding)
        return outputs

    return run


def open_vino(case: Case) -> Run:
    """OpenVINO for latency, in f32, on one thread."""
    core = openvino.Core()
    options = {
        "INFERENCE_NUM_THREADS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    model = core.compile_model(core.read_model(io.BytesIO(exported(case))), "CPU", options)
    request, outputs = model.create_infer_request(), case.outputs()
    for arrays in (case.arrays, outputs):
        for name, array in arrays.items():
            request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def run() -> Mapping[str, Floats]:
        request.infer()
        return outputs

    return run


def _of_torch(case: Case, module: Callable[..., object]) -> Run:
    values = tuple(case.inputs.values())

    def run() -> Mapping[str, Floats]:
        with torch.inference_mode():
            found = module(*values)
        results = found if isinstance(found, tuple) else (found,)
        return {name: value.numpy() for name, value in zip(case.network.outputs, results, strict=True)}

    return run


def torch_eager(case: Case) -> Run:
    """PyTorch, op by op."""
    return _of_torch(case, case.module)


def torch_compile(case: Case) -> Run:
    """PyTorch's compiler for the CPU, tuned for speed."""
    torch.compiler.reset()
    return _of_torch(case, torch.compile(case.module, mode="max-autotune"))


def numpy(case: Case) -> Run:
    """NumPy, for reference."""
    weights, values = case.weights, tuple(case.arrays.values())

    def run() -> Mapping[str, Floats]:
        return dict(zip(case.network.outputs, case.network.numpy(weights, *values), strict=True))

    return run


PEERS: Mapping[str, Callable[[Case], Run]] = {
    "onnxruntime": onnx_runtime,
    "openvino": open_vino,
    "torch_eager": torch_eager,
    "torch_compile": torch_compile,
}
"""What AICF is measured against."""
