"""What merged linears are in the end: one product for each gradient, and no copy of what lies side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from xdsl.dialects.builtin import ModuleOp

from aicf.dialects.emit import ProgramOp
from aicf.dialects.printing import text_of
from aicf.frontends.text import make_context
from aicf.passes.emit.read_decisions import decisions_of
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from aicf.passes.support.ledger import find_ledger
from tests.passes.test_raise_emit import stripped
from tests.support.training_graphs import Program, Step, attention

CUDA, CPU = "cuda:sm_90a", "cpu:x86-64-v3"


def finished(program: Program, target: str, policy: str = "") -> ModuleOp:
    """The final program of a copy of the step."""
    module = program[0].clone()
    AicfTrainingPass(target=target, policy=policy).apply(make_context(), module)
    return module


def kinds(module: ModuleOp) -> Counter[str]:
    programs = [op for op in module.body.block.ops if isinstance(op, ProgramOp)]
    return Counter(each.kind.data for program in programs for each in program.instructions)


def large_attention() -> Program:
    return attention(heads=4, tokens=128, size=64, compute="bf16")


def gated(size: int = 64) -> Program:
    """A SwiGLU between two linears."""
    step = Step("gated", "bf16")
    x, target = step.input("x", 128, size), step.input("target", 128, size)
    first = step.linear(x, size, "first")
    gate, up = (step.linear(first, 2 * size, name) for name in ("gate", "up"))
    down = step.linear(step.graph.mul(step.graph.silu(gate, name="act"), up), size, "down")
    return step.finish(step.graph.mse_loss(step.graph.cast(down, "f32"), target, name="loss"))


@pytest.mark.parametrize("target", [CUDA, CPU])
@pytest.mark.parametrize("make", [large_attention, gated])
def test_nothing_is_copied(make: Callable[[], Program], target: str) -> None:
    found = kinds(finished(make(), target))
    assert not {"copy", "concat"} & set(found), found
    assert found["update"] == found["adam_step"] == 1, "the casts, and all parameters with their gradients"


def test_attention_has_one_product_for_all_weights() -> None:
    found = kinds(finished(large_attention(), CUDA))
    assert found["attention"] == found["attention_backward"] == 1
    assert found["gemm_epilogue"] == found["gemm_sums"] == 1, (
        "the linear, and the gradients of weights and biases"
    )
    assert not {"gemm", "reduce_sum"} & set(found), found


@pytest.mark.parametrize("target", [CUDA, CPU])
@pytest.mark.parametrize("make", [large_attention, gated])
def test_decisions_give_the_same_program_again(make: Callable[[], Program], target: str) -> None:
    first = finished(make(), target)
    again = finished(make(), target, decisions_of(first).to_line())
    assert stripped(again) == stripped(first)


def test_what_follows_from_a_slice_is_computed_again() -> None:
    """It reads no more than itself, though the gate is half of a value."""
    ledger = find_ledger(finished(gated(), CUDA))
    assert ledger is not None
    decisions = [text_of(each) for each in ledger.decisions]
    (choice,) = [each for each in decisions if '"eliminate-saves" ["act.save"]' in each]
    assert 'choice "recompute" because "computing it reads no more than reading it would' in choice
