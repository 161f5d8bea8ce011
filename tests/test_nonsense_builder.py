"""Whatever stands where a method of the builder wants something else: an AicfError of one line, as in `test_nonsense`.

The table follows from the signatures: each argument of each public method is tried, with the others legal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from xdsl.dialects.func import FuncOp

from aicf import custom_op
from aicf.frontends.builder import Graph, Value
from aicf.testing import temporary_definitions
from tests.test_nonsense import ALSO, SOME, VALUES, problem_of

Make = Callable[[Graph], object]


def _input(shape: tuple[int, ...], dtype: str = "f32") -> Make:
    return lambda graph: graph.input(f"in{next(COUNT)}", shape, dtype)


def _many(*makes: Make) -> Make:
    return lambda graph: [make(graph) for make in makes]


def _same(value: object) -> Make:
    return lambda graph: value


COUNT = iter(range(1 << 40))
X, IMAGE, WHOLE, BOOL = _input((4, 4)), _input((1, 4, 6, 6)), _input((4, 4), "i64"), _input((4, 4), "i1")
VECTOR, SCALAR, NUMBER = _input((4,)), _input(()), _input((), "i64")


def _param(graph: Graph) -> Value:
    return graph.param(f"in{next(COUNT)}", (4, 4))


def _loss(graph: Graph) -> Value:
    return graph.reduce_mean(graph.input("in", (4, 4)), [0, 1], keepdims=False)


def _identity(graph: Graph) -> FuncOp:
    inner = Graph("inner")
    inner.output(inner.relu(inner.input("x", (4, 4))), "y")
    op = inner.module().body.block.first_op
    assert isinstance(op, FuncOp)
    return op


BY_TYPE: dict[str, Make] = {
    "Value": X,
    "Operand": X,
    "Value | int": _same(3),
    "Sequence[Value]": _many(X, X),
    "Shape": _same((4, 4)),
    "int": _same(1),
    "float": _same(0.5),
    "ArrayLike": _same(2.0),
    "Sequence[int]": _same([1]),
    "FuncOp": _identity,
}
"""What is legal, by the type of an argument without a default."""

_POOL: Mapping[str, Make] = {"x": IMAGE, "sizes": _same([2, 2])}
_PLANES: Mapping[str, Make] = {"whole": _same([6, 6]), "sizes": _same([2, 2])}
_BITS: Mapping[str, Make] = dict.fromkeys(("lhs", "rhs", "x", "bits", "amount"), WHOLE)
_INDEXED: Mapping[str, Make] = {"indices": WHOLE}
_NORM: Mapping[str, Make] = dict.fromkeys(("scale", "bias", "mean", "variance"), VECTOR)
_CONV: Mapping[str, Make] = {"x": IMAGE, "weight": _input((4, 4, 3, 3))}
_CONV_WEIGHT: Mapping[str, Make] = {"x": IMAGE, "grad": IMAGE, "sizes": _same([3, 3])}
_UPDATE: Mapping[str, Make] = {"learning_rate": SCALAR, "step": NUMBER}
_STEP: Mapping[str, Make] = {"step": NUMBER}
_CHOICE: Mapping[str, Make] = {"condition": BOOL}
BY_METHOD: Mapping[str, Mapping[str, Make]] = {
    **dict.fromkeys(("avg_pool", "max_pool", "max_pool_indices", "max_pool_taps", "lp_pool"), _POOL),
    "max_pool_grad": {"taps": _input((2, 4, 3, 3), "i8"), "grad": _input((2, 4, 3, 3)), **_PLANES},
    **dict.fromkeys(("and_", "or_", "xor", "not_", "mod", "floor_div", "shift_left", "shift_right"), _BITS),
    **dict.fromkeys(("gather", "gather_elements", "one_hot", "scatter_elements"), _INDEXED),
    **dict.fromkeys(("batch_norm", "group_norm", "layer_norm", "rms_norm"), _NORM),
    **dict.fromkeys(("conv", "conv_transpose"), _CONV),
    **{key: {**_UPDATE, "states": _many(X, X)} for key in ("adam", "adamw")},
    "conv_weight_grad": _CONV_WEIGHT,
    "sgd": {**_UPDATE, "states": _many(X), "momentum": _same(0.9)},
    **dict.fromkeys(("bias_corr", "step_inc"), _STEP),
    "learning_rate": {**_STEP, "schedule": _same("constant")},
    "one_cycle_rate": {**_STEP, "anneal": _same("linear"), "total": _same(9)},
    "step_rate": {**_STEP, "period": _same(3)},
    **dict.fromkeys(("select", "where"), _CHOICE),
    "attention": dict.fromkeys(("query", "key", "value"), IMAGE),
    "broadcast": {"dimensions": _same([0, 1])},
    "clamp": {"min": _same(0.0)},
    "clip_factor": {"norm": SCALAR},
    "compare": {"predicate": _same("lt")},
    "dequantize_blocks": {"packed": _input((4, 20), "u8"), "scheme": _same("Q4_1")},
    "cross_entropy": {"labels": _input((4,), "i64")},
    "gradient": {"loss": _loss},
    "inline": {"arguments": _many(X)},
    "lstm": {"x": _input((3, 1, 8)), "weight": _input((8, 2)), "first": _input((2, 1, 2))},
    "non_max_suppression": {"boxes": _input((1, 5, 4)), "scores": _input((1, 2, 5)), "overlap": SCALAR},
    "pad": {"low": _same([0, 1]), "high": _same([1, 0])},
    "philox_word": {"seed": _same(3), "offset": NUMBER, "index": WHOLE},
    "scatter": {"indices": _input((4,), "i64")},
    "scatter_nd": {"indices": _input((4, 1), "i64")},
    "slice": {"starts": _same([0, 0]), "sizes": _same([2, 2])},
    "split": {"sizes": _same([1, 3])},
    "squeeze": {"x": _input((4, 1))},
    "tile": {"repeats": _same([1, 2])},
    "transpose": {"permutation": _same([1, 0])},
    "update": {"target": _param},
}
"""What is legal of a method's arguments, where its type does not say it."""


OTHERS = ("refuse", "check_value", "op")
"""Methods that a builder does not call; and the one of ops of packages, whose arguments the package says."""
METHODS = [
    name
    for name, _ in inspect.getmembers(Graph, inspect.isfunction)
    if not name.startswith("_") and name not in OTHERS
]
OPERATORS = [
    name
    for name, method in inspect.getmembers(Value, inspect.isfunction)
    if name in vars(Value) and list(inspect.signature(method).parameters) == ["self", "other"]
]
GIVEN = {key: VALUES[key] for key in (*SOME, *ALSO, "set", "infinity", "no elements")}
"""Of the values one of each kind, for there are hundreds of arguments."""


def _arguments(name: str) -> dict[str, inspect.Parameter]:
    own = list(inspect.signature(getattr(Graph, name)).parameters.items())[1:]
    return {key: parameter for key, parameter in own if parameter.kind is not parameter.VAR_KEYWORD}


def _legal(graph: Graph, name: str) -> dict[str, Any]:
    """What a method takes; the arguments that may be left out are, where no table has them."""
    own, texts = BY_METHOD.get(name, {}), {"name": f"n{next(COUNT)}", "dtype": "f32"}
    given: dict[str, Any] = {}
    for key, parameter in _arguments(name).items():
        if key in own:
            given[key] = own[key](graph)
        elif parameter.default is parameter.empty:
            given[key] = texts[key] if key in texts else BY_TYPE[parameter.annotation](graph)
    return given


def _graph() -> Graph:
    graph = Graph("g")
    graph.output(graph.input("first", (2,)), "last")
    return graph


@pytest.mark.parametrize("name", METHODS)
def test_the_other_arguments_are_legal(name: str):
    """So that nothing else than the nonsense is refused."""
    graph = _graph()
    getattr(graph, name)(**_legal(graph, name))


@pytest.mark.parametrize("name", METHODS)
def test_nonsense_for_a_method_is_one_line(name: str):
    graph = _graph()
    found = {
        (argument, given): problem
        for argument in _arguments(name)
        for given, value in GIVEN.items()
        if (problem := problem_of(partial(_call, graph, name, argument, value)))
    }
    assert not found, "\n".join(f"{key}: {problem}" for key, problem in found.items())


def _call(graph: Graph, name: str, argument: str, value: object) -> object:
    return getattr(graph, name)(**{**_legal(graph, name), argument: value})


@pytest.mark.parametrize("name", OPERATORS)
def test_nonsense_for_an_operator_is_one_line(name: str):
    value = _graph().input("x", (4, 4))
    found = {
        given: problem
        for given, other in GIVEN.items()
        if (problem := problem_of(partial(getattr(value, name), other)))
    }
    assert not found, "\n".join(f"{key}: {problem}" for key, problem in found.items())


def test_nonsense_for_a_graph_is_one_line():
    found = {
        given: problem for given, value in GIVEN.items() if (problem := problem_of(partial(_finished, value)))
    }
    assert not found, "\n".join(f"{key}: {problem}" for key, problem in found.items())


def _finished(name: Any) -> object:
    graph = Graph(name)
    graph.output(graph.input("x", (2,)), "y")
    return graph.module()


@pytest.mark.parametrize("given", sorted(GIVEN))
def test_nonsense_for_an_op_of_a_package_is_one_line(given: str):
    """As its name, as an operand, as an attribute, and as the name in the program."""
    value = GIVEN[given]

    def call(**changes: Any) -> object:
        graph, name = _graph(), changes.pop("op", "nonsense.halved")
        operand = changes.pop("x", graph.input("x", (2,)))
        return graph.op(name, operand, **changes)

    with temporary_definitions():
        custom_op("nonsense.halved", lambda x, *, by=2.0: x / by)
        call(by=3.0)
        found = {key: problem_of(partial(call, **{key: value})) for key in ("op", "x", "by", "name")}
    assert not any(found.values()), found
