"""Convolutional networks that ONNX Runtime quantised, with QuantizeLinear and DequantizeLinear around each op."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import aicf

onnxruntime = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")
pytestmark = pytest.mark.peers

Array = NDArray[Any]
SHAPE = (2, 3, 33, 33)


class _Network:
    """Writes convolutions with batch norm folded in, one after the other."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.value = "x"

    def add(self, op: str, *others: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.value, *others], [name], name=name, **attributes))
        self.value = name
        return name

    def weight(self, shape: tuple[int, ...], scale: float) -> str:
        name = f"w{len(self.weights)}"
        array = self.rng.normal(0, scale, shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, channels: int, outputs: int, taps: int, step: int = 1, groups: int = 1) -> None:
        inner = channels // groups * taps**2
        w = self.weight((outputs, channels // groups, taps, taps), (2 / inner) ** 0.5)
        b = self.weight((outputs,), 0.2)
        pads = [taps // 2] * 4
        self.add("Conv", w, b, kernel_shape=[taps] * 2, strides=[step] * 2, pads=pads, group=groups)

    def proto(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
            [helper.make_tensor_value_info(self.value, TensorProto.FLOAT, None)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)


def residual() -> onnx.ModelProto:
    """Windows of 7 x 7 and a max-pool, two blocks with a residual, and the mean."""
    net = _Network(1)
    net.conv(3, 16, 7, 2)
    net.add("Relu")
    start = net.add("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    net.conv(16, 16, 3)
    net.add("Relu")
    net.conv(16, 16, 3)
    net.add("Add", start)
    start = net.add("Relu")
    net.conv(16, 40, 1, 2)
    other, net.value = net.value, start
    net.conv(16, 40, 3, 2)
    net.add("Relu")
    net.conv(40, 40, 3)
    net.add("Add", other)
    net.add("Relu")
    net.add("GlobalAveragePool")
    return net.proto()


def inverted() -> onnx.ModelProto:
    """Blocks that widen, convolve each channel and narrow again."""
    net = _Network(2)
    net.conv(3, 8, 3, 2)
    net.add("Clip", *_bounds(net))
    start = net.value
    for step in (1, 2):
        net.conv(8, 48, 1)
        net.add("Clip", *_bounds(net))
        net.conv(48, 48, 3, step, 48)
        net.add("Clip", *_bounds(net))
        net.conv(48, 8, 1)
        if step == 1:
            net.add("Add", start)
    return net.proto()


def _bounds(net: _Network) -> tuple[str, str]:
    names = f"low{len(net.nodes)}", f"high{len(net.nodes)}"
    net.weights += [
        numpy_helper.from_array(np.array(number, np.float32), name)
        for name, number in zip(names, (0, 6), strict=True)
    ]
    return names


class _Calibration(quantization.CalibrationDataReader):
    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.arrays: Iterator[Array] = iter([rng.standard_normal(SHAPE).astype(np.float32) for _ in range(4)])

    def get_next(self) -> dict[str, Array] | None:
        array = next(self.arrays, None)
        return None if array is None else {"x": array}


def quantised(model: onnx.ModelProto, folder: Path, activations: str) -> str:
    """The path of the model with weights per channel, and activations of a type."""
    source, target = str(folder / "f32.onnx"), str(folder / "quantised.onnx")
    onnx.save(model, source)
    quantization.quantize_static(
        source,
        target,
        _Calibration(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=getattr(quantization.QuantType, activations),
        weight_type=quantization.QuantType.QInt8,
    )
    return target


def step_of(path: str) -> float:
    """The scale of what the model gives."""
    model = onnx.load(path)
    last = model.graph.node[-1]
    assert last.op_type == "DequantizeLinear"
    (scale,) = (each for each in model.graph.initializer if each.name == last.input[1])
    return float(numpy_helper.to_array(scale))


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3"])
@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("make", [residual, inverted])
def test_within_a_step_of_onnxruntime(make: Any, activations: str, target: str, tmp_path: Path) -> None:
    path = quantised(make(), tmp_path, activations)
    x = np.random.default_rng(7).standard_normal(SHAPE).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    exe = aicf.compile(path, target=target)
    (found,) = exe.run({"x": x}).values()
    steps = np.abs(found - wanted) / step_of(path)
    assert steps.max() <= 1.01
    assert (steps > 0.5).mean() < 0.05


def test_what_lies_between_convolutions_is_bytes(tmp_path: Path) -> None:
    """Bias, activation, residual and quantisation are part of the instructions of convolutions, and the max-pool reads
    and writes bytes."""
    path = quantised(residual(), tmp_path, "QUInt8")
    exe = aicf.compile(path, target="cpu:x86-64-v4+avx512vnni")
    choices = {each.subjects[0]: each.choice for each in exe.decisions if each.made_by == "narrow-products"}
    assert set(choices.values()) == {"of integers: u8 and i8"}
    run = exe.ir("emit").split("emit.program @")[-1].splitlines()
    (pool,) = (line for before, line in pairwise(run) if 'emit.resolved "pool"' in before)
    assert "xui8, arena, strides" in pool.partition("outs(")[0]
    assert "xui8, arena, strides" in pool.partition("outs(")[2]
    quantised_slots = [line for line in run if "emit.slot" in line and "_QuantizeLinear =" in line]
    assert len(quantised_slots) >= 4 and all("xui8" in line for line in quantised_slots)
    assert not any("emit.slot" in line and "xi32, arena" in line for line in run), (
        "sums are quantised where they are"
    )
    kernels = [line for line in run if "emit.resolved" in line]
    assert sum('"conv"' in line for line in kernels) == 6
    assert sum('"generated"' in line for line in kernels) == 2, "the first quantisation, and the mean"
