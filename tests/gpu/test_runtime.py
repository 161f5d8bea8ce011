"""Executables on the GPU beside each other, what they keep, and what happens when something fails."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from threading import Thread

import numpy as np
import pytest

import aicf
from aicf.backends.cuda.runtime.device_program import DeviceProgram
from aicf.backends.cuda.runtime.storage import read
from aicf.compilation.compiled import CompiledModel
from aicf.errors import AicfError, BackendUnavailable, CaptureError
from aicf.runtime import Profiler
from tests.gpu.artifacts import changed, obtained, with_module
from tests.gpu.case_table.case import ROOT
from tests.gpu.case_table.training import CASTS, STEP, UPDATES
from tests.gpu.cases import TOKEN
from tests.gpu.controls import ASTRAY, CONTROLS
from tests.gpu.harness import assert_right, bits, executable, instance, program

pytestmark = pytest.mark.gpu

ONE, OTHER = "encoder-f16", "chain-1"


def test_updated_weights_stay_on_the_gpu() -> None:
    """Five steps of gradient descent give the losses and the weights that the reference gives."""
    made = program(STEP)
    model, reference = obtained(STEP), aicf.compile(made.module, made.weights, "reference")
    losses = [(float(model(made.inputs)), float(reference(made.inputs))) for _ in range(5)]
    assert losses[4][0] < losses[0][0]
    np.testing.assert_allclose(*zip(*losses, strict=True), rtol=1e-5)
    for name, value in reference.state().items():
        np.testing.assert_allclose(model.state()[name], value, rtol=1e-4, atol=1e-6)


def test_every_optimizer_goes_the_way_of_its_meaning() -> None:
    """Three steps, states and the counter included, each tensor with an optimizer of its own, in one launch."""
    made = program(UPDATES)
    model, reference = obtained(UPDATES), aicf.compile(made.module, made.weights, "reference")
    for _ in range(3):
        model(made.inputs)
        reference(made.inputs)
    assert reference.state()["step"] == 3
    for name, value in reference.state().items():
        np.testing.assert_allclose(model.state()[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_weights_are_cast_at_every_step() -> None:
    """And laid channels-last: the second step convolves with the weights of the first one's update."""
    made = program(CASTS)
    model, reference = obtained(CASTS), aicf.compile(made.module, made.weights, "reference")
    for _ in range(2):
        found, wanted = model(made.inputs), reference(made.inputs)
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(
            found.astype(np.float64) / scale, wanted.astype(np.float64) / scale, atol=2e-2
        )


def test_a_token_is_written_into_the_state_in_place() -> None:
    """Several tokens at places of their own: each attends to those before it, and the state holds all in the end."""
    made = program(TOKEN)
    model, reference = obtained(TOKEN), aicf.compile(made.module, made.weights, "reference")
    for position in (3, -1, 200, 0):
        inputs = {**made.inputs, "at": np.array([position], np.int64)}
        np.testing.assert_allclose(model(inputs), reference(inputs), rtol=2e-3, atol=2e-3)
    for name, value in reference.state().items():
        np.testing.assert_array_equal(model.state()[name], value)


def test_a_set_state_is_what_the_next_call_reads() -> None:
    """Back at the first weights, the first loss comes again, bit for bit."""
    made = program(STEP)
    model = obtained(STEP)
    start = model.state()
    first = model(made.inputs)
    assert model(made.inputs) != first
    model.set_state(start)
    assert model(made.inputs) == first


def test_executables_side_by_side_do_not_disturb_each_other() -> None:
    """Replays of two programs in turns, each on its own stream, none awaited."""
    pair = [instance(name) for name in (ONE, OTHER)]
    alone: list[str] = []
    for graph_exec in pair:
        graph_exec.replay()
        alone.append(bits(graph_exec))
    for _ in range(100):
        for graph_exec in pair:
            graph_exec.replay()
    assert [bits(graph_exec) for graph_exec in pair] == alone


def test_calls_from_many_threads() -> None:
    """Each thread gets the results of its own inputs."""
    model, made = executable(OTHER), program(OTHER)
    wrong: list[int] = []

    def work(number: int) -> None:
        inputs = {key: value * np.float16(1 + number) for key, value in made.inputs.items()}
        first = model(inputs)
        for _ in range(30):
            if (model(inputs) != first).any():
                wrong.append(number)

    threads = [Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_profile_names_every_instruction() -> None:
    """Times of the GPU itself: all positive, none longer than a replay by the host's clock."""
    made = program(ONE)
    profile = Profiler(executable(ONE)).measure(*made.inputs.values(), repeats=5)
    launches = executable(ONE).plan.programs[0].launches
    assert [each.kernel for each in profile.instructions] == [launch.kernel for launch in launches]
    assert all(0 <= each.best_us <= each.median_us < profile.replay_us for each in profile.instructions)


# Failures


def second_kernel(model: CompiledModel) -> str:
    """The instruction of the second kernel that runs first; of `@prepare`, if there is one."""
    plan = model.plan
    return (plan.prepare or plan.programs[0]).graph.nodes[1].name


def too_many_threads(device_program: DeviceProgram) -> DeviceProgram:
    """A program, whose second kernel asks for more threads than a block can have."""
    kernels = list(device_program.kernels)
    kernels[1] = replace(kernels[1], block=(4096, 1, 1))
    return replace(device_program, kernels=tuple(kernels))


def test_a_launch_that_cannot_be_is_named_and_the_others_still_run() -> None:
    """The error comes before anything runs; the executable beside it does not notice."""
    neighbour = instance(OTHER)
    neighbour.replay()
    before = bits(neighbour)
    broken = changed(obtained(ONE), too_many_threads)
    name = second_kernel(broken)
    with pytest.raises(CaptureError, match=f"instruction '{name}'"):
        broken(program(ONE).inputs)
    neighbour.replay()
    assert bits(neighbour) == before
    assert_right(ONE, executable(ONE).run(program(ONE).inputs))


FAULT = """
import aicf
from tests.gpu.artifacts import obtained
from tests.gpu.controls import ASTRAY, CONTROLS, obtained_control
from tests.gpu.harness import program
from tests.gpu.test_runtime import OTHER
other = obtained(OTHER)
other(program(OTHER).inputs)
broken = obtained_control(ASTRAY)
for model, name in ((broken, CONTROLS[ASTRAY].case), (other, OTHER)):
    try:
        model(program(name).inputs)
    except aicf.AicfError as error:
        print(type(error).__name__, error)
aicf.shutdown()
print("still here")
"""


def test_a_kernel_that_faults_is_named() -> None:
    """The first run goes instruction by instruction and tells which one it was; a graph that ran before says what is
    lost and what to do; the process ends in order. The driver gives up a process's context after a fault, so this
    happens in a process of its own."""
    name = second_kernel(executable(CONTROLS[ASTRAY].case))
    done = subprocess.run(
        [sys.executable, "-c", FAULT], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    said = done.stdout + done.stderr
    first, second, last = done.stdout.splitlines()
    assert (
        first.startswith(f"CaptureError instruction '{name}' failed: ") and "start a new process" in first
    ), said
    assert second.startswith("DriverError ") and "GraphExec.check(), or aicf run" in second, said
    assert last == "still here" and done.returncode == 0, said


def test_more_memory_than_there_is_is_refused_before_the_first_allocation() -> None:
    """The prediction is compared with what is free."""
    model = obtained(OTHER)
    (plan,) = model.plan.programs
    large = replace(model.plan, programs=(replace(plan, arena_bytes=1 << 41),))
    greedy = type(model)(model.record, large, model.native, model.weights)
    with pytest.raises(BackendUnavailable, match=r"needs [\d,]+ bytes of memory on GPU 0 .* are free"):
        greedy(program(OTHER).inputs)
    assert_right(OTHER, model.run(program(OTHER).inputs))


def test_memory_that_the_driver_refuses_is_an_error_and_no_more() -> None:
    """Where the free memory went between the prediction and the allocation."""
    memory = instance(OTHER)._take().memory
    with pytest.raises(AicfError, match="memory"):
        memory.allocate(1 << 42)
    assert_right(OTHER, executable(OTHER).run(program(OTHER).inputs))


def test_code_for_another_gpu_is_refused() -> None:
    """Before anything is loaded, with the architecture to compile for."""
    model = obtained(OTHER)
    module, _ = read(model.native.code)
    with pytest.raises(BackendUnavailable, match=r"the code is for sm_80, .*compile with --target cuda:"):
        with_module(model, replace(module, arch="sm_80"))(program(OTHER).inputs)


def test_another_version_of_the_library_is_refused() -> None:
    """An algorithm's bytes mean something to one version alone."""
    model = obtained("library-dense")

    def older(device_program: DeviceProgram) -> DeviceProgram:
        libraries = tuple(replace(node, version="12.0.0") for node in device_program.libraries)
        return replace(device_program, libraries=libraries)

    with pytest.raises(BackendUnavailable, match=r"compiled for cublasLt 12\.0\.0, here is "):
        changed(model, older)(program("library-dense").inputs)
    assert_right("library-dense", model.run(program("library-dense").inputs))
