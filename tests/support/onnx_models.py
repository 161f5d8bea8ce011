"""ONNX models of one node, run by AICF and by the reference implementation of package onnx.

For the tests of rows of the op map: `expect("Gemm", [a, b, c], alpha=0.5)` compiles the node for `cpu`. It compares the
outputs of the program, and those of the primitive ops that it was made of, which the interpreter runs. Values are the
caller's: random, and away from where a rounding decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

import aicf
from aicf.backends.reference.interpreter import run_module

Array = NDArray[Any]
OPSET = 21
TARGETS = ("lowered", "cpu")
"""Of which `lowered` are the primitive ops of the program for another target."""


def one_node(
    op_type: str,
    inputs: Sequence[Array | None],
    outputs: int = 1,
    *,
    known: Sequence[int] = (),
    opset: int = OPSET,
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node called `node`, with outputs `y0`, `y1` and so on.

    Args:
        inputs: Samples of its operands, whose types the inputs `x0`, `x1` get; None for an absent one.
        outputs: How many it has.
        known: Which operands are initializers of these values instead of inputs.
        opset: Of the node's domain.
    """
    names = [None if value is None else f"x{index}" for index, value in enumerate(inputs)]
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(
        op_type, [name or "" for name in names], results, name="node", domain=domain, **attributes
    )
    graph = helper.make_graph(
        [node],
        "one_node",
        [_info(f"x{i}", v) for i, v in enumerate(inputs) if v is not None and i not in known],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(v, f"x{i}") for i, v in enumerate(inputs) if v is not None and i in known],
    )
    imports = [helper.make_opsetid("", opset if not domain else OPSET)]
    if domain:
        imports.append(helper.make_opsetid(domain, opset))
    return helper.make_model(graph, opset_imports=imports)


def feeds(inputs: Sequence[Array | None], known: Sequence[int] = ()) -> dict[str, Array]:
    """What a run of `one_node` is given."""
    return {f"x{i}": v for i, v in enumerate(inputs) if v is not None and i not in known}


def expect(
    op_type: str,
    inputs: Sequence[Array | None],
    outputs: int = 1,
    *,
    known: Sequence[int] = (),
    opset: int = OPSET,
    domain: str = "",
    expected: Sequence[Array] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    targets: Sequence[str] = TARGETS,
    **attributes: Any,
) -> None:
    """Holds a node on each target to the reference implementation, or to `expected`.

    Shapes and dtypes must be equal, and elements within `atol + rtol * expected`; NaN equals NaN.
    """
    model = one_node(op_type, inputs, outputs, known=known, opset=opset, domain=domain, **attributes)
    expect_model(model, feeds(inputs, known), expected, rtol=rtol, atol=atol, targets=targets)


def expect_known(op_type: str, inputs: Sequence[Array | None], outputs: int = 1, **options: Any) -> None:
    """As `expect`, with all operands initializers, so that small ones are evaluated while the graph is lowered."""
    expect(op_type, inputs, outputs, known=range(len(inputs)), **options)


def expect_model(
    model: onnx.ModelProto,
    given: dict[str, Array],
    expected: Sequence[Array] | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    targets: Sequence[str] = TARGETS,
    **options: Any,
) -> None:
    """Holds a model on each target to the reference implementation, or to `expected`; `options` are for `compile`."""
    if expected is None:
        expected = ReferenceEvaluator(model).run(None, given)
    names = [output.name for output in model.graph.output]
    for target, results in _results(model, given, names, targets, options):
        for name, result, wanted in zip(names, results, expected, strict=True):
            wanted = np.asarray(wanted)
            assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape), f"{name} on {target}"
            np.testing.assert_allclose(
                result.astype(np.float64) if result.dtype.kind == "V" else result,
                wanted.astype(np.float64) if wanted.dtype.kind == "V" else wanted,
                rtol,
                atol,
                err_msg=f"{name} on {target}",
            )


def _results(
    model: onnx.ModelProto,
    given: dict[str, Array],
    names: Sequence[str],
    targets: Sequence[str],
    options: Mapping[str, Any],
) -> Iterator[tuple[str, Sequence[Array]]]:
    """Each target, with the outputs `names` of the model on it."""
    for target in targets:
        if target == "lowered":
            continue
        lowered = _Lowered()
        compiled = aicf.compile(model, target=target, passes=[aicf.at("lowered", lowered)], **options)
        found = compiled(given)
        yield target, found if isinstance(found, tuple) else (found,)
        if "lowered" in targets:
            weights = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
            outputs = run_module(lowered.modules[0], {**weights, **given}, "typed").outputs
            yield "lowered", [outputs[name] for name in names]


class _Lowered(ModulePass):
    """Keeps the primitive ops that a program is made of."""

    name = "keep-lowered"

    def __init__(self) -> None:
        self.modules: list[ModuleOp] = []

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.modules.append(op.clone())


Use: TypeAlias = tuple[str, Sequence[int | None], Mapping[str, Any]]
"""A node of a model of several: its op type, which inputs of the model its operands are, and its attributes."""


def expect_all(
    uses: Sequence[Use],
    inputs: Sequence[Array],
    *,
    known: Sequence[int] = (),
    opset: int = OPSET,
    **options: Any,
) -> None:
    """As `expect`, of several nodes with one output each in one model: one compilation for all of them."""
    nodes = [
        helper.make_node(
            op_type,
            ["" if at is None else f"x{at}" for at in operands],
            [f"y{number}"],
            f"node{number}",
            **attributes,
        )
        for number, (op_type, operands, attributes) in enumerate(uses)
    ]
    outputs = [helper.make_empty_tensor_value_info(f"y{number}") for number in range(len(nodes))]
    graph = helper.make_graph(
        nodes,
        "several_nodes",
        [_info(f"x{i}", v) for i, v in enumerate(inputs) if i not in known],
        outputs,
        [numpy_helper.from_array(v, f"x{i}") for i, v in enumerate(inputs) if i in known],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    expect_model(model, feeds(inputs, known), **options)


def _info(name: str, value: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
