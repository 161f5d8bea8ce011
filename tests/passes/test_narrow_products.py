"""Quantised ONNX models with QuantizeLinear and DequantizeLinear around their products: these run as products of the
integers, and what comes out is what float64 NumPy says of the model's own formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import aicf
from aicf.compilation.compiled import CompiledModel
from aicf.compilation.saved_program import read_saved_program
from aicf.passes.legalize.narrow_prices import ProductPrices
from tests.backends.cpu.test_conv import LEVELS_HERE

Array = NDArray[Any]
LEVELS = [level for level in LEVELS_HERE if level in ("x86-64-v3", "x86-64-v4")] or LEVELS_HERE[-1:]
NEAR = 1e-3
"""Of a quantum: so near to the middle of two either is right."""


@pytest.fixture
def integers_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of integers are predicted to take nothing, if a kernel runs them at all."""
    real = ProductPrices.narrow

    def free(self: ProductPrices, *args: Any) -> float:
        real(self, *args)
        return 0.0

    monkeypatch.setattr(ProductPrices, "narrow", free)


class Model:
    """Builds an ONNX model of quantised tensors, with the float64 value of each name beside it."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: dict[str, Array] = {}

    def pick(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def input(self, name: str, shape: tuple[int, ...], dtype: str) -> Array:
        limits = np.iinfo(dtype)
        self.inputs[name] = self.rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
        return self.inputs[name]

    def weight(self, name: str, value: Array) -> Array:
        self.weights.append(numpy_helper.from_array(value, name))
        return value

    def quantised(self, name: str, shape: tuple[int, ...], low: int = -128) -> Array:
        """A weight; of up to 1,024 bytes it is a constant, which is dequantised while the model is lowered."""
        return self.weight(name, self.rng.integers(low, 128, shape).astype(np.int8))

    def add(self, op: str, inputs: list[str], name: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))

    def dequantise(
        self, name: str, q: Array, count: int = 1, axis: int = 0, *, zero: bool = False, scale: float = 0.01
    ) -> Array:
        """Adds `name` of `name_q`, with one scale or `count` along an axis, and gives its value."""
        shape = () if count == 1 else (count,)
        scales = self.weight(f"{name}_s", np.asarray(self.rng.uniform(scale / 4, scale, shape), np.float32))
        limits = np.iinfo(q.dtype)
        zeros = self.rng.integers(max(limits.min, -99), min(limits.max, 200) + 1, shape)
        zeros = self.weight(f"{name}_z", np.asarray(zeros if zero else np.zeros(shape), q.dtype))
        self.add("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], name, axis=axis)
        along = [count if dim == axis else 1 for dim in range(q.ndim)] if count > 1 else ()
        return (q - zeros.reshape(along).astype(np.float64)) * scales.reshape(along).astype(np.float64)

    def quantise(self, name: str, value: Array, dtype: str) -> Array:
        """Adds `name_q` of `name`, such that most of its values are in range; gives what is rounded, before it is."""
        zero = int(self.rng.integers(0, 60))
        scale = np.float32(np.abs(value).max() / 100)
        self.weight(f"{name}_ys", np.asarray(scale))
        self.weight(f"{name}_yz", np.asarray(zero, dtype))
        self.add("QuantizeLinear", [name, f"{name}_ys", f"{name}_yz"], f"{name}_q")
        limits = np.iinfo(dtype)
        return np.clip(value / np.float64(scale) + zero, limits.min, limits.max)

    def proto(self, outputs: dict[str, Array]) -> onnx.ModelProto:
        types = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in self.inputs.items()}
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info(n, types[n], v.shape) for n, v in self.inputs.items()],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def convolved(x: Array, w: Array, step: int, pad: int, groups: int) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::step, ::step]
    n, _, high, wide, *taps = windows.shape
    apart = windows.reshape(n, groups, -1, high, wide, *taps)
    weights = w.reshape(groups, -1, *w.shape[1:])
    sums = np.einsum("ngchwij,gmcij->ngmhw", apart, weights, optimize=True)
    return sums.reshape(n, -1, high, wide)


def run(
    model: Model, outputs: dict[str, Array], level: str, **options: Any
) -> tuple[CompiledModel, list[Array]]:
    exe = aicf.compile(model.proto(outputs), target=f"cpu:{level}", **options)
    given = exe(model.inputs)
    return exe, list(given) if len(outputs) > 1 else [given]


def choices_of(exe: CompiledModel) -> dict[str, tuple[str, str]]:
    """Choice and reason for each product."""
    found = [each for each in exe.decisions if each.made_by == "narrow-products"]
    return {each.subjects[0]: (each.choice, each.because) for each in found}


def check_rounded(got: Array, exact: Array) -> None:
    """Equal to what is nearest to the exact values; either of two where those lie next to the middle."""
    off = np.abs(got.astype(np.float64) - np.rint(exact))
    near = np.abs(np.abs(exact - np.floor(exact)) - 0.5) < NEAR
    assert (off[~near] == 0).all()
    assert (off <= 1).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("integers_pay")
def test_a_convolution(seed: int, level: str) -> None:
    """With scales for all output channels, a bias in units of both scales, relu, and what follows quantised."""
    model = Model(seed)
    pick = model.pick
    groups, step, taps, dtype = pick(1, 1, 2), pick(1, 2), pick(1, 3, 5), pick("uint8", "int8")
    channels, outputs, size = (
        2 * int(model.rng.integers(24, 40)),
        2 * int(model.rng.integers(22, 36)),
        pick(9, 16),
    )
    pad = taps // 2
    x = model.dequantise(
        "x", model.input("x_q", (pick(1, 2), channels, size, size), dtype), zero=pick(True, False)
    )
    q = model.quantised("w_q", (outputs, channels // groups, taps, taps))
    w = model.dequantise("w", q, outputs, zero=pick(True, False))
    b_q = model.weight("b_q", model.rng.integers(-9000, 9000, outputs).astype(np.int32))
    b = model.dequantise("b", b_q, outputs, scale=1e-4)
    model.add("Conv", ["x", "w", "b"], "c", pads=[pad] * 4, strides=[step] * 2, group=groups)
    model.add("Relu", ["c"], "y")
    y = np.maximum(convolved(x, w, step, pad, groups) + b.reshape(-1, 1, 1), 0)
    exact = model.quantise("y", y, pick("uint8", "int8"))
    exe, (got,) = run(model, {"y_q": exact}, level)
    check_rounded(got, exact)
    assert choices_of(exe)["c.sums"][0].startswith("of integers")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("integers_pay")
def test_a_matrix_product(seed: int, level: str) -> None:
    """Of an activation of two or three dimensions, or of two of them; the right one as Gemm transposes it, or not."""
    model = Model(seed)
    m, k, n = (int(size) for size in model.rng.integers((1, 33, 33), 90))
    batch, both, flip = [((), False, True), ((3,), False, False), ((2,), True, False)][seed % 3]
    x = model.dequantise("x", model.input("x_q", (*batch, m, k), "uint8"), zero=True)
    columns = (n, k) if flip else (k, n)
    if both:
        w = model.dequantise("w", model.input("w_q", (*batch, k, n), "uint8"), zero=True)
    else:
        q = model.quantised("w_q", columns)
        w = model.dequantise("w", q, n, 0 if flip else 1, zero=seed > 2)
    if flip:
        model.add("Gemm", ["x", "w"], "y", transB=1)
    else:
        model.add("MatMul", ["x", "w"], "y")
    exact = model.quantise("y", x @ (w.swapaxes(-1, -2) if flip else w), "int8")
    exe, (got,) = run(model, {"y_q": exact}, level)
    check_rounded(got, exact)
    assert [choice.partition(":")[0] for choice, _ in choices_of(exe).values()] == ["of integers"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.usefixtures("integers_pay")
def test_others_read_the_dequantised_tensor_too(level: str) -> None:
    """Two products read its integers as they are stored; a sum and the model's result go on with f32."""
    model = Model(5)
    x = model.dequantise("x", model.input("x_q", (7, 48), "uint8"), zero=True)
    w = model.dequantise("w", model.quantised("w_q", (48, 48)), 48, 1)
    v = model.dequantise("v", model.quantised("v_q", (48, 33)))
    model.add("MatMul", ["x", "w"], "a")
    model.add("MatMul", ["x", "v"], "b")
    model.add("Add", ["a", "x"], "c")
    expected = {"x": x, "a": x @ w, "b": x @ v, "c": x @ w + x}
    exe, got = run(model, expected, level)
    for one, other in zip(got, expected.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6 * np.abs(other).max())
    text = exe.ir("narrow-products")
    assert text.count("widening") == 2
    assert "i16" not in text


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("end", ["min", "max"])
@pytest.mark.usefixtures("integers_pay")
def test_what_a_zero_point_adds_is_taken_off_exactly(end: str, dtype: str, flip: bool) -> None:
    """With scales of 1 the result is the exact sum; three dimensions, with zero points at the ends of their range."""
    model = Model(4)
    x = model.input("x_q", (2, 3, 257), dtype)
    zero = model.weight("x_z", np.asarray(getattr(np.iinfo(dtype), end), dtype))
    one = model.weight("one", np.asarray(1, np.float32))
    model.add("DequantizeLinear", ["x_q", "one", "x_z"], "x")
    w = model.quantised("w_q", (33, 257) if flip else (257, 33))
    model.add("DequantizeLinear", ["w_q", "one"], "w")
    if flip:
        model.add("Transpose", ["w"], "v", perm=[1, 0])
    model.add("MatMul", ["x", "v" if flip else "w"], "y")
    exact = (x - zero.astype(np.int64)) @ (w.T if flip else w).astype(np.int64)
    exe, (got,) = run(model, {"y": exact * one}, LEVELS[-1])
    np.testing.assert_array_equal(got, exact.astype(np.float32))
    short = {"uint8": "u8", "int8": "i8"}[dtype]
    assert choices_of(exe)["y"][0] == f"of integers: {short} and i8"


@pytest.mark.usefixtures("integers_pay")
def test_a_zero_point_may_be_known_at_run_time_only() -> None:
    model = Model(9)
    x = model.rng.uniform(-1, 3, (5, 96)).astype(np.float32)
    model.inputs["f"] = x
    node = helper.make_node("DynamicQuantizeLinear", ["f"], ["x_q", "x_s", "x_z"], name="quantise")
    model.nodes.append(node)
    model.add("DequantizeLinear", ["x_q", "x_s", "x_z"], "x")
    w = model.dequantise("w", model.quantised("w_q", (96, 40)), 40, 1)
    model.add("MatMul", ["x", "w"], "y")
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    scale = (high - low) / 255
    zero = np.rint(-low / scale)
    stored = np.clip(np.rint(x / scale) + zero, 0, 255)
    exact = (stored - zero) * scale @ w
    exe, (got,) = run(model, {"y": exact}, LEVELS[-1])
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
    assert choices_of(exe)["y"][0] == "of integers: u8 and i8"


@pytest.mark.usefixtures("integers_pay")
def test_zero_points_of_many_channels_are_known_where_they_are_all_0() -> None:
    """More of them than a constant has bytes; with others among them the weights become i16."""
    for last, short in ((0, "i8"), (1, "i16")):
        model = Model(7)
        x = model.dequantise("x", model.input("x_q", (3, 40), "uint8"), zero=True)
        q = model.quantised("w_q", (40, 1100))
        zeros = model.weight("w_z", np.asarray([*[0] * 1099, last], np.int8))
        scales = model.weight("w_s", np.full(1100, 0.01, np.float32))
        model.add("DequantizeLinear", ["w_q", "w_s", "w_z"], "w", axis=1)
        model.add("MatMul", ["x", "w"], "y")
        exact = x @ ((q - zeros.astype(np.float64)) * scales)
        exe, (got,) = run(model, {"y": exact}, LEVELS[-1])
        np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
        assert choices_of(exe)["y"][0] == f"of integers: u8 and {short}"


@pytest.mark.usefixtures("integers_pay")
def test_a_zero_point_of_weights_is_subtracted_ahead_of_time() -> None:
    """Weights become i16, and the activation stays as it is stored."""
    model = Model(6)
    x = model.dequantise("x", model.input("x_q", (5, 96), "uint8"), zero=True)
    w = model.dequantise("w", model.quantised("w_q", (96, 40)), zero=True)
    model.add("MatMul", ["x", "w"], "y")
    exe, (got,) = run(model, {"y": x @ w}, LEVELS[-1])
    np.testing.assert_allclose(got, x @ w, rtol=1e-5, atol=1e-5 * np.abs(x @ w).max())
    assert choices_of(exe)["y"][0] == "of integers: u8 and i16"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.usefixtures("integers_pay")
def test_sums_may_fill_i32_and_no_more(level: str) -> None:
    most = (2**31 - 1) // (255 * 128)
    for terms, choice in ((most, "of integers: u8 and i8"), (most + 1, "in f32")):
        model = Model(0)
        model.inputs["x_q"] = np.full((1, terms), 255, np.uint8)
        x = model.dequantise("x", model.inputs["x_q"])
        w = model.dequantise("w", model.weight("w_q", np.full((terms, 1), -128, np.int8)))
        model.add("MatMul", ["x", "w"], "y")
        exe, (got,) = run(model, {"y": x}, level)
        np.testing.assert_allclose(got, x @ w, rtol=1e-4 if choice == "in f32" else 3e-7)
        assert choices_of(exe)["y"][0] == choice


@pytest.mark.usefixtures("integers_pay")
def test_scales_whose_product_is_subnormal_are_multiplied_one_after_the_other() -> None:
    model = Model(3)
    x = model.dequantise("x", model.input("x_q", (4, 64), "uint8"), scale=1e-30)
    w = model.dequantise("w", model.quantised("w_q", (64, 40), low=0), scale=1e-12)
    model.add("MatMul", ["x", "w"], "y")
    exe, (got,) = run(model, {"y": x}, LEVELS[-1])
    np.testing.assert_allclose(got.astype(np.float64), x @ w, rtol=1e-6)
    assert choices_of(exe)["y"][0] == "of integers: u8 and i8"


def perceptron(rows: int = 64) -> Model:
    """A product that takes less of integers, whatever the level."""
    model = Model(8)
    model.dequantise("x", model.input("x_q", (rows, 256), "uint8"), zero=True)
    model.dequantise("w", model.quantised("w_q", (256, 256)), 256, 1)
    model.add("MatMul", ["x", "w"], "y")
    return model


@pytest.mark.parametrize("level", LEVELS)
def test_the_cheaper_of_the_two_is_taken(level: str) -> None:
    exe, _ = run(perceptron(), {"y": np.empty(0)}, level)
    choice, because = choices_of(exe)["y"]
    assert choice == "of integers: u8 and i8"
    assert because.startswith("predicted ")
    model = Model(1)
    model.dequantise("x", model.input("x_q", (1, 64, 28, 28), "uint8"))
    model.dequantise("w", model.quantised("w_q", (64, 64, 3, 3)), 64)
    model.add("Conv", ["x", "w"], "c", pads=[1] * 4)
    exe, _ = run(model, {"c": np.empty(0)}, level)
    choice, because = choices_of(exe)["c"]
    assert choice == "in f32"  # transformed tiles multiply less than half as often
    assert because.startswith("predicted ")


@pytest.mark.parametrize(
    ("policy", "because"),
    [
        ({"rounding": "strict"}, "the policy wants strict rounding"),
        ({"determinism": "batch_invariant"}, "depends on the batch"),
        ({"groups": [["y"]]}, "the policy lists it so"),
    ],
)
def test_a_policy_keeps_f32(policy: dict[str, Any], because: str) -> None:
    exe, _ = run(perceptron(), {"y": np.empty(0)}, LEVELS[-1], policy=policy)
    choice, reason = choices_of(exe)["y"]
    assert choice == "in f32"
    assert because in reason
    assert "widening" not in exe.ir("narrow-products")


def test_the_policy_of_a_program_gives_it_again(tmp_path: Path) -> None:
    model = perceptron()
    first, _ = run(model, {"y": np.empty(0)}, LEVELS[-1])
    first.save(tmp_path / "once.aicf")
    read_saved_program(tmp_path / "once.aicf").policy.save(tmp_path / "policy.yaml")
    again, _ = run(model, {"y": np.empty(0)}, LEVELS[-1], policy=tmp_path / "policy.yaml")
    assert choices_of(again)["y"] == ("of integers: u8 and i8", "the policy lists it so")
    np.testing.assert_array_equal(again(model.inputs), first(model.inputs))


@pytest.mark.usefixtures("integers_pay")
def test_scores_of_attention_stay_in_f32() -> None:
    """One kernel for both products writes no scores, so that integers would take more in the end."""
    model = Model(2)
    q = model.dequantise("q", model.input("q_q", (2, 40, 16), "uint8"), zero=True)
    k = model.dequantise("k", model.input("k_q", (2, 16, 40), "uint8"), zero=True)
    v = model.dequantise("v", model.input("v_q", (2, 40, 16), "uint8"), zero=True)
    model.add("MatMul", ["q", "k"], "s")
    model.add("Softmax", ["s"], "p", axis=-1)
    model.add("MatMul", ["p", "v"], "y")
    exe, (got,) = run(model, {"y": v}, LEVELS[-1])
    weights = np.exp(q @ k - (q @ k).max(-1, keepdims=True))
    np.testing.assert_allclose(got, weights / weights.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-4)
    assert choices_of(exe) == {"s": ("in f32", "it can be fused into attention, whose kernels read floats")}


WRAPPING = {
    "a difference in u8": """
  %z = logical.constant dense<100> : tensor<8x64xui8>
  %d = logical.sub %x, %z : tensor<8x64xui8>""",
    "a cast to i8": """
  %d = logical.cast %x : tensor<8x64xui8> -> tensor<8x64xi8>""",
    "a zero point cast to i8": """
  %i = logical.cast %x : tensor<8x64xui8> -> tensor<8x64xi32>
  %zero = logical.constant dense<200> : tensor<8x64xui8>
  %short = logical.cast %zero : tensor<8x64xui8> -> tensor<8x64xi8>
  %z = logical.cast %short : tensor<8x64xi8> -> tensor<8x64xi32>
  %d = logical.sub %i, %z : tensor<8x64xi32>""",
    "i16 less a zero point": """
  %s = logical.cast %x : tensor<8x64xui8> -> tensor<8x64xi16>
  %low = logical.constant dense<-32768> : tensor<8x64xi16>
  %a = logical.add %s, %low : tensor<8x64xi16>
  %i = logical.cast %a : tensor<8x64xi16> -> tensor<8x64xi32>
  %z = logical.constant dense<100> : tensor<8x64xi32>
  %d = logical.sub %i, %z : tensor<8x64xi32>""",
}
"""Ways from `%x`, u8, to integers `%d` that are not those which i16 arithmetic on `%x` would give."""


@pytest.mark.parametrize("way", WRAPPING)
@pytest.mark.usefixtures("integers_pay")
def test_integers_that_wrap_around_do_so_as_the_model_says(way: str) -> None:
    body = WRAPPING[way]
    last = body.rsplit("tensor<8x64x", 1)[1].rstrip(">")
    x_type, w_type, y_type = "tensor<8x64xui8>", "tensor<64x32xi8>", "tensor<8x32xf32>"
    arguments = f"""%x : {x_type} {{logical.name = "x", logical.role = "input"}},
  %w : {w_type} {{logical.name = "w", logical.role = "input"}}"""
    text = f"""
func.func @f({arguments}) -> ({y_type} {{logical.name = "y"}}) {{{body}
  %f = logical.cast %d : tensor<8x64x{last}> -> tensor<8x64xf32>
  %scale = logical.constant dense<0.5> : tensor<8x64xf32>
  %xd = logical.mul %f, %scale : tensor<8x64xf32>
  %g = logical.cast %w : tensor<64x32xi8> -> tensor<64x32xf32>
  %other = logical.constant dense<0.25> : tensor<64x32xf32>
  %wd = logical.mul %g, %other : tensor<64x32xf32>
  %y = logical.matmul %xd, %wd : (tensor<8x64xf32>, tensor<64x32xf32>) -> tensor<8x32xf32>
  func.return %y : tensor<8x32xf32>
}}"""
    rng = np.random.default_rng(5)
    x = np.arange(8 * 64, dtype=np.int64).reshape(8, 64) % 256
    w = rng.integers(-128, 128, (64, 32))
    difference = {
        "a difference in u8": (x - 100) % 256,
        "a cast to i8": (x + 128) % 256 - 128,
        "a zero point cast to i8": x - (200 - 256),
        "i16 less a zero point": x - 32768 - 100,
    }[way]
    y = aicf.compile(text, target="cpu").run({"x": x.astype(np.uint8), "w": w.astype(np.int8)})["y"]
    np.testing.assert_allclose(y, difference @ w * 0.125, rtol=1e-5, atol=1e-2)
