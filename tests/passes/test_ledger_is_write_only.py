"""No pass reads the ledger or hints: without them between every two passes, the final program is the same.

For the programs of `tests/support`, in inference and training, on cpu and cuda. What a pass records may not depend on
what others recorded either, so the ledgers agree too.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp
from xdsl.passes import ModulePass

from aicf.dialects.emit import ResolvedOp, find_ledger
from aicf.dialects.printing import text_of
from aicf.frontends.text import make_context, parse_module
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from aicf.passes.pipelines.driver import drive
from tests import support
from tests.support import concat_programs, meta_programs, multi_output_programs, training_graphs
from tests.support.cast_programs import CastProgram
from tests.support.elementwise_ops import OPS
from tests.support.fused_graphs import FAMILIES, fused_program
from tests.support.gradient_programs import with_loss
from tests.support.indexing_programs import PROGRAMS as INDEXING
from tests.support.indexing_programs import built as indexed
from tests.support.random_convnets import random_convnet
from tests.support.random_graphs import random_program
from tests.support.random_programs import random_numbers
from tests.support.random_training import random_training_program
from tests.support.training_resnet import ResidualNet
from tests.support.update_programs import Program as UpdateProgram
from tests.support.update_programs import Tensor

TARGETS = ("cpu:x86-64-v3", "cuda:sm_90a")

Make = Callable[[], ModuleOp]


def _residual_net(*, training: bool) -> ModuleOp:
    return ResidualNet(4, training=training).graph.module()


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
    **{f"random {seed}": (lambda seed=seed: random_program(seed).module) for seed in range(4)},
    **{f"convnet {seed}": (lambda seed=seed: random_convnet(seed).module()) for seed in range(2)},
    "residual net": lambda: _residual_net(training=False),
    "random numbers": lambda: random_numbers("f32").module(),
}
STEPS: Mapping[str, Make] = {
    **{f"random step {seed}": (lambda seed=seed: random_training_program(seed).module) for seed in range(4)},
    "regression": lambda: meta_programs.regression_program().module(),
    "dropout": lambda: meta_programs.dropout_program().module(),
    "mlp": lambda: training_graphs.mlp()[0],
    "encoder": lambda: training_graphs.encoder(layers=1)[0],
    "attention": lambda: training_graphs.attention()[0],
    "batch norms": lambda: _residual_net(training=True),
    "updates": lambda: parse_module(UpdateProgram([Tensor((40, 8)), Tensor((8,))], history=8).text()),
    **{
        f"casts {seed}": (lambda seed=seed: parse_module(CastProgram(np.random.default_rng(seed)).text(3)))
        for seed in range(2)
    },
    **{
        f"gradient of {name}": (
            lambda name=name: with_loss(OPS[name].program((5, 7), "f32"), np.zeros((5, 7)))[0]
        )
        for name in ("gelu", "pow")
    },
}

LISTED = {
    *("cast_programs", "concat_programs", "elementwise_ops", "fused_graphs", "gradient_programs"),
    *("indexing_programs", "meta_programs", "multi_output_programs", "random_convnets", "random_graphs"),
    *("random_programs", "random_training", "random_steps", "training_graphs", "training_resnet"),
    "update_programs",
}
"""Modules of `tests/support` whose programs are above; `random_training` draws from `random_steps`."""
EXCLUDED: Mapping[str, tuple[str, ...]] = {
    "it makes no programs": (
        *(
            "attention_gradients",
            "blocks",
            "faulty",
            "generated_code",
            "interrupted",
            "kernel_interpreter",
            "module_state",
            "op_coverage",
            "plan_mutations",
        ),
        *("processes", "pytorch_backend", "race_simulator", "record_checks", "scalar_meanings"),
        "topological_orders",
    ),
    "its programs are of one op without an interface, whose values a test draws": ("op_rows",),
    "its steps have no interface; `random_training` draws from its cases": ("optimizer_programs",),
    "it makes emit programs": ("hand_written_kinds",),
    "its one-op programs plant faults of a package": ("faulty_programs",),
    "its step casts weights as those of `training_resnet` do": ("cast_weights",),
    "its small classifier is like the networks of `training_graphs`": ("training_models",),
    "it draws sizes of poolings; `random_convnets` has such": ("random_pools",),
    "it spells the attention of `fused_graphs` in other ways": ("attention_spellings",),
    "it makes ONNX models, which become the same logical ops": (
        *("onnx_models", "onnx_samples", "onnx_training", "random_onnx"),
    ),
    "it needs PyTorch": (
        *("torch_elementwise", "torch_graphs", "torch_losses", "torch_op_outputs", "torch_ops"),
        *("torch_single_ops", "torch_tensors"),
    ),
}
"""The others, by the reason."""


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


def test_every_module_of_programs_is_listed_or_excluded() -> None:
    excluded = [name for names in EXCLUDED.values() for name in names]
    assert sorted([*LISTED, *excluded]) == sorted(
        each.name for each in pkgutil.iter_modules(support.__path__)
    )


def test_the_strip_takes_what_passes_wrote() -> None:
    """The comparison would show nothing if there were nothing to take."""
    module, decisions = PROGRAMS["random 1"](), list[str]()
    AicfInferencePass(target=TARGETS[0]).apply(make_context(), module)
    _strip(module, decisions)
    assert len(decisions) > 5 and find_ledger(module) is None
