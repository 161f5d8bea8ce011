"""The gradients of attention by kernels of Hopper on a simulated GPU, and what they are held to: what the tests of
these kernels share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr

from aicf.backends.base import Launch
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.families.attention.backward.descriptor import BackwardKernel
from tests.backends.cuda import halves_simulator
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.simulator import Memory
from tests.backends.cuda.test_attention_backward import (
    DTYPES,
    TARGET,
    WITHIN,
    Sizes,
    backward,
    matrix,
    random_operands,
)
from tests.support.attention_gradients import Array, gradients

Emit = Callable[[Launch], Sequence[KernelLaunch]]


def simulated(
    kernel: BackwardKernel[Any], emit: Emit, work: Workload, spec: object, ins: Sequence[Array]
) -> list[Array]:
    """The results of the launches of a spec, all of whose elements must have been written."""
    record = kernel.record_of(work, TARGET, spec)
    sizes = [2 * int(np.prod(each.shape)) for each in work.results]
    if "workspace_bytes" in record:
        workspace = record["workspace_bytes"]
        assert isinstance(workspace, IntegerAttr)
        sizes.append(workspace.value.data)
    memory = Memory([*(each.nbytes for each in ins), *sizes])
    for base, each in enumerate(ins):
        memory.fill(base, each)
    halves_simulator.run(emit(launch_of(work, kernel.id, record)), memory)
    found: list[Array] = []
    for base, each in enumerate(work.results, len(ins)):
        assert memory.written[base].all()
        found.append(memory.buffers[base].view(DTYPES[each.dtype]).reshape(each.shape))
    return found


def assert_gradients(work: Workload, ins: Sequence[Array], found: Sequence[Array]) -> None:
    """Results against the definition in float64."""
    is_causal = work.attrs["causal"] == BoolAttr.from_bool(True)
    past, scale = work.attrs["past"], work.attrs["scale"]
    assert isinstance(past, IntegerAttr) and isinstance(scale, FloatAttr)
    mask = ins[4] if len(ins) > 4 else None
    wanted = gradients(*ins[:4], mask, past.value.data if is_causal else None, scale.value.data)
    within = WITHIN[work.results[0].dtype]
    for own, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own.astype(np.float64), right, atol=within * np.abs(right).max())


def with_a_row_of_none(n: int) -> tuple[Workload, list[Array]]:
    """A work with `n` keys, of which query number 3 sees none, and operands for it."""
    work = backward(Sizes((1,), 20, n, 64, 64), mask=matrix((20, n), "f32"))
    ins = random_operands(work)
    ins[4][3] = -np.inf
    return work, ins
