"""Attention, gated products, prologues and products side by side: prefixes keep the meaning, raising is a fixpoint.

On `reference`, whose kernel takes every kind, so that each group forms; which kinds must be in the program is known.
"""

from __future__ import annotations

import json

import pytest
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.reference.interpreter import run_module
from aicf.dialects.emit import ProgramOp
from aicf.frontends.text import make_context, parse_module, verify_module
from aicf.passes.emit.raise_emit import RaiseEmitPass
from aicf.passes.logical.set_target import SetTargetPass
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run
from tests.passes.test_pipeline_prefixes import WHOLE, assert_close, check_prefixes, reference_run
from tests.passes.test_raise_emit import compiled, stripped
from tests.support.fused_graphs import FAMILIES, fused_program

TARGET = "reference:typed"
SEEDS = pytest.mark.parametrize("seeds", [range(3), range(3, 6)], ids=["first", "last"])


def kinds_of(module: ModuleOp) -> set[str]:
    programs = [op for op in module.body.block.ops if isinstance(op, ProgramOp)]
    return {instruction.kind.data for program in programs for instruction in program.instructions}


@pytest.mark.drawn
@SEEDS
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_prefix_keeps_the_meaning(family: str, dtype: str, seeds: range) -> None:
    """After each pass on `exact`, and in one poisoned arena on `typed`; and the groups form."""
    for seed in seeds:
        program = fused_program(family, seed, dtype)
        label = f"{family} {dtype} seed {seed}"
        whole = seed % WHOLE == 0
        check_prefixes(program.module, program.inputs, seed, label, target=TARGET, whole=whole)
        assert program.kinds <= kinds_of(program.module), label


@pytest.mark.drawn
@SEEDS
@pytest.mark.parametrize("target", [TARGET, "cpu:x86-64-v3"])
@pytest.mark.parametrize("family", FAMILIES)
def test_recompiling_a_raised_program_gives_the_same_program(family: str, target: str, seeds: range) -> None:
    """Also where kernels price fusions: what was formed is formed again, pinned or not.

    Groups of several results are joined as they are met, and a raised program has another order: those are pinned.
    """
    for seed in seeds if target == TARGET else seeds[:2]:
        dtype = "f16" if seed % 2 and target == TARGET else "f32"
        program = fused_program(family, 100 + seed, dtype)
        module, feeds, label = program.module, program.inputs, f"{family} seed {seed}"
        expected, magnitude = reference_run(module, feeds, "")
        compiled(module, target)
        first, read = stripped(module), parse_module(str(module), "compiled")
        for pin in ("all", "groups") if family == "several_results" else ("all", "groups", "nothing"):
            raised = read.clone()
            RaiseEmitPass(pin).apply(make_context(), raised)
            verify_module(raised)
            assert_close(expected, run_module(raised, feeds, "exact"), magnitude, label)
            compiled(raised, start="lowered")
            assert stripped(raised) == first, f"{label}, pin {pin}"


@pytest.mark.parametrize("family", [family for family in FAMILIES if not family.endswith("_step")])
def test_pinned_groups_go_to_a_target_that_would_not_form_them(family: str) -> None:
    """Groups that `reference` formed stay groups on `cpu`, whatever it predicts: all it has kernels of."""
    for seed in range(4):
        program = fused_program(family, 300 + seed)
        compiled(program.module, TARGET)
        raised = parse_module(str(program.module), "compiled")
        RaiseEmitPass("groups").apply(make_context(), raised)
        SetTargetPass("cpu:x86-64-v3").apply(make_context(), raised)
        compiled(raised, start="lowered")
        assert program.kinds <= kinds_of(raised), f"{family} seed {seed}"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_switch_turns_off_does_not_form(family: str) -> None:
    """With all switches off every product is a plain one, and the meaning is the same."""
    switches = ("attention", "gated", "horizontal", "prologue", "norm")
    off = json.dumps({"fusion": dict.fromkeys(switches, False)})
    for seed in range(4):
        program = fused_program(family, 200 + seed)
        expected, magnitude = reference_run(program.module, program.inputs, "")
        run(AicfInferencePass(TARGET, policy=off).passes(), make_context(), program.module)
        assert not program.kinds & kinds_of(program.module)
        found = run_module(program.module, program.inputs, "exact")
        assert_close(expected, found, magnitude, f"{family} seed {seed}")
