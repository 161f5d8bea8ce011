"""MatMulNBits of ONNX Runtime: products with weights of 4 bits against float64, and against ONNX Runtime."""

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


@dataclass(frozen=True)
class Weight:
    """A weight [N, K] in groups: codes, scales and zero points of each."""

    group: int
    zero: str
    scale: str = "float32"

    def initializers(self) -> dict[str, np.ndarray]:
        groups = -(-K // self.group)
        found = {
            "B": RNG.integers(0, 256, (N, groups, self.group // 2), dtype=np.uint8),
            "scales": RNG.standard_normal(N * groups).astype(self.scale),
        }
        if self.zero == "packed":
            found["zero"] = RNG.integers(0, 256, N * -(-groups // 2), dtype=np.uint8)
        elif self.zero == "floats":
            found["zero"] = RNG.uniform(0, 15, N * groups).astype(self.scale)
        return found

    def widened(self, given: dict[str, np.ndarray]) -> np.ndarray:
        """f64[N, K], element by element."""
        groups = -(-K // self.group)
        wide = np.zeros((N, K))
        for n in range(N):
            for k in range(K):
                group, place = divmod(k, self.group)
                code = given["B"][n, group, place // 2] >> 4 * (place % 2) & 15
                zero = 8.0
                if self.zero == "packed":
                    zero = float(given["zero"].reshape(N, -1)[n, group // 2] >> 4 * (group % 2) & 15)
                elif self.zero == "floats":
                    zero = float(given["zero"].reshape(N, groups)[n, group])
                wide[n, k] = (float(code) - zero) * float(given["scales"].reshape(N, groups)[n, group])
        return wide


def model_of(
    given: dict[str, np.ndarray], group: int, element: int = TensorProto.FLOAT, **attributes: int
) -> onnx.ModelProto:
    stated = {"K": K, "N": N, "bits": 4, "block_size": group} | attributes
    inputs = ["A", "B", "scales", *(["zero"] if "zero" in given else [])]
    node = helper.make_node("MatMulNBits", inputs, ["Y"], "n", domain="com.microsoft", **stated)
    graph = helper.make_graph(
        [node],
        "packed",
        [helper.make_tensor_value_info("A", element, [2, 3, K])],
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
}


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
def test_products(weight: Weight) -> None:
    given = weight.initializers()
    model = aicf.compile(model_of(given, weight.group), target="cpu")
    x = RNG.standard_normal((2, 3, K)).astype(np.float32)
    wide = weight.widened(given)
    bound = 2.0**-20 * (np.abs(x) @ np.abs(wide).T)
    assert (np.abs(model.run({"A": x})["Y"] - x @ wide.T) <= bound).all()
    assert 'kernel("cpu.matmul_blocks"' in model.ir("emit")


@pytest.mark.peers
@pytest.mark.parametrize("element", ["float32", "float16"])
def test_products_of_onnx_runtime(element: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    weight = Weight(32, "packed", element)
    given = weight.initializers()
    number = TensorProto.FLOAT if element == "float32" else TensorProto.FLOAT16
    model = model_of(given, weight.group, number)
    x = RNG.standard_normal((2, 3, K)).astype(element)
    (theirs,) = runtime.InferenceSession(model.SerializeToString()).run(None, {"A": x})
    ours = aicf.compile(model, target="cpu").run({"A": x})["Y"]
    assert ours.dtype == theirs.dtype
    bound = (2.0**-20 if element == "float32" else 2.0**-8) * np.abs(theirs).max()
    assert np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max() <= bound


@pytest.mark.parametrize(
    ("attributes", "error", "message"),
    [
        ({"bits": 2}, UnsupportedOp, "bits is 2; weights of 4 bits are read"),
        ({"block_size": 16}, UnsupportedOp, "K and block_size are multiples of 32"),
        ({"N": 47}, InvalidIR, r"B is 48x5x16xu8; its attributes ask for u8 \[47, 5, 16\]"),
    ],
)
def test_what_is_not_read(attributes: dict[str, int], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        aicf.compile(model_of(Weight(32, "none").initializers(), 32, **attributes), target="cpu")
