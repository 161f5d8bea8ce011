"""The programs that the GPU tests run: each holds one family of operations, or one model in small.

A program is a module and an array for each argument; everything follows from its name and element type. Sizes are
small, so that all of them compile and run in a minute or two, and odd where a kernel has to mind its edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import sqrt
from typing import Any, get_args
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from aicf.dialects.logical import ANNEALS, SCHEDULES, Predicate
from aicf.dialects.logical import REDUCTIONS as REDUCED
from aicf.dialects.types import TensorInfo, tensor_info
from aicf.frontends.builder import Graph, Value
from aicf.frontends.text import parse_module
from aicf.passes.bodies.workload import argument_attrs
from aicf.runtime.tensors import numpy_dtype

Array = NDArray[Any]

PREDICATES = get_args(Predicate)
DTYPES = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "i1")
UNARY = (
    *("neg", "exp", "tanh", "erf", "relu", "sigmoid", "silu", "gelu"),
    *("abs", "sign", "expm1", "sin", "cos", "floor", "ceil", "round", "is_nan"),
    *("atan", "sinh", "cosh", "asinh"),
    *("leaky_relu", "elu", "softplus", "hard_sigmoid", "hard_swish"),
)
OF_FRACTIONS = ("tan", "asin", "acos", "atanh")
OF_POSITIVE = ("log", "sqrt", "rsqrt", "log1p", "reciprocal")
INTEGER_OF = {"f64": "i64", "f32": "i32", "f16": "i16", "bf16": "i16"}
"""The type that the bits of a float are seen in."""
BINARY = ("add", "sub", "mul", "div", "max", "min")
OF_INTEGERS = ("floor_div", "mod", "and_", "or_", "xor", "shift_left", "shift_right")
REDUCTIONS = ("reduce_sum", "reduce_mean", "reduce_max")


@dataclass(frozen=True)
class Program:
    """A module with one function, and an array for each of its arguments by name."""

    module: ModuleOp
    arrays: dict[str, Array]

    @property
    def inputs(self) -> dict[str, Array]:
        """What is given at every run."""
        return {name: self.arrays[name] for name, role, _ in arguments(self.module) if role == "input"}

    @property
    def weights(self) -> dict[str, Array]:
        """What is given once: parameters, states and meta tensors."""
        return {name: self.arrays[name] for name, role, _ in arguments(self.module) if role != "input"}


def arguments(module: ModuleOp) -> list[tuple[str, str, TensorInfo]]:
    """Name, role and type of each argument of the one function."""
    (function,) = (op for op in module.body.block.ops if isinstance(op, FuncOp))
    found: list[tuple[str, str, TensorInfo]] = []
    for index, argument in enumerate(function.args):
        attributes = argument_attrs(function, index)
        name, role = (attributes[f"logical.{what}"].data for what in ("name", "role"))
        found.append((name, role, tensor_info(argument.type)))
    return found


def random_arrays(module: ModuleOp, name: str) -> dict[str, Array]:
    """Normally distributed floats (weight matrices scaled so that products stay near 1), small integers, fair bools."""
    random = np.random.default_rng(crc32(name.encode()))
    return {
        argument: _random_array(random, info, role == "param" and info.rank >= 2)
        for argument, role, info in arguments(module)
    }


def _random_array(random: np.random.Generator, info: TensorInfo, is_matrix: bool) -> Array:
    dtype, shape = numpy_dtype(info.element.name), info.shape
    if info.element.is_float:
        return (random.standard_normal(shape) / (sqrt(shape[-1]) if is_matrix else 1)).astype(dtype)
    low, high = (0, 2) if dtype == np.bool_ else (-9, 10)
    return random.integers(low, high, shape).astype(dtype)


# Generated kernels: pointwise, reductions, moves


def float_operations(dtype: str) -> Graph:
    """Every elementwise operation on floats: f32 each as an output of its own, NaN where it has no value."""
    g = Graph("float_operations")
    x, y = g.input("x", (48, 128), dtype), g.input("y", (48, 128), dtype)
    bits = g.bitcast(x, INTEGER_OF[dtype])
    values = {"bits": bits, "same": g.bitcast(bits, dtype), **_casts(g, x)}
    for name, value in {**_unary(g, x, x), **_binary(g, x, y), **values}.items():
        g.output(value, name)
    return g


def summed_operations(dtype: str) -> Graph:
    """The same in few kernels: a sum of everything; 33 x 77 is whole vectors for no kernel."""
    g = Graph("summed_operations")
    x, y = g.input("x", (33, 77), dtype), g.input("y", (33, 77), dtype)
    positive, divisor = x * x + 0.5, y * y + 0.5
    g.output(_sum(g, _unary(g, x, positive).values()), "unary")
    g.output(_sum(g, _binary(g, x, divisor).values()), "binary")
    g.output(_sum(g, (g.cast(value, dtype) for value in _casts(g, x).values())), "casts")
    return g


def integer_operations(dtype: str) -> Graph:
    """Every elementwise operation on integers; some divisors are 0."""
    g = Graph("integer_operations")
    x, y = g.input("x", (33, 76), dtype), g.input("y", (33, 76), dtype)
    values = {name: getattr(g, name)(x) for name in ("neg", "relu", "abs", "sign", "not_")}
    values |= {name: getattr(g, name)(x, y) for name in OF_INTEGERS}
    values |= {"clamp": g.clamp(x, 3 if dtype == "u8" else -3, 5), **_binary(g, x, y)}
    if dtype == "i32":
        for name, value in {**values, **_casts(g, x)}.items():
            g.output(value, name)
    else:
        g.output(_sum(g, values.values()), "values")
        g.output(_sum(g, (g.cast(value, dtype) for value in _casts(g, x).values())), "casts")
    return g


def _unary(g: Graph, x: Value, positive: Value) -> dict[str, Value]:
    """Operations on one float; `positive` is what roots and logarithms are taken of."""
    values = {name: getattr(g, name)(x) for name in UNARY}
    values |= {name: getattr(g, name)(positive) for name in OF_POSITIVE}
    values |= {name: getattr(g, name)(g.clamp(x, -0.9, 0.9)) for name in OF_FRACTIONS}
    values |= {"acosh": g.acosh(positive + 1.0), "pow": g.pow(positive, x)}
    return {**values, "clamp": g.clamp(x, -0.5, 1.0), "gelu_tanh": g.gelu(x, "tanh")}


def _binary(g: Graph, x: Value, y: Value) -> dict[str, Value]:
    """Operations on two numbers, comparisons (some values are equal) and a selection."""
    values = {name: getattr(g, name)(x, y) for name in BINARY}
    values |= {predicate: g.compare(predicate, x, g.max(x, y)) for predicate in PREDICATES}
    return {**values, "select": g.select(g.compare("lt", x, y), x + 1, y)}


def _casts(g: Graph, x: Value) -> dict[str, Value]:
    """Conversions to every other type."""
    return {f"cast_{other}": g.cast(x, other) for other in DTYPES if other != x.dtype}


def _sum(g: Graph, values: Iterable[Value]) -> Value:
    """The sum of numbers and of bools, each bool with a weight of its own."""
    numbers = list(values)
    bools = [value for value in numbers if value.dtype == "i1"]
    numbers = [value for value in numbers if value.dtype != "i1"]
    numbers += [g.cast(value, numbers[0].dtype) * 2**power for power, value in enumerate(bools)]
    return reduce(g.add, numbers)


def bool_operations(dtype: str) -> Graph:
    """What there is for bools: selection, comparison, conversion, and moving them."""
    g = Graph("bool_operations")
    p, q = g.input("p", (33, 77), dtype), g.input("q", (33, 77), dtype)
    g.output(g.select(p, q, p), "select")
    for name in ("and_", "or_", "xor"):
        g.output(getattr(g, name)(p, q), name)
    g.output(g.not_(p), "not_")
    g.output(g.cast(p, "f32"), "cast_f32")
    g.output(g.cast(p, "i64"), "cast_i64")
    g.output(g.transpose(p, (1, 0)), "transpose")
    g.output(g.concat([p, q], 1), "concat")
    return g


def angles(dtype: str) -> Graph:
    """Sine and cosine of exact angles of every size, and of infinity."""
    g = Graph("angles")
    x = g.input("x", (33, 77), dtype)
    for power in (0, 12, 24, 60, 120):
        angle = x * 2.0**power
        g.output(g.sin(angle), f"sin_{power}")
        g.output(g.cos(angle), f"cos_{power}")
    g.output(g.sin(x / 0.0), "sin_infinity")
    return g


def broadcasting(dtype: str) -> Graph:
    """A row, a column, a scalar and a constant tensor beside a matrix, fused into chains."""
    g = Graph("broadcasting")
    x, row = g.input("x", (3, 40, 72), dtype), g.param("row", (72,), dtype)
    column, scalar = g.input("column", (40, 1), dtype), g.param("scalar", (), dtype)
    table = g.constant(np.arange(72).reshape(1, 72) / 16 - 2, (1, 72), dtype)
    g.output(g.tanh(x * row + column) * scalar + table, "chain")
    g.output(g.broadcast_to(g.exp(column), (2, 40, 72)), "repeated")
    return g


def row_reductions(dtype: str) -> Graph:
    """Reductions along the last dimension: short rows, odd ones, and long ones that no block holds in registers."""
    g = Graph("row_reductions")
    for size, rows in ((40, 65), (1001, 9), (40_000, 3)):
        x = g.input(f"x{size}", (rows, size), dtype)
        for name in REDUCTIONS:
            g.output(getattr(g, name)(x * 0.5 if name == "reduce_sum" else x, [-1]), f"{name}_{size}")
        g.output(g.softmax(x), f"softmax_{size}")
    return g


def concats(dtype: str) -> Graph:
    """Parts that are written where they belong: columns of products and of rows, odd ones too, and rows of products."""
    g = Graph("concats")
    x, y = g.input("x", (96, 128), dtype), g.input("y", (96, 3), dtype)
    wide, narrow = g.param("wide", (64, 128), dtype), g.param("narrow", (40, 128), dtype)
    one = g.relu(g.linear(x, wide, g.param("b", (64,), dtype), name="one"), name="act")
    two = g.linear(x, narrow, name="two")
    columns = g.concat([one, g.softmax(x, name="three"), two, g.tanh(y, name="odd"), y], 1, name="columns")
    g.output(columns, "columns")
    g.output(g.reduce_sum(two, [1]), "of_a_part")
    rows = [g.matmul(g.add(x, float(n)), wide, transpose_b=True, name=f"rows{n}") for n in range(3)]
    g.output(g.softmax(g.concat(rows, 0, name="stacked")), "rows")
    return g


def pitched(dtype: str) -> Graph:
    """Scores of 5,001 words and a product with what follows from them: no row is a multiple of 16 bytes."""
    g = Graph("pitched")
    table = g.param("table", (5001, 256), dtype)
    scores = g.matmul(g.input("x", (1000, 256), dtype), table, transpose_b=True, name="scores")
    g.output(g.matmul(g.softmax(scores, name="likely"), table, name="back"), "y")
    return g


def many_classes(dtype: str) -> Graph:
    """Cross entropy with its gradient, and softmax, of rows that no vector divides and no registers hold; in every
    third row of the softmax nothing is left but -inf."""
    g = Graph("many_classes")
    x = g.input("x", (150, 50257), dtype)
    labels = g.input("labels", (150,), "i64") % 50257
    loss = g.cross_entropy(g.cast(x, "f32") if dtype != "f32" else x, labels)
    other = g.input("other", (140, 50257), dtype)
    hidden = g.select(_every(g, other.info.shape, 0, 3), float("-inf"), other)
    g.output(g.softmax(hidden, empty_as_zero=True), "softmax")
    g.output(loss, "loss")
    g.output(g.gradient(loss, x), "dx")
    return g


def many_blocks(dtype: str) -> Graph:
    """As many elements, rows and columns as fill the GPU several times."""
    g = Graph("many_blocks")
    x = g.input("x", (3000, 1024), dtype)
    g.output(g.gelu(x * 0.5 + 1.0, "tanh"), "pointwise")
    g.output(g.softmax(x), "rows")
    g.output(g.reduce_sum(x, [0]), "columns")
    g.output(g.reduce_max(x, [0, 1]), "all")
    return g


def norms(dtype: str) -> Graph:
    """Normalised rows: layer_norm over one and two dimensions, with a residual in front, and by the mean square."""
    g = Graph("norms")
    x, y = g.input("x", (37, 256), dtype), g.input("y", (37, 256), dtype)
    scale, bias = g.param("scale", (256,), dtype), g.param("bias", (256,), dtype)
    g.output(g.layer_norm(x + y, scale, bias), "residual")
    mean = g.reduce_mean(x * x, [-1], keepdims=True)
    g.output(x * g.rsqrt(mean + 1e-5) * scale, "mean_square")
    z = g.input("z", (6, 10, 24), dtype)
    g.output(g.layer_norm(z, g.param("s", (10, 24), dtype), g.param("t", (10, 24), dtype), 1), "two_dims")
    return g


def column_reductions(dtype: str) -> Graph:
    """Reductions along the first dimension, one in the middle, two at once and everything."""
    g = Graph("column_reductions")
    x = g.input("x", (70, 5, 44), dtype)
    for name in REDUCTIONS:
        for label, axes in (("first", [0]), ("middle", [1]), ("outer", [0, 2]), ("all", [0, 1, 2])):
            g.output(getattr(g, name)(x, axes), f"{name}_{label}")
    g.output(g.softmax(x, 0), "softmax_first")
    long = g.input("long", (600, 700), dtype)
    g.output(g.reduce_sum(long, [0, 1]), "sum_long")
    return g


def batch_norms(dtype: str) -> Graph:
    """Columns by their means and variances: long ones in parts, some alone, some past the end of a block; two norms
    that are added, and gradients."""
    g = Graph("batch_norms")
    for rows, columns in ((50000, 32), (12500, 100), (150, 40)):
        x = g.input(f"x{columns}", (rows, columns), dtype)
        y, mean, variance = _batch_norm(g, x, f"of_{columns}")
        # A mean is as exact as its elements are large; these are near 0, so they are looked at beside 1.
        for name, value in (("y", g.relu(y)), ("mean", mean + 1.0), ("variance", variance)):
            g.output(value, f"{name}_{columns}")
    left, right = g.input("left", (6272, 256), dtype), g.input("right", (6272, 256), dtype)
    both = g.relu(_batch_norm(g, left, "left")[0] + _batch_norm(g, right, "right")[0])
    g.output(both, "both")
    loss = g.reduce_mean(g.cast(both * both, "f32") if dtype != "f32" else both * both, [0, 1])
    g.output(g.gradient(loss, left), "left_gradient")
    return g


def _batch_norm(g: Graph, x: Value, name: str) -> tuple[Value, Value, Value]:
    """Normalised elements, means and variances of columns; statistics in f32 at least."""
    dtype = x.info.element.name
    wide = g.cast(x, "f32") if dtype in ("f16", "bf16") else x
    mean = g.reduce_mean(wide, [0], keepdims=True)
    centered = wide - mean
    variance = g.reduce_mean(centered * centered, [0], keepdims=True)
    normalised = (
        centered
        * g.rsqrt(variance + 1e-5)
        * g.param(f"{name}.scale", x.info.shape[1:], wide.info.element.name)
    )
    return g.cast(normalised, dtype) if dtype in ("f16", "bf16") else normalised, mean, variance


def integer_reductions(dtype: str) -> Graph:
    """Sums and maxima of integers along rows, columns and everything."""
    g = Graph("integer_reductions")
    x = g.input("x", (70, 300), dtype)
    for label, axes in (("rows", [1]), ("columns", [0]), ("all", [0, 1])):
        g.output(g.reduce_sum(x, axes), f"sum_{label}")
        g.output(g.reduce_max(x, axes, keepdims=True), f"max_{label}")
    return g


def other_reductions(dtype: str) -> Graph:
    """Smallest element, product and norms, along rows, columns, two dimensions and in the middle."""
    g = Graph("other_reductions")
    x, near_one = g.input("x", (70, 5, 44), dtype), g.input("n", (70, 5, 44), dtype)
    names = ["reduce_min", "reduce_prod"]
    if dtype not in ("i32", "i64"):
        # 2, 1 or a half: a product of thousands is exact, in whatever order.
        near_one = 1.0 + g.cast(g.gt(near_one, 2.0), dtype) - 0.5 * g.cast(g.lt(near_one, -2.0), dtype)
        names += ["reduce_l2", "reduce_logsumexp"]
    for name in names:
        for label, axes in (("rows", [2]), ("first", [0]), ("middle", [1]), ("outer", [0, 2])):
            value = near_one if name == "reduce_prod" else x
            g.output(getattr(g, name)(value, axes), f"{name}_{label}")
    return g


def truths(dtype: str) -> Graph:
    """any and all of bools, and of numbers that are mostly 0 or mostly not."""
    g = Graph("truths")
    p, x = g.input("p", (70, 5, 44), dtype), g.input("x", (70, 300), "i32")
    for label, axes in (("rows", [2]), ("first", [0]), ("middle", [1])):
        for name in ("reduce_any", "reduce_all"):
            g.output(getattr(g, name)(p, axes), f"{name}_{label}")
    rare = g.cast(g.compare("gt", x, g.constant(8, x.shape, "i32")), "f32")
    g.output(g.reduce_any(rare, [1]), "any_number")
    g.output(g.reduce_all(x, [0]), "all_numbers")
    return g


def indexing(dtype: str) -> Graph:
    """argmax and argmin of short, odd and long rows and of columns, with many equal elements."""
    g = Graph("places")
    for size, rows in ((40, 65), (1001, 9), (300_000, 2)):
        x = g.input(f"x{size}", (rows, size), "i32")
        y = g.cast(x, dtype)
        for name in ("argmax", "argmin"):
            g.output(getattr(g, name)(y, 1), f"{name}_{size}")
            g.output(getattr(g, name)(y, 0, keepdims=True), f"{name}_{size}_columns")
    z = g.input("z", (33, 70), "f32")
    g.output(g.argmax(g.log(z)), "argmax_nan")
    return g


def running_sums(dtype: str) -> Graph:
    """cumsum of short, odd and long rows, of columns and in the middle, from both ends, with neighbours."""
    g = Graph("running_sums")
    for shape, axis in (((65, 40), 1), ((9, 1001), 1), ((2, 300_000), 1), ((70, 5, 44), 0), ((4, 300, 8), 1)):
        x = g.input("x" + "_".join(map(str, shape)), shape, dtype)
        name = f"{'_'.join(map(str, shape))}_{axis}"
        g.output(g.cumsum(x, axis), name)
        g.output(g.cumsum(g.neg(x), axis, exclusive=True, reverse=True) - x, f"{name}_fused")
    return g


def other_norms(dtype: str) -> Graph:
    """log_softmax of rows and columns, rms_norm over one and two dimensions, and the norms of channels."""
    g = Graph("other_norms")
    x = g.input("x", (6, 12, 10, 24), dtype)
    g.output(g.log_softmax(x), "log_softmax")
    g.output(g.log_softmax(x, 1), "log_softmax_channels")
    g.output(g.rms_norm(x, g.param("row", (24,), dtype)), "rms_norm")
    g.output(g.rms_norm(x, g.param("rows", (10, 24), dtype), 2), "rms_norm_two")
    scale, bias, mean, spread = (g.param(name, (12,), dtype) for name in ("scale", "bias", "mean", "spread"))
    g.output(g.batch_norm(x, scale, bias, mean, spread * spread + 0.5), "batch_norm")
    g.output(g.group_norm(x, g.param("gain", (12,), dtype), g.param("shift", (12,), dtype), 4), "group_norm")
    return g


def long_rows(dtype: str) -> Graph:
    """Group norms of few and large groups, row-major and between channels-last convolutions, with an activation after
    them; the row of each is shared by a cluster where the GPU has them."""
    g = Graph("long_rows")
    x = g.input("x", (1, 32, 72, 64), dtype)
    scale, bias = (g.param(name, (32,), dtype) for name in ("scale", "bias"))
    g.output(g.silu(g.group_norm(x, scale, bias, 2)), "group_norm")
    one_by_one = {"low": [0, 0], "high": [0, 0]}
    y = g.conv(x, g.param("before", (32, 32, 1, 1), dtype), **one_by_one)
    y = g.silu(g.group_norm(y, scale, bias, 4))
    g.output(g.conv(y, g.param("after", (32, 32, 1, 1), dtype), **one_by_one), "between")
    return g


def pooling(dtype: str) -> Graph:
    """Every pooling over one, two and three dimensions: with a border, steps and gaps, and beyond the operand."""
    g = Graph("pooling")
    x = g.input("x", (2, 6, 31, 33), dtype)
    line, block = g.input("line", (3, 4, 70), dtype), g.input("block", (1, 2, 9, 11, 13), dtype)
    windows = ([3, 2], [2, 1], [1, 2], [1, 0], [1, 1])
    g.output(g.max_pool(x, *windows), "max_pool")
    g.output(g.max_pool_indices(x, *windows), "max_pool_indices")
    g.output(g.avg_pool(x, *windows), "avg_pool")
    g.output(g.avg_pool(x, [3, 3], [2, 2], None, [1, 1], [1, 1], count_include_pad=True), "avg_pool_padding")
    g.output(g.lp_pool(x, 2, *windows), "lp_pool")
    g.output(g.max_pool(line, [5], [4], ceil_mode=True), "max_pool_line")
    g.output(g.avg_pool(line, [4], [3], None, [2], [0], ceil_mode=True), "avg_pool_line")
    g.output(g.max_pool(block, [2, 3, 4], [2, 2, 3]), "max_pool_block")
    g.output(g.lp_pool(block, 3, [3, 3, 3], None, None, [1, 1, 1], [1, 1, 1]), "lp_pool_block")
    return g


def max_pool_gradients(dtype: str, last: bool) -> Graph:
    """Which element of each window is the largest, and what is passed back to it, over one to three dimensions: windows
    that overlap as networks begin, lie apart, leave gaps, and reach beyond the operand. With `last` operands and
    results have their channels last."""
    g = Graph("max_pool_gradients")

    def given(name: str, shape: Sequence[int]) -> Value:
        order, back = [0, *range(2, len(shape)), 1], [0, len(shape) - 1, *range(1, len(shape) - 1)]
        return (
            g.transpose(g.input(name, [shape[d] for d in order], dtype), back)
            if last
            else g.input(name, shape, dtype)
        )

    for name, shape, *windows in (
        ("stem", (2, 64, 57, 62), [3, 3], [2, 2], [1, 1], [1, 1]),
        ("near", (3, 24, 19, 21), [5, 5], [1, 1], [1, 1], [2, 2]),
        ("apart", (2, 5, 31, 33), [2, 1], [3, 2], [1, 1], [0, 0]),
        ("spread", (2, 6, 30, 29), [3, 2], [1, 2], [2, 3], [2, 1]),
        ("line", (3, 4, 300), [5], [4], [1], [2]),
        ("block", (1, 16, 9, 11, 13), [2, 3, 2], [2, 2, 1], [1, 1, 1], [0, 1, 1]),
    ):
        taps = g.max_pool_taps(given(name, shape), *windows, windows[-1])
        back = g.max_pool_grad(taps, given(f"{name}_grad", taps.shape), shape[2:], *windows)
        for what, value in (("taps", taps), ("back", back)):
            turned = g.transpose(value, [0, *range(2, value.rank), 1]) if last else value
            g.output(turned, f"{name}_{what}")
    return g


def mean_gradients(dtype: str, last: bool) -> Graph:
    """What means of windows pass back: of windows side by side, one element apart, also with gaps and with counts of
    what they find, and of windows that overlap by a step of 2. With `last` channels are last in memory."""
    g = Graph("mean_gradients")
    for name, shape, sizes, strides, dilations, low, counts in (
        ("halved", (2, 64, 28, 30), [2, 2], [2, 2], [1, 1], [0, 0], False),
        ("near", (3, 24, 19, 21), [3, 3], [1, 1], [1, 1], [1, 1], True),
        ("spread", (2, 16, 15, 12), [3, 2], [1, 1], [2, 3], [2, 1], False),
        ("steps", (2, 8, 15, 17), [3, 3], [2, 2], [1, 1], [1, 1], True),
        ("block", (1, 16, 6, 8, 9), [2, 2, 3], [2, 2, 3], [1, 1, 1], [0, 0, 0], False),
    ):
        order, back = [0, *range(2, len(shape)), 1], [0, len(shape) - 1, *range(1, len(shape) - 1)]
        given = g.input(name, [shape[d] for d in order] if last else shape, dtype)
        x = g.neg(g.transpose(given, back) if last else given)
        mean = g.avg_pool(x, sizes, strides, dilations, low, low, count_include_pad=counts)
        grad = g.gradient(g.reduce_sum(mean * mean, range(mean.rank)), x)
        g.output(g.transpose(grad, order) if last else grad, f"{name}_back")
    return g


def padded_pooling(dtype: str) -> Graph:
    """Poolings whose windows reach beyond the operand, each one kernel: as networks begin, one after the other with a
    step of 1, with a border as wide as a window, beyond the operand on one side, and of padded numbers."""
    g = Graph("padded_pooling")
    x = g.input("x", (2, 24, 57, 62), dtype)
    stem = g.relu(g.max_pool(x, [3, 3], [2, 2], None, [1, 1], [1, 1]))
    g.output(stem, "stem")
    near = g.max_pool(stem, [5, 5], [1, 1], None, [2, 2], [2, 2])
    g.output(g.max_pool(near, [5, 5], [1, 1], None, [2, 2], [2, 2]) + near, "pyramid")
    line, block = g.input("line", (3, 5, 300), dtype), g.input("block", (1, 3, 9, 10, 12), dtype)
    g.output(g.max_pool(line, [4], [3], None, [0], [2], ceil_mode=True), "one_side")
    g.output(g.max_pool(block, [3, 2, 3], [1, 2, 2], None, [1, 0, 1], [1, 1, 0]), "three")
    g.output(g.max_pool(g.pad(line, [0, 0, 2], [0, 0, 3], 1), [4], [2]), "of_padded")
    if dtype != "i8":
        g.output(g.avg_pool(x, [3, 3], [1, 1], None, [1, 1], [1, 1]), "mean")
        wide = g.avg_pool(x, [7, 5], [3, 2], [1, 3], [6, 4], [6, 4], count_include_pad=True)
        g.output(g.tanh(wide), "wide")
    return g


def recurrent(dtype: str) -> Graph:
    """An LSTM forwards, and one backwards over its states."""
    g = Graph("recurrent")
    x, first = g.input("x", (4, 3, 96), dtype), g.input("first", (2, 3, 24), dtype)
    states = g.lstm(x, g.param("weight", (96, 24), dtype) * 0.2, first)
    gates = g.matmul(
        g.reshape(g.slice(states, (0, 0, 0, 0), (1, 4, 3, 24)), (12, 24)), g.param("in", (24, 20), dtype)
    )
    back = g.lstm(
        g.reshape(gates, (4, 3, 20)),
        g.param("back_weight", (20, 5), dtype),
        g.input("last", (2, 3, 5), dtype),
        reverse=True,
    )
    g.output(states, "states")
    g.output(back, "back_states")
    return g


def detection(dtype: str) -> Graph:
    """The boxes that are kept of each class: by corners of few and of many, and by centre and size above a score."""
    g = Graph("detection")
    overlap = g.abs(g.input("overlap", (), dtype)) * 0.25
    boxes, scores = g.input("boxes", (2, 700, 4), dtype), g.input("scores", (2, 3, 700), dtype)
    g.output(g.non_max_suppression(boxes, scores, overlap, limit=50), "kept")
    few = g.input("few", (1, 9, 4), dtype)
    rounded = g.floor(g.input("few_scores", (1, 40, 9), dtype))
    g.output(g.non_max_suppression(few, rounded, overlap, limit=100), "kept_of_equal_scores")
    turned = g.transpose(scores, (0, 2, 1))
    centred = g.non_max_suppression(
        boxes, g.transpose(turned, (0, 2, 1)), overlap, g.input("floor", (), dtype), limit=20, centred=True
    )
    g.output(centred, "kept_of_centred")
    return g


def losses(dtype: str) -> Graph:
    """Losses of pairs and of classes, of which some samples are ignored, in every reduction; labels that are none."""
    g = Graph("losses")
    x, y = g.input("x", (33, 77), dtype), g.input("y", (33, 77), dtype)
    labels = g.input("labels", (33,), "i64") % 77
    for reduction in REDUCED:
        g.output(g.mse_loss(x, y, reduction), f"mse_{reduction}")
        g.output(g.huber_loss(x, y, reduction, 0.5), f"huber_{reduction}")
        g.output(g.bce_with_logits(x, g.sigmoid(y), reduction), f"bce_{reduction}")
        for ignored, smoothing in ((-100, 0.0), (5, 0.125)):
            entropy = g.cross_entropy(x, labels, 1, reduction, ignored, smoothing)
            g.output(entropy, f"entropy_{reduction}_{ignored}")
    g.output(g.cross_entropy(x, labels * 2 - 5, 1, "none", 76), "entropy_outside")
    return g


def counters(dtype: str) -> Graph:
    """The next step, detached, and what follows from it: corrections of a bias and rates of every schedule."""
    g = Graph("counters")
    step = g.detach(g.step_inc(g.abs(g.input("step", (), "i64"))))
    g.output(step, "next")
    for beta in (0.0, 0.9, 0.999):
        g.output(g.bias_corr(step, beta, dtype), f"corrected_{beta}")
    for schedule in SCHEDULES:
        g.output(g.learning_rate(step, schedule, 0.5, 2, 20, 0.125, dtype), schedule)
    g.output(g.step_rate(step, 0.5, 0.25, 2, 3, dtype=dtype), "periods")
    g.output(g.step_rate(step, 0.5, 0.25, 2, milestones=[2, 7], dtype=dtype), "milestones")
    for anneal in ANNEALS:
        g.output(g.one_cycle_rate(step, anneal, 0.125, 0.5, 0.01, 3.5, 20, dtype), f"one_cycle_{anneal}")
    return g


def clipping(dtype: str) -> Graph:
    """Tensors of several shapes brought down to a norm that all of them together have, and to one they are below."""
    g = Graph("clipping")
    parts = {
        f"x{n}": g.input(f"x{n}", shape, dtype) for n, shape in enumerate(((33, 77), (5,), (), (3, 1, 9)))
    }
    norm = g.global_norm(list(parts.values()))
    g.output(norm, "norm")
    for bound in (1.5, 1e4):
        factor = g.clip_factor(norm, bound)
        for name, part in parts.items():
            g.output(part * factor, f"{name}_{bound:g}")
    return g


def moves(dtype: str) -> Graph:
    """Transposes, slices with steps, concatenations, reshapes and what they feed."""
    g = Graph("moves")
    x, y = g.input("x", (70, 100), dtype), g.input("y", (70, 33), dtype)
    z = g.input("z", (2, 5, 12, 16), dtype)
    g.output(g.transpose(x, (1, 0)), "transpose")
    g.output(g.transpose(z, (0, 2, 1, 3)), "heads")
    g.output(g.transpose(z, (3, 1, 0, 2)), "permuted")
    g.output(g.slice(x, [3, 1], [20, 30], [3, 2]), "slice")
    g.output(g.concat([x, y, x], 1), "concat_columns")
    g.output(g.window(x, [3, 5], [2, 1], [1, 3]), "window")
    g.output(g.concat([y, g.slice(x, [0, 5], [-1, 33])], 0), "concat_rows")
    g.output(g.reshape(g.transpose(x, (1, 0)), (70, 100)), "reshape")
    g.output(g.transpose(x, (1, 0)) + 1, "transpose_add")
    return g


def convolutions(dtype: str) -> Graph:
    """A convolution, one of a channel each, with an activation, the way back, which overlaps or does not, and what the
    first passes back to its weight."""
    g = Graph("convolutions")
    x = g.input("x", (2, 6, 13, 12), dtype)
    w, b = g.param("w", (10, 6, 3, 3), dtype), g.param("b", (10,), dtype)
    wide = g.relu(g.conv(x, w, b, strides=[2, 1], low=[1, 1], name="wide"))
    g.output(wide, "wide")
    g.output(
        g.conv(x, g.param("w_each", (6, 1, 3, 3), dtype), low=[2, 2], dilations=[2, 2], groups=6), "each"
    )
    g.output(
        g.conv_transpose(wide, g.param("w_back", (10, 4, 3, 3), dtype), strides=[2, 2], low=[1, 1]), "back"
    )
    g.output(g.conv_transpose(wide, g.param("w_apart", (10, 4, 2, 2), dtype), strides=[2, 2]), "apart")
    g.output(g.conv_weight_grad(x, wide, [3, 3], strides=[2, 1], low=[1, 1]), "weight")
    return g


# Matrix products


def product(
    dtype: str,
    m: int,
    n: int,
    k: int,
    batch: tuple[int, ...] = (),
    transpose: str = "nt",
    shared: bool = False,
) -> Graph:
    """a b, with a or b stored transposed where `transpose` has a t; `shared` gives all batches one b."""
    g = Graph("product")
    a_shape = (k, m) if transpose[0] == "t" else (m, k)
    b_shape = (n, k) if transpose[1] == "t" else (k, n)
    a = g.input("a", (*batch, *a_shape), dtype)
    b = g.param("b", b_shape if shared else (*batch, *b_shape), dtype)
    y = g.matmul(a, b, transpose_a=transpose[0] == "t", transpose_b=transpose[1] == "t")
    g.output(y, "y")
    return g


def spread_product(
    dtype: str, m: int, n: int, k: int, a_batch: tuple[int, ...], b_batch: tuple[int, ...]
) -> Graph:
    """a b with batches that broadcast."""
    g = Graph("spread_product")
    a, b = g.input("a", (*a_batch, m, k), dtype), g.param("b", (*b_batch, k, n), dtype)
    g.output(g.matmul(a, b), "y")
    return g


def dense(dtype: str, m: int, n: int, k: int, activation: str = "gelu", residual: bool = True) -> Graph:
    """activation(x w^T + bias) + residual."""
    g = Graph("dense")
    x, w, b = g.input("x", (m, k), dtype), g.param("w", (n, k), dtype), g.param("bias", (n,), dtype)
    y = getattr(g, activation)(g.linear(x, w, b))
    g.output(y + g.input("residual", (m, n), dtype) if residual else y, "y")
    return g


def kept_dense(dtype: str, m: int, n: int, k: int, activation: str = "gelu") -> Graph:
    """x w^T + bias, which is kept as for a backward pass, and activation of it."""
    g = Graph("kept_dense")
    x, w, b = g.input("x", (m, k), dtype), g.param("w", (n, k), dtype), g.param("bias", (n,), dtype)
    sums = g.linear(x, w, b)
    g.output(sums, "sums")
    g.output(getattr(g, activation)(sums), "y")
    return g


def sloped(dtype: str, m: int, n: int, k: int, activation: str = "relu") -> Graph:
    """x w^T times the slope of an activation at what a forward pass saved: of its result for relu and sigmoid."""
    g = Graph("sloped")
    x, w, saved = g.input("x", (m, k), dtype), g.param("w", (n, k), dtype), g.input("saved", (m, n), dtype)
    product = g.matmul(x, w, transpose_b=True)
    if activation == "relu":
        g.output(g.where(saved <= 0, g.constant(0, (m, n), dtype), product), "y")
    else:
        g.output(product * saved * (g.neg(saved) + 1), "y")
    return g


def integer_dense(dtype: str, m: int, n: int, k: int) -> Graph:
    """x w + bias, which wraps in its type, then as i32."""
    g = Graph("integer_dense")
    x, w, b = g.input("x", (m, k), dtype), g.param("w", (k, n), dtype), g.param("bias", (n,), dtype)
    g.output(g.cast(g.matmul(x, w) + b, "i32"), "y")
    return g


def normed_dense(dtype: str, m: int, n: int, k: int, norm: str = "layer_norm") -> Graph:
    """gelu(norm(x) w^T + bias), the norm layer_norm or rms_norm."""
    g = Graph("normed_dense")
    x, w, b = g.input("x", (m, k), dtype), g.param("w", (n, k), dtype), g.param("bias", (n,), dtype)
    rows = _layer_norm(g, x, "norm") if norm == "layer_norm" else g.rms_norm(x, g.param("scale", (k,), dtype))
    g.output(g.gelu(g.linear(rows, w, b)), "y")
    return g


def rows_normed(
    dtype: str, m: int, n: int, k: int, norm: str, *, activation: str = "", keep: bool = False
) -> Graph:
    """norm(activation(x w^T + bias) + residual) with a layer_norm, a norm by the root of the mean square or a softmax;
    with `keep` what is normed is an output too."""
    g = Graph("rows_normed")
    x, w, b = g.input("x", (m, k), dtype), g.param("w", (n, k), dtype), g.param("bias", (n,), dtype)
    y = g.linear(x, w, b)
    if activation:
        y = getattr(g, activation)(y)
    y = y + g.input("residual", (m, n), dtype)
    norms: dict[str, Callable[[], Value]] = {
        "layer_norm": lambda: _layer_norm(g, y, "norm"),
        "rms_norm": lambda: _rms_norm(g, y, "norm"),
        "softmax": lambda: g.softmax(y),
    }
    g.output(norms[norm](), "z")
    if keep:
        g.output(y, "y")
    return g


def gated(dtype: str, m: int, n: int, k: int, norm: bool = False) -> Graph:
    """silu(x gate) * (x up), of normalised rows if `norm`."""
    g = Graph("gated")
    x = g.input("x", (m, k), dtype)
    if norm:
        x = _layer_norm(g, x, "norm")
    gate, up = (g.linear(x, g.param(name, (n, k), dtype)) for name in ("gate", "up"))
    g.output(g.silu(gate) * up, "y")
    return g


def projections(dtype: str, m: int, n: int, k: int) -> Graph:
    """Three products of one matrix, with biases."""
    g = Graph("projections")
    x = g.input("x", (m, k), dtype)
    for name in "qkv":
        w, b = g.param(f"{name}.weight", (n, k), dtype), g.param(f"{name}.bias", (n,), dtype)
        g.output(g.linear(x, w, b), name)
    return g


def attention(
    dtype: str, rows: int, columns: int, depth: int, width: int, mask: Sequence[int] | None = None
) -> Graph:
    """softmax(q k^T / sqrt(depth) + mask) v of 2 x 3 heads; `mask` is the shape of what is added."""
    g = Graph("attention")
    q = g.input("q", (2, 3, rows, depth), dtype)
    k, v = g.input("k", (2, 3, columns, depth), dtype), g.input("v", (2, 3, columns, width), dtype)
    scores = g.matmul(q, k, transpose_b=True) * (1 / sqrt(depth))
    if mask is not None:
        scores = scores + g.input("mask", mask, dtype)
    y = g.matmul(g.softmax(scores), v)
    g.output(g.reshape(g.transpose(y, (0, 2, 1, 3)), (2, rows, 3 * width)), "y")
    return g


def attention_op(
    dtype: str,
    rows: int,
    columns: int,
    size: int,
    groups: int,
    past: int | None = None,
    mask: Sequence[int] | None = None,
) -> Graph:
    """`logical.attention` of 2 x 4 heads of queries and 2 x `groups` of keys and values; causal if `past` is given,
    and a bool mask of shape `mask` hides some of the keys."""
    g = Graph("attention_op")
    q = g.input("q", (2, 4, rows, size), dtype)
    k, v = (g.input(name, (2, groups, columns, size), dtype) for name in "kv")
    seen = None if mask is None else g.input("mask", mask, "i1")
    g.output(g.attention(q, k, v, seen, causal=past is not None, past=past or 0), "y")
    return g


def masked_attention(
    dtype: str,
    rows: int,
    columns: int,
    size: int,
    mask: Sequence[int],
    past: int | None = None,
    groups: int = 4,
    hidden: int = 0,
    zeros: bool = False,
) -> Graph:
    """`attention_op` with a mask of shape `mask` that is added; with `hidden`, one in as many of its rows is -inf all
    along, so that its query sees nothing, and gives 0 with `zeros`."""
    g = Graph("masked_attention")
    q = g.input("q", (2, 4, rows, size), dtype)
    k, v = (g.input(name, (2, groups, columns, size), dtype) for name in "kv")
    added = g.input("mask", mask, dtype)
    if hidden:
        added = g.select(_every(g, mask, len(mask) - 2, hidden), float("-inf"), added)
    y = g.attention(q, k, v, added, causal=past is not None, past=past or 0, empty_as_zero=zeros)
    g.output(y, "y")
    return g


def attention_gradients(
    dtype: str,
    rows: int,
    columns: int,
    size: int,
    past: int | None = None,
    mask: Sequence[int] | None = None,
    hidden: int = 0,
) -> Graph:
    """The gradients for 2 x 3 heads of queries, keys and values of the sum of what attention gives times `weights`, and
    the result of the attention; causal if `past` is given, and a mask of shape `mask` is added. With `hidden`, one in
    as many of its rows is -inf all along, so that its query gives 0."""
    g = Graph("attention_gradients")
    q = g.input("q", (2, 3, rows, size), dtype)
    k, v = (g.input(name, (2, 3, columns, size), dtype) for name in "kv")
    added = None if mask is None else g.input("mask", mask, dtype)
    if mask is not None and added is not None and hidden:
        added = g.select(_every(g, mask, len(mask) - 2, hidden), float("-inf"), added)
    y = g.attention(q, k, v, added, causal=past is not None, past=past or 0, empty_as_zero=hidden > 0)
    weighted = g.cast(y, "f32") * g.cast(g.input("weights", (2, 3, rows, size), dtype), "f32")
    loss = g.reduce_sum(weighted, [0, 1, 2, 3])
    g.output(y, "y")
    for name, value in (("dq", q), ("dk", k), ("dv", v)):
        g.output(g.gradient(loss, value), name)
    return g


def exported_attention(
    dtype: str,
    rows: int,
    columns: int,
    size: int,
    mask: Sequence[int] | None = None,
    hidden: int = 0,
    broken: int = 0,
) -> Graph:
    """Attention of 2 x 3 heads as PyTorch's exporter writes it: the root of the scale multiplies queries and keys, and
    probabilities that are NaN become 0. With `hidden`, one in as many rows of the mask is -inf all along, or one in as
    many heads where each has one row; with `broken`, one in as many queries is infinite."""
    g = Graph("exported_attention")
    sizes = {"q": rows, "k": columns, "v": columns}
    q, k, v = (
        g.transpose(g.input(name, (2, count, 3, size), dtype), (0, 2, 1, 3)) for name, count in sizes.items()
    )
    if broken:
        q = g.select(_every(g, q.info.shape, 2, broken), float("inf"), q)
    scores = g.matmul(q * size**-0.25, g.transpose(k, (0, 1, 3, 2)) * size**-0.25)
    if mask is not None:
        added = g.input("mask", mask, dtype)
        if hidden:
            axis = len(mask) - 2 if rows > 1 else 1
            added = g.select(_every(g, mask, axis, hidden), float("-inf"), added)
        scores = scores + added
    weights = g.softmax(scores)
    y = g.matmul(g.where(g.is_nan(weights), 0.0, weights), v)
    g.output(g.transpose(y, (0, 2, 1, 3)), "y")
    return g


def _every(g: Graph, shape: Sequence[int], axis: int, count: int) -> Value:
    """Whether an element is in the last of `count` rows along an axis."""
    line = g.iota(shape, axis)
    return g.eq(line - line / count * count, count - 1)


def two_masks(dtype: str, rows: int, columns: int, size: int) -> Graph:
    """Attention of 2 x 3 heads as T5 has it: a bias of each head, then a mask of all, and no scale."""
    g = Graph("two_masks")
    sizes = {"q": rows, "k": columns, "v": columns}
    q, k, v = (g.input(name, (2, 3, count, size), dtype) for name, count in sizes.items())
    bias, mask = g.input("bias", (1, 3, rows, columns), dtype), g.input("mask", (2, 1, 1, columns), dtype)
    scores = g.matmul(q * 0.25, k, transpose_b=True) + bias + mask
    g.output(g.matmul(g.softmax(scores), v), "y")
    return g


def attention_step(
    dtype: str,
    tokens: int,
    size: int,
    index: str = "i64",
    mask: Sequence[int] | None = None,
    state: bool = False,
) -> Graph:
    """One query for each of 3 heads, after the row of its token is written into keys and values [tokens, 3 * size],
    which are state, or inputs and, written, outputs."""
    g = Graph("attention_step")
    qkv, at = g.input("qkv", (1, 9 * size), dtype), g.input("at", (1,), index)
    rows = [g.slice(qkv, (0, number * 3 * size), (1, 3 * size)) for number in range(3)]
    read = [rows[0]]
    for name, row in zip(("keys", "values"), rows[1:], strict=True):
        given = (g.state if state else g.input)(name, (tokens, 3 * size), dtype)
        read.append(g.scatter(given, at, row))
        if state:
            g.update(given, read[-1])
        else:
            g.output(read[-1], f"new_{name}")
    heads = [g.transpose(g.reshape(x, (int(x.shape[0]), 3, size)), (1, 0, 2)) for x in read]
    added = None if mask is None else g.input("mask", mask, dtype)
    y = g.attention(*heads, added)
    g.output(g.reshape(g.transpose(y, (1, 0, 2)), (1, 3 * size)), "y")
    return g


def cached_attention_step(
    dtype: str,
    capacity: int,
    size: int,
    shared: int = 1,
    window: int | None = None,
    writes: bool = True,
    pairs: str | None = None,
) -> Graph:
    """One query for each of ``2 * shared`` heads over a cache of 2 heads [capacity, 2 * size], up to a position, into
    which the row of its token is perhaps written first; with `pairs`, halves or neighbours, turned by the position."""
    g = Graph("cached_attention_step")
    heads, at = 2 * shared, g.input("at", (1,), "i64")
    position = g.clamp(at, 0, capacity - 1)
    token = g.input("token", (1, (heads + 4) * size), dtype)
    query = g.slice(token, (0, 0), (1, heads * size))
    read = [(_turned(query, size, position, pairs), (1, heads, size))]
    for number, name in enumerate(("keys", "values")):
        cache = g.input(name, (capacity, 2 * size), dtype)
        if writes:
            row = g.slice(token, (0, (heads + 2 * number) * size), (1, 2 * size))
            row = _turned(row, size, position, None if number else pairs)
            cache = g.scatter(cache, position, row)
            g.output(cache, f"new_{name}")
        read.append((cache, (capacity, 2, size)))
    q, k, v = (g.transpose(g.reshape(x, shape), (1, 0, 2)) for x, shape in read)
    y = g.attention(q, k, v, position=g.reshape(position, ()), causal=True, window=window)
    g.output(g.reshape(g.transpose(y, (1, 0, 2)), (1, heads * size)), "y")
    return g


def cached_attention(dtype: str, rows: int, capacity: int, size: int, shared: int) -> Graph:
    """Tokens of a prompt with ``2 * shared`` heads over a cache of 2 heads [capacity, 2, size], into which their rows
    are written from a position on."""
    g = Graph("cached_attention")
    position = g.clamp(g.input("at", (1,), "i64"), 0, capacity - rows)
    numbers = g.iota((rows,), 0, "i64") + position
    caches = [
        g.scatter(
            g.input(name, (capacity, 2, size), dtype), numbers, g.input(f"new_{name}", (rows, 2, size), dtype)
        )
        for name in ("keys", "values")
    ]
    heads = [g.input("queries", (rows, 2 * shared, size), dtype), *caches]
    q, k, v = (g.transpose(each, (1, 0, 2)) for each in heads)
    y = g.attention(q, k, v, position=g.reshape(position, ()), causal=True)
    g.output(g.reshape(g.transpose(y, (1, 0, 2)), (rows, 2 * shared * size)), "y")
    return g


def _turned(x: Value, size: int, position: Value, pairs: str | None) -> Value:
    """Heads of [1, heads * size], turned in f32 by a position, i64[1]."""
    if pairs is None:
        return x
    g, half, heads = x.graph, size // 2, int(x.shape[1]) // size
    (first, second), axis = ((2, half), 2) if pairs == "halves" else ((half, 2), 3)
    frequencies = (0.01 ** (np.arange(half) / half)).astype(np.float32).reshape(1, half)
    angles = g.cast(g.reshape(position, (1, 1)), "f32") * g.constant(frequencies, (1, half))
    shape = (1, 1, 1, half) if pairs == "halves" else (1, 1, half, 1)
    factors = [g.broadcast_to(g.reshape(of(angles), shape), (1, 1, first, second)) for of in (g.cos, g.sin)]
    is_first = g.eq(g.iota((1, 1, first, second), axis, "i32"), 0)
    sines = g.where(is_first, g.neg(factors[1]), factors[1])
    wide = g.cast(g.reshape(x, (1, heads, first, second)), "f32")
    both = g.mul(wide, factors[0]) + g.mul(g.flip(wide, (axis,)), sines)
    return g.reshape(g.cast(both, x.dtype), (1, heads * size))


def rows_written() -> ModuleOp:
    """The primitive ops that write at computed indices, which the builder has no methods of."""
    return parse_module(_ROWS_WRITTEN)


_ROWS_WRITTEN = """
func.func @rows(
    %x : tensor<7x40xf32> {logical.name = "x", logical.role = "input"},
    %u : tensor<9x40xf32> {logical.name = "u", logical.role = "input"},
    %w : tensor<7x1xf32> {logical.name = "w", logical.role = "input"},
    %i : tensor<9xi64> {logical.name = "i", logical.role = "input"},
    %p : tensor<i32> {logical.name = "p", logical.role = "input"},
    %q : tensor<7xi64> {logical.name = "q", logical.role = "input"})
    -> (tensor<7x40xf32> {logical.name = "combined"}, tensor<7xi32> {logical.name = "last"},
        tensor<7x40xf32> {logical.name = "written"}, tensor<7x40xf32> {logical.name = "each"}) {
  %combined = logical.scatter_combine %x, %i, %u {mode = "add"}
      : (tensor<7x40xf32>, tensor<9xi64>, tensor<9x40xf32>) -> tensor<7x40xf32>
  %last = logical.last_update %i {rows = 7} : (tensor<9xi64>) -> tensor<7xi32>
  %written = logical.write_row %w, %p, %x {axis = 1}
      : (tensor<7x1xf32>, tensor<i32>, tensor<7x40xf32>) -> tensor<7x40xf32>
  %each = logical.write_row %w, %q, %x {axis = 1}
      : (tensor<7x1xf32>, tensor<7xi64>, tensor<7x40xf32>) -> tensor<7x40xf32>
  func.return %combined, %last, %written, %each
      : tensor<7x40xf32>, tensor<7xi32>, tensor<7x40xf32>, tensor<7x40xf32>
}
"""


def packed_weights() -> ModuleOp:
    """Ops on block-quantised weights, the products of which passes alone write."""
    return parse_module(_PACKED_WEIGHTS)


_PACKED_WEIGHTS = """
func.func @packed(
    %x : tensor<5x512xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<37x288xui8> {logical.name = "w", logical.role = "param"},
    %k : tensor<3x420xui8> {logical.name = "k", logical.role = "param"})
    -> (tensor<5x37xf32> {logical.name = "product"}, tensor<3x512xf32> {logical.name = "widened"}) {
  %product = logical.matmul_blocks %x, %w {scheme = "Q4_0"}
      : (tensor<5x512xf32>, tensor<37x288xui8>) -> tensor<5x37xf32>
  %widened = logical.dequantize_blocks %k {scheme = "Q6_K"} : (tensor<3x420xui8>) -> tensor<3x512xf32>
  func.return %product, %widened : tensor<5x37xf32>, tensor<3x512xf32>
}
"""


def rounded_weights() -> ModuleOp:
    """A product of packed weights with activations of 8 bits, which passes alone write."""
    return parse_module(_ROUNDED_WEIGHTS)


_ROUNDED_WEIGHTS = """
func.func @rounded(
    %x : tensor<5x512xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<37x288xui8> {logical.name = "w", logical.role = "param"})
    -> (tensor<5x37xf32> {logical.name = "product"}) {
  %product = logical.rounded_matmul_blocks %x, %w {scheme = "Q4_0"}
      : (tensor<5x512xf32>, tensor<37x288xui8>) -> tensor<5x37xf32>
  func.return %product : tensor<5x37xf32>
}
"""


# Models in small


def chain(dtype: str, tokens: int, layers: int = 3, hidden: int = 256, inner: int = 512) -> Graph:
    """Pre-norm blocks x + down(gelu(up(layer_norm(x))))."""
    g = Graph("chain")
    x = g.input("x", (tokens, hidden), dtype)
    for i in range(layers):
        up = g.gelu(_linear(g, _layer_norm(g, x, f"{i}.norm"), f"{i}.up", inner))
        x = _linear(g, up, f"{i}.down", hidden) + x
    g.output(x, "y")
    return g


def encoder(dtype: str, batch: int, tokens: int, heads: int, depth: int) -> Graph:
    """One layer of BERT's encoder; attention is written as products and softmax."""
    g = Graph("encoder")
    hidden = heads * depth
    x = g.input("x", (batch, tokens, hidden), dtype)
    q, k, v = (
        g.transpose(g.reshape(_linear(g, x, name, hidden), (batch, tokens, heads, depth)), (0, 2, 1, 3))
        for name in ("query", "key", "value")
    )
    scores = g.matmul(q, k, transpose_b=True) * (1 / sqrt(depth))
    context = g.transpose(g.matmul(g.softmax(scores), v), (0, 2, 1, 3))
    attended = _linear(g, g.reshape(context, (batch, tokens, hidden)), "projection", hidden)
    x = _layer_norm(g, attended + x, "norm1")
    down = _linear(g, g.gelu(_linear(g, x, "up", 4 * hidden)), "down", hidden)
    g.output(_layer_norm(g, down + x, "norm2"), "y")
    return g


def _linear(g: Graph, x: Value, name: str, outputs: int) -> Value:
    inputs = x.info.shape[-1]
    weight = g.param(f"{name}.weight", (outputs, inputs), x.dtype)
    return g.linear(x, weight, g.param(f"{name}.bias", (outputs,), x.dtype))


def _rms_norm(g: Graph, x: Value, name: str) -> Value:
    square = g.reduce_mean(x * x, [-1], keepdims=True)
    return x * g.rsqrt(square + 1e-3) * g.param(f"{name}.weight", x.info.shape[-1:], x.dtype)


def _layer_norm(g: Graph, x: Value, name: str) -> Value:
    scale, bias = (g.param(f"{name}.{part}", x.info.shape[-1:], x.dtype) for part in ("weight", "bias"))
    return g.layer_norm(x, scale, bias)
