"""Methods of the builder that are derived from the ops: which there are, their stub, and what constructors fill in."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable

import numpy as np
import pytest

from aicf.dialects import logical
from aicf.dialects.logical import Internal, LogicalOp
from aicf.errors import InvalidIR
from aicf.frontends.builder import Graph, Value
from aicf.frontends.builder.constructors import BY_HAND, constructors
from aicf.frontends.builder.derived import DerivedOps
from aicf.tools.builder_stub import STUB
from tests.support.random_graphs import run_program

OPS = [op for op in logical.Logical.operations if issubclass(op, LogicalOp)]


@pytest.mark.new_op
@pytest.mark.parametrize("op_class", OPS, ids=lambda op_class: op_class.name)
def test_an_op_has_a_method_unless_only_passes_make_it(op_class: type[LogicalOp]) -> None:
    name = op_class.name.removeprefix("logical.")
    method = getattr(Graph, name, getattr(Graph, f"{name}_", None))
    assert (method is None) is op_class.has_trait(Internal)
    if method is not None and op_class not in BY_HAND:
        assert inspect.getdoc(method) == inspect.getdoc(op_class)


def test_what_is_written_by_hand_is_not_derived() -> None:
    names = [op_class.name.removeprefix("logical.") for op_class in BY_HAND]
    assert all(callable(getattr(Graph, name)) for name in names)
    assert not set(names) & set(vars(DerivedOps)) and all(BY_HAND.values())


def _stub_methods() -> dict[str, ast.FunctionDef]:
    (definition,) = (
        node for node in ast.parse(STUB.read_text("utf-8")).body if isinstance(node, ast.ClassDef)
    )
    return {node.name: node for node in definition.body if isinstance(node, ast.FunctionDef)}


def test_the_stub_has_every_method_with_its_signature() -> None:
    """Read by Python, and compared with what the methods say themselves."""
    stub = _stub_methods()
    assert sorted(stub) == sorted(constructor.method for constructor in constructors())
    for name, node in stub.items():
        scope: dict[str, Callable[..., object]] = {}
        node.body = [ast.Pass()]
        text = ast.unparse(ast.Module([node], []))
        exec(f"from __future__ import annotations\n{text}", scope)
        assert inspect.signature(scope[name]) == inspect.signature(getattr(Graph, name))


def _graph(*shape: int) -> tuple[Graph, Value, np.ndarray]:
    graph = Graph("g")
    array = np.random.default_rng(len(shape)).normal(size=shape)
    return graph, graph.input("x", shape, "f64"), array


NEGATIVE: dict[str, tuple[Callable[[Graph, Value], Value], Callable[[np.ndarray], np.ndarray]]] = {
    "reduce_sum": (lambda g, x: g.reduce_sum(x, [-1, -3]), lambda a: a.sum((0, 2))),
    "argmax": (lambda g, x: g.argmax(x, -2, keepdims=True), lambda a: a.argmax(1, keepdims=True)),
    "argmin": (lambda g, x: g.argmin(x), lambda a: a.argmin(2)),
    "cumsum": (lambda g, x: g.cumsum(x, -3), lambda a: a.cumsum(0)),
    "flip": (lambda g, x: g.flip(x, [-1, -2]), lambda a: a[:, ::-1, ::-1]),
    "concat": (lambda g, x: g.concat([x, x], -2), lambda a: np.concatenate([a, a], 1)),
    "gather": (lambda g, x: g.gather(x, g.constant([1, 0], (2,), "i64"), -1), lambda a: a[..., [1, 0]]),
    "gather_elements": (
        lambda g, x: g.gather_elements(x, g.topk_indices(x, -1, 2), -1),
        lambda a: -np.sort(-a)[..., :2],
    ),
    "softmax": (lambda g, x: g.softmax(x), lambda a: np.exp(a) / np.exp(a).sum(2, keepdims=True)),
    "log_softmax": (
        lambda g, x: g.log_softmax(x, -2),
        lambda a: a - np.log(np.exp(a).sum(1, keepdims=True)),
    ),
    "rms_norm": (
        lambda g, x: g.rms_norm(x, g.constant(1.0, (3, 4), "f64"), -2, 1e-9),
        lambda a: a / np.sqrt((a * a).mean((1, 2), keepdims=True) + 1e-9),
    ),
    "scatter_elements": (
        lambda g, x: g.scatter_elements(
            x, g.constant(2, (2, 3, 1), "i64"), g.constant(7.0, (2, 3, 1), "f64"), -1
        ),
        lambda a: np.where(np.arange(4) == 2, 7.0, a),
    ),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_a_negative_axis_counts_from_the_last(name: str) -> None:
    build, expected = NEGATIVE[name]
    graph, x, array = _graph(2, 3, 4)
    graph.output(build(graph, x), "y")
    np.testing.assert_allclose(
        run_program(graph.module(), {"x": array})["y"], expected(array), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("axis", [2, -3, 7])
def test_an_axis_out_of_range_is_named_as_given(axis: int) -> None:
    graph, x, _ = _graph(2, 3)
    with pytest.raises(InvalidIR, match=rf"softmax: axis {axis} is out of range for rank 2; write 0 to 1"):
        graph.softmax(x, axis)


def test_a_convolution_has_the_defaults_of_its_constructor() -> None:
    """Stride 1, no padding, and `high` as `low`."""
    graph, x, array = _graph(1, 2, 5)
    weight = graph.constant(1.0, (3, 2, 2), "f64")
    graph.output(graph.conv(x, weight), "y")
    graph.output(graph.conv(x, weight, low=[1]), "z")
    pairs = array.sum(1)
    padded = np.pad(pairs, ((0, 0), (1, 1)))
    done = run_program(graph.module(), {"x": array})
    for name, rows in (("y", pairs), ("z", padded)):
        sums = rows[:, None, :-1] + rows[:, None, 1:]
        np.testing.assert_allclose(done[name], np.repeat(sums, 3, 1), rtol=1e-12)


def test_the_classes_are_along_dimension_1_or_0_of_one_sample() -> None:
    graph = Graph("g")
    several = graph.cross_entropy(graph.input("x", (4, 3)), graph.input("labels", (4,), "i64"))
    one = graph.cross_entropy(graph.input("row", (3,)), graph.input("label", (), "i64"))
    found = [value.ssa.owner for value in (several, one)]
    assert [op.axis.value.data for op in found if isinstance(op, logical.CrossEntropyOp)] == [1, 0]


def test_adamw_decays_by_default_as_that_of_pytorch() -> None:
    graph = Graph("g")
    w, gradient, mean, square = (graph.input(name, (2,)) for name in ("w", "g", "m", "v"))
    rate, step = graph.input("rate", ()), graph.input("step", (), "i64")
    new = [method(w, gradient, rate, step, [mean, square]) for method in (graph.adam, graph.adamw)]
    ops = [parameter.ssa.owner for parameter, _, _ in new]
    decays = [op.weight_decay.value.data for op in ops if isinstance(op, logical.AdamOp | logical.AdamwOp)]
    assert decays == [0.0, 0.01]


def test_wrong_arguments_are_told_with_the_method() -> None:
    graph, x, _ = _graph(2, 3)
    with pytest.raises(TypeError, match=r"^relu: missing a required argument: 'x'$"):
        graph.relu()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^relu: got an unexpected keyword argument 'slope'$"):
        graph.relu(x, slope=1.0)  # type: ignore[call-arg]
    with pytest.raises(InvalidIR, match=r"elu: alpha is 'a'; it is a number$"):
        graph.elu(x, "a")  # type: ignore[arg-type]
    with pytest.raises(InvalidIR, match=r"gelu: approximate is 3; it is a string$"):
        graph.gelu(x, 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidIR, match=r'gelu: approximate is "erf"; use one of "none", "tanh"$'):
        graph.gelu(x, "erf")  # type: ignore[arg-type]
