"""The gradients of attention on the GPU: by one instruction, those of the definition in float64, in the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.case_table.attention import ATTENTION_GRADIENTS, gradients_kernel
from tests.gpu.harness import POISONS, bits, instance, poison, program, results
from tests.support.attention_gradients import gradients

pytestmark = pytest.mark.gpu

WITHIN = {"f16": 2e-3, "bf16": 1.5e-2}
"""Of the largest element: probabilities and the gradient of the scores are rounded once before they are multiplied."""


@pytest.mark.parametrize("name", ATTENTION_GRADIENTS)
def test_gradients_are_those_of_the_definition(name: str) -> None:
    """For queries, keys and values, whatever memory held before."""
    case, arrays = ATTENTION_GRADIENTS[name], program(name).inputs
    q, k, v, weights = (arrays[each] for each in ("q", "k", "v", "weights"))
    wanted = gradients(q, k, v, weights, case.added(arrays.get("mask")), case.past, case.size**-0.5)
    graph_exec = instance(name)
    kernels = [launch.kernel for launch in graph_exec.plan.launches]
    assert kernels.count(gradients_kernel(name)) == 1, kernels
    for value in POISONS:
        poison(graph_exec, value)
        graph_exec.replay()
        found = results(graph_exec)
        for output, right in zip(("dq", "dk", "dv"), wanted, strict=True):
            within = WITHIN[case.dtype] * np.abs(right).max()
            np.testing.assert_allclose(found[output].astype(np.float64), right, atol=within, err_msg=output)


@pytest.mark.parametrize("name", ATTENTION_GRADIENTS)
def test_all_replays_have_one_hash(name: str) -> None:
    """Launched one at a time or as a graph, in two instances."""
    graph_exec, other = instance(name), instance(name)
    other.replay()
    hashes = {bits(other)}
    for _ in range(10):
        graph_exec.replay()
        hashes.add(bits(graph_exec))
    poison(graph_exec, POISONS[0])
    graph_exec.check()
    assert {*hashes, bits(graph_exec)} == {bits(other)}
