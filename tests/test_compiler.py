"""`aicf.compile`, `aicf.load` and what they give, on the programs of examples/."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

import aicf
from aicf.compilation.record import EMIT, LOGICAL, PREPARED, WEIGHTS
from aicf.frontends.text import parse_module
from aicf.passes.pipelines.aicf_inference import emit_passes
from aicf.saving import artifact

Floats = NDArray[np.float32]

ROOT = Path(__file__).parent.parent
MLP, BLOCK, STEP = (
    ROOT / "examples" / name for name in ("digits/mlp.mlir", "block/block.mlir", "sgd/step.mlir")
)
TARGETS = ("reference", "cpu")


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Floats:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def mlp_weights(seed: int = 0) -> dict[str, Floats]:
    sizes = [(128, 64), (64, 128), (10, 64)]
    weights: dict[str, Floats] = {}
    for number, (outputs, inputs) in enumerate(sizes, 1):
        weights[f"fc{number}.weight"] = normal(outputs, inputs, seed=seed + number, scale=0.2)
        weights[f"fc{number}.bias"] = normal(outputs, seed=seed + 10 + number)
    return weights


def mlp_exact(x: Floats, weights: dict[str, Floats]) -> NDArray[np.float64]:
    """The network in float64 NumPy."""
    value = x.astype(np.float64)
    for number in (1, 2, 3):
        value = value @ weights[f"fc{number}.weight"].T.astype(np.float64) + weights[f"fc{number}.bias"]
        value = np.maximum(value, 0) if number < 3 else value
    value = np.exp(value - value.max(axis=1, keepdims=True))
    return value / value.sum(axis=1, keepdims=True)


def in_fresh_process(program: str, *arguments: object) -> str:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def mlp() -> aicf.CompiledModel:
    return aicf.compile(MLP, mlp_weights(), "cpu", dims="N=1,33")


@pytest.fixture(scope="module")
def saved(mlp: aicf.CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "mlp.aicf"
    mlp.save(path)
    return path


@pytest.mark.parametrize("target", TARGETS)
def test_the_mlp_is_right_in_every_bucket(target: str):
    exe = aicf.compile(MLP, mlp_weights(), target, dims={"N": [1, 33]})
    for count in (1, 33):
        x = normal(count, 64, seed=count)
        np.testing.assert_allclose(exe(x), mlp_exact(x, mlp_weights()), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("target", TARGETS)
def test_the_block_is_right(target: str):
    shapes = {
        "norm.weight": (512,),
        "norm.bias": (512,),
        "up.weight": (2048, 512),
        "up.bias": (2048,),
        "down.weight": (512, 2048),
        "down.bias": (512,),
    }
    weights = {
        name: normal(*shape, seed=seed, scale=0.05) for seed, (name, shape) in enumerate(shapes.items())
    }
    x = normal(128, 512, seed=9)
    exact = x.astype(np.float64)
    centred = exact - exact.mean(axis=1, keepdims=True)
    norm = (
        centred / np.sqrt(centred.var(axis=1, keepdims=True) + 1e-5) * weights["norm.weight"]
        + weights["norm.bias"]
    )
    up = norm @ weights["up.weight"].T + weights["up.bias"]
    exact = 0.5 * up * (1 + _erf(up / np.sqrt(2))) @ weights["down.weight"].T + weights["down.bias"] + exact
    exe = aicf.compile(BLOCK, weights, target)
    np.testing.assert_allclose(exe(x), exact, rtol=1e-4, atol=1e-5)


def _erf(x: NDArray[np.float64]) -> NDArray[np.float64]:
    from math import erf

    return np.vectorize(erf)(x)


@pytest.mark.parametrize("target", TARGETS)
def test_the_sgd_step_learns_and_its_state_is_apart(target: str):
    given = {"w": normal(4, 8, seed=1), "b": normal(4, seed=2), "lr": np.float32(0.1)}
    exe = aicf.compile(STEP, given, target)
    true_w = normal(4, 8, seed=3)
    w, b = given["w"].astype(np.float64), given["b"].astype(np.float64)
    apart = exe.instantiate()
    for seed in range(5):
        x = normal(64, 8, seed=10 + seed)
        y = (x @ true_w.T + 1).astype(np.float32)
        error = x @ w.T + b - y
        np.testing.assert_allclose(exe(x, y), (error**2).mean(), rtol=1e-5)
        grad = 2 * error / error.size
        w, b = w - 0.1 * grad.T @ x, b - 0.1 * grad.sum(axis=0)
    np.testing.assert_allclose(exe.state()["w"], w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(exe.state()["b"], b, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(apart.state["w"], given["w"])
    np.testing.assert_array_equal(exe.weights["w"], given["w"])


def as_text() -> str:
    return MLP.read_text("utf-8")


def as_module() -> Any:
    return parse_module(as_text(), str(MLP))


def as_graph() -> aicf.Graph:
    graph = aicf.Graph("mlp")
    value = graph.input("x", ("N", 64))
    for number, (outputs, inputs) in enumerate([(128, 64), (64, 128), (10, 64)], 1):
        weight = graph.param(f"fc{number}.weight", (outputs, inputs))
        value = graph.linear(value, weight, graph.param(f"fc{number}.bias", (outputs,)), name=f"fc{number}")
        value = graph.relu(value, name=f"relu{number}") if number < 3 else graph.softmax(value, name="prob")
    graph.output(value, "probabilities")
    return graph


@pytest.mark.parametrize("make", [as_text, as_module, as_graph])
def test_a_model_may_be_text_a_module_or_a_graph(make: Callable[[], Any]):
    model = make()
    before = str(model) if make is as_module else None
    exe = aicf.compile(model, mlp_weights(), "reference", dims="N=2")
    x = normal(2, 64)
    np.testing.assert_allclose(exe(x), mlp_exact(x, mlp_weights()), rtol=2e-5)
    assert before is None or str(model) == before, "the caller's module was changed"


def test_weights_may_be_a_file(tmp_path: Path):
    path = tmp_path / "mlp.safetensors"
    safetensors.numpy.save_file(mlp_weights(), path)
    x = normal(1, 64)
    one, other = (aicf.compile(MLP, weights, "reference", dims="N=1")(x) for weights in (path, mlp_weights()))
    np.testing.assert_array_equal(one, other)


def test_the_default_target_is_this_machines_cpu(mlp: aicf.CompiledModel):
    here = aicf.compile(MLP, mlp_weights(), dims="N=1")
    assert (here.plan.backend, here.plan.arch) == ("cpu", mlp.plan.arch)
    assert here.record.options.target.startswith(f"cpu:{mlp.plan.arch}")


def test_a_program_that_names_its_target_keeps_it():
    text = aicf.compile(MLP, mlp_weights(), "reference", dims="N=1").ir("lower-logical")
    assert aicf.compile(text, mlp_weights()).plan.backend == "reference"


def test_policy_pins_a_kernel_and_the_ledger_says_so():
    exe = aicf.compile(
        MLP, mlp_weights(), "cpu", dims="N=1", policy={"kernels": {"fc1": "cpu.gemm_portable"}}
    )
    assert exe.plan.programs[0].launches[0].kernel == "cpu.gemm_portable"
    assert "policy pins it for 'fc1'" in str(exe.explain("fc1"))


# Texts


def test_stages_are_texts_that_parse(mlp: aicf.CompiledModel):
    logical, lowered, emit = (mlp.ir(stage) for stage in ("logical", "lowered", "emit"))
    assert "logical.linear" in logical and "logical.softmax" in logical
    assert "logical.matmul" in lowered and "logical.softmax" not in lowered
    assert "emit.program" in emit and "logical.linear" not in emit
    for text in (logical, lowered, emit):
        assert str(parse_module(text)) + "\n" == text


def test_every_pass_has_a_text(mlp: aicf.CompiledModel):
    assert 'phase = "scheduled"' in mlp.ir("schedule")
    assert mlp.ir("verify-capture-safe") == mlp.ir("emit")


def test_final_ir_compiles_to_the_same_program(mlp: aicf.CompiledModel):
    again = aicf.compile(mlp.ir("emit"), mlp_weights())
    assert again.ir("emit") == mlp.ir("emit")
    assert again.plan == mlp.plan and again.native == mlp.native


def test_emit_ir_of_any_phase_goes_on_from_there(mlp: aicf.CompiledModel):
    for stage in ("lower-to-emit", "schedule", "decide-inplace", "plan-memory"):
        assert aicf.compile(mlp.ir(stage), mlp_weights()).plan == mlp.plan


def test_the_passes_of_a_final_program_only_check(mlp: aicf.CompiledModel):
    module = parse_module(mlp.ir("emit"))
    for module_pass in emit_passes():
        module_pass.apply(None, module)  # pyright: ignore[reportArgumentType]  # no check needs a context
    assert str(module) + "\n" == mlp.ir("emit")


# Explaining


def test_explain_has_a_row_for_every_instruction(mlp: aicf.CompiledModel):
    explanation = mlp.explain()
    assert [program.name for program in explanation.programs][:2] == ["digits@N=1", "digits@N=33"]
    for program, plan in zip(explanation.programs, mlp.plan.programs, strict=False):
        assert [row.name for row in program.rows] == [launch.name for launch in plan.launches]
        assert all(row.decisions and row.expected_us is not None and row.bytes > 0 for row in program.rows)
        assert program.lower_bound_bytes is not None and program.arena_bytes >= program.lower_bound_bytes
    text = str(explanation)
    assert "fc1@N=1" in text and "cpu.gemm" in text and "lower bound" in text


@pytest.mark.parametrize("value", ["relu1", "fc1", "fc1.matmul", "fc1@N=33"])
def test_explain_says_what_became_of_an_op(mlp: aicf.CompiledModel, value: str):
    text = str(mlp.explain(value))
    assert "instruction fc1@N=33, gemm_epilogue by cpu.gemm" in text
    assert "select-kernels of fc1@N=33" in text and "  not cpu.gemm_portable: predicted" in text


def test_explain_says_what_became_of_a_weight_and_an_output(mlp: aicf.CompiledModel):
    assert "prepared as #emit.layout" in str(mlp.explain("fc1.weight"))
    assert "output f32[33, 10], bound direct, written by prob@N=33" in str(mlp.explain("probabilities"))


def test_explain_of_an_unknown_value_names_the_closest(mlp: aicf.CompiledModel):
    with pytest.raises(aicf.InputMismatch, match="no value or op 'relu_1'; did you mean 'relu1'"):
        mlp.explain("relu_1")


# Artifacts


def test_a_loaded_artifact_is_the_same_model(mlp: aicf.CompiledModel, saved: Path):
    loaded = aicf.load(saved)
    for count in (1, 33):
        x = normal(count, 64, seed=count)
        assert loaded(x).tobytes() == mlp(x).tobytes()
    assert loaded.plan == mlp.plan and loaded.decisions == mlp.decisions and loaded.name == "mlp"
    assert str(loaded.explain()) == str(mlp.explain())
    for stage in ("logical", "lowered", "emit"):
        assert loaded.ir(stage) == mlp.ir(stage)


def test_saving_again_gives_the_same_bytes(saved: Path, tmp_path: Path):
    aicf.load(saved).save(tmp_path / "again.aicf")
    assert (tmp_path / "again.aicf").read_bytes() == saved.read_bytes()


def test_rebuilding_gives_the_same_results(mlp: aicf.CompiledModel, saved: Path):
    x = normal(33, 64)
    np.testing.assert_array_equal(aicf.load(saved, native="rebuild")(x), mlp(x))


COMPILE = """
import sys, numpy as np, aicf
from tests.test_compiler import MLP, mlp_weights
aicf.compile(MLP, mlp_weights(), "cpu", dims="N=1,33").save(sys.argv[1])
"""


def test_two_processes_write_the_same_bytes(saved: Path, tmp_path: Path):
    in_fresh_process(COMPILE, tmp_path / "other.aicf")
    assert (tmp_path / "other.aicf").read_bytes() == saved.read_bytes()


RUN = """
import hashlib, sys
import aicf, numpy as np
exe = aicf.load(sys.argv[1])
x = np.load(sys.argv[2])
hashes = {hashlib.sha256(exe(x).tobytes()).hexdigest() for _ in range(1000)}
print(*hashes, *(name for name in ("numba", "xdsl", "rich", "typer", "yaml") if name in sys.modules))
"""


def test_three_processes_replay_to_one_hash_without_a_compiler(
    mlp: aicf.CompiledModel, saved: Path, tmp_path: Path
):
    x = normal(33, 64, seed=4)
    np.save(tmp_path / "x.npy", x)
    wanted = hashlib.sha256(mlp(x).tobytes()).hexdigest()
    assert [in_fresh_process(RUN, saved, tmp_path / "x.npy") for _ in range(3)] == [wanted] * 3


def test_importing_aicf_imports_nothing_heavy():
    program = (
        "import sys, aicf; print([n for n in ('numpy', 'xdsl', 'numba', 'llvmlite') if n in sys.modules])"
    )
    assert in_fresh_process(program) == "[]"


def test_the_artifact_holds_what_the_reader_expects(saved: Path, mlp: aicf.CompiledModel):
    file = artifact.read(saved)
    assert file.text(EMIT) == mlp.ir("emit") and file.text(LOGICAL) == mlp.ir("logical")
    assert set(file.toolchain) >= {"python", "xdsl", "numpy", "numba", "llvmlite"}
    assert file.cpu_features == list(mlp.native.features)
    stored = safetensors.numpy.load(file.entry(WEIGHTS))
    assert {name: array.tobytes() for name, array in stored.items()} == {
        name: array.tobytes() for name, array in mlp_weights().items()
    }


def test_prepared_weights_of_other_weights_are_not_used(saved: Path, tmp_path: Path):
    file = artifact.read(saved)
    other = safetensors.numpy.save(mlp_weights(seed=50))
    path = tmp_path / "other.aicf"
    manifest = {key: value for key, value in file.manifest.items() if key not in ("entries", "format")}
    artifact.write(path, {**file.entries, WEIGHTS: other}, manifest)
    x = normal(33, 64)
    np.testing.assert_allclose(aicf.load(path)(x), mlp_exact(x, mlp_weights(seed=50)), rtol=2e-5, atol=1e-7)


def test_prepared_weights_are_in_the_file(saved: Path, mlp: aicf.CompiledModel):
    prepared = safetensors.numpy.load(artifact.read(saved).entry(PREPARED))
    assert {name: array.tobytes() for name, array in prepared.items()} == {
        name: array.tobytes() for name, array in mlp.prepared().items()
    }


def test_an_artifact_without_weights_takes_them_at_load(tmp_path: Path) -> None:
    """Weights left out of the file are given as arrays or as a safetensors file, and checked like any others."""
    graph = aicf.Graph("scale")
    x = graph.input("x", (3,))
    graph.output(x * graph.param("w", (3,)), "y")
    rng = np.random.default_rng(5)
    w, value = rng.standard_normal((2, 3)).astype(np.float32)
    path = tmp_path / "scale.aicf"
    aicf.compile(graph, {"w": w}).save(path, weights=False)
    with pytest.raises(aicf.ArtifactError, match="saved without weights; load it with aicf.load"):
        aicf.load(path)
    safetensors.numpy.save_file({"w": w}, tmp_path / "w.safetensors")
    for weights in ({"w": w}, tmp_path / "w.safetensors"):
        np.testing.assert_array_equal(aicf.load(path, weights=weights)(value), value * w)
    with pytest.raises(aicf.InputMismatch, match="missing weight w"):
        aicf.load(path, weights={})
