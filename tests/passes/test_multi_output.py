"""Groups of several results: they form, compute on the CPU what float64 does, and go through policies and raising."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import aicf
from aicf.backends.reference.interpreter import run_module
from aicf.dialects.emit import ProgramOp
from aicf.frontends.text import make_context, parse_module
from aicf.passes.emit.raise_emit import RaiseEmitPass
from aicf.passes.emit.read_decisions import decisions_of
from tests.gpu.programs import arguments, random_arrays
from tests.passes.test_raise_emit import compiled, stripped
from tests.support.multi_output_programs import PROGRAMS, built

TARGETS = ("cpu:x86-64-v3", "cuda:sm_90a")
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 1e-2, "bfloat16": 8e-2}
"""Of the largest magnitude of a result of that type, or 1; integers are equal."""


def results_of(module: ModuleOp) -> list[int]:
    """How many results each instruction has."""
    programs = [op for op in module.body.block.ops if isinstance(op, ProgramOp)]
    return [len(instruction.outs) for program in programs for instruction in program.instructions]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_groups_form_and_come_back(name: str) -> None:
    """One instruction, or those that the CPU is faster with; raised and compiled again, the same program."""
    for target, expected in zip(TARGETS, PROGRAMS[name][1:], strict=True):
        module = built(name, 512, 1024, "f32").module()
        compiled(module, target)
        assert results_of(module) == list(expected), f"{name} on {target}"
        first = stripped(module)
        RaiseEmitPass().apply(make_context(), module)
        compiled(module, start="lowered")
        assert stripped(module) == first, f"{name} on {target}"


@pytest.mark.parametrize(
    ("name", "dtype", "results"), [("norm_gradients", "f32", [5]), ("linear_gradients", "bf16", [2, 2])]
)
def test_sums_of_columns_come_back(name: str, dtype: str, results: list[int]) -> None:
    """Enough rows for one instruction that sums columns as well as rows, or multiplies."""
    module = built(name, 4096, 768, dtype).module()
    compiled(module, TARGETS[1])
    assert results_of(module) == results
    first = stripped(module)
    RaiseEmitPass().apply(make_context(), module)
    compiled(module, start="lowered")
    assert stripped(module) == first


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_extracted_policy_gives_the_program_again(name: str) -> None:
    """Applied to the model, not to what was raised; and where several results are off, every instruction has one."""
    module = built(name, 24, 48, "f32").module()
    source = str(module)
    compiled(module, TARGETS[0])
    again, off = (parse_module(source, "model") for _ in range(2))
    policy = decisions_of(module).kernel
    again.attributes["aicf.policy"] = policy.to_attr()
    compiled(again, TARGETS[0])
    assert stripped(again) == stripped(module)
    off.attributes["aicf.policy"] = (
        type(policy).from_json_value({"fusion": {"multi_output": False}}).to_attr()
    )
    compiled(off, TARGETS[0])
    assert set(results_of(off)) == {1}


@pytest.mark.parametrize(
    ("dtype", "shape", "names"),
    [
        ("f32", (37, 130), tuple(PROGRAMS)),
        ("f64", (16, 9), tuple(PROGRAMS)[::3]),
        ("f16", (5, 300), tuple(PROGRAMS)[1::3]),
        ("bf16", (64, 64), tuple(PROGRAMS)[2::3]),
    ],
)
def test_values(dtype: str, shape: tuple[int, int], names: tuple[str, ...]) -> None:
    """Every result and every update, with all of the ops in one instruction, also where the CPU would have two."""
    for name in names:
        module = built(name, *shape, dtype).module()
        check(module, f"{name} {dtype}")


def check(module: ModuleOp, label: str) -> None:
    arrays = random_arrays(module, label)
    expected = run_module(module, arrays, "exact")
    roles = {argument: role for argument, role, _ in arguments(module)}
    weights = {key: array for key, array in arrays.items() if roles[key] in ("param", "state")}
    inputs = {key: array for key, array in arrays.items() if roles[key] == "input"}
    exe = aicf.compile(module, weights=weights, target="cpu", policy=one_group(module))
    found = exe(inputs)
    outputs = list(expected.outputs)
    given = found if isinstance(found, tuple) else () if found is None else (found,)
    for key, value in (*zip(outputs, given, strict=True), *exe.state().items()):
        wanted = {**expected.outputs, **expected.updates}[key].astype(np.float64)
        difference = np.abs(np.asarray(value).astype(np.float64) - wanted)
        limit = TOLERANCE.get(np.asarray(value).dtype.name, 0.0) * max(1.0, float(np.max(np.abs(wanted))))
        assert difference.shape == wanted.shape
        assert np.all(difference <= limit), f"{label}: {key} is off by {difference.max()}"


def one_group(module: ModuleOp) -> dict[str, object]:
    """The policy that lists the groups which form where nothing is priced."""
    grouped = module.clone()
    compiled(grouped, "reference:typed")
    return {"groups": [list(ids) for ids in decisions_of(grouped).kernel.groups]}
