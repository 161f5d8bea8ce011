"""Programs whose elementwise ops belong together in one kernel with several results, as backward passes have them.

Each maker takes a graph, rows, columns and an element type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aicf.frontends.builder import Graph, Value

Make = Callable[[Graph, int, int, str], None]


def _read(g: Graph, rows: int, columns: int, dtype: str, *names: str) -> list[Value]:
    return [g.input(name, (rows, columns), dtype) for name in names]


def residual_norm(g: Graph, rows: int, columns: int, dtype: str) -> None:
    """A sum that is kept for the next residual, and the norm of it."""
    x, residual = _read(g, rows, columns, dtype, "x", "residual")
    total = x + residual
    scale, shift = (g.param(name, (columns,), dtype) for name in ("scale", "shift"))
    g.output(total, "sum")
    g.output(g.layer_norm(total, scale, shift), "normed")


def activation(g: Graph, rows: int, columns: int, dtype: str) -> None:
    """An activation, and its derivative times what comes from above."""
    x, upstream = _read(g, rows, columns, dtype, "x", "upstream")
    gate = g.sigmoid(x)
    g.output(x * gate, "y")
    g.output(upstream * gate * (1.0 + x * (1.0 - gate)), "dx")


def gated(g: Graph, rows: int, columns: int, dtype: str) -> None:
    """Backward of a gated product: two results of three full reads."""
    x, gate, upstream = _read(g, rows, columns, dtype, "x", "gate", "upstream")
    g.output(upstream * g.tanh(gate), "dx")
    g.output(upstream * x * (1.0 - g.tanh(gate) * g.tanh(gate)), "dgate")


def softmax_and_sum(g: Graph, rows: int, columns: int, dtype: str) -> None:
    """A softmax with the logarithm of its sum, one for each row, and the input itself narrowed."""
    (x,) = _read(g, rows, columns, dtype, "x")
    largest = g.reduce_max(x, [1], keepdims=True)
    exponential = g.exp(x - largest)
    total = g.reduce_sum(exponential, [1], keepdims=True)
    g.output(exponential / total, "y")
    g.output(g.log(total) + largest, "logsumexp")
    g.output(g.cast(x, "bf16" if dtype != "bf16" else "f16"), "narrow")


def moments(g: Graph, rows: int, columns: int, dtype: str) -> None:
    """Mean and variance of each row."""
    (x,) = _read(g, rows, columns, dtype, "x")
    mean = g.reduce_mean(x, [1], keepdims=True)
    centered = x - mean
    g.output(mean, "mean")
    g.output(g.reduce_mean(centered * centered, [1]), "variance")


def largest(g: Graph, rows: int, columns: int, dtype: str) -> None:
    """The largest element of each row and where it is."""
    (x,) = _read(g, rows, columns, dtype, "x")
    g.output(g.reduce_max(x, [1]), "value")
    g.output(g.argmax(x), "index")


def columns(g: Graph, rows: int, columns: int, dtype: str) -> None:
    """A gradient, and its sum over the rows for the bias."""
    x, upstream = _read(g, rows, columns, dtype, "x", "upstream")
    gradient = upstream * g.exp(-x)
    g.output(gradient, "dx")
    g.output(g.reduce_sum(gradient, [0]), "dbias")


def norm_gradients(g: Graph, rows: int, columns: int, dtype: str) -> None:
    """Gradients of a norm of rows: of its operand, scale and shift, and of the bias of the product before it, which
    sees narrowed rows of one dim more."""
    x, upstream = _read(g, rows, columns, dtype, "x", "upstream")
    scale = g.param("scale", (columns,), dtype)
    scaled = upstream * scale
    mean, along = (g.reduce_mean(each, [1], keepdims=True) for each in (scaled, scaled * x))
    gradient = scaled - mean - x * along
    narrow = g.cast(gradient, "bf16" if dtype != "bf16" else "f16")
    g.output(gradient, "dx")
    g.output(narrow, "dproduct")
    g.output(g.reduce_sum(upstream * x, [0]), "dscale")
    g.output(g.reduce_sum(upstream, [0]), "dshift")
    g.output(g.reduce_sum(g.reshape(narrow, (1, rows, columns)), [0, 1], keepdims=True), "dbias")


def linear_gradients(g: Graph, rows: int, columns: int, dtype: str) -> None:
    """Gradients of a linear layer's weight and bias, of rows that the bias sees as those of a batch; and the same of a
    layer with its weight transposed."""
    x, upstream = _read(g, rows, columns, dtype, "x", "upstream")
    g.output(g.matmul(upstream, x, transpose_a=True), "dweight")
    g.output(g.reduce_sum(g.reshape(upstream, (1, rows, columns)), [0, 1]), "dbias")
    other = g.input("other", (rows, 2 * columns), dtype)
    g.output(g.matmul(x, other, transpose_a=True), "dother")
    g.output(g.reduce_sum(other, [0]), "dbias_of_other")


def loss(g: Graph, rows: int, columns: int, dtype: str) -> None:
    """A mean over everything, and the gradient of what it is the mean of."""
    prediction, target = _read(g, rows, columns, dtype, "prediction", "target")
    error = prediction - target
    g.output(g.reduce_mean(error * error, [0, 1]), "loss")
    g.output(error * (2.0 / (rows * columns)), "gradient")


def running(g: Graph, rows: int, columns: int, dtype: str) -> None:
    """A running sum, and a pointwise result of the same input."""
    (x,) = _read(g, rows, columns, dtype, "x")
    g.output(g.cumsum(x, 1), "sums")
    g.output(g.abs(x), "sizes")


def optimizer(g: Graph, rows: int, columns: int, dtype: str) -> None:
    """A step of Adam: three updates in place from one gradient."""
    (gradient,) = _read(g, rows, columns, dtype, "gradient")
    weight = g.param("weight", (rows, columns), dtype)
    first, second = (g.state(name, (rows, columns), dtype) for name in ("first", "second"))
    moved = 0.9 * first + 0.1 * gradient
    spread = 0.99 * second + 0.01 * gradient * gradient
    g.update(first, moved)
    g.update(second, spread)
    g.update(weight, weight - 0.01 * moved / (g.sqrt(g.abs(spread)) + 1e-3))


PROGRAMS: Mapping[str, tuple[Make, tuple[int, ...], tuple[int, ...]]] = {
    "residual_norm": (residual_norm, (2,), (2,)),
    "activation": (activation, (2,), (2,)),
    "gated": (gated, (2,), (2,)),
    "softmax_and_sum": (softmax_and_sum, (4, 1), (3,)),
    "moments": (moments, (2,), (2,)),
    "largest": (largest, (2,), (2,)),
    "columns": (columns, (1, 1), (2,)),
    "loss": (loss, (2,), (2,)),
    "running": (running, (2,), (2,)),
    "optimizer": (optimizer, (3,), (3,)),
}
"""Each maker, and how many results its instructions have on a CPU and on a GPU, of 512 rows of 1024 in f32."""


SUMS_OF_COLUMNS: Mapping[str, Make] = {
    "norm_gradients": norm_gradients,
    "linear_gradients": linear_gradients,
}
"""Those with sums of columns beside sums of rows or products, which one instruction makes on a GPU alone."""


def built(name: str, rows: int, columns: int, dtype: str) -> Graph:
    """The program of that name."""
    graph = Graph(name)
    make = SUMS_OF_COLUMNS[name] if name in SUMS_OF_COLUMNS else PROGRAMS[name][0]
    make(graph, rows, columns, dtype)
    return graph
