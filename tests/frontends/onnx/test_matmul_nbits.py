"""MatMulNBits of ONNX Runtime: products with weights of 4 and 8 bits against float64, and against ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aicf
from aicf.errors import InvalidIR, UnsupportedOp

RNG = np.random.default_rng(227)
N, K = 48, 160
WIDE_K = 256
"""Of groups that are longer than K is."""


@dataclass(frozen=True)
class Weight:
    """A weight [N, K] in groups: codes, scales and zero points of each."""

    group: int
    zero: str
    scale: str = "float32"
    bits: int = 4
    k: int = K

    def initializers(self) -> dict[str, np.ndarray]:
        groups = -(-self.k // self.group)
        found = {
            "B": RNG.integers(0, 256, (N, groups, self.group * self.bits // 8), dtype=np.uint8),
            "scales": RNG.standard_normal(N * groups).astype(self.scale),
        }
        if self.zero == "packed":
            found["zero"] = RNG.integers(0, 256, N * -(-groups * self.bits // 8), dtype=np.uint8)
        elif self.zero == "floats":
            found["zero"] = RNG.uniform(0, 15, N * groups).astype(self.scale)
        return found

    def widened(self, given: dict[str, np.ndarray]) -> np.ndarray:
        """f64[N, K], element by element."""
        groups = -(-self.k // self.group)
        wide = np.zeros((N, self.k))
        for n in range(N):
            for k in range(self.k):
                group, place = divmod(k, self.group)
                code, zero = self.code(given["B"][n, group], place), float(1 << (self.bits - 1))
                if self.zero == "packed":
                    zero = float(self.code(given["zero"].reshape(N, -1)[n], group))
                elif self.zero == "floats":
                    zero = float(given["zero"].reshape(N, groups)[n, group])
                wide[n, k] = (float(code) - zero) * float(given["scales"].reshape(N, groups)[n, group])
        return wide

    def code(self, data: np.ndarray, number: int) -> int:
        """Of bytes that hold two codes of 4 bits, the lower bits first, or one of 8."""
        return int(data[number]) if self.bits == 8 else int(data[number // 2]) >> 4 * (number % 2) & 15


def model_of(
    given: dict[str, np.ndarray], group: int, element: int = TensorProto.FLOAT, **attributes: int
) -> onnx.ModelProto:
    stated = {"K": K, "N": N, "bits": 4, "block_size": group} | attributes
    k = stated["K"]
    inputs = ["A", "B", "scales", *(["zero"] if "zero" in given else [])]
    node = helper.make_node("MatMulNBits", inputs, ["Y"], "n", domain="com.microsoft", **stated)
    graph = helper.make_graph(
        [node],
        "packed",
        [helper.make_tensor_value_info("A", element, [2, 3, k])],
        [helper.make_tensor_value_info("Y", element, [2, 3, N])],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


WEIGHTS = {
    "32": Weight(32, "none"),
    "32-packed": Weight(32, "packed"),
    "64-floats": Weight(64, "floats"),
    "128-packed": Weight(128, "packed"),
    "16-packed": Weight(16, "packed"),
    "256-packed": Weight(256, "packed", k=WIDE_K),
    "8-bits-32-packed": Weight(32, "packed", bits=8),
    "8-bits-256-floats": Weight(256, "floats", bits=8, k=WIDE_K),
}


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
def test_products(weight: Weight) -> None:
    given = weight.initializers()
    model = aicf.compile(model_of(given, weight.group, bits=weight.bits, K=weight.k), target="cpu")
    x = RNG.standard_normal((2, 3, weight.k)).astype(np.float32)
    wide = weight.widened(given)
    bound = 2.0**-20 * (np.abs(x) @ np.abs(wide).T)
    assert (np.abs(model.run({"A": x})["Y"] - x @ wide.T) <= bound).all()
    assert 'kernel("cpu.matmul_blocks"' in model.ir("emit")


@pytest.mark.peers
@pytest.mark.parametrize(
    ("element", "bits", "group", "zero"),
    [
        ("float32", 4, 16, "none"),
        ("float32", 4, 256, "none"),
        ("float32", 8, 16, "packed"),
        ("float32", 8, 64, "packed"),
        ("float32", 8, 256, "packed"),
        ("float16", 4, 32, "packed"),
        ("float16", 8, 128, "none"),
    ],
)
def test_products_of_onnx_runtime(element: str, bits: int, group: int, zero: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    weight = Weight(group, zero, element, bits)
    given = weight.initializers()
    number = TensorProto.FLOAT if element == "float32" else TensorProto.FLOAT16
    model = model_of(given, weight.group, number, bits=bits)
    x = RNG.standard_normal((2, 3, K)).astype(element)
    (theirs,) = runtime.InferenceSession(model.SerializeToString()).run(None, {"A": x})
    ours = aicf.compile(model, target="cpu").run({"A": x})["Y"]
    assert ours.dtype == theirs.dtype
    bound = (2.0**-20 if element == "float32" else 2.0**-8) * np.abs(theirs).max()
    assert np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max() <= bound


@pytest.mark.parametrize(
    ("attributes", "error", "message"),
    [
        ({"bits": 2}, UnsupportedOp, "bits is 2; weights of 4 or 8 bits are read"),
        ({"block_size": 24}, UnsupportedOp, "block_size 24; block_size is a multiple of 16 and K one of 32"),
        (
            {"K": 144},
            UnsupportedOp,
            "K is 144 and block_size 32; block_size is a multiple of 16 and K one of 32",
        ),
        ({"N": 47}, InvalidIR, r"B is 48x5x16xu8; its attributes ask for u8 \[47, 5, 16\]"),
    ],
)
def test_what_is_not_read(attributes: dict[str, int], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        aicf.compile(model_of(Weight(32, "none").initializers(), 32, **attributes), target="cpu")
