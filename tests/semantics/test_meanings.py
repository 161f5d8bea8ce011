"""Every op's meaning against formulas written here from the definitions, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from xdsl.ir import Block

from aicf.dialects import logical
from aicf.dialects.dims import parse_size
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import element_named, element_of_dtype, tensor, tensor_info
from aicf.errors import InvalidIR
from aicf.frontends.text import parse_module
from aicf.semantics import SEMANTICS, evaluate, evaluate_block
from aicf.semantics.random import philox4x32
from tests.support.op_coverage import assert_holds_every_op

Array = np.ndarray
COVERED: set[type] = set()


def arguments(*arrays: Array) -> Sequence:
    """Block arguments of the arrays' types."""
    types = [tensor(array.shape, element_of_dtype(array.dtype)) for array in arrays]
    return Block(arg_types=types).args


def run(make: Callable[..., LogicalOp], *arrays: Array, mode: str = "exact") -> Array:
    (result,) = run_all(make, *arrays, mode=mode)
    return result


def run_all(make: Callable[..., LogicalOp], *arrays: Array, mode: str = "exact") -> tuple[Array, ...]:
    """Every result of an op."""
    op = make(*arguments(*arrays))
    op.verify()
    COVERED.add(type(op))
    results = evaluate(op, list(arrays), mode)  # type: ignore[arg-type]
    assert [result.shape for result in results] == [tensor_info(value.type).shape for value in op.results]
    return results


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
seeds = st.integers(0, 2**32 - 1)


def floats(seed: int, shape: tuple[int, ...], low: float = -2.0, high: float = 2.0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape)


def close(actual: Array, expected: Array) -> None:
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


UNARY: dict[type[logical.UnaryOp], tuple[Callable[[float], float], float]] = {
    logical.NegOp: (lambda x: -x, -2.0),
    logical.ExpOp: (math.exp, -2.0),
    logical.LogOp: (math.log, 0.1),
    logical.SqrtOp: (math.sqrt, 0.0),
    logical.RsqrtOp: (lambda x: x**-0.5, 0.1),
    logical.TanhOp: (math.tanh, -2.0),
    logical.ErfOp: (special.erf, -2.0),
    logical.ReluOp: (lambda x: x if x > 0 else 0.0, -2.0),
    logical.SigmoidOp: (special.expit, -2.0),
    logical.SiluOp: (lambda x: x * special.expit(x), -2.0),
    logical.GeluOp: (lambda x: x * special.ndtr(x), -2.0),
    logical.AbsOp: (lambda x: x if x > 0 else -x, -2.0),
    logical.SignOp: (lambda x: math.copysign(1.0, x), -2.0),
    logical.ReciprocalOp: (lambda x: x**-1, 0.1),
    logical.Expm1Op: (math.expm1, -2.0),
    logical.Log1pOp: (math.log1p, -0.9),
    logical.SinOp: (math.sin, -2.0),
    logical.CosOp: (math.cos, -2.0),
    logical.TanOp: (lambda x: math.sin(x) / math.cos(x), -1.5),
    logical.AtanOp: (lambda x: math.atan2(x, 1), -2.0),
    logical.SinhOp: (lambda x: (math.exp(x) - math.exp(-x)) / 2, -2.0),
    logical.CoshOp: (lambda x: (math.exp(x) + math.exp(-x)) / 2, -2.0),
    logical.AsinhOp: (lambda x: math.log(x + math.hypot(x, 1)), -2.0),
    logical.AcoshOp: (lambda x: math.log(x + math.sqrt(x * x - 1)), 1.1),
    logical.FloorOp: (math.floor, -2.0),
    logical.CeilOp: (math.ceil, -2.0),
    logical.RoundOp: (round, -2.0),
    logical.LeakyReluOp: (lambda x: x if x > 0 else float(np.float64(0.01)) * x, -2.0),
    logical.EluOp: (lambda x: x if x > 0 else math.exp(x) - 1, -2.0),
    logical.SoftplusOp: (lambda x: math.log(1 + math.exp(x)), -2.0),
    logical.HardSigmoidOp: (lambda x: (x + 3) / 6, -2.0),
    logical.HardSwishOp: (lambda x: x * (x + 3) / 6, -2.0),
}


@pytest.mark.parametrize("op_class", UNARY)
@settings(deadline=None, max_examples=20)
@given(shape=shapes, seed=seeds)
def test_unary(op_class: type[logical.UnaryOp], shape: tuple[int, ...], seed: int) -> None:
    function, low = UNARY[op_class]
    x = floats(seed, shape, low)
    close(run(op_class, x), np.vectorize(function, otypes=[np.float64])(x))


OF_FRACTIONS: dict[type[logical.UnaryOp], Callable[[float], float]] = {
    logical.AsinOp: lambda x: math.atan2(x, math.sqrt(1 - x * x)),
    logical.AcosOp: lambda x: math.atan2(math.sqrt(1 - x * x), x),
    logical.AtanhOp: lambda x: (math.log(1 + x) - math.log(1 - x)) / 2,
}


@pytest.mark.parametrize("op_class", OF_FRACTIONS)
@settings(deadline=None, max_examples=20)
@given(shape=shapes, seed=seeds)
def test_of_fractions(op_class: type[logical.UnaryOp], shape: tuple[int, ...], seed: int) -> None:
    x = floats(seed, shape, -0.95, 0.95)
    close(run(op_class, x), np.vectorize(OF_FRACTIONS[op_class], otypes=[np.float64])(x))


BINARY: dict[type[logical.BinaryOp], Callable[[float, float], float]] = {
    logical.AddOp: lambda a, b: a + b,
    logical.SubOp: lambda a, b: a - b,
    logical.MulOp: lambda a, b: a * b,
    logical.DivOp: lambda a, b: a / b,
    logical.MaxOp: max,
    logical.MinOp: min,
    logical.PowOp: lambda a, b: math.exp(b * math.log(a)),
}


@pytest.mark.parametrize("op_class", BINARY)
@settings(deadline=None, max_examples=20)
@given(shape=shapes, seed=seeds)
def test_binary(op_class: type[logical.BinaryOp], shape: tuple[int, ...], seed: int) -> None:
    a, b = floats(seed, shape), floats(seed + 1, shape, 0.5)
    if op_class is logical.PowOp:
        a, b = b, a
    close(run(op_class, a, b), np.vectorize(BINARY[op_class], otypes=[np.float64])(a, b))


def test_gelu_tanh_is_near_gelu() -> None:
    x = floats(0, (100,), -4, 4)
    approximate = run(lambda value: logical.GeluOp(value, "tanh"), x)
    expected = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    close(approximate, expected)
    assert 1e-6 < np.max(np.abs(approximate - run(logical.GeluOp, x))) < 1e-3


def test_attributes_of_activations() -> None:
    """Each at points on both sides of its bends, with numbers other than the defaults."""
    x = np.array([-4.0, -1.0, 0.0, 0.5, 4.0])
    close(run(lambda v: logical.LeakyReluOp(v, 0.25), x), np.array([-1.0, -0.25, 0.0, 0.5, 4.0]))
    close(run(lambda v: logical.LeakyReluOp(v, -1.0), x), np.abs(x))
    expected = np.array([2 * (math.exp(-4) - 1), 2 * (math.exp(-1) - 1), 0.0, 0.5, 4.0])
    close(run(lambda v: logical.EluOp(v, 2.0), x), expected)
    expected = np.array([math.log(1 + math.exp(2 * v)) / 2 for v in x])
    close(run(lambda v: logical.SoftplusOp(v, 2.0), x), expected)
    close(run(lambda v: logical.HardSigmoidOp(v, 0.25, 0.75), x), np.array([0.0, 0.5, 0.75, 0.875, 1.0]))
    close(run(logical.HardSigmoidOp, x), np.array([0.0, 1 / 3, 0.5, 7 / 12, 1.0]))
    close(run(logical.HardSwishOp, x), np.array([0.0, -1 / 3, 0.0, 7 / 24, 4.0]))


def test_activations_far_out() -> None:
    """What a formula would overflow or cancel at, and NaN."""
    x = np.array([-np.inf, -1e4, -1e-20, 1e-20, 1e4, np.inf, np.nan])
    log_2 = math.log(2)
    softplus = run(logical.SoftplusOp, x)
    np.testing.assert_allclose(softplus, [0, 0, log_2, log_2, 1e4, np.inf, np.nan], rtol=1e-15)
    elu = run(logical.EluOp, x)
    np.testing.assert_allclose(elu, [-1, -1, -1e-20, 1e-20, 1e4, np.inf, np.nan], rtol=1e-15)
    np.testing.assert_array_equal(run(logical.HardSigmoidOp, x)[[0, 1, 4, 5, 6]], [0, 0, 1, 1, np.nan])
    np.testing.assert_array_equal(run(logical.LeakyReluOp, x)[[0, 5, 6]], [-np.inf, np.inf, np.nan])


def test_rounding_to_whole_numbers() -> None:
    x = np.array([-2.5, -1.5, -0.5, -0.2, 0.5, 1.5, 2.5, 2.0**60 + 2.0**8, np.inf, np.nan])
    kept = [2.0**60 + 2.0**8, np.inf, np.nan]
    np.testing.assert_array_equal(run(logical.FloorOp, x), [-3, -2, -1, -1, 0, 1, 2, *kept])
    np.testing.assert_array_equal(run(logical.CeilOp, x), [-2, -1, 0, 0, 1, 2, 3, *kept])
    np.testing.assert_array_equal(run(logical.RoundOp, x), [-2, -2, 0, 0, 0, 2, 2, *kept])


def test_sign_and_is_nan() -> None:
    x = np.array([-np.inf, -3.0, -0.0, 0.0, 1e-300, np.nan])
    np.testing.assert_array_equal(run(logical.SignOp, x), [-1, -1, 0, 0, 1, np.nan])
    assert run(logical.IsNanOp, x).tolist() == [False] * 5 + [True]
    assert run(logical.SignOp, np.array([-5, 0, 7], np.int32)).tolist() == [-1, 0, 1]
    assert run(logical.SignOp, np.array([0, 200], np.uint8)).tolist() == [0, 1]
    assert run(logical.AbsOp, np.array([-5, 0, 7, -128], np.int8)).tolist() == [5, 0, 7, -128]
    assert run(logical.AbsOp, np.array([0, 200], np.uint8)).tolist() == [0, 200]


def test_powers() -> None:
    """The special cases of C99 Annex F."""
    inf, nan = np.inf, np.nan
    cases = [
        *((nan, 0.0, 1.0), (1.0, nan, 1.0), (-8.0, 3.0, -512.0), (-8.0, 2.0, 64.0), (-8.0, 0.5, nan)),
        *((0.0, -1.0, inf), (-0.0, -1.0, -inf), (-0.0, 3.0, 0.0), (0.0, 0.5, 0.0), (-1.0, inf, 1.0)),
        *((0.5, inf, 0.0), (0.5, -inf, inf), (-inf, 3.0, -inf), (-inf, 0.5, inf), (inf, -1.0, 0.0)),
        *((2.0, nan, nan), (4.0, 0.5, 2.0), (10.0, 400.0, inf), (10.0, -400.0, 0.0)),
    ]
    base, exponent, expected = (np.array(column) for column in zip(*cases, strict=True))
    np.testing.assert_array_equal(run(logical.PowOp, base, exponent), expected)


def test_clamp() -> None:
    x = np.array([-3.0, -0.5, 0.25, 2.0, np.nan, np.inf])
    both = run(lambda v: logical.ClampOp(v, -1.0, 0.5), x)
    np.testing.assert_array_equal(both, [-1, -0.5, 0.25, 0.5, np.nan, 0.5])
    np.testing.assert_array_equal(run(lambda v: logical.ClampOp(v, max=0.0), x), [-3, -0.5, 0, 0, np.nan, 0])
    np.testing.assert_array_equal(
        run(lambda v: logical.ClampOp(v, min=0.0), x), [0, 0, 0.25, 2, np.nan, np.inf]
    )
    # Bounds the wrong way round: the larger one wins.
    np.testing.assert_array_equal(run(lambda v: logical.ClampOp(v, 1.0, 0.0), x[:4]), [0, 0, 0, 0])
    large = np.array([-(2**62) - 1, 2**62 + 1, 5], np.int64)
    assert run(lambda v: logical.ClampOp(v, -(2**62), 2**62), large).tolist() == [-(2**62), 2**62, 5]
    third = run(lambda v: logical.ClampOp(v, 1 / 3), np.zeros(1, np.float16))
    assert third.tolist() == [float(np.float16(1 / 3))]


def test_logic() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert run(logical.AndOp, a, b).tolist() == [False, False, False, True]
    assert run(logical.OrOp, a, b).tolist() == [False, True, True, True]
    assert run(logical.XorOp, a, b).tolist() == [False, True, True, False]
    assert run(logical.NotOp, b).tolist() == [True, False, True, False]
    assert run(logical.NotOp, np.array([0, -1, 5], np.int32)).tolist() == [-1, 0, -6]
    assert run(logical.NotOp, np.array([0, 255, 5], np.uint8)).tolist() == [255, 0, 250]


@pytest.mark.parametrize("predicate", logical.PREDICATES)
def test_compare(predicate: logical.Predicate) -> None:
    a, b = np.array([1.0, 2.0, 3.0, np.nan]), np.array([2.0, 2.0, 2.0, 2.0])
    table = {"eq": "0100", "ne": "1011", "lt": "1000", "le": "1100", "gt": "0010", "ge": "0110"}
    expected = np.array([digit == "1" for digit in table[predicate]])
    result = run(lambda x, y: logical.CompareOp(predicate, x, y), a, b)
    assert result.dtype == np.bool_
    np.testing.assert_array_equal(result, expected)


def test_select_ignores_the_branch_not_taken() -> None:
    condition = np.array([True, False])
    result = run(logical.SelectOp, condition, np.array([1.0, np.nan]), np.array([np.inf, 2.0]))
    np.testing.assert_array_equal(result, [1.0, 2.0])


@settings(deadline=None, max_examples=40)
@given(
    seed=seeds,
    batch=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)),
    transpose_a=st.booleans(),
    transpose_b=st.booleans(),
    shared=st.booleans(),
)
def test_matmul(seed, batch, sizes, transpose_a, transpose_b, shared) -> None:
    m, k, n = sizes
    a, b = floats(seed, (*batch, m, k)), floats(seed + 1, (*(() if shared else batch), k, n))
    expected = np.zeros((*batch, m, n))
    for index in np.ndindex(*batch):
        right = b if shared else b[index]
        for i, j in np.ndindex(m, n):
            expected[(*index, i, j)] = math.fsum(a[(*index, i, p)] * right[p, j] for p in range(k))
    given_a = np.swapaxes(a, -1, -2) if transpose_a else a
    given_b = np.swapaxes(b, -1, -2) if transpose_b else b
    flags = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    close(run(lambda x, y: logical.MatmulOp(x, y, **flags), given_a, given_b), expected)


@pytest.mark.parametrize(
    ("a_batch", "b_batch"), [((2, 1), (3,)), ((), (3,)), ((2, 3), (1,)), ((4, 1, 3), (2, 1)), ((1,), (5,))]
)
def test_matmul_broadcasts_batches(a_batch: tuple[int, ...], b_batch: tuple[int, ...]) -> None:
    a, b = floats(0, (*a_batch, 2, 3)), floats(1, (*b_batch, 3, 4))
    batch = np.broadcast_shapes(a_batch, b_batch)
    wide_a, wide_b = np.broadcast_to(a, (*batch, 2, 3)), np.broadcast_to(b, (*batch, 3, 4))
    result = run(logical.MatmulOp, a, b)
    assert result.shape == (*batch, 2, 4)
    for index in np.ndindex(*batch):
        close(result[index], np.einsum("mk,kn->mn", wide_a[index], wide_b[index]))


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_linear(batch: tuple[int, ...]) -> None:
    x, weight, bias = floats(0, (*batch, 5)), floats(1, (4, 5)), floats(2, (4,))
    expected = np.einsum("...k,nk->...n", x, weight)
    close(run(logical.LinearOp, x, weight), expected)
    close(run(logical.LinearOp, x, weight, bias), expected + bias)


@settings(deadline=None, max_examples=40)
@given(shape=shapes, seed=seeds, data=st.data())
def test_reductions(shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1).map(sorted))
    x = floats(seed, shape)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    rows = np.transpose(x, [*kept, *axes]).reshape([*(shape[axis] for axis in kept), -1])
    for op_class, function in (
        (logical.ReduceSumOp, math.fsum),
        (logical.ReduceMeanOp, lambda row: math.fsum(row) / len(row)),
        (logical.ReduceMaxOp, max),
        (logical.ReduceMinOp, min),
        (logical.ReduceProdOp, math.prod),
        (logical.ReduceL2Op, lambda row: math.hypot(*row)),
        (logical.ReduceLogSumExpOp, special.logsumexp),
    ):
        expected = np.apply_along_axis(function, -1, rows)
        close(run(lambda value, op=op_class: op(value, axes), x), expected)
        kept_shape = [1 if axis in axes else size for axis, size in enumerate(shape)]
        kept_result = run(lambda value, op=op_class: op(value, axes, keepdims=True), x)
        close(kept_result, expected.reshape(kept_shape))


@settings(deadline=None, max_examples=20)
@given(shape=shapes, seed=seeds, data=st.data())
def test_any_and_all(shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    """What is 0 is false, in every element type; NaN is true."""
    axis = data.draw(st.integers(0, len(shape) - 1))
    truth = np.random.default_rng(seed).random(shape) < 0.5
    for x in (truth, truth.astype(np.int8) * 3, np.where(truth, np.nan, -0.0)):
        for op_class, function in ((logical.ReduceAnyOp, any), (logical.ReduceAllOp, all)):
            result = run(lambda value, op=op_class: op(value, [axis]), x)
            assert result.dtype == np.bool_
            np.testing.assert_array_equal(result, np.apply_along_axis(function, axis, truth))


@settings(deadline=None, max_examples=20)
@given(shape=shapes, seed=seeds, exclusive=st.booleans(), reverse=st.booleans(), data=st.data())
def test_cumsum(shape, seed, exclusive, reverse, data) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = floats(seed, shape)
    result = run(lambda value: logical.CumsumOp(value, axis, exclusive=exclusive, reverse=reverse), x)
    rows, sums = np.moveaxis(x, axis, -1), np.moveaxis(result, axis, -1)
    for i in range(shape[axis]):
        first, end = (i + exclusive, None) if reverse else (0, i + 1 - exclusive)
        close(sums[..., i], rows[..., first:end].sum(-1))


@settings(deadline=None, max_examples=20)
@given(shape=shapes, seed=seeds, data=st.data())
def test_indices_of_extremes(shape, seed, data) -> None:
    """Of several the lowest place; few different values make that happen, and a NaN goes before them."""
    axis = data.draw(st.integers(0, len(shape) - 1))
    whole = np.random.default_rng(seed).integers(-2, 3, shape)
    for x in (whole, np.where(whole == 2, np.nan, whole.astype(np.float64)), whole > 0):
        for op_class, sign in ((logical.ArgmaxOp, 1), (logical.ArgminOp, -1)):

            def index(row, sign=sign) -> int:
                keys = [np.inf if value != value else sign * float(value) for value in row]
                return keys.index(max(keys))

            result = run(lambda value, op=op_class: op(value, axis), x)
            assert result.dtype == np.int64
            np.testing.assert_array_equal(result, np.apply_along_axis(index, axis, x))
            kept = run(lambda value, op=op_class: op(value, axis, keepdims=True), x)
            np.testing.assert_array_equal(kept, np.expand_dims(result, axis))


def test_logsumexp_of_infinities() -> None:
    """The largest element may be infinite, which no difference survives; or large enough to overflow."""
    x = np.array([[-np.inf, -np.inf], [np.inf, 1.0], [np.nan, 1.0], [1000.0, 1000.0]])
    result = run(lambda value: logical.ReduceLogSumExpOp(value, [1]), x)
    np.testing.assert_allclose(result, [-np.inf, np.inf, np.nan, 1000 + math.log(2)])


@settings(deadline=None, max_examples=30)
@given(shape=shapes, seed=seeds, data=st.data())
def test_normalisations(shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = floats(seed, shape)
    close(run(lambda value: logical.SoftmaxOp(value, axis), x), special.softmax(x, axis=axis))
    scale, bias = floats(seed + 1, shape[axis:]), floats(seed + 2, shape[axis:])
    axes = tuple(range(axis, len(shape)))
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    expected = (x - mean) / np.sqrt(variance + 0.01) * scale + bias
    close(
        run(lambda *values: logical.LayerNormOp(*values, axis=axis, epsilon=0.01), x, scale, bias), expected
    )
    close(run(lambda value: logical.LogSoftmaxOp(value, axis), x), special.log_softmax(x, axis=axis))
    root = np.sqrt(np.mean(x**2, axis=axes, keepdims=True) + 0.01)
    close(
        run(lambda *values: logical.RmsNormOp(*values, axis=axis, epsilon=0.01), x, scale), x / root * scale
    )


@pytest.mark.parametrize("rest", [(), (5,), (3, 2)])
def test_normalisations_of_channels(rest: tuple[int, ...]) -> None:
    x, scale, bias, mean = floats(0, (2, 6, *rest)), floats(1, (6,)), floats(2, (6,)), floats(3, (6,))
    variance = floats(4, (6,), 0.1)
    result = run(lambda *values: logical.BatchNormOp(*values, epsilon=0.01), x, scale, bias, mean, variance)
    for c in range(6):
        close(result[:, c], (x[:, c] - mean[c]) / math.sqrt(variance[c] + 0.01) * scale[c] + bias[c])
    result = run(lambda *values: logical.GroupNormOp(*values, groups=3, epsilon=0.01), x, scale, bias)
    for n, c in np.ndindex(2, 6):
        group = x[n, c // 2 * 2 : c // 2 * 2 + 2]
        deviation = math.sqrt(group.var() + 0.01)
        close(result[n, c], (x[n, c] - group.mean()) / deviation * scale[c] + bias[c])


def test_lstm() -> None:
    x = np.array([[[0.0, 1.0, 2.0, 3.0]], [[-1.0, 0.5, 0.0, -2.0]]])
    weight, first = np.array([[1.0], [0.0], [-1.0], [0.5]]), np.array([[[0.25]], [[0.75]]])

    def sigmoid(z: float) -> float:
        return 1 / (1 + math.exp(-z))

    c1 = sigmoid(2 - 0.25) * 0.75 + sigmoid(0.25) * math.tanh(3.125)
    h1 = sigmoid(1) * math.tanh(c1)
    c2 = sigmoid(-h1) * c1 + sigmoid(h1 - 1) * math.tanh(h1 / 2 - 2)
    h2 = sigmoid(0.5) * math.tanh(c2)
    forwards = run(logical.LstmOp, x, weight, first)
    close(forwards, np.array([h1, h2, c1, c2]).reshape(2, 2, 1, 1))
    turned = run(lambda *values: logical.LstmOp(*values, reverse=True), x[::-1].copy(), weight, first)
    close(turned, np.array([h2, h1, c2, c1]).reshape(2, 2, 1, 1))


def test_non_max_suppression() -> None:
    """Boxes 0 and 1 share 2 of 6, 1 and 2 the same, 0 and 2 nothing; box 3 has no area, box 4 a NaN in it."""
    boxes = np.array([[[0.0, 0, 2, 2], [2, 3, 0, 1], [0, 2, 2, 4], [1, 1, 1, 1], [0, 0, 2, math.nan]]])
    scores = np.array([[[1.0, 3, 2, 0, 1], [3, 3, 3, -math.inf, math.nan]]])
    third = np.array(0.3)
    kept = run(lambda *values: logical.NonMaxSuppressionOp(*values, limit=4), boxes, scores, third)
    assert kept.tolist() == [[[1, 4, 3, -1], [0, 2, 3, -1]]]
    kept = run(
        lambda *values: logical.NonMaxSuppressionOp(*values, limit=2), boxes, scores, np.array(0.5), third
    )
    assert kept.tolist() == [[[1, 2], [0, 1]]]
    sized = np.array([[[1.0, 1, 2, 2], [1, 2, 2, 2], [1, 2, -2, 2]]])
    scores = np.array([[[1.0, 2, 3]]])
    kept = run(
        lambda *values: logical.NonMaxSuppressionOp(*values, limit=3, centred=True), sized, scores, third
    )
    assert kept.tolist() == [[[2, 1, -1]]]


def test_poolings() -> None:
    x = np.array([[[1.0, -4.0, 3.0, 3.0, 2.0]]])
    windows = ([2], [2], [2], [1], [2])  # at -1, 1, 3 and 5: (-4), (-4, 3), (3) and nothing
    close(run(lambda v: logical.MaxPoolOp(v, *windows), x[..., :4]), np.array([[[-4.0, 3.0, 3.0]]]))
    indices = run(lambda v: logical.MaxPoolIndicesOp(v, [3], [2], ceil_mode=True), x)
    assert indices.tolist() == [[[2, 2]]]
    close(run(lambda v: logical.AvgPoolOp(v, *windows), x[..., :4]), np.array([[[-4.0, -0.5, 3.0]]]))
    padded = run(lambda v: logical.AvgPoolOp(v, *windows, count_include_pad=True), x[..., :4])
    close(padded, np.array([[[-2.0, -0.5, 1.5]]]))
    close(run(lambda v: logical.LpPoolOp(v, 2, [2], [3]), x), np.array([[[math.sqrt(17), math.sqrt(13)]]]))


def test_gradients_of_the_largest_by_hand() -> None:
    x, grad = np.array([[[1.0, -4.0, 3.0, 3.0, 2.0]]]), np.array([[[10.0, 100.0, 1000.0]]])
    windows = ([2], [2], [1], [1])  # at -1, 1 and 3: (1), (-4, 3) and (3, 2)
    taps = run(lambda v: logical.MaxPoolTapsOp(v, *windows), x)
    assert taps.dtype == np.int8 and taps.tolist() == [[[1, 1, 0]]]
    found = run(lambda t, g: logical.MaxPoolGradOp(t, g, [5], *windows), taps, grad)
    assert found.tolist() == [[[10.0, 0.0, 100.0, 1000.0, 0.0]]]
    both = run(lambda t, g: logical.MaxPoolGradOp(t, g, [3], [3]), np.array([[[0]]], np.int8), grad[..., :1])
    assert both.tolist() == [[[10.0, 0.0, 0.0]]]


def test_blocks_by_hand() -> None:
    """Two halves and 16 bytes: the low bits of the bytes come first."""
    halves = np.array([0.5, -1.0], np.float16).view(np.uint8)
    packed = np.concatenate([halves, np.full(16, 0x2F, np.uint8)])[None]
    wanted = [0.5 * 15 - 1] * 16 + [0.5 * 2 - 1] * 16
    assert run(lambda v: logical.DequantizeBlocksOp(v, "Q4_1"), packed).tolist() == [wanted]
    x = np.arange(64, dtype=np.float32).reshape(2, 32)
    found = run(lambda v, w: logical.MatmulBlocksOp(v, w, "Q4_1"), x, packed)
    assert found.tolist() == [[6.5 * 120], [6.5 * (120 + 16 * 32)]]


def test_rounded_activations_by_hand() -> None:
    """A step of 1 for the first 32 elements and of 2 for the others; a half goes to the even neighbour."""
    packed = np.tile(
        np.concatenate([np.array([1.0, 0.0], np.float16).view(np.uint8), np.full(16, 0x11, np.uint8)]), 2
    )
    x = np.zeros((1, 64), np.float32)
    x[0, [0, 1, 2, 3]], x[0, [32, 40, 41]] = [127, 2.5, -3.5, 0.4], [-254, 1.1, 0.9]
    found = run(lambda v, w: logical.RoundedMatmulBlocksOp(v, w, "Q4_1"), x, packed[None])
    assert found.tolist() == [[127 + 2 - 4 + 0 - 254 + 2 + 0]]


def test_a_pooling_that_finds_nothing() -> None:
    x = np.array([[[5]]], np.int8)
    assert run(lambda v: logical.MaxPoolOp(v, [1], None, None, [1]), x).tolist() == [[[-128, 5]]]
    assert run(lambda v: logical.MaxPoolIndicesOp(v, [1], None, None, [1]), x).tolist() == [[[1, 0]]]
    (empty, found) = run(lambda v: logical.AvgPoolOp(v, [1], None, None, [1]), x.astype(np.float64))[0, 0]
    assert math.isnan(empty) and found == 5


def test_convolutions_by_hand() -> None:
    x, weight = np.arange(1.0, 6.0).reshape(1, 1, 5), np.array([[[1.0, 10.0]]])
    lists = {"low": [1], "high": [0], "strides": [2], "dilations": [2]}
    seen = run(lambda a, w: logical.ConvOp(a, w, **lists), x, weight)
    assert seen.tolist() == [[[20.0, 42.0]]]
    spread = run(lambda a, w: logical.ConvTransposeOp(a, w, **lists, extra=[1]), seen, weight)
    assert spread.tolist() == [[[0.0, 242.0, 0.0, 420.0, 0.0]]]


def test_gradients_of_weights_by_hand() -> None:
    x, grad = np.arange(1.0, 6.0).reshape(1, 1, 5), np.array([[[1.0, 10.0]]])
    lists = {"low": [1], "strides": [2], "dilations": [2]}
    found = run(lambda a, g: logical.ConvWeightGradOp(a, g, [3], **lists), x, grad)
    assert found.tolist() == [[[20.0, 42.0, 4.0]]]  # elements 0 + 2, 2 + 4 and 4 + none


def test_groups_of_channels_see_their_own() -> None:
    x, weight = np.array([1.0, 2.0]).reshape(1, 2, 1), np.array([10.0, 100.0]).reshape(2, 1, 1)
    lists = {"low": [0], "high": [0], "strides": [1], "dilations": [1], "groups": 2}
    assert run(lambda a, w: logical.ConvOp(a, w, **lists), x, weight).ravel().tolist() == [10.0, 200.0]
    both = run(lambda a, w: logical.ConvTransposeOp(a, w, **lists, extra=[0]), x, weight)
    assert both.ravel().tolist() == [10.0, 200.0]
    own = run(lambda a, g: logical.ConvWeightGradOp(a, g, [1], groups=2), x, both)
    assert own.ravel().tolist() == [10.0, 400.0]


def test_softmax_of_large_values() -> None:
    result = run(lambda value: logical.SoftmaxOp(value, 0), np.array([1000.0, 1000.0, -1000.0]))
    close(result, np.array([0.5, 0.5, 0.0]))


def test_views() -> None:
    x = floats(0, (2, 3, 4))
    close(run(lambda value: logical.ReshapeOp(value, (6, 4)), x), x.reshape(6, 4))
    transposed = run(lambda value: logical.TransposeOp(value, (2, 0, 1)), x)
    assert all(transposed[k, i, j] == x[i, j, k] for i, j, k in np.ndindex(2, 3, 4))
    sliced = run(lambda value: logical.SliceOp(value, (0, 1, 0), (-1, 2, 2), (1, 1, 3)), x)
    close(sliced, x[:, 1:3, ::3])
    windows = run(lambda value: logical.WindowOp(value, (2, 2), (1, 2), (2, 1)), x)
    assert windows.shape == (2, 1, 2, 2, 2)
    assert all(
        windows[n, i, j, k, m] == x[n, i + 2 * k, 2 * j + m] for n, i, j, k, m in np.ndindex(2, 1, 2, 2, 2)
    )
    joined = run(lambda *values: logical.ConcatOp(values, 1), x, x[:, :1], x)
    close(joined, np.concatenate([x, x[:, :1], x], axis=1))
    row = floats(1, (3, 1))
    repeated = run(lambda value: logical.BroadcastOp(value, (1, 2), (2, 3, 4)), row)
    assert all(repeated[i, j, k] == row[j, 0] for i, j, k in np.ndindex(2, 3, 4))


def test_constants() -> None:
    for value, type_ in ((0.5, tensor((2, 3), "f32")), ([[1, -2]], tensor((1, 2), "i32"))):
        op = logical.ConstantOp(value, type_)
        COVERED.add(type(op))
        (result,) = evaluate(op, [], "typed")
        assert result.dtype == op.info.element.dtype
        np.testing.assert_array_equal(result, np.broadcast_to(value, op.info.shape))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8])
def test_integer_arithmetic_wraps_and_division_truncates(dtype: type) -> None:
    limits = np.iinfo(dtype)
    values = np.unique(
        np.array([limits.min, limits.max, 0, 1, 2, 3, 7, 100] + ([-1, -2, -7] * (limits.min < 0)))
    )
    a, b = (grid.ravel().astype(dtype) for grid in np.meshgrid(values, values))
    span = 1 << limits.bits

    def wrapped(exact: int) -> int:
        low = exact % span
        return low - span if low > limits.max else low

    def quotient(x: int, y: int) -> int:
        return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    for op_class, function in (
        (logical.AddOp, int.__add__),
        (logical.SubOp, int.__sub__),
        (logical.MulOp, int.__mul__),
        (logical.DivOp, quotient),
        (logical.MaxOp, max),
        (logical.MinOp, min),
        (logical.FloorDivOp, lambda x, y: x // y if y else 0),
        (logical.ModOp, lambda x, y: x % y if y else x),
        (logical.AndOp, int.__and__),
        (logical.OrOp, int.__or__),
        (logical.XorOp, int.__xor__),
        (logical.ShiftLeftOp, lambda x, y: x << y if 0 <= y < limits.bits else 0),
        (logical.ShiftRightOp, lambda x, y: x >> (y if 0 <= y < limits.bits else limits.bits)),
    ):
        expected = [wrapped(function(x, y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        for mode in ("exact", "typed"):
            result = run(op_class, a, b, mode=mode)
            assert result.dtype == dtype
            assert result.tolist() == expected, op_class


def test_bitcasts_keep_the_bytes() -> None:
    x = np.array([1.0, -2.5, 0.0], np.float32)
    for mode in ("exact", "typed"):
        bits = run(lambda a: logical.BitcastOp(a, "i32"), x, mode=mode)
        assert bits.tobytes() == x.tobytes()
        assert run(lambda a: logical.BitcastOp(a, "f32"), bits, mode=mode).tolist() == x.tolist()
    truth = run(lambda a: logical.BitcastOp(a, "i1"), np.array([0, 1, 254], np.uint8))
    assert truth.tolist() == [False, True, True]


def test_integer_products_and_sums_wrap() -> None:
    a = np.full((1, 3), 100, np.int8)
    assert run(lambda x, y: logical.MatmulOp(x, y, transpose_b=True), a, a).tolist() == [
        [(30000 + 128) % 256 - 128]
    ]
    assert run(lambda x: logical.ReduceSumOp(x, [1]), a).tolist() == [(300 + 128) % 256 - 128]
    sums = run(lambda x: logical.CumsumOp(x, 1), a)
    assert sums.dtype == np.int8 and sums.tolist() == [[100, -56, 44]]
    assert run(lambda x: logical.ReduceProdOp(x, [1]), a).tolist() == [(1000000 + 128) % 256 - 128]


def test_extrema_propagate_nan() -> None:
    x, one = np.array([np.nan, 1.0]), np.ones(2)
    for op_class in (logical.MaxOp, logical.MinOp):
        assert np.isnan(run(op_class, x, one)[0]) and np.isnan(run(op_class, one, x)[0])
    assert np.isnan(run(logical.ReluOp, x)[0])
    for op_class in (logical.ReduceMaxOp, logical.ReduceMinOp):
        assert np.isnan(run(lambda value, op=op_class: op(value, [0]), x))


@pytest.mark.parametrize("target", ["i8", "u8", "i16", "i32", "i64"])
def test_float_to_integer_truncates_and_saturates(target: str) -> None:
    limits = np.iinfo(logical.CastOp(arguments(np.ones(1))[0], target).info.element.dtype)
    x = np.array([1.9, -0.9, np.nan, np.inf, -np.inf, 1e30, -1e30, float(limits.max), float(limits.min)])
    expected = [1, 0, 0, limits.max, limits.min, limits.max, limits.min, limits.max, limits.min]
    assert run(lambda value: logical.CastOp(value, target), x).tolist() == expected


def test_other_casts() -> None:
    assert run(lambda x: logical.CastOp(x, "i8"), np.array([300, -129], np.int32)).tolist() == [44, 127]
    assert run(lambda x: logical.CastOp(x, "i1"), np.array([0.0, -0.0, 0.5, np.nan])).tolist() == [0, 0, 1, 1]
    assert run(lambda x: logical.CastOp(x, "f32"), np.array([True, False])).tolist() == [1.0, 0.0]
    third = np.array([1 / 3])
    assert run(lambda x: logical.CastOp(x, "f16"), third)[0] == 1 / 3
    assert run(lambda x: logical.CastOp(x, "f16"), third, mode="typed")[0] == np.float16(1 / 3)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_typed_values_are_rounded_once_per_op(dtype: type) -> None:
    x = floats(3, (4, 64)).astype(dtype)
    product = run(lambda a, b: logical.MatmulOp(a, b, transpose_b=True), x, x, mode="typed")
    assert product.dtype == dtype
    exact = x.astype(np.float64) @ x.astype(np.float64).T
    # Half a unit for the rounding of the result, and a little for the accumulation in f32 below it.
    unit = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(product.astype(np.float64), exact, rtol=0.55 * unit, atol=1e-5)


def test_results_do_not_depend_on_the_layout_of_operands() -> None:
    x = floats(4, (33, 65))
    column_major = np.asarray(x, order="F")
    for make in (lambda value: logical.ReduceSumOp(value, [1]), lambda value: logical.SoftmaxOp(value, 0)):
        assert run(make, x).tobytes() == run(make, column_major).tobytes()
    for transpose_b in (False, True):
        y = x if transpose_b else np.ascontiguousarray(x.T)
        products = [
            run(lambda a, b, flag=transpose_b: logical.MatmulOp(a, b, transpose_b=flag), *operands).tobytes()
            for operands in ((x, y), (column_major, np.asarray(y, order="F")))
        ]
        assert products[0] == products[1]


def test_typed_f16_sums_accumulate_in_f32() -> None:
    ones = np.ones((1, 4096), np.float16)
    assert run(lambda x: logical.ReduceSumOp(x, [1]), ones, mode="typed").tolist() == [4096.0]
    mean = run(lambda x: logical.ReduceMeanOp(x, [1]), np.full((1, 4097), 60000, np.float16), mode="typed")
    assert mean.tolist() == [60000.0]


def test_iota_counts_along_its_axis() -> None:
    op = logical.IotaOp(1, (2, 3), "f32")
    COVERED.add(type(op))
    (result,) = evaluate(op, [], "exact")
    assert result.tolist() == [[0.0, 1.0, 2.0]] * 2


def test_pad_flip_tile() -> None:
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    padded = run(lambda a, v: logical.PadOp(a, v, (1, 0), (0, 2)), x, np.array(9.0))
    assert padded.tolist() == [[9, 9, 9, 9], [1, 2, 9, 9], [3, 4, 9, 9]]
    assert run(lambda a: logical.FlipOp(a, (0, 1)), x).tolist() == [[4, 3], [2, 1]]
    assert run(lambda a: logical.TileOp(a, (1, 2)), x).tolist() == [[1, 2, 1, 2], [3, 4, 3, 4]]


def test_indices_that_read_count_from_the_end_and_are_clamped() -> None:
    x = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    rows = run(lambda a, i: logical.GatherOp(a, i, 1), x, np.array([[0, -1], [7, -9]], np.int32))
    assert rows.tolist() == [[[1, 3], [3, 1]], [[4, 6], [6, 4]]]
    found = run(lambda a, i: logical.GatherElementsOp(a, i, 0), x, np.array([[1, -2], [5, -5]]))
    assert found.tolist() == [[4, 2], [4, 2]]


def test_one_hot_of_indices_out_of_range_is_off() -> None:
    indices, on, off = np.array([1, -1, 3, -4]), np.array(5.0), np.array(-1.0)
    hot = run(lambda i, a, b: logical.OneHotOp(i, a, b, 1, 3), indices, on, off)
    assert hot.tolist() == [[-1, 5, -1], [-1, -1, 5], [-1, -1, -1], [-1, -1, -1]]


def test_scatter_combines_in_order_and_drops_what_is_out_of_range() -> None:
    x, rows = np.array([1.0, 2.0, 3.0]), np.array([0, -1, 0, 3, -4], np.int32)
    updates = np.array([10.0, 20.0, 30.0, 40.0, 50.0])
    found = {
        mode: run(lambda a, i, u, mode=mode: logical.ScatterOp(a, i, u, mode), x, rows, updates).tolist()
        for mode in logical.SCATTER_MODES
    }
    combined = {"add": [41, 2, 23], "max": [30, 2, 20], "min": [1, 2, 3], "mul": [300, 2, 60]}
    assert found == {"set": [30, 2, 20], **combined}
    assert (
        run(lambda a, i, u: logical.ScatterCombineOp(a, i, u, "add"), x, rows, updates).tolist()
        == found["add"]
    )
    assert run(lambda i: logical.LastUpdateOp(i, 4), rows).tolist() == [4, -1, -1, 3]


@pytest.mark.parametrize(
    ("index", "wanted"), [(1, [[1, 9, 3], [4, 8, 6]]), (-3, [[9, 2, 3], [8, 5, 6]]), (3, None)]
)
def test_one_row_is_written_where_the_index_is_in_range(index: int, wanted: list[list[int]] | None) -> None:
    x, row = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.array([[9.0], [8.0]])
    written = run(lambda r, i, a: logical.WriteRowOp(r, i, a, 1), row, np.array(index), x)
    assert written.tolist() == (x.tolist() if wanted is None else wanted)


def test_each_leading_dimension_has_a_row_written_at_its_index() -> None:
    x, row = np.arange(8.0).reshape(2, 2, 2), np.array([[[-1.0, -2.0]], [[-3.0, -4.0]]])
    written = run(lambda r, i, a: logical.WriteRowOp(r, i, a, 1), row, np.array([-1, 2]), x)
    assert written.tolist() == [[[0, 1], [-1, -2]], [[4, 5], [6, 7]]]


def test_scatter_along_an_axis_and_at_indices() -> None:
    x = np.zeros((2, 3))
    elements = run(
        lambda a, i, u: logical.ScatterElementsOp(a, i, u, 1, "add"),
        x, np.array([[2, 2], [-3, 9]]), np.array([[1.0, 2.0], [3.0, 4.0]]),
    )  # fmt: skip
    assert elements.tolist() == [[0, 0, 3], [3, 0, 0]]
    indices = np.array([[1, 0], [1, -1], [2, 0], [0, -4]])
    found = run(logical.ScatterNdOp, x, indices, np.array([1.0, 2.0, 3.0, 4.0]))
    assert found.tolist() == [[0, 0, 0], [1, 0, 2]]
    rows = run(logical.ScatterNdOp, x, np.array([[-1]]), np.array([[1.0, 2.0, 3.0]]))
    assert rows.tolist() == [[0, 0, 0], [1, 2, 3]]


def test_topk_takes_the_lower_index_first_and_nan_as_largest() -> None:
    x = np.array([[2.0, 5.0, np.nan, 5.0, -0.0, 0.0]])
    assert run(lambda a: logical.TopkIndicesOp(a, 1, 6), x).tolist() == [[2, 1, 3, 0, 4, 5]]
    assert run(lambda a: logical.TopkIndicesOp(a, 1, 3, smallest=True), x).tolist() == [[4, 5, 0]]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_has_the_known_answers(counter: str, key: str, words: str) -> None:
    """The vectors that Random123 publishes for philox4x32 with ten rounds."""
    made = philox4x32(*([np.array([int(w, 16)], np.uint64) for w in text.split()] for text in (counter, key)))
    assert " ".join(f"{int(word[0]):08x}" for word in made) == words


def philox(form: logical.PhiloxForm, shape: tuple[int, ...], element: str, seed: int, offset: int) -> Array:
    key = (np.array(seed, np.int64), np.array(offset, np.int64))
    return run(lambda s, o: logical.PhiloxOp(s, o, shape, form, element), *key)


def test_philox_numbers_elements_in_row_major_order() -> None:
    """Element i has word i mod 4 of counter offset + i/4, of which the last one is followed by 0."""
    seed = 0x299F31D0 << 32 | 0xA4093822
    bits = philox("bits", (3, 5), "i32", seed, -2)
    key = [np.array([seed & 0xFFFFFFFF], np.uint64), np.array([seed >> 32], np.uint64)]
    wanted: list[int] = []
    for counter in (2**64 - 2, 2**64 - 1, 0, 1):
        halves = [np.array([h], np.uint64) for h in (counter & 0xFFFFFFFF, counter >> 32, 0, 0)]
        wanted += [int(word[0]) for word in philox4x32(halves, key)]
    assert bits.dtype == np.int32
    assert bits.reshape(-1).view(np.uint32).tolist() == wanted[:15]
    later = philox("bits", (11,), "i32", seed, -1)
    assert later.tolist() == bits.reshape(-1)[4:].tolist()
    assert philox("bits", (), "i32", seed, -1) == later[0]
    index = np.array([[0, 7, -1], [2**62, 14, 3]])
    words = run(logical.PhiloxWordOp, np.full_like(index, seed), np.full_like(index, -2), index)
    assert words[0, :2].tolist() == bits.reshape(-1)[[0, 7]].tolist() and words[1, 1] == bits[2, 4]
    assert words[0, 2] == philox("bits", (4,), "i32", seed, 2**62 - 3)[3]


@pytest.mark.parametrize(("element", "digits"), [("f16", 11), ("bf16", 8), ("f32", 24), ("f64", 32)])
def test_philox_uniform_and_normal(element: str, digits: int) -> None:
    """Uniform numbers are multiples of a power of two; pairs of them make the normal ones."""
    bits = philox("bits", (4001,), "i32", 7, 5).view(np.uint32).astype(np.float64)
    uniform = philox("uniform", (4001,), element, 7, 5)
    if element == "f64":
        assert np.array_equal(uniform, (bits / 2**32 + 0.5) % 1)
    else:
        assert np.array_equal(uniform, bits % 2**digits / 2**digits)
    assert np.array_equal(uniform, uniform.astype(element_named(element).dtype))
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    u, v = philox("uniform", (4002,), "f64" if element == "f64" else "f32", 7, 5).reshape(-1, 2).T
    radius, angle = np.sqrt(-2 * np.log1p(-u)), 2 * np.pi * v
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
    np.testing.assert_allclose(philox("normal", (4001,), element, 7, 5), pairs[:-1], rtol=0, atol=2e-6)


def test_dropout_keeps_by_the_uniform_numbers() -> None:
    x = np.random.default_rng(3).standard_normal((20, 33))
    x[0, :4] = np.nan
    key = (np.array(11), np.array(2**63 - 1))
    dropped = run(lambda a, s, o: logical.DropoutOp(a, s, o, 0.25), x, *key)
    kept = philox("uniform", (20, 33), "f32", 11, 2**63 - 1) >= 0.25
    np.testing.assert_allclose(dropped, np.where(kept, x / 0.75, 0.0), rtol=1e-15)
    assert 0.7 < kept.mean() < 0.8 and not kept[0, :4].all()
    single = run(lambda a, s, o: logical.DropoutOp(a, s, o, 0.25), x.astype(np.float32), *key)
    assert np.array_equal(single == 0, ~kept)
    whole = run(lambda a, s, o: logical.DropoutOp(a, s, o, 0.0), x, *key)
    assert np.array_equal(whole, x, equal_nan=True)


def test_attention() -> None:
    q, k = np.array([[[1.0], [0.0]]]), np.array([[[0.0], [np.log(3.0)]]])
    v = np.array([[[0.0], [4.0]]])
    every = run(logical.AttentionOp, q, k, v)
    np.testing.assert_allclose(every, [[[3.0], [2.0]]], rtol=1e-15)
    past = run(lambda *a: logical.AttentionOp(*a, causal=True), q, k, v)
    np.testing.assert_allclose(past, [[[0.0], [2.0]]], rtol=1e-15)


def test_losses_of_pairs() -> None:
    x, target = np.array([[0.0, 2.0], [-1.0, 0.5]]), np.array([[0.0, 0.0], [1.0, 0.25]])
    close(run(lambda *a: logical.MseLossOp(*a, "none"), x, target), np.array([[0.0, 4.0], [4.0, 0.0625]]))
    assert run(logical.MseLossOp, x, target) == 8.0625 / 4
    huber = [[0.0, 0.5 * (2.0 - 0.25)], [0.5 * (2.0 - 0.25), 0.03125]]
    close(run(lambda *a: logical.HuberLossOp(*a, "none", 0.5), x, target), np.array(huber))
    assert run(lambda *a: logical.HuberLossOp(*a, "sum"), x, target) == 1.5 + 1.5 + 0.03125
    wanted = [[math.log(2), math.log1p(math.exp(2))], [math.log1p(math.exp(-1)) + 1, 0.8490769840]]
    found = run(lambda *a: logical.BceWithLogitsOp(*a, "none"), x, target)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    far = run(lambda *a: logical.BceWithLogitsOp(*a, "none"), np.array([1e4, -1e4]), np.array([0.0, 1.0]))
    assert far.tolist() == [1e4, 1e4]


def test_cross_entropy_picks_the_label_and_leaves_out_the_ignored() -> None:
    x = np.log(np.array([[1.0, 3.0], [1.0, 1.0], [2.0, 8.0], [5.0, 1.0]]))
    labels = np.array([0, 1, -100, 1])
    each = [math.log(4), math.log(2), 0.0, math.log(6)]
    close(run(lambda *a: logical.CrossEntropyOp(*a, 1, "none"), x, labels), np.array(each))
    close(run(lambda *a: logical.CrossEntropyOp(*a, 1), x, labels), np.array(sum(each) / 3))
    close(run(lambda *a: logical.CrossEntropyOp(*a, 0, "sum"), x.T, labels), np.array(sum(each)))
    smooth = run(lambda *a: logical.CrossEntropyOp(*a, 1, "none", label_smoothing=0.5), x, labels)
    close(smooth[0], np.array(0.75 * math.log(4) + 0.25 * math.log(4 / 3)))
    assert np.isnan(run(lambda *a: logical.CrossEntropyOp(*a, 1), x, np.full(4, -100)))
    outside = run(lambda *a: logical.CrossEntropyOp(*a, 1, "none"), x, np.array([2, -1, -100, 0]))
    assert np.isnan(outside).tolist() == [True, True, False, False]


def test_what_is_saved_is_what_it_was() -> None:
    x = np.array([-0.0, np.nan, 3.0])
    assert run(logical.SaveOp, x).tobytes() == x.tobytes()
    assert run(logical.DetachOp, x).tobytes() == x.tobytes()


def test_counters() -> None:
    assert run(logical.StepIncOp, np.array(41)) == 42
    close(run(lambda n: logical.BiasCorrOp(n, 0.5, "f64"), np.array(3)), np.array(0.875))
    assert run(lambda n: logical.BiasCorrOp(n, 0.0), np.array(3)) == 1.0
    warm = [run(lambda n: logical.LearningRateOp(n, "constant", 0.5, 4), np.array(n)) for n in (1, 4, 99)]
    assert warm == [0.125, 0.5, 0.5]
    half = logical.LearningRateOp
    for schedule, middle in (("linear", 0.3125), ("cosine", 0.3125)):
        rates = [run(lambda n, s=schedule: half(n, s, 0.5, 0, 8, 0.125), np.array(n)) for n in (1, 5, 9, 50)]
        np.testing.assert_allclose(rates, [0.5, middle, 0.125, 0.125], rtol=1e-7)
    every = [run(lambda n: logical.StepRateOp(n, 0.5, 0.25, 0, 3), np.array(n)) for n in (1, 3, 4, 7)]
    assert every == [0.5, 0.5, 0.125, 0.03125]
    after = [run(lambda n: logical.StepRateOp(n, 0.5, 0.25, 0, 0, [2, 7]), np.array(n)) for n in (2, 3, 7, 8)]
    assert after == [0.5, 0.125, 0.125, 0.03125]
    cycle = logical.OneCycleRateOp
    for anneal, rising, falling in (("linear", 0.3125, 0.25), ("cosine", 0.3125, 0.25)):
        found = [
            run(lambda n, a=anneal: cycle(n, a, 0.125, 0.5, 0.0, 4.0, 13), np.array(n))
            for n in (1, 3, 5, 9, 13)
        ]
        np.testing.assert_allclose(found, [0.125, rising, 0.5, falling, 0.0], rtol=1e-6, atol=1e-7)


def test_clipping() -> None:
    parts = np.array([[1.0, -2.0], [4.0, 0.0]]), np.array(2.0), np.array([0.0])
    assert run(lambda *values: logical.GlobalNormOp(values), *parts) == 5.0
    half, whole = (run(lambda n, b=b: logical.ClipFactorOp(n, b), np.array(5.0)) for b in (2.5, 5.1))
    np.testing.assert_allclose(half, 2.5 / 5.000001, rtol=1e-14)
    assert whole == 1.0 and np.isnan(run(lambda n: logical.ClipFactorOp(n, 1.0), np.array(np.nan)))
    assert run(lambda n: logical.ClipFactorOp(n, 1.0), np.array(np.inf)) == 0.0


def test_steps_of_descent() -> None:
    """From 1 along 2 at the rate 0.5: as it is, with a penalty, and with a momentum of 4 so far."""
    given = [np.array([number]) for number in (1.0, 2.0)] + [np.array(0.5), np.array(3)]
    assert run(logical.SgdOp, *given) == 0.0
    assert run(lambda *a: logical.SgdOp(*a, weight_decay=0.5), *given) == 1 - 0.5 * 2.5
    momentum = np.array([4.0])
    moved, buffer = run_all(lambda *a: logical.SgdOp(*a[:4], a[4:], momentum=0.5), *given, momentum)
    assert (moved, buffer) == (1 - 0.5 * 4, 4)
    damped = run_all(lambda *a: logical.SgdOp(*a[:4], a[4:], momentum=0.5, dampening=0.25), *given, momentum)
    assert damped == (1 - 0.5 * 3.5, 3.5)
    first = [*given[:3], np.array(1), momentum]
    assert run_all(lambda *a: logical.SgdOp(*a[:4], a[4:], momentum=0.5, dampening=0.25), *first) == (0, 2)
    ahead = run_all(lambda *a: logical.SgdOp(*a[:4], a[4:], momentum=0.5, nesterov=True), *given, momentum)
    assert ahead == (1 - 0.5 * (2 + 0.5 * 4), 4)


def test_steps_by_moments() -> None:
    """The first step goes by the rate whatever the gradient is; a penalty joins it, or shrinks the parameter."""
    given = [np.array([number]) for number in (1.0, 2.0)] + [np.array(0.5), np.array(1)]
    zero = np.zeros(1)
    moved, first, second = run_all(
        lambda *a: logical.AdamOp(*a[:4], a[4:], 0.5, 0.75, 1.0), *given, zero, zero
    )
    assert (first, second) == (1.0, 1.0)
    close(moved, np.array([1 - 0.5 * 2 / (2 + 1)]))
    joined = run_all(
        lambda *a: logical.AdamOp(*a[:4], a[4:], 0.5, 0.75, weight_decay=1.0), *given, zero, zero
    )
    assert joined[1:] == (1.5, 2.25)
    shrunk = run_all(lambda *a: logical.AdamwOp(*a[:4], a[4:], 0.5, 0.75, 1.0, 0.5), *given, zero, zero)
    close(shrunk[0], np.array([0.75 - 0.5 * 2 / 3]))
    largest = run_all(
        lambda *a: logical.AdamwOp(*a[:4], a[4:], 0.5, 0.75, 0.0, 0.0, amsgrad=True),
        *given,
        zero,
        zero,
        4 + zero,
    )
    assert largest[1:] == (1.0, 1.0, 4.0)
    close(largest[0], np.array([1 - 0.5 * 2 / 4]))


def test_every_op_is_covered() -> None:
    if COVERED:
        assert_holds_every_op(COVERED, "the values of this file")


@pytest.mark.new_op
def test_the_table_has_every_value_op_of_the_dialect() -> None:
    assert_holds_every_op(SEMANTICS, "aicf/semantics/")
    assert all(issubclass(op, LogicalOp) for op in SEMANTICS)


def test_evaluate_block_runs_to_the_terminator() -> None:
    module = parse_module(
        """func.func @f(%x : tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
             %y = logical.add %x, %x : tensor<2xf32>
             func.return %y, %x : tensor<2xf32>, tensor<2xf32>
           }"""
    )
    block = next(iter(module.body.block.ops)).regions[0].block
    doubled, same = evaluate_block(block, [np.array([1, 2], np.float32)], "typed")
    assert doubled.tolist() == [2, 4] and same.tolist() == [1, 2]


def test_errors() -> None:
    (x,) = arguments(np.ones(3))
    with pytest.raises(
        InvalidIR, match=r"logical.exp: operand 0 is 3xf64, but the array given has shape \(4,\)"
    ):
        evaluate(logical.ExpOp(x), [np.ones(4)], "exact")
    with pytest.raises(InvalidIR, match=r"logical\.dispatch has no meaning"):
        evaluate(logical.DispatchOp("f", ["N"], [([1], "g")]), [], "exact")
    with pytest.raises(InvalidIR, match=r"logical\.gradient has no meaning .*; run differentiate first"):
        evaluate(
            logical.GradientOp(*arguments(np.array(1.0), np.ones(3))), [np.array(1.0), np.ones(3)], "exact"
        )
    splat = logical.ConstantOp(1.0, tensor([parse_size("N")], "f32"))
    with pytest.raises(InvalidIR, match="result Nxf32 has symbolic dimensions; run specialize-shapes first"):
        evaluate(splat, [], "exact")
    with pytest.raises(InvalidIR, match=r"ends without func\.return"):
        evaluate_block(Block(), [], "exact")
