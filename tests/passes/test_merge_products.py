"""Merged products against float64 on levels of the CPU, what a program has of them, and the way back from a policy."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import aicf
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.dialects.emit import PREPARE
from aicf.frontends.text import make_context, parse_module
from aicf.passes.emit.read_decisions import decisions_of
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run
from aicf.passes.support.programs import programs
from tests.passes.test_raise_emit import stripped
from tests.support.blocks import random_rows, widened

RNG = np.random.default_rng(241)
WIDTH, HEAD = 64, 16
HEADS = {"query": 4, "key": 2, "value": 1}
"""By the name of the product."""
ROWS = (1, 5)


def projections(*, biases: bool = False, scheme: str | None = None) -> aicf.Graph:
    """Queries, keys and values of grouped heads; each is scaled by head, so that none of them is returned as it is."""
    graph = aicf.Graph("projections")
    add_projections(graph, graph.input("x", ("T", WIDTH)), biases=biases, scheme=scheme)
    return graph


def add_projections(graph: aicf.Graph, x: aicf.Value, *, biases: bool = False, scheme: str | None) -> None:
    for name, heads in HEADS.items():
        outputs = heads * HEAD
        if scheme is None:
            weight = graph.param(f"{name}.weight", (outputs, WIDTH))
        else:
            packed = graph.param(f"{name}.weight", packed_shape(outputs, scheme), "u8")
            weight = graph.dequantize_blocks(packed, scheme)
        bias = graph.param(f"{name}.bias", (outputs,)) if biases else None
        product = graph.linear(x, weight, bias, name=name)
        by_head = graph.reshape(product, ("T", heads, HEAD))
        graph.output(by_head * graph.param(f"{name}.scale", (heads, 1)), f"{name}_y")


def packed_shape(rows: int, scheme: str) -> tuple[int, int]:
    found = BLOCK_SCHEMES[scheme]
    return rows, WIDTH // found.length * found.nbytes


def random_weights(
    *, biases: bool, scheme: str | None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What the program reads, and the matrices in float64."""
    given, wide = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for name, heads in HEADS.items():
        outputs = heads * HEAD
        if scheme is None:
            given[f"{name}.weight"] = RNG.standard_normal((outputs, WIDTH), dtype=np.float32)
            wide[name] = given[f"{name}.weight"].astype(np.float64)
        else:
            given[f"{name}.weight"] = random_rows(RNG, BLOCK_SCHEMES[scheme], outputs, WIDTH)
            wide[name] = widened(BLOCK_SCHEMES[scheme], given[f"{name}.weight"])
        given[f"{name}.scale"] = RNG.standard_normal((heads, 1), dtype=np.float32)
        if biases:
            given[f"{name}.bias"] = RNG.standard_normal(outputs, dtype=np.float32)
    return given, wide


def kinds(module: ModuleOp) -> list[Counter[str]]:
    """The kinds of instructions of each program."""
    return [
        Counter(each.kind.data for each in program.instructions)
        for program in programs(module)
        if program.sym_name.data != PREPARE
    ]


@pytest.mark.parametrize(
    ("target", "biases", "scheme"),
    [
        ("cpu:x86-64-v4", True, None),
        ("cpu:x86-64-v3", False, None),
        ("cpu:x86-64-v4", True, "Q4_1"),
        ("cpu:x86-64-v3", False, "Q4_0"),
    ],
)
def test_each_part_is_what_it_would_be_alone(target: str, biases: bool, scheme: str | None) -> None:
    given, wide = random_weights(biases=biases, scheme=scheme)
    dims = {"T": list(ROWS)}
    model = aicf.compile(projections(biases=biases, scheme=scheme), given, target, dims=dims)
    kinds_of_product = ("matmul_blocks", "matmul_blocks_fused") if scheme else ("gemm", "gemm_epilogue")
    product = kinds_of_product[biases]
    for found in kinds(parse_module(model.ir("emit"))):
        assert found[product] == 1
        assert found.total() == len(HEADS) + 1, "nothing is copied"
    for rows in ROWS:
        x = RNG.standard_normal((rows, WIDTH), dtype=np.float32)
        results = model.run({"x": x})
        for name, heads in HEADS.items():
            scale = given[f"{name}.scale"].astype(np.float64)
            bias = given[f"{name}.bias"] if biases else 0.0
            wanted = ((x.astype(np.float64) @ wide[name].T) + bias).reshape(rows, heads, HEAD) * scale
            np.testing.assert_allclose(results[f"{name}_y"], wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("target", ["cpu:x86-64-v4", "cuda:sm_90a", "reference:typed"])
def test_decisions_give_the_same_program(target: str) -> None:
    first, again = (projections(biases=True).module() for _ in range(2))
    run(AicfInferencePass(target, dims="T=1,5").passes(), make_context(), first)
    policy = decisions_of(first).to_line()
    run(AicfInferencePass(target, policy, dims="T=1,5").passes(), make_context(), again)
    assert stripped(again) == stripped(first)
    assert "query.merged" in policy or "query.bias.merged" in policy


def test_a_kernel_for_one_of_them_keeps_it_apart() -> None:
    module = projections().module()
    policy = '{"kernels": {"key": "cpu.gemm_portable"}}'
    run(AicfInferencePass("cpu:x86-64-v4", policy, dims="T=5").passes(), make_context(), module)
    kernels = {
        each.instruction.data: each.kernel.kernel.data
        for program in programs(module)
        for each in program.instructions
        if each.kernel is not None and each.kind.data == "gemm"
    }
    assert kernels["key@T=5"] == "cpu.gemm_portable"
    assert len(kernels) == 2, "queries and values are one product, keys another"


@pytest.mark.parametrize("activation", ["gate", "gelu"])
def test_a_parallel_block_keeps_its_activation(activation: str) -> None:
    """Queries, keys and values are one product; the activation is in one instruction with what it activates."""
    graph = aicf.Graph("block")
    x = graph.input("x", ("T", WIDTH))
    add_projections(graph, x, scheme="Q4_0")
    products = [
        graph.linear(
            x,
            graph.dequantize_blocks(graph.param(f"{name}.weight", packed_shape(96, "Q4_0"), "u8"), "Q4_0"),
            name=name,
        )
        for name in ("gate", "up")[: 2 if activation == "gate" else 1]
    ]
    hidden = graph.silu(products[0]) * products[1] if activation == "gate" else graph.gelu(products[0])
    graph.output(hidden, "hidden")
    module = graph.module()
    run(AicfInferencePass("cpu:x86-64-v4", dims="T=1").passes(), make_context(), module)
    (found,) = kinds(module)
    assert found["matmul_blocks"] == 1 and found["matmul_blocks_fused"] == 1
    assert found.total() == 2 + len(HEADS), "each head is scaled by an instruction of its own"


def test_products_of_rounded_activations_have_the_bits_that_they_have_apart() -> None:
    given, _ = random_weights(biases=False, scheme="Q4_1")
    x, found = RNG.standard_normal((5, WIDTH), dtype=np.float32), []
    for horizontal in (True, False):
        policy = {"packed_activations": "int8", "fusion": {"horizontal": horizontal}}
        model = aicf.compile(projections(scheme="Q4_1"), given, "cpu", dims="T=5", policy=policy)
        (own,) = kinds(parse_module(model.ir("emit")))
        assert own["rounded_matmul_blocks"] == (1 if horizontal else len(HEADS))
        found.append(model.run({"x": x}))
    for name, result in found[0].items():
        np.testing.assert_array_equal(result, found[1][name])
