"""Updates of many tensors by one instruction: the same as each by itself, in place, on every target that runs here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import ml_dtypes
import numpy as np
import pytest

import aicf
from aicf.dialects.emit import BindOp, ResolvedOp
from aicf.frontends.text import make_context, parse_module
from aicf.passes.emit.raise_emit import RaiseEmitPass
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from tests.passes.test_raise_emit import stripped
from tests.support.update_programs import Array, Program, Tensor, adam, momentum, random_array, sgd

HISTORY = 37
_DECAYED = "adamw {weight_decay = 0.1 : f64}"
_MOMENTUM = "sgd {momentum = 0.9 : f64}"

_adamw = partial(adam, decay=0.1)

Step = Callable[[Mapping[str, Array], str, Array, int], dict[str, Array]]

CASES: Mapping[str, tuple[Program, list[Step], str]] = {
    "adam": (
        Program([Tensor((33,)), Tensor((7, 5)), Tensor((1,)), Tensor((3, 4, 5)), Tensor((257, 3))]),
        [adam] * 5,
        "adam_step",
    ),
    "adam, decay of matrices": (
        Program([Tensor((9, 17), _DECAYED), Tensor((17,)), Tensor((4, 9), _DECAYED)]),
        [_adamw, adam, _adamw],
        "adam_step",
    ),
    "gradients in bf16": (
        Program([Tensor((6, 8), gradient="bf16"), Tensor((8,)), Tensor((10, 8), gradient="bf16")]),
        [adam] * 3,
        "adam_step",
    ),
    "momentum": (
        Program([Tensor(shape, _MOMENTUM, ("momentum_buffer",)) for shape in ((5, 3), (70,))]),
        [momentum] * 2,
        "update",
    ),
    "sgd": (
        Program([Tensor(shape, "sgd", ()) for shape in ((5, 3), (70,), (2, 2, 2))]),
        [sgd] * 3,
        "sgd_step",
    ),
}


def _weights(program: Program) -> dict[str, Array]:
    """Parameters drawn, states and the counter zero."""
    random = np.random.default_rng(4)
    found: dict[str, Array] = {"step": np.zeros((), np.int64), "losses": np.zeros(HISTORY, np.float32)}
    for number, tensor in enumerate(program.tensors):
        found[f"p{number}"] = random_array(tensor.shape, random)
        found |= {f"p{number}.{state}": np.zeros(tensor.shape, np.float32) for state in tensor.states}
    return found


def _kinds_of_updates(executable: aicf.Executable) -> list[str]:
    """The kinds of the instructions that write a parameter."""
    module = parse_module(executable.ir("emit"))
    binds = {op.buffer for op in module.walk() if isinstance(op, BindOp) and op.role.data == "param"}
    found = [op for op in module.walk() if isinstance(op, ResolvedOp)]
    return [op.kind.data for op in found if not binds.isdisjoint(op.outs)]


@pytest.mark.parametrize("target", ["reference", "cpu", "cpu, 2 threads"])
@pytest.mark.parametrize("name", CASES)
def test_same_as_the_definition(name: str, target: str) -> None:
    program, steps, kind = CASES[name]
    random = np.random.default_rng(5)
    fresh = Program(program.tensors, program.dtype, HISTORY)
    threads = 2 if "threads" in target else 1
    executable = aicf.compile(fresh.text(), _weights(program), target.partition(",")[0], threads=threads)
    assert _kinds_of_updates(executable) == [kind]
    values = {key: value.astype(np.float64) for key, value in executable.state().items()}
    for step in range(1, 5):
        feeds: dict[str, Array] = {"loss": np.array(step + 0.5, np.float32)}
        values["losses"][step] = step + 0.5
        for number, tensor in enumerate(program.tensors):
            dtype = ml_dtypes.bfloat16 if tensor.gradient else np.float32
            feeds[f"g{number}"] = random_array(tensor.shape, random, dtype)
            values |= steps[number](values, f"p{number}", feeds[f"g{number}"].astype(np.float64), step)
        executable(**feeds)
    found = executable.state()
    for key, wanted in values.items():
        if key != "step":
            np.testing.assert_allclose(found[key], wanted, rtol=2e-5, atol=1e-6, err_msg=key)
    assert int(found["step"]) == 4


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_a_guard_changes_no_kind(name: str) -> None:
    """Where steps that are not finite are held back, every new value is a choice, also that of the history."""
    program, _, kind = CASES[name]
    text = Program(program.tensors, program.dtype, HISTORY).text()
    guarded = aicf.compile(text, _weights(program), "reference", check_finite=True)
    assert _kinds_of_updates(guarded) == [kind]


@pytest.mark.parametrize(
    ("name", "target"), [("adam", "cpu:x86-64-v3"), ("adam", "cuda:sm_90a"), ("sgd", "reference:typed")]
)
def test_a_raised_step_is_the_same_again(name: str, target: str) -> None:
    """The policy lists the ops of the update; from lowered IR only listed updates are one instruction."""
    module = parse_module(Program(CASES[name][0].tensors, history=HISTORY).text())
    AicfTrainingPass(target).apply(make_context(), module)
    first = stripped(module)
    RaiseEmitPass().apply(make_context(), module)
    AicfInferencePass(start="lowered").apply(make_context(), module)
    assert stripped(module) == first


def test_through_another_target_and_back() -> None:
    """Groups of cpu, where numbers are instructions of their own, are groups on cuda as well."""
    module = parse_module(Program(CASES["adam"][0].tensors, history=HISTORY).text())
    AicfTrainingPass("cpu:x86-64-v3").apply(make_context(), module)
    first = stripped(module)
    for target in ("cuda:sm_90a", "cpu:x86-64-v3"):
        RaiseEmitPass("groups").apply(make_context(), module)
        AicfInferencePass(target, start="lowered").apply(make_context(), module)
    assert stripped(module) == first
