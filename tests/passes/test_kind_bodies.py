"""The kind table: the body of a kind has that kind, means what NumPy says, or is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, StringAttr, f64, i64
from xdsl.ir import Attribute

from aicf.dialects.types import element_named, tensor
from aicf.passes.bodies.kinds import derive_kind
from aicf.passes.kernels.kind_definitions import NoBody, Request, kind_body
from aicf.semantics import evaluate_block

Shapes = list[tuple[int, ...]]
Formula = Callable[..., np.ndarray]
Case = tuple[str, dict[str, Attribute], Shapes, Formula]


def integer(value: int) -> Attribute:
    return IntegerAttr(value, i64)


def boolean(value: bool) -> Attribute:
    return BoolAttr.from_bool(value)


def request(
    kind: str, attrs: Mapping[str, Attribute], shapes: Shapes, result: Any, dtype: str = "f32"
) -> Request:
    element = element_named(dtype)
    types = [tensor(shape, element) for shape in (*shapes, result)]
    return Request("op", ("source",), kind, attrs, tuple(types[:-1]), (types[-1],))


def shape_of(rng: np.random.Generator, low: int = 1, high: int = 4) -> tuple[int, ...]:
    return tuple(int(size) for size in rng.integers(1, 7, rng.integers(low, high + 1)))


def elementwise(rng: np.random.Generator) -> Case:
    kind, count, formula = {
        0: ("add", 2, lambda a, b: a + b),
        1: ("relu", 1, lambda a: np.maximum(a, 0)),
        2: ("copy", 1, lambda a: a),
    }[int(rng.integers(3))]
    return kind, {}, [shape_of(rng)] * count, formula


def bias_add(rng: np.random.Generator) -> Case:
    shape = shape_of(rng)
    return "bias_add", {}, [shape, shape[-1:]], lambda x, b: x + b


def product_shapes(
    rng: np.random.Generator, attrs: Mapping[str, Attribute]
) -> tuple[Shapes, tuple[int, ...]]:
    m, n, k = (int(size) for size in rng.integers(1, 7, 3))
    batch = shape_of(rng, 0, 2)
    a = (k, m) if attrs["transpose_a"] == boolean(True) else (m, k)
    b = (n, k) if attrs["transpose_b"] == boolean(True) else (k, n)
    return [(*batch, *a), b if rng.integers(2) else (*batch, *b)], (*batch, m, n)


def product(attrs: Mapping[str, Attribute], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a = np.swapaxes(a, -1, -2) if attrs["transpose_a"] == boolean(True) else a
    b = np.swapaxes(b, -1, -2) if attrs["transpose_b"] == boolean(True) else b
    return a @ b


def transposes(rng: np.random.Generator) -> dict[str, Attribute]:
    return {f"transpose_{side}": boolean(bool(rng.integers(2))) for side in "ab"}


def gemm(rng: np.random.Generator) -> Case:
    attrs = transposes(rng)
    return "gemm", attrs, product_shapes(rng, attrs)[0], lambda a, b: product(attrs, a, b)


def erf(x: np.ndarray) -> np.ndarray:
    from math import erf as scalar_erf

    return np.vectorize(scalar_erf)(x)


ACTIVATIONS: dict[str, Formula] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def gemm_epilogue(rng: np.random.Generator) -> Case:
    activation = str(rng.choice(list(ACTIVATIONS)))
    bias = bool(rng.integers(2)) or activation == "none"
    residual = activation == "none" and bool(rng.integers(2))
    attrs = transposes(rng)
    shapes, result = product_shapes(rng, attrs)
    extra = ([result[-1:]] if bias else []) + ([result] if residual else [])

    def formula(a: np.ndarray, b: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        return ACTIVATIONS[activation](sum(rest, product(attrs, a, b)))

    attrs = {
        **attrs,
        "bias": boolean(bias),
        "residual": boolean(residual),
        "activation": StringAttr(activation),
    }
    return "gemm_epilogue", attrs, [*shapes, *extra], formula


def reduce_sum(rng: np.random.Generator) -> Case:
    shape = shape_of(rng)
    first = int(rng.integers(len(shape)))
    count = int(rng.integers(1, len(shape) - first + 1))
    keep = bool(rng.integers(2))
    attrs = {"first_axis": integer(first), "axis_count": integer(count), "keepdims": boolean(keep)}
    axes = tuple(range(first, first + count))
    return "reduce_sum", attrs, [shape], lambda x: x.sum(axes, keepdims=keep)


def sgd_step(rng: np.random.Generator) -> Case:
    number, shape = int(rng.integers(3)), shape_of(rng, 0)
    rate: tuple[int, ...] = (1,) if shape and rng.integers(2) else ()
    parameter, gradient = {0: (2, 1), 1: (2, 0), 2: (0, 1)}[number]
    shapes = [shape] * 3
    shapes[number] = rate
    attrs = {"learning_rate_operand": integer(number)}
    return "sgd_step", attrs, shapes, lambda *v: v[parameter] - v[number] * v[gradient]


def softmax(rng: np.random.Generator) -> Case:
    shape = shape_of(rng)
    axis = int(rng.integers(len(shape)))

    def formula(x: np.ndarray) -> np.ndarray:
        exponentials = np.exp(x - x.max(axis, keepdims=True))
        return exponentials / exponentials.sum(axis, keepdims=True)

    return "softmax", {"axis": integer(axis)}, [shape], formula


def layer_norm(rng: np.random.Generator) -> Case:
    shape = shape_of(rng)
    axis = int(rng.integers(len(shape)))
    epsilon = float(rng.choice([1e-5, 1e-6, 1e-12, 0.1]))
    axes = tuple(range(axis, len(shape)))

    def formula(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
        centered = x - x.mean(axes, keepdims=True)
        return centered / np.sqrt((centered**2).mean(axes, keepdims=True) + epsilon) * scale + bias

    attrs = {"axis": integer(axis), "epsilon": FloatAttr(epsilon, f64)}
    return "layernorm_fwd", attrs, [shape, shape[axis:], shape[axis:]], formula


def concat(rng: np.random.Generator) -> Case:
    shape = shape_of(rng)
    axis = int(rng.integers(len(shape)))
    parts = [
        (*shape[:axis], int(size), *shape[axis + 1 :]) for size in rng.integers(1, 5, rng.integers(1, 4))
    ]
    return "concat", {"axis": integer(axis)}, parts, lambda *v: np.concatenate(v, axis)


FAMILIES = (elementwise, bias_add, gemm, gemm_epilogue, reduce_sum, sgd_step, softmax, layer_norm, concat)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_body_has_its_kind_and_means_what_numpy_says(
    family: Callable[[np.random.Generator], Case], seed: int
):
    rng = np.random.default_rng(seed)
    kind, attrs, shapes, formula = family(rng)
    values = [rng.standard_normal(shape) for shape in shapes]
    expected = np.asarray(formula(*values))
    block = kind_body(request(kind, attrs, shapes, expected.shape))
    assert derive_kind(block) == (kind, attrs)
    (result,) = evaluate_block(block, values, "exact")
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


def test_ops_of_a_body_are_called_after_the_instruction():
    block = kind_body(request("softmax", {"axis": integer(1)}, [(2, 3)], (2, 3)))
    ids = [op.attributes["aicf.id"] for op in block.ops if "aicf.id" in op.attributes]
    assert StringAttr("op.max") in ids and StringAttr("op.div") in ids


EPILOGUE = {"transpose_a": boolean(False), "transpose_b": boolean(True)}


def epilogue(bias: bool, residual: bool, activation: str) -> dict[str, Attribute]:
    extra = {"bias": boolean(bias), "residual": boolean(residual), "activation": StringAttr(activation)}
    return {**EPILOGUE, **extra}


LOSS = {"reduction": StringAttr("none"), "grad": boolean(False)}


def flags_of(**values: bool) -> dict[str, Attribute]:
    return {name: boolean(value) for name, value in values.items()}


REFUSED: list[tuple[str, dict[str, Attribute], Shapes, tuple[int, ...], str]] = [
    (
        "generated",
        {},
        [(2,)],
        (2,),
        "kind 'generated' does not say what it computes; those that do: add, mul, relu, relu_bwd",
    ),
    ("update", {}, [(2,), (2,)], (2,), "kind 'update' does not say what it computes"),
    ("adam_step", {}, [(2,)] * 7, (2,), "without attributes has them in its body; give adam_step.v1"),
    ("mse_grad", LOSS, [(2,), (2,)], (2,), "the losses of all elements have a gradient each: grad is true"),
    ("bias_corr", {"beta": FloatAttr(1.0, f64)}, [()], (), "beta is 1.0, it lies between 0 and 1"),
    (
        "layernorm_bwd",
        {"axis": integer(1), "epsilon": FloatAttr(1e-5, f64), **flags_of(dx=False, dscale=False, dbias=True)},
        [(2, 3), (2, 3)],
        (3,),
        "it gives dx or dscale; dbias alone is a reduce_sum",
    ),
    (
        "batchnorm_bwd",
        {"epsilon": FloatAttr(1e-5, f64)},
        [(3,), (3,), (3,)],
        (3,),
        "x has rank 1; it is [N, C, ...], channels along dimension 1",
    ),
    ("softmax_bwd", {"axis": integer(3)}, [(2, 3)] * 2, (2, 3), "axis is 3, operand 1 has axes 0 to 1"),
    ("add", {}, [(2,)], (2,), "it reads 1 buffers, kind 'add' needs a, b"),
    ("add", {}, [(2,), (3,)], (2,), "operand types differ: 2xf32 and 3xf32"),
    ("relu", {}, [(2, 3)], (3, 2), "kind 'relu' of its operands gives 2x3xf32, its results are 3x2xf32"),
    ("gemm", EPILOGUE, [(2, 3), (4, 5)], (2, 4), "contracted sizes differ: lhs K = 3"),
    ("gemm_epilogue", epilogue(True, False, "relu"), [(2, 3), (4, 3)], (2, 4), "needs a, b, bias"),
    (
        "gemm_epilogue",
        epilogue(True, False, "generated"),
        [(2, 3), (4, 3), (4,)],
        (2, 4),
        "activation 'generated' is whatever its body says",
    ),
    (
        "gemm_epilogue",
        epilogue(False, True, "relu"),
        [(2, 3), (4, 3), (2, 4)],
        (2, 4),
        "a residual and activation 'relu' do not say which comes first",
    ),
    ("gemm_epilogue", epilogue(False, False, "none"), [(2, 3), (4, 3)], (2, 4), "is in f32 the body of gemm"),
    (
        "sgd_step",
        {"learning_rate_operand": integer(-1)},
        [(2,), (2,), (2,)],
        (2,),
        "stands in the body alone",
    ),
    (
        "sgd_step",
        {"learning_rate_operand": integer(2)},
        [(2,), (2,), (2,)],
        (2,),
        "has shape 2, not one element",
    ),
    ("softmax", {"axis": integer(2)}, [(2, 3)], (2, 3), "axis"),
    (
        "layernorm_fwd",
        {"axis": integer(1), "epsilon": FloatAttr(1.00000001e-5, f64)},
        [(2, 3), (3,), (3,)],
        (2, 3),
        "is in f32 the body of layernorm_fwd with axis = 1 : i64, epsilon = 1.000000e-05 : f64",
    ),
]


@pytest.mark.parametrize(("kind", "attrs", "shapes", "result", "message"), REFUSED)
def test_what_has_no_body_says_why(
    kind: str, attrs: dict[str, Attribute], shapes: Shapes, result: tuple[int, ...], message: str
):
    with pytest.raises(NoBody) as caught:
        kind_body(request(kind, attrs, shapes, result))
    assert message in str(caught.value)


def test_softmax_of_half_precision_is_no_softmax_kernel():
    with pytest.raises(NoBody, match="is in f16 the body of generated"):
        kind_body(request("softmax", {"axis": integer(0)}, [(4,)], (4,), "f16"))
