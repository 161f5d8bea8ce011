"""Kinds of training steps, written by hand: their bodies have them, and they compute what NumPy says in float64."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import aicf
from aicf.dialects.types import element_named, tensor
from aicf.passes.bodies.kinds import derive_kind
from aicf.passes.kernels.kind_definitions import Request, kind_body
from aicf.semantics import evaluate_block
from tests.passes.training_kinds import (
    FAMILIES,
    Array,
    Case,
    cross_entropy_bwd,
    cross_entropy_fwd,
    layernorm_bwd,
)
from tests.support.hand_written_kinds import expected_of, feeds_of, module_of

Family = Callable[[np.random.Generator], Case]
OF_EACH = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)


def request_of(case: Case) -> Request:
    types = [
        tensor(array.shape, element_named("i64" if array.dtype.kind == "i" else "f32"))
        for array in (*case.operands, *case.expected)
    ]
    count = len(case.operands)
    return Request("op", ("source",), case.kind, case.attrs, tuple(types[:count]), tuple(types[count:]))


@OF_EACH
@pytest.mark.parametrize("seed", range(8))
def test_body_has_its_kind_and_means_what_numpy_says(family: Family, seed: int):
    case = family(np.random.default_rng(seed))
    block = kind_body(request_of(case))
    assert derive_kind(block) == (case.kind, case.attrs)
    results = evaluate_block(block, list(case.operands), "exact")
    for result, expected in zip(results, case.expected, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def close(got: Array, expected: Array, name: str) -> None:
    wide = np.asarray(got, np.float64 if expected.dtype.kind == "f" else np.int64)
    np.testing.assert_allclose(wide, expected, rtol=2e-5, atol=2e-5, err_msg=name)


def drawn(seed: int, *, one_kernel: bool) -> list[Case]:
    """A case of each family; only those that one kernel runs, if that is asked for."""
    rng = np.random.default_rng(seed)
    cases = [family(rng) for family in FAMILIES for _ in range(2)]
    return [case for case in cases if case.one_kernel or not one_kernel]


@pytest.mark.parametrize(("target", "seed"), [("reference", 1), ("cpu", 3), ("cpu", 4)])
def test_written_by_hand_they_compute_what_numpy_says(target: str, seed: int):
    cases = drawn(seed, one_kernel=target != "reference")
    results = aicf.compile(module_of(cases), None, target).run(feeds_of(cases))
    for name, expected in expected_of(cases).items():
        close(results[name], expected, f"{cases[int(name.partition('.')[0])].kind}: {name}")


TARGETS = ("cpu:x86-64-v3", "cuda:sm_90a")
PARTS = {
    layernorm_bwd: "write dx as one instruction, dscale and dbias as another",
    cross_entropy_fwd: "write it with reduction none, then reduce_sum",
    cross_entropy_bwd: "write it with reduction none, with the gradient of each sample",
}


@pytest.mark.parametrize(
    ("family", "target"),
    [
        (layernorm_bwd, "cpu:x86-64-v3"),
        *((family, target) for family in (cross_entropy_fwd, cross_entropy_bwd) for target in TARGETS),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_what_no_one_kernel_runs_says_how_to_write_it(family: Family, target: str):
    case = next(case for case in map(family, map(np.random.default_rng, range(8))) if not case.one_kernel)
    with pytest.raises(aicf.UnsupportedOp, match=PARTS[family]) as caught:
        aicf.compile(module_of([case], ALIGN[target.partition(":")[0]]), None, target)
    assert f"instruction '{case.kind}.0'" in caught.value.message and "\n" not in caught.value.message


ALIGN = {"cpu": None, "cuda": 16}
"""Bytes that direct inputs and outputs are aligned to."""


ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "sigmoid")


def test_what_training_programs_pass_back_through_activations_has_the_kind():
    """Each product of the backward part, with the slope of the activation before it as its epilogue."""
    rng, size = np.random.default_rng(7), 8
    g = aicf.Graph("layers")
    x = g.input("x", (4, size))
    for name in (*ACTIVATIONS, "last"):
        x = g.linear(x, g.param(f"{name}.w", (size, size)), name=f"{name}.fc")
        x = x if name == "last" else getattr(g, name)(x, name=name)
    g.output(x, "prediction")
    step = aicf.train_step(g, "mse", aicf.optimizers.SGD(lr=0.1), target="cpu")
    step(*(rng.standard_normal((4, size), dtype=np.float32) for _ in range(2)))
    found = re.findall(r'"gemm_epilogue_bwd" .*\n.*\n *attrs \{.*activation = "(\w+)"', step.ir("emit"))
    assert found == list(reversed(ACTIVATIONS))
