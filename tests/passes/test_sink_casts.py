"""A training step in bf16, whose norms' backward parts read a widened gradient: where it is widened, and that the
decisions of such a step, as a policy, give the same program again."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from aicf.compilation.saved_program import read_saved_program
from aicf.dialects.emit import GroupOp, find_ledger
from aicf.dialects.logical import CastOp
from aicf.dialects.types import byte_count
from aicf.frontends.text import make_context
from aicf.passes.bodies.view_folding import yielded
from aicf.passes.kernels.select_kernels import SelectKernelsPass
from aicf.passes.pipelines.aicf_inference import run
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from tests.gpu.training import TRAININGS

TARGETS = ("cuda:sm_90a", "cpu:x86-64-v3")


def compiled(target: str, policy: str = "", *, grouped: bool = False) -> ModuleOp:
    """The step as a final program, or as `select-kernels` sees it."""
    module = TRAININGS["encoder"].program().module.clone()
    passes = AicfTrainingPass(target, policy).passes()
    names = [each.name for each in passes]
    run(passes[: names.index(SelectKernelsPass.name)] if grouped else passes, make_context(), module)
    return module


@pytest.mark.parametrize("target", TARGETS)
def test_no_group_of_loops_gives_what_its_readers_could_widen(target: str) -> None:
    module = compiled(target, grouped=True)
    groups = [op for op in module.walk() if isinstance(op, GroupOp)]
    widened = [
        cast
        for group in groups
        for result, value in zip(group.results, yielded(group.body.block), strict=True)
        if isinstance(cast := value.owner, CastOp)
        and cast.operand in group.body.block.args
        and byte_count(cast.result.type) > byte_count(cast.operand.type)
        and any(isinstance(use.operation, GroupOp) for use in result.uses)
    ]
    ledger = find_ledger(module)
    assert ledger is not None
    sunk = [op for op in ledger.decisions if op.pass_name.data == "sink-casts"]
    apart = {op.subjects.data[0].data for op in sunk if op.choice.data == "not fused"}
    assert {cast.attributes["aicf.id"].data for cast in widened} <= apart  # pyright: ignore
    assert any("consumer" in op.choice.data for op in sunk) == target.startswith(
        "cuda"
    )  # small ones stay on a CPU


@pytest.mark.parametrize("target", TARGETS)
def test_the_policy_of_a_step_gives_the_step_again(target: str, tmp_path: Path) -> None:
    first = compiled(target)
    program, policy = tmp_path / "step.mlir", tmp_path / "step.yaml"
    program.write_text(str(first), "utf-8")
    read_saved_program(program).policy.save(policy)
    assert stripped(compiled(target, str(policy))) == stripped(first)


def stripped(module: ModuleOp) -> str:
    """The text without ledger and policy."""
    module = module.clone()
    if (ledger := find_ledger(module)) is not None:
        ledger.detach()
        ledger.erase()
    for name in ("aicf.policy", "aicf.execution"):
        module.attributes.pop(name, None)
    return str(module)
