"""Runs one case by AICF, ONNX Runtime or OpenVINO. Each imports its package when it first runs, in a worker.

A runner gives the outputs in order, and raises `Unsupported` where the rival says that it does not run the model.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx_cases import OnnxCase

MAX_BOUND = 16
"""More inputs than any case has values to bind of."""


class Unsupported(Exception):
    """The rival refuses the model, in one line."""


@dataclass(frozen=True)
class Ran:
    """The outputs of a case, and the inputs whose values were bound when it was compiled."""

    outputs: list[Any]
    bound: tuple[str, ...] = ()


def aicf(case: OnnxCase) -> Ran:
    """Compiles for `cpu`, with nodes in the mode that they state, and runs once. Values are bound only of inputs that
    an error asks them of. Of outputs whose number of rows follows from the data those rows are compared that are there,
    as a session hands them out."""
    import aicf
    from aicf.errors import AicfError
    from aicf.inference.counting import Counts

    feeds = case.feeds()
    bound: dict[str, Any] = {}
    for _ in range(MAX_BOUND):
        try:
            model = case.model.SerializeToString()
            exe = aicf.compile(model, dims=_dims(case), values=dict(bound), training=True)
            found = exe.run({spec.name: np.asarray(feeds[spec.name]) for spec in exe.inputs})
        except AicfError as error:
            missing = [name for name in _values_needed(str(error), case) if name not in bound]
            if not missing:
                raise _refusal(error) from error
            bound.update({name: feeds[name] for name in missing})
            continue
        found = Counts.read(exe.plan.programs[0].graph).taken(found, ())
        return Ran([found[output.name] for output in case.model.graph.output], tuple(bound))
    raise AssertionError("every round binds another input")


def _refusal(error: Exception) -> Exception:
    """An error that a pass did not foresee is told in one line too; it refuses nothing."""
    unforeseen = re.match(r"pass '.*' failed: ", str(error))
    return RuntimeError(str(error)) if unforeseen else Unsupported(str(error))


def _values_needed(message: str, case: OnnxCase) -> list[str]:
    """The inputs whose values an error asks for, by name."""
    return [name for name in case.feeds() if f"values={{'{name}'" in message]


def _dims(case: OnnxCase) -> dict[str, int]:
    """Sizes of the symbolic dims of inputs, from the data; the importer calls an anonymous one `input_axis`."""
    sizes: dict[str, int] = {}
    types = {value.name: value.type for value in case.model.graph.input}
    for name, value in case.feeds().items():
        if not isinstance(value, np.ndarray):
            continue
        for axis, dim in enumerate(types[name].tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                sizes[dim.dim_param or f"{name}_{axis}"] = value.shape[axis]
    return sizes


def onnx_runtime(case: OnnxCase) -> Ran:
    """On its CPU provider, on one thread."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return Ran(session.run(None, case.feeds()))
    except Exception as error:
        raise Unsupported(_line(error)) from error


def open_vino(case: OnnxCase) -> Ran:
    """On its CPU plug-in, in the precision of the model, on one thread."""
    import openvino

    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    try:
        model = core.compile_model(
            core.read_model(io.BytesIO(case.model.SerializeToString())), "CPU", options
        )
        feeds = list(case.feeds().values())
        found = model(dict(enumerate(feeds)))
        return Ran([found[index] for index in range(len(model.outputs))])
    except Exception as error:
        raise Unsupported(_line(error)) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


RUNNERS: dict[str, Callable[[OnnxCase], Ran]] = {
    "aicf": aicf,
    "onnxruntime": onnx_runtime,
    "openvino": open_vino,
}
