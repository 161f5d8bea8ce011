"""Weights that one instruction casts and lays channels-last: which of them, and what it writes on a simulated GPU."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.base import BufferRef, Launch
from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.dialects.emit import find_ledger
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import code_units
from tests.backends.cuda.gemm_launches import compiled
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.simulator import Memory, run
from tests.support.cast_weights import WEIGHTS, step

LAST = "{layouts: {'*': channels_last}}"


@cache
def final(target: str = "cuda:sm_90a") -> ModuleOp:
    """The final program, everything channels-last that kernels take so."""
    module = step()
    AicfInferencePass(target, policy=LAST).apply(make_context(), module)
    return module


def casting(target: str = "cuda:sm_90a") -> Launch:
    """The instruction that casts all weights."""
    (unit,) = code_units(final(target))
    (found,) = (launch for launch in unit.launches if len(launch.outs) == len(WEIGHTS))
    return found


def written(memory: Memory, ref: BufferRef) -> NDArray[np.float64]:
    """The elements of a result."""
    dtype = np.dtype(ml_dtypes.bfloat16)
    strides = [step * dtype.itemsize for step in ref.strides]
    elements = memory.buffers[ref.base][ref.offset :].view(dtype)
    return np.lib.stride_tricks.as_strided(elements, ref.shape, strides).astype(np.float64)


def test_lines_of_whole_16_bytes_are_written_channels_last() -> None:
    """Convolutions read them there; rows stay rows, and so does all on a target whose kernel writes rows."""
    strides = [ref.strides for ref in casting().outs]
    assert strides == [(27, 9, 3, 1), (144, 1, 48, 16), (120, 1, 5, 24), (40, 1, 1, 1)]
    (unit,) = code_units(final())
    read = [launch.ins[1].strides for launch in unit.launches if launch.kind == "conv"]
    assert read == strides
    assert [ref.strides for ref in casting("cpu:x86-64-v3").outs][1] == (144, 9, 3, 1)


def test_it_writes_what_was_cast() -> None:
    """Each weight where its strides say, by threads that read single elements a window apart."""
    launch, random = casting(), np.random.default_rng(5)
    bases = {ref.base: ref for ref in launch.ins}
    sizes = [
        1 << 20,
        *(4 * int(np.prod(bases[b].shape)) if b in bases else 16 for b in range(1, max(bases) + 1)),
    ]
    memory, given = Memory(sizes), dict[int, NDArray[np.float32]]()
    for base, ref in bases.items():
        given[base] = random.standard_normal(ref.shape).astype(np.float32)
        memory.fill(base, given[base])
    run([each for each in emitter(launch.kernel)(launch) if isinstance(each, KernelLaunch)], memory)
    for source, result in zip(launch.ins, launch.outs, strict=True):
        wanted = given[source.base].astype(ml_dtypes.bfloat16).astype(np.float64)
        np.testing.assert_array_equal(written(memory, result), wanted)


def test_machine_code() -> None:
    """Two neighbours go to memory together; nothing spills."""
    (launch,) = (each for each in emitter(casting().kernel)(casting()) if isinstance(each, KernelLaunch))
    ((_, cubin),) = compiled([launch])
    assert cubin.stack_bytes == 0 and not starting(instructions(cubin), SPILLS)


def test_the_ledger_tells_the_instruction_that_casts() -> None:
    ledger = find_ledger(final())
    assert ledger is not None
    subjects = [
        subject.data
        for decision in ledger.decisions
        if decision.pass_name.data == "select-layouts" and decision.choice.data.startswith("channels_last")
        for subject in decision.subjects
    ]
    assert casting().name in subjects
