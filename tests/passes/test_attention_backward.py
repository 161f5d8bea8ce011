"""The backward part of attention is one instruction where a kernel takes it, however many heads share their keys, and
its weights are kept where none does."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from aicf.dialects.emit import PREPARE, ProgramOp
from aicf.dialects.printing import text_of
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from aicf.passes.support.ledger import find_ledger

BACKWARD = "attention_backward"


def _step(dtype: str, groups: int = 4, *, causal: bool = True) -> ModuleOp:
    """Gradients of 4 heads of queries, of which `groups` have keys and values of their own."""
    g = Graph("step")
    q = g.input("q", (2, 4, 128, 64), dtype)
    k, v = (g.input(name, (2, groups, 128, 64), dtype) for name in "kv")
    y = g.attention(q, k, v, causal=causal)
    loss = g.reduce_sum(g.cast(y, "f32"), [0, 1, 2, 3])
    g.output(y, "y")
    for name, value in (("dq", q), ("dk", k), ("dv", v)):
        g.output(g.gradient(loss, value), name)
    return g.module()


def _compiled(module: ModuleOp, target: str, policy: str = "") -> tuple[list[str], str]:
    """The kinds of its instructions, and its ledger."""
    AicfTrainingPass(target=target, policy=policy).apply(make_context(), module)
    kinds = [
        instruction.kind.data
        for program in module.body.block.ops
        if isinstance(program, ProgramOp) and program.sym_name.data != PREPARE
        for instruction in program.instructions
    ]
    ledger = find_ledger(module)
    return kinds, "" if ledger is None else "\n".join(map(text_of, ledger.decisions))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_one_instruction_for_each_part(dtype: str, groups: int, causal: bool) -> None:
    kinds, _ = _compiled(_step(dtype, groups, causal=causal), "cuda:sm_90a")
    assert kinds.count(BACKWARD) == kinds.count("attention") == 1
    assert not {"gemm", "gemm_epilogue", "gemm_norm", "softmax"} & set(kinds), kinds


@pytest.mark.parametrize("mask", ["i1", "bf16"])
@pytest.mark.parametrize("shape", [(2, 1, 1, 128), (2, 1, 128, 128)])
def test_zeros_for_queries_without_a_key_are_part_of_both(mask: str, shape: tuple[int, ...]) -> None:
    """No select and no any() of the mask is left: beside both parts there is what turns truth values into numbers."""
    g = Graph("step")
    q, k, v = (g.input(name, (2, 4, 128, 64), "bf16") for name in "qkv")
    y = g.attention(q, k, v, g.input("mask", shape, mask), empty_as_zero=True)
    loss = g.reduce_sum(g.cast(y, "f32"), [0, 1, 2, 3])
    g.output(y, "y")
    for name, value in (("dq", q), ("dk", k), ("dv", v)):
        g.output(g.gradient(loss, value), name)
    module = g.module()
    kinds, _ = _compiled(module, "cuda:sm_90a")
    assert kinds.count(BACKWARD) == kinds.count("attention") == 1
    assert len(kinds) <= 2 + 2 + (mask == "i1"), kinds
    assert text_of(module).count("empty_as_zero = true") >= 4


@pytest.mark.parametrize(("dtype", "target"), [("f32", "cuda:sm_90a"), ("f32", "cpu:x86-64-v3")])
def test_weights_are_kept_where_no_kernel_takes_all(dtype: str, target: str) -> None:
    kinds, ledger = _compiled(_step(dtype), target)
    assert BACKWARD not in kinds
    assert '"eliminate-saves" ["attention0.softmax.save"] choice "keep"' in ledger


def test_a_policy_keeps_the_weights() -> None:
    policy = '{"saves": {"attention0.softmax.save": "keep"}}'
    kinds, ledger = _compiled(_step("bf16"), "cuda:sm_90a", policy)
    assert BACKWARD not in kinds
    assert '"fuse-attention-backward"' in ledger and 'choice "not fused"' in ledger


def test_a_policy_takes_attention_apart() -> None:
    kinds, _ = _compiled(_step("bf16"), "cuda:sm_90a", '{"attention": "math"}')
    assert not {BACKWARD, "attention"} & set(kinds)


def _spelled(returned: str) -> ModuleOp:
    """Gradients of an attention written as its ops, and of its scores or its result."""
    g = Graph("step")
    q, k, v = (g.input(name, (2, 4, 128, 64), "bf16") for name in "qkv")
    scores = g.mul(g.matmul(q, k, transpose_b=True), 0.125)
    y = g.matmul(g.softmax(scores, 3), v)
    loss = g.reduce_sum(g.cast(g.mul(y, y), "f32"), [0, 1, 2, 3])
    for name, value in (("dq", q), ("dk", k), ("dv", v), ("more", scores if returned == "scores" else y)):
        g.output(g.gradient(loss, value), name)
    return g.module()


def test_what_is_returned_from_between_the_products_is_written() -> None:
    policy = '{"saves": {"softmax0.save": "recompute"}}'  # the forward part reads the weights that it keeps
    kinds, _ = _compiled(_spelled("result"), "cuda:sm_90a", policy)
    assert BACKWARD in kinds
    kinds, ledger = _compiled(_spelled("scores"), "cuda:sm_90a", policy)
    assert BACKWARD not in kinds
    (decision,) = [line for line in ledger.splitlines() if '"fuse-attention-backward"' in line]
    assert (
        'choice "not fused" because "the program returns what is computed between the products, so it has to be '
        'written to memory in any case"' in decision
    )
