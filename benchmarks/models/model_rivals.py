"""Runs an ONNX model by AICF, ONNX Runtime and OpenVINO, each on one thread and on memory that it was given before."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping

import numpy as np
from timed_models import TimedModel

Run = Callable[[], Mapping[str, np.ndarray]]
"""One run; gives the outputs by name."""


def aicf_bound(timed: TimedModel) -> Run:
    """AICF on bound inputs and outputs."""
    import aicf

    exe = aicf.compile(timed.model, target="cpu", **timed.options())
    feeds = {spec.name: np.array(timed.feeds[spec.name]) for spec in exe.inputs}
    outputs = {name: np.full_like(value, 0) for name, value in exe.run(feeds).items()}
    replay = exe.bind({**feeds, **outputs}).replay

    def run() -> Mapping[str, np.ndarray]:
        replay()
        return outputs

    return run


def onnx_runtime(timed: TimedModel) -> Run:
    """ONNX Runtime with every optimisation, on bound inputs and outputs."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(timed.model, options, providers=["CPUExecutionProvider"])
    feeds = {name: np.array(value) for name, value in timed.feeds.items()}
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, feeds), strict=True))
    binding = session.io_binding()
    for arrays, bind in ((feeds, binding.bind_input), (outputs, binding.bind_output)):
        for name, array in arrays.items():
            bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def run(keep: object = feeds) -> Mapping[str, np.ndarray]:
        session.run_with_iobinding(binding)
        return outputs

    return run


def open_vino(timed: TimedModel) -> Run:
    """OpenVINO for latency, in f32, with the shapes fixed."""
    import openvino

    core = openvino.Core()
    model = core.read_model(io.BytesIO(timed.model))
    model.reshape({name: list(value.shape) for name, value in timed.feeds.items()})
    options = {
        "INFERENCE_NUM_THREADS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(model, "CPU", options).create_infer_request()
    feeds = {name: np.array(value) for name, value in timed.feeds.items()}
    for name, value in feeds.items():
        request.set_tensor(name, openvino.Tensor(value))

    def run(keep: object = feeds) -> Mapping[str, np.ndarray]:
        request.infer()
        return {port.get_any_name(): request.get_tensor(port).data for port in request.model_outputs}

    return run


RIVALS: Mapping[str, Callable[[TimedModel], Run]] = {
    "aicf": aicf_bound,
    "onnxruntime": onnx_runtime,
    "openvino": open_vino,
}
