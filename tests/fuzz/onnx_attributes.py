"""ONNX nodes with one huge attribute, small operand or dimension at a time: each compiles, or is refused, in time.

    python -m tests.fuzz.onnx_attributes [--ops RoiAlign ...] [--sample 0.3] [--run]

The nodes are those of ONNX's own backend tests, a few of each op; which attributes there are is the op's schema. A
trial compiles for `cpu`; what takes longer than `SECONDS`, takes all memory or raises what is no AicfError is shown.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

import aicf
from aicf.passes.onnx.ops.base import ROWS
from tests.fuzz.isolation import Limits, Outcome, Verdict, isolated, report

Array = NDArray[Any]

HUGE_INTS = (100_000, 1 << 20, 1 << 40, -(1 << 40))
HUGE_FLOATS = (1e6, 1e-6, -1e30)
SMALL = 16
"""Operands of up to so many elements may be sizes, and are made huge one element at a time."""
MAX_NODES_OF_OP = 2
MAX_RUN_ELEMENTS = 1 << 22
SECONDS = 25.0


@dataclass(frozen=True)
class Sample:
    """A node of a backend test, with the arrays it is given."""

    name: str
    model: onnx.ModelProto
    given: Sequence[Array]

    @property
    def node(self) -> onnx.NodeProto:
        return self.model.graph.node[0]


@dataclass(frozen=True)
class AliasCandidate:
    """A model with one huge number."""

    what: str
    model: onnx.ModelProto


def samples(wanted: Sequence[str]) -> Iterator[Sample]:
    """A few nodes of each op of the op map: no two with the same attributes and operands."""
    seen: dict[str, set[object]] = defaultdict(set)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in sorted(cases, key=lambda case: case.model.ByteSize() if case.model else 0):
        if case.model is None or len(case.model.graph.node) != 1 or not case.data_sets:
            continue
        node = case.model.graph.node[0]
        given = case.data_sets[0][0]
        key = (tuple(sorted(each.name for each in node.attribute)), tuple(map(bool, node.input)))
        of_op = seen[f"{node.domain}.{node.op_type}"]
        arrays = all(isinstance(value, np.ndarray) for value in given)
        if (wanted and node.op_type not in wanted) or (node.domain, node.op_type) not in ROWS:
            continue
        if key in of_op or len(of_op) >= MAX_NODES_OF_OP:
            continue
        if arrays and len(given) == len(case.model.graph.input):
            of_op.add(key)
            yield Sample(case.name, case.model, given)


def trials(sample: Sample) -> Iterator[AliasCandidate]:
    """The node with each attribute, each element of a small operand and each dimension huge."""
    for known in (False, True):
        yield from _of_attributes(sample, known)
    yield from _of_operands(sample)
    yield from _of_dimensions(sample)


def _of_attributes(sample: Sample, known: bool) -> Iterator[AliasCandidate]:
    schema = onnx.defs.get_schema(sample.node.op_type, _opset(sample.model), sample.node.domain)
    present = {each.name: each for each in sample.node.attribute}
    for name, attribute in schema.attributes.items():
        kind = int(attribute.type)
        for value in _huge_values(kind, present.get(name)):
            model = _model(sample, range(len(sample.given)) if known else _sizes(sample))
            node = model.graph.node[0]
            kept = [each for each in node.attribute if each.name != name]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute(name, value, attr_type=kind)])
            yield AliasCandidate(f"{sample.name} {name}={_short(value)} {'known' if known else ''}", model)


def _huge_values(kind: int, present: AttributeProto | None) -> Iterator[Any]:
    if kind == AttributeProto.INT:
        yield from HUGE_INTS
    elif kind == AttributeProto.FLOAT:
        yield from HUGE_FLOATS
    elif kind in (AttributeProto.INTS, AttributeProto.FLOATS):
        huge = HUGE_INTS if kind == AttributeProto.INTS else HUGE_FLOATS
        own = list(helper.get_attribute_value(present)) if present is not None else []
        for value in huge:
            for count in {len(own)} if own else {1, 2, 4}:
                yield [value] * count
            for index in range(min(len(own), 4)):
                yield [*own[:index], value, *own[index + 1 :]]
        yield (own or [1]) * 100_000


def _of_operands(sample: Sample) -> Iterator[AliasCandidate]:
    for number, array in enumerate(sample.given):
        if array.size > SMALL or array.dtype.kind not in "iuf":
            continue
        huge = HUGE_INTS if array.dtype.kind in "iu" else HUGE_FLOATS
        for value in (x for x in huge if _fits(x, array.dtype)):
            for index in range(array.size) if array.size <= 4 else (0, array.size - 1):
                changed = array.copy()
                changed.reshape(-1)[index] = value
                yield _with_operand(sample, number, changed, f"[{index}]={value}")
            yield _with_operand(sample, number, np.full_like(array, value), f"={value}")
        if array.ndim == 1 and array.size:
            yield _with_operand(sample, number, np.resize(array, 100_000), " repeated")


def _fits(value: float, dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or (
        isinstance(value, int) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    )


def _with_operand(sample: Sample, number: int, array: Array, told: str) -> AliasCandidate:
    given = [*sample.given]
    given[number] = array
    other = Sample(sample.name, sample.model, given)
    return AliasCandidate(f"{sample.name} operand {number}{told}", _model(other, {*_sizes(sample), number}))


def _of_dimensions(sample: Sample) -> Iterator[AliasCandidate]:
    """Inputs with a huge dimension, alone, and together with all dimensions of the same size."""
    for number, array in enumerate(sample.given):
        for axis, size in enumerate(array.shape):
            for huge in (100_000, 1 << 24):
                model = _model(sample, _sizes(sample))
                alone = next((x for x in model.graph.input if x.name == _input(sample, number)), None)
                if alone is None:
                    continue
                alone.type.tensor_type.shape.dim[axis].dim_value = huge
                yield AliasCandidate(f"{sample.name} input {number} axis {axis} of {huge}", model)
                model = _model(sample, _sizes(sample))
                for value in model.graph.input:
                    for dim in value.type.tensor_type.shape.dim:
                        dim.dim_value = huge if dim.dim_value == size else dim.dim_value
                yield AliasCandidate(f"{sample.name} all of size {size} of {huge}", model)


def _sizes(sample: Sample) -> set[int]:
    """Operands that are sizes, axes and the like: small whole numbers."""
    return {n for n, x in enumerate(sample.given) if x.dtype == np.int64 and x.size <= SMALL}


def _model(sample: Sample, known: Sequence[int] | set[int]) -> onnx.ModelProto:
    """The node alone, some of its operands initializers; no output has a shape."""
    graph = helper.make_graph(
        list(sample.model.graph.node),
        "huge",
        [_info(value, sample.given[n]) for n, value in enumerate(sample.model.graph.input) if n not in known],
        [helper.make_empty_tensor_value_info(value.name) for value in sample.model.graph.output],
        [
            numpy_helper.from_array(np.ascontiguousarray(array), _input(sample, n))
            for n, array in enumerate(sample.given)
            if n in known
        ],
    )
    return helper.make_model(graph, opset_imports=sample.model.opset_import, ir_version=10)


def _info(value: onnx.ValueInfoProto, array: Array) -> onnx.ValueInfoProto:
    kind = value.type.tensor_type.elem_type
    return helper.make_tensor_value_info(value.name, kind, list(array.shape))


def _input(sample: Sample, number: int) -> str:
    return sample.model.graph.input[number].name


def _opset(model: onnx.ModelProto) -> int:
    domain = model.graph.node[0].domain
    return next(each.version for each in model.opset_import if each.domain == domain)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < 60 else f"{text[:60]}..."


def tried(trial: AliasCandidate, run: bool) -> Verdict:
    """Compiles, and runs where that is asked for; the stack goes to standard error shortly before the time is up."""
    faulthandler.dump_traceback_later(SECONDS - 2, exit=False)
    try:
        exe = aicf.compile(trial.model, target="reference" if run else "cpu")
        if run:
            _run(exe)
    except aicf.AicfError as error:
        text = str(error)
        one_line = text.isprintable() and len(text) < 1200
        return (
            Verdict("refused", text) if one_line else Verdict("long message", f"{trial.what}: {text[:500]}")
        )
    finally:
        faulthandler.cancel_dump_traceback_later()
    return Verdict("compiled")


def _run(exe: aicf.Executable) -> None:
    sizes = [int(np.prod([int(n) for n in each.shape])) for each in (*exe.inputs, *exe.outputs)]
    if sum(sizes) <= MAX_RUN_ELEMENTS:
        exe.run({each.name: np.ones([int(n) for n in each.shape], each.dtype) for each in exe.inputs})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ops", nargs="*", default=[], help="only these")
    parser.add_argument("--run", action="store_true", help="compile for `reference`, and run what is small")
    parser.add_argument("--sample", type=float, default=1.0, help="which share of the trials, 0 to 1")
    given = parser.parse_args()
    found = [
        trial
        for sample in samples(given.ops)
        for trial in trials(sample)
        if random.Random(trial.what).random() < given.sample
    ]

    def outcomes() -> Iterator[Outcome]:
        limits = Limits(SECONDS)
        for outcome in isolated(lambda number: tried(found[number], given.run), range(len(found)), limits):
            yield replace(outcome, detail=f"{found[outcome.seed].what}\n{outcome.detail}")

    return report(outcomes(), {"refused", "compiled"})


if __name__ == "__main__":
    raise SystemExit(main())
