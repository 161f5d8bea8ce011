"""The roofline of instructions: against operations and bytes counted by hand, and peaks given in the test."""

from __future__ import annotations

import json

import pytest
from xdsl.dialects.builtin import FloatAttr, ModuleOp

import aicf
from aicf.backends.base import Peaks, RooflineBackend
from aicf.backends.registry import get_backend
from aicf.dialects.emit import DecisionOp
from aicf.frontends.text import make_context, parse_module
from aicf.inspection.explain import moved_bytes
from aicf.inspection.roofline import peaks_of, rooflines
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.plan_from_ir import read_module
from tests.test_compiler import MLP, mlp_weights, normal

PEAKS = Peaks(((4096, 50.0), (0, 10.0)), {"f32": 1000.0}, 100.0)
DEPTH, WIDTH, EXPERTS, CHOSEN = 512, 256, 6, 2
ROW_BYTES = DEPTH // 32 * 18
"""Of a row in Q4_0."""


def bytes_moved(program: CapturePlan) -> dict[str, int]:
    """By instruction."""
    pairs = zip(program.graph.nodes, program.launches, strict=True)
    return {node.name: moved_bytes(node.kind, launch, program) for node, launch in pairs}


def test_a_product_and_its_epilogue() -> None:
    """3 x 64 by 64 x 128, a bias and a ReLU."""
    exe = aicf.compile(MLP, mlp_weights(), "cpu:x86-64-v3", dims="N=3")
    module = parse_module(exe.ir("emit"), "emit")
    (program,) = read_module(module).programs
    moved = bytes_moved(program)
    found = rooflines(module, moved, PEAKS)["fc1@N=3"]
    products, rest = 2 * 3 * 64 * 128, 2 * 3 * 128
    assert found.operations == products + rest
    assert found.arithmetic_us == pytest.approx(products / 1000 + rest / 100)
    assert found.memory_us == pytest.approx(moved["fc1@N=3"] / 10)
    assert moved["fc1@N=3"] == 4 * (3 * 64 + 64 * 128 + 128 + 3 * 128)
    assert found.least_us == max(found.arithmetic_us, found.memory_us)


def test_a_convolution_counts_its_windows() -> None:
    graph = aicf.Graph("conv")
    x, w = graph.input("x", (1, 3, 10, 10)), graph.param("w", (5, 3, 3, 3))
    graph.output(graph.conv(x, w, name="conv"), "y")
    exe = aicf.compile(graph, {"w": normal(5, 3, 3, 3)}, "reference")
    found = rooflines(parse_module(exe.ir("emit"), "emit"), {}, PEAKS)
    assert found["conv"].operations == 2 * (3 * 3 * 3) * (5 * 8 * 8)
    assert found["conv"].memory_us == 0


def packed_product(m: int, *, chosen: bool = False) -> aicf.Graph:
    """x times a packed weight; or a row of x times each of the matrices that indices choose."""
    graph = aicf.Graph("packed")
    if not chosen:
        packed = graph.param("w", (WIDTH, ROW_BYTES), "u8")
        graph.output(graph.linear(graph.input("x", (m, DEPTH)), graph.dequantize_blocks(packed, "Q4_0")), "y")
        return graph
    x, indices = graph.input("x", (DEPTH, 1)), graph.input("i", (CHOSEN,), "i64")
    matrices = graph.dequantize_blocks(graph.param("w", (EXPERTS, WIDTH, ROW_BYTES), "u8"), "Q4_0")
    graph.output(graph.matmul(graph.gather(matrices, indices, axis=0), x), "y")
    return graph


@pytest.mark.parametrize(
    ("target", "m", "kind", "policy"),
    [
        ("cuda:sm_90a", 32, "matmul_blocks", {}),
        ("cpu:x86-64-v4+avx512vnni", 32, "matmul_blocks", {}),
        ("cpu:x86-64-v3", 32, "matmul_blocks", {}),
        ("cpu:x86-64-v4+avx512vnni", 32, "rounded_matmul_blocks", {"packed_activations": "int8"}),
        ("cpu:x86-64-v3", 32, "rounded_matmul_blocks", {"packed_activations": "int8"}),
        ("cpu:x86-64-v4+avx512vnni", CHOSEN, "chosen", {}),
    ],
)
def test_no_product_of_packed_weights_is_predicted_to_beat_its_bound(
    target: str, m: int, kind: str, policy: dict[str, str]
) -> None:
    module = packed_product(m, chosen=kind == "chosen").module()
    run(AicfInferencePass(target, json.dumps({"precision": policy})).passes(), make_context(), module)
    plan = read_module(module)
    peaks, (program, *_) = peaks_of(plan), plan.programs
    assert peaks is not None
    (node,) = (node for node in program.graph.nodes if "matmul_blocks" in node.kind)
    moved = bytes_moved(program)[node.name]
    if kind == "chosen":
        assert moved == 4 * (DEPTH + CHOSEN * WIDTH) + 8 * CHOSEN + CHOSEN * WIDTH * ROW_BYTES
    else:
        assert node.kind == kind
    found = rooflines(module, {node.name: moved}, peaks)[node.name]
    assert found.operations == 2 * m * DEPTH * WIDTH
    assert found.least_us <= predicted_us(module, node.name)


def predicted_us(module: ModuleOp, instruction: str) -> float:
    """Of the kernel that `select-kernels` chose."""
    (cost,) = (
        op.cost.data["expected_us"]
        for op in module.walk()
        if isinstance(op, DecisionOp)
        and op.pass_name.data == "select-kernels"
        and op.subjects.data[0].data == instruction
    )
    assert isinstance(cost, FloatAttr)
    return cost.value.data


def test_memory_has_the_speed_of_where_all_fits() -> None:
    assert PEAKS.memory_us(4096) == 4096 / 50
    assert PEAKS.memory_us(4097) == 4097 / 10


@pytest.mark.parametrize("target", ["cpu:x86-64-v4+avx512vnni", "cpu:generic", "cuda:sm_80", "cuda:sm_90a"])
def test_peaks_grow_with_threads_and_narrow_types(target: str) -> None:
    name, arch = target.split(":")
    backend = get_backend(name)
    assert isinstance(backend, RooflineBackend)
    one, two = (backend.peaks(arch, threads) for threads in (1, 2))
    assert all(speed > 0 for _, speed in one.memory) and one.operations > 0
    assert one.products["f16"] >= one.products.get("f32", one.operations)
    factor = 2 if name == "cpu" else 1
    assert two.operations == factor * one.operations
    assert two.memory_us(1 << 30) == pytest.approx(one.memory_us(1 << 30) / factor)


def test_the_reference_has_no_peaks() -> None:
    exe = aicf.compile(MLP, mlp_weights(), "reference", dims="N=1")
    assert peaks_of(exe.plan) is None
