"""Every op on the GPU in drawn shapes against what PyTorch gives on the host, where its functions are defined."""

from __future__ import annotations

import numpy as np
import pytest

from aicf.runtime import GraphExec
from tests.gpu.harness import instance, results
from tests.gpu.random_ops import ELEMENTWISE, RANDOM_OPS, RandomOps
from tests.support import torch_elementwise, torch_ops
from tests.support.elementwise_ops import OPS
from tests.support.op_rows.row import program

pytestmark = pytest.mark.gpu

NAMES = [name for name, ops in RANDOM_OPS.items() if ops.family in (*torch_ops.FAMILIES, ELEMENTWISE)]


@pytest.mark.parametrize("name", NAMES)
def test_same_answer(name: str) -> None:
    ops = RANDOM_OPS[name]
    if ops.family == ELEMENTWISE:
        compare_elementwise(ops, instance(name))
    else:
        compare(ops, instance(name))


def compare(ops: RandomOps, graph_exec: GraphExec) -> None:
    """Runs again, on operands that PyTorch takes."""
    uses = [torch_ops.defined(use) for use in ops.uses()]
    graph_exec.fill(program(uses)[1])
    graph_exec.replay()
    found = results(graph_exec)
    for number, use in enumerate(uses):
        if torch_ops.keeps_digits(use):
            torch_ops.assert_like_theirs(use, found[f"y{number}"])


def compare_elementwise(ops: RandomOps, graph_exec: GraphExec) -> None:
    """All ops have the same two operands: where PyTorch does not take them for one, it is not compared."""
    found, (_, operands) = results(graph_exec), ops.elementwise()
    for name, op in OPS.items():
        if ops.dtype in op.dtypes:
            taken = torch_elementwise.defined(name, ops.dtype, operands)
            theirs = torch_elementwise.theirs_of(name, taken)
            pairs = zip(taken, operands, strict=False)
            same = np.all([(one == other) | (one != one) for one, other in pairs], axis=0)
            torch_elementwise.assert_like_theirs(found[name][same], theirs[same], ops.dtype)
