"""No pass reads the ledger or hints: without them between every two passes, the final program is the same.

For the programs of `tests/support`, in inference and training, on cpu and cuda. What a pass records may not depend on
what others recorded either, so the ledgers agree too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp
from xdsl.passes import ModulePass

from aicf.dialects.emit import ResolvedOp, find_ledger
from aicf.dialects.printing import text_of
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from aicf.passes.pipelines.driver import drive
from tests.support import concat_programs, meta_programs, multi_output_programs, training_graphs
from tests.support.fused_graphs import FAMILIES, fused_program
from tests.support.indexing_programs import PROGRAMS as INDEXING
from tests.support.indexing_programs import built as indexed
from tests.support.random_graphs import random_program
from tests.support.random_programs import random_numbers
from tests.support.random_training import random_training_program

TARGETS = ("cpu:x86-64-v3", "cuda:sm_90a")

Make = Callable[[], ModuleOp]


PROGRAMS: Mapping[str, Make] = {
    **{f"fused {name}": (lambda name=name: fused_program(name, 3).module) for name in FAMILIES},
    **{
        f"indexed {name}": (lambda make=make: indexed(make, "f32").graph.module())
        for name, make in INDEXING.items()
    },
    **{
        f"several {name}": (lambda name=name: multi_output_programs.built(name, 64, 96, "f32").module())
        for name in multi_output_programs.PROGRAMS
    },
    **{
        f"concat {make.__name__}": (lambda make=make: make().build())
        for make in (
            concat_programs.inception,
            concat_programs.rotary,
            concat_programs.rows,
            concat_programs.dense,
        )
    },
    **{f"random {seed}": (lambda seed=seed: random_program(seed).module) for seed in range(8)},
    "random numbers": lambda: random_numbers("f32").module(),
}
STEPS: Mapping[str, Make] = {
    **{f"random step {seed}": (lambda seed=seed: random_training_program(seed).module) for seed in range(4)},
    "regression": lambda: meta_programs.regression_program().module(),
    "dropout": lambda: meta_programs.dropout_program().module(),
    "mlp": lambda: training_graphs.mlp()[0],
    "encoder": lambda: training_graphs.encoder()[0],
    "attention": lambda: training_graphs.attention()[0],
}


def _strip(module: ModuleOp, decisions: list[str]) -> None:
    """Takes the ledger, whose decisions are noted, and all hints out of a module."""
    if (ledger := find_ledger(module)) is not None:
        decisions += [text_of(decision) for decision in ledger.decisions]
        ledger.detach()
        ledger.erase()
    for op in module.walk():
        if isinstance(op, ResolvedOp):
            op.properties["hints"] = DictionaryAttr({})


def _final(make: Make, passes: tuple[ModulePass, ...], *, between: bool) -> tuple[str, list[str]]:
    """The final program, and all decisions; with `between` no pass finds what others recorded."""
    module, context = make(), make_context()
    decisions: list[str] = []

    def apply(step: ModulePass) -> None:
        step.apply(context, module)
        if between:
            _strip(module, decisions)

    drive(passes, module, apply)
    _strip(module, decisions)
    return text_of(module), decisions


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_inference_reads_no_ledger(name: str, target: str) -> None:
    passes = AicfInferencePass(target=target).passes()
    assert _final(PROGRAMS[name], passes, between=True) == _final(PROGRAMS[name], passes, between=False)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", STEPS)
def test_training_reads_no_ledger(name: str, target: str) -> None:
    passes = AicfTrainingPass(target=target).passes()
    assert _final(STEPS[name], passes, between=True) == _final(STEPS[name], passes, between=False)


def test_the_strip_takes_what_passes_wrote() -> None:
    """The comparison would show nothing if there were nothing to take."""
    module, decisions = PROGRAMS["random 1"](), list[str]()
    AicfInferencePass(target=TARGETS[0]).apply(make_context(), module)
    _strip(module, decisions)
    assert len(decisions) > 5 and find_ledger(module) is None
