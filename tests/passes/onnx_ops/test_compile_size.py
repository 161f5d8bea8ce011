"""Attributes far beyond the operand: what is compiled follows the work, and the values are those of the definition.

Each case is compiled twice, with an attribute that a model would have and with a huge one. The second program may have
a few instructions more, for it pads or repeats where the first need not, but none for each unit of the attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from tests.support.onnx_models import feeds, one_node

Array = NDArray[Any]
HUGE = 1 << 20
MORE_LINES, MORE_BYTES = 100, 6500
"""What the program of a huge attribute may have on top: lines of emit IR, and bytes of the object."""


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Case:
    """One op with an attribute that a model would have, and with a huge one.

    Args:
        inputs, attributes: Of the huge one; `usual_inputs` and `usual` of the other, as far as they differ.
        wanted: The result of the huge one, from its inputs, in float64.
        known: Which operands are initializers.
    """

    op_type: str
    inputs: Sequence[Array | None]
    attributes: dict[str, Any]
    usual: dict[str, Any]
    wanted: Callable[[Array], Array]
    usual_inputs: Sequence[Array | None] | None = None
    known: tuple[int, ...] = ()
    opset: int = 21
    rtol: float = field(default=1e-5)


def lrn(x: Array, size: int, alpha: float, beta: float, bias: float) -> Array:
    """By the definition: channels c - floor((size - 1) / 2) to c + ceil((size - 1) / 2), as far as they are there."""
    total = np.zeros(x.shape)
    for channel in range(x.shape[1]):
        first = max(0, channel - (size - 1) // 2)
        last = min(x.shape[1] - 1, channel + size // 2)
        total[:, channel] = (x[:, first : last + 1].astype(np.float64) ** 2).sum(1)
    return x / (bias + alpha / size * total) ** beta


def windows(x: Array, kernel: int, low: int, stride: int, dilation: int, count: int) -> list[list[Array]]:
    """Of a [N, C, S] operand: for each window the elements that lie inside."""
    starts = [number * stride - low for number in range(count)]
    length = x.shape[2]
    return [
        [
            x[..., start + step * dilation].astype(np.float64)
            # Only steps that lie inside are visited, however large the kernel is.
            for step in range(max(0, -(start // dilation)), min(kernel, (length - 1 - start) // dilation + 1))
        ]
        for start in starts
    ]


def pooled(how: Callable[..., Array], kernel: int, low: int, stride: int, dilation: int, count: int) -> Any:
    def result(x: Array) -> Array:
        parts = windows(x, kernel, low, stride, dilation, count)
        return np.stack([how(np.stack(part)) for part in parts], -1)

    return result


def largest(part: Array) -> Array:
    return part.max(0)


def mean(part: Array) -> Array:
    return part.mean(0)


def norm(part: Array) -> Array:
    return np.sqrt((part**2).sum(0))


def col_to_im(x: Array, size: int, stride: int) -> Array:
    """Windows of 2 by 2, added up where they lie on a square image."""
    image, count = np.zeros((1, 1, size, size)), (size - 2) // stride + 1
    columns = x.astype(np.float64).reshape(2, 2, count, count)
    for row, column in np.ndindex(2, 2):
        end = count * stride
        image[0, 0, row : row + end : stride, column : column + end : stride] += columns[row, column]
    return image


def box_mean(x: Array) -> Array:
    """Of windows of 3 along each dimension after the second, with a border of 1 that does not count."""
    border = [(0, 0), (0, 0)] + [(1, 1)] * (x.ndim - 2)

    def total(part: Array) -> Array:
        for axis in range(2, x.ndim):
            part = np.sum([part.take(range(tap, tap + x.shape[axis]), axis) for tap in range(3)], 0)
        return part

    return total(np.pad(x.astype(np.float64), border)) / total(np.pad(np.ones(x.shape), border))


def correlated(x: Array, weight: Array) -> Array:
    """Along the last dimension, each channel with a window of its own: [N, C, 1, S], [C, 1, 1, K]."""
    rows = [
        [np.correlate(row, w[0, 0]) for row, w in zip(n[:, 0].astype(np.float64), weight, strict=True)]
        for n in x
    ]
    return np.array(rows)[:, :, None]


POOLS = {"MaxPool": largest, "AveragePool": mean, "LpPool": norm}
WIDE = {"kernel_shape": [HUGE + 1], "pads": [HUGE // 2] * 2}
X = random(1, 3, 8)
GRAMS = {
    **{"mode": "TF", "min_gram_length": 1, "max_gram_length": 2},
    **{"ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2], "pool_int64s": [4, 5, 6, 7]},
}
"""Of TfIdfVectorizer: two single numbers and a pair."""

CASES = {
    **{
        f"LRN {size} of {channels}": Case(
            "LRN",
            [random(2, channels, 3, 2, seed=size % 1000)],
            {"size": size, "alpha": 0.7 * min(size, 4 * channels), "beta": 0.6, "bias": 1.5},
            {"size": 3, "alpha": 0.3},
            lambda x, size=size, channels=channels: lrn(x, size, 0.7 * min(size, 4 * channels), 0.6, 1.5),
        )
        for size, channels in (
            (1001, 4),
            (HUGE + 1, 6),
            (1 << 40, 5),
            (8, 3),
            (2, 3),
            (9, 64),
            (129, 64),
            (5, 1),
        )
    },
    **{
        f"{op} kernel": Case(op, [X], WIDE, {"kernel_shape": [3]}, pooled(how, HUGE + 1, HUGE // 2, 1, 1, 8))
        for op, how in POOLS.items()
    },
    **{
        f"{op} auto_pad": Case(
            op,
            [X],
            {"kernel_shape": [HUGE + 1], "auto_pad": "SAME_UPPER"},
            {"kernel_shape": [3]},
            pooled(how, HUGE + 1, HUGE // 2, 1, 1, 8),
        )
        for op, how in POOLS.items()
    },
    **{
        f"{op} dilations": Case(
            op,
            [X],
            {"kernel_shape": [3], "pads": [HUGE, HUGE], "dilations": [HUGE]},
            {"kernel_shape": [3]},
            pooled(how, 3, HUGE, 1, HUGE, 8),
        )
        for op, how in POOLS.items()
    },
    **{
        f"{op} strides": Case(
            op,
            [X],
            {"kernel_shape": [3], "strides": [HUGE]},
            {"kernel_shape": [3]},
            pooled(how, 3, 0, HUGE, 1, 1),
        )
        for op, how in POOLS.items()
    },
    "LpPool p": Case(
        "LpPool",
        [np.abs(X) + 1],
        {"kernel_shape": [3], "p": 40},
        {"kernel_shape": [3], "p": 3},
        pooled(lambda part: (part**40).sum(0) ** (1 / 40), 3, 0, 1, 1, 6),
        rtol=1e-4,
    ),
    **{
        f"{op} kernel of many rows": Case(
            op,
            [random(1, 3, 8, 5)],
            {"kernel_shape": [HUGE + 1, 1], "pads": [HUGE // 2, 0] * 2},
            {"kernel_shape": [3, 1]},
            lambda x, how=how: np.broadcast_to(
                how(np.moveaxis(x.astype(np.float64), 2, 0))[:, :, None], x.shape
            ),
        )
        for op, how in POOLS.items()
    },
    **{
        f"AveragePool of {'x'.join(map(str, sizes))}": Case(
            "AveragePool",
            [random(1, 1, *sizes)],
            {"kernel_shape": [3] * len(sizes), "pads": [1, 1] * len(sizes)},
            {"kernel_shape": [3] * len(sizes), "pads": [1, 1] * len(sizes)},
            box_mean,
            usual_inputs=[random(1, 1, *[9] * len(sizes))],
        )
        for sizes in ((100_000,), (100_000, 5), (5, 100_000))
    },
    "LRN of a large plane": Case(
        "LRN",
        [random(1, 2, 1 << 20)],
        {"size": 3, "alpha": 0.3, "beta": 0.6, "bias": 1.5},
        {"size": 3, "alpha": 0.3, "beta": 0.6, "bias": 1.5},
        lambda x: lrn(x, 3, 0.3, 0.6, 1.5),
        usual_inputs=[random(1, 2, 9)],
    ),
    "ConvTranspose dilations": Case(
        "ConvTranspose",
        [random(1, 1, 3), random(1, 1, 2)],
        {"dilations": [HUGE]},
        {},
        lambda x: np.concatenate(
            [x * random(1, 1, 2)[0, 0, 0], np.zeros((1, 1, HUGE - 3)), x * random(1, 1, 2)[0, 0, 1]], 2
        ),
        known=(1,),
    ),
    "depthwise Conv kernel": Case(
        "Conv",
        [random(1, 2, 1, 6000), random(2, 1, 1, 5000)],
        {"group": 2},
        {"group": 2},
        lambda x: correlated(x, random(2, 1, 1, 5000)),
        usual_inputs=[random(1, 2, 1, 60), random(2, 1, 1, 50)],
        rtol=1e-3,
    ),
    "Conv dilations": Case(
        "Conv",
        [X, random(1, 3, 3)],
        {"pads": [HUGE, HUGE], "dilations": [HUGE]},
        {},
        lambda x: np.einsum("ncs,kc->nks", x.astype(np.float64), random(1, 3, 3)[..., 1]),
        known=(1,),
    ),
    "Conv strides": Case(
        "Conv",
        [X, random(1, 3, 3)],
        {"strides": [HUGE]},
        {},
        lambda x: np.einsum("ncs,kcs->nk", x[..., :3].astype(np.float64), random(1, 3, 3))[..., None],
        known=(1,),
    ),
    **{
        f"Pad {mode} of {size}": Case(
            "Pad",
            [random(2, size), ints(0, 33333, 0, 4001)],
            {"mode": mode},
            {"mode": mode},
            lambda x, mode=mode: np.pad(x, ((0, 0), (33333, 4001)), mode),
            usual_inputs=[random(2, 4), ints(0, 2, 0, 1)],
            known=(1,),
        )
        for mode in ("wrap", "reflect", "edge", "constant")
        for size in (1, 2, 5)
    },
    "Tile": Case(
        "Tile",
        [random(2, 3), ints(50000, 2)],
        {},
        {},
        lambda x: np.tile(x, (50000, 2)),
        usual_inputs=[random(2, 3), ints(2, 2)],
        known=(1,),
    ),
    "Tile of a constant": Case(
        "Tile",
        [random(2, 3), ints(50000, 2)],
        {},
        {},
        lambda x: np.tile(random(2, 3), (50000, 2)),
        usual_inputs=[random(2, 3), ints(2, 2)],
        known=(0, 1),
    ),
    "Expand of a constant": Case(
        "Expand",
        [random(1, 3), ints(100000, 3)],
        {},
        {},
        lambda x: np.broadcast_to(random(1, 3), (100000, 3)),
        usual_inputs=[random(1, 3), ints(2, 3)],
        known=(0, 1),
    ),
    "Range": Case(
        "Range",
        [ints(3)[0], ints(3 + 7 * 100000)[0], ints(7)[0]],
        {},
        {},
        lambda x: np.arange(3, 3 + 7 * 100000, 7),
        usual_inputs=[ints(3)[0], ints(300000)[0], ints(100)[0]],
        known=(0, 1, 2),
    ),
    "ConstantOfShape": Case(
        "ConstantOfShape",
        [ints(1000, 300)],
        {},
        {},
        lambda x: np.zeros((1000, 300)),
        usual_inputs=[ints(3, 2)],
        known=(0,),
    ),
    "EyeLike": Case(
        "EyeLike", [random(700, 500)], {"k": -3}, {"k": -3}, lambda x: np.eye(700, 500, -3), [random(4, 3)]
    ),
    "EyeLike k": Case("EyeLike", [random(4, 3)], {"k": 1 << 40}, {"k": 1}, lambda x: np.zeros((4, 3))),
    "OneHot": Case(
        "OneHot",
        [ints(3, -1, 70000), ints(100000)[0], random(2)],
        {},
        {},
        lambda x: np.where(
            np.arange(100000) == np.array([[3], [99999], [70000]]), random(2)[1], random(2)[0]
        ),
        usual_inputs=[ints(3, -1, 2), ints(5)[0], random(2)],
        known=(1, 2),
    ),
    "Trilu k": Case(
        "Trilu",
        [random(4, 4), ints(1 << 40)[0]],
        {"upper": 0},
        {"upper": 0},
        lambda x: x,
        usual_inputs=[random(4, 4), ints(1)[0]],
        known=(1,),
    ),
    "Einsum of many indices": Case(
        "Einsum",
        [random(*[2 if dim % 8 == 0 else 1 for dim in range(24)])],
        {"equation": "abcdefghijklmnopqrstuvwx->xwvutsrqponmlkjihgfedcba"},
        {"equation": "ab->ba"},
        lambda x: x.T,
        usual_inputs=[random(2, 2)],
    ),
    "Resize by repetition": Case(
        "Resize",
        [random(1, 1, 4), None, np.array([1, 1, 50000], np.float32)],
        {},
        {},
        lambda x: np.repeat(x, 50000, 2),
        usual_inputs=[random(1, 1, 4), None, np.array([1, 1, 2], np.float32)],
        known=(2,),
    ),
    "CumSum": Case(
        "CumSum",
        [np.abs(random(2, 30000)), ints(1)[0]],
        {},
        {},
        lambda x: np.cumsum(x.astype(np.float64), 1),
        usual_inputs=[random(2, 3), ints(1)[0]],
        known=(1,),
        rtol=2e-3,
    ),
    "TopK": Case(
        "TopK",
        [random(2, 30000), ints(30000)],
        {},
        {},
        lambda x: -np.sort(-x, 1),
        usual_inputs=[random(2, 30), ints(30)],
        known=(1,),
    ),
    "SpaceToDepth": Case(
        "SpaceToDepth",
        [random(1, 1, 256, 512)],
        {"blocksize": 256},
        {"blocksize": 2},
        lambda x: x.reshape(1, 1, 1, 256, 2, 256).transpose(0, 3, 5, 1, 2, 4).reshape(1, 65536, 1, 2),
    ),
    "DFT": Case(
        "DFT",
        [random(1, 16, 1), ints(1 << 13)[0]],
        {},
        {},
        lambda x: np.stack([(y := np.fft.fft(x[..., 0].astype(np.float64), 1 << 13)).real, y.imag], -1),
        usual_inputs=[random(1, 16, 1), ints(1 << 9)[0]],
        known=(1,),
        opset=20,
    ),
    "integer Pow": Case(
        "Pow",
        [np.arange(-4, 5, dtype=np.int32), np.array(1_000_000_007, np.int32)],
        {},
        {},
        lambda x: np.array([pow(int(value), 1_000_000_007, 1 << 32) for value in x], np.uint32).view(
            np.int32
        ),
        usual_inputs=[np.arange(-4, 5, dtype=np.int32), np.array(3, np.int32)],
        known=(1,),
    ),
    "Col2Im of a large image": Case(
        "Col2Im",
        [random(1, 4, 4), ints(1000, 1000), ints(2, 2)],
        {"strides": [998, 998]},
        {"strides": [2, 2]},
        lambda x: col_to_im(x, 1000, 998),
        usual_inputs=[random(1, 4, 4), ints(4, 4), ints(2, 2)],
        known=(1, 2),
    ),
    "Col2Im of many windows": Case(
        "Col2Im",
        [random(1, 4, 40000), ints(201, 201), ints(2, 2)],
        {},
        {},
        lambda x: col_to_im(x, 201, 1),
        usual_inputs=[random(1, 4, 4), ints(3, 3), ints(2, 2)],
        known=(1, 2),
    ),
    "LSTM steps": Case(
        "LSTM",
        [random(4000, 1, 2), np.zeros((1, 8, 2), np.float32), np.zeros((1, 8, 2), np.float32)],
        {"hidden_size": 2},
        {"hidden_size": 2},
        lambda x: np.zeros((4000, 1, 1, 2)),
        usual_inputs=[random(8, 1, 2), np.zeros((1, 8, 2), np.float32), np.zeros((1, 8, 2), np.float32)],
        known=(1, 2),
    ),
}


def compiled(case: Case, inputs: Sequence[Array | None], attributes: dict[str, Any]) -> Any:
    outputs = 2 if case.op_type == "TopK" else 1
    model = one_node(case.op_type, inputs, outputs, known=case.known, opset=case.opset, **attributes)
    return aicf.compile(model, target="cpu")


def test_a_large_splat_is_one_value_of_the_plan() -> None:
    """An output of 10^10 elements compiles, and running it says what it takes."""
    model = one_node("ConstantOfShape", [ints(100_000, 100_000)], known=(0,))
    exe = aicf.compile(model, target="reference")
    assert exe.outputs[0].shape == (100_000, 100_000)
    many = one_node(
        "Col2Im", [random(1, 4, 4), ints(20_000, 20_000), ints(2, 2)], known=(1, 2), strides=[19_998] * 2
    )
    plan = aicf.compile(many, target="reference").plan.programs[0]
    constants = [bind for bind in plan.graph.binds if bind.role == "const"]
    assert constants and all(len(bind.value or "") <= 2 * 8 for bind in constants)


def test_elements_beyond_32_bits_are_counted() -> None:
    """Indices of 64 bits that a body computes from constants are numbers, as others are."""
    model = one_node("LRN", [random(1, 1, 1, 1)], size=3)
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, (5, 5, 5, 1 << 24), strict=True):
        dim.dim_value = size
    assert len(aicf.compile(model, target="cpu").native.code) < 20_000


@pytest.mark.parametrize("name", CASES)
def test_what_is_compiled_follows_the_work(name: str) -> None:
    case = CASES[name]
    usual = compiled(case, case.usual_inputs or case.inputs, case.usual)
    huge = compiled(case, case.inputs, case.attributes)
    lines, most = (exe.ir("emit").count("\n") for exe in (huge, usual))
    assert lines <= most + MORE_LINES
    assert len(huge.ir("emit")) < 25_000
    assert len(huge.native.code) <= len(usual.native.code) + MORE_BYTES
    given = feeds(case.inputs, case.known)
    found = huge.run(given)["y0"]
    wanted = np.asarray(case.wanted(next(iter(given.values())) if given else np.zeros(0)))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=case.rtol, atol=1e-5)


@pytest.mark.parametrize(
    ("op_type", "inputs", "known", "attributes", "message"),
    [
        ("RNN", [random(4097, 1, 2), random(1, 2, 2), random(1, 2, 2)], (1, 2), {"hidden_size": 2},
         "RNN 'node': it has 4097 steps .the sequence length of operand 0., .* at most 4096"),
        ("GRU", [random(20000, 1, 2), random(1, 6, 2), random(1, 6, 2)], (1, 2), {"hidden_size": 2},
         "GRU 'node': it has 20000 steps .* at most 4096"),
        ("LSTM", [random(5000, 1, 2), random(1, 8, 2), random(1, 8, 2)], (1, 2), {"hidden_size": 2, "clip": 3.0},
         "LSTM 'node': it has 5000 steps .* at most 4096"),
        ("Resize", [random(1, 1, 4), None, np.array([1, 1, 400000], np.float32)], (2,), {"mode": "linear"},
         "Resize 'node': axis 2 gets 1600000 elements; .* for 1 to 1048576 of an axis"),
        ("HannWindow", [ints(1 << 40)[0]], (0,), {},
         "HannWindow 'node': size is 1099511627776; at most 4194304 elements"),
        ("MelWeightMatrix", [ints(HUGE)[0], ints(HUGE)[0], ints(16000)[0], np.float32(0), np.float32(8000)],
         (0, 1, 2, 3, 4), {}, "MelWeightMatrix 'node': num_mel_bins . dft_length is .*; at most 4194304"),
        ("LinearAttention", [random(1, 5000, 2)] * 3, (), {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": "linear",
         "opset": 27, "outputs": 2}, "LinearAttention 'node': it has 5000 tokens .* at most 4096"),
        ("CausalConvWithState", [random(1, 2, 3), random(2, 1, 5000)], (), {"opset": 27, "outputs": 2},
         "CausalConvWithState 'node': it has 5000 taps .* at most 4096"),
        ("Resize", [random(1, 1, 600000), None, None, ints(1, 1, 100)], (3,), {"mode": "linear", "antialias": 1},
         "Resize 'node': its tables of what each element of the result reads have 2400000 elements; at most 2097152"),
        ("Resize", [random(1, 1, 3000000), None, None, ints(1, 1, 1 << 19)], (3,), {"mode": "cubic", "antialias": 1},
         "Resize 'node': the number of elements read along axis 2 is 12582912; at most 4194304"),
        ("Resize", [random(1, 1, 4), None, None, ints(1, 1, 1 << 20)], (3,), {"mode": "cubic"},
         "Resize 'node': its tables .* have 8388608 elements; at most 2097152 .*: resize before the model"),
        ("TfIdfVectorizer", [ints(*range(3000))], (), {**GRAMS, "max_skip_count": 1 << 40},
         "TfIdfVectorizer 'node': its n-grams of up to 2 elements, .* take 5999 comparisons .* at most 512 are: "),
        ("TfIdfVectorizer", [ints(*range(3000))], (), {**GRAMS, "max_skip_count": 0, "ngram_counts": [0] * 2000,
         "pool_int64s": list(range(2000)), "ngram_indexes": [0], "max_gram_length": 2000},
         "TfIdfVectorizer 'node': its n-grams of up to 2000 elements, .* take 2000 comparisons .* at most 512 are: "),
        ("TfIdfVectorizer", [ints(*range(30))], (), {**GRAMS, "max_skip_count": 0, "ngram_counts": [0],
         "pool_int64s": list(range(1 << 20 | 1)), "ngram_indexes": [0]},
         "TfIdfVectorizer 'node': it reads a table of 1048577 elements; at most 1048576"),
        ("SplitToSequence", [random(5000, 2)], (), {}, "SplitToSequence 'node': .* into 5000 tensors, .* at most 4096"),
        ("SplitToSequence", [random(2, 100000), ints(2)[0]], (1,), {"axis": 1},
         "SplitToSequence 'node': .* into 50000 tensors, .* at most 4096 are: split it into larger ones"),
        ("Det", [random(40, 40)], (), {}, "Det 'node': .*40.* 32"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalpha() else "",
)  # fmt: skip
def test_what_has_a_bound_says_so(
    op_type: str, inputs: Any, known: tuple[int, ...], attributes: dict[str, Any], message: str
) -> None:
    """Op, attribute, value and limit; before anything is written out."""
    inputs = [None if value is None else np.asarray(value) for value in inputs]
    with pytest.raises(aicf.UnsupportedOp, match=message):
        aicf.compile(one_node(op_type, inputs, known=known, **attributes), target="reference")
