"""Attention is one instruction however a model writes it, at any batch: kinds on both targets, values on the CPU
against float64 NumPy, and the cuda program interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp

import aicf
from aicf.backends.reference.interpreter import run_module
from aicf.dialects.emit import PREPARE, ProgramOp
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from tests.support.attention_spellings import HEADS, SCALE, SIZE, SPELLINGS, D, NumpyOps

Array = NDArray[Any]
TOKENS = 17
BATCHES = (1, 2, 5)
PRODUCTS = {"gemm", "gemm_epilogue", "gemm_multi"}


def built(name: str, batch: int) -> Graph:
    graph = Graph(name)
    SPELLINGS[name](graph, batch, TOKENS)
    return graph


def values_of(module: ModuleOp, seed: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """Random inputs and parameters of the one function."""
    (function,) = module.body.block.ops
    random, found = np.random.default_rng(seed), ({}, {})
    for argument, attrs in zip(function.args, function.arg_attrs.data, strict=True):  # type: ignore[attr-defined]
        role, name = (attrs.data[key].data for key in ("logical.role", "logical.name"))
        value = (0.4 * random.standard_normal(argument.type.get_shape())).astype(np.float32)
        found[role == "param"][name] = value
    return found


def kinds_of(module: ModuleOp) -> list[str]:
    return [
        instruction.kind.data
        for program in module.body.block.ops
        if isinstance(program, ProgramOp) and program.sym_name.data != PREPARE
        for instruction in program.instructions
    ]


def expected(name: str, batch: int, values: dict[str, Array]) -> Array:
    ops = NumpyOps(values)
    SPELLINGS[name](ops, batch, TOKENS)
    assert ops.result is not None
    return ops.result


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cpu:x86-64-v4", "cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", SPELLINGS)
def test_one_instruction_on_every_target(name: str, batch: int, target: str) -> None:
    """Besides the products of the model there is the attention, and nothing else: no copy, no softmax."""
    module = built(name, batch).module()
    AicfInferencePass(target=target).apply(make_context(), module)
    kinds = kinds_of(module)
    assert kinds.count("attention") == 1
    assert set(kinds) - {"attention"} <= PRODUCTS, kinds


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", SPELLINGS)
def test_values_on_the_cpu(name: str, batch: int) -> None:
    graph = built(name, batch)
    inputs, weights = values_of(graph.module(), batch)
    exe = aicf.compile(graph, weights, "cpu")
    (program,) = exe.plan.programs
    assert [node.kind for node in program.graph.nodes].count("attention") == 1
    np.testing.assert_allclose(exe(**inputs), expected(name, batch, inputs | weights), 1e-5, 1e-5)


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cpu:x86-64-v3"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_the_final_program_means_the_same(name: str, target: str) -> None:
    """Interpreted in one poisoned arena, as the strides of operands and results say, for a target that is not here."""
    module = built(name, 2).module()
    inputs, weights = values_of(module, 7)
    AicfInferencePass(target=target).apply(make_context(), module)
    found = run_module(module, inputs | weights, "typed", arena=True).outputs["y"]
    np.testing.assert_allclose(found, expected(name, 2, inputs | weights), 1e-5, 1e-5)


def exported(batch: int, taken: str) -> tuple[Any, dict[str, Array]]:
    """A fused product as exporters write it: taken apart along a dimension by Gather, or by Split and Squeeze."""
    random = np.random.default_rng(batch)
    weights = {
        "w": (0.4 * random.standard_normal((D, 3 * D))).astype(np.float32),
        "b": (0.4 * random.standard_normal(3 * D)).astype(np.float32),
    }
    numbers = {
        "apart": np.array([0, TOKENS, 3, HEADS, SIZE]),
        "joined": np.array([0, TOKENS, D]),
        "ones": np.array([1, 1, 1]),
        "axis": np.array([0]),
        "scale": np.float32(SCALE),
    }
    node = helper.make_node
    if taken == "gather":
        numbers |= {f"at_{name}": np.array(index) for index, name in enumerate("qkv")}
        parts = [node("Gather", ["five", f"at_{name}"], [name], axis=0) for name in "qkv"]
    else:
        parts = [node("Split", ["five", "ones"], ["q1", "k1", "v1"], axis=0)]
        parts += [node("Squeeze", [f"{name}1", "axis"], [name]) for name in "qkv"]
    nodes = [
        node("MatMul", ["x", "w"], ["xw"]),
        node("Add", ["xw", "b"], ["qkv"]),
        node("Reshape", ["qkv", "apart"], ["five_"]),
        node("Transpose", ["five_"], ["five"], perm=[2, 0, 3, 1, 4]),
        *parts,
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["scores_"]),
        node("Mul", ["scores_", "scale"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v"], ["heads"]),
        node("Transpose", ["heads"], ["rows"], perm=[0, 2, 1, 3]),
        node("Reshape", ["rows", "joined"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "exported",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, TOKENS, D])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, TOKENS, D])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights | numbers).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), weights


@pytest.mark.parametrize("taken", ["gather", "split"])
@pytest.mark.parametrize("batch", BATCHES)
def test_exported_to_onnx(batch: int, taken: str) -> None:
    model, weights = exported(batch, taken)
    exe = aicf.compile(model, target="cpu")
    (program,) = exe.plan.programs
    kinds = [node.kind for node in program.graph.nodes]
    assert kinds.count("attention") == 1 and set(kinds) - {"attention"} <= PRODUCTS, kinds
    x = np.random.default_rng(9).standard_normal((batch, TOKENS, D)).astype(np.float32)
    wanted = expected("timm", batch, {"x": x, "w": weights["w"].T, "b": weights["b"]})
    np.testing.assert_allclose(exe(x), wanted, 1e-5, 1e-5)


def wide_heads(policy: str, size: int = 256) -> list[str]:
    """The kinds of the instructions of an attention of f16 whose heads fit no kernel of tensor cores."""
    graph = Graph("wide")
    q, k, v = (graph.input(name, (1, 1, 1024, size), "f16") for name in "qkv")
    graph.output(graph.attention(q, k, v), "y")
    module = graph.module().clone()
    AicfInferencePass("cuda:sm_90a", policy).apply(make_context(), module)
    return kinds_of(module)


@pytest.mark.parametrize("policy", ["{attention: simt}", "{kernels: {attention: cuda.attention_simt}}"])
def test_wide_heads_are_one_instruction_where_the_policy_asks_for_it(policy: str) -> None:
    """Without tensor cores it is predicted to take longer than two products that have them and a softmax."""
    assert "attention" not in wide_heads("") and len(wide_heads("")) >= 3
    assert wide_heads(policy) == ["attention"]
    assert wide_heads("", 128) == ["attention"]
