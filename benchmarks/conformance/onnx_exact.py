"""The outputs of a case in f64, by onnx's reference: what differs from a case by no more than the rounding of both is
noise.

Some references are computed in f16, or by an f32 transform whose results should be 0, and no other rounding is within
the tolerance of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_cases import OnnxCase

_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}


def is_noise(case: OnnxCase, found: Sequence[Any]) -> bool:
    """Whether every output is at most twice as far from that in f64 as the reference is."""
    try:
        exact = exact_outputs(case)
    except Exception:  # the reference has no f64 of some ops, or none of the model as it was changed
        return False
    return all(
        value.shape == wanted.shape
        and value.dtype == wanted.dtype
        and _distance(value, true) <= 2 * _distance(wanted, true)
        for value, wanted, true in zip(found, case.outputs, exact, strict=True)
    )


def _distance(value: np.ndarray, true: np.ndarray) -> float:
    return float(np.abs(value.astype(np.float64) - true.astype(np.float64)).max(initial=0.0))


def exact_outputs(case: OnnxCase) -> list[np.ndarray]:
    """The outputs of the model with f64 in the place of f32, f16 and bf16."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    _widen(model.graph)
    feeds = {
        name: value if value is None or value.dtype.kind in "iub" else value.astype(np.float64)
        for name, value in case.feeds().items()
    }
    return [np.asarray(value) for value in ReferenceEvaluator(model).run(None, feeds)]


def _widen(graph: GraphProto) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in _FLOATS:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        if attribute.type == AttributeProto.TENSOR:
            _widen_tensor(attribute.t)
        elif attribute.type == AttributeProto.GRAPH:
            _widen(attribute.g)
        elif attribute.name in ("to", "dtype") and attribute.i in _FLOATS:
            attribute.i = TensorProto.DOUBLE


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _FLOATS:
        wide = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
