"""The class `batch_invariant`: a row has the same bits whatever the batch it is in, and what that costs is in the
ledger. Without the class some model must fail the same comparison, or it compares nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.func import FuncOp

import aicf
from aicf import Graph, Value
from aicf.dialects.json_values import json_value
from aicf.dialects.types import tensor_info
from aicf.errors import PolicyError, UnsupportedOp
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import argument_attrs
from aicf.passes.emit.read_decisions import members_by_instruction
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run
from aicf.policies.kernel_policy import KernelPolicy
from aicf.policies.policy import Policy
from tests.gpu.programs import chain
from tests.gpu.programs import encoder as gpu_encoder

BATCHES = (1, 2, 7, 32, 33)
INVARIANT = {"determinism": "batch_invariant"}


def mlp(batch: int | str) -> Graph:
    """Products with a deep K, an epilogue, and a softmax."""
    graph = Graph("mlp")
    x = graph.input("x", (batch, 300))
    h = graph.gelu(graph.linear(x, graph.param("w1", (96, 300)), graph.param("b1", (96,)), name="fc1"))
    graph.output(
        graph.softmax(graph.linear(h, graph.param("w2", (50, 96)), graph.param("b2", (50,)), name="fc2")), "y"
    )
    return graph


def norms(batch: int | str) -> Graph:
    """Rows that are reduced over one and over two dims, of odd lengths, and a product of a normalised row."""
    graph = Graph("norms")
    x = graph.input("x", (batch, 9, 37))
    scale, shift = graph.param("scale", (37,)), graph.param("shift", (37,))
    rows = graph.layer_norm(x, scale, shift)
    graph.output(graph.matmul(rows, graph.param("w", (37, 64))), "y")
    graph.output(graph.reduce_sum(x, [1]), "columns")
    graph.output(graph.reduce_sum(x, [1, 2]), "all")
    return graph


def attention(batch: int | str) -> Graph:
    """The attention of an encoder block with what is around it, in products and softmax."""
    graph, tokens, heads, depth = Graph("attention"), 24, 2, 16
    hidden = heads * depth
    x = graph.input("x", (batch, tokens, hidden))

    def linear(value: Value, name: str) -> Value:
        return graph.linear(
            value, graph.param(f"{name}.w", (hidden, hidden)), graph.param(f"{name}.b", (hidden,))
        )

    q, k, v = (
        graph.transpose(graph.reshape(linear(x, name), (batch, tokens, heads, depth)), (0, 2, 1, 3))
        for name in ("query", "key", "value")
    )
    scores = graph.matmul(q, k, transpose_b=True) * depth**-0.5
    context = graph.transpose(graph.matmul(graph.softmax(scores), v), (0, 2, 1, 3))
    mixed = linear(graph.reshape(context, (batch, tokens, hidden)), "mix") + x
    graph.output(
        graph.layer_norm(mixed, graph.param("scale", (hidden,)), graph.param("shift", (hidden,))), "y"
    )
    return graph


MODELS: dict[str, Callable[[str], Graph]] = {"mlp": mlp, "norms": norms, "attention": attention}


@cache
def weights_of(name: str) -> dict[str, NDArray[np.float32]]:
    """Normal numbers for every parameter."""
    rng = np.random.default_rng(5)
    (function,) = (op for op in MODELS[name]("N").module().walk() if isinstance(op, FuncOp))
    arguments = (argument_attrs(function, index) for index, _ in enumerate(function.args))
    types = (tensor_info(argument.type) for argument in function.args)
    return {
        attrs["logical.name"].data: rng.normal(size=info.shape).astype(np.float32)
        for attrs, info in zip(arguments, types, strict=True)
        if attrs["logical.role"].data == "param"
    }


def differing(name: str, policy: dict[str, Any], target: str = "cpu", threads: int = 1) -> list[str]:
    """Results of a batch whose rows are not what they are in the largest one, in words."""
    dims = {"N": BATCHES}
    exe = aicf.compile(MODELS[name]("N"), weights_of(name), target, dims=dims, policy=policy, threads=threads)
    largest = exe.plan.by_name[exe.plan.rows[-1].program].graph
    x = np.random.default_rng(9).normal(size=largest.inputs[0].shape).astype(np.float32)
    results = {batch: exe.run({"x": x[:batch]}) for batch in BATCHES}
    return [
        f"{bind.name} of {batch}"
        for batch in BATCHES
        for bind in largest.outputs
        if results[batch][bind.name].tobytes() != results[BATCHES[-1]][bind.name][:batch].tobytes()
    ]


@pytest.mark.parametrize(
    ("name", "target", "threads"),
    [
        ("mlp", "cpu", 1),
        ("mlp", "cpu:generic", 1),
        ("norms", "cpu", 1),
        ("attention", "cpu:x86-64-v3", 1),
        ("attention", "cpu", 3),
    ],
)
def test_rows_have_the_same_bits_in_every_batch(name: str, target: str, threads: int) -> None:
    assert differing(name, INVARIANT, target, threads) == []


def test_without_the_class_they_have_not() -> None:
    """Decided for no machine in particular: on some, one row and many happen to be added up alike."""
    assert {found.partition(" ")[0] for found in differing("mlp", {}, "cpu:generic")} == {"y"}


# On a GPU, decided here


def columns(batch: int) -> Graph:
    """Sums over a dim in the middle, long rows, and a softmax over rows that are 2 bytes off any vector."""
    graph = Graph("columns")
    x = graph.input("x", (batch, 70, 33), "f16")
    graph.output(graph.reduce_sum(x, [1]), "sums")
    graph.output(graph.softmax(graph.slice(x, [0, 0, 1], [batch, 70, 32])), "shares")
    graph.output(graph.reduce_sum(graph.input("long", (batch, 40000)), [1]), "totals")
    return graph


CUDA_MODELS: dict[str, Callable[[int], Graph]] = {
    "bert": lambda batch: gpu_encoder("f16", batch, 32, 2, 32),
    "wide heads": lambda batch: gpu_encoder("f16", batch, 150, 2, 64),
    "f32": lambda batch: gpu_encoder("f32", batch, 24, 2, 16),
    "one token": lambda batch: chain("f16", batch, 2),
    "columns": columns,
}
ORDERS = (
    "combination_order",
    "strategy",
    "vector",
    "lanes",
    "split_k",
    "warps",
    "depth",
    "block_n",
    "warps_n",
)
"""Entries of records on which bits may depend; `warps` are those along k."""
ONE_ORDER = {"cuda.gemm_skinny": "cuda.gemm_mma"}
"""Kernels of few rows, and those of many that sum in the same order."""


def order_of(kernel: str, record: dict[str, Any]) -> tuple[str, dict[str, object]]:
    """The kernel whose bits an instruction has, and the entries on which they may depend; what is 1 shares no sums."""
    entries = {name: record[name] for name in ORDERS if name in record}
    if isinstance(warps := entries.get("warps"), list):
        entries["warps"] = warps[2]
    return ONE_ORDER.get(kernel, kernel), {name: value for name, value in entries.items() if value != 1}


def orders(
    build: Callable[[int], Graph], batch: int, policy: Policy
) -> dict[str, tuple[object, str, object]]:
    """What decides about bits: the ops of every instruction, its kernel, and the order in its record."""
    module = build(batch).module()
    run(AicfInferencePass("cuda:sm_90a", policy.to_line()).passes(), make_context(), module)
    members = members_by_instruction(module)
    found: dict[str, tuple[object, str, object]] = {}
    for op, ids in members.items():
        assert op.kernel is not None
        record = json_value(op.kernel.record)
        assert isinstance(record, dict)
        found[op.instruction.data] = (ids, *order_of(op.kernel.kernel.data, record))
    return found


@pytest.mark.parametrize("name", CUDA_MODELS)
def test_every_batch_has_the_same_orders_on_a_gpu(name: str) -> None:
    policy = Policy(KernelPolicy(determinism="batch_invariant"))
    alone, *others = (orders(CUDA_MODELS[name], batch, policy) for batch in BATCHES)
    for other in others:
        assert other == alone


def test_fused_kernels_take_part_on_a_gpu() -> None:
    """Attention out of bulk copies, and norms after their products."""
    policy = Policy(KernelPolicy(determinism="batch_invariant"))
    kernels = {kernel for _, kernel, _ in orders(CUDA_MODELS["wide heads"], 1, policy).values()}
    assert kernels == {"cuda.attention_wgmma", "cuda.gemm_norm", "cuda.gemm_mma"}


def test_without_the_class_they_differ_on_a_gpu() -> None:
    alone, many = (orders(CUDA_MODELS["one token"], batch, Policy()) for batch in (1, 33))
    assert alone != many


# What it costs, and who does not offer it


def test_the_ledger_says_what_it_costs() -> None:
    exe = aicf.compile(mlp(1), weights_of("mlp"), "cpu:x86-64-v3", policy=INVARIANT)
    chosen = [d for d in exe.decisions if d.made_by == "select-kernels" and "free_us" in d.cost]
    assert [d.subjects[0] for d in chosen] == ["fc1", "fc2", "softmax0"]
    costs = [(d.cost["expected_us"], d.cost["free_us"]) for d in chosen]
    assert all(isinstance(us, float) and isinstance(free, float) and us >= free > 0 for us, free in costs)
    assert costs[0][0] > costs[0][1]
    (record,) = (launch.record for launch in exe.plan.programs[0].launches if launch.name == "fc1")
    assert record["combination_order"] == "ascending k"


def test_a_kernel_that_does_not_offer_it_is_refused() -> None:
    with pytest.raises(UnsupportedOp) as error:
        aicf.compile(mlp(1), weights_of("mlp"), "reference", policy=INVARIANT)
    reason = "the bits of a row may depend on the batch, and the policy wants them not to (determinism)"
    assert f"reference.body: {reason}" in str(error.value)


def test_a_pinned_kernel_that_does_not_offer_it_is_refused() -> None:
    policy = {**INVARIANT, "kernels": {"gemm": "cpu.gemm_blas"}, "fusion": {"epilogue": False}}
    with pytest.raises(PolicyError) as error:
        aicf.compile(mlp(1), weights_of("mlp"), "cpu:x86-64-v3", policy=policy)
    assert error.value.message.startswith(
        "kernels.gemm: 'cpu.gemm_blas' cannot run it: the target lists no scipy-openb"
    )
