"""The driver of the fusing passes: which group it forms of a match, and what it writes to the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import aicf
from aicf.dialects.emit import GroupOp, find_ledger
from aicf.dialects.printing import text_of
from aicf.frontends.text import make_context
from aicf.passes.fusion import patterns as folder
from aicf.passes.fusion.driver import FusionPattern
from aicf.passes.fusion.patterns import patterns
from aicf.passes.logical.apply_policy import ApplyPolicyPass
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.logical.set_target import SetTargetPass

PATTERN = '''
from dataclasses import dataclass

from aicf.dialects import logical
from aicf.passes.bodies.outlining import id_of, outline
from aicf.passes.fusion.driver import Candidate, Decision, FusionPattern, label


@dataclass(frozen=True)
class FusePairsPass(FusionPattern[logical.ExpOp]):
    """Groups an exponential with the op that reads it; tries a reader that it is not allowed to take first."""

    name = "fuse-pairs"
    stage = "after_views"
    benefit = 100
    switch = "elementwise"

    def matches(self, context):
        for op in list(context.function.body.block.ops):
            if isinstance(op, logical.ExpOp):
                yield op

    def subjects(self, match):
        return [id_of(match)]

    def obstacle(self, match, context):
        return "two read it" if match.result.uses.get_length() > 1 else None

    def candidates(self, match, context):
        (reader,) = (use.operation for use in match.result.uses)
        yield Candidate("too much", None, obstacle="forbidden here")
        plan = outline((match, reader), context.group_id((match, reader)))
        yield Candidate("as a product", plan, ("gemm",))
        yield Candidate("for a price", plan, unfused_us=lambda: 0.0)
        yield Candidate(label((match, reader)), plan)

    def decision(self, match, plan, tried):
        return Decision(f"one kernel for {len(plan.members)} ops", "the test wants it")
'''


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FusionPattern[object]]]:
    """A pattern that is nothing but a file in the folder of patterns."""
    (tmp_path / "fuse_pairs.py").write_text(PATTERN)
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    patterns.cache_clear()
    (found,) = (each for each in patterns("after_views") if each.name == "fuse-pairs")
    yield found
    patterns.cache_clear()


def _program(readers: int = 1) -> aicf.Graph:
    graph = aicf.Graph("pairs")
    x = graph.input("x", (3, 5))
    e = graph.exp(x, name="e")
    for number in range(readers):
        graph.output(graph.neg(e, name=f"n{number}"), f"y{number}")
    return graph


def _fused(pattern: type[FusionPattern[object]], graph: aicf.Graph, policy: str = "") -> ModuleOp:
    module = graph.module()
    passes = (SetTargetPass("cpu:x86-64-v3"), ApplyPolicyPass(policy), AssignIdsPass(), pattern())
    for step in passes[:1] + passes[1 if policy else 2 :]:
        step.apply(make_context(), module)
    return module


def _decisions(module: ModuleOp) -> list[str]:
    ledger = find_ledger(module)
    return [] if ledger is None else [text_of(op) for op in ledger.decisions if "fuse-pairs" in text_of(op)]


def test_patterns_run_in_the_order_of_their_benefits() -> None:
    assert [each.name for each in patterns("before_views")] == ["fuse-attention", "fuse-attention-backward"]
    assert [each.name for each in patterns("updates")] == ["fuse-updates"]
    names = [each.name for each in patterns("after_views")]
    assert names[0] == "fuse-gated" and names[-1] == "fuse-elementwise"
    assert names.index("fuse-norms") < names.index("fuse-epilogues")


def test_the_first_legal_candidate_is_formed(pairs: type[FusionPattern[object]]) -> None:
    module = _fused(pairs, _program())
    (group,) = (op for op in module.walk() if isinstance(op, GroupOp))
    assert [op.name for op in group.body.block.ops] == ["logical.exp", "logical.neg", "emit.yield"]
    (decision,) = _decisions(module)
    assert '["e", "n0"]' in decision and 'because "the test wants it"' in decision
    assert '"too much" = "forbidden here"' in decision
    assert '"as a product" = "' in decision and "gemm" in decision
    assert '"for a price" = "predicted' in decision and "0 us unfused" in decision


@pytest.mark.parametrize(
    ("readers", "policy", "because"),
    [
        (2, "", "two read it"),
        (1, '{"fusion": {"elementwise": false}}', "elementwise fusion is off by policy (fusion.elementwise)"),
    ],
)
def test_what_is_not_fused_is_recorded(
    pairs: type[FusionPattern[object]], readers: int, policy: str, because: str
) -> None:
    module = _fused(pairs, _program(readers), policy)
    assert not any(isinstance(op, GroupOp) for op in module.walk())
    (decision,) = _decisions(module)
    assert '["e"] choice "not fused"' in decision and f'because "{because}"' in decision


def test_a_pattern_is_one_file(pairs: type[FusionPattern[object]]) -> None:
    """The pipeline runs it, its decision is in the program, and the program is right."""
    exe = aicf.compile(_program(), {}, "cpu")
    choices = [decision for decision in exe.decisions if "the test wants it" in str(decision)]
    assert len(choices) == 1 and pairs.name in str(choices[0])
    x = np.random.default_rng(5).standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_allclose(exe(x), -np.exp(x.astype(np.float64)), rtol=1e-6)
