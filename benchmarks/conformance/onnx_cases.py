"""The test cases that the `onnx` package brings: models of one node or a few, and light ones of known networks, each
with inputs and the outputs that the reference gives.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
"""What the package has the data of."""

CORE_OPSET = 27
_CORE_TYPES = {TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL}
_CONTROL_FLOW = {"If", "Loop", "Scan"}
_RANDOM = re.compile("test_(bernoulli|training_dropout)")
_PACKAGE = Path(onnx.__file__).parents[1]


@dataclass(frozen=True)
class OnnxCase:
    """One model with its data.

    Attributes:
        op: What is tested: an op type, after its domain if that is not the default one; the name of the network
            for light models.
        expanded: Whether the op is given by the body of its function.
        inputs, outputs: In order of the graph; an array, a list of arrays (sequence), or None (empty optional).
    """

    name: str
    kind: str
    op: str
    expanded: bool
    model: ModelProto
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float

    @cached_property
    def is_core(self) -> bool:
        """Whether it is a node test of f32, i32, i64 and bool tensors alone, in the default domain, without control
        flow, up to the opset that all rivals know."""
        model = self.model
        return (
            self.kind == "node"
            and all(opset.domain == "" and opset.version <= CORE_OPSET for opset in model.opset_import)
            and all(_is_core_type(value.type) for value in (*model.graph.input, *model.graph.output))
            and not any(node.op_type in _CONTROL_FLOW for node in _nodes(model.graph))
        )

    @property
    def is_random(self) -> bool:
        """Whether the outputs are numbers that the reference drew, and that no definition prescribes."""
        return _RANDOM.match(self.name) is not None

    def feeds(self) -> dict[str, Any]:
        """The inputs by name."""
        initialized = {value.name for value in self.model.graph.initializer}
        names = [value.name for value in self.model.graph.input]
        if len(names) != len(self.inputs):
            names = [name for name in names if name not in initialized]
        return dict(zip(names, self.inputs, strict=True))


def load_cases(kinds: tuple[str, ...] = KINDS) -> list[OnnxCase]:
    """All cases of these kinds, by name within each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reference computes infinities and NaNs on purpose
        return [case for kind in kinds for case in sorted(_OF_KIND[kind](kind), key=lambda case: case.name)]


def _node_cases(kind: str) -> Iterator[OnnxCase]:
    found = {case.name: case for case in load_model_tests(kind=kind)}
    for name, case in found.items():
        base = name.partition("_expanded")[0]
        tested = found.get(base, case)
        assert case.model is not None and tested.model is not None and case.data_sets is not None
        for inputs, outputs in case.data_sets:
            yield _case(case, _tested_op(tested.model), base != name, case.model, inputs, outputs)


def _tested_op(model: ModelProto) -> str:
    """The op of the only node, else of the last one."""
    node = model.graph.node[-1]
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _stored_cases(kind: str) -> Iterator[OnnxCase]:
    """Those that lie in folders, with inputs and outputs in files."""
    for case in load_model_tests(kind=kind):
        folder = Path(str(case.model_dir))
        model = onnx.load(folder / "model.onnx")
        for data in sorted(folder.glob("test_data_set_*")):
            inputs = _read_values(data, "input", [value.type for value in model.graph.input])
            outputs = _read_values(data, "output", [value.type for value in model.graph.output])
            yield _case(case, _tested_op(model), False, model, inputs, outputs)


def _read_values(folder: Path, role: str, types: list[onnx.TypeProto]) -> list[Any]:
    files = sorted(folder.glob(f"{role}_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))
    return [_read_value(path, type_) for path, type_ in zip(files, types, strict=False)]


def _read_value(path: Path, type_: onnx.TypeProto) -> Any:
    if type_.HasField("sequence_type"):
        sequence = onnx.SequenceProto.FromString(path.read_bytes())
        return numpy_helper.to_list(sequence)
    return numpy_helper.to_array(TensorProto.FromString(path.read_bytes()))


def _light_cases(kind: str) -> Iterator[OnnxCase]:
    """Known networks whose weights are made by nodes, on a ramp from 0 to 1, as onnx's own runner feeds them."""
    for case in load_model_tests(kind="real"):
        path = _PACKAGE / str(case.url)
        model = onnx.load(path)
        initialized = {value.name for value in model.graph.initializer}
        inputs = [_ramp(value) for value in model.graph.input if value.name not in initialized]
        files = [path.with_name(f"{path.stem}_output_{index}.pb") for index in range(len(model.graph.output))]
        outputs = [numpy_helper.to_array(TensorProto.FromString(file.read_bytes())) for file in files]
        yield _case(case, case.model_name, False, model, inputs, outputs, kind)


def _ramp(value: onnx.ValueInfoProto) -> np.ndarray:
    shape = [dim.dim_value if dim.HasField("dim_value") else 1 for dim in value.type.tensor_type.shape.dim]
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


_OF_KIND = {
    "node": _node_cases,
    "simple": _stored_cases,
    "pytorch-converted": _stored_cases,
    "pytorch-operator": _stored_cases,
    "light": _light_cases,
}


def _case(
    case: TestCase,
    op: str,
    expanded: bool,
    model: ModelProto,
    inputs: Any,
    outputs: Any,
    kind: str | None = None,
) -> OnnxCase:
    values = tuple(map(_value, inputs)), tuple(map(_value, outputs))
    return OnnxCase(case.name, kind or case.kind, op, expanded, model, *values, case.rtol, case.atol)


def _value(value: Any) -> Any:
    """Some data are protobufs, others Python numbers."""
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    return value if value is None else np.asarray(value)


def _is_core_type(type_: onnx.TypeProto) -> bool:
    return type_.HasField("tensor_type") and type_.tensor_type.elem_type in _CORE_TYPES


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Those of inner graphs too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def counts_by_kind(cases: list[OnnxCase]) -> Mapping[str, int]:
    """How many cases each kind has."""
    return {kind: sum(case.kind == kind for case in cases) for kind in dict.fromkeys(c.kind for c in cases)}
