"""The Python builder: broadcasting, operators, names, locations and its errors."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import FileLineColLoc, NameLoc

from aicf.dialects.logical import LogicalOp
from aicf.errors import InvalidIR
from aicf.frontends.builder import Graph, Value
from aicf.frontends.text import make_context, parse_module, verify_module
from aicf.passes.verify.verify_logical import VerifyLogicalPass
from tests.support.random_graphs import run_program

THIS_FILE = re.escape(__file__.rsplit("/", 1)[1])


def result_of(graph: Graph, value: Value, **inputs: np.ndarray) -> np.ndarray:
    graph.output(value, "y")
    module = graph.module()
    verify_module(module)
    VerifyLogicalPass().apply(make_context(), module)
    return run_program(module, inputs)["y"]


def test_a_whole_program() -> None:
    graph = Graph("mlp")
    x = graph.input("x", ("N", 64))
    weight, bias = graph.param("fc1.weight", (128, 64)), graph.param("fc1.bias", (128,))
    graph.output(graph.relu(graph.linear(x, weight, bias, name="fc1")), "y")
    text = str(graph.module())
    assert text == str(parse_module(text))
    assert (
        '%x: tensor<?x64xf32, #logical.dims<["N", ""]>> {logical.name = "x", logical.role = "input"}' in text
    )
    assert '%fc1.weight: tensor<128x64xf32> {logical.name = "fc1.weight", logical.role = "param"}' in text
    assert "%fc1 = logical.linear %x, %fc1.weight, %fc1.bias" in text
    assert text == str(graph.module())


@st.composite
def broadcastable(draw: st.DrawFn):
    shape = draw(st.lists(st.integers(1, 3), max_size=4))
    shapes = []
    for _ in range(2):
        kept = draw(st.integers(0, len(shape)))
        shapes.append(tuple(1 if draw(st.booleans()) else size for size in shape[len(shape) - kept :]))
    return shapes


@settings(deadline=None)
@given(broadcastable(), st.integers(0, 1000))
def test_operands_broadcast_as_in_numpy(shapes, seed: int) -> None:
    random = np.random.default_rng(seed)
    a, b = (random.normal(size=shape) for shape in shapes)
    graph = Graph("g")
    x, y = graph.input("a", a.shape, "f64"), graph.input("b", b.shape, "f64")
    np.testing.assert_allclose(result_of(graph, x * y - x, a=a, b=b), a * b - a, rtol=1e-14)


def test_operators_and_numbers() -> None:
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.5, 1.5], [2.5, -1.0]])
    graph = Graph("g")
    x, y = graph.input("a", a.shape, "f64"), graph.input("b", b.shape, "f64")
    value = -(2 - x) / y + 1 / (x + 1) + (x @ y) * 0.5 - 3
    np.testing.assert_allclose(
        result_of(graph, value, a=a, b=b), -(2 - a) / b + 1 / (a + 1) + a @ b * 0.5 - 3
    )


def test_integer_and_logic_operators() -> None:
    """Python's own numbers are the reference: division rounds down, and order and logic give i1."""
    a, b = np.array([-7, 7, 5, -8], np.int64), np.array([2, -2, 3, 4], np.int64)
    graph = Graph("g")
    x, y = graph.input("a", a.shape, "i64"), graph.input("b", b.shape, "i64")
    value = (x // y) * 1000 + (x % y) * 100 + ((x & y) | 1) + (~x ^ y) + 100 // y + 17 % y
    chosen = graph.select((x < y) & ~(x <= -8) | (x > 6) ^ (y >= 3), value, -1)
    chosen = graph.select(graph.eq(x, 5), 0, graph.select(graph.ne(y, 4), chosen, 1))
    expected = []
    for p, q in zip(a.tolist(), b.tolist(), strict=True):
        number = (p // q) * 1000 + (p % q) * 100 + ((p & q) | 1) + (~p ^ q) + 100 // q + 17 % q
        picked = number if (p < q) & (not p <= -8) | (p > 6) ^ (q >= 3) else -1
        expected.append(0 if p == 5 else picked if q != 4 else 1)
    assert result_of(graph, chosen, a=a, b=b).tolist() == expected


def test_powers_and_bounds() -> None:
    a = np.array([0.5, 1.5, 3.0])
    graph = Graph("g")
    x = graph.input("a", a.shape, "f64")
    value = x**2.5 + 2**x + graph.clamp(x, 1, 2) + graph.clamp(x, max=1)
    expected = a**2.5 + 2**a + np.clip(a, 1, 2) + np.minimum(a, 1)
    np.testing.assert_allclose(result_of(graph, value, a=a), expected, rtol=1e-14)


def test_every_method() -> None:
    x_array = np.random.default_rng(0).uniform(0.2, 0.9, (2, 3))
    graph = Graph("g")
    x = graph.input("x", (2, 3), "f64")
    scale = graph.constant([1.0, 2.0, 3.0], (3,), "f64")
    pieces = [
        *(
            graph.exp(x),
            graph.log(x),
            graph.sqrt(x),
            graph.rsqrt(x),
            graph.tanh(x),
            graph.erf(x),
            graph.relu(x),
        ),
        *(graph.sigmoid(x), graph.silu(x), graph.gelu(x, "tanh")),
        *(graph.abs(x), graph.sign(x), graph.reciprocal(x), graph.expm1(x), graph.log1p(x)),
        *(graph.sin(x), graph.cos(x), graph.floor(x), graph.ceil(x), graph.round(x), graph.pow(x, 0.5)),
        *(graph.tan(x), graph.asin(x), graph.acos(x), graph.atan(x), graph.sinh(x), graph.cosh(x)),
        *(graph.asinh(x), graph.acosh(graph.exp(x)), graph.atanh(x)),
        *(graph.leaky_relu(x), graph.elu(x), graph.softplus(x), graph.hard_sigmoid(x), graph.hard_swish(x)),
        *(graph.clamp(x, 0.3), graph.cast(graph.is_nan(x), "f64")),
        *(graph.neg(x), graph.max(x, 0.5), graph.min(0.5, x)),
        *(graph.softmax(x), graph.layer_norm(x, scale, scale), graph.reduce_max(x, [-1], keepdims=True)),
        *(
            graph.reduce_sum(x, [0]),
            graph.reduce_mean(x, [-2, -1]),
            graph.transpose(graph.transpose(x, [1, 0]), [1, 0]),
        ),
        *(graph.slice(x, [0, 1], [-1, 2]), graph.concat([x, x], -1), graph.reshape(x, (3, 2))),
        *(graph.broadcast_to(scale, (2, 3)), graph.cast(graph.cast(x, "i32"), "f64")),
        graph.bitcast(graph.shift_right(graph.shift_left(graph.bitcast(x, "i64"), 1), 1), "f64"),
        graph.select(graph.compare("gt", x, 0.5), x, 0.0),
        graph.matmul(x, x, transpose_b=True),
    ]
    total = graph.add(0.0, graph.reduce_sum(pieces[0], [0, 1]))
    for piece in pieces[1:]:
        total = total + (graph.reduce_sum(piece, list(range(piece.rank))) if piece.rank else piece)
    assert np.isfinite(result_of(graph, total, x=x_array))


@pytest.mark.parametrize(
    ("left", "right"),
    [((3,), (3,)), ((3,), (2, 3, 4)), ((5, 2, 3), (3,)), ((4, 1, 2, 3), (5, 3, 2)), ((2, 3), (5, 3, 4))],
)
def test_matmul_is_that_of_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Vectors are rows and columns without a dimension of their own; batches broadcast."""
    random = np.random.default_rng(1)
    a, b = random.normal(size=left), random.normal(size=right)
    graph = Graph("g")
    product = graph.input("a", left, "f64") @ graph.input("b", right, "f64")
    assert product.shape == np.matmul(a, b).shape
    np.testing.assert_allclose(result_of(graph, product, a=a, b=b), np.matmul(a, b), rtol=1e-12)


def test_reductions_and_norms() -> None:
    """A negative axis counts from the last; places are integers, truths are bools."""
    x_array = np.random.default_rng(2).uniform(0.5, 1.5, (2, 4, 3))
    for expected, make in (
        (x_array.min((1, 2)), lambda g, x: g.reduce_min(x, [-1, 1])),
        (x_array.prod(1, keepdims=True), lambda g, x: g.reduce_prod(x, [1], keepdims=True)),
        (np.sqrt((x_array**2).sum(2)), lambda g, x: g.reduce_l2(x, [-1])),
        (np.log(np.exp(x_array).sum(0)), lambda g, x: g.reduce_logsumexp(x, [0])),
        ((x_array > 1).any(2), lambda g, x: g.reduce_any(g.compare("gt", x, 1.0), [-1])),
        ((x_array > 1).all(1), lambda g, x: g.reduce_all(g.compare("gt", x, 1.0), [1])),
        (x_array.argmax(2), lambda g, x: g.argmax(x)),
        (x_array.argmin(1, keepdims=True), lambda g, x: g.argmin(x, -2, keepdims=True)),
        (x_array.cumsum(2), lambda g, x: g.cumsum(x)),
        (
            np.flip(np.flip(x_array, 1).cumsum(1), 1) - x_array,
            lambda g, x: g.cumsum(x, -2, exclusive=True, reverse=True),
        ),
        (x_array - np.log(np.exp(x_array).sum(1, keepdims=True)), lambda g, x: g.log_softmax(x, 1)),
    ):
        graph = Graph("g")
        value = make(graph, graph.input("x", x_array.shape, "f64"))
        np.testing.assert_allclose(result_of(graph, value, x=x_array), expected, rtol=1e-12, atol=1e-12)


def test_norms_of_channels() -> None:
    random = np.random.default_rng(3)
    x_array, parts = random.normal(size=(2, 4, 3)), random.uniform(0.5, 1.5, (4, 4))
    graph = Graph("g")
    x = graph.input("x", x_array.shape, "f64")
    scale, bias, mean, variance = (graph.constant(part, (4,), "f64") for part in parts)
    ours = graph.batch_norm(x, scale, bias, mean, variance) + graph.group_norm(x, scale, bias, 2)
    ours = ours + graph.rms_norm(x, graph.constant([1.0, 2.0, 3.0], (3,), "f64"))
    wide = [part[:, None] for part in parts]
    groups = x_array.reshape(2, 2, 6)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    expected = (x_array - wide[2]) / np.sqrt(wide[3] + 1e-5) * wide[0] + wide[1]
    expected = expected + normal.reshape(x_array.shape) * wide[0] + wide[1]
    root = np.sqrt((x_array**2).mean(2, keepdims=True) + 1e-5)
    expected = expected + x_array / root * np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(result_of(graph, ours, x=x_array), expected, rtol=1e-9)


def test_updates() -> None:
    graph = Graph("step")
    w, grad = graph.param("w", (3,)), graph.input("grad", (3,))
    count = graph.state("count", (), "i64")
    graph.update(w, w - grad * 0.1)
    graph.update(count, count + 1)
    module = graph.module()
    VerifyLogicalPass().apply(make_context(), module)
    results = run_program(module, {"w": np.ones(3), "grad": np.ones(3), "count": np.array(4)})
    np.testing.assert_allclose(results["updates:w"], np.full(3, 0.9), rtol=1e-7)
    assert results["updates:count"] == 5


def test_ops_know_their_line() -> None:
    graph = Graph("g")
    x = graph.input("x", (2,))
    graph.output(graph.exp(x + 1, name="e"), "y")
    ops = [op for op in graph.module().walk() if isinstance(op, LogicalOp)]
    locations = [op.location.location if isinstance(op.location, NameLoc) else op.location for op in ops]
    assert all(isinstance(location, FileLineColLoc) for location in locations)
    assert len({location.line.data for location in locations}) == 1  # type: ignore[union-attr]
    assert all(re.search(THIS_FILE, location.filename.data) for location in locations)  # type: ignore[union-attr]
    assert isinstance(ops[-1].location, NameLoc) and ops[-1].location.desc.data == "e"


def fail(message: str):
    return pytest.raises(InvalidIR, match=rf"{THIS_FILE}:\d+:1: .*{re.escape(message)}")


def test_errors_say_where_and_what() -> None:
    graph, other = Graph("g"), Graph("other")
    x, y = graph.input("x", (2, 3)), graph.input("y", (4,))
    with fail("add: shapes 2x3 and 4 do not broadcast; sizes are equal or 1 from the right"):
        x + y
    with fail("matmul: contracted sizes differ: lhs K = 3 (dim 1 of 2x3), rhs K = 2 (dim 0 of 2x3)"):
        x @ x
    with fail('the name "x" is taken; give another'):
        graph.param("x", (2,))
    with fail('the name "" is empty; give another'):
        graph.input("", (2,))
    with fail("unknown element type 'float'; use one of f64"):
        graph.input("z", (2,), "float")
    with fail("'N/2' is no dimension size"):
        graph.input("z", ("N/2",))
    with fail("dimension 0 has size 0; empty tensors are not supported"):
        graph.input("z", (0,))
    with fail("the largest tensor takes 140737488355328 (2^47)"):
        graph.broadcast_to(graph.constant(1.0), (1 << 30, 1 << 30))
    with fail('a value of graph "other" cannot be used in graph "g"'):
        graph.exp(other.input("x", (2,)))
    with fail("add: all operands are Python numbers; make one a constant of the graph"):
        graph.add(1, 2)
    with fail("constant: 0.5 is no i32"):
        graph.cast(x, "i32") * 0.5
    with fail("softmax: axis 2 is out of range for rank 2; write 0 to 1"):
        graph.softmax(x, 2)
    with fail("clamp: has neither min nor max; give at least one"):
        graph.clamp(x)
    with fail("clamp: max is 1.500000e+00 : f64; write a bound of integers as an integer, such as 1"):
        graph.clamp(graph.cast(x, "i32"), 0, 1.5)
    with fail("elu: alpha is nan; it is a finite number"):
        graph.elu(x, float("nan"))
    with fail("softplus: beta is 0.0; the softplus is divided by it"):
        graph.softplus(x, 0.0)
    with fail("mod: not defined for f32; cast to an integer type first"):
        x % 2
    with fail("concat: nothing to concatenate; give at least one operand"):
        graph.concat([], 0)
    with fail("element types differ: lhs f32, rhs f64"):
        graph.matmul(x, graph.constant(0.0, (3, 3), "f64"))
    with fail("matmul: 4xf32 is a vector and has no transpose; drop transpose_b"):
        graph.matmul(graph.constant(0.0, (2, 4)), y, transpose_b=True)
    with fail("reduce_any: axis 2 is out of range for rank 2; write 0 to 1"):
        graph.reduce_any(x, [2])
    with fail("argmax: axis -3 is out of range for rank 2; write 0 to 1"):
        graph.argmax(x, -3)
    with fail("expand_dims: axis -4 is out of range"):
        graph.stack([x, x], -4)
    with fail("cumsum: not defined for i1; cast to a number first"):
        graph.cumsum(graph.compare("gt", x, 0.0))
    with fail("rms_norm: scale is 4xf32, but dimensions 1 to 1 of 2x3xf32 need 3xf32"):
        graph.rms_norm(x, y)
    with fail("group_norm: groups is 2; it divides the 3 channels of 2x3xf32"):
        graph.group_norm(x, *[graph.constant(1.0, (3,))] * 2, groups=2)
    with fail("batch_norm: scale is 4xf32, but the channels of 2x3xf32 (dimension 1) need 3xf32"):
        graph.batch_norm(x, y, y, y, y)
    with fail('graph "g" has no result; call output() or update()'):
        graph.module()
    with fail('the role of "x" is "input"; only param, state and meta change'):
        graph.update(x, x)
    with fail("the target is a computed value; give a param, state or meta"):
        graph.update(graph.exp(x), x)
    weight = graph.param("w", (2,))
    with fail('"w" is 2xf32, the new value 2x3xf32'):
        graph.update(weight, x)
    graph.output(x, "z")
    graph.module()
    with fail('graph "g" is finished; add ops before module()'):
        graph.exp(x)


def test_a_refused_op_leaves_no_trace() -> None:
    graph = Graph("g")
    x = graph.input("x", (1 << 20,))
    with pytest.raises(InvalidIR):
        graph.concat([graph.broadcast_to(x, (1 << 24, 1 << 20))] * 4, 0)
    graph.output(graph.exp(x), "y")
    verify_module(graph.module())


def test_conveniences_around_indices() -> None:
    graph = Graph("g")
    x = graph.input("x", (2, 6))
    first, rest = graph.split(x, [2, 4], -1)
    graph.output(graph.stack([first, first], 1), "stacked")
    graph.output(graph.squeeze(graph.expand_dims(rest, -1), 2), "rest")
    graph.output(graph.where(graph.compare("gt", x, 0.0), x, -1.0), "where")
    values, indices = graph.topk(x, 2, largest=False, name="low")
    graph.output(values, "low")
    graph.output(indices, "places")
    data = np.array([[3.0, -1.0, 2.0, 0.0, 5.0, -4.0], [1.0, 1.0, 0.5, 7.0, -2.0, 1.0]], np.float32)
    found = run_program(graph.module(), {"x": data})
    np.testing.assert_array_equal(found["stacked"], np.stack([data[:, :2]] * 2, 1))
    np.testing.assert_array_equal(found["rest"], data[:, 2:])
    np.testing.assert_array_equal(found["where"], np.where(data > 0, data, -1))
    np.testing.assert_array_equal(found["places"], [[5, 1], [4, 2]])
    np.testing.assert_array_equal(found["low"], [[-4, -1], [-2, 0.5]])


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_borders_are_numpys(mode) -> None:
    graph = Graph("g")
    x = graph.input("x", (3, 4))
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = result_of(graph, graph.pad(x, [2, 0], [1, 3], mode=mode), x=data)
    np.testing.assert_array_equal(found, np.pad(data, [(2, 1), (0, 3)], mode))


def test_indices_out_of_range_are_refused() -> None:
    graph = Graph("g")
    x = graph.input("x", (3, 4))
    for make, message in (
        (lambda: graph.pad(x, [3, 0], [0, 0], mode="reflect"), "with mode reflect they are from 0 to 2"),
        (lambda: graph.pad(x, [-1, 0], [0, 0], mode="edge"), "with mode edge they are not negative"),
        (lambda: graph.pad(x, [1], [0], mode="edge"), "low and high have one amount for each of the 2"),
        (lambda: graph.split(x, [1, 2], 1), "split: sizes [1, 2] along axis 1 do not add up"),
        (lambda: graph.squeeze(x, 0), "squeeze: axis 0 of shape (3, 4) is no dimension of size 1"),
        (lambda: graph.stack([]), "stack: nothing to stack"),
        (lambda: graph.topk(x, 5), "k is 5; dimension 1 of 3x4 allows 1 to 4"),
    ):
        with pytest.raises(InvalidIR, match=re.escape(message)):
            make()


def test_values_read_well() -> None:
    graph = Graph("net")
    x = graph.input("x", ("N", 4))
    y = graph.relu(x, name="act")
    assert repr(x) == "<Value x: f32[N, 4] of graph 'net'>"
    assert repr([y]) == "[<Value act: f32[N, 4] of graph 'net'>]" and f"{y}" == repr(y)
    assert repr(graph.exp(y)) == "<Value logical.exp: f32[N, 4] of graph 'net'>"
