"""Updates of many tensors on a simulated GPU: the table's look-up, vectors and what is left of them, new counters."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.dialects.types import element_named
from aicf.frontends.text import make_context, parse_module
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.plan_from_ir import code_units, read_module
from tests.backends.cuda.simulator import Memory, run
from tests.support.update_programs import ADAM, Array, Program, Tensor, adam, momentum, random_array

HISTORY = 7
DECAYED = "adamw {weight_decay = 0.1 : f64}"
MOMENTUM = "sgd {momentum = 0.9 : f64}"


class _Device:
    """A step on the simulated GPU, with the memory of its parameters and states."""

    def __init__(self, program: Program, values: Mapping[str, Array]):
        module: ModuleOp = parse_module(Program(program.tensors, program.dtype, program.history).text())
        AicfTrainingPass("cuda:sm_90a").apply(make_context(), module)
        (self.plan,) = read_module(module).programs
        (unit,) = code_units(module)
        self.kernels = [launch.kernel for launch in unit.launches]
        self.launches = [part for launch in unit.launches for part in emitter(launch.kernel)(launch)]
        plan: CapturePlan = self.plan
        self.bases = {bind.name: base for base, bind in enumerate(plan.graph.binds, 1)}
        self.memory = Memory([max(16, plan.arena_bytes), *(bind.nbytes for bind in plan.graph.binds)])
        for name, value in values.items():
            self.memory.fill(self.bases[name], value)

    def step(self, feeds: Mapping[str, Array]) -> None:
        """Runs it once."""
        for name, value in feeds.items():
            self.memory.fill(self.bases[name], value)
        run([launch for launch in self.launches if isinstance(launch, KernelLaunch)], self.memory)

    def value(self, name: str) -> Array:
        """What a parameter or state is."""
        bind = self.plan.graph.binds[self.bases[name] - 1]
        raw = self.memory.buffers[self.bases[name]]
        return raw.view(element_named(bind.dtype).dtype).reshape(bind.shape)


CASES = {
    "lengths around a vector and a block": [Tensor((size,)) for size in (1, 3, 4, 5, 1024, 1027, 2051)],
    "two programs, gradients of two types": [
        Tensor((9, 17), DECAYED, gradient="bf16"),
        Tensor((17,)),
        Tensor((4, 10), DECAYED, gradient="bf16"),
    ],
    "more parts than a warp": [
        Tensor((number % 7 + 1, 3), MOMENTUM, ("momentum_buffer",)) for number in range(35)
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_same_as_the_definition(name: str) -> None:
    tensors, random = CASES[name], np.random.default_rng(2)
    start: dict[str, Array] = {"step": np.zeros((), np.int64), "losses": np.zeros(HISTORY, np.float32)}
    for number, tensor in enumerate(tensors):
        start[f"p{number}"] = random_array(tensor.shape, random)
        start |= {f"p{number}.{state}": np.abs(random_array(tensor.shape, random)) for state in tensor.states}
    device = _Device(Program(tensors, history=HISTORY), start)
    assert device.kernels == ["cuda.multi_tensor"]
    values = {key: value.astype(np.float64) for key, value in start.items()}
    for step in range(1, 3):
        feeds: dict[str, Array] = {"loss": np.array(step + 0.5, np.float32)}
        values["losses"][step] = step + 0.5
        for number, tensor in enumerate(tensors):
            gradient = feeds[f"g{number}"] = random_array(
                tensor.shape, random, ml_dtypes.bfloat16 if tensor.gradient else np.float32
            )
            given = values, f"p{number}", gradient.astype(np.float64), step
            decay = 0.1 if tensor.optimizer == DECAYED else 0.0
            values |= adam(*given, decay) if tensor.states == ADAM.states else momentum(*given)
        device.step(feeds)
    for key, wanted in values.items():
        if key != "step":
            np.testing.assert_allclose(device.value(key), wanted, rtol=2e-5, atol=1e-6, err_msg=key)
    assert int(device.value("step")) == 2
