"""Networks that ONNX Runtime quantised, compiled for cuda without a GPU: which kernels run them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aicf
from aicf.backends.cuda.compiler import build
from aicf.backends.cuda.compiler.code import Cubin
from aicf.compilation.compiled import CompiledModel
from tests.passes.test_quantised_networks import quantised, residual

quantization = pytest.importorskip("onnxruntime.quantization")
pytestmark = pytest.mark.peers

TARGET = "cuda:sm_90a"


@pytest.fixture
def no_kernel_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at here is decided before, and the code of these kernels is compiled in tests of their own."""

    def written(codes: Iterator[object], _: str) -> dict[str, Cubin]:
        assert list(codes)
        return {}

    monkeypatch.setattr(build, "compile_kernels", written)


ROWS, WIDTH, HIDDEN = (2, 32), 64, 256


class _Rows(quantization.CalibrationDataReader):
    """Inputs of the block."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        arrays = [rng.standard_normal((*ROWS, WIDTH)).astype(np.float32) for _ in range(4)]
        self.arrays: Iterator[Any] = iter(arrays)

    def get_next(self) -> dict[str, Any] | None:
        array = next(self.arrays, None)
        return None if array is None else {"x": array}


def block() -> onnx.ModelProto:
    """Attention of one head and a MLP, whose weights lie as [K, N]."""
    rng = np.random.default_rng(2)
    sizes = {name: (WIDTH, WIDTH) for name in ("wq", "wk", "wv", "wo")}
    sizes |= {"w1": (WIDTH, HIDDEN), "w2": (HIDDEN, WIDTH)}
    weights = [
        numpy_helper.from_array(rng.normal(0, shape[0] ** -0.5, shape).astype(np.float32), name)
        for name, shape in sizes.items()
    ]
    weights.append(numpy_helper.from_array(np.array(WIDTH**-0.5, np.float32), "scale"))
    table = (
        ("MatMul", "x wq", "q", {}),
        ("MatMul", "x wk", "k", {}),
        ("MatMul", "x wv", "v", {}),
        ("Transpose", "k", "kt", {"perm": [0, 2, 1]}),
        ("MatMul", "q kt", "s", {}),
        ("Mul", "s scale", "scaled", {}),
        ("Softmax", "scaled", "p", {"axis": -1}),
        ("MatMul", "p v", "a", {}),
        ("MatMul", "a wo", "o", {}),
        ("Add", "o x", "r", {}),
        ("MatMul", "r w1", "h", {}),
        ("Relu", "h", "hr", {}),
        ("MatMul", "hr w2", "m", {}),
        ("Add", "m r", "y", {}),
    )
    nodes = [
        helper.make_node(op, reads.split(), [to], name=to, **attributes)
        for op, reads, to, attributes in table
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, (*ROWS, WIDTH))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "block", [given], [result], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def kernels_of(exe: CompiledModel) -> Counter[str]:
    return Counter(launch.kernel for program in exe.plan.programs for launch in program.launches)


@pytest.mark.usefixtures("no_kernel_is_compiled")
@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
def test_convolutions_of_a_residual_network_are_of_bytes(activations: str, tmp_path: Path) -> None:
    """All of them, the first included; the other instructions are the first quantisation, the max-pool, the mean."""
    exe = aicf.compile(quantised(residual(), tmp_path, activations), target=TARGET)
    found = kernels_of(exe)
    assert found["cuda.conv_mma_int8"] + found["cuda.conv_wgmma_int8"] == 6
    assert sum(found.values()) == 9
    assert "cuda.conv_mma_int8" in str(exe.explain())


def test_products_of_a_transformer_block_are_of_bytes(tmp_path: Path) -> None:
    """Those with weights, which are packed ahead. All code is compiled here, in `aicf.compile`."""
    source, target = str(tmp_path / "f32.onnx"), str(tmp_path / "quantised.onnx")
    onnx.save(block(), source)
    quantization.quantize_static(
        source,
        target,
        _Rows(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    exe = aicf.compile(target, target=TARGET)
    chosen = {each.subjects[0]: each.choice for each in exe.decisions if each.made_by == "narrow-products"}
    assert list(chosen.values()).count("of integers: u8 and i8") == 6, chosen
    found = kernels_of(exe)
    assert found["cuda.gemm_mma_int8"] + found["cuda.gemm_wgmma_int8"] >= 4, found
    assert "product_weight" in exe.ir("emit")
