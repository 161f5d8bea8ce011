"""Kernels of packages for ops that AICF has: in one piece, and by the kind of instruction; by price and by policy."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.backends.cpu.target import host_architecture
from aicf.backends.registry import get_backend
from aicf.dialects.emit import ProgramOp
from aicf.errors import PolicyError
from aicf.frontends.text import make_context, parse_module
from aicf.kernels import CpuFunction, Problem, Tensor
from aicf.passes.emit.raise_emit import RaiseEmitPass
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.testing import check_kernel
from tests.kernels import rms_norm

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_kernel.py"
RNG = np.random.default_rng(1)
WEIGHTS = {"scale": RNG.standard_normal(48, np.float32)}


def norms(dtype="f32"):
    graph = aicf.Graph("norms")
    x, scale = graph.input("x", (8, 48), dtype), graph.param("scale", (48,), dtype)
    graph.output(graph.relu(graph.rms_norm(x, scale, epsilon=1e-3, name="norm"), name="act"), "y")
    return graph


def expected(x):
    x = x.astype(float)
    return np.maximum(x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-3) * WEIGHTS["scale"], 0)


def kernels_of(exe):
    return [launch.kernel for launch in exe.plan.programs[-1].launches]


@pytest.mark.parametrize(
    ("cost_us", "policy", "kernels"),
    [
        (1e-3, None, ["acme.rms_norm", "cpu.generated"]),
        (1e3, None, ["cpu.generated"]),
        (1e3, {"kernels": {"norm": "acme.rms_norm"}}, ["acme.rms_norm", "cpu.generated"]),
        (1e-3, {"forbid": ["acme.rms_norm"]}, ["cpu.generated"]),
        (1e-3, {"kernels": {"norm": "cpu.generated"}}, ["cpu.generated"]),
    ],
)
def test_an_op_in_one_piece_by_price_or_policy(cost_us: float, policy, kernels) -> None:
    rms_norm.define_cpu(cost_us)
    exe = aicf.compile(norms(), WEIGHTS, "cpu", policy=policy)
    assert kernels_of(exe) == kernels
    x = RNG.standard_normal((8, 48), np.float32)
    np.testing.assert_allclose(exe(x), expected(x), atol=2e-6)
    explained = str(exe.explain("norm"))
    assert "keep-whole of norm" in explained
    if kernels == ["cpu.generated"] and policy is None:
        assert "not acme.rms_norm: predicted 1e+03 us" in explained


@pytest.mark.parametrize(
    ("pin", "target", "kernels"),
    [
        ("all", "", ["acme.rms_norm", "cpu.generated"]),
        ("nothing", "cuda:sm_90a", ["cuda.generated"]),
        ("nothing", "reference:typed", ["reference.body", "reference.body"]),
    ],
)
def test_an_op_in_one_piece_is_raised_for_another_target(pin: str, target: str, kernels) -> None:
    """A target without a kernel for it lowers it; the reference runs what it means."""
    rms_norm.define_cpu(1e-3)
    module = parse_module(aicf.compile(norms(), WEIGHTS, "cpu").ir("emit"))
    context = make_context()
    RaiseEmitPass(pin).apply(context, module)
    assert 'logical.custom "logical.rms_norm"' in str(module)
    AicfInferencePass(target=target, start="lowered").apply(context, module)
    (program,) = [op for op in module.body.block.ops if isinstance(op, ProgramOp)]
    assert [op.kernel.kernel.data for op in program.instructions] == kernels


def test_a_kernel_that_the_policy_names_and_that_cannot_run() -> None:
    rms_norm.define_cpu(1e-3, dtypes=("f64",))
    with pytest.raises(
        PolicyError, match="kernels.norm: 'acme.rms_norm' cannot run it: element type f32 is not"
    ):
        aicf.compile(norms(), WEIGHTS, "cpu", policy={"kernels": {"norm": "acme.rms_norm"}})
    assert kernels_of(aicf.compile(norms(), WEIGHTS, "cpu")) == ["cpu.generated"]


@pytest.mark.parametrize("determinism", ["bitwise", "any"])
def test_unordered_kernels_are_taken_where_the_policy_lets_them(determinism: str) -> None:
    rms_norm.define_cpu(1e-3, determinism="unordered")
    exe = aicf.compile(norms(), WEIGHTS, "cpu", policy={"determinism": determinism})
    assert ("acme.rms_norm" in kernels_of(exe)) == (determinism == "any")


def test_batch_invariance_asks_for_an_order() -> None:
    policy = {"determinism": "batch_invariant"}
    rms_norm.define_cpu(1e-3)
    assert kernels_of(aicf.compile(norms(), WEIGHTS, "cpu", policy=policy)) == ["cpu.generated"]
    rms_norm.define_cpu(1e-3, order="ascending columns")
    assert "acme.rms_norm" in kernels_of(aicf.compile(norms(), WEIGHTS, "cpu", policy=policy))


@pytest.mark.parametrize("level", ["x86-64-v2", "aarch64-v8"])
def test_numba_compiles_for_its_own_machine(level: str) -> None:
    kernel = get_backend("cpu").user_kernel(rms_norm.define_cpu())
    matrix, vector = Tensor((4, 5), "f32", (5, 1)), Tensor((5,), "f32", (1,))
    reason = kernel.code_reason(Problem((matrix, vector), (matrix,), {"epsilon": 1e-5}, level))
    if level.startswith(host_architecture().replace("_", "-")[:3]):
        assert reason is None
    else:
        assert reason.startswith("Numba compiles for this machine's processor, not for")


def test_the_example_computes_what_it_means() -> None:
    """All its ops and kernels in one program."""
    names = runpy.run_path(str(EXAMPLE))
    weights = {"scale": np.ones(64, np.float32), "w": RNG.standard_normal((50, 64), np.float32)}
    x = RNG.standard_normal((4, 64), np.float32)
    policy = {"kernels": {"norm": "example.rms_norm_rows"}}
    exe, reference = (aicf.compile(names["model"](), weights, target) for target in ("cpu", "reference"))
    whole = aicf.compile(names["model"](), weights, "cpu", policy=policy)
    assert kernels_of(exe)[1] == "example.top_p_rows" and kernels_of(whole)[0] == "example.rms_norm_rows"
    for each in (exe, whole):
        np.testing.assert_allclose(each(x), reference(x), atol=2e-6)


def test_narrow_precision_leaves_it_whole_in_f32() -> None:
    rms_norm.define_cpu(1e-3)
    exe = aicf.compile(norms(), WEIGHTS, "cpu", policy={"to": "f16"})
    x = RNG.standard_normal((8, 48), np.float32)
    np.testing.assert_allclose(exe(x), expected(x), atol=4e-3)


def softmax_rows(x, y, rows, columns):
    for row in range(rows):
        start = row * columns
        top = x[start]
        for column in range(columns):
            top = max(top, x[start + column])
        total = 0.0
        for column in range(columns):
            y[start + column] = math.exp(x[start + column] - top)
            total += y[start + column]
        for column in range(columns):
            y[start + column] /= total


def define_softmax(cost_us: float):
    return aicf.kernel(
        "acme.softmax",
        runs="softmax",
        code=CpuFunction(softmax_rows),
        cost_us=lambda problem: cost_us,
        arguments=lambda problem: problem.operands[0].shape,
        in_place=[(0, 0)],
        legal=lambda problem: (
            None
            if len(problem.operands[0].shape) == 2 and problem.attributes["axis"] == 1
            else "it takes the rows of a matrix"
        ),
    )


def test_a_kind_of_instruction() -> None:
    """Formed by the fusing passes; the kernel competes with ours for it."""
    kernel = define_softmax(1e-3)
    check_kernel(kernel, (6, 31), program=lambda graph, x: graph.softmax(x), bounds=True)
    for cost_us, wanted in ((1e-3, "acme.softmax"), (1e3, "cpu.generated")):
        define_softmax(cost_us)
        graph = aicf.Graph("rows")
        graph.output(graph.softmax(graph.input("x", (6, 31)), name="prob"), "y")
        exe = aicf.compile(graph, target="cpu")
        assert kernels_of(exe) == [wanted]
        other = {"acme.softmax", "cpu.generated"} - {wanted}
        assert f"not {other.pop()}: predicted" in str(exe.explain("prob"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cost_us": None}, "competes with others for softmax: give cost_us"),
        ({"cost_us": lambda problem: -1.0}, "cost_us gives -1.0; it is a number of microseconds"),
        (
            {"cost_us": lambda problem: 1 / 0},
            "a rule of its definition raises ZeroDivisionError: division by zero",
        ),
        ({"arguments": lambda problem: ("six",)}, "arguments gives 'six'; they are whole numbers and floats"),
        ({"determinism": "often"}, "determinism is 'often'; legal: bitwise, unordered"),
        ({"runs": "softmaxx"}, "runs is 'softmaxx'; did you mean 'softmax'"),
        ({"runs": "logical.reshape"}, "runs is 'logical.reshape'; did you mean"),
        ({"runs": "logical.adam"}, "runs is 'logical.adam'"),
        ({"id": "softmax"}, "a kernel is called 'softmax'; an id is package.kernel"),
        (
            {"id": "cpu.generated"},
            "kernel 'cpu.generated' of tests.* has the id of one of 'cpu'",
        ),
        ({"code": softmax_rows}, "code is <function softmax_rows .*; give a CpuFunction"),
        ({"code": CpuFunction(3)}, "the code of a kernel is 3; give a Python function"),
    ],
)
def test_definitions_that_are_wrong(changed, message: str) -> None:
    given = {
        "id": "acme.softmax",
        "runs": "softmax",
        "code": CpuFunction(softmax_rows),
        "cost_us": lambda problem: 1e-3,
        "arguments": lambda problem: problem.operands[0].shape,
    }
    graph = aicf.Graph("rows")
    graph.output(graph.softmax(graph.input("x", (6, 31)), name="prob"), "y")
    with pytest.raises(PolicyError, match=message):
        define_and_compile({**given, **changed}, graph)


def define_and_compile(given, graph):
    given = dict(given)
    aicf.kernel(given.pop("id"), **given)
    aicf.compile(graph, target="cpu")
